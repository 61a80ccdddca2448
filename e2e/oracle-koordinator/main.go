// Command oracle-koordinator answers what Koordinator's own score plugins say
// about a cluster and a pod. It reads one JSON request per line on stdin and
// writes one JSON answer per line on stdout, in the same order, until stdin ends.
//
// It speaks the protocol of oracle-kube as far as scores go: protocol.go there
// explains the fields. It decides nothing itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Request asks about one case. Lists of a case that no scorer looks at are left out.
type Request struct {
	ID   string `json:"id"`
	Case *Case  `json:"case"`
}

// Case is a cluster and the pod to place in it.
type Case struct {
	Profile Profile    `json:"profile"`
	Pod     *v1.Pod    `json:"pod"`
	Nodes   []*v1.Node `json:"nodes"`
	Pods    []*v1.Pod  `json:"pods"`
}

// Profile is what counts of a profile of a KubeSchedulerConfiguration v1.
type Profile struct {
	Plugins struct {
		Score struct {
			Enabled []struct {
				Name   string `json:"name"`
				Weight int64  `json:"weight"`
			} `json:"enabled"`
		} `json:"score"`
	} `json:"plugins"`
	PluginConfig []struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"pluginConfig"`
}

// Answer carries the id of its request, and either an error or the verdicts.
type Answer struct {
	ID       string    `json:"id"`
	Error    string    `json:"error,omitempty"`
	Verdicts *Verdicts `json:"verdicts,omitempty"`
}

// Verdicts of scorers: nothing is filtered.
type Verdicts struct {
	Nodes     []string   `json:"nodes"`
	PreFilter []struct{} `json:"preFilter"`
	Filter    [][]string `json:"filter"`
	Cycle     Cycle      `json:"cycle"`
	Kubelet   []struct{} `json:"kubelet"`
}

// Cycle is the part of a scheduling cycle that scores.
type Cycle struct {
	Failure  string         `json:"failure,omitempty"`
	Feasible []string       `json:"feasible"`
	Scores   []PluginScores `json:"scores,omitempty"`
	Totals   []int64        `json:"totals,omitempty"`
}

// PluginScores are one plugin's scores in the order of Cycle.Feasible.
type PluginScores struct {
	Plugin     string  `json:"plugin"`
	Weight     int64   `json:"weight"`
	Raw        []int64 `json:"raw"`
	Normalized []int64 `json:"normalized"`
}

func main() {
	// A logger without a sink: upstream logs what it also returns.
	klog.SetLogger(klog.Logger{})
	debug.SetGCPercent(400)
	// The cache counts its pods in metrics that are nil until registered.
	metrics.Register()
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle-koordinator:", err)
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

// answer never fails: what goes wrong is reported in the answer.
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
