package main

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"tidepool.io/e2e/oracle"
)

func (p profiles) judge(c *Case) (*Verdicts, error) {
	if c != nil && c.Cgroup != nil {
		return &Verdicts{Cgroup: podCgroup(c.Cgroup)}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cl, err := p.newCluster(ctx, c)
	if err != nil {
		return nil, err
	}
	v := &Verdicts{Nodes: []string{}}
	for _, node := range cl.nodes {
		v.Nodes = append(v.Nodes, node.Node().Name)
	}
	for _, plugin := range cl.framework.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, c.Pod); !status.IsSuccess() {
			v.PreEnqueue = append(v.PreEnqueue, pluginStatus(plugin.Name(), status))
		}
	}
	cl.askEachPlugin(ctx, c.Pod, v)
	if v.Cycle, err = cl.runCycle(ctx, c); err != nil {
		return nil, err
	}
	v.Kubelet = cl.kubelets(c.Pod)
	if c.Hints {
		v.Hints, err = cl.hints(ctx, c)
	}
	return v, err
}

// askEachPlugin asks every plugin about every node, as if it were the only one.
func (cl *cluster) askEachPlugin(ctx context.Context, pod *v1.Pod, v *Verdicts) {
	state := framework.NewCycleState()
	enabled := cl.framework.ListPlugins()
	silent := sets.New[string]()
	v.PreFilter = []PreFilterStatus{}
	for _, entry := range enabled.PreFilter.Enabled {
		result, status := cl.plugins[entry.Name].(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, cl.nodes)
		if !status.IsSuccess() {
			silent.Insert(entry.Name)
		}
		answer := PreFilterStatus{PluginStatus: pluginStatus(entry.Name, status)}
		if status.IsSuccess() && !result.AllNodes() {
			nodes := sets.List(result.NodeNames)
			answer.Nodes = &nodes
		}
		v.PreFilter = append(v.PreFilter, answer)
	}
	v.Filter = make([][]oracle.PluginStatus, len(cl.nodes))
	for i, node := range cl.nodes {
		v.Filter[i] = []oracle.PluginStatus{}
		for _, entry := range enabled.Filter.Enabled {
			if silent.Has(entry.Name) {
				continue
			}
			if status := cl.plugins[entry.Name].(fwk.FilterPlugin).Filter(ctx, state, pod, node); !status.IsSuccess() {
				v.Filter[i] = append(v.Filter[i], pluginStatus(entry.Name, status))
			}
		}
	}
}

// runCycle takes the steps of one scheduling cycle in kube-scheduler's order,
// over all nodes. Everything that judges is a call into upstream code.
func (cl *cluster) runCycle(ctx context.Context, c *Case) (Cycle, error) {
	cycle := Cycle{Feasible: []string{}}
	if len(cl.nodes) == 0 {
		cycle.Failure = "no nodes available to schedule pods"
		return cycle, nil
	}
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	feasible, err := cl.feasibleNodes(ctx, state, c.Pod, &cycle, &diagnosis)
	if err != nil {
		cycle.Failure = err.Error()
		return cycle, nil
	}
	for _, node := range feasible {
		cycle.Feasible = append(cycle.Feasible, node.Node().Name)
	}
	cycle.Rejected = cl.explicit(diagnosis.NodeToStatus)
	switch len(feasible) {
	case 0:
		fitError := &framework.FitError{Pod: c.Pod, NumAllNodes: len(cl.nodes), Diagnosis: diagnosis}
		cycle.Preemption = cl.postFilter(ctx, state, c, fitError)
		cycle.Message = fitError.Error()
	case 1:
		// Upstream takes a single node without scoring it.
	default:
		return cycle, cl.score(ctx, state, c.Pod, feasible, &cycle)
	}
	return cycle, nil
}

