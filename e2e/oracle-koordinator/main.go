// Command oracle-koordinator evaluates a cluster and a pod with Koordinator's own
// score plugins. Package oracle has the protocol; judge.go calls the plugins.
package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"tidepool.io/e2e/oracle"
)

// Case is a cluster and the pod to place in it. Lists that no score plugin reads
// are left out.
type Case struct {
	Profile oracle.ScoreProfile `json:"profile"`
	Pod     *v1.Pod             `json:"pod"`
	Nodes   []*v1.Node          `json:"nodes"`
	Pods    []*v1.Pod           `json:"pods"`
}

// Verdicts have the form of oracle-kube's. Score plugins filter nothing.
type Verdicts struct {
	Nodes     []string   `json:"nodes"`
	PreFilter []struct{} `json:"preFilter"`
	Filter    [][]string `json:"filter"`
	Cycle     Cycle      `json:"cycle"`
	Kubelet   []struct{} `json:"kubelet"`
}

// Cycle is the scoring part of a scheduling cycle.
type Cycle struct {
	Failure  string                `json:"failure,omitempty"`
	Feasible []string              `json:"feasible"`
	Scores   []oracle.PluginScores `json:"scores,omitempty"`
	Totals   []int64               `json:"totals,omitempty"`
}

func main() {
	// A logger without a sink: upstream logs what it also returns.
	klog.SetLogger(klog.Logger{})
	// The cache counts its pods in metrics that are nil until registered.
	metrics.Register()
	oracle.Oracle[Case, Verdicts]{Name: "oracle-koordinator", Judge: judge}.Run()
}
