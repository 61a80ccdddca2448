//! The path of pods through the whole scheduler, step by step; the invariants are checked after each.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::cluster::kinds::{Kind, Object, Update};
use crate::model::{NodeSpec, PreemptionPolicy};
use crate::scheduling::extender::Verb;
use crate::scheduling::framework::{
    Catalog, Permit, Plan, Plugin, Point, Points, Preparation, Rejection, Step as Work,
};
use crate::scheduling::plugins;
use crate::scheduling::profile::Enabled;
use crate::testing::{NodeBuilder, PodBuilder, node, pod};

mod events;
mod explain;
mod extenders;
mod histories;
mod hooks;
mod known_rejections;
mod priority;
mod scores;
mod zones;

/// Orders by priority and time, and binds.
struct Path;

impl Plugin for Path {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}
    fn goes_before(&self, a: (&Pod, Timestamp), b: (&Pod, Timestamp)) -> bool {
        (b.0.priority, a.1) < (a.0.priority, b.1)
    }
}

/// Records its calls; labels of pods control how it behaves.
#[derive(Default)]
struct Reserver {
    name: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Reserver {
    fn wants(&self, pod: &Pod, what: &str) -> bool {
        pod.labels().get(what) == Some(self.name)
    }
}

impl Plugin for Reserver {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}
    fn reserve(&self, pod: &Pod, _: &NodeSpec, _: &mut Catalog) -> Result<(), Rejection> {
        self.calls.lock().unwrap().push(format!("+{}", self.name));
        if self.wants(pod, "refuse") {
            return Err(Rejection::unschedulable("not here"));
        }
        Ok(())
    }
    fn unreserve(&self, _: &Pod, _: &NodeSpec, _: &mut Catalog) {
        self.calls.lock().unwrap().push(format!("-{}", self.name));
    }
    fn permit(&self, pod: &Pod, _: &NodeSpec, _: &Catalog) -> Result<Permit, Rejection> {
        if self.wants(pod, "hold") {
            return Ok(Permit::Wait(Duration::from_secs(30)));
        }
        Ok(Permit::Go)
    }
    fn pre_bind(
        &self,
        pod: &Pod,
        _: &NodeSpec,
        _: &Catalog,
    ) -> Result<Option<Preparation>, Rejection> {
        let preparation = || Preparation {
            steps: vec![Work::AwaitClaim {
                namespace: "default".into(),
                claim: "c".into(),
            }],
            within: Duration::from_secs(600),
        };
        Ok(self.wants(pod, "prepare").then(preparation))
    }
}

fn enabled(name: &'static str, points: &[Point], plugin: impl Plugin + 'static) -> Enabled {
    Enabled {
        name,
        points: Points::of(points),
        plugin: Arc::new(plugin),
        weight: 1,
    }
}

fn profile(name: &str, calls: &Arc<Mutex<Vec<String>>>) -> Profile {
    let native = |name: &str| Enabled::new(plugins::find(name).unwrap(), 1).unwrap();
    let reserver = |name| {
        let points = [Point::Reserve, Point::Permit, Point::PreBind];
        let calls = calls.clone();
        enabled(name, &points, Reserver { name, calls })
    };
    let plugins = vec![
        enabled("Path", &[Point::QueueSort, Point::Bind], Path),
        native("TaintToleration"),
        native("NodeResourcesFit"),
        native("DefaultPreemption"),
        reserver("A"),
        reserver("B"),
    ];
    Profile::new(name, plugins)
}

