// Command webhook answers as Koordinator's own admission handlers do: what the
// mutating handler makes of a pod, and whether the validating handler admits the
// result. Package oracle has the protocol.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	jsonpatch "github.com/evanphx/json-patch/v5"
	configv1alpha1 "github.com/koordinator-sh/koordinator/apis/config/v1alpha1"
	quotav1alpha1 "github.com/koordinator-sh/koordinator/apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1"
	"github.com/koordinator-sh/koordinator/pkg/webhook/pod/mutating"
	"github.com/koordinator-sh/koordinator/pkg/webhook/pod/validating"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"tidepool.io/e2e/oracle"
)

// Case is a pod to admit, or with an old pod the update of one.
type Case struct {
	Pod             json.RawMessage                            `json:"pod"`
	OldPod          json.RawMessage                            `json:"oldPod,omitempty"`
	Namespace       *corev1.Namespace                          `json:"namespace"`
	Profiles        []*configv1alpha1.ClusterColocationProfile `json:"profiles,omitempty"`
	PriorityClasses []*schedulingv1.PriorityClass              `json:"priorityClasses,omitempty"`
	// Judged are pods whose QoS class is asked for.
	Judged []*corev1.Pod `json:"judged,omitempty"`
}

// Verdicts are the answers of both handlers.
type Verdicts struct {
	// Pod is the mutated pod; absent if the handler failed.
	Pod json.RawMessage `json:"pod,omitempty"`
	// Failure is the error of the mutating handler.
	Failure string `json:"failure,omitempty"`
	Allowed bool   `json:"allowed"`
	// Message is the reason of a refusal.
	Message string `json:"message,omitempty"`
	// QoS has Kubernetes' class of each judged pod.
	QoS []string `json:"qos"`
}

var scheme = runtime.NewScheme()

func main() {
	klog.SetLogger(klog.Logger{})
	klog.SetOutput(io.Discard)
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(configv1alpha1.AddToScheme(scheme))
	utilruntime.Must(quotav1alpha1.AddToScheme(scheme))
	oracle.Oracle[Case, Verdicts]{Name: "oracle-webhook", Judge: judge}.Run()
}

func judge(c *Case) (*Verdicts, error) {
	if c == nil || len(c.Pod) == 0 || c.Namespace == nil {
		return nil, fmt.Errorf(`a request needs a "case" with a "pod" and a "namespace"`)
	}
	v := &Verdicts{QoS: []string{}}
	for _, pod := range c.Judged {
		v.QoS = append(v.QoS, string(qos.ComputePodQOS(pod)))
	}
	objects := []client.Object{c.Namespace}
	for _, profile := range c.Profiles {
		objects = append(objects, profile)
	}
	for _, class := range c.PriorityClasses {
		objects = append(objects, class)
	}
	known := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	decoder := admission.NewDecoder(scheme)
	pod := []byte(c.Pod)
	if len(c.OldPod) == 0 {
		mutate := mutating.PodMutatingHandler{Client: known, Decoder: decoder}
		mutated, err := patched(c, pod, mutate.Handle(context.Background(), request(c, pod)))
		if err != nil {
			v.Failure = err.Error()
			return v, nil
		}
		pod = mutated
	}
	v.Pod = pod
	validate := validating.PodValidatingHandler{Client: known, Decoder: decoder}
	answer := validate.Handle(context.Background(), request(c, pod))
	v.Allowed, v.Message = answer.Allowed, message(answer)
	return v, nil
}

func request(c *Case, pod []byte) admission.Request {
	asked := admissionv1.AdmissionRequest{
		UID:       "uid",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: c.Namespace.Name,
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: pod},
	}
	if len(c.OldPod) > 0 {
		asked.Operation = admissionv1.Update
		asked.OldObject = runtime.RawExtension{Raw: c.OldPod}
	}
	return admission.Request{AdmissionRequest: asked}
}

// patched is the pod after the handler's patch.
func patched(c *Case, pod []byte, answer admission.Response) ([]byte, error) {
	if !answer.Allowed {
		return nil, fmt.Errorf("%s", message(answer))
	}
	// The handler compares the pod as Go writes it, so its patch applies to that form.
	typed := &corev1.Pod{}
	if err := json.Unmarshal(pod, typed); err != nil {
		return nil, err
	}
	original, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	if err := answer.Complete(request(c, pod)); err != nil {
		return nil, err
	}
	if len(answer.Patch) == 0 {
		return original, nil
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		return nil, err
	}
	return patch.Apply(original)
}

func message(answer admission.Response) string {
	if answer.Result == nil || answer.Result.Code == http.StatusOK {
		return ""
	}
	return answer.Result.Message
}
