//! Random histories: no pod is lost, no node is overbooked by us, and the same history gives the same instructions.

use proptest::prelude::*;

use super::*;

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

/// What the shell would do with instructions, and what it has not done yet.
#[derive(Default)]
struct Shell {
    binds: Vec<(Arc<Pod>, Name)>,
    waits: Vec<Arc<Pod>>,
    work: Vec<Arc<Pod>>,
    log: Vec<String>,
}

impl Shell {
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

fn run(events: &[Event]) -> Vec<String> {
    let mut bench = Bench::new();
    let mut shell = Shell::default();
    // Pods of ours that exist and that the API does not show as bound.
    let mut waiting: Vec<usize> = Vec::new();
    for event in events {
        match event {
            Event::Node { index, cores } => {
                bench.node(node(&format!("n{index}")).allocatable(&format!("cpu={cores}")));
            }
            Event::NodeGone(index) => {
                bench.apply(Input::Object(Update::NodeGone(format!("n{index}").into())));
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
                bench.apply(Input::Pod(pod));
            }
            Event::PodGone(index) => {
                waiting.retain(|known| known != index);
                bench.gone(&format!("p{index}"));
            }
            Event::Next => {
                if let Some(outcome) = bench.next() {
                    shell.take(outcome);
                }
            }
            Event::Bound { ok } => {
                if let Some((pod, node)) = shell.binds.pop() {
                    bench.bound(&pod.uid, if *ok { Ok(()) } else { Err("refused") });
                    let holds = bench.scheduler.cluster().placed(&pod.uid);
                    let assumed = holds.is_some_and(|placed| placed.assumed && placed.node == node);
                    if *ok && assumed {
                        waiting.retain(|known| *pod.name != *format!("p{known}"));
                        let seen = Pod {
                            node: Some(node),
                            ..(*pod).clone()
                        };
                        bench.apply(Input::Pod(Arc::new(seen)));
                    }
                }
            }
            Event::Permit { ok } => {
                if let Some(pod) = shell.waits.pop() {
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
                if let Some(pod) = shell.work.pop() {
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
                || bench.scheduler.under_way.contains_key(&*uid);
            assert!(known, "{uid} is lost after {event:?}");
        }
    }
    shell.log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_and_everything_repeats(events in prop::collection::vec(event(), 1..100)) {
        prop_assert_eq!(run(&events), run(&events));
    }
}
