// Command tiers answers as Koordinator's controller of node resources does: the
// settings of a node, its mid and batch resources, and whether a change of them
// is written at once. Package oracle has the protocol.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/koordinator-sh/koordinator/apis/configuration"
	slov1alpha1 "github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/config"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/noderesource/framework"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/noderesource/plugins/batchresource"
	"github.com/koordinator-sh/koordinator/pkg/slo-controller/noderesource/plugins/midresource"
	"github.com/koordinator-sh/koordinator/pkg/util/sloconfig"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"tidepool.io/e2e/oracle"
)

// Case is a node with its pods and metric, and the settings of the cluster.
type Case struct {
	// Config is the value of the key colocation-config.
	Config string                  `json:"config"`
	Node   *corev1.Node            `json:"node"`
	Pods   []corev1.Pod            `json:"pods"`
	Metric *slov1alpha1.NodeMetric `json:"metric"`
	// Age of the metric in minutes; absent: it was never filled in.
	Age *int64 `json:"age,omitempty"`
	// Old and New are values of the four resources, in the order of names; a
	// value that is absent is null.
	Old []*int64 `json:"old"`
	New []*int64 `json:"new"`
}

// Verdicts are what the controller makes of a case.
type Verdicts struct {
	// Valid says whether the settings are used; if not, nothing else is set.
	Valid    bool                              `json:"valid"`
	Strategy *configuration.ColocationStrategy `json:"strategy,omitempty"`
	// Enabled says whether both the cluster and the node enable the tiers.
	Enabled bool `json:"enabled"`
	// Mid and Batch are CPU and memory; absent if the metric is stale.
	Mid   []int64 `json:"mid,omitempty"`
	Batch []int64 `json:"batch,omitempty"`
	// Write says whether the change from old to new cannot wait.
	Write bool `json:"write"`
}

var (
	names  = append(append([]corev1.ResourceName{}, midresource.ResourceNames...), batchresource.ResourceNames...)
	scheme = runtime.NewScheme()
	mid    = &midresource.Plugin{}
	batch  = &batchresource.Plugin{}
)

func main() {
	klog.SetLogger(klog.Logger{})
	klog.SetOutput(io.Discard)
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	option := &framework.Option{
		Scheme:  scheme,
		Client:  fake.NewClientBuilder().WithScheme(scheme).Build(),
		Builder: builder.ControllerManagedBy(nil),
	}
	utilruntime.Must(batch.Setup(option))
	// The scheme is complete only after the set-up: a client that looks for zones needs it.
	option.Client = fake.NewClientBuilder().WithScheme(scheme).Build()
	utilruntime.Must(batch.Setup(option))
	oracle.Oracle[Case, Verdicts]{Name: "oracle-tiers", Judge: judge}.Run()
}

func judge(c *Case) (*Verdicts, error) {
	if c == nil || c.Node == nil || c.Metric == nil {
		return nil, fmt.Errorf(`a request needs a "case" with a "node" and a "metric"`)
	}
	v := &Verdicts{}
	settings := decode(c.Config)
	if settings == nil {
		return v, nil
	}
	v.Valid = true
	v.Strategy = sloconfig.GetNodeColocationStrategy(settings, c.Node)
	v.Enabled = *settings.Enable && *v.Strategy.Enable
	if c.Age != nil {
		at := metav1.NewTime(time.Now().Add(-time.Duration(*c.Age) * time.Minute))
		c.Metric.Status.UpdateTime = &at
	}
	pods := &corev1.PodList{Items: c.Pods}
	metrics := &framework.ResourceMetrics{NodeMetric: c.Metric}
	var err error
	if v.Mid, err = amounts(mid.Calculate(v.Strategy, c.Node, pods, metrics)); err != nil {
		return nil, fmt.Errorf("mid: %w", err)
	}
	if v.Batch, err = amounts(batch.Calculate(v.Strategy, c.Node, pods, metrics)); err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	before, after := published(c.Old), published(c.New)
	byMid, _ := mid.NeedSync(v.Strategy, before, after)
	byBatch, _ := batch.NeedSync(v.Strategy, before, after)
	v.Write = byMid || byBatch
	return v, nil
}

// decode gives the text to the controller's own handler of ConfigMaps; nil means
// that it refused the text.
func decode(text string) *configuration.ColocationCfg {
	handler := config.NewColocationHandlerForConfigMapEvent(
		fake.NewClientBuilder().WithScheme(scheme).Build(), *sloconfig.NewDefaultColocationCfg(), record.NewFakeRecorder(16))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	handler.Create(context.Background(), event.CreateEvent{Object: &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: sloconfig.ConfigNameSpace, Name: sloconfig.SLOCtrlConfigMap},
		Data:       map[string]string{configuration.ColocationConfigKey: text},
	}}, queue)
	if handler.IsErrorStatus() {
		return nil
	}
	return handler.GetCfgCopy()
}

// amounts are the values of two resources; nil if they are reset.
func amounts(items []framework.ResourceItem, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	found := []int64{}
	for _, item := range items {
		if item.Reset {
			return nil, nil
		}
		found = append(found, item.Quantity.Value())
	}
	return found, nil
}

func published(values []*int64) *corev1.Node {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for i, value := range values {
		if value != nil && i < len(names) {
			node.Status.Allocatable[names[i]] = *resource.NewQuantity(*value, resource.DecimalSI)
		}
	}
	return node
}
