//! Pods whose priority the API server left open.

use super::*;
use crate::cluster::PriorityClass;
use crate::model::OpenPriority;

const UNKNOWN: &str = "PriorityClass \"high\" was not found: create it, or recreate the pod with a priorityClassName that exists";

fn open(name: &str, class: Option<&str>) -> PodBuilder {
    let open = OpenPriority {
        class: class.map(Name::from),
        preemption_policy: None,
    };
    cores(name, "1").with(|pod| pod.open_priority = Some(open))
}

fn class(name: &str, value: i32) -> PriorityClass {
    PriorityClass {
        name: name.into(),
        value,
        global_default: false,
        preemption_policy: PreemptionPolicy::LowerPriority,
    }
}

fn default_class(name: &str, value: i32) -> PriorityClass {
    PriorityClass {
        global_default: true,
        ..class(name, value)
    }
}

impl Bench {
    fn class(&mut self, class: PriorityClass) {
        self.apply(Input::Object(Update::from(class)));
    }

    fn class_gone(&mut self, name: &str) {
        self.apply(Input::Object(Update::Delete(
            Kind::PriorityClass,
            name.into(),
        )));
    }

    fn priority(&self, uid: &str) -> (i32, PreemptionPolicy) {
        let scheduler = &self.scheduler;
        let placed = scheduler.cluster().placed(uid).map(|placed| &placed.pod);
        let pod = placed.or(scheduler.waiting(uid).map(|ticket| &ticket.pod));
        let pod = pod.unwrap();
        (pod.priority, pod.preemption_policy)
    }
}

#[test]
fn a_pod_has_the_priority_of_its_class_whichever_is_seen_first() {
    use PreemptionPolicy::{LowerPriority, Never};
    let polite = PriorityClass {
        preemption_policy: Never,
        ..class("high", 7)
    };
    let eager = open("p", Some("high")).with(|pod| {
        let open = pod.open_priority.as_mut().unwrap();
        open.preemption_policy = Some(LowerPriority);
    });
    let two = vec![default_class("a", 5), default_class("b", 3)];
    let filled_in = cores("p", "1").priority(2);
    let named = || open("p", Some("high"));
    for (case, pod, classes, want) in [
        ("its class", named(), vec![polite.clone()], (7, Never)),
        ("its own policy", eager, vec![polite], (7, LowerPriority)),
        (
            "not the default",
            named(),
            vec![class("high", 7), default_class("low", -1)],
            (7, LowerPriority),
        ),
        (
            "of two defaults the smaller",
            open("p", None),
            two.clone(),
            (3, LowerPriority),
        ),
        (
            "no default",
            open("p", None),
            vec![class("high", 7)],
            (0, LowerPriority),
        ),
        ("filled in", filled_in, two, (2, LowerPriority)),
    ] {
        for (first, on) in [("class", None), ("pod", None), ("pod", Some("n"))] {
            let mut bench = Bench::new().nodes(&["n"]);
            let pod = on.map_or(pod.clone(), |node| pod.clone().on(node));
            if first == "pod" {
                bench.pod(&pod);
            }
            for class in &classes {
                bench.class(class.clone());
            }
            if first == "class" {
                bench.pod(&pod);
            }
            let said = bench.priority("p");
            assert_eq!(said, want, "{case}, first the {first}, on {on:?}");
        }
    }
}

#[test]
fn a_pod_of_an_unknown_class_waits_for_it_and_the_others_go_on() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&open("a", Some("high")));
    bench.pod(&cores("b", "1"));
    let parked = format!("park a Unschedulable: {UNKNOWN}");
    assert_eq!(bench.step(), parked);
    assert_eq!(bench.step(), "bind b n");
    let report = bench.scheduler.explain("default", "a", bench.now).unwrap();
    assert_eq!(report.verdict, Decision::NoNode(UNKNOWN.to_owned()));
    bench.class(class("other", 7));
    bench.node(node("new").allocatable("cpu=4 memory=16Gi"));
    bench.wait(60);
    assert_eq!(bench.step(), "idle", "nothing of that is its class");
    // The priority is 0 as before: what the pod waited for is the class.
    bench.class(class("high", 0));
    assert_eq!(bench.step(), "bind a new");
}

#[test]
fn a_class_that_goes_leaves_its_pods_without_one() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.class(class("high", 7));
    bench.pod(&open("a", Some("high")));
    bench.pod(&open("b", Some("high")).on("n"));
    bench.class_gone("high");
    assert_eq!((bench.priority("a").0, bench.priority("b").0), (0, 0));
    assert_eq!(bench.step(), format!("park a Unschedulable: {UNKNOWN}"));
    bench.class(class("high", 9));
    assert_eq!((bench.priority("a").0, bench.priority("b").0), (9, 9));
    assert_eq!(bench.step(), "bind a n");
}

#[test]
fn a_pod_that_rises_is_tried_at_once() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("low", "4").on("n"));
    bench.pod(&open("a", None));
    assert!(bench.step().starts_with("park a "), "nobody is below it");
    assert_eq!(bench.step(), "idle");
    bench.class(default_class("usual", 7));
    assert_eq!(bench.step(), "preempt a n: low / ");
}

#[test]
fn a_pod_that_comes_back_has_the_priority_its_class_has_by_then() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.class(class("high", 7));
    bench.pod(&open("a", Some("high")));
    assert_eq!(bench.step(), "bind a n");
    bench.class(class("high", 9));
    bench.bound("a", Err("refused"));
    assert_eq!(bench.priority("a").0, 9);
}

#[test]
fn room_that_is_made_for_a_pod_is_kept_at_its_new_priority() {
    let mut bench = Bench::new().nodes(&["n"]);
    bench.pod(&cores("low", "4").on("n"));
    bench.class(default_class("usual", 7));
    bench.pod(&open("a", None));
    assert_eq!(bench.step(), "preempt a n: low / ");
    bench.class(default_class("usual", 9));
    let nominated = bench.scheduler.cluster().nominated_to("n");
    let found: Vec<_> = nominated
        .map(|it| (it.pod.priority, &*it.pod.name))
        .collect();
    assert_eq!(found, [(9, "a")]);
    bench.gone("low");
    assert_eq!(bench.step(), "bind a n");
}