struct Bench {
    scheduler: Scheduler,
    now: Timestamp,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let calls = Arc::default();
        let profiles = vec![
            profile("default-scheduler", &calls),
            profile("other", &calls),
        ];
        Self {
            calls,
            ..Self::of(profiles, settings)
        }
    }

    fn of(profiles: Vec<Profile>, settings: Settings) -> Self {
        let settings = Settings {
            checks_itself: true,
            ..settings
        };
        Self {
            scheduler: Scheduler::new(profiles, settings).unwrap(),
            now: Timestamp::from_secs(1_000),
            calls: Arc::default(),
        }
    }

    /// With nodes of four cores.
    fn nodes(mut self, names: &[&str]) -> Self {
        for name in names {
            self.node(node(name).allocatable("cpu=4 memory=16Gi"));
        }
        self
    }

    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.now).unwrap();
        self.scheduler.check().unwrap();
    }

    fn node(&mut self, node: NodeBuilder) {
        self.apply(Input::Object(Update::from(node.build())));
    }

    fn pod(&mut self, pod: &PodBuilder) {
        self.apply(Input::Pod(pod.build()));
    }

    fn gone(&mut self, uid: &str) {
        self.apply(Input::PodGone(uid.into()));
    }

    fn next(&mut self) -> Option<Outcome> {
        let outcome = self.scheduler.schedule_next(self.now);
        self.scheduler.check().unwrap();
        outcome
    }

    /// The next instruction in short.
    fn step(&mut self) -> String {
        self.next()
            .map_or_else(|| "idle".into(), |outcome| short(&outcome))
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    fn bound(&mut self, uid: &str, result: Result<(), &str>) {
        let result = result.map_err(str::to_owned);
        let uid = uid.into();
        self.apply(Input::Bound { uid, result });
    }
}

fn short(outcome: &Outcome) -> String {
    let names = |pods: &[Arc<Pod>]| {
        let names: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
        names.join(" ")
    };
    match outcome {
        Outcome::Bind { pod, node, .. } => format!("bind {} {node}", pod.name),
        Outcome::Prepare { pod, node, work } => {
            let plugins: Vec<&str> = work.iter().map(|(plugin, _)| *plugin).collect();
            format!("prepare {} {node} {}", pod.name, plugins.join(" "))
        }
        Outcome::Wait { pod, node, plugins } => {
            let plugins: Vec<&str> = plugins.iter().map(|(plugin, _)| *plugin).collect();
            format!("wait {} {node} {}", pod.name, plugins.join(" "))
        }
        Outcome::Park(failure) => format!(
            "park {} {}: {}",
            failure.pod.name,
            failure.reason.text(),
            failure.message
        ),
        Outcome::Preempt {
            failure,
            node,
            victims,
            displaced,
        } => format!(
            "preempt {} {node}: {} / {}",
            failure.pod.name,
            names(victims),
            names(displaced)
        ),
        Outcome::Skip { message, .. } => message.clone(),
        Outcome::Warn { pod, message } => format!("warn {}: {message}", pod.name),
        Outcome::Ask { pod, questions } => {
            let verbs: Vec<String> = questions
                .iter()
                .map(|question| match &question.verb {
                    Verb::Filter { nodes } => format!("filter {}", nodes.join(" ")),
                    Verb::Prioritize { nodes } => format!("prioritize {}", nodes.join(" ")),
                    Verb::Preempt { nodes } => {
                        let nodes: Vec<&str> = nodes.iter().map(|v| &*v.node).collect();
                        format!("preempt {}", nodes.join(" "))
                    }
                })
                .collect();
            format!("ask {}: {}", pod.name, verbs.join(", "))
        }
    }
}

fn cores(name: &str, cores: &str) -> PodBuilder {
    pod(name).container(&format!("cpu={cores}"))
}

#[test]
fn a_decision_holds_its_room_at_once() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "3"));
    bench.pod(&cores("b", "3"));
    assert_eq!(bench.step(), "bind a n");
    assert_eq!(
        bench.step(),
        "park b Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod."
    );
    assert_eq!(bench.step(), "idle");
    bench.bound("a", Ok(()));
    bench.pod(&cores("a", "3").on("n"));
    assert_eq!(bench.step(), "idle", "b waits for something else");
    bench.gone("a");
    assert_eq!(bench.step(), "bind b n");
}

