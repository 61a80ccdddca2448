//! Order, timing, gates, hints; and that no history of events loses a pod.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::cluster::Cluster;
use crate::model::Node;
use crate::scheduling::framework::{
    Actions, EventPattern, Kind, Plan, Plugin, Point, Points, Rejection,
};
use crate::scheduling::profile::{Enabled, Profile};
use crate::testing::{PodBuilder, node, pod};

/// Rejects in name only: the tests say who rejected. It wants to hear of some events, and of those helps by a rule.
struct Fake {
    events: Vec<EventPattern>,
    helps: fn(&Pod, &Event) -> bool,
}

impl Plugin for Fake {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}
    fn events(&self) -> Vec<EventPattern> {
        self.events.clone()
    }
    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        (self.helps)(pod, event)
    }
    fn pre_enqueue(&self, pod: &Pod, _: &Catalog) -> Result<(), Rejection> {
        if pod.scheduling_gates.is_empty() {
            Ok(())
        } else {
            Err(Rejection::unresolvable("gated"))
        }
    }
    fn goes_before(&self, a: (&Pod, Timestamp), b: (&Pod, Timestamp)) -> bool {
        (b.0.priority, a.1) < (a.0.priority, b.1)
    }
}

fn fake(
    name: &'static str,
    points: &[Point],
    events: &[(Kind, Actions)],
    helps: fn(&Pod, &Event) -> bool,
) -> Enabled {
    let events = events
        .iter()
        .map(|(resource, actions)| EventPattern::new(*resource, *actions))
        .collect();
    Enabled {
        name,
        points: Points::of(points),
        plugin: Arc::new(Fake { events, helps }),
        weight: 1,
    }
}

fn updates_itself(pod: &Pod, event: &Event) -> bool {
    let new = event
        .changed
        .pod()
        .and_then(|(change, _)| change.new.clone());
    new.is_some_and(|new| new.uid == pod.uid)
}

fn profiles() -> Profiles {
    let plugins = vec![
        fake("Sort", &[Point::QueueSort, Point::Bind], &[], |_, _| false),
        fake(
            "Gates",
            &[Point::PreEnqueue],
            &[(Kind::Pod, Actions::POD_GATES_ELIMINATED)],
            updates_itself,
        ),
        fake(
            "Fit",
            &[Point::Filter],
            &[
                (Kind::Pod, Actions::DELETE),
                (Kind::Node, Actions::ADD.and(Actions::NODE_ALLOCATABLE)),
            ],
            |pod, event| match &event.changed {
                Changed::Node(change) => change.new.as_ref().is_some_and(|n| {
                    n.allocatable.get(&crate::model::Resource::Cpu)
                        >= pod.requests.wanted.get(&crate::model::Resource::Cpu)
                }),
                _ => true,
            },
        ),
        fake(
            "Labels",
            &[Point::Filter],
            &[(Kind::Node, Actions::NODE_LABEL)],
            |_, _| true,
        ),
    ];
    Profiles::new(vec![Profile::new("default-scheduler", plugins)]).unwrap()
}

