//! Event hooks: the scheduler knows what they show, and carries out their actions.

use super::*;
use crate::cluster::CustomNodeResource;
use crate::model::{Node, Reclaimed, Resource};
use crate::scheduling::event_hooks::{EventContext, EventHook, EventHooks, HookAction, ObjectView};

fn hooked(hooks: Vec<Arc<dyn EventHook>>) -> Bench {
    Bench::with(Settings {
        event_hooks: EventHooks::new(hooks),
        ..Settings::default()
    })
}

fn labelled(pod: &Arc<Pod>, key: &str) -> bool {
    pod.labels().get(key).is_some()
}

/// Halves every node, and hides test pods.
struct Half;

impl EventHook for Half {
    fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
        if labelled(pod, "test") {
            return ObjectView::Hide;
        }
        ObjectView::Unchanged
    }
    fn node(&self, node: &Node, _: &EventContext) -> ObjectView<Node> {
        let mut half = node.clone();
        let cpu = half.allocatable.get(&Resource::Cpu);
        half.allocatable.set(Resource::Cpu, cpu / 2);
        ObjectView::Replace(half)
    }
}

#[test]
fn what_is_shown_is_what_is_known() {
    let mut bench = hooked(vec![Arc::new(Half)]).nodes(&["n"]);
    bench.pod(&cores("test", "1").label("test", ""));
    assert_eq!(bench.step(), "idle", "it does not exist");
    bench.pod(&cores("big", "3"));
    assert!(bench.step().starts_with("park big"));
    bench.pod(&cores("small", "2"));
    assert_eq!(bench.step(), "bind small n");
    // The end of an object always reaches the scheduler.
    bench.apply(Input::Object(Update::Delete(Kind::Node, "n".into())));
    assert!(bench.scheduler.cluster().nodes().is_empty());
}

#[test]
fn what_is_hidden_later_is_gone() {
    let mut bench = hooked(vec![Arc::new(Half)]).nodes(&["n"]);
    let a = cores("a", "2");
    let hidden = a.clone().label("test", "");
    // While it waits, while it is under way, and once it is on its node.
    bench.pod(&a);
    bench.pod(&hidden);
    assert_eq!(bench.step(), "idle");
    bench.pod(&a);
    assert_eq!(bench.step(), "bind a n");
    bench.pod(&hidden);
    bench.bound("a", Ok(()));
    assert!(bench.scheduler.cluster().placed("a").is_none());
    bench.pod(&a.clone().on("n"));
    assert!(bench.scheduler.cluster().placed("a").is_some());
    bench.pod(&hidden.on("n"));
    assert!(bench.scheduler.cluster().placed("a").is_none());
    bench.pod(&cores("b", "2"));
    assert_eq!(bench.step(), "bind b n");
}

/// Appends a word to a label, and records the events that it gets.
struct Word(&'static str, Mutex<Vec<String>>);

impl Word {
    fn new(word: &'static str) -> Arc<Self> {
        Arc::new(Self(word, Mutex::default()))
    }
}

impl EventHook for Word {
    fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
        let words = pod.labels().get("words").unwrap_or_default();
        let known = crate::testing::pod(&pod.name).label("words", &format!("{words}{}", self.0));
        ObjectView::Replace(known.build())
    }
    fn after(&self, event: &Input, known: &EventContext) -> Vec<HookAction> {
        if let Input::Pod(pod) = event {
            let words = pod.labels().get("words").unwrap_or_default();
            let waits = known.waiting().len();
            self.1.lock().unwrap().push(format!("{words} {waits}"));
        }
        Vec::new()
    }
}

#[test]
fn hooks_have_an_order() {
    let (first, second) = (Word::new("a"), Word::new("b"));
    let mut bench = hooked(vec![first.clone(), second.clone()]);
    bench.pod(&pod("p"));
    assert_eq!(*first.1.lock().unwrap(), ["ab 1"], "after both, and known");
    assert_eq!(*second.1.lock().unwrap(), ["ab 1"]);
}

#[test]
fn a_hook_cannot_make_another_object_of_one() {
    struct Liar;
    impl EventHook for Liar {
        fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
            let other = crate::testing::pod("other");
            ObjectView::Replace(match pod.labels().get("lie") {
                Some("node") => crate::testing::pod(&pod.name).on("elsewhere").build(),
                _ => other.build(),
            })
        }
        fn node(&self, _: &Node, _: &EventContext) -> ObjectView<Node> {
            ObjectView::Replace(crate::testing::node("other").build())
        }
    }
    let mut bench = hooked(vec![Arc::new(Liar)]).nodes(&["n"]);
    bench.pod(&pod("a").label("lie", "node"));
    bench.pod(&pod("b").label("lie", "name"));
    assert_eq!(bench.step(), "bind a n");
    assert_eq!(bench.step(), "bind b n");
}

