//! Random clusters of online and reclaimed pods, with reports that appear, disappear and are wrong.
//!
//! A reclaimed pod evicts only reclaimed pods of lower priority, with every plugin that preempts. No pod gets a node whose
//! reclaimed resources are less than the requests of its pods.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use engine::cluster::kinds::{Kind, Update};
use engine::model::{Name, Pod, QosLevel, ReclaimedResource, Timestamp};
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{PodBuilder, node, pod, report};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const MEMORY: &str = "katalyst.kubewharf.io/reclaimed_memory";
const NODES: usize = 3;
const PODS: usize = 10;

#[derive(Debug, Clone)]
enum Step {
    Node {
        node: usize,
        /// The number of pods; small, so that online pods fill the node.
        pods: usize,
    },
    NodeGone(usize),
    Report {
        node: usize,
        lent: (i64, i64),
        tainted: bool,
    },
    ReportGone(usize),
    Pod(Shape),
    PodGone(usize),
    Next,
    Wait(u64),
}

#[derive(Debug, Clone)]
struct Shape {
    pod: usize,
    reclaimed: bool,
    /// Native cores, and reclaimed cpu and memory: also for pods that are not reclaimed.
    wants: (u8, i64, i64),
    priority: i32,
    on: Option<usize>,
    /// The nomination of an earlier scheduler.
    nominated: Option<usize>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let wants = (0..3_u8, 0..4_i64, 0..4_i64);
    let on = prop::option::weighted(0.3, 0..NODES);
    let nominated = prop::option::weighted(0.2, 0..NODES);
    (0..PODS, any::<bool>(), wants, 0..4_i32, on, nominated).prop_map(
        |(pod, reclaimed, wants, priority, on, nominated)| Shape {
            pod,
            reclaimed,
            wants,
            priority,
            on,
            nominated,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let amount = prop_oneof![8 => 0..9_i64, 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
    let lent = (amount.clone(), amount);
    prop_oneof![
        2 => (0..NODES, 1..6_usize).prop_map(|(node, pods)| Step::Node { node, pods }),
        1 => (0..NODES).prop_map(Step::NodeGone),
        // There may be a report for a node that never exists.
        4 => (0..NODES + 1, lent, prop::bool::weighted(0.1))
            .prop_map(|(node, lent, tainted)| Step::Report { node, lent, tainted }),
        1 => (0..NODES).prop_map(Step::ReportGone),
        8 => shape().prop_map(Step::Pod),
        1 => (0..PODS).prop_map(Step::PodGone),
        9 => Just(Step::Next),
        2 => (0..20_u64).prop_map(Step::Wait),
    ]
}

fn node_name(index: usize) -> Name {
    format!("n{index}").into()
}

impl Shape {
    fn build(&self) -> PodBuilder {
        let (cores, cpu, memory) = self.wants;
        let built = pod(&format!("p{}", self.pod))
            .priority(self.priority)
            .container(&format!("cpu={cores} {CPU}={cpu} {MEMORY}={memory}"));
        let built = match self.nominated {
            Some(node) => built.with(|pod| pod.nominated_node = Some(node_name(node))),
            None => built,
        };
        let built = match self.on {
            Some(node) => built.on(&node_name(node)),
            None => built,
        };
        if self.reclaimed {
            built.reclaimed()
        } else {
            built
        }
    }
}

/// The default plugins with those of co-location, as a configuration has them; or with DefaultPreemption as it is.
fn scheduler(preemption: &'static str) -> Scheduler {
    let names = plugins::DEFAULT.iter().copied();
    let names = names.filter(|(name, _)| *name != "DefaultPreemption");
    let more = [
        ("QoSAwareNodeResourcesFit", 4),
        ("QoSAwareNodeResourcesBalancedAllocation", 1),
        ("QoSAwareTaintToleration", 1),
        (preemption, 0),
    ];
    let enabled = names.chain(more).map(|(name, weight)| {
        let (entry, weight) = (plugins::find(name).unwrap(), weight);
        if name != "NodeResourcesFit" {
            return Enabled::new(entry, weight).unwrap();
        }
        let args = r#"{"ignoredResourceGroups":["katalyst.kubewharf.io"]}"#;
        let mut args = serde_json::Deserializer::from_str(args);
        let plugin = entry
            .build_with(&mut <dyn erased_serde::Deserializer>::erase(&mut args))
            .unwrap();
        Enabled {
            name,
            points: entry.points,
            plugin: plugin.into(),
            weight,
        }
    });
    let profile = Profile::new("default-scheduler", enabled.collect());
    Scheduler::new(vec![profile], Settings::default()).unwrap()
}

#[derive(Default)]
struct Seen {
    evictions_by_reclaimed: Cell<usize>,
    evictions_by_online: Cell<usize>,
    loans: Cell<usize>,
}

struct Run<'a> {
    scheduler: Scheduler,
    now: Timestamp,
    seen: &'a Seen,
}

impl Run<'_> {
    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.now).unwrap();
    }

    fn object(&mut self, update: Update) {
        self.apply(Input::Object(update));
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Node { node: index, pods } => {
                let built = node(&node_name(*index)).allocatable(&format!("cpu=4 pods={pods}"));
                self.object(Update::from(built.build()));
            }
            Step::NodeGone(node) => {
                self.object(Update::Delete(Kind::Node, node_name(*node).into()))
            }
            Step::Report {
                node,
                lent,
                tainted,
            } => {
                let built = report(&node_name(*node)).lends(lent.0, lent.1);
                let built = if *tainted {
                    built.taint("unwell", "", "NoSchedule", QosLevel::Reclaimed)
                } else {
                    built
                };
                self.object(built.into());
            }
            Step::ReportGone(node) => self.object(Update::Delete(
                Kind::CustomNodeResource,
                node_name(*node).into(),
            )),
            Step::Pod(shape) => self.apply(Input::Pod(shape.build().build())),
            Step::PodGone(pod) => self.apply(Input::PodGone(format!("p{pod}").into())),
            Step::Next => {
                if let Some(outcome) = self.scheduler.schedule_next(self.now) {
                    self.carry_out(outcome);
                }
            }
            Step::Wait(seconds) => self.now = self.now.plus(Duration::from_secs(*seconds)),
        }
        if let Err(broken) = self.scheduler.check() {
            panic!("{broken} after {step:?}");
        }
    }

    fn carry_out(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bind { pod, node, .. } => {
                self.is_lent(&pod, &node);
                let uid = pod.uid.clone();
                let result = Ok(());
                self.apply(Input::Bound { uid, result });
                let bound = Pod {
                    node: Some(node),
                    ..(*pod).clone()
                };
                self.apply(Input::Pod(Arc::new(bound)));
            }
            Outcome::Preempt {
                failure,
                victims,
                displaced,
                ..
            } => {
                let preemptor = &failure.pod;
                for harmed in victims.iter().chain(&displaced) {
                    assert!(
                        harmed.priority < preemptor.priority,
                        "{preemptor:?} {harmed:?}"
                    );
                    assert!(
                        !preemptor.is_reclaimed() || harmed.is_reclaimed(),
                        "reclaimed {} harms {}",
                        preemptor.uid,
                        harmed.uid
                    );
                }
                let count = if preemptor.is_reclaimed() {
                    &self.seen.evictions_by_reclaimed
                } else {
                    &self.seen.evictions_by_online
                };
                count.set(count.get() + victims.len());
                let uid = preemptor.uid.clone();
                for victim in victims {
                    self.apply(Input::PodGone(victim.uid.clone()));
                }
                self.apply(Input::PreemptionDone { uid, failed: false });
            }
            _ => {}
        }
    }

    /// The node lends what all its pods borrow, at the moment of the decision.
    fn is_lent(&self, pod: &Pod, node: &str) {
        let wanted = pod.requests.wanted_reclaimed();
        if wanted.is_zero() {
            return;
        }
        self.seen.loans.set(self.seen.loans.get() + 1);
        let cluster = self.scheduler.cluster();
        let lent = cluster.report(node).expect("a report").allocatable;
        let slot = cluster.nodes().slot(node).expect("a node");
        for resource in ReclaimedResource::ALL {
            let borrowed = |pod: &Pod| {
                let requests = pod.requests.reclaimed.as_ref();
                requests.map_or(0, |requests| requests.placed.get(resource))
            };
            let taken: i64 = cluster.pods_on(slot).map(|p| borrowed(&p.pod)).sum();
            let lent = lent.get(resource);
            assert!(taken <= lent, "{node} lends {lent}, not {taken}");
        }
        let report = cluster.report(node).expect("a report");
        assert!(report.taints.is_empty() || !pod.is_reclaimed());
    }
}

#[test]
fn a_reclaimed_pod_evicts_only_reclaimed_pods_of_lower_priority() {
    for preemption in ["QoSAwarePreemption", "DefaultPreemption"] {
        let seen = Seen::default();
        let config = Config::with_cases(600);
        let mut runner = TestRunner::new(config);
        let histories = prop::collection::vec(step(), 20..150);
        runner
            .run(&histories, |steps| {
                let mut run = Run {
                    scheduler: scheduler(preemption),
                    now: Timestamp::default(),
                    seen: &seen,
                };
                steps.iter().for_each(|step| run.take(step));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{preemption}: {error}"));
        // A run without evictions proves nothing.
        assert!(seen.evictions_by_reclaimed.get() > 50, "{preemption}");
        assert!(seen.evictions_by_online.get() > 50, "{preemption}");
        assert!(seen.loans.get() > 500, "{preemption}");
    }
}
