//! Costs by size: four times as much of something may cost four times as much, not sixteen times.

use std::hint::black_box;
use std::sync::Arc;

use engine::cluster::Cluster;
use engine::cluster::kinds::Object;
use engine::cluster::{CsiDriver, CsiLimits, StorageCapacity, VolumeAttachment};
use engine::model::{
    FieldRequirement, Name, NodeSelector, NodeTerm, Operator, Pod, Quantity, Requirement, Selector,
};
use engine::scheduling::extender::{Extender, Response};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{claim, class, node, pod, term, volume};
use rustix::time::{ClockId, clock_gettime};

use super::{HOSTNAME, NOW, ZONE, apply, scheduler};

/// Twice what grows with the size costs, because caches miss more often at the larger size.
pub(crate) const LINEAR: f64 = 8.0;
/// What does not grow with the size.
const CONSTANT: f64 = 2.0;

pub(crate) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The least CPU time of some runs: other work on the machine only adds to it.
pub(crate) fn cost<T>(mut prepare: impl FnMut() -> T, mut work: impl FnMut(&mut T)) -> f64 {
    let mut run = || {
        let mut prepared = prepare();
        let begun = cpu_ns();
        work(&mut prepared);
        cpu_ns() - begun
    };
    (0..5).map(|_| run()).min().unwrap() as f64
}

/// Compares the costs of a size and of four times that size.
pub(crate) fn assert_grows(most: f64, size: usize, cost: impl Fn(usize) -> f64) {
    let (small, large) = (cost(size), cost(4 * size));
    let ratio = large / small;
    assert!(ratio < most, "{small} ns, then {large} ns: {ratio}");
}

fn set(scheduler: &mut Scheduler, object: impl Into<Object>) {
    apply(scheduler, Input::Object(object.into().into()));
}

fn with_nodes(nodes: usize, settings: Settings) -> Scheduler {
    let mut scheduler = scheduler(settings);
    for index in 0..nodes {
        let name = format!("n{index}");
        let node = node(&name)
            .label(HOSTNAME, &name)
            .label(ZONE, ["a", "b"][index % 2])
            .allocatable("cpu=8 memory=32Gi pods=1000");
        set(&mut scheduler, node.build());
    }
    scheduler
}

/// One decision about the pod, which must get a node.
fn decide(scheduler: &mut Scheduler, pod: &Arc<Pod>) {
    apply(scheduler, Input::Pod(pod.clone()));
    let outcome = scheduler.schedule_next(NOW).unwrap();
    let is_placed = matches!(outcome, Outcome::Bind { .. } | Outcome::Prepare { .. });
    assert!(is_placed, "{outcome:?}");
}

#[test]
fn volume_limits() {
    let prepare = |nodes: usize| {
        let mut scheduler = with_nodes(nodes, Settings::default());
        set(&mut scheduler, claim("c").bound_to("own"));
        set(&mut scheduler, volume("own").for_claim("c"));
        for index in 0..nodes {
            let node = Name::from(format!("n{index}"));
            let drivers = vec![(Name::from("csi"), Some(10))];
            set(
                &mut scheduler,
                CsiLimits {
                    node: node.clone(),
                    drivers,
                    ..CsiLimits::default()
                },
            );
            for attached in 0..4 {
                let name = format!("v{index}-{attached}");
                set(&mut scheduler, volume(&name));
                set(
                    &mut scheduler,
                    VolumeAttachment {
                        name: name.as_str().into(),
                        attacher: "csi".into(),
                        node: node.clone(),
                        volume: Some(name.as_str().into()),
                    },
                );
            }
        }
        scheduler
    };
    let pod = pod("p").claim("c").build();
    assert_grows(LINEAR, 300, |nodes| {
        cost(|| prepare(nodes), |scheduler| decide(scheduler, &pod))
    });
}

#[test]
fn local_volumes() {
    let prepare = |nodes: usize| {
        let mut scheduler = with_nodes(nodes, Settings::default());
        let local = "kubernetes.io/no-provisioner";
        set(&mut scheduler, class("local").provisioner(local));
        set(&mut scheduler, claim("c").class("local"));
        for index in 0..nodes {
            let volume = volume(&format!("v{index}")).class("local");
            let here = format!("{HOSTNAME} In n{index}");
            set(&mut scheduler, volume.on_nodes(&here));
        }
        scheduler
    };
    let pod = pod("p").claim("c").build();
    assert_grows(LINEAR, 300, |nodes| {
        cost(|| prepare(nodes), |scheduler| decide(scheduler, &pod))
    });
}

