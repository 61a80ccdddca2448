// Package oracle is the protocol that every oracle speaks: one JSON request per
// line on stdin, one JSON answer per line on stdout, in the same order, until
// stdin ends. A request holds a case; the answer holds what upstream's own code
// decides about it.
package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// Oracle answers requests about cases of type C with verdicts of type V.
type Oracle[C, V any] struct {
	// Name of the program, for errors.
	Name string
	// Decode reads a request; nil means json.Unmarshal.
	Decode func(line []byte, into any) error
	// Judge evaluates one case. It may panic where upstream code does.
	Judge func(*C) (*V, error)
}

type request[C any] struct {
	ID   string `json:"id"`
	Case *C     `json:"case"`
}

// answer carries the id of its request, and either an error or the verdicts.
type answer[V any] struct {
	ID       string `json:"id"`
	Error    string `json:"error,omitempty"`
	Verdicts *V     `json:"verdicts,omitempty"`
}

// Run serves stdin until it ends, and exits with an error if that fails.
func (o Oracle[C, V]) Run() {
	// A case allocates a few megabytes and drops them all.
	debug.SetGCPercent(400)
	if o.Decode == nil {
		o.Decode = json.Unmarshal
	}
	if err := o.serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.Name, err)
		os.Exit(1)
	}
}

func (o Oracle[C, V]) serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriterSize(out, 1<<20)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(o.answer(line)); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
		// The other side may wait for this answer before it sends the next request.
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

// answer reports every failure in the answer, a panic of upstream code included.
func (o Oracle[C, V]) answer(line []byte) (result answer[V]) {
	var asked request[C]
	defer func() {
		result.ID = asked.ID
		if cause := recover(); cause != nil {
			result.Error = fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	if err := o.Decode(line, &asked); err != nil {
		result.Error = fmt.Sprintf("decoding the request: %v", err)
		return result
	}
	verdicts, err := o.Judge(asked.Case)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Verdicts = verdicts
	return result
}

// ScoreProfile is what an oracle of score plugins reads of a profile of a
// KubeSchedulerConfiguration.
type ScoreProfile struct {
	Plugins struct {
		Filter PluginSet `json:"filter"`
		Score  PluginSet `json:"score"`
	} `json:"plugins"`
	PluginConfig []struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"pluginConfig"`
}

// PluginSet are the plugins of one extension point.
type PluginSet struct {
	Enabled []struct {
		Name   string `json:"name"`
		Weight int64  `json:"weight"`
	} `json:"enabled"`
}

// PluginStatus is a status with the plugin that gave it.
type PluginStatus struct {
	Plugin  string   `json:"plugin,omitempty"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
}

// NodeStatus is the reason for which a node was rejected.
type NodeStatus struct {
	Node string `json:"node"`
	PluginStatus
}

// PluginScores are one plugin's scores in the order of the feasible nodes.
type PluginScores struct {
	Plugin     string  `json:"plugin"`
	Weight     int64   `json:"weight"`
	Raw        []int64 `json:"raw"`
	Normalized []int64 `json:"normalized"`
}
