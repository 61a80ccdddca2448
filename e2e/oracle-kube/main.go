// Command oracle-kube evaluates a cluster and a pod with kube-scheduler's own
// framework and plugins. Package oracle has the protocol.
//
// It decides nothing itself: protocol.go is the wire format, cluster.go fills
// kube-scheduler's caches from a case, evaluate.go and preemption.go call its
// framework, hints.go its queueing hints, kubelet.go the kubelet's admission
// predicates, and cgroup.go what the kubelet writes into cgroups.
package main

import (
	"fmt"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	kjson "sigs.k8s.io/json"
	"tidepool.io/e2e/oracle"
)

func main() {
	// A logger without a sink: upstream logs what it also returns.
	klog.SetLogger(klog.Logger{})
	// Plugins count their calls in metrics that are nil until registered.
	metrics.Register()
	oracle.Oracle[Case, Verdicts]{Name: "oracle-kube", Decode: decodeStrictly, Judge: profiles{}.judge}.Run()
}

// decodeStrictly refuses unknown and repeated fields, so that a misspelt field of
// a generated object cannot silently mean nothing.
func decodeStrictly(line []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(line, into)
	if err == nil && len(strict) > 0 {
		err = fmt.Errorf("%v", strict)
	}
	return err
}
