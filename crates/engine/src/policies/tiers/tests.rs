use std::sync::Arc;

use super::*;
use crate::model::{
    Amounts, Labels, Reclaimed, Resource, Selector, Topology, TopologyPolicy, Zone,
};
use crate::node::{Figure, Lend};

mod properties;

const G: i64 = 1_000_000_000;

fn cores(cores: i64, memory: i64) -> CpuMemory {
    CpuMemory::new(cores * 1000, memory * G)
}

fn pod(name: &str, class: QosClass, native: CpuMemory) -> TierPod {
    TierPod {
        namespace: "default".into(),
        name: name.into(),
        class,
        exclusive: false,
        zones: ZoneSet::EMPTY,
        requests: Amounts::default(),
        active: true,
        native,
        mid: CpuMemory::ZERO,
        batch: CpuMemory::ZERO,
        reclaimed: CpuMemory::ZERO,
    }
}

fn node(pods: &[TierPod]) -> TierNode<'_> {
    TierNode {
        capacity: cores(100, 210),
        allocatable: cores(100, 210),
        reservation: CpuMemory::ZERO,
        pods,
        metric: None,
        report: None,
        agent_silent: false,
    }
}

fn report(pool: CpuMemory) -> CustomNodeResource {
    CustomNodeResource {
        pool: Some(Reclaimed::lent(pool.milli_cpu, pool.memory)),
        ..CustomNodeResource::default()
    }
}

fn zone(id: u8, amounts: CpuMemory) -> Zone {
    let amounts = [
        (Resource::Cpu, amounts.milli_cpu),
        (Resource::Memory, amounts.memory),
    ];
    Zone {
        id,
        socket: "0".into(),
        allocatable: amounts.clone().into_iter().collect(),
        capacity: amounts.into_iter().collect(),
        reclaimed: None,
        distances: Vec::new(),
        reserved_cpus: "".into(),
        allocations: Vec::new(),
    }
}

fn topology(zones: impl Iterator<Item = Zone>) -> Arc<Topology> {
    Arc::new(Topology::new(TopologyPolicy::Several, zones.collect()))
}

fn metric(reclaimable: CpuMemory, usage: Option<CpuMemory>) -> NodeMetric {
    NodeMetric {
        updated: Some(Timestamp::from_secs(1000)),
        node_usage: usage,
        prod_reclaimable: reclaimable,
        ..NodeMetric::default()
    }
}

fn mid(node: &TierNode<'_>, metric: &NodeMetric, strategy: &ColocationStrategy) -> CpuMemory {
    amounts(&capacities(node, metric, strategy, false))[0]
}

/// Mid and batch; every figure is the sum of its terms.
fn amounts(figures: &[Figure; 4]) -> [CpuMemory; 2] {
    for figure in figures {
        assert_eq!(figure.recompute(), figure.value, "{figure:?}");
    }
    let [mid_cpu, mid_memory, batch_cpu, batch_memory] = figures.each_ref().map(|it| it.value);
    [
        CpuMemory::new(mid_cpu, mid_memory),
        CpuMemory::new(batch_cpu, batch_memory),
    ]
}

