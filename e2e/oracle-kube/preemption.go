package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// postFilter completes the message of fitError and, when asked, reports the whole
// search for victims. It never lets upstream act on a candidate.
func (cl *cluster) postFilter(ctx context.Context, state fwk.CycleState, c *Case, fitError *framework.FitError) *Preemption {
	statuses := fitError.Diagnosis.NodeToStatus
	plugin, enabled := cl.plugins[names.DefaultPreemption].(*defaultpreemption.DefaultPreemption)
	var found *Preemption
	if enabled && cl.preemptionRuns(ctx, state, c.Pod, statuses, plugin) {
		// An error leaves nothing found: RunPostFilterPlugins meets it again and reports it.
		found, _ = cl.dryRun(ctx, state, c.Pod, statuses, plugin)
	}
	// Preemption that succeeds says nothing, and would delete the victims.
	if found == nil || len(found.Candidates) == 0 {
		_, status := cl.framework.RunPostFilterPlugins(ctx, state, c.Pod, statuses)
		fitError.Diagnosis.PostFilterMsg = status.Message()
	}
	if !c.Preempt {
		return nil
	}
	return found
}

// preemptionRuns tells whether DefaultPreemption gets its turn after
// DynamicResources, and whether the pod may preempt at all.
func (cl *cluster) preemptionRuns(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus, plugin *defaultpreemption.DefaultPreemption) bool {
	for _, entry := range cl.framework.ListPlugins().PostFilter.Enabled {
		if entry.Name == names.DefaultPreemption {
			break
		}
		if _, status := cl.plugins[entry.Name].(fwk.PostFilterPlugin).PostFilter(ctx, state, pod, statuses); status.Code() != fwk.Unschedulable {
			return false
		}
	}
	eligible, _ := plugin.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	return eligible
}

func (cl *cluster) dryRun(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus, plugin *defaultpreemption.DefaultPreemption) (*Preemption, error) {
	potential, err := statuses.NodesForStatusCode(cl.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, fmt.Errorf("listing the potential nodes: %w", err)
	}
	found := &Preemption{Candidates: []Candidate{}}
	if len(potential) == 0 {
		return found, nil
	}
	budgets, err := plugin.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing the disruption budgets: %w", err)
	}
	// As many candidates as nodes: the search never stops early.
	candidates, unhelpful, err := plugin.Evaluator.DryRunPreemption(ctx, state, pod, potential, budgets, 0, int32(len(potential)))
	if err != nil && len(candidates) == 0 {
		return nil, fmt.Errorf("dry run: %w", err)
	}
	cl.inSnapshotOrder(candidates)
	for _, candidate := range candidates {
		victims := []string{}
		for _, victim := range candidate.Victims().Pods {
			victims = append(victims, victim.Namespace+"/"+victim.Name)
		}
		found.Candidates = append(found.Candidates, Candidate{
			Node: candidate.Name(), Victims: victims, PDBViolations: candidate.Victims().NumPDBViolations,
		})
	}
	found.Unhelpful = cl.explicit(unhelpful)
	if len(candidates) > 0 {
		selected := plugin.Evaluator.SelectCandidate(ctx, candidates)
		found.Selected = selected.Name()
		for _, candidate := range candidates {
			if rank(candidate.Victims()) == rank(selected.Victims()) {
				found.Tied = append(found.Tied, candidate.Name())
			}
		}
	}
	return found, nil
}

func (cl *cluster) inSnapshotOrder(candidates []preemption.Candidate) {
	position := map[string]int{}
	for i, node := range cl.nodes {
		position[node.Node().Name] = i
	}
	slices.SortFunc(candidates, func(a, b preemption.Candidate) int {
		return cmp.Compare(position[a.Name()], position[b.Name()])
	})
}

// victimsRank is what upstream compares candidates by; equal ranks are a tie.
type victimsRank struct {
	violations int64
	highest    int32
	sum        int64
	count      int
	earliest   int64
}

func rank(victims *extenderv1.Victims) victimsRank {
	r := victimsRank{
		violations: victims.NumPDBViolations,
		highest:    corev1helpers.PodPriority(victims.Pods[0]),
		count:      len(victims.Pods),
	}
	for _, pod := range victims.Pods {
		r.sum += int64(corev1helpers.PodPriority(pod))
	}
	if earliest := util.GetEarliestPodStartTime(victims); earliest != nil {
		r.earliest = earliest.UnixNano()
	}
	return r
}