#[test]
fn a_failed_binding_gives_the_room_back_and_the_pod_waits() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "3"));
    assert_eq!(bench.step(), "bind a n");
    bench.bound("a", Err("conflict"));
    assert_eq!(
        bench.step(),
        "park a SchedulerError: running Bind plugin \"Path\": conflict"
    );
    assert_eq!(bench.scheduler.cluster().placed_count(), 0);
    assert_eq!(*bench.calls.lock().unwrap(), ["+A", "+B", "-B", "-A"]);
    assert_eq!(bench.step(), "idle", "what broke must wait");
    let until = bench.scheduler.idle_until(bench.now).unwrap();
    assert_eq!(until, bench.now.plus(Duration::from_secs(2)));
    bench.now = until;
    assert_eq!(bench.step(), "bind a n");
    bench.bound("unknown", Err("late"));
    assert_eq!(bench.step(), "idle");
}

#[test]
fn a_refused_reservation_is_undone_in_reverse_for_everybody() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "1").label("refuse", "A"));
    assert_eq!(
        bench.step(),
        "park a Unschedulable: 0/1 nodes are available: 1 not here."
    );
    assert_eq!(*bench.calls.lock().unwrap(), ["+A", "-B", "-A"]);
    assert_eq!(bench.scheduler.cluster().placed_count(), 0);
    assert_eq!(bench.scheduler.sizes().unschedulable, 1);
}

#[test]
fn several_schedulers_choose_among_the_best_nodes() {
    let nodes: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let nodes: Vec<&str> = nodes.iter().map(|it| &**it).collect();
    let choices = |seed: u64| -> Vec<String> {
        let cursor = Cursor::random(std::num::NonZero::new(4).unwrap(), seed);
        let settings = Settings {
            cursor,
            ..Settings::default()
        };
        let mut bench = Bench::with(settings).nodes(&nodes);
        let mut decide = |number: usize| {
            bench.pod(&pod(&format!("p{number}")));
            bench
                .step()
                .rsplit(' ')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        (0..30).map(&mut decide).collect()
    };
    assert_eq!(choices(1), choices(1));
    assert_ne!(choices(1), choices(2));
    // Nodes without pods are equal, so the best four are the next four. Five decisions do not reach a node with a pod.
    let mut from = 0;
    for (before, chosen) in choices(7).iter().take(5).enumerate() {
        let at: usize = chosen[1..].parse().unwrap();
        assert!(
            (at + 20 - from) % 20 < 4,
            "decision {before}: {chosen}, from {from}"
        );
        from = (at + 1) % 20;
    }
}

#[test]
fn ties_move_on_with_decisions_that_hold() {
    let mut bench = Bench::new().nodes(&["x", "y", "z"]);
    let before = bench.scheduler.cursor();
    bench.pod(&pod("a").label("refuse", "B"));
    bench.step();
    assert_eq!(bench.scheduler.cursor(), before);
    for (name, want) in [
        ("b", "bind b x"),
        ("c", "bind c y"),
        ("d", "bind d z"),
        ("e", "bind e x"),
    ] {
        bench.pod(&pod(name));
        assert_eq!(bench.step(), want);
    }
}

#[test]
fn held_pods_go_on_when_everybody_allows_them() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "3").label("hold", "A").label("prepare", "B"));
    bench.pod(&cores("b", "3"));
    assert_eq!(bench.step(), "wait a n A");
    assert!(bench.step().starts_with("park b"), "the room is taken");
    let permit = |verdict| Input::Permit {
        uid: "a".into(),
        plugin: "A".into(),
        verdict,
    };
    bench.apply(permit(PermitVerdict::Allow));
    assert_eq!(bench.step(), "prepare a n B");
    bench.apply(permit(PermitVerdict::Reject("too late".into())));
    let prepared = |result| Input::Prepared {
        uid: "a".into(),
        result,
    };
    bench.apply(prepared(Ok(())));
    assert_eq!(bench.step(), "bind a n");
    bench.apply(prepared(Err(("B".into(), "late".into()))));
    assert_eq!(bench.step(), "idle");
}

