package main

import (
	"context"
	"encoding/json"
	"fmt"

	// Registers Katalyst's arguments with kube-scheduler's configuration.
	_ "github.com/kubewharf/katalyst-api/pkg/apis/scheduling/config/scheme"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/cache"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/plugins/noderesourcetopology"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/plugins/qosawarenoderesources"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/util"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"tidepool.io/e2e/oracle"
)

const configVersion = "kubescheduler.config.k8s.io/v1beta3"

func judge(c *Case) (*Verdicts, error) {
	if c != nil && c.Node != nil {
		node, err := answer(c.Node)
		return &Verdicts{Node: node}, err
	}
	if c == nil || c.Pod == nil {
		return nil, fmt.Errorf(`a request needs a "case" with a "pod"`)
	}
	infos := newInfos(c.Nodes)
	forget, err := fill(c, infos)
	defer forget()
	if err != nil {
		return nil, err
	}
	handle := &handle{infos: infos}
	var filters []framework.Plugin
	for _, entry := range c.Profile.Plugins.Filter.Enabled {
		plugin, err := newPlugin(c, entry.Name, handle)
		if err != nil {
			return nil, err
		}
		filters = append(filters, plugin)
	}
	reserve(c, filters)
	verdicts, feasible, err := filter(c, infos, filters)
	if err != nil {
		return nil, err
	}
	// A single node is taken without scoring it.
	if len(feasible) < 2 {
		return verdicts, nil
	}
	return verdicts, score(c, handle, feasible, &verdicts.Cycle)
}

// fill puts the case into Katalyst's cache, which is the process's, and into
// the nodes. The next case must find the cache empty.
func fill(c *Case, infos *infos) (func(), error) {
	extended := cache.GetCache()
	forget := func() {
		for _, report := range c.CustomNodeResources {
			extended.RemoveCNR(report)
		}
		for _, pod := range c.Pods {
			extended.RemoveCNR(named(pod.Spec.NodeName))
		}
	}
	for _, report := range c.CustomNodeResources {
		extended.AddOrUpdateCNR(report)
	}
	for _, pod := range c.Pods {
		if info, ok := infos.byName[pod.Spec.NodeName]; ok {
			info.AddPod(pod)
		}
		// What Katalyst's event handler lets through.
		if util.IsReclaimedPod(pod) && pod.Spec.NodeName != "" {
			if err := extended.AddPod(pod); err != nil {
				return forget, fmt.Errorf("adding pod %s: %w", pod.Name, err)
			}
		}
	}
	return forget, nil
}

// reserve does what a scheduler does when it has chosen a node for a pod: pods that no
// report of their node names yet are assumed.
func reserve(c *Case, plugins []framework.Plugin) {
	reported, consumers := map[string]bool{}, map[string]bool{}
	for _, report := range c.CustomNodeResources {
		reported[report.Name] = true
		for _, socket := range report.Status.TopologyZone {
			for _, zone := range socket.Children {
				for _, allocation := range zone.Allocations {
					consumers[allocation.Consumer] = true
				}
			}
		}
	}
	for _, pod := range c.Pods {
		consumer := fmt.Sprintf("%s/%s/%s", pod.Namespace, pod.Name, pod.UID)
		// Without a report the plugin panics.
		if consumers[consumer] || !reported[pod.Spec.NodeName] {
			continue
		}
		for _, plugin := range plugins {
			if plugin, ok := plugin.(*noderesourcetopology.TopologyMatch); ok {
				plugin.Reserve(context.Background(), framework.NewCycleState(), pod, pod.Spec.NodeName)
			}
		}
	}
}

