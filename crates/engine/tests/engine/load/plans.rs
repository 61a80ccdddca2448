//! The time of plans of the controllers in a cluster of 5,000 nodes with 20,000 pods.
//!
//! The bounds are of CPU time, about ten times what was measured. A round of hot spots begins every minute, and a
//! node of the tiers is planned at each of its changes.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::cluster::Cluster;
use engine::cluster::CustomNodeResource;
use engine::cluster::kinds::Update;
use engine::model::{Amounts, Name, QosClass, Reclaimed, Timestamp, ZoneSet};
use engine::node::CpuMemory;
use engine::policies::hot_spots::{History, HotSpotInputs, HotSpotPlan, HotSpotSettings, plan};
use engine::policies::tiers::{
    ColocationConfig, NodeMetric, PodUsage, PriorityBand, TierNode, TierNodeObject, TierPod,
    plan as plan_tiers,
};
use engine::scheduling::profile::Profile;
use engine::testing::{node, pod};

use super::growth::{LINEAR, assert_grows, cost, cpu_ns};
use super::{NOW, profile};

const PODS_PER_NODE: usize = 4;
const GIB: i64 = 1 << 30;

/// What the controller of hot spots has observed, and its history.
#[derive(Clone)]
struct HotSpots {
    cluster: Cluster,
    metrics: BTreeMap<Name, NodeMetric>,
    profiles: Vec<Profile>,
    history: History,
}

impl HotSpots {
    /// Every twentieth node is hot, and lends so many cores.
    fn new(nodes: usize, hot_lends: usize) -> Self {
        let mut cluster = Cluster::new();
        let mut metrics = BTreeMap::new();
        let mut apply = |update: Update| drop(cluster.apply(update).unwrap());
        for index in 0..nodes {
            let name = format!("n{index}");
            let is_hot = index % 20 == 0;
            let lends = if is_hot { hot_lends } else { 10 };
            let tiers = format!("kubernetes.io/batch-cpu={lends}k kubernetes.io/batch-memory=8Gi");
            let here = node(&name)
                .label(super::HOSTNAME, &name)
                .label(super::ZONE, ["a", "b", "c"][index % 3])
                .allocatable("cpu=16 memory=64Gi pods=110")
                .allocatable(&tiers);
            apply(here.build().into());
            let mut pods = Vec::new();
            for number in 0..PODS_PER_NODE {
                let name = format!("{name}-{number}");
                let batch = pod(&name)
                    .class(QosClass::Lent)
                    .container("kubernetes.io/batch-cpu=500 kubernetes.io/batch-memory=500Mi")
                    .owned_by("ReplicaSet", &format!("{name}-set"))
                    .on(&format!("n{index}"));
                apply(batch.build().into());
                pods.push(PodUsage {
                    namespace: "default".into(),
                    name: name.as_str().into(),
                    band: PriorityBand::Batch,
                    usage: CpuMemory::new(1000, GIB),
                });
            }
            let used = if is_hot { 14_000 } else { 6_000 };
            let metric = NodeMetric {
                updated: Some(NOW),
                node_usage: Some(CpuMemory::new(used, 8 * GIB)),
                pods,
                ..NodeMetric::default()
            };
            metrics.insert(name.as_str().into(), metric);
        }
        Self {
            cluster,
            metrics,
            profiles: vec![profile(&["TierResourcesFit"])],
            history: History::new(&HotSpotSettings::default(), Timestamp::default()),
        }
    }

    fn round(&mut self, minute: i64) -> HotSpotPlan {
        let observed = HotSpotInputs {
            cluster: &self.cluster,
            metrics: &self.metrics,
            profiles: &self.profiles,
        };
        let now = Timestamp(NOW.0 + 60 * minute * Timestamp::SECOND);
        let settings = HotSpotSettings {
            rounds: 2,
            ..HotSpotSettings::default()
        };
        plan(&observed, &settings, &mut self.history, now)
    }

    /// Each node was hot in a round before.
    fn ready(nodes: usize, hot_lends: usize) -> Self {
        let mut ready = Self::new(nodes, hot_lends);
        assert_eq!(ready.round(1).hot, nodes.div_ceil(20));
        ready
    }
}

fn within(what: &str, most: Duration, nanos: f64) {
    let found = Duration::from_nanos(nanos as u64);
    assert!(found < most, "{what}: {found:?}, at most {most:?}");
}

#[test]
fn rounds_of_hot_spots() {
    for (case, hot_lends, moves, tried) in [
        ("a round with ten moves", 2, 10, 0),
        // The scheduler would place them on hot nodes again. The controller asks it about a hundred pods at most.
        ("a round with a hundred pods that stay", 30, 0, 100),
    ] {
        let of_size = |nodes: usize| {
            let ready = HotSpots::ready(nodes, hot_lends);
            cost(
                || ready.clone(),
                |spots| {
                    let found = spots.round(2);
                    assert_eq!((found.moves.len(), found.unplaceable), (moves, tried));
                },
            )
        };
        assert_grows(LINEAR, 1_250, of_size);
        within(case, Duration::from_secs(1), of_size(5_000));
    }
}

#[test]
fn plans_of_tiers() {
    let settings = ColocationConfig::default();
    let of_pods = |pods: usize| {
        let amounts = CpuMemory::new(100, GIB / 10);
        let pods: Vec<TierPod> = (0..pods)
            .map(|index| TierPod {
                namespace: "default".into(),
                name: format!("p{index}").into(),
                class: [QosClass::Online, QosClass::Lent][index % 2],
                exclusive: false,
                zones: ZoneSet::EMPTY,
                requests: Amounts::default(),
                active: true,
                native: amounts,
                mid: CpuMemory::ZERO,
                batch: amounts,
                reclaimed: CpuMemory::ZERO,
            })
            .collect();
        let used = pods.iter().map(|pod| PodUsage {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            band: PriorityBand::Prod,
            usage: CpuMemory::new(50, GIB / 20),
        });
        let metric = NodeMetric {
            updated: Some(NOW),
            node_usage: Some(CpuMemory::new(8_000, 32 * GIB)),
            pods: used.collect(),
            ..NodeMetric::default()
        };
        let node = TierNodeObject {
            capacity: CpuMemory::new(64_000, 256 * GIB),
            allocatable: CpuMemory::new(64_000, 256 * GIB),
            ..TierNodeObject::default()
        };
        let strategy = settings.strategy(&node.labels, None);
        let report = CustomNodeResource {
            pool: Some(Reclaimed::lent(16_000, 64 * GIB)),
            ..CustomNodeResource::default()
        };
        let observed = TierNode {
            capacity: node.capacity,
            allocatable: node.allocatable,
            reservation: node.reservation,
            pods: &pods,
            metric: Some(&metric),
            report: Some(&report),
            agent_silent: false,
        };
        let begun = cpu_ns();
        for _ in 0..1_000 {
            let plan = plan_tiers(&observed, &strategy, false, &[None; 4], None, NOW);
            assert!(plan.write);
        }
        (cpu_ns() - begun) as f64
    };
    assert_grows(LINEAR, 250, |pods| {
        (0..3).map(|_| of_pods(pods)).fold(f64::INFINITY, f64::min)
    });
    let one_node = of_pods(PODS_PER_NODE) / 1_000.0;
    // After a change of the settings every node is planned again.
    within(
        "tiers of 5,000 nodes",
        Duration::from_secs(1),
        5_000.0 * one_node,
    );
}