func (cl *cluster) feasibleNodes(ctx context.Context, state fwk.CycleState, pod *v1.Pod, cycle *Cycle, diagnosis *framework.Diagnosis) ([]fwk.NodeInfo, error) {
	result, status, plugins := cl.framework.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		combined := pluginStatus(status.Plugin(), status)
		cycle.PreFilter = &combined
		if !status.IsRejected() {
			return nil, status.AsError()
		}
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
		diagnosis.PreFilterMsg = status.Message()
		return nil, nil
	}
	if nominated := pod.Status.NominatedNodeName; nominated != "" {
		if node, err := cl.snapshot.NodeInfos().Get(nominated); err == nil {
			feasible, err := cl.filter(ctx, state, pod, []fwk.NodeInfo{node}, diagnosis)
			if err == nil && len(feasible) > 0 {
				return feasible, nil
			}
		}
	}
	nodes := cl.nodes
	if !result.AllNodes() {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(node fwk.NodeInfo) bool {
			return !result.NodeNames.Has(node.Node().Name)
		})
		reason := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(plugins))
		diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason))
	}
	return cl.filter(ctx, state, pod, nodes, diagnosis)
}

func (cl *cluster) filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, diagnosis *framework.Diagnosis) ([]fwk.NodeInfo, error) {
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		status := cl.framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		switch {
		case status.Code() == fwk.Error:
			return nil, status.AsError()
		case status.IsSuccess():
			feasible = append(feasible, node)
		default:
			diagnosis.NodeToStatus.Set(node.Node().Name, status)
		}
	}
	return feasible, nil
}

// explicit lists the nodes that were given a status of their own, in snapshot order.
func (cl *cluster) explicit(statuses *framework.NodeToStatus) []oracle.NodeStatus {
	byName := map[string]*fwk.Status{}
	statuses.ForEachExplicitNode(func(node string, status *fwk.Status) { byName[node] = status })
	var list []oracle.NodeStatus
	for _, node := range cl.nodes {
		name := node.Node().Name
		if status, known := byName[name]; known {
			list = append(list, oracle.NodeStatus{Node: name, PluginStatus: pluginStatus(status.Plugin(), status)})
		}
	}
	return list
}

// score asks each plugin for its raw and normalised scores, and the framework for
// the totals, and makes sure that the two agree.
func (cl *cluster) score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, cycle *Cycle) error {
	if status := cl.framework.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		cycle.Failure = status.AsError().Error()
		return nil
	}
	totals, status := cl.framework.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		cycle.Failure = status.AsError().Error()
		return nil
	}
	sums := make([]int64, len(nodes))
	for _, entry := range cl.framework.ListPlugins().Score.Enabled {
		if state.GetSkipScorePlugins().Has(entry.Name) {
			continue
		}
		scores, err := cl.scoresOf(ctx, state, pod, nodes, entry.Name, int64(entry.Weight))
		if err != nil {
			return err
		}
		for i, score := range scores.Normalized {
			sums[i] += score * scores.Weight
		}
		cycle.Scores = append(cycle.Scores, *scores)
	}
	for i, total := range totals {
		if total.Name != nodes[i].Node().Name || total.TotalScore != sums[i] {
			return fmt.Errorf("the framework's total for %s is %d, its plugins' scores add up to %d", total.Name, total.TotalScore, sums[i])
		}
		cycle.Totals = append(cycle.Totals, total.TotalScore)
	}
	return nil
}

func (cl *cluster) scoresOf(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, name string, weight int64) (*oracle.PluginScores, error) {
	plugin := cl.plugins[name].(fwk.ScorePlugin)
	scores := &oracle.PluginScores{Plugin: name, Weight: weight}
	list := make(fwk.NodeScoreList, len(nodes))
	for i, node := range nodes {
		score, status := plugin.Score(ctx, state, pod, node)
		if !status.IsSuccess() {
			return nil, fmt.Errorf("scoring with %s the second time: %w", name, status.AsError())
		}
		list[i] = fwk.NodeScore{Name: node.Node().Name, Score: score}
		scores.Raw = append(scores.Raw, score)
	}
	if extensions := plugin.ScoreExtensions(); extensions != nil {
		if status := extensions.NormalizeScore(ctx, state, pod, list); !status.IsSuccess() {
			return nil, fmt.Errorf("normalising with %s the second time: %w", name, status.AsError())
		}
	}
	for _, score := range list {
		scores.Normalized = append(scores.Normalized, score.Score)
	}
	return scores, nil
}
