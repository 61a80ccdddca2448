//! Random histories: no pod is lost, the scheduler overcommits no node, and the same history gives the same instructions.

use proptest::prelude::*;

use super::hooks::Watcher;
use super::*;
use crate::model::{Node, Resource};
use crate::scheduling::event_hooks::{EventContext, EventHook, EventHooks, HookAction, ObjectView};

#[derive(Debug, Clone)]
enum Event {
    Node { index: usize, cores: usize },
    NodeGone(usize),
    Pod { index: usize, shape: usize },
    PodGone(usize),
    Next,
    Bound { ok: bool },
    Permit { ok: bool },
    Prepared { ok: bool },
    PreemptionDone { index: usize, failed: bool },
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let (pod, node) = (0..8_usize, 0..3_usize);
    prop_oneof![
        2 => (node.clone(), 0..4_usize).prop_map(|(index, cores)| Event::Node { index, cores: cores * 2 }),
        1 => node.prop_map(Event::NodeGone),
        5 => (pod.clone(), 0..7_usize).prop_map(|(index, shape)| Event::Pod { index, shape }),
        2 => pod.clone().prop_map(Event::PodGone),
        8 => Just(Event::Next),
        3 => prop::bool::ANY.prop_map(|ok| Event::Bound { ok }),
        1 => prop::bool::ANY.prop_map(|ok| Event::Permit { ok }),
        1 => prop::bool::ANY.prop_map(|ok| Event::Prepared { ok }),
        1 => (pod, prop::bool::ANY).prop_map(|(index, failed)| Event::PreemptionDone { index, failed }),
        2 => (0..400_u64).prop_map(Event::Wait),
    ]
}

fn shaped(index: usize, shape: usize) -> PodBuilder {
    let pod = pod(&format!("p{index}"));
    match shape {
        0 => pod.container("cpu=1"),
        1 => pod.container("cpu=3").priority(5),
        2 => pod.container("cpu=4").priority(9),
        3 => pod.container("cpu=2").label("hold", "A"),
        4 => pod.container("cpu=2").label("prepare", "B"),
        5 => pod.container("cpu=1").label("refuse", "B"),
        _ => pod.container("cpu=2").on("n0"),
    }
}

/// Instructions that the driver has not carried out yet.
#[derive(Default)]
struct Driver {
    binds: Vec<(Arc<Pod>, Name)>,
    waits: Vec<Arc<Pod>>,
    work: Vec<Arc<Pod>>,
    log: Vec<String>,
}

impl Driver {
    fn take(&mut self, outcome: Outcome) {
        self.log.push(short(&outcome));
        match outcome {
            Outcome::Bind { pod, node, .. } => self.binds.push((pod, node)),
            Outcome::Wait { pod, .. } => self.waits.push(pod),
            Outcome::Prepare { pod, .. } => self.work.push(pod),
            _ => {}
        }
    }
}

