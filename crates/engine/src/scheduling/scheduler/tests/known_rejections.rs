//! Rejections that are known from an equal pod. `checks_itself` compares each with a new evaluation.

use super::*;
use crate::cluster::{Budget, Namespace};
use crate::model::{Labels, Selector};
use crate::scheduling::hooks::{Hooks, PointResult, Probe};

/// What a probe saw: point, evaluations and result, and the pod.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, String)>>);

impl Seen {
    fn add(&self, pod: &Pod, what: String) {
        self.0.lock().unwrap().push((pod.name.to_string(), what));
    }

    fn of(&self, pod: &str) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let of_pod = seen.iter().filter(|(name, _)| name == pod);
        of_pod.map(|(_, what)| what.clone()).collect()
    }
}

impl Probe for Seen {
    fn points(&self) -> Points {
        Points::ALL
            .without(Point::QueueSort)
            .without(Point::PreEnqueue)
    }
    fn before(&self, point: Point, pod: &Pod) {
        self.add(pod, format!("before {point:?}"));
    }
    fn evaluated(&self, point: Point, pod: &Pod, plugins: &[(usize, usize)]) {
        self.add(pod, format!("evaluated {point:?} {plugins:?}"));
    }
    fn after(&self, point: Point, pod: &Pod, result: &PointResult) {
        self.add(pod, format!("after {point:?} {result:?}"));
    }
}

fn message(bench: &mut Bench, name: &str) -> String {
    let step = bench.step();
    let prefix = format!("park {name} Unschedulable: ");
    step.strip_prefix(&prefix).unwrap_or(&step).to_owned()
}

#[test]
fn an_equal_pod_gets_the_same_answer_and_probes_see_it() {
    let seen = Arc::<Seen>::default();
    let settings = Settings {
        hooks: Hooks::default().with_probe(seen.clone()),
        ..Settings::default()
    };
    let mut bench = Bench::with(settings).nodes(&["n", "m"]);
    for name in ["a", "b"] {
        bench.pod(&cores(name, "8"));
    }
    let first = message(&mut bench, "a");
    assert!(first.starts_with("0/2 nodes are available"), "{first}");
    assert_eq!(message(&mut bench, "b"), first);
    assert_eq!(bench.scheduler.evaluations(), (1, 1));
    assert_eq!(seen.of("b"), seen.of("a"));
    assert!(seen.of("a").len() >= 9, "{:?}", seen.of("a"));
    // Another request is another question.
    bench.pod(&cores("c", "9"));
    message(&mut bench, "c");
    assert_eq!(bench.scheduler.evaluations(), (2, 1));
}

#[test]
fn any_change_of_the_cluster_asks_again() {
    let mut bench = Bench::new().nodes(&["n", "m"]);
    let mut next = 0;
    let mut is_evaluated = |bench: &mut Bench| {
        let before = bench.scheduler.evaluations();
        next += 1;
        let name = format!("p{next}");
        bench.pod(&cores(&name, "8"));
        message(bench, &name);
        bench.gone(&name);
        bench.scheduler.evaluations().0 > before.0
    };
    assert!(is_evaluated(&mut bench), "the first");
    let four = || node("n").allocatable("cpu=4 memory=16Gi");
    let namespace = Namespace {
        name: "x".into(),
        labels: Labels::default(),
    };
    let budget = Budget {
        namespace: "default".into(),
        name: "b".into(),
        selector: Selector::EVERYTHING,
        disruptions_allowed: 0,
        disrupted_pods: Vec::new(),
    };
    for (case, input, want) in [
        ("nothing", None, false),
        (
            "a heartbeat",
            Some(Input::Object(four().build().into())),
            false,
        ),
        (
            "an annotation",
            Some(Input::Object(
                four().with(|node| node.annotations = 7).build().into(),
            )),
            false,
        ),
        (
            "a label",
            Some(Input::Object(four().label("a", "b").build().into())),
            true,
        ),
        (
            "less cpu",
            Some(Input::Object(node("n").allocatable("cpu=3").build().into())),
            true,
        ),
        (
            "a new node",
            Some(Input::Object(node("o").allocatable("cpu=1").build().into())),
            true,
        ),
        (
            "a node that is gone",
            Some(Input::Object(Update::Delete(Kind::Node, "o".into()))),
            true,
        ),
        (
            "a bound pod",
            Some(Input::Pod(cores("bound", "1").on("n").build())),
            true,
        ),
        (
            "a bound pod that is gone",
            Some(Input::PodGone("bound".into())),
            true,
        ),
        (
            "a pod that is not known",
            Some(Input::PodGone("x".into())),
            false,
        ),
        ("a namespace", Some(Input::Object(namespace.into())), true),
        ("a budget", Some(Input::Object(budget.into())), true),
    ] {
        if let Some(input) = input {
            bench.apply(input);
        }
        assert_eq!(is_evaluated(&mut bench), want, "{case}");
    }
}

/// A pod that has been nominated, and one whose claims are named after it, are questions of their own.
#[test]
fn some_pods_are_always_evaluated() {
    let mut bench = Bench::new().nodes(&["n"]);
    for (index, change) in [
        (|pod: &mut Pod| pod.nominated_node = Some("n".into())) as fn(&mut Pod),
        |pod: &mut Pod| pod.resource_claims.push("claim".into()),
    ]
    .into_iter()
    .enumerate()
    {
        for copy in ["a", "b"] {
            bench.pod(&cores(&format!("{copy}{index}"), "8").with(change));
            bench.step();
        }
    }
    assert_eq!(bench.scheduler.evaluations(), (4, 0));
}
