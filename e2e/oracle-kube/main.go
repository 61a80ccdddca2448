// Command oracle-kube answers what kube-scheduler's own framework and plugins
// say about a cluster and a pod. It reads one JSON request per line on stdin and
// writes one JSON answer per line on stdout, in the same order, until stdin ends.
//
// It decides nothing itself: protocol.go is the wire format, world.go fills
// kube-scheduler's caches from a case, evaluate.go and preemption.go ask its
// framework, hints.go asks its plugins what may help a rejected pod, and
// kubelet.go asks the kubelet's admission predicates.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	kjson "sigs.k8s.io/json"
)

func main() {
	// A logger without a sink: upstream logs what it also returns.
	klog.SetLogger(klog.Logger{})
	// A case allocates a few megabytes and drops them all.
	debug.SetGCPercent(400)
	// Plugins count their calls in metrics that are nil until registered.
	metrics.Register()

	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle-kube:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	oracle := newOracle()
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(oracle.answer(line)); err != nil {
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
func (o *oracle) answer(line []byte) (answer Answer) {
	var request Request
	defer func() {
		if cause := recover(); cause != nil {
			answer = Answer{ID: request.ID, Error: fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())}
		}
	}()
	if err := decode(line, &request); err != nil {
		return Answer{ID: request.ID, Error: err.Error()}
	}
	verdicts, err := o.judge(request.Case)
	if err != nil {
		return Answer{ID: request.ID, Error: err.Error()}
	}
	return Answer{ID: request.ID, Verdicts: verdicts}
}

// decode refuses unknown and repeated fields, so that a misspelt field of a
// generated object cannot silently mean nothing.
func decode(line []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(line, into)
	if err != nil {
		return fmt.Errorf("decoding the request: %w", err)
	}
	if len(strict) > 0 {
		return fmt.Errorf("decoding the request: %v", strict)
	}
	return nil
}
