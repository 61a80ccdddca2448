// Command oracle-koordlet computes figures of a node with the code of Koordinator's
// agent. Package oracle has the protocol; questions.go has the wire format. Parts of
// that code are not exported; empty.s lets the compiler accept their declarations.
//
// It is a program of its own because Koordinator's agent links libpfm by cgo.
package main

import (
	"github.com/koordinator-sh/koordinator/pkg/util/histogram"
	"k8s.io/klog/v2"
	"tidepool.io/e2e/oracle"
)

func main() {
	// A logger without a sink: upstream logs what it also returns.
	klog.SetLogger(klog.Logger{})
	oracle.Oracle[Question, Answer]{Name: "oracle-koordlet", Judge: answer}.Run()
}

func (h *Histogram) compute() (*Answer, error) {
	first, most, halfLife := 0.025, 1024.0, 12*hour
	if h.Memory {
		first, most, halfLife = 5<<20, 1<<41, 24*hour
	}
	options, err := histogram.NewExponentialHistogramOptions(most, first, 1.05, 0.0001)
	if err != nil {
		return nil, err
	}
	built := histogram.NewDecayingHistogram(options, halfLife)
	for _, sample := range h.Samples {
		built.AddSample(sample.Value, 1, at(sample.Second))
	}
	result := &Answer{}
	for _, percentile := range h.Percentiles {
		result.Values = append(result.Values, built.Percentile(percentile))
	}
	checkpoint, err := built.SaveToCheckpoint()
	if err != nil {
		return nil, err
	}
	result.Weights = map[int]uint32{}
	for bucket, weight := range checkpoint.BucketWeights {
		result.Weights[bucket] = weight
	}
	return result, nil
}