#[test]
fn held_pods_are_rejected_by_word_or_by_time() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "3").label("hold", "B"));
    assert_eq!(bench.step(), "wait a n B");
    assert_eq!(
        bench.scheduler.idle_until(bench.now),
        Some(bench.now.plus(Duration::from_secs(30)))
    );
    bench.wait(30);
    assert_eq!(
        bench.step(),
        "park a Unschedulable: 0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin B."
    );
    bench.node(node("m").allocatable("cpu=1"));
    bench.wait(300);
    assert_eq!(bench.step(), "wait a n B");
    bench.apply(Input::Permit {
        uid: "a".into(),
        plugin: "B".into(),
        verdict: PermitVerdict::Reject("no".into()),
    });
    assert_eq!(
        bench.step(),
        "park a Unschedulable: 0/1 nodes are available: 1 no."
    );
}

#[test]
fn failed_preparations_come_back() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("a", "3").label("prepare", "A"));
    assert_eq!(bench.step(), "prepare a n A");
    bench.apply(Input::Prepared {
        uid: "a".into(),
        result: Err(("A".into(), "timed out".into())),
    });
    assert_eq!(
        bench.step(),
        "park a SchedulerError: running PreBind plugin \"A\": timed out"
    );
}

#[test]
fn pods_that_go_meanwhile_leave_nothing_behind() {
    for (label, want) in [
        ("none", "bind a n"),
        ("hold", "wait a n A"),
        ("prepare", "prepare a n A"),
    ] {
        let mut bench = Bench::new().nodes(&["n"]);
        bench.pod(&cores("a", "3").label(label, "A"));
        assert_eq!(bench.step(), want);
        if label == "prepare" {
            bench.pod(&cores("a", "3").label(label, "A").terminating());
        } else {
            bench.gone("a");
        }
        assert_eq!(bench.scheduler.cluster().placed_count(), 0, "{label}");
        assert_eq!(bench.calls.lock().unwrap().len(), 4, "{label}");
        bench.bound("a", Err("not found"));
        assert_eq!(bench.step(), "idle", "{label}");
    }
}

#[test]
fn deleted_and_foreign_pods_are_not_scheduled() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&pod("a").terminating());
    bench.pod(&pod("b").with(|pod| pod.scheduler_name = "somebody".into()));
    bench.pod(&pod("c").with(|pod| pod.scheduler_name = "other".into()));
    assert_eq!(bench.step(), "skip schedule deleting pod: default/a");
    assert_eq!(bench.step(), "bind c n");
    assert_eq!(bench.step(), "idle");
    bench.pod(
        &cores("b", "3")
            .on("n")
            .with(|pod| pod.scheduler_name = "somebody".into()),
    );
    bench.pod(&cores("d", "3"));
    assert!(
        bench.step().starts_with("park d"),
        "foreign pods take room too"
    );
}

#[test]
fn without_nodes_pods_are_tried_again_soon() {
    let mut bench = Bench::new();
    bench.pod(&pod("a"));
    assert_eq!(
        bench.step(),
        "park a Unschedulable: no nodes available to schedule pods"
    );
    assert_eq!(bench.step(), "idle");
    bench.wait(2);
    assert!(bench.step().starts_with("park a"));
}

#[test]
fn room_is_made_and_waited_for() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("low", "1").on("n").priority(1));
    bench.pod(&cores("mid", "3").on("n").priority(2));
    bench.pod(&cores("high", "4").priority(9));
    let Some(Outcome::Preempt { failure, .. }) = bench.next() else {
        panic!("no preemption")
    };
    assert_eq!(failure.nomination, Nomination::Set("n".into()));
    assert_eq!(
        failure.message,
        "0/1 nodes are available: 1 Insufficient cpu."
    );
    bench.wait(5);
    bench.gone("mid");
    assert_eq!(bench.step(), "idle", "the last victim is still there");
    assert_eq!(bench.scheduler.sizes().gated, 1);
    // Somebody else cannot take the room that was made.
    bench.pod(&cores("thief", "3").priority(3));
    assert!(bench.step().starts_with("park thief"));
    bench.gone("low");
    assert_eq!(bench.step(), "bind high n");
}