#[test]
fn mid_as_koordinator_calculates_it() {
    let service = [pod("web", QosClass::Online, cores(20, 40))];
    let strategy = |unallocated, cpu, memory| ColocationStrategy {
        mid_formula: MidFormula::Koordinator,
        mid_unallocated_percent: unallocated,
        mid_cpu_threshold_percent: cpu,
        mid_memory_threshold_percent: memory,
        ..ColocationStrategy::default()
    };
    for (case, reclaimable, usage, unallocated, thresholds, want) in [
        (
            "reclaimable is the least",
            cores(10, 15),
            Some(cores(20, 45)),
            0,
            (100, 100),
            cores(10, 15),
        ),
        (
            "the threshold is the least",
            cores(15, 30),
            Some(cores(30, 50)),
            10,
            (10, 20),
            cores(10, 42),
        ),
        (
            "unused is the least",
            cores(20, 20),
            Some(cores(90, 200)),
            0,
            (100, 100),
            cores(10, 10),
        ),
        (
            "without a usage",
            cores(20, 20),
            None,
            0,
            (100, 100),
            CpuMemory::ZERO,
        ),
        (
            "nothing reclaimable",
            CpuMemory::ZERO,
            Some(cores(30, 50)),
            0,
            (100, 100),
            CpuMemory::ZERO,
        ),
    ] {
        let node = TierNode {
            allocatable: cores(100, 200),
            ..node(&service)
        };
        let strategy = strategy(unallocated, thresholds.0, thresholds.1);
        let found = mid(&node, &metric(reclaimable, usage), &strategy);
        assert_eq!(found, want, "{case}");
    }
    for (percent, want) in [(10, cores(10, 21)), (100, cores(10, 42))] {
        let strategy = ColocationStrategy {
            mid_reclaim_mode: MidReclaimMode::Static,
            mid_static_cpu_reserved_percent: percent,
            mid_static_memory_reserved_percent: percent,
            ..strategy(0, 10, 20)
        };
        let found = mid(&node(&service), &metric(CpuMemory::ZERO, None), &strategy);
        assert_eq!(found, want, "static {percent}%");
    }
}

/// One node by both formulas: the proposal lends what services do not request.
#[test]
fn the_formulas_are_an_order_of_magnitude_apart() {
    let service = [pod("web", QosClass::Online, cores(20, 40))];
    let node = TierNode {
        allocatable: cores(100, 200),
        ..node(&service)
    };
    let metric = metric(cores(15, 30), Some(cores(30, 50)));
    for (mid_formula, want) in [
        (MidFormula::Koordinator, cores(10, 42)),
        (MidFormula::Proposal, cores(90, 190)),
    ] {
        let strategy = ColocationStrategy {
            mid_formula,
            mid_unallocated_percent: 10,
            mid_cpu_threshold_percent: 10,
            mid_memory_threshold_percent: 20,
            ..ColocationStrategy::default()
        };
        assert_eq!(mid(&node, &metric, &strategy), want, "{mid_formula:?}");
    }
}

#[test]
fn mid_adds_what_services_do_not_request() {
    let service = pod("web", QosClass::Online, cores(20, 50));
    let tier = |class| TierPod {
        mid: cores(5, 5),
        ..pod("job", class, CpuMemory::ZERO)
    };
    let strategy = ColocationStrategy {
        mid_cpu_threshold_percent: 10,
        mid_memory_threshold_percent: 20,
        ..ColocationStrategy::default()
    };
    for (case, pods, reservation, want) in [
        (
            "a service",
            vec![service.clone()],
            CpuMemory::ZERO,
            cores(90, 190),
        ),
        (
            "pods of the tier request nothing of the service's account",
            vec![service.clone(), tier(QosClass::MidBestEffort)],
            CpuMemory::ZERO,
            cores(90, 190),
        ),
        (
            "a reservation is taken off",
            vec![service.clone()],
            cores(10, 10),
            // min(15, 9) + 70 and min(30, 40) + 150.
            cores(79, 180),
        ),
        (
            "more requested than there is",
            vec![service.clone(); 6],
            CpuMemory::ZERO,
            cores(10, 30),
        ),
    ] {
        let node = TierNode {
            reservation,
            ..node(&pods)
        };
        let found = mid(&node, &metric(cores(15, 30), None), &strategy);
        assert_eq!(found, want, "{case}");
    }
    let pods = [service];
    let alone = capacities(&node(&pods), &metric(cores(15, 30), None), &strategy, true);
    assert_eq!(amounts(&alone)[0], cores(8, 32), "without overselling");
}