/// Hides pods until a Service is added, and then has all pods tried.
#[derive(Default)]
struct Doorkeeper {
    outside: Mutex<Vec<Arc<Pod>>>,
}

impl EventHook for Doorkeeper {
    fn pod(&self, pod: &Arc<Pod>, _: &EventContext) -> ObjectView<Arc<Pod>> {
        if !labelled(pod, "later") {
            return ObjectView::Unchanged;
        }
        let mut outside = self.outside.lock().unwrap();
        outside.retain(|known| known.uid != pod.uid);
        outside.push(pod.clone());
        ObjectView::Hide
    }
    fn after(&self, event: &Input, known: &EventContext) -> Vec<HookAction> {
        let Input::Object(Update::Set(Object::Service(service))) = event else {
            return Vec::new();
        };
        let outside = std::mem::take(&mut *self.outside.lock().unwrap());
        let waiting = known.waiting();
        let tried = waiting
            .iter()
            .map(|ticket| HookAction::Try(ticket.pod.uid.clone()));
        let larger = node(&service.name).allocatable("cpu=64").build();
        outside
            .into_iter()
            .map(HookAction::Pod)
            .chain([HookAction::Node(larger)])
            .chain(tried)
            .collect()
    }
}

#[test]
fn what_hooks_want_is_done_in_order() {
    let mut bench = hooked(vec![Arc::new(Doorkeeper::default())]).nodes(&["n"]);
    bench.pod(&cores("waits", "9"));
    assert!(bench.step().starts_with("park waits"));
    bench.pod(&cores("late", "1").label("later", ""));
    assert_eq!(bench.step(), "idle");
    bench.apply(Input::Object(Update::from(crate::cluster::Service {
        namespace: "default".into(),
        name: "n".into(),
        selector: Default::default(),
    })));
    // The hidden pod is not hidden again; the other one came first.
    let steps = [bench.step(), bench.step()];
    assert_eq!(steps, ["bind waits n", "bind late n"]);
}

#[test]
fn reports_of_agents_are_shown_by_hooks_too() {
    /// Halves reports, and hides them after a sign.
    struct Doubt;
    impl EventHook for Doubt {
        fn report(
            &self,
            report: &CustomNodeResource,
            _: &EventContext,
        ) -> ObjectView<CustomNodeResource> {
            if report.allocatable.memory > 0 {
                return ObjectView::Hide;
            }
            ObjectView::Replace(CustomNodeResource {
                allocatable: Reclaimed::lent(report.allocatable.milli_cpu / 2, 0),
                ..report.clone()
            })
        }
        fn after(&self, event: &Input, _: &EventContext) -> Vec<HookAction> {
            match event {
                Input::PodGone(_) => vec![HookAction::HideReport("n".into())],
                Input::Object(Update::Delete(Kind::Node, _)) => {
                    let lends = crate::testing::report("n").lends(7, 0);
                    vec![HookAction::Report(lends.build())]
                }
                _ => Vec::new(),
            }
        }
    }
    let mut bench = hooked(vec![Arc::new(Doubt)]).nodes(&["n"]);
    let lent = |bench: &Bench| {
        let report = bench.scheduler.cluster().report("n");
        report.map(|report| report.allocatable.milli_cpu)
    };
    let says = |bench: &mut Bench, cpu, memory| {
        let report = crate::testing::report("n").lends(cpu, memory);
        bench.apply(Input::Object(report.into()));
    };
    says(&mut bench, 4_000, 0);
    assert_eq!(lent(&bench), Some(2_000));
    bench.gone("sign");
    assert_eq!(lent(&bench), None);
    says(&mut bench, 6_000, 0);
    assert_eq!(lent(&bench), Some(3_000));
    says(&mut bench, 6_000, 1);
    assert_eq!(lent(&bench), None);
    bench.apply(Input::Object(Update::Delete(Kind::Node, "other".into())));
    assert_eq!(lent(&bench), Some(7), "no hook is asked about it");
}

#[test]
fn a_hook_may_hide_what_is_known() {
    struct Curtain;
    impl EventHook for Curtain {
        fn after(&self, event: &Input, _: &EventContext) -> Vec<HookAction> {
            match event {
                Input::PodGone(uid) if **uid == *"sign" => vec![
                    HookAction::HidePod("a".into()),
                    HookAction::HidePod("nobody".into()),
                    HookAction::HideNode("n".into()),
                    HookAction::Try("nobody".into()),
                ],
                _ => Vec::new(),
            }
        }
    }
    let mut bench = hooked(vec![Arc::new(Curtain)]).nodes(&["n"]);
    bench.pod(&cores("a", "1").on("n"));
    bench.gone("sign");
    let cluster = bench.scheduler.cluster();
    assert!(cluster.placed("a").is_none() && cluster.nodes().is_empty());
    bench = bench.nodes(&["n"]);
    bench.pod(&cores("b", "4"));
    assert_eq!(
        bench.step(),
        "bind b n",
        "the node was told again, the pod was not"
    );
}
