package main

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/koordinator-sh/koordinator/apis/extension"
	"github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/features"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/metriccache"
	metricsadvisor "github.com/koordinator-sh/koordinator/pkg/koordlet/metricsadvisor/framework"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/framework"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/memoryevict"
	evictutil "github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/util"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/statesinformer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Victims asks which best-effort pods are evicted for memory, in order.
type Victims struct {
	Capacity, Used   int64
	Threshold, Lower int64
	Pods             []Candidate
}

// Candidate is a best-effort pod.
type Candidate struct {
	Name     string
	Priority int32
	Used     int64
}

//go:linkname memoryEvict github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/memoryevict.(*memoryEvictor).memoryEvict
func memoryEvict(evictor unsafe.Pointer)

func (v *Victims) choose() (*Answer, error) {
	if err := features.DefaultMutableKoordletFeatureGate.SetFromMap(map[string]bool{string(features.BEMemoryEvict): true}); err != nil {
		return nil, err
	}
	chosen := &recorder{names: []string{}}
	evictutil.SetCustomEvictionExecutorInitializer(func(*evictutil.Evictor, bool) evictutil.EvictionExecutor { return chosen })
	values := figures{"": float64(v.Used)}
	metriccache.DefaultAggregateResultFactory = values
	informer := &informer{victims: v}
	for _, pod := range v.Pods {
		values[pod.Name] = float64(pod.Used)
		priority := pod.Priority
		informer.pods = append(informer.pods, &statesinformer.PodMeta{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: types.UID(pod.Name), Labels: map[string]string{extension.LabelPodQoS: string(extension.QoSBE)}},
			Spec:       v1.PodSpec{Priority: &priority},
			Status:     v1.PodStatus{Phase: v1.PodRunning},
		}})
	}
	options := &framework.Options{StatesInformer: informer, MetricCache: cache{}, Config: framework.NewDefaultConfig()}
	options.MetricAdvisorConfig = metricsadvisor.NewDefaultConfig()
	strategy := memoryevict.New(options)
	strategy.Setup(&framework.Context{})
	memoryEvict(reflect.ValueOf(strategy).UnsafePointer())
	return &Answer{Names: chosen.names}, nil
}

type recorder struct{ names []string }

func (r *recorder) Evict(pod *v1.Pod, _ *v1.Node, _, _ string) bool {
	r.names = append(r.names, pod.Name)
	return true
}

func (r *recorder) IsPodEvicted(*v1.Pod) bool { return false }

// informer knows the node and the pods of a question.
type informer struct {
	statesinformer.StatesInformer
	victims *Victims
	pods    []*statesinformer.PodMeta
}

func (i *informer) GetNode() *v1.Node {
	return &v1.Node{Status: v1.NodeStatus{Capacity: list([2]int64{1000, i.victims.Capacity})}}
}

func (i *informer) GetAllPods() []*statesinformer.PodMeta { return i.pods }

func (i *informer) GetNodeSLO() *v1alpha1.NodeSLO {
	enable := true
	return &v1alpha1.NodeSLO{Spec: v1alpha1.NodeSLOSpec{ResourceUsedThresholdWithBE: &v1alpha1.ResourceThresholdStrategy{
		Enable: &enable, MemoryEvictThresholdPercent: &i.victims.Threshold, MemoryEvictLowerPercent: &i.victims.Lower,
	}}}
}

// cache has no series: figures answers for it.
type cache struct{ metriccache.MetricCache }

func (cache) Querier(time.Time, time.Time) (metriccache.Querier, error) { return querier{}, nil }

type querier struct{ metriccache.Querier }

func (querier) Query(metriccache.MetricMeta, *metriccache.QueryHints, metriccache.MetricResult) error {
	return nil
}

func (querier) QueryAndClose(metriccache.MetricMeta, *metriccache.QueryHints, metriccache.MetricResult) error {
	return nil
}

func (querier) Close() {}

// figures are values by uid; that of the node has no uid.
type figures map[string]float64

func (f figures) New(meta metriccache.MetricMeta) metriccache.AggregateResult {
	return figure{value: f[meta.GetProperties()[string(metriccache.MetricPropertyPodUID)]]}
}

type figure struct {
	metriccache.AggregateResult
	value float64
}

func (figure) Count() int                                           { return 1 }
func (f figure) Value(metriccache.AggregationType) (float64, error) { return f.value, nil }