struct Bench {
    queue: Queue,
    profiles: Profiles,
    cluster: Cluster,
    now: Timestamp,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::new(Timing::default()),
            profiles: profiles(),
            cluster: Cluster::new(),
            now: Timestamp::from_secs(1_000),
        }
    }

    fn run<T>(&mut self, call: impl FnOnce(&mut Queue, World) -> T) -> T {
        let world = World {
            profiles: &self.profiles,
            catalog: self.cluster.catalog(),
            now: self.now,
        };
        let result = call(&mut self.queue, world);
        self.queue.check().unwrap();
        result
    }

    fn set(&mut self, pod: &PodBuilder) {
        let pod = pod.build();
        self.run(|queue, world| queue.set(pod, 0, world));
    }

    fn pop(&mut self) -> Option<String> {
        self.run(|queue, world| queue.pop(world).map(|ticket| ticket.pod.uid.to_string()))
    }

    fn reject(&mut self, uid: &str, plugins: &[&'static str]) {
        let rejectors = Rejectors {
            plugins: plugins.to_vec(),
            ..Rejectors::default()
        };
        self.run(|queue, world| queue.give_back(uid, rejectors, world));
    }

    fn notify(&mut self, actions: Actions, changed: Changed) {
        let event = Event { actions, changed };
        self.run(|queue, world| queue.notify(&event, &Audience::default(), world));
    }

    fn node_changes(&mut self, actions: Actions, cpu: &str) {
        let new: Arc<Node> = Arc::new(node("n").allocatable(&format!("cpu={cpu}")).build());
        let change = Change {
            old: None,
            new: Some(new),
        };
        self.notify(actions, Changed::Node(change));
    }

    fn pod_goes(&mut self) {
        let change = Change {
            old: Some(pod("gone").on("n").build()),
            new: None,
        };
        self.notify(Actions::DELETE, Changed::AssignedPod(change));
    }

    fn wait(&mut self, seconds: f64) {
        self.now = self.now.plus(Duration::from_secs_f64(seconds));
    }

    fn sizes(&self) -> (usize, usize, usize, usize) {
        let sizes = self.queue.sizes();
        (
            sizes.active,
            sizes.backoff,
            sizes.unschedulable,
            sizes.gated,
        )
    }
}

#[test]
fn pods_are_popped_by_priority_then_by_time() {
    let mut bench = Bench::new();
    for (name, priority) in [("late", 5), ("low", 1), ("high", 9)] {
        bench.set(&pod(name).priority(priority));
        bench.wait(0.001);
    }
    bench.now = Timestamp::from_secs(999);
    bench.set(&pod("early").priority(5));
    let popped: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
    assert_eq!(popped, ["high", "early", "late", "low"]);
}

#[test]
fn a_newcomer_goes_after_a_few_retries_of_its_priority() {
    let mut bench = Bench::new();
    for index in 0..10 {
        bench.set(&pod(&format!("old{index}")));
    }
    for index in 0..10 {
        assert_eq!(bench.pop(), Some(format!("old{index}")));
        bench.reject(&format!("old{index}"), &["Labels"]);
    }
    bench.set(&pod("urgent").priority(1));
    bench.pop();
    bench.reject("urgent", &["Labels"]);
    bench.wait(3.0);
    bench.node_changes(Actions::NODE_LABEL, "1");
    // All were rejected before these came.
    bench.set(&pod("new0"));
    bench.set(&pod("new1"));
    let popped: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
    let want = "urgent old0 old1 old2 new0 old3 old4 old5 old6 new1 old7 old8 old9";
    assert_eq!(
        popped.join(" "),
        want,
        "a higher priority always goes first"
    );
}

#[test]
fn a_changed_pod_finds_its_new_turn_and_a_repeated_one_keeps_its_own() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    bench.set(&pod("b"));
    bench.set(&pod("a"));
    bench.set(&pod("b").priority(3));
    let popped: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
    assert_eq!(popped, ["b", "a"]);
}

#[test]
fn a_rejected_pod_waits_for_what_can_help_it() {
    let mut bench = Bench::new();
    bench.set(&pod("a").container("cpu=2"));
    bench.pop();
    bench.reject("a", &["Fit"]);
    assert_eq!(bench.sizes(), (0, 0, 1, 0));
    bench.node_changes(Actions::NODE_LABEL, "4");
    assert_eq!(bench.sizes(), (0, 0, 1, 0), "Fit does not listen to labels");
    bench.node_changes(Actions::ADD, "1");
    assert_eq!(
        bench.sizes(),
        (0, 0, 1, 0),
        "the hint says that it is too small"
    );
    bench.node_changes(Actions::ADD, "2");
    assert_eq!(bench.sizes(), (0, 1, 0, 0), "it still serves its penalty");
    bench.wait(2.0);
    assert_eq!(bench.pop().as_deref(), Some("a"));
}

#[test]
fn who_waits_for_nodes_hears_of_taints() {
    let mut bench = Bench::new();
    bench.set(&pod("a").container("cpu=9"));
    bench.pop();
    bench.reject("a", &["Fit"]);
    bench.wait(5.0);
    bench.node_changes(Actions::NODE_TAINT, "1");
    assert_eq!(bench.sizes(), (1, 0, 0, 0), "without asking for a hint");
}

