//! The demo workload: services of a small shop that request far more than they use, batch jobs beside them, and jobs of the mid and
//! batch tiers on what is idle. On nodes with NUMA zones there are also services with zones of their own.
//!
//! It creates the objects once and does not manage them afterwards.

use std::time::Duration;

use api::zone_grid::ZoneGrid;
use engine::admission::keys::{LEVEL, MEMORY_ENHANCEMENT};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Namespace, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    scheduling::v1::PriorityClass,
};
use reconcile::Requests;
use serde_json::{Value, json};

use crate::nodes::{RUN_FOR, Shape};

/// The namespace of the demo.
pub const NAMESPACE: &str = "demo";
/// Annotation of a pod: the cpu it would use at most, for a cluster where no containers run.
pub const CPU_USE: &str = "tidepool.io/cpu-use";

const ACCOUNT: &str = "shop";
const ONLINE: &str = "demo-online";
const BATCH: &str = "demo-batch";
const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
/// On larger clusters the demo has the size for this many nodes.
const MOST_NODES: usize = 100;

/// The demo workload of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct DemoWorkload<'a> {
    /// Nodes that it is sized for.
    pub nodes: usize,
    /// The NUMA zones of a node.
    pub numa: Option<ZoneGrid>,
    /// The scheduler that its pods name.
    pub scheduler: &'a str,
    /// The time from one low tide to the next.
    pub tide: Duration,
}

/// Creates the objects, services first.
pub(crate) async fn load(requests: &Requests, demo: &DemoWorkload<'_>) -> Result<(), kube::Error> {
    let DemoWorkload {
        nodes,
        numa,
        scheduler,
        tide,
    } = *demo;
    let nodes = nodes.clamp(1, MOST_NODES);
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    requests.create::<Namespace>(None, &namespace).await?;
    for class in priority_classes() {
        requests.create::<PriorityClass>(None, &class).await?;
    }
    let there = Some(NAMESPACE);
    // The default account may not exist yet, and without one the server rejects pods.
    let account = json!({"metadata": {"name": ACCOUNT}});
    requests.create::<ServiceAccount>(there, &account).await?;
    // First, because they need idle zones.
    for service in numa.into_iter().flat_map(|grid| dedicated(nodes, grid)) {
        let deployment = service.deployment(scheduler);
        requests.create::<Deployment>(there, &deployment).await?;
    }
    for service in services(nodes) {
        requests
            .create::<Deployment>(there, &service.deployment(scheduler))
            .await?;
    }
    requests
        .create::<PodDisruptionBudget>(there, &budget())
        .await?;
    for work in batch(nodes) {
        requests.create::<Job>(there, &work.job(scheduler)).await?;
    }
    for work in tier_work(nodes, tide) {
        requests.create::<Job>(there, &work.job(scheduler)).await?;
    }
    for work in unschedulable() {
        requests.create::<Pod>(there, &work.pod(scheduler)).await?;
    }
    Ok(())
}

/// Online pods may preempt batch pods; batch pods preempt no pods.
fn priority_classes() -> [Value; 2] {
    [
        json!({"metadata": {"name": ONLINE}, "value": 9000, "description": "services that people wait for"}),
        json!({"metadata": {"name": BATCH}, "value": 5000, "preemptionPolicy": "Never",
            "description": "work that can wait"}),
    ]
}

struct Size {
    cpu: &'static str,
    memory: &'static str,
    /// The part of the requested cpu that it uses.
    uses: &'static str,
}

struct Service {
    name: &'static str,
    replicas: usize,
    size: Size,
    /// Fields of its pods' spec that select nodes.
    place: Value,
}

/// These request about 60% of a cluster's cpu and use less than a quarter of that.
fn services(nodes: usize) -> Vec<Service> {
    let away_from = |app: &str, topology: &str| {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}},
        ]}})
    };
    let spread = |topology: &str, otherwise: &str| {
        json!({"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": {"app": "storefront"}}})
    };
    vec![
        Service {
            name: "storefront",
            replicas: 2 * nodes,
            size: Size {
                cpu: "2",
                memory: "4Gi",
                uses: "450m",
            },
            place: json!({"topologySpreadConstraints": [
                spread(ZONE, "DoNotSchedule"), spread(HOST, "ScheduleAnyway"),
            ]}),
        },
        Service {
            name: "checkout",
            replicas: nodes,
            size: Size {
                cpu: "1500m",
                memory: "4Gi",
                uses: "300m",
            },
            place: json!({"affinity": away_from("checkout", HOST)}),
        },
        Service {
            name: "search",
            replicas: nodes.div_ceil(2),
            size: Size {
                cpu: "4",
                memory: "16Gi",
                uses: "1200m",
            },
            place: json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "preference": {"matchExpressions": [
                    {"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]},
                ]}},
            ]}}}),
        },
        Service {
            name: "cache",
            replicas: nodes.div_ceil(2),
            size: Size {
                cpu: "2",
                memory: "16Gi",
                uses: "300m",
            },
            place: json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": {
                    "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "search"}}}},
            ]}}}),
        },
        Service {
            name: "payments",
            // One per zone, and there are three: the fourth pod is unschedulable and can be explained.
            replicas: 4,
            size: Size {
                cpu: "1",
                memory: "2Gi",
                uses: "150m",
            },
            place: json!({"affinity": away_from("payments", ZONE)}),
        },
    ]
}

