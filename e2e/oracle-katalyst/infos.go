package main

import (
	"fmt"

	node "github.com/kubewharf/katalyst-api/pkg/apis/node/v1alpha1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// infos are kube-scheduler's views of nodes; its own snapshot cannot be
// imported.
type infos struct {
	list   []*framework.NodeInfo
	byName map[string]*framework.NodeInfo
}

func newInfos(nodes []*v1.Node) *infos {
	all := &infos{byName: map[string]*framework.NodeInfo{}}
	for _, node := range nodes {
		info := framework.NewNodeInfo()
		info.SetNode(node)
		all.list = append(all.list, info)
		all.byName[node.Name] = info
	}
	return all
}

func (i *infos) NodeInfos() framework.NodeInfoLister { return i }

func (i *infos) List() ([]*framework.NodeInfo, error) { return i.list, nil }

func (i *infos) HavePodsWithAffinityList() ([]*framework.NodeInfo, error) { return nil, nil }

func (i *infos) HavePodsWithRequiredAntiAffinityList() ([]*framework.NodeInfo, error) {
	return nil, nil
}

func (i *infos) Get(name string) (*framework.NodeInfo, error) {
	if info, ok := i.byName[name]; ok {
		return info, nil
	}
	return nil, fmt.Errorf("node %q is not in the case", name)
}

// handle offers plugins the nodes, and nothing else.
type handle struct {
	framework.Handle
	infos *infos
}

func (h *handle) SnapshotSharedLister() framework.SharedLister { return h.infos }

func named(name string) *node.CustomNodeResource {
	return &node.CustomNodeResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
