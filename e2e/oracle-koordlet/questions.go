package main

import (
	"fmt"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/koordinator-sh/koordinator/apis/slo/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/prediction"
	_ "github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/cpuevict"
	_ "github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/cpusuppress"
	"github.com/koordinator-sh/koordinator/pkg/koordlet/util"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const hour = time.Hour

// Question is about one figure. Exactly one field is set.
type Question struct {
	Histogram    *Histogram    `json:"histogram"`
	Predictor    *Predictor    `json:"predictor"`
	CPUs         *CPUs         `json:"cpus"`
	Satisfaction *Satisfaction `json:"satisfaction"`
	Victims      *Victims      `json:"victims"`
}

// Histogram asks for percentiles of a decaying histogram and its checkpoint.
type Histogram struct {
	Memory      bool
	Samples     []Sample
	Percentiles []float64
}

// Sample is a value at a second since 1970.
type Sample struct {
	Value  float64
	Second int64
}

// Predictor asks for what production pods give back.
type Predictor struct {
	Allocatable [2]int64
	Margin      int
	// Peaks of the system, of production and of pods without a class.
	System, Production, None [2]int64
	Pods                     []PredictedPod
}

// PredictedPod has milli-cores and bytes.
type PredictedPod struct {
	Request, Peak [2]int64
	Cold          bool
}

// CPUs asks which CPUs best-effort pods get.
type CPUs struct {
	Count      int32
	Processors []util.ProcessorInfo
}

// Satisfaction asks how much to release.
type Satisfaction struct {
	Request, Limit float64
	Lower, Upper   int64
}

// Answer has the fields that fit the question.
type Answer struct {
	Values  []float64      `json:"values,omitempty"`
	Weights map[int]uint32 `json:"weights,omitempty"`
	Amounts []int64        `json:"amounts,omitempty"`
	Names   []string       `json:"names,omitempty"`
}

//go:linkname suppressedCPUs github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/cpusuppress.calculateBESuppressCPUSetPolicy
func suppressedCPUs(cpus int32, processors []util.ProcessorInfo) []int32

//go:linkname satisfactionRelease github.com/koordinator-sh/koordinator/pkg/koordlet/qosmanager/plugins/cpuevict.calculateResourceMilliToReleaseBySatisfaction
func satisfactionRelease(request, limit float64, strategy *v1alpha1.ResourceThresholdStrategy) int64

func answer(q *Question) (*Answer, error) {
	switch {
	case q == nil:
	case q.Histogram != nil:
		return q.Histogram.compute()
	case q.Predictor != nil:
		return q.Predictor.compute()
	case q.CPUs != nil:
		amounts := []int64{}
		for _, cpu := range suppressedCPUs(q.CPUs.Count, q.CPUs.Processors) {
			amounts = append(amounts, int64(cpu))
		}
		return &Answer{Amounts: amounts}, nil
	case q.Satisfaction != nil:
		s := q.Satisfaction
		strategy := &v1alpha1.ResourceThresholdStrategy{CPUEvictBESatisfactionLowerPercent: &s.Lower, CPUEvictBESatisfactionUpperPercent: &s.Upper}
		return &Answer{Amounts: []int64{satisfactionRelease(s.Request, s.Limit, strategy)}}, nil
	case q.Victims != nil:
		return q.Victims.choose()
	}
	return nil, fmt.Errorf("the question is empty")
}

func at(second int64) time.Time { return time.Unix(second, 0) }

func list(amounts [2]int64) v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(amounts[0], resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(amounts[1], resource.BinarySI),
	}
}

// server answers with the peaks of a question.
type server struct {
	prediction.PredictServer
	peaks map[prediction.UIDType][2]int64
}

func (s *server) GetPrediction(metric prediction.MetricDesc) (prediction.Result, error) {
	peak, ok := s.peaks[metric.UID]
	if !ok {
		return prediction.Result{}, fmt.Errorf("no model %s", metric.UID)
	}
	return prediction.Result{Data: map[string]v1.ResourceList{"p95": list(peak), "p98": list(peak)}}, nil
}

func (p *Predictor) compute() (*Answer, error) {
	item := func(id string) prediction.UIDType {
		return prediction.UIDType(fmt.Sprintf(prediction.DefaultNodeItemIDFmt, id))
	}
	peaks := &server{peaks: map[prediction.UIDType][2]int64{
		item(prediction.SystemItemID): p.System,
		item("koord-prod"):            p.Production,
		item(""):                      p.None,
	}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Allocatable: list(p.Allocatable)}}
	factory := prediction.NewPredictorFactory(peaks, hour, p.Margin)
	predictor := factory.New(prediction.ProdReclaimablePredictor, prediction.PredictorContext{Node: node})
	for i, asked := range p.Pods {
		uid := fmt.Sprint("pod", i)
		peaks.peaks[prediction.UIDType(uid)] = asked.Peak
		created := time.Now().Add(-2 * hour)
		if asked.Cold {
			created = time.Now()
		}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.Time{Time: created}, Labels: map[string]string{"koordinator.sh/priority-class": "koord-prod"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(asked.Request)}}}},
		}
		if err := predictor.AddPod(pod); err != nil {
			return nil, err
		}
	}
	result, err := predictor.GetResult()
	if err != nil {
		return nil, err
	}
	return &Answer{Amounts: []int64{result.Cpu().MilliValue(), result.Memory().Value()}}, nil
}