#[test]
fn batch_by_its_policies() {
    let with = |policy| ColocationStrategy {
        lend: Lend::Batch,
        cpu_calculate_policy: policy,
        memory_calculate_policy: policy,
        ..ColocationStrategy::default()
    };
    let used = |name: &str, usage| PodUsage {
        namespace: "default".into(),
        name: name.into(),
        band: PriorityBand::Prod,
        usage,
    };
    let web = pod("web", QosClass::Online, cores(40, 40));
    let new = pod("new", QosClass::Online, cores(10, 10));
    let job = TierPod {
        mid: cores(7, 7),
        ..pod("mid", QosClass::MidBestEffort, CpuMemory::ZERO)
    };
    let lent = TierPod {
        batch: cores(9, 9),
        ..pod("lent", QosClass::Lent, CpuMemory::ZERO)
    };
    let base = NodeMetric {
        system_usage: cores(7, 7),
        pods: vec![
            used("web", cores(30, 50)),
            PodUsage {
                band: PriorityBand::Batch,
                ..used("lent", cores(9, 9))
            },
        ],
        ..metric(CpuMemory::ZERO, None)
    };
    use CalculatePolicy::{MaxUsageRequest, Request, Usage};
    // The margin is 40 cores and 73.5 G.
    for (case, pods, policy, cpu, memory) in [
        (
            "by use",
            vec![web.clone(), lent.clone()],
            Usage,
            23_000,
            76_500_000_000,
        ),
        (
            "a new pod counts by its requests",
            vec![web.clone(), new.clone()],
            Usage,
            13_000,
            66_500_000_000,
        ),
        (
            "the larger, a new pod too",
            vec![web.clone(), new.clone()],
            MaxUsageRequest,
            3_000,
            66_500_000_000,
        ),
        (
            "by requests",
            vec![web.clone(), new],
            Request,
            6_000,
            76_500_000_000,
        ),
        (
            "a mid pod counts by its mid requests",
            vec![web, job],
            Request,
            9_000,
            79_500_000_000,
        ),
    ] {
        let node = TierNode {
            allocatable: cores(96, 200),
            ..node(&pods)
        };
        let found = capacities(&node, &base, &with(policy), false);
        assert_eq!(amounts(&found)[1], CpuMemory::new(cpu, memory), "{case}");
    }
}

#[test]
fn one_idle_pool_has_two_names() {
    let pods = [TierPod {
        reclaimed: cores(4, 4),
        ..pod("job", QosClass::Lent, CpuMemory::ZERO)
    }];
    let report = report(cores(10, 10));
    let node = TierNode {
        report: Some(&report),
        ..node(&pods)
    };
    for (lend, want) in [
        (Lend::Shared, cores(6, 6)),
        (Lend::Reclaimed, CpuMemory::ZERO),
        (Lend::Batch, CpuMemory::new(60_000, 136_500_000_000)),
    ] {
        let strategy = ColocationStrategy {
            lend,
            ..ColocationStrategy::default()
        };
        let found = capacities(&node, &metric(CpuMemory::ZERO, None), &strategy, false);
        assert_eq!(amounts(&found)[1], want, "{lend:?}");
    }
}

