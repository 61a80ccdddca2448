//! The nodes of the cluster and the pods that wait: the same for every scheduler, and all of them fit.

use serde_json::{Value, json};

/// The profile that the pods ask for, whoever serves it.
pub(crate) const PROFILE: &str = "drain";

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONES: usize = 3;
const RECLAIMED_CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const RECLAIMED_MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";

/// What nodes lend is counted, and services are placed as ever.
const LENDING: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: drain
  plugins:
    multiPoint:
      enabled: [{ name: QoSAwareNodeResourcesFit, weight: 4 }, { name: QoSAwareNodeResourcesBalancedAllocation, weight: 1 }]
    score: { disabled: [{ name: NodeResourcesFit }, { name: NodeResourcesBalancedAllocation }] }
";

const POLICIES: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: drain
  plugins: { multiPoint: { enabled: [{ name: resourcepolicy }] } }
";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// One shape of pods that ask for cpu and memory
    Basic,
    /// All of these and pods that choose their nodes, in turn
    Mixed,
    /// Evenly over three zones
    Spread,
    /// No two of a group on one node
    AntiAffinity,
    /// Every other one runs on what nodes lend
    Reclaimed,
    /// A ResourcePolicy with three units, one percent of the nodes in the first
    Policy,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Mixed => "mixed",
            Self::Spread => "spread",
            Self::AntiAffinity => "anti-affinity",
            Self::Reclaimed => "reclaimed",
            Self::Policy => "policy",
        }
    }

    /// Whether nodes have agents that say what they lend.
    pub(crate) fn lends(self) -> bool {
        self == Self::Reclaimed
    }

    /// The ResourcePolicy of the pods: its caps are never reached.
    pub(crate) fn policy(self) -> Option<Value> {
        let unit = |name: &str, priority: u32| {
            let nodes = json!({"matchLabels": {"unit": name}});
            json!({"name": name, "priority": priority, "maxCount": 100_000, "nodeSelector": nodes})
        };
        (self == Self::Policy).then(|| {
            json!({
                "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
                "kind": "ResourcePolicy",
                "metadata": {"name": "units"},
                "spec": {
                    "podSelector": {"matchLabels": {"app": "basic"}},
                    "units": [unit("reserved", 10), unit("spot", 5), unit("rest", 1)],
                },
            })
        })
    }

    /// Tidepool's configuration; `None` for the defaults.
    pub(crate) fn configuration(self) -> Option<&'static str> {
        match self {
            Self::Reclaimed => Some(LENDING),
            Self::Policy => Some(POLICIES),
            Self::Basic | Self::Mixed | Self::Spread | Self::AntiAffinity => None,
        }
    }

    pub(crate) fn node(self, index: usize) -> Value {
        let mut node = node(index);
        if self == Self::Policy {
            node["metadata"]["labels"]["unit"] = match index {
                index if index.is_multiple_of(100) => "reserved".into(),
                index if index.is_multiple_of(2) => "spot".into(),
                _ => "rest".into(),
            };
        }
        node
    }

    pub(crate) fn pod(self, index: usize, nodes: usize) -> Value {
        match self {
            Self::Basic | Self::Policy => pod(index, "basic", json!({})),
            Self::Spread => pod(
                index,
                "spread",
                json!({"topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "spread"}},
                }]}),
            ),
            Self::AntiAffinity => {
                // At most half of the nodes for each group, so that there is a choice to the end.
                let group = format!("group-{}", index / (nodes / 2).max(1));
                let term = json!({
                    "topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": group}},
                });
                let affinity = json!({"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [term]}});
                pod(index, &group, json!({"affinity": affinity}))
            }
            Self::Reclaimed if index.is_multiple_of(2) => Self::Basic.pod(index, nodes),
            Self::Reclaimed => {
                let amounts = json!({RECLAIMED_CPU: "100", RECLAIMED_MEMORY: "200Mi"});
                let resources = json!({"requests": amounts, "limits": amounts});
                let container = json!({"name": "main", "image": "job:1", "resources": resources});
                let mut pod = pod(index, "job", json!({"containers": [container]}));
                pod["metadata"]["annotations"] =
                    json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
                pod
            }
            Self::Mixed => match index % 4 {
                0 => Self::Basic.pod(index, nodes),
                1 => Self::Spread.pod(index, nodes),
                2 => Self::AntiAffinity.pod(index, nodes),
                _ => {
                    let zone = json!({"matchExpressions": [
                        {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}]});
                    let disk = json!({"weight": 10, "preference": {"matchExpressions": [
                        {"key": "disk", "operator": "In", "values": ["ssd"]}]}});
                    let affinity = json!({"nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]},
                        "preferredDuringSchedulingIgnoredDuringExecution": [disk]}});
                    pod(index, "choosy", json!({"affinity": affinity}))
                }
            },
        }
    }
}

fn node(index: usize) -> Value {
    let name = format!("node-{index}");
    let disk = if index.is_multiple_of(4) {
        "ssd"
    } else {
        "hdd"
    };
    let labels = json!({ZONE: format!("zone-{}", index % ZONES), HOSTNAME: name, "disk": disk});
    let capacity = json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity},
    })
}

/// What the agent of a node says about it, as Katalyst's agents do: with what every NUMA node lends.
pub(crate) fn report(index: usize) -> Value {
    let offer = |cores: u32, gib: u32| {
        let amounts =
            json!({RECLAIMED_CPU: format!("{cores}k"), RECLAIMED_MEMORY: format!("{gib}Gi")});
        json!({"allocatable": amounts, "capacity": amounts})
    };
    let socket = |id: u32| {
        let mut numa = json!({"type": "Numa", "name": id.to_string(), "resources": offer(8, 32)});
        numa["attributes"] = json!([{"name": "numa_distance", "value": "10,21"}]);
        json!({"type": "Socket", "name": id.to_string(), "resources": {}, "children": [numa]})
    };
    json!({
        "apiVersion": "node.katalyst.kubewharf.io/v1alpha1",
        "kind": "CustomNodeResource",
        "metadata": {"name": format!("node-{index}")},
        "spec": {"nodeResourceProperties": [{"propertyName": "numa", "propertyQuantity": "2"}]},
        "status": {
            "resources": offer(16, 64),
            "topologyPolicy": "None",
            "topologyZone": [socket(0), socket(1)],
        },
    })
}

fn pod(index: usize, app: &str, more: Value) -> Value {
    let requests = json!({"cpu": "100m", "memory": "200Mi"});
    let mut pod = json!({
        "metadata": {"name": format!("pod-{index}"), "labels": {"app": app}},
        "spec": {
            "schedulerName": PROFILE,
            "containers": [{"name": "main", "image": "app:1", "resources": {"requests": requests}}],
        },
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut pod["spec"], more) {
        spec.extend(more);
    }
    pod
}
