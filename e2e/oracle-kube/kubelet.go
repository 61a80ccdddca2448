package main

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// kubelets asks the kubelet of every node whether it would admit the pod.
func (cl *cluster) kubelets(pod *v1.Pod) []Admission {
	answers := []Admission{}
	for _, info := range cl.nodes {
		var others []*v1.Pod
		for _, other := range info.GetPods() {
			others = append(others, other.GetPod())
		}
		// A copy: the handler writes the operating system into the node's labels.
		answers = append(answers, admit(pod, others, info.Node().DeepCopy()))
	}
	return answers
}

func admit(pod *v1.Pod, others []*v1.Pod, node *v1.Node) Admission {
	failures := &failureRecorder{}
	handler := lifecycle.NewPredicateAdmitHandler(
		func(context.Context, bool) (*v1.Node, error) { return node, nil },
		failures,
		func(*framework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil },
	)
	result := handler.Admit(&lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others})
	return Admission{Admit: result.Admit, Reason: result.Reason, Message: result.Message, Failures: failures.reasons}
}

// failureRecorder sees all failures, of which the handler reports only the first.
// In a kubelet this is where lower pods are evicted for a critical one.
type failureRecorder struct{ reasons []string }

func (r *failureRecorder) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, failures []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	failures = inFixedOrder(failures)
	for _, failure := range failures {
		r.reasons = append(r.reasons, failure.GetReason())
	}
	return failures, nil
}

// inFixedOrder sorts what upstream takes from a map: the failures for scalar
// resources, which lie together between the other resources and the rest.
func inFixedOrder(failures []lifecycle.PredicateFailureReason) []lifecycle.PredicateFailureReason {
	isScalar := func(failure lifecycle.PredicateFailureReason) bool {
		insufficient, ok := failure.(*lifecycle.InsufficientResourceError)
		return ok && !slices.Contains([]v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, insufficient.ResourceName)
	}
	failures = slices.Clone(failures)
	first := slices.IndexFunc(failures, isScalar)
	if first < 0 {
		return failures
	}
	last := first
	for last < len(failures) && isScalar(failures[last]) {
		last++
	}
	slices.SortFunc(failures[first:last], func(a, b lifecycle.PredicateFailureReason) int {
		return cmp.Compare(a.GetReason(), b.GetReason())
	})
	return failures
}