/// A node of 100 cores and 210 GB in four zones, and a service in zones 0 and 1 that uses and requests a part of them.
#[test]
fn all_of_an_exclusive_zone_counts_as_requested_and_used() {
    let zones = (0..4).map(|id| zone(id, cores(25, 50)));
    let report = CustomNodeResource {
        topology: Some(topology(zones)),
        ..CustomNodeResource::default()
    };
    let strategy = ColocationStrategy {
        lend: Lend::Batch,
        mid_formula: MidFormula::Proposal,
        cpu_reclaim_threshold_percent: 100,
        memory_reclaim_threshold_percent: 100,
        cpu_calculate_policy: CalculatePolicy::Usage,
        memory_calculate_policy: CalculatePolicy::Usage,
        ..ColocationStrategy::default()
    };
    let in_zones = |name: &str, zones: &str, native: CpuMemory| TierPod {
        zones: ZoneSet::parse(zones).unwrap(),
        requests: [
            (Resource::Cpu, native.milli_cpu),
            (Resource::Memory, native.memory),
        ]
        .into_iter()
        .collect(),
        ..pod(name, QosClass::Online, native)
    };
    let search = in_zones("search", "0,1", cores(30, 60));
    // Mid pods get what is not requested, and batch pods what is not used.
    for (case, pods, mid_want, batch_want) in [
        (
            "no zones",
            vec![pod("search", QosClass::Online, cores(30, 60))],
            cores(70, 150),
            cores(90, 190),
        ),
        (
            "two of four",
            vec![search.clone()],
            cores(50, 110),
            cores(50, 110),
        ),
        (
            "more than its request can need",
            vec![in_zones("search", "0,1,2,3", cores(30, 60))],
            cores(50, 110),
            cores(50, 110),
        ),
        (
            "claimed by two pods",
            vec![search.clone(), in_zones("other", "1", cores(1, 1))],
            cores(49, 109),
            cores(49, 109),
        ),
        (
            "requests more than its zones report",
            vec![in_zones("search", "2", cores(30, 60))],
            cores(70, 150),
            cores(75, 160),
        ),
        (
            "a zone that is not reported",
            vec![in_zones("search", "9", cores(30, 60))],
            cores(70, 150),
            cores(90, 190),
        ),
    ] {
        let node = TierNode {
            report: Some(&report),
            ..node(&pods)
        };
        let mut metric = metric(CpuMemory::ZERO, Some(cores(15, 30)));
        metric.pods.push(PodUsage {
            namespace: "default".into(),
            name: "search".into(),
            band: PriorityBand::Prod,
            usage: cores(10, 20),
        });
        let found = amounts(&capacities(&node, &metric, &strategy, false));
        assert_eq!(found, [mid_want, batch_want], "{case}");
    }
}

#[test]
fn values_are_written_when_they_change_enough() {
    let strategy = ColocationStrategy {
        lend: Lend::Batch,
        ..ColocationStrategy::default()
    };
    let now = Timestamp::from_secs(1000);
    let late = Timestamp::from_secs(1000 + 15 * 60 + 1);
    let bound = [TierPod {
        mid: CpuMemory::new(400, 500),
        ..pod("job", QosClass::MidBestEffort, CpuMemory::ZERO)
    }];
    let fresh = metric(CpuMemory::ZERO, None);
    // The formulas give these.
    let full: Published = [
        Some(100_000),
        Some(210 * G),
        Some(59_600),
        Some(136_499_999_500),
    ];
    let held = [Some(400), Some(500), Some(0), Some(0)];
    let absent = [Some(400), Some(500), None, None];
    let near = [
        Some(95_000),
        Some(210 * G),
        Some(59_600),
        Some(136_499_999_500),
    ];
    let far = [
        Some(90_000),
        Some(210 * G),
        Some(59_600),
        Some(136_499_999_500),
    ];
    let low = [Some(0), Some(210 * G), Some(59_600), Some(136_499_999_500)];
    let off = ColocationStrategy {
        enable: false,
        ..strategy.clone()
    };
    let just = Some(now);
    let before = Some(Timestamp::from_secs(990));
    for (case, metric, strategy, published, written, at, silent, want, write) in [
        (
            "the first time",
            Some(&fresh),
            &strategy,
            [None; 4],
            None,
            now,
            false,
            full,
            true,
        ),
        (
            "equal",
            Some(&fresh),
            &strategy,
            full,
            None,
            now,
            false,
            full,
            false,
        ),
        (
            "a small change waits",
            Some(&fresh),
            &strategy,
            near,
            just,
            now,
            false,
            full,
            false,
        ),
        (
            "a small change after a restart",
            Some(&fresh),
            &strategy,
            near,
            None,
            now,
            false,
            full,
            true,
        ),
        (
            "a small change after 300 s",
            Some(&fresh),
            &strategy,
            near,
            just,
            Timestamp::from_secs(1300),
            false,
            full,
            true,
        ),
        (
            "a large change",
            Some(&fresh),
            &strategy,
            far,
            before,
            now,
            false,
            full,
            true,
        ),
        (
            "a large change just after another",
            Some(&fresh),
            &strategy,
            far,
            just,
            now,
            false,
            full,
            false,
        ),
        (
            "from zero",
            Some(&fresh),
            &strategy,
            low,
            before,
            now,
            false,
            full,
            true,
        ),
        (
            "a stale metric holds what is bound",
            Some(&fresh),
            &strategy,
            full,
            just,
            late,
            false,
            held,
            true,
        ),
        (
            "a silent agent",
            Some(&fresh),
            &strategy,
            full,
            just,
            now,
            true,
            held,
            true,
        ),
        (
            "no metric ever",
            None,
            &strategy,
            [None; 4],
            None,
            now,
            false,
            absent,
            true,
        ),
        (
            "disabled, with a bound pod",
            Some(&fresh),
            &off,
            full,
            just,
            now,
            false,
            absent,
            true,
        ),
    ] {
        let node = TierNode {
            metric,
            agent_silent: silent,
            ..node(&bound)
        };
        let plan = plan(&node, strategy, false, &published, written, at);
        assert_eq!(plan.values, want, "{case}");
        assert_eq!(plan.write, write, "{case}");
    }
    let node = TierNode {
        metric: Some(&fresh),
        ..node(&bound)
    };
    let waiting = plan(&node, &strategy, false, &near, just, now);
    assert_eq!(waiting.again, Some(Timestamp::from_secs(1300)));
    let waiting = plan(&node, &strategy, false, &far, just, now);
    assert_eq!(waiting.again, Some(Timestamp::from_secs(1010)));
}