/// Runs a history and returns the instructions. Inputs go through `told`; pods for which `elsewhere` is true are not
/// expected in the scheduler.
fn run(
    events: &[Event],
    mut bench: Bench,
    told: impl Fn(Input) -> Input,
    elsewhere: impl Fn(&str) -> bool,
) -> (Vec<String>, Bench) {
    let mut driver = Driver::default();
    // Pods of this scheduler that the API server does not show as bound.
    let mut waiting: Vec<usize> = Vec::new();
    for event in events {
        match event {
            Event::Node { index, cores } => {
                let node = node(&format!("n{index}")).allocatable(&format!("cpu={cores}"));
                bench.apply(told(Input::Object(Update::from(node.build()))));
            }
            Event::NodeGone(index) => {
                bench.apply(Input::Object(Update::Delete(
                    Kind::Node,
                    format!("n{index}").into(),
                )));
            }
            Event::Pod { index, shape } => {
                let pod = shaped(*index, *shape).build();
                let bound = bench
                    .scheduler
                    .cluster()
                    .placed(&pod.uid)
                    .is_some_and(|placed| !placed.assumed);
                waiting.retain(|known| known != index);
                if pod.node.is_none() && !bound {
                    waiting.push(*index);
                }
                let input = told(Input::Pod(pod));
                if matches!(input, Input::PodGone(_)) {
                    waiting.retain(|known| known != index);
                }
                bench.apply(input);
            }
            Event::PodGone(index) => {
                waiting.retain(|known| known != index);
                bench.gone(&format!("p{index}"));
            }
            Event::Next => {
                if let Some(outcome) = bench.next() {
                    driver.take(outcome);
                }
            }
            Event::Bound { ok } => {
                if let Some((pod, node)) = driver.binds.pop() {
                    bench.bound(&pod.uid, if *ok { Ok(()) } else { Err("refused") });
                    let holds = bench.scheduler.cluster().placed(&pod.uid);
                    let assumed = holds.is_some_and(|placed| placed.assumed && placed.node == node);
                    if *ok && assumed {
                        waiting.retain(|known| *pod.name != *format!("p{known}"));
                        let seen = Pod {
                            node: Some(node),
                            ..(*pod).clone()
                        };
                        bench.apply(told(Input::Pod(Arc::new(seen))));
                    }
                }
            }
            Event::Permit { ok } => {
                if let Some(pod) = driver.waits.pop() {
                    let verdict = match ok {
                        true => PermitVerdict::Allow,
                        false => PermitVerdict::Reject("no".into()),
                    };
                    bench.apply(Input::Permit {
                        uid: pod.uid.clone(),
                        plugin: "A".into(),
                        verdict,
                    });
                }
            }
            Event::Prepared { ok } => {
                if let Some(pod) = driver.work.pop() {
                    let result = ok.then_some(()).ok_or(("B".into(), "failed".into()));
                    bench.apply(Input::Prepared {
                        uid: pod.uid.clone(),
                        result,
                    });
                }
            }
            Event::PreemptionDone { index, failed } => bench.apply(Input::PreemptionDone {
                uid: format!("p{index}").into(),
                failed: *failed,
            }),
            Event::Wait(seconds) => bench.wait(*seconds),
        }
        for index in &waiting {
            let uid = format!("p{index}");
            let known = bench.scheduler.queue.get(&uid).is_some()
                || bench.scheduler.binding.contains_key(&*uid)
                || elsewhere(&uid);
            assert!(known, "{uid} is lost after {event:?}");
        }
    }
    (driver.log, bench)
}

fn as_it_is(input: Input) -> Input {
    input
}

fn nowhere(_: &str) -> bool {
    false
}

/// Hides some objects and changes others.
struct Censor;

impl Censor {
    fn show_pod(pod: &Arc<Pod>) -> ObjectView<Arc<Pod>> {
        let index = pod.name.as_bytes().last().copied().unwrap_or_default();
        let wants = pod.requests.wanted.get(&Resource::Cpu);
        match (wants, index % 3) {
            (1_000, 0) => ObjectView::Hide,
            (2_000, 1) if pod.node.is_some() => ObjectView::Hide,
            (3_000, _) => ObjectView::Replace(Arc::new(Pod {
                priority: 20,
                ..(**pod).clone()
            })),
            _ => ObjectView::Unchanged,
        }
    }

    fn show_node(node: &Node) -> ObjectView<Node> {
        match (&*node.spec.name, node.allocatable.get(&Resource::Cpu)) {
            ("n2", 6_000) => ObjectView::Hide,
            ("n1", cpu) => {
                let mut other = node.clone();
                other.allocatable.set(Resource::Cpu, cpu + 1_000);
                ObjectView::Replace(other)
            }
            _ => ObjectView::Unchanged,
        }
    }

    /// The input that gives a scheduler without hooks the same state.
    fn told(input: Input) -> Input {
        match input {
            Input::Pod(pod) => match Self::show_pod(&pod) {
                ObjectView::Unchanged => Input::Pod(pod),
                ObjectView::Replace(other) => Input::Pod(other),
                ObjectView::Hide => Input::PodGone(pod.uid.clone()),
            },
            Input::Object(Update::Set(Object::Node(node))) => {
                Input::Object(match Self::show_node(&node) {
                    ObjectView::Unchanged => Update::from(node),
                    ObjectView::Replace(other) => Update::from(other),
                    ObjectView::Hide => Update::Delete(Kind::Node, node.spec.name.clone().into()),
                })
            }
            other => other,
        }
    }
}

