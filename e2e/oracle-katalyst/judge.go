package main

import (
	"context"
	"encoding/json"
	"fmt"

	// Registers Katalyst's arguments with kube-scheduler's configuration.
	_ "github.com/kubewharf/katalyst-api/pkg/apis/scheduling/config/scheme"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/cache"
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
	fit, err := newPlugin(c, qosawarenoderesources.FitName, handle)
	if err != nil {
		return nil, err
	}
	verdicts, feasible, err := filter(c, infos, fit)
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

func filter(c *Case, infos *infos, fit framework.Plugin) (*Verdicts, []string, error) {
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status := fit.(framework.PreFilterPlugin).PreFilter(ctx, state, c.Pod); !status.IsSuccess() {
		return nil, nil, fmt.Errorf("PreFilter: %v", status.Message())
	}
	verdicts := &Verdicts{
		Nodes: []string{}, PreFilter: []struct{}{}, Filter: [][]oracle.PluginStatus{}, Kubelet: []struct{}{},
		Cycle: Cycle{Feasible: []string{}},
	}
	statuses := framework.NodeToStatusMap{}
	for _, info := range infos.list {
		name, rejections := info.Node().Name, []oracle.PluginStatus{}
		status := fit.(framework.FilterPlugin).Filter(ctx, state, c.Pod, info)
		if status.IsSuccess() {
			verdicts.Cycle.Feasible = append(verdicts.Cycle.Feasible, name)
		} else {
			statuses[name] = status
			rejections = append(rejections, oracle.PluginStatus{Plugin: fit.Name(), Code: status.Code().String(), Reasons: status.Reasons()})
			verdicts.Cycle.Rejected = append(verdicts.Cycle.Rejected, oracle.NodeStatus{Node: name, PluginStatus: rejections[0]})
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
		scores := oracle.PluginScores{Plugin: entry.Name, Weight: entry.Weight}
		for i, node := range feasible {
			score, status := plugin.(framework.ScorePlugin).Score(context.Background(), framework.NewCycleState(), c.Pod, node)
			if !status.IsSuccess() {
				cycle.Failure, cycle.Scores = fmt.Sprintf("plugin %q failed with: %v", entry.Name, status.Message()), nil
				return nil
			}
			scores.Raw = append(scores.Raw, score)
			totals[i] += score * entry.Weight
		}
		// Neither plugin normalises.
		scores.Normalized = scores.Raw
		cycle.Scores = append(cycle.Scores, scores)
	}
	cycle.Totals = totals
	return nil
}

// newPlugin decodes arguments as kube-scheduler does, defaults included.
func newPlugin(c *Case, name string, handle framework.Handle) (framework.Plugin, error) {
	create := map[string]func(runtime.Object, framework.Handle) (framework.Plugin, error){
		qosawarenoderesources.FitName:                qosawarenoderesources.NewFit,
		qosawarenoderesources.BalancedAllocationName: qosawarenoderesources.NewBalancedAllocation,
	}[name]
	if create == nil {
		return nil, fmt.Errorf("%q is not one of Katalyst's QoS-aware plugins", name)
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