#[test]
fn victims_that_are_not_bound_yet_go_without_a_word_to_the_api() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("held", "2").label("hold", "A"));
    bench.pod(&cores("ready", "2").label("prepare", "A"));
    bench.step();
    bench.step();
    bench.pod(&cores("high", "4").priority(9));
    assert_eq!(
        bench.step(),
        "park held SchedulerError: waiting on permit for pod: preempted"
    );
    assert_eq!(
        bench.step(),
        "park ready SchedulerError: preempted by DefaultPreemption"
    );
    assert_eq!(bench.step(), "preempt high n:  / ");
    bench.apply(Input::Object(Update::from(
        node("n").allocatable("cpu=4 memory=17Gi").build(),
    )));
    assert_eq!(bench.step(), "bind high n");
}

#[test]
fn pods_of_lower_priority_lose_their_nomination() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("victim", "4").on("n").priority(1));
    bench.pod(&cores("first", "4").priority(5));
    assert_eq!(bench.step(), "preempt first n: victim / ");
    bench.pod(&cores("second", "4").priority(9));
    assert_eq!(bench.step(), "preempt second n: victim / first");
    bench.wait(5);
    bench.gone("victim");
    assert_eq!(bench.step(), "bind second n");
}

#[test]
fn failed_evictions_let_the_pod_look_again() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("victim", "4").on("n").priority(1));
    bench.pod(&cores("high", "4").priority(9));
    assert_eq!(bench.step(), "preempt high n: victim / ");
    bench.apply(Input::PreemptionDone {
        uid: "high".into(),
        failed: true,
    });
    assert_eq!(bench.step(), "preempt high n: victim / ");
}

#[test]
fn nobody_is_preempted_for_a_pod_that_would_rather_wait() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("low", "4").on("n"));
    bench.pod(
        &cores("a", "4")
            .priority(9)
            .with(|pod| pod.preemption_policy = PreemptionPolicy::Never),
    );
    assert_eq!(
        bench.step(),
        "park a Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to \
         preemptionPolicy=Never."
    );
}

#[test]
fn a_nomination_that_the_api_does_not_know_yet_is_kept() {
    let mut bench = Bench::new().nodes(&["n", "m"]);
    bench.node(node("m").allocatable("cpu=4").taint("k", "v", "NoSchedule"));
    bench.pod(&cores("victim", "4").on("n").priority(1));
    bench.pod(&cores("high", "4").priority(9));
    assert_eq!(bench.step(), "preempt high n: victim / ");
    bench.pod(&cores("high", "4").priority(9).label("x", "y"));
    bench.pod(&cores("other", "4").priority(8));
    assert!(
        bench.step().starts_with("park other"),
        "no victims behind a nomination"
    );
    // The API shows the nomination, and then takes it away.
    let nominated = || {
        cores("high", "4")
            .priority(9)
            .with(|pod| pod.nominated_node = Some("n".into()))
    };
    bench.pod(&nominated());
    assert_eq!(bench.scheduler.cluster().nominations().count(), 1);
    bench.pod(&cores("high", "4").priority(9));
    assert_eq!(bench.scheduler.cluster().nominations().count(), 0);
}

#[test]
fn bad_news_is_refused_by_name_and_changes_nothing() {
    let mut bench = Bench::new().nodes(&["n"]);
    let nameless = pod("p").with(|pod| pod.uid = "".into()).build();
    let error = bench
        .scheduler
        .apply(Input::Pod(nameless), bench.now)
        .unwrap_err();
    assert_eq!(error.to_string(), "pod default/p has no uid");
    assert_eq!(bench.step(), "idle");
}

#[test]
fn profiles_must_agree_on_the_queue() {
    let calls = Arc::default();
    let good = || profile("a", &calls);
    let error = |profiles| {
        Scheduler::new(profiles, Settings::default())
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        error(vec![]),
        "no profile is configured: at least one is required"
    );
    assert_eq!(
        error(vec![good(), good()]),
        "two profiles have the name `a`: scheduler names must be unique"
    );
    let unsorted = profile("b", &calls).with_order(Point::QueueSort, Vec::new());
    assert_eq!(
        error(vec![good(), unsorted]),
        "profile `b` has queue sort plugins []: exactly one is required, the same in all profiles"
    );
}
