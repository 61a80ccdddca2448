// Command oracle-katalyst evaluates a cluster and a pod with Katalyst's own
// scheduler plugins. Package oracle has the protocol, protocol.go the wire format;
// judge.go fills Katalyst's cache and kube-scheduler's node infos and calls the
// plugins.
package main

import (
	"github.com/go-logr/logr"
	"github.com/kubewharf/katalyst-core/pkg/config/generic"
	"github.com/kubewharf/katalyst-core/pkg/scheduler/util"
	"k8s.io/klog/v2"
	"tidepool.io/e2e/oracle"
)

func main() {
	// Upstream logs what it also returns.
	klog.SetLogger(logr.Discard())
	util.SetQoSConfig(generic.NewQoSConfiguration())
	oracle.Oracle[Case, Verdicts]{Name: "oracle-katalyst", Judge: judge}.Run()
}
