package main

import (
	node "github.com/kubewharf/katalyst-api/pkg/apis/node/v1alpha1"
	v1 "k8s.io/api/core/v1"
	"tidepool.io/e2e/oracle"
)

// Case is a cluster and the pod to place in it.
type Case struct {
	Profile             oracle.ScoreProfile        `json:"profile"`
	Nodes               []*v1.Node                 `json:"nodes"`
	CustomNodeResources []*node.CustomNodeResource `json:"customNodeResources"`
	// Pods are bound: each has spec.nodeName.
	Pods []*v1.Pod `json:"pods"`
	Pod  *v1.Pod   `json:"pod"`
	// Node is a question about a figure of the agent, instead of a cluster.
	Node *NodeQuestion `json:"node"`
}

// Verdicts have the form of oracle-kube's. What Katalyst's plugins do not do is
// empty.
type Verdicts struct {
	Nodes     []string                `json:"nodes"`
	PreFilter []struct{}              `json:"preFilter"`
	Filter    [][]oracle.PluginStatus `json:"filter"`
	Cycle     Cycle                   `json:"cycle"`
	Kubelet   []struct{}              `json:"kubelet"`
	Node      *NodeAnswer             `json:"node,omitempty"`
}

// Cycle is the outcome for the pod.
type Cycle struct {
	Failure  string                `json:"failure,omitempty"`
	Rejected []oracle.NodeStatus   `json:"rejected,omitempty"`
	Feasible []string              `json:"feasible"`
	Scores   []oracle.PluginScores `json:"scores,omitempty"`
	Totals   []int64               `json:"totals,omitempty"`
	Message  string                `json:"message,omitempty"`
}