#[test]
fn with_nothing_else_to_do_a_penalty_is_not_waited_for() {
    let mut bench = Bench::new();
    for name in ["rejected", "broken"] {
        bench.set(&pod(name));
        bench.pop();
    }
    bench.reject("broken", &[]);
    bench.reject("rejected", &["Fit"]);
    bench.pod_goes();
    assert_eq!(bench.sizes(), (0, 2, 0, 0));
    assert_eq!(bench.pop().as_deref(), Some("rejected"));
    assert_eq!(bench.pop(), None, "what broke must wait");
    let due = bench.queue.due(bench.now).unwrap();
    assert_eq!(due, bench.now.plus(Duration::from_secs(2)));
    bench.now = due;
    assert_eq!(bench.pop().as_deref(), Some("broken"));
}

#[test]
fn after_a_conflict_a_pod_waits_less_than_a_second() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    let conflict = |bench: &mut Bench| {
        assert_eq!(bench.pop().as_deref(), Some("a"));
        let rejectors = Rejectors {
            is_conflict: true,
            ..Rejectors::default()
        };
        bench.run(|queue, world| queue.give_back("a", rejectors, world));
        let begun = bench.now;
        let due = bench.queue.due(begun).unwrap();
        assert_eq!(bench.pop(), None);
        bench.now = due;
        (due.0 - begun.0) / 1_000_000
    };
    let waits = [100..=200, 200..=400, 400..=800];
    for wait in &waits {
        let found = conflict(&mut bench);
        assert!(wait.contains(&found), "{found} ms");
    }
    // After another failure it begins anew.
    assert_eq!(bench.pop().as_deref(), Some("a"));
    bench.reject("a", &[]);
    bench.now = bench.queue.due(bench.now).unwrap();
    let found = conflict(&mut bench);
    assert!(waits[0].contains(&found), "{found} ms");
}

#[test]
fn pods_are_found_by_name_and_listed_in_their_order() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c", "d", "e"] {
        bench.set(&pod(name));
        bench.wait(1.0);
    }
    let names = |queue: &Queue| -> Vec<String> {
        let tickets = queue.tickets().into_iter();
        tickets.map(|it| it.pod.name.to_string()).collect()
    };
    assert_eq!(names(&bench.queue), ["a", "b", "c", "d", "e"]);
    let oldest = |queue: &Queue| queue.oldest().map(|it| it.pod.name.to_string());
    assert_eq!(oldest(&bench.queue).as_deref(), Some("a"));
    assert!(bench.queue.find("default", "c").is_some());
    assert!(bench.queue.find("elsewhere", "c").is_none());

    let written = |label: &str| pod("c").label("kind", label).build();
    bench.queue.rewrite(written("new"));
    let found = bench.queue.find("default", "c").unwrap();
    assert_eq!(found.pod, written("new"));
    let renamed = pod("other").with(|pod| pod.uid = "c".into());
    bench.queue.rewrite(renamed.build());
    assert_eq!(&*bench.queue.get("c").unwrap().pod.name, "c");
}

#[test]
fn a_pod_is_in_one_place_and_counts_what_happened_to_it() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    let now = bench.now;
    let place = |bench: &Bench| bench.queue.whereabouts("a").unwrap();
    let counts = |bench: &Bench| {
        let ticket = bench.queue.get("a").unwrap();
        (ticket.attempts, ticket.rejections, ticket.errors)
    };
    assert_eq!(place(&bench), Whereabouts::Active);
    assert_eq!(bench.queue.due(now), Some(now));
    assert_eq!(bench.pop().as_deref(), Some("a"));
    assert_eq!(place(&bench), Whereabouts::InFlight);
    assert_eq!(counts(&bench), (1, 0, 0));

    bench.reject("a", &[]);
    assert_eq!(counts(&bench), (1, 0, 1));
    let until = bench.queue.due(now).unwrap();
    assert_eq!(place(&bench), Whereabouts::Backoff { until });
    bench.now = until;
    assert_eq!(bench.pop().as_deref(), Some("a"));
    bench.reject("a", &["Fit"]);
    assert_eq!(counts(&bench), (2, 1, 0), "a rejection ends the errors");
    let latest_retry = bench.queue.latest_retry("a").unwrap();
    assert_eq!(place(&bench), Whereabouts::Parked { latest_retry });
    assert_eq!(bench.queue.due(until), Some(latest_retry));

    // A change of the pod is no new pod.
    bench.set(&pod("a").label("kind", "new"));
    assert_eq!(counts(&bench), (2, 1, 0));
    // The earlier of two times counts.
    bench.set(&pod("b"));
    assert_eq!(bench.pop().as_deref(), Some("b"));
    bench.reject("b", &[]);
    let due = bench.queue.due(until).unwrap();
    assert!(until < due && due < latest_retry);
}