impl Service {
    fn deployment(&self, scheduler: &str) -> Value {
        let mut spec = pod_spec(self.name, &self.size, ONLINE, scheduler);
        extend(&mut spec, &self.place);
        let labels = json!({"app": self.name, "tier": "online"});
        json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {"labels": labels, "annotations": {CPU_USE: self.size.uses}},
                    "spec": spec,
                },
            },
        })
    }
}

/// A service whose pods have NUMA zones of their own.
struct DedicatedService {
    name: &'static str,
    replicas: usize,
    milli_cpu: u32,
    /// MiB.
    memory: u32,
}

/// On a third of the nodes a pod with one zone, and on another third one with two.
fn dedicated(nodes: usize, grid: ZoneGrid) -> Vec<DedicatedService> {
    let zones = u32::try_from(grid.zones()).unwrap_or(1).max(1);
    let node = Shape::demo(0, nodes);
    let service = |name, replicas, percent| DedicatedService {
        name,
        replicas,
        milli_cpu: node.cpu * 10 * percent / zones,
        memory: node.memory * 1024 * percent / 200 / zones,
    };
    let mut services = vec![service("ranking", nodes.div_ceil(3), 75)];
    if grid.zones() > 1 && nodes > 1 {
        services.push(service("bidding", nodes.div_ceil(3), 150));
    }
    services
}

impl DedicatedService {
    fn deployment(&self, scheduler: &str) -> Value {
        let (cpu, memory) = (format!("{}m", self.milli_cpu), format!("{}Mi", self.memory));
        let amounts = json!({"cpu": cpu, "memory": memory});
        let labels = json!({"app": self.name, "tier": "dedicated"});
        json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {
                        "labels": labels,
                        "annotations": {
                            LEVEL: "dedicated_cores",
                            MEMORY_ENHANCEMENT: r#"{"numa_binding": "true"}"#,
                        },
                    },
                    "spec": {
                        "schedulerName": scheduler,
                        "serviceAccountName": ACCOUNT,
                        "priorityClassName": ONLINE,
                        "containers": [{
                            "name": self.name,
                            "image": format!("registry.example/shop/{}:1.0", self.name),
                            "resources": {"requests": amounts, "limits": amounts},
                        }],
                    },
                },
            },
        })
    }
}

fn budget() -> Value {
    json!({
        "metadata": {"name": "storefront"},
        "spec": {"minAvailable": "80%", "selector": {"matchLabels": {"app": "storefront"}}},
    })
}

struct Work {
    name: &'static str,
    /// Parallelism and completions.
    pods: (usize, usize),
    size: Size,
    run_for: &'static str,
    place: Value,
}

/// A little more than the capacity, so that some pods always wait for others to end.
fn batch(nodes: usize) -> Vec<Work> {
    vec![
        Work {
            name: "etl",
            pods: (2 * nodes, 40 * nodes),
            size: Size {
                cpu: "2",
                memory: "6Gi",
                uses: "1800m",
            },
            run_for: "50s",
            place: json!({}),
        },
        Work {
            name: "thumbnails",
            pods: (nodes, 60 * nodes),
            size: Size {
                cpu: "1",
                memory: "1Gi",
                uses: "900m",
            },
            run_for: "20s",
            place: json!({}),
        },
        Work {
            name: "reindex",
            pods: (nodes.div_ceil(3), 5 * nodes),
            size: Size {
                cpu: "4",
                memory: "12Gi",
                uses: "3500m",
            },
            run_for: "2m",
            place: json!({}),
        },
    ]
}

/// Work of a tier: it runs on what services leave idle.
struct TierWork {
    name: &'static str,
    /// `mid` or `batch`.
    tier: &'static str,
    /// At the same time, and in all.
    pods: (usize, usize),
    milli_cpu: usize,
    memory: &'static str,
    uses: &'static str,
    run_for: Duration,
}

/// More than a cluster lends at high tide. The pods are short beside the tide, so that their number follows it.
fn tier_work(nodes: usize, tide: Duration) -> [TierWork; 2] {
    [
        TierWork {
            name: "recommend",
            tier: "mid",
            pods: (nodes, 40 * nodes),
            milli_cpu: 1000,
            memory: "1Gi",
            uses: "900m",
            run_for: tide * 3 / 8,
        },
        TierWork {
            name: "render",
            tier: "batch",
            pods: (3 * nodes, 200 * nodes),
            milli_cpu: 1500,
            memory: "1Gi",
            uses: "1400m",
            run_for: tide / 8,
        },
    ]
}

