package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// quotaPeriod is the kubelet's default, in microseconds.
const quotaPeriod = 100_000

// PodCgroup is what the kubelet writes into the cgroup of a pod. An absent value is
// not written: it means no limit.
type PodCgroup struct {
	QoS    string `json:"qos"`
	Shares uint64 `json:"shares"`
	Quota  *int64 `json:"quota,omitempty"`
	Memory *int64 `json:"memory,omitempty"`
}

func podCgroup(pod *v1.Pod) *PodCgroup {
	config := cm.ResourceConfigForPod(pod, true, quotaPeriod, false, kubeletconfig.NoneMemoryReservationPolicy)
	return &PodCgroup{QoS: string(qos.ComputePodQOS(pod)), Shares: *config.CPUShares, Quota: config.CPUQuota, Memory: config.Memory}
}