#[test]
fn arrivals_are_counted_by_place_and_cause() {
    let mut bench = Bench::new();
    let came = |step: &str, bench: &mut Bench, want: &[(SubQueue, &str)]| {
        let arrivals = bench.queue.take_arrivals().into_iter();
        let found: Vec<_> = arrivals
            .map(|(place, cause, times)| (place, cause.to_string(), times))
            .collect();
        let want = want.iter();
        let want: Vec<_> = want
            .map(|(place, cause)| (*place, (*cause).to_owned(), 1))
            .collect();
        assert_eq!(found, want, "{step}");
    };
    bench.set(&pod("a").label("kind", "old"));
    came(
        "new",
        &mut bench,
        &[(SubQueue::Active, "UnschedulablePodAdd")],
    );
    bench.pop();
    bench.reject("a", &["Fit"]);
    let failure = "ScheduleAttemptFailure";
    came(
        "rejected",
        &mut bench,
        &[(SubQueue::Unschedulable, failure)],
    );
    bench.set(&pod("a").label("kind", "new"));
    came("a change that does not help", &mut bench, &[]);
    bench.run(|queue, world| queue.activate("a", world));
    came("forced", &mut bench, &[(SubQueue::Active, "ForceActivate")]);
    bench.pop();
    bench.reject("a", &[]);
    came("failed", &mut bench, &[(SubQueue::Backoff, failure)]);
    bench.now = bench.queue.due(bench.now).unwrap();
    assert_eq!(bench.pop().as_deref(), Some("a"));
    came(
        "after it",
        &mut bench,
        &[(SubQueue::Active, "BackoffComplete")],
    );
}

#[test]
fn a_pod_that_comes_under_another_name_leaves_none_behind() {
    let mut bench = Bench::new();
    for (uid, name) in [("u", "a"), ("u", "b"), ("v", "a")] {
        bench.set(&pod(name).with(|pod| pod.uid = uid.into()));
    }
    let mut popped: Vec<String> = std::iter::from_fn(|| bench.pop()).collect();
    popped.sort();
    assert_eq!(popped, ["u", "v"]);
}

#[test]
fn events_during_the_attempt_are_not_missed() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    bench.pod_goes();
    bench.pop();
    bench.node_changes(Actions::NODE_LABEL, "1");
    bench.reject("a", &["Fit"]);
    assert_eq!(
        bench.sizes(),
        (0, 0, 1, 0),
        "nothing since the pop helps Fit"
    );
    bench.wait(60.0);
    bench.pod_goes();
    bench.pop();
    bench.pod_goes();
    bench.reject("a", &["Fit"]);
    assert_eq!(bench.sizes(), (0, 1, 0, 0));
}

#[test]
fn gated_pods_wait_for_their_gate() {
    let gated = || pod("a").with(|pod| pod.scheduling_gates = vec!["g".into()]);
    let mut bench = Bench::new();
    bench.set(&gated());
    assert_eq!(bench.sizes(), (0, 0, 0, 1));
    bench.pod_goes();
    assert_eq!(bench.sizes(), (0, 0, 0, 1));
    bench.set(&gated().label("x", "y"));
    assert_eq!(bench.sizes(), (0, 0, 0, 1));
    bench.set(&pod("a").label("x", "y"));
    assert_eq!(bench.sizes(), (1, 0, 0, 0), "never tried, so no penalty");
}