#[test]
fn storage_capacities() {
    let prepare = |nodes: usize| {
        let mut scheduler = with_nodes(nodes, Settings::default());
        let driver = CsiDriver {
            name: "csi".into(),
            storage_capacity: true,
        };
        set(&mut scheduler, driver);
        set(&mut scheduler, class("fast"));
        set(&mut scheduler, claim("c").class("fast").size("1Gi"));
        for index in 0..nodes {
            let here = Requirement::equals(HOSTNAME, format!("n{index}"));
            set(
                &mut scheduler,
                StorageCapacity {
                    namespace: "default".into(),
                    name: format!("c{index}").into(),
                    class: "fast".into(),
                    topology: Some(Selector::all([here])),
                    capacity: Some(Quantity::parse("10Gi").unwrap()),
                    largest_volume: None,
                },
            );
        }
        scheduler
    };
    let pod = pod("p").claim("c").build();
    assert_grows(LINEAR, 300, |nodes| {
        cost(|| prepare(nodes), |scheduler| decide(scheduler, &pod))
    });
}

#[test]
fn answers_of_extenders() {
    let extender = Extender {
        url: "http://extender".into(),
        filters: true,
        preempts: false,
        binds: false,
        weight: None,
        ignorable: false,
        managed: Vec::new(),
    };
    let prepare = |nodes: usize| {
        let settings = Settings {
            extenders: vec![extender.clone()],
            ..Settings::default()
        };
        let mut scheduler = with_nodes(nodes, settings);
        apply(
            &mut scheduler,
            Input::Pod(pod("p").container("cpu=1").build()),
        );
        let outcome = scheduler.schedule_next(NOW).unwrap();
        assert!(matches!(outcome, Outcome::Ask { .. }), "{outcome:?}");
        scheduler
    };
    let name = |index: usize| Name::from(format!("n{index}"));
    // The last node is left, or none.
    for left in [1, 0] {
        assert_grows(LINEAR, 1_000, |nodes| {
            let reason = |index| (name(index), "no".to_owned());
            let response = Response::Filter {
                nodes: (nodes - left..nodes).map(name).collect(),
                failed: (0..nodes - left).map(reason).collect(),
                unresolvable: Vec::new(),
            };
            let work = |scheduler: &mut Scheduler| {
                let answer = Input::Extender {
                    uid: "p".into(),
                    extender: 0,
                    answer: Ok(response.clone()),
                };
                apply(scheduler, answer);
                let outcome = scheduler.schedule_next(NOW);
                assert_eq!(matches!(outcome, Some(Outcome::Bind { .. })), left == 1);
            };
            cost(|| prepare(nodes), work)
        });
    }
}

/// All nodes are left: the answer names as many nodes as were asked about.
#[test]
fn answers_of_extenders_that_leave_all_nodes() {
    let extender = Extender {
        url: "http://extender".into(),
        filters: true,
        preempts: false,
        binds: false,
        weight: None,
        ignorable: false,
        managed: Vec::new(),
    };
    let prepare = |nodes: usize| {
        let settings = Settings {
            extenders: vec![extender.clone()],
            ..Settings::default()
        };
        let mut scheduler = with_nodes(nodes, settings);
        let pod = pod("p").container("cpu=1").build();
        apply(&mut scheduler, Input::Pod(pod));
        scheduler.schedule_next(NOW);
        scheduler
    };
    assert_grows(LINEAR, 1_000, |nodes| {
        let response = Response::Filter {
            nodes: (0..nodes).map(|index| format!("n{index}").into()).collect(),
            failed: Vec::new(),
            unresolvable: Vec::new(),
        };
        let work = |scheduler: &mut Scheduler| {
            let answer = Input::Extender {
                uid: "p".into(),
                extender: 0,
                answer: Ok(response.clone()),
            };
            apply(scheduler, answer);
            let outcome = scheduler.schedule_next(NOW);
            assert!(matches!(outcome, Some(Outcome::Bind { .. })));
        };
        cost(|| prepare(nodes), work)
    });
}

/// Equal labels and different requests.
#[test]
fn shapes_of_waiting_pods() {
    let work = |scheduler: &mut Scheduler, pods: usize| {
        for index in 0..pods {
            let cpu = format!("cpu={}m", 10_000 + index);
            let pod = pod(&format!("p{index}")).container(&cpu).build();
            apply(scheduler, Input::Pod(pod));
        }
        while scheduler.schedule_next(NOW).is_some() {}
        assert_eq!(scheduler.sizes().unschedulable, pods);
    };
    assert_grows(LINEAR, 2_000, |pods| {
        let prepare = || with_nodes(1, Settings::default());
        cost(prepare, |scheduler| work(scheduler, pods))
    });
}