#[test]
fn settings_of_a_node_override_those_of_the_cluster() {
    let overrides = |cpu| StrategyOverrides {
        cpu_reclaim_threshold_percent: Some(cpu),
        ..StrategyOverrides::default()
    };
    let config = ColocationConfig {
        cluster: overrides(50),
        nodes: vec![
            NodeStrategy {
                name: "none".to_owned(),
                selector: None,
                overrides: overrides(1),
            },
            NodeStrategy {
                name: "gpu".to_owned(),
                selector: Some(Selector::pairs(&labels(&[("kind", "gpu")]))),
                overrides: overrides(70),
            },
            NodeStrategy {
                name: "also gpu".to_owned(),
                selector: Some(Selector::pairs(&labels(&[("kind", "gpu")]))),
                overrides: overrides(2),
            },
        ],
    };
    let ratio = "node.koordinator.sh/cpu-reclaim-ratio";
    for (case, pairs, annotation, want) in [
        ("the cluster", &[][..], None, 50),
        (
            "the first group that selects it",
            &[("kind", "gpu")],
            None,
            70,
        ),
        (
            "the annotation",
            &[("kind", "gpu")],
            Some(overrides(80)),
            80,
        ),
        ("an invalid annotation", &[], Some(overrides(-1)), 50),
        (
            "the label",
            &[("kind", "gpu"), (ratio, "0.57")],
            Some(overrides(80)),
            57,
        ),
        ("a label that is no ratio", &[(ratio, "much")], None, 50),
        ("a negative label", &[(ratio, "-1")], None, 50),
    ] {
        let strategy = config.strategy(&labels(pairs), annotation.as_ref());
        assert_eq!(strategy.cpu_reclaim_threshold_percent, want, "{case}");
        assert!(strategy.enable, "{case}");
    }
    let off = ColocationConfig {
        cluster: StrategyOverrides {
            enable: Some(false),
            ..StrategyOverrides::default()
        },
        nodes: Vec::new(),
    };
    let on = StrategyOverrides {
        enable: Some(true),
        ..StrategyOverrides::default()
    };
    assert!(!off.strategy(&Labels::default(), Some(&on)).enable);
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}