impl EventHook for Censor {
    fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
        Self::show_pod(pod)
    }
    fn node(&self, node: &Node, _: &EventContext) -> ObjectView<Node> {
        Self::show_node(node)
    }
}

/// Hides some pods until a node is added; tries others, and grows nodes, at any time.
#[derive(Default)]
struct Meddler(Mutex<Vec<Arc<Pod>>>);

impl EventHook for Meddler {
    fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
        let mut kept = self.0.lock().unwrap();
        kept.retain(|known| known.uid != pod.uid);
        if pod.requests.wanted.get(&Resource::Cpu) != 2_000 || pod.node.is_some() {
            return ObjectView::Unchanged;
        }
        kept.push(pod.clone());
        ObjectView::Hide
    }

    fn after(&self, event: &Input, known: &EventContext) -> Vec<HookAction> {
        let tried = |all: Vec<&Ticket>| -> Vec<HookAction> {
            let uids = all.into_iter().map(|ticket| ticket.pod.uid.clone());
            uids.map(HookAction::Try).collect()
        };
        let mut kept = self.0.lock().unwrap();
        match event {
            Input::PodGone(uid) => {
                kept.retain(|pod| pod.uid != *uid);
                let nodes = known.cluster.nodes().slots().iter().flatten();
                let grown = nodes.map(|entry| {
                    let mut node = Node::clone(&entry.node);
                    let cpu = node.allocatable.get(&Resource::Cpu);
                    node.allocatable.set(Resource::Cpu, (cpu + 500).min(9_000));
                    HookAction::Node(node)
                });
                grown.chain([HookAction::Try("nobody".into())]).collect()
            }
            Input::Object(Update::Set(Object::Node(_))) => {
                let free = kept.drain(..).map(HookAction::Pod);
                free.chain(tried(known.waiting())).collect()
            }
            Input::Bound { .. } => tried(known.waiting()),
            // It stays hidden until the next event about it.
            Input::Object(Update::Delete(Kind::Node, _)) => vec![HookAction::HideNode("n0".into())],
            _ => Vec::new(),
        }
    }
}

fn with_events(hook: Arc<dyn EventHook>) -> Bench {
    Bench::with(Settings {
        event_hooks: EventHooks::new(vec![hook]),
        ..Settings::default()
    })
}

fn rows(bench: &Bench) -> Vec<(Name, Vec<i64>)> {
    let nodes = bench.scheduler.cluster().nodes();
    let entries = nodes.slots().iter().enumerate();
    entries
        .filter_map(|(slot, entry)| {
            Some((
                entry.as_ref()?.node.spec.name.clone(),
                nodes.row(slot).to_vec(),
            ))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_and_everything_repeats(events in prop::collection::vec(event(), 1..100)) {
        let play = |hooks| {
            let settings = Settings { hooks, ..Settings::default() };
            run(&events, Bench::with(settings), as_it_is, nowhere).0
        };
        // A probe changes nothing.
        let watched = Hooks::default().with_probe(Arc::new(Watcher::default()));
        prop_assert_eq!(play(Hooks::default()), play(watched));
    }

    /// A scheduler with event hooks behaves like one without that gets the events as the hooks show them.
    #[test]
    fn the_state_follows_from_what_hooks_show(events in prop::collection::vec(event(), 1..100)) {
        // Only the second run checks that no pod is lost: in the first one the hook hides pods.
        let (hooked, with) = run(&events, with_events(Arc::new(Censor)), as_it_is, |_| true);
        let (plain, without) = run(&events, Bench::new(), Censor::told, nowhere);
        prop_assert_eq!(hooked, plain);
        prop_assert_eq!(rows(&with), rows(&without));
    }

    #[test]
    fn hooks_that_meddle_lose_nothing_either(events in prop::collection::vec(event(), 1..100)) {
        let play = || {
            let hook = Arc::new(Meddler::default());
            let kept = |uid: &str| hook.0.lock().unwrap().iter().any(|pod| *pod.uid == *uid);
            run(&events, with_events(hook.clone()), as_it_is, kept).0
        };
        prop_assert_eq!(play(), play());
    }
}
