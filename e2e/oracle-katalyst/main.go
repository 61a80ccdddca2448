// Command oracle-katalyst answers what Katalyst's own scheduler plugins say
// about a cluster and a pod. It reads one JSON request per line on stdin and
// writes one JSON answer per line on stdout, in the same order, until stdin ends.
//
// It decides nothing itself: protocol.go is the wire format, judge.go fills
// Katalyst's cache and kube-scheduler's node infos and asks the plugins.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/kubewharf/katalyst-core/pkg/config/generic"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/util"
	"k8s.io/klog/v2"
)

func main() {
	// Upstream logs what it also returns.
	klog.SetLogger(logr.Discard())
	util.SetQoSConfig(generic.NewQoSConfiguration())
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle-katalyst:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(answer(line)); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
		// The other side may wait for this answer before it asks again.
		if reader.Buffered() == 0 {
			if err := writer.Flush(); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
	}
}

// answer never fails: what goes wrong, a panic of upstream code included, is
// reported in the answer.
func answer(line []byte) (answer Answer) {
	var request Request
	defer func() {
		if cause := recover(); cause != nil {
			answer = Answer{ID: request.ID, Error: fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	if err := json.Unmarshal(line, &request); err != nil {
		return Answer{ID: request.ID, Error: fmt.Sprintf("decoding the request: %v", err)}
	}
	verdicts, err := judge(request.Case)
	if err != nil {
		return Answer{ID: request.ID, Error: err.Error()}
	}
	return Answer{ID: request.ID, Verdicts: verdicts}
}
