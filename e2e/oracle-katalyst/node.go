package main

import (
	"fmt"
	"time"

	info "github.com/google/cadvisor/info/v1"
	"github.com/kubewharf/katalyst-api/pkg/consts"
	"github.com/kubewharf/katalyst-core/pkg/agent/sysadvisor/metacache"
	"github.com/kubewharf/katalyst-core/pkg/agent/sysadvisor/plugin/qosaware/resource/helper"
	"github.com/kubewharf/katalyst-core/pkg/agent/sysadvisor/plugin/qosaware/resource/memory/headroompolicy"
	"github.com/kubewharf/katalyst-core/pkg/agent/sysadvisor/types"
	"github.com/kubewharf/katalyst-core/pkg/config"
	metricnames "github.com/kubewharf/katalyst-core/pkg/consts"
	"github.com/kubewharf/katalyst-core/pkg/metaserver"
	"github.com/kubewharf/katalyst-core/pkg/metaserver/agent"
	"github.com/kubewharf/katalyst-core/pkg/metaserver/agent/metric"
	"github.com/kubewharf/katalyst-core/pkg/metaserver/agent/pod"
	"github.com/kubewharf/katalyst-core/pkg/metaserver/spd"
	"github.com/kubewharf/katalyst-core/pkg/metrics"
	"github.com/kubewharf/katalyst-core/pkg/util/general"
	"github.com/kubewharf/katalyst-core/pkg/util/machine"
	utilmetric "github.com/kubewharf/katalyst-core/pkg/util/metric"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
)

// NodeQuestion is about one of the figures that Katalyst's agent computes. Exactly
// one field is set.
type NodeQuestion struct {
	Utilization *Utilization `json:"utilization"`
	Window      *Window      `json:"window"`
	CPU         *Container   `json:"cpu"`
	Memory      *Container   `json:"memory"`
	Headroom    *Headroom    `json:"headroom"`
}

// Utilization asks for capacity by utilisation, in cores.
type Utilization struct {
	Target, Max, Rate, Most, Supply, Utilization, Last float64
}

// Window asks for the smoothed form of a series, in thousandths.
type Window struct {
	Values           []int64
	Samples          int
	Percentile       *float64
	MinStep, MaxStep int64
}

// Container asks for an estimate of what a container needs.
type Container struct {
	// Usage, load of 1 and of 5 minutes; or resident memory, page cache and shared memory.
	Metrics [3]float64
	Request float64
	Enabled bool
	Level   string
}

// Headroom asks for the memory headroom of a node.
type Headroom struct {
	Containers                       []Container
	Total, Free, Used, ScaleFactor   float64
	UpperBound, Reserve              float64
	Enable                           bool
	FreeRatio, CacheRatio, Static    float64
	Cores                            int
	Capacity                         uint64
	RatioLowerBound, RatioUpperBound float64
}

// NodeAnswer has a value, or the values of a series; null where there is none yet.
type NodeAnswer struct {
	Value  float64  `json:"value"`
	Values []*int64 `json:"values,omitempty"`
}

var cpuMetrics = [3]string{metricnames.MetricCPUUsageContainer, metricnames.MetricLoad1MinContainer, metricnames.MetricLoad5MinContainer}
var memoryMetrics = [3]string{metricnames.MetricMemRssContainer, metricnames.MetricMemCacheContainer, metricnames.MetricMemShmemContainer}

func answer(q *NodeQuestion) (*NodeAnswer, error) {
	switch {
	case q.Utilization != nil:
		u := q.Utilization
		options := helper.UtilBasedCapacityOptions{TargetUtilization: u.Target, MaxUtilization: u.Max, MaxOversoldRate: u.Rate, MaxCapacity: u.Most}
		value, err := helper.EstimateUtilBasedCapacity(options, u.Supply, u.Utilization, u.Last)
		return &NodeAnswer{Value: value}, err
	case q.Window != nil:
		return &NodeAnswer{Values: q.Window.smooth()}, nil
	case q.CPU != nil:
		reader := newReader([]Container{*q.CPU}, cpuMetrics)
		value, err := helper.EstimateContainerCPUUsage(reader.containers[0], reader, q.CPU.Enabled)
		return &NodeAnswer{Value: value}, err
	case q.Memory != nil:
		reader := newReader([]Container{*q.Memory}, memoryMetrics)
		value, err := helper.EstimateContainerMemoryUsage(reader.containers[0], reader, q.Memory.Enabled)
		return &NodeAnswer{Value: value}, err
	case q.Headroom != nil:
		return q.Headroom.compute()
	}
	return nil, fmt.Errorf("the question is empty")
}