#[test]
fn parked_pods_are_tried_after_five_minutes_and_gated_ones_asked() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    bench.pop();
    bench.reject("a", &["Labels"]);
    bench.set(&pod("b").with(|pod| pod.scheduling_gates = vec!["g".into()]));
    // More than five minutes must be over at a flush, and there is one every half minute since the queue began.
    let latest = bench.now.plus(Duration::from_secs(330));
    assert_eq!(bench.queue.latest_retry("a"), Some(latest));
    for seconds in [300.0, 29.9] {
        bench.wait(seconds);
        assert_eq!(bench.pop(), None);
        assert_eq!(bench.queue.due(bench.now), Some(latest));
    }
    bench.now = latest;
    assert_eq!(bench.pop().as_deref(), Some("a"));
    assert_eq!(bench.sizes(), (0, 0, 0, 1));
    assert!(
        bench.queue.latest_retry("b") > Some(latest),
        "and again in five"
    );
}

#[test]
fn flushes_are_counted_from_the_beginning_of_the_queue() {
    for (wait, retried) in [(0.5, 330), (29.0, 330), (30.0, 360), (31.0, 360)] {
        let mut bench = Bench::new();
        bench.set(&pod("a"));
        let begun = bench.now;
        bench.wait(wait);
        bench.pop();
        bench.reject("a", &["Labels"]);
        let retried = begun.plus(Duration::from_secs(retried));
        assert_eq!(bench.queue.latest_retry("a"), Some(retried), "{wait}");
        bench.now = Timestamp(retried.0 - 1);
        assert_eq!(bench.pop(), None, "{wait}");
        bench.now = retried;
        assert_eq!(bench.pop().as_deref(), Some("a"), "{wait}");
    }
}

#[test]
fn forced_pods_skip_their_penalty_but_not_their_gates() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    bench.pop();
    bench.reject("a", &[]);
    bench.run(|queue, world| queue.activate("a", world));
    assert_eq!(bench.sizes(), (1, 0, 0, 0));
    bench.pop();
    bench.run(|queue, world| queue.activate("a", world));
    bench.reject("a", &["Fit"]);
    assert_eq!(bench.sizes(), (0, 1, 0, 0), "asked for while in flight");
}

#[test]
fn a_new_pod_under_a_known_name_replaces_the_old_one() {
    let mut bench = Bench::new();
    bench.set(&pod("a"));
    bench.set(&pod("a").with(|pod| pod.uid = "a2".into()));
    assert_eq!(bench.pop().as_deref(), Some("a2"));
    assert_eq!(bench.pop(), None);
}

