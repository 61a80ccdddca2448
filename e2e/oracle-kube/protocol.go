package main

import (
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"tidepool.io/e2e/oracle"
)

// Case is a cluster and the pod to place in it, as plain Kubernetes objects.
type Case struct {
	// Profile is one profile of a KubeSchedulerConfiguration v1, as it stands in
	// a configuration file; absent means the default profile.
	Profile json.RawMessage `json:"profile,omitempty"`
	// Preempt requests every preemption candidate when no node fits.
	Preempt bool `json:"preempt,omitempty"`
	// Hints requests the queueing hints.
	Hints bool `json:"hints,omitempty"`
	// Pod is the pod to place.
	Pod *v1.Pod `json:"pod"`
	// Cgroup asks for the cgroup of this pod, instead of placing one.
	Cgroup *v1.Pod `json:"cgroup,omitempty"`
	// Nodes are added in this order, which decides the snapshot's order.
	Nodes []*v1.Node `json:"nodes,omitempty"`
	// Pods are bound: each has spec.nodeName.
	Pods []*v1.Pod `json:"pods,omitempty"`
	// Nominated pods wait for the node in their status.nominatedNodeName.
	Nominated []*v1.Pod `json:"nominated,omitempty"`

	Namespaces             []*v1.Namespace                 `json:"namespaces,omitempty"`
	Services               []*v1.Service                   `json:"services,omitempty"`
	ReplicationControllers []*v1.ReplicationController     `json:"replicationControllers,omitempty"`
	ReplicaSets            []*appsv1.ReplicaSet            `json:"replicaSets,omitempty"`
	StatefulSets           []*appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	PersistentVolumes      []*v1.PersistentVolume          `json:"persistentVolumes,omitempty"`
	PersistentVolumeClaims []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims,omitempty"`
	StorageClasses         []*storagev1.StorageClass       `json:"storageClasses,omitempty"`
	CSINodes               []*storagev1.CSINode            `json:"csiNodes,omitempty"`
	CSIDrivers             []*storagev1.CSIDriver          `json:"csiDrivers,omitempty"`
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities,omitempty"`
	VolumeAttachments      []*storagev1.VolumeAttachment   `json:"volumeAttachments,omitempty"`
	PodDisruptionBudgets   []*policyv1.PodDisruptionBudget `json:"podDisruptionBudgets,omitempty"`
}

// Verdicts are all results of upstream for one case.
type Verdicts struct {
	// Nodes are the node names in the order of the snapshot.
	Nodes []string `json:"nodes"`
	// PreEnqueue has the plugins that hold the pod back before any cycle.
	PreEnqueue []oracle.PluginStatus `json:"preEnqueue,omitempty"`
	// PreFilter has every PreFilter plugin in order, each run whatever the others returned.
	PreFilter []PreFilterStatus `json:"preFilter"`
	// Filter has, per node in the order of Nodes, each plugin's own rejection,
	// without nominated pods and without stopping at the first. A plugin whose
	// PreFilter skipped or failed is not called.
	Filter [][]oracle.PluginStatus `json:"filter"`

	// Cycle is the real scheduling cycle, with its early ends and nominated pods.
	Cycle Cycle `json:"cycle"`

	// Kubelet has, per node in the order of Nodes, whether its kubelet would admit the pod.
	Kubelet []Admission `json:"kubelet"`

	// Hints has, if requested, the events that may help the rejected pod: objects of the case are added, updated and deleted.
	Hints []Hint `json:"hints,omitempty"`

	// Cgroup is the answer to the question for a cgroup.
	Cgroup *PodCgroup `json:"cgroup,omitempty"`
}

// Hint names the plugins for which an event may make a difference to the pod.
type Hint struct {
	// Event is kube-scheduler's label for it, and the object.
	Event string          `json:"event"`
	Helps map[string]bool `json:"helps"`
}

// Cycle is the outcome of one scheduling cycle as kube-scheduler runs it.
type Cycle struct {
	// Failure is set when the cycle aborts with an error.
	Failure string `json:"failure,omitempty"`
	// PreFilter is the combined status, present unless it is success.
	PreFilter *oracle.PluginStatus `json:"preFilter,omitempty"`
	// Rejected has one entry per node that was examined and rejected, in the order of the snapshot.
	Rejected []oracle.NodeStatus `json:"rejected,omitempty"`
	// Feasible are the nodes left, in the order of the snapshot.
	Feasible []string `json:"feasible"`
	// Scores has every Score plugin that ran; empty with fewer than two feasible nodes.
	Scores []oracle.PluginScores `json:"scores,omitempty"`
	// Totals are the weighted sums, in the order of Feasible.
	Totals []int64 `json:"totals,omitempty"`
	// Message is the text of the FailedScheduling event when no node fits.
	Message string `json:"message,omitempty"`
	// Preemption is the result of PostFilter, when no node fits and Preempt is set.
	Preemption *Preemption `json:"preemption,omitempty"`
}

// PreFilterStatus also has the nodes a plugin narrows the search to; absent means all.
type PreFilterStatus struct {
	oracle.PluginStatus
	Nodes *[]string `json:"nodes,omitempty"`
}

// Preemption is the search for victims over all potential nodes.
type Preemption struct {
	// Candidates in the order of the snapshot.
	Candidates []Candidate `json:"candidates"`
	// Unhelpful has the nodes where evicting pods does not help, in the order of the snapshot.
	Unhelpful []oracle.NodeStatus `json:"unhelpful,omitempty"`
	// Selected is upstream's choice, and Tied are the nodes it could as well have
	// chosen: upstream leaves equal candidates to the order of a map.
	Selected string   `json:"selected,omitempty"`
	Tied     []string `json:"tied,omitempty"`
}

// Candidate is a node on which the pod fits once the victims are evicted.
type Candidate struct {
	Node string `json:"node"`
	// Victims as namespace/name, most important first.
	Victims       []string `json:"victims"`
	PDBViolations int64    `json:"pdbViolations"`
}

// Admission is a kubelet's verdict: Reason and Message are those of the first failure.
type Admission struct {
	Admit    bool     `json:"admit"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Failures []string `json:"failures,omitempty"`
}

func pluginStatus(plugin string, status *fwk.Status) oracle.PluginStatus {
	// A nil status is a success, but has no reasons to ask for.
	if status.IsSuccess() {
		return oracle.PluginStatus{Plugin: plugin, Code: fwk.Success.String()}
	}
	reasons := status.Reasons()
	if plugin == names.NodeResourcesFit {
		reasons = fitReasonsInFixedOrder(reasons)
	}
	return oracle.PluginStatus{Plugin: plugin, Code: status.Code().String(), Reasons: reasons}
}

// fitReasonsInFixedOrder sorts what upstream takes from a map: the reasons for
// scalar resources, which follow those for pods, cpu, memory and ephemeral-storage.
func fitReasonsInFixedOrder(reasons []string) []string {
	fixed := []string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}
	first := 0
	for first < len(reasons) && slices.Contains(fixed, reasons[first]) {
		first++
	}
	reasons = slices.Clone(reasons)
	slices.Sort(reasons[first:])
	return reasons
}