func filter(c *Case, infos *infos, plugins []framework.Plugin) (*Verdicts, []string, error) {
	ctx, state := context.Background(), framework.NewCycleState()
	for _, plugin := range plugins {
		if before, ok := plugin.(framework.PreFilterPlugin); ok {
			if _, status := before.PreFilter(ctx, state, c.Pod); !status.IsSuccess() {
				return nil, nil, fmt.Errorf("PreFilter: %v", status.Message())
			}
		}
	}
	verdicts := &Verdicts{
		Nodes: []string{}, PreFilter: []struct{}{}, Filter: [][]oracle.PluginStatus{}, Kubelet: []struct{}{},
		Cycle: Cycle{Feasible: []string{}},
	}
	statuses := framework.NodeToStatusMap{}
	for _, info := range infos.list {
		name, rejections := info.Node().Name, []oracle.PluginStatus{}
		for _, plugin := range plugins {
			status := plugin.(framework.FilterPlugin).Filter(ctx, state, c.Pod, info)
			if status.IsSuccess() {
				continue
			}
			rejection := oracle.PluginStatus{Plugin: plugin.Name(), Code: status.Code().String(), Reasons: status.Reasons()}
			// The cycle ends at the first.
			if len(rejections) == 0 {
				statuses[name] = status
				verdicts.Cycle.Rejected = append(verdicts.Cycle.Rejected, oracle.NodeStatus{Node: name, PluginStatus: rejection})
			}
			rejections = append(rejections, rejection)
		}
		if len(rejections) == 0 {
			verdicts.Cycle.Feasible = append(verdicts.Cycle.Feasible, name)
		}
		verdicts.Nodes = append(verdicts.Nodes, name)
		verdicts.Filter = append(verdicts.Filter, rejections)
	}
	if len(verdicts.Cycle.Feasible) == 0 {
		failure := framework.FitError{Pod: c.Pod, NumAllNodes: len(infos.list), Diagnosis: framework.Diagnosis{NodeToStatusMap: statuses}}
		verdicts.Cycle.Message = failure.Error()
	}
	return verdicts, verdicts.Cycle.Feasible, nil
}

func score(c *Case, handle framework.Handle, feasible []string, cycle *Cycle) error {
	totals := make([]int64, len(feasible))
	for _, entry := range c.Profile.Plugins.Score.Enabled {
		plugin, err := newPlugin(c, entry.Name, handle)
		if err != nil {
			return err
		}
		raw, failure := scoreNodes(c, plugin, feasible)
		if failure != "" {
			cycle.Failure, cycle.Scores = failure, nil
			return nil
		}
		for i, score := range raw {
			totals[i] += score * entry.Weight
		}
		// None of the plugins normalises.
		scores := oracle.PluginScores{Plugin: entry.Name, Weight: entry.Weight, Raw: raw, Normalized: raw}
		cycle.Scores = append(cycle.Scores, scores)
	}
	cycle.Totals = totals
	return nil
}

// scoreNodes asks a plugin about each node. A panic is an answer too.
func scoreNodes(c *Case, plugin framework.Plugin, nodes []string) (scores []int64, failure string) {
	defer func() {
		if cause := recover(); cause != nil {
			scores, failure = nil, fmt.Sprintf("panic: %v", cause)
		}
	}()
	for _, node := range nodes {
		score, status := plugin.(framework.ScorePlugin).Score(context.Background(), framework.NewCycleState(), c.Pod, node)
		if !status.IsSuccess() {
			return nil, fmt.Sprintf("plugin %q failed with: %v", plugin.Name(), status.Message())
		}
		scores = append(scores, score)
	}
	return scores, ""
}

// newPlugin decodes arguments as kube-scheduler does, defaults included.
func newPlugin(c *Case, name string, handle framework.Handle) (framework.Plugin, error) {
	create := map[string]func(runtime.Object, framework.Handle) (framework.Plugin, error){
		qosawarenoderesources.FitName:                qosawarenoderesources.NewFit,
		qosawarenoderesources.BalancedAllocationName: qosawarenoderesources.NewBalancedAllocation,
		noderesourcetopology.TopologyMatchName:       noderesourcetopology.New,
	}[name]
	if create == nil {
		return nil, fmt.Errorf("%q is not one of Katalyst's plugins", name)
	}
	fields := map[string]any{}
	for _, given := range c.Profile.PluginConfig {
		if given.Name == name {
			if err := json.Unmarshal(given.Args, &fields); err != nil {
				return nil, fmt.Errorf("decoding the arguments of %s: %w", name, err)
			}
		}
	}
	fields["apiVersion"], fields["kind"] = configVersion, name+"Args"
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	args, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("the arguments of %s: %w", name, err)
	}
	return create(args, handle)
}
