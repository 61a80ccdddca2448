//! Random histories with ResourcePolicies: edits, relabelled nodes and pods, refused bindings, terminating pods, pods of other
//! schedulers and preemption.
//!
//! After every decision the pods of each unit are counted again from a plain record of the history, with code of its own: no
//! decision takes a unit past its maxCount.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::cluster::ResourcePolicy;
use engine::cluster::kinds::{Key, Kind, Update};
use engine::model::{
    Name, Operator, Pod, PolicySpec, PolicyStrategy, Requirement, Selector, Timestamp, Unit,
};
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{node, pod, policy};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const NODES: usize = 5;
const PODS: usize = 12;
const KINDS: usize = 3;
const POLICIES: [&str; 2] = ["first", "second"];

/// What a node has: its label `kind`, or no such label.
type NodeKind = Option<usize>;

#[derive(Debug, Clone)]
struct PlainPolicy {
    /// The label `app` of its pods; `None` for all pods.
    app: Option<usize>,
    /// Whether pods are counted by their label `hash`.
    keyed: bool,
    ignores_terminating: bool,
    prefers: bool,
    units: Vec<PlainUnit>,
}

#[derive(Debug, Clone)]
struct PlainUnit {
    /// The kinds of its nodes, as bits.
    kinds: usize,
    priority: u16,
    max_count: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
struct PlainPod {
    app: usize,
    hash: Option<usize>,
    terminating: bool,
    priority: i32,
    on: Option<usize>,
}

#[derive(Debug, Clone)]
enum Step {
    Node(usize, NodeKind),
    NodeGone(usize),
    Policy(usize, PlainPolicy),
    PolicyGone(usize),
    Pod(usize, PlainPod),
    PodGone(usize),
    Bound(usize, bool),
    Next,
    Wait(u64),
}

fn plain_policy() -> impl Strategy<Value = PlainPolicy> {
    let unit = (
        0..1_usize << KINDS,
        0..3_u16,
        prop::option::weighted(0.8, 0..4_u32),
    )
        .prop_map(|(kinds, priority, max_count)| PlainUnit {
            kinds,
            priority,
            max_count,
        });
    let units = prop::collection::vec(unit, 1..4);
    let app = prop::option::weighted(0.8, 0..2_usize);
    (app, any::<bool>(), any::<bool>(), any::<bool>(), units).prop_map(
        |(app, keyed, ignores_terminating, prefers, units)| PlainPolicy {
            app,
            keyed,
            ignores_terminating,
            prefers,
            units,
        },
    )
}

fn plain_pod() -> impl Strategy<Value = PlainPod> {
    let hash = prop::option::weighted(0.7, 0..2_usize);
    let terminating = prop::bool::weighted(0.1);
    let priority = prop_oneof![3 => Just(0), 1 => Just(10)];
    // One node more than ever exists.
    let on = prop::option::weighted(0.2, 0..NODES + 1);
    (0..2_usize, hash, terminating, priority, on).prop_map(
        |(app, hash, terminating, priority, on)| PlainPod {
            app,
            hash,
            terminating,
            priority,
            on,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::option::weighted(0.8, 0..KINDS);
    prop_oneof![
        4 => (0..NODES, kind).prop_map(|(node, kind)| Step::Node(node, kind)),
        1 => (0..NODES).prop_map(Step::NodeGone),
        2 => (0..POLICIES.len(), plain_policy()).prop_map(|(at, policy)| Step::Policy(at, policy)),
        1 => (0..POLICIES.len()).prop_map(Step::PolicyGone),
        9 => (0..PODS, plain_pod()).prop_map(|(at, pod)| Step::Pod(at, pod)),
        2 => (0..PODS).prop_map(Step::PodGone),
        4 => (0..PODS, prop::bool::weighted(0.7)).prop_map(|(pod, ok)| Step::Bound(pod, ok)),
        12 => Just(Step::Next),
        2 => (0..30_u64).prop_map(Step::Wait),
    ]
}

fn node_name(index: usize) -> String {
    format!("n{index}")
}

fn text(prefix: &str, value: usize) -> String {
    format!("{prefix}{value}")
}

impl PlainPolicy {
    fn build(&self, name: &str) -> ResourcePolicy {
        let units = self.units.iter().enumerate().map(|(index, unit)| {
            let kinds = (0..KINDS).filter(|kind| unit.kinds & (1 << kind) != 0);
            let kinds: Vec<Name> = kinds.map(|kind| text("k", kind).into()).collect();
            let nodes = match kinds.is_empty() {
                true => {
                    Selector::all(
                        [Requirement::new("kind", Operator::DoesNotExist, kinds).unwrap()],
                    )
                }
                false => Selector::all([Requirement::new("kind", Operator::In, kinds).unwrap()]),
            };
            Unit {
                name: index.to_string().into(),
                priority: unit.priority,
                max_count: unit.max_count,
                nodes,
            }
        });
        let app = self
            .app
            .map(|app| Requirement::equals("app", text("a", app)));
        ResourcePolicy {
            namespace: "default".into(),
            name: name.into(),
            generation: 1,
            spec: Ok(Arc::new(PolicySpec {
                pods: Selector::all(app),
                match_label_keys: self.keyed.then(|| "hash".into()).into_iter().collect(),
                ignore_terminating: self.ignores_terminating,
                strategy: match self.prefers {
                    true => PolicyStrategy::Prefer,
                    false => PolicyStrategy::Required,
                },
                units: units.collect(),
            })),
        }
    }

    fn is_about(&self, pod: &PlainPod) -> bool {
        self.app.is_none_or(|app| app == pod.app)
    }
}

impl PlainUnit {
    /// Without kinds it has the nodes without the label.
    fn has(&self, kind: NodeKind) -> bool {
        match kind {
            None => self.kinds == 0,
            Some(kind) => self.kinds & (1 << kind) != 0,
        }
    }
}

impl PlainPod {
    fn build(&self, index: usize) -> Arc<Pod> {
        let mut built = pod(&text("p", index))
            .label("app", &text("a", self.app))
            .priority(self.priority)
            .container("cpu=1");
        if let Some(hash) = self.hash {
            built = built.label("hash", &text("h", hash));
        }
        if self.terminating {
            built = built.terminating();
        }
        if let Some(node) = self.on {
            built = built.on(&node_name(node));
        }
        built.build()
    }
}

#[derive(Default)]
struct Seen {
    bound: Cell<usize>,
    filled: Cell<usize>,
    preempted: Cell<usize>,
    refused: Cell<usize>,
}

fn add(count: &Cell<usize>, more: usize) {
    count.set(count.get() + more);
}

struct Run<'a> {
    scheduler: Scheduler,
    now: Timestamp,
    seen: &'a Seen,
    nodes: BTreeMap<usize, NodeKind>,
    policies: BTreeMap<usize, PlainPolicy>,
    /// Pods on nodes, assumed ones included.
    placed: BTreeMap<usize, PlainPod>,
    /// Chosen and not yet bound.
    assumed: BTreeMap<usize, PlainPod>,
    waiting: BTreeMap<usize, PlainPod>,
}

fn scheduler() -> Scheduler {
    let names = plugins::DEFAULT.iter().copied();
    let enabled = names.chain([("resourcepolicy", 1)]).map(|(name, weight)| {
        let entry = plugins::find(name).unwrap();
        Enabled::new(entry, weight.max(1)).unwrap()
    });
    let profile = Profile::new("default-scheduler", enabled.collect());
    Scheduler::new(vec![profile], Settings::default()).unwrap()
}

impl<'a> Run<'a> {
    fn new(seen: &'a Seen) -> Self {
        Self {
            scheduler: scheduler(),
            now: Timestamp::from_secs(1_000),
            seen,
            nodes: BTreeMap::new(),
            policies: BTreeMap::new(),
            placed: BTreeMap::new(),
            assumed: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.now).unwrap();
    }

    fn object(&mut self, update: Update) {
        self.apply(Input::Object(update));
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Node(index, kind) => {
                self.nodes.insert(*index, *kind);
                let mut built = node(&node_name(*index)).allocatable("cpu=3");
                if let Some(kind) = kind {
                    built = built.label("kind", &text("k", *kind));
                }
                self.object(Update::from(built.build()));
            }
            Step::NodeGone(index) => {
                self.nodes.remove(index);
                self.object(Update::Delete(Kind::Node, node_name(*index).into()));
            }
            Step::Policy(at, policy) => {
                self.policies.insert(*at, policy.clone());
                self.object(Update::Set(policy.build(POLICIES[*at]).into()));
            }
            Step::PolicyGone(at) => {
                self.policies.remove(at);
                let key = Key::new("default", POLICIES[*at]);
                self.object(Update::Delete(Kind::ResourcePolicy, key));
            }
            Step::Pod(index, pod) => self.show(*index, pod.clone()),
            Step::PodGone(index) => self.gone(*index),
            Step::Bound(index, ok) => self.bound(*index, *ok),
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

    /// A pod as the API shows it. A bound pod keeps its node.
    fn show(&mut self, index: usize, mut pod: PlainPod) {
        if let Some(known) = self.placed.get(&index) {
            pod.on = known.on;
        }
        self.apply(Input::Pod(pod.build(index)));
        if pod.on.is_some() {
            self.assumed.remove(&index);
            self.waiting.remove(&index);
            self.placed.insert(index, pod);
        } else {
            // The API server binds no pod that is being deleted. Labels of an assumed pod count once it is bound.
            if pod.terminating {
                self.assumed.remove(&index);
            }
            self.waiting.insert(index, pod);
        }
    }

    fn gone(&mut self, index: usize) {
        self.placed.remove(&index);
        self.assumed.remove(&index);
        self.waiting.remove(&index);
        self.apply(Input::PodGone(text("p", index).into()));
    }

    fn bound(&mut self, index: usize, ok: bool) {
        let Some(pod) = self.assumed.remove(&index) else {
            return;
        };
        let uid = text("p", index).into();
        if !ok {
            let result = Err("refused".to_owned());
            self.apply(Input::Bound { uid, result });
            add(&self.seen.refused, 1);
            return;
        }
        self.apply(Input::Bound {
            uid,
            result: Ok(()),
        });
        // What was changed of it meanwhile shows now.
        let latest = self.waiting.remove(&index).unwrap_or(pod.clone());
        let latest = PlainPod {
            on: pod.on,
            ..latest
        };
        self.placed.insert(index, latest.clone());
        self.apply(Input::Pod(latest.build(index)));
    }

    fn carry_out(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Bind { pod, node, .. } => {
                let index: usize = pod.name[1..].parse().unwrap();
                let on: usize = node[1..].parse().unwrap();
                let mut chosen = self.waiting[&index].clone();
                self.judge(&chosen, on);
                chosen.on = Some(on);
                self.assumed.insert(index, chosen);
                add(&self.seen.bound, 1);
            }
            Outcome::Preempt {
                failure, victims, ..
            } => {
                for victim in victims {
                    self.gone(victim.name[1..].parse().unwrap());
                    add(&self.seen.preempted, 1);
                }
                let uid = failure.pod.uid.clone();
                self.apply(Input::PreemptionDone { uid, failed: false });
            }
            _ => {}
        }
    }

    /// Counts again what the decision should have respected.
    fn judge(&self, pod: &PlainPod, on: usize) {
        let about: Vec<&PlainPolicy> = self
            .policies
            .values()
            .filter(|it| it.is_about(pod))
            .collect();
        assert!(about.len() < 2, "two policies are about {pod:?}");
        let Some(policy) = about.first() else { return };
        let kind = self.nodes[&on];
        let inside = policy.units.iter().any(|unit| unit.has(kind));
        assert!(inside || policy.prefers, "{pod:?} is outside of all units");
        for unit in policy.units.iter().filter(|unit| unit.has(kind)) {
            let in_unit = |other: &&PlainPod| {
                let kind = other.on.and_then(|on| self.nodes.get(&on));
                kind.is_some_and(|kind| unit.has(*kind))
            };
            let in_group =
                |other: &&PlainPod| !policy.keyed || pod.hash.is_none() || other.hash == pod.hash;
            let counts = |other: &&PlainPod| !(policy.ignores_terminating && other.terminating);
            let pods = self.placed.values().chain(self.assumed.values());
            let pods = pods.filter(|other| policy.is_about(other));
            let pods = pods.filter(in_unit).filter(in_group).filter(counts).count();
            if let Some(max_count) = unit.max_count {
                assert!(
                    pods < max_count as usize,
                    "{pod:?} is one more than {max_count} in {unit:?}"
                );
                add(
                    &self.seen.filled,
                    usize::from(pods + 1 == max_count as usize),
                );
            }
        }
    }
}

#[test]
fn no_decision_takes_a_unit_past_its_max_count() {
    let seen = Seen::default();
    let mut runner = TestRunner::new(Config::with_cases(400));
    let histories = prop::collection::vec(step(), 20..160);
    let checked = runner.run(&histories, |steps| {
        let mut run = Run::new(&seen);
        steps.iter().for_each(|step| run.take(step));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    // The histories reach what they are about.
    for (what, count, least) in [
        ("pods bound", &seen.bound, 1_000),
        ("units filled to their cap", &seen.filled, 100),
        ("pods preempted", &seen.preempted, 10),
        ("bindings refused", &seen.refused, 50),
    ] {
        assert!(count.get() >= least, "{what}: {}", count.get());
    }
}

#[test]
fn a_small_unit_is_found_among_five_thousand_nodes() {
    let now = Timestamp::from_secs(1_000);
    let mut scheduler = scheduler();
    let mut apply = |input| scheduler.apply(input, now).unwrap();
    for index in 0..5_000 {
        let (kind, cpu) = match index % 100 {
            99 => ("reserved", "cpu=1"),
            _ => ("spot", "cpu=64"),
        };
        let built = node(&node_name(index)).allocatable(cpu).label("kind", kind);
        apply(Input::Object(Update::from(built.build())));
    }
    let units = policy("p").unit("spot", 0, None, "kind=spot");
    let units = units.unit("reserved", 1, Some(2), "kind=reserved");
    apply(Input::Object(units.into()));
    for index in 0..3 {
        let built = pod(&text("p", index)).container("cpu=1");
        apply(Input::Pod(built.build()));
    }
    let mut chosen = Vec::new();
    while let Some(outcome) = scheduler.schedule_next(now) {
        let Outcome::Bind { node, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let index: usize = node[1..].parse().unwrap();
        chosen.push(index % 100 == 99);
    }
    assert_eq!(chosen, [true, true, false]);
}