/// On one node, and then taken back one by one.
#[test]
fn nominations() {
    let work = |cluster: &mut Cluster, pods: &[Arc<Pod>]| {
        for pod in pods {
            cluster.nominate(pod.clone(), "n0".into()).unwrap();
        }
        for pod in pods {
            cluster.remove_nomination(&pod.uid).unwrap();
        }
    };
    assert_grows(LINEAR, 2_000, |count| {
        let pods: Vec<_> = (0..count)
            .map(|index| pod(&format!("p{index}")).container("cpu=1").build())
            .collect();
        cost(Cluster::new, |cluster| work(cluster, &pods))
    });
}

/// Many pods wait for their victims to go. Another pod that goes concerns none of them.
#[test]
fn victims() {
    let prepare = |preemptors: usize| {
        let mut scheduler = with_nodes(preemptors, Settings::default());
        for index in 0..preemptors {
            let here = format!("n{index}");
            let victim = pod(&format!("v{index}")).container("cpu=8").on(&here);
            apply(&mut scheduler, Input::Pod(victim.build()));
            let field = FieldRequirement {
                key: "metadata.name".into(),
                operator: Some(Operator::In),
                values: vec![here.into()],
            };
            let preemptor = pod(&format!("p{index}")).container("cpu=8").priority(9);
            let preemptor = preemptor.with(|pod| {
                let terms = vec![NodeTerm::new(Vec::new(), vec![field])];
                pod.nodes.affinity = Some(NodeSelector { terms });
            });
            apply(&mut scheduler, Input::Pod(preemptor.build()));
            let outcome = scheduler.schedule_next(NOW).unwrap();
            assert!(matches!(outcome, Outcome::Preempt { .. }), "{outcome:?}");
        }
        scheduler
    };
    assert_grows(CONSTANT, 300, |preemptors| {
        let mut scheduler = prepare(preemptors);
        let mut round = || {
            let begun = cpu_ns();
            for _ in 0..5_000 {
                apply(&mut scheduler, Input::PodGone("gone".into()));
            }
            (cpu_ns() - begun) as f64
        };
        (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
    });
}

/// An explanation is a report about every node. That of a pod with a node costs little more than that of a waiting pod, and
/// does not copy the cluster.
#[test]
fn an_explanation_of_a_placed_pod() {
    const MOST: f64 = 8.0;
    let mut scheduler = with_nodes(100, Settings::default());
    for index in 0..20_000 {
        let placed = pod(&format!("p{index}")).on(&format!("n{}", index % 100));
        let placed = placed.label("app", &format!("a{}", index % 50));
        apply(&mut scheduler, Input::Pod(placed.build()));
    }
    apply(&mut scheduler, Input::Pod(pod("waits").build()));
    let mut explain = |name: &str| {
        let mut costs = Vec::new();
        for _ in 0..5 {
            let begun = cpu_ns();
            assert!(black_box(scheduler.explain("default", name, NOW)).is_some());
            costs.push(cpu_ns() - begun);
        }
        costs.into_iter().min().unwrap() as f64
    };
    let (waits, placed) = (explain("waits"), explain("p0"));
    assert!(placed < MOST * waits, "{waits} ns, {placed} ns with a node");
}

/// Each app avoids its own pods; a decision about one of them does not look at the others.
#[test]
fn terms_of_other_apps() {
    let prepare = |apps: usize| {
        let mut scheduler = with_nodes(50, Settings::default());
        for index in 0..apps {
            let app = format!("app In a{index}");
            let placed = pod(&format!("p{index}"))
                .label("app", &format!("a{index}"))
                .apart(term(HOSTNAME, &[&app]))
                .prefers_apart(10, term(ZONE, &[&app]))
                .on(&format!("n{}", index % 50));
            apply(&mut scheduler, Input::Pod(placed.build()));
        }
        scheduler
    };
    assert_grows(CONSTANT, 2_000, |apps| {
        let mut scheduler = prepare(apps);
        let mut next = 0;
        let mut decision = || {
            next += 1;
            let pod = pod(&format!("next-{next}")).label("app", "a7").build();
            let begun = cpu_ns();
            decide(&mut scheduler, &pod);
            (cpu_ns() - begun) as f64
        };
        (0..9).map(|_| decision()).fold(f64::INFINITY, f64::min)
    });
}