#[test]
fn many_events_in_flight_are_not_kept_but_the_pod_is_tried_again() {
    let mut bench = Bench::new();
    bench.set(&pod("a").container("cpu=2"));
    bench.pop();
    for _ in 0..10_001 {
        let change = Change {
            old: None,
            new: Some(Arc::new(node("n").build())),
        };
        let event = Event {
            actions: Actions::ADD,
            changed: Changed::Node(change),
        };
        let world = World {
            profiles: &bench.profiles,
            catalog: bench.cluster.catalog(),
            now: bench.now,
        };
        bench.queue.notify(&event, &Audience::default(), world);
    }
    bench.reject("a", &["Fit"]);
    assert_eq!(bench.sizes(), (0, 1, 0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Set { pod: usize, shape: usize },
    Remove(usize),
    Pop,
    GiveBack { by: usize },
    Take,
    TakeBack,
    PodGoes,
    Node { action: usize, cpu: usize },
    Activate(usize),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..6_usize;
    prop_oneof![
        4 => (which.clone(), 0..5_usize).prop_map(|(pod, shape)| Step::Set { pod, shape }),
        1 => which.clone().prop_map(Step::Remove),
        4 => Just(Step::Pop),
        4 => (0..4_usize).prop_map(|by| Step::GiveBack { by }),
        1 => Just(Step::Take),
        1 => Just(Step::TakeBack),
        1 => Just(Step::PodGoes),
        2 => (0..4_usize, 0..4_usize).prop_map(|(action, cpu)| Step::Node { action, cpu }),
        1 => which.prop_map(Step::Activate),
        2 => (0..400_000_u32).prop_map(Step::Wait),
    ]
}

fn shaped(index: usize, shape: usize) -> PodBuilder {
    let pod = pod(&format!("p{}", index % 5)).with(|pod| {
        // The last one shares its name with another.
        pod.uid = format!("u{index}").into();
    });
    match shape {
        0 => pod,
        1 => pod.priority(4),
        2 => pod.with(|pod| pod.scheduling_gates = vec!["g".into()]),
        3 => pod.label("x", "y"),
        _ => pod.container("cpu=3"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whoever was set and neither removed nor replaced is in the queue, in one place (checked after every step), and in
    /// the end everybody without a gate is popped.
    #[test]
    fn nobody_is_lost(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new();
        let mut known: Vec<(usize, usize)> = Vec::new();
        let mut flying: Vec<String> = Vec::new();
        let mut taken: Vec<Ticket> = Vec::new();
        for step in steps {
            match step {
                Step::Set { pod, shape } => {
                    known.retain(|(other, _)| other % 5 != pod % 5);
                    known.push((pod, shape));
                    bench.set(&shaped(pod, shape));
                }
                Step::Remove(pod) => {
                    known.retain(|(other, _)| *other != pod);
                    bench.run(|queue, world| queue.remove(&format!("u{pod}"), world));
                }
                Step::Pop => flying.extend(bench.pop()),
                Step::GiveBack { by } => {
                    if let Some(uid) = flying.pop() {
                        let by: &[&str] = [&[][..], &["Fit"], &["Labels"], &["Fit", "Labels"]][by];
                        if bench.queue.in_flight.contains(&uid) {
                            bench.reject(&uid, by);
                        }
                    }
                }
                Step::Take => {
                    if let Some(uid) = flying.pop()
                        && bench.queue.in_flight.contains(&uid)
                    {
                        let ticket = bench.run(|queue, world| queue.take(&uid, world));
                        known.retain(|(pod, _)| format!("u{pod}") != uid);
                        taken.extend(ticket);
                    }
                }
                Step::TakeBack => {
                    if let Some(ticket) = taken.pop() {
                        let index: usize = ticket.pod.uid[1..].parse().unwrap();
                        let shape = usize::from(!ticket.pod.scheduling_gates.is_empty()) * 2;
                        if !known.iter().any(|(other, _)| other % 5 == index % 5) {
                            known.push((index, shape));
                        }
                        bench.run(|queue, world| queue.take_back(ticket, Rejectors::default(), world));
                    }
                }
                Step::PodGoes => bench.pod_goes(),
                Step::Node { action, cpu } => {
                    let actions = [Actions::ADD, Actions::NODE_LABEL, Actions::NODE_TAINT, Actions::DELETE][action];
                    bench.node_changes(actions, &cpu.to_string());
                }
                Step::Activate(pod) => bench.run(|queue, world| queue.activate(&format!("u{pod}"), world)),
                Step::Wait(millis) => bench.wait(f64::from(millis) / 1000.0),
            }
            for (pod, _) in &known {
                let uid = format!("u{pod}");
                prop_assert!(bench.queue.get(&uid).is_some(), "{uid} is lost");
            }
            prop_assert_eq!(bench.queue.entries.len(), known.len());
        }
        // Whatever is in flight fails once more; then everybody comes with the first flush after the longest time.
        for uid in flying {
            if bench.queue.in_flight.contains(&uid) {
                bench.reject(&uid, &["Labels"]);
            }
        }
        bench.wait(330.0);
        let mut popped: Vec<String> = std::iter::from_fn(|| bench.pop()).collect();
        bench.wait(12.0);
        popped.extend(std::iter::from_fn(|| bench.pop()));
        for (pod, shape) in known {
            // A gate that came after the pod was let in does not bring it back.
            let uid = format!("u{pod}");
            prop_assert!(popped.contains(&uid) || shape == 2, "{uid} did not come");
        }
    }
}
