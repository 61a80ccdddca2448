package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/koordinator-sh/koordinator/pkg/scheduler/apis/config"
	noderesourcesfitplus "github.com/koordinator-sh/koordinator/pkg/scheduler/plugins/noderesourcefitplus"
	"github.com/koordinator-sh/koordinator/pkg/scheduler/plugins/scarceresourceavoidance"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"tidepool.io/e2e/oracle"
)

type build func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error)

func judge(c *Case) (*Verdicts, error) {
	if c == nil || c.Pod == nil {
		return nil, fmt.Errorf(`a request needs a "case" with a "pod"`)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	nodes, err := snapshot(ctx, c)
	if err != nil {
		return nil, err
	}
	v := &Verdicts{PreFilter: []struct{}{}, Kubelet: []struct{}{}, Nodes: []string{}}
	for _, node := range nodes {
		v.Nodes = append(v.Nodes, node.Node().Name)
		v.Filter = append(v.Filter, []string{})
	}
	v.Cycle.Feasible = v.Nodes
	// A single node is taken without scoring it.
	if len(nodes) < 2 {
		return v, nil
	}
	totals := make([]int64, len(nodes))
	for _, entry := range c.Profile.Plugins.Score.Enabled {
		plugin, err := newPlugin(ctx, c, entry.Name)
		if err != nil {
			return nil, err
		}
		scores, failure := score(ctx, plugin, c.Pod, nodes)
		if failure != "" {
			v.Cycle.Failure, v.Cycle.Scores = failure, nil
			return v, nil
		}
		// Neither plugin normalises.
		v.Cycle.Scores = append(v.Cycle.Scores, oracle.PluginScores{Plugin: entry.Name, Weight: entry.Weight, Raw: scores, Normalized: scores})
		for i, score := range scores {
			totals[i] += score * entry.Weight
		}
	}
	if failure := invalid(v.Cycle.Scores); failure != "" {
		v.Cycle.Failure, v.Cycle.Scores = failure, nil
		return v, nil
	}
	v.Cycle.Totals = totals
	return v, nil
}

// invalid returns the framework's error for a score that is out of range, once all plugins have scored.
func invalid(scored []oracle.PluginScores) string {
	for _, plugin := range scored {
		for _, score := range plugin.Normalized {
			if score < fwk.MinNodeScore || score > fwk.MaxNodeScore {
				return fmt.Sprintf("applying score defaultWeights on Score plugins: plugin %q returns an invalid score %v, "+
					"it should in the range of [%v, %v] after normalizing", plugin.Plugin, score, fwk.MinNodeScore, fwk.MaxNodeScore)
			}
		}
	}
	return ""
}

func newPlugin(ctx context.Context, c *Case, name string) (fwk.Plugin, error) {
	var args runtime.Object
	var new build
	switch name {
	case noderesourcesfitplus.Name:
		args, new = &config.NodeResourcesFitPlusArgs{}, noderesourcesfitplus.New
	case scarceresourceavoidance.Name:
		args, new = &config.ScarceResourceAvoidanceArgs{}, scarceresourceavoidance.New
	default:
		return nil, fmt.Errorf("%q is not one of Koordinator's two scorers", name)
	}
	for _, given := range c.Profile.PluginConfig {
		if given.Name == name {
			if err := json.Unmarshal(given.Args, args); err != nil {
				return nil, fmt.Errorf("decoding the arguments of %s: %w", name, err)
			}
		}
	}
	return new(ctx, args, nil)
}

// score asks a plugin about every node, as the framework does. A panic is an answer too.
func score(ctx context.Context, plugin fwk.Plugin, pod *v1.Pod, nodes []fwk.NodeInfo) (scores []int64, failure string) {
	defer func() {
		if cause := recover(); cause != nil {
			scores, failure = nil, fmt.Sprintf("panic: %v", cause)
		}
	}()
	state := framework.NewCycleState()
	if before, ok := plugin.(fwk.PreScorePlugin); ok {
		if status := before.PreScore(ctx, state, pod, nodes); !status.IsSuccess() {
			return nil, status.AsError().Error()
		}
	}
	for _, node := range nodes {
		score, status := plugin.(fwk.ScorePlugin).Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return nil, status.AsError().Error()
		}
		scores = append(scores, score)
	}
	return scores, ""
}

// snapshot goes through the real cache, which orders nodes and sums up their pods.
func snapshot(ctx context.Context, c *Case) ([]fwk.NodeInfo, error) {
	logger := klog.FromContext(ctx)
	cache := internalcache.New(ctx, 0, nil)
	for _, node := range c.Nodes {
		cache.AddNode(logger, node)
	}
	for _, pod := range c.Pods {
		if pod.Spec.NodeName == "" {
			return nil, fmt.Errorf("pod %s/%s of \"pods\" has no spec.nodeName", pod.Namespace, pod.Name)
		}
		if err := cache.AddPod(logger, pod); err != nil {
			return nil, fmt.Errorf("adding pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	taken := internalcache.NewEmptySnapshot()
	if err := cache.UpdateSnapshot(logger, taken); err != nil {
		return nil, fmt.Errorf("taking the snapshot: %w", err)
	}
	return taken.NodeInfos().List()
}
