package main

import (
	"encoding/json"

	node "github.com/kubewharf/katalyst-api/pkg/apis/node/v1alpha1"
	v1 "k8s.io/api/core/v1"
)

// Request is one line of input.
type Request struct {
	ID   string `json:"id"`
	Case *Case  `json:"case"`
}

// Case is a cluster and a pod that asks for a node in it.
type Case struct {
	Profile             Profile                    `json:"profile"`
	Nodes               []*v1.Node                 `json:"nodes"`
	CustomNodeResources []*node.CustomNodeResource `json:"customNodeResources"`
	// Pods on nodes.
	Pods []*v1.Pod `json:"pods"`
	Pod  *v1.Pod   `json:"pod"`
}

// Profile is that of a KubeSchedulerConfiguration, as far as it is read here.
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

// Answer is one line of output.
type Answer struct {
	ID       string    `json:"id"`
	Error    string    `json:"error,omitempty"`
	Verdicts *Verdicts `json:"verdicts,omitempty"`
}

// Verdicts have the form of those of oracle-kube, with nothing in what
// Katalyst's plugins do not do.
type Verdicts struct {
	Nodes     []string         `json:"nodes"`
	PreFilter []struct{}       `json:"preFilter"`
	Filter    [][]PluginStatus `json:"filter"`
	Cycle     Cycle            `json:"cycle"`
	Kubelet   []struct{}       `json:"kubelet"`
}

// Cycle is what becomes of the pod.
type Cycle struct {
	Failure  string         `json:"failure,omitempty"`
	Rejected []NodeStatus   `json:"rejected,omitempty"`
	Feasible []string       `json:"feasible"`
	Scores   []PluginScores `json:"scores,omitempty"`
	Totals   []int64        `json:"totals,omitempty"`
	Message  string         `json:"message,omitempty"`
}

// PluginStatus is a rejection.
type PluginStatus struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons,omitempty"`
}

// NodeStatus is a rejection of a node.
type NodeStatus struct {
	Node string `json:"node"`
	PluginStatus
}

// PluginScores are one plugin's scores in the order of Cycle.Feasible.
type PluginScores struct {
	Plugin     string  `json:"plugin"`
	Weight     int64   `json:"weight"`
	Raw        []int64 `json:"raw"`
	Normalized []int64 `json:"normalized"`
}
