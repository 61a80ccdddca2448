package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// admit asks the kubelet's predicate handler, without the eviction of other pods
// that a critical pod may cause.
func admit(request *AdmitRequest) *AdmitAnswer {
	handler := lifecycle.NewPredicateAdmitHandler(
		func(context.Context, bool) (*v1.Node, error) { return request.Node, nil },
		lifecycle.NewAdmissionFailureHandlerStub(),
		func(*framework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil },
	)
	result := handler.Admit(&lifecycle.PodAdmitAttributes{Pod: request.Pod, OtherPods: request.OtherPods})
	return &AdmitAnswer{Admit: result.Admit, Reason: result.Reason, Message: result.Message}
}