func (w *Window) smooth() []*int64 {
	options := general.SmoothWindowOpts{WindowSize: w.Samples, TTL: time.Hour, UsedMillValue: true, AggregateFunc: general.SmoothWindowAggFuncAvg}
	if w.Percentile != nil {
		options.AggregateFunc = general.SmoothWindowAggFuncPerc
		options.AggregateArgs = fmt.Sprint(*w.Percentile)
	}
	milli := func(value int64) resource.Quantity { return *resource.NewMilliQuantity(value, resource.DecimalSI) }
	window := general.NewCappedSmoothWindow(milli(w.MinStep), milli(w.MaxStep), general.NewAggregatorSmoothWindow(options))
	var results []*int64
	for _, value := range w.Values {
		var result *int64
		if smooth := window.GetWindowedResources(milli(value)); smooth != nil {
			milli := smooth.MilliValue()
			result = &milli
		}
		results = append(results, result)
	}
	return results
}

// reader knows the containers of a question; a metric of zero counts as not measured.
type reader struct {
	metacache.MetaReader
	containers []*types.ContainerInfo
	store      *metric.FakeMetricsFetcher
}

func newReader(containers []Container, names [3]string) *reader {
	r := &reader{store: metric.NewFakeMetricsFetcher(metrics.DummyMetrics{}).(*metric.FakeMetricsFetcher)}
	now := time.Now()
	for i, container := range containers {
		uid := fmt.Sprint("pod", i)
		r.containers = append(r.containers, &types.ContainerInfo{
			PodUID: uid, PodName: uid, ContainerName: "c", QoSLevel: container.Level,
			CPURequest: container.Request, MemoryRequest: container.Request,
		})
		for j, name := range names {
			r.store.SetContainerMetric(uid, "c", name, utilmetric.MetricData{Value: container.Metrics[j], Time: &now})
		}
	}
	return r
}

func (r *reader) GetContainerMetric(podUID, containerName, metricName string) (utilmetric.MetricData, error) {
	return r.store.GetContainerMetric(podUID, containerName, metricName)
}

func (r *reader) RangeContainer(f func(string, string, *types.ContainerInfo) bool) {
	for _, container := range r.containers {
		if !f(container.PodUID, container.ContainerName, container) {
			return
		}
	}
}

func (h *Headroom) compute() (*NodeAnswer, error) {
	reader := newReader(h.Containers, memoryMetrics)
	now := time.Now()
	for name, value := range map[string]float64{
		metricnames.MetricMemTotalSystem: h.Total, metricnames.MetricMemFreeSystem: h.Free,
		metricnames.MetricMemUsedSystem: h.Used, metricnames.MetricMemScaleFactorSystem: h.ScaleFactor,
	} {
		reader.store.SetNodeMetric(name, utilmetric.MetricData{Value: value, Time: &now})
	}
	var pods []*v1.Pod
	for _, container := range reader.containers {
		pods = append(pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: container.PodName, UID: apitypes.UID(container.PodUID),
				Annotations: map[string]string{consts.PodAnnotationQoSLevelKey: container.QoSLevel},
			},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: container.ContainerName}}},
		})
	}
	server := &metaserver.MetaServer{
		MetaAgent: &agent.MetaAgent{
			KatalystMachineInfo: &machine.KatalystMachineInfo{MachineInfo: &info.MachineInfo{NumCores: h.Cores, MemoryCapacity: h.Capacity}},
			PodFetcher:          &pod.PodFetcherStub{PodList: pods},
			MetricsFetcher:      reader.store,
		},
		ServiceProfilingManager: &spd.DummyServiceProfilingManager{},
	}
	conf := config.NewConfiguration()
	conf.CPUMemRatioLowerBound, conf.CPUMemRatioUpperBound = h.RatioLowerBound, h.RatioUpperBound
	dynamic := conf.GetDynamicConfiguration().MemoryHeadroomConfiguration.MemoryUtilBasedConfiguration
	dynamic.Enable, dynamic.FreeBasedRatio = h.Enable, h.FreeRatio
	dynamic.CacheBasedRatio, dynamic.StaticBasedCapacity = h.CacheRatio, h.Static
	policy := headroompolicy.NewPolicyCanonical(conf, nil, reader, server, metrics.DummyMetrics{})
	policy.SetEssentials(types.ResourceEssentials{EnableReclaim: true, ResourceUpperBound: h.UpperBound, ReservedForAllocate: h.Reserve})
	if err := policy.Update(); err != nil {
		return nil, err
	}
	headroom, err := policy.GetHeadroom()
	return &NodeAnswer{Value: float64(headroom.Value())}, err
}