impl TierWork {
    fn job(&self, scheduler: &str) -> Value {
        let Self { name, tier, .. } = self;
        let (parallelism, completions) = self.pods;
        let amounts = json!({
            format!("kubernetes.io/{tier}-cpu"): self.milli_cpu.to_string(),
            format!("kubernetes.io/{tier}-memory"): self.memory,
        });
        let labels = json!({
            "app": name,
            "tier": tier,
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority-class": format!("koord-{tier}"),
        });
        json!({
            "metadata": {"name": name, "labels": {"app": name, "tier": tier}},
            "spec": {
                "parallelism": parallelism,
                "completions": completions,
                // Evicted pods must not fail the job.
                "backoffLimit": i32::MAX,
                "template": {
                    "metadata": {
                        "labels": labels,
                        "annotations": {CPU_USE: self.uses, RUN_FOR: format!("{}s", self.run_for.as_secs())},
                    },
                    "spec": {
                        "schedulerName": scheduler,
                        "serviceAccountName": ACCOUNT,
                        "priorityClassName": BATCH,
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": name,
                            "image": format!("registry.example/shop/{name}:1.0"),
                            "resources": {"requests": amounts, "limits": amounts},
                        }],
                    },
                },
            },
        })
    }
}

/// Pods that no node can run, to show explanations.
fn unschedulable() -> Vec<Work> {
    vec![
        // No node is that large.
        Work {
            name: "train-large",
            pods: (1, 1),
            size: Size {
                cpu: "24",
                memory: "96Gi",
                uses: "20",
            },
            run_for: "10m",
            place: json!({}),
        },
        // No node has one.
        Work {
            name: "train-gpu",
            pods: (1, 1),
            size: Size {
                cpu: "4",
                memory: "16Gi",
                uses: "2",
            },
            run_for: "10m",
            place: json!({"nodeSelector": {"accelerator": "gpu"}}),
        },
    ]
}

impl Work {
    fn job(&self, scheduler: &str) -> Value {
        let (parallelism, completions) = self.pods;
        json!({
            "metadata": {"name": self.name, "labels": self.labels()},
            "spec": {
                "parallelism": parallelism,
                "completions": completions,
                // Preempted pods must not fail the job.
                "backoffLimit": i32::MAX,
                "template": self.pod(scheduler),
            },
        })
    }

    /// A pod, or a pod template.
    fn pod(&self, scheduler: &str) -> Value {
        let mut spec = pod_spec(self.name, &self.size, BATCH, scheduler);
        extend(&mut spec, &json!({"restartPolicy": "Never"}));
        extend(&mut spec, &self.place);
        let annotations = json!({CPU_USE: self.size.uses, RUN_FOR: self.run_for});
        json!({
            "metadata": {"name": self.name, "labels": self.labels(), "annotations": annotations},
            "spec": spec,
        })
    }

    fn labels(&self) -> Value {
        json!({"app": self.name, "tier": "batch"})
    }
}

fn pod_spec(name: &str, size: &Size, priority: &str, scheduler: &str) -> Value {
    json!({
        "schedulerName": scheduler,
        "serviceAccountName": ACCOUNT,
        "priorityClassName": priority,
        "containers": [{
            "name": name,
            "image": format!("registry.example/shop/{name}:1.0"),
            "resources": {"requests": {"cpu": size.cpu, "memory": size.memory}},
        }],
    })
}

fn extend(object: &mut Value, fields: &Value) {
    if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
        object.extend(fields.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::model::Quantity;

    fn milli(text: &str) -> i64 {
        Quantity::parse(text).unwrap().milli()
    }

    #[test]
    fn dedicated_services_need_one_zone_and_two_zones() {
        for (grid, nodes, want) in [
            (
                "2x2",
                6,
                vec![("ranking", 2, 3000, 6144), ("bidding", 2, 6000, 12288)],
            ),
            ("1x1", 6, vec![("ranking", 2, 12000, 24576)]),
            ("2x1", 1, vec![("ranking", 1, 6000, 12288)]),
        ] {
            let found = dedicated(nodes, grid.parse().unwrap()).into_iter();
            let found: Vec<_> = found
                .map(|it| (it.name, it.replicas, it.milli_cpu, it.memory))
                .collect();
            assert_eq!(found, want, "{grid}");
        }
    }

    #[test]
    fn it_nearly_fills_the_cluster_and_hardly_uses_it() {
        for nodes in [1, 3, 6, 100] {
            let services = services(nodes);
            let sum = |of: fn(&Size) -> &str| -> i64 {
                let sizes = services
                    .iter()
                    .map(|service| (&service.size, service.replicas));
                sizes
                    .map(|(size, count)| milli(of(size)) * count as i64)
                    .sum()
            };
            let (asked, used) = (sum(|size| size.cpu), sum(|size| size.uses));
            let room = 1000 * nodes as i64 * i64::from(Shape::demo(0, nodes).cpu);
            assert!(
                asked * 10 > room * 5 && asked < room,
                "{nodes}: {asked} of {room}"
            );
            assert!(used * 4 < asked, "{nodes}: {used} of {asked}");
            let batch = batch(nodes).into_iter();
            let batch: i64 = batch
                .map(|work| milli(work.size.cpu) * work.pods.0 as i64)
                .sum();
            assert!(
                (asked + batch) * 10 > room * 9,
                "{nodes}: {batch} beside {asked}"
            );
        }
    }
}
