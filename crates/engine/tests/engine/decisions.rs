//! Random histories of the whole scheduler with the default plugins, with valid and invalid input.
//!
//! After every step all invariants hold, no chosen node is overcommitted, no pod is lost, and the same history gives the
//! same instructions, byte for byte.

use std::sync::Arc;
use std::time::Duration;

use engine::cluster::Service;
use engine::cluster::kinds::{Kind, Update};
use engine::model::{Name, NodeSelector, NodeTerm, Pod, Resource, Timestamp, Unsatisfiable};
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{NodeBuilder, PodBuilder, node, pod, requirement, spread, term};
use proptest::prelude::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const NODES: usize = 4;
const PODS: usize = 9;
const NODE_SHAPES: usize = 7;
const POD_SHAPES: usize = 17;

#[derive(Debug, Clone)]
enum Step {
    Node {
        node: usize,
        shape: usize,
    },
    NodeGone(usize),
    /// A pod as the API shows it; `seen` is how often.
    Pod {
        pod: usize,
        shape: usize,
        on: Option<usize>,
        seen: usize,
    },
    PodGone(usize),
    /// The result of a binding, which may not have been requested.
    Bound {
        pod: usize,
        ok: bool,
    },
    Prepared {
        pod: usize,
        ok: bool,
    },
    PreemptionDone {
        pod: usize,
        failed: bool,
    },
    Next,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (node, pod) = (0..NODES, 0..PODS);
    let on = prop::option::weighted(0.2, 0..NODES + 1);
    prop_oneof![
        3 => (node.clone(), 0..NODE_SHAPES).prop_map(|(node, shape)| Step::Node { node, shape }),
        1 => node.prop_map(Step::NodeGone),
        6 => (pod.clone(), 0..POD_SHAPES, on, 1..3_usize)
            .prop_map(|(pod, shape, on, seen)| Step::Pod { pod, shape, on, seen }),
        2 => pod.clone().prop_map(Step::PodGone),
        3 => (pod.clone(), prop::bool::weighted(0.8)).prop_map(|(pod, ok)| Step::Bound { pod, ok }),
        1 => (pod.clone(), prop::bool::ANY).prop_map(|(pod, ok)| Step::Prepared { pod, ok }),
        1 => (pod, prop::bool::ANY).prop_map(|(pod, failed)| Step::PreemptionDone { pod, failed }),
        9 => Just(Step::Next),
        2 => (0..400_u64).prop_map(Step::Wait),
    ]
}

fn node_name(index: usize) -> Name {
    format!("n{index}").into()
}

fn shaped_node(index: usize, shape: usize) -> NodeBuilder {
    let zone = ["a", "b"][index % 2];
    let node = node(&node_name(index)).label(HOSTNAME, &node_name(index));
    match shape {
        0 | 1 => node.label(ZONE, zone).allocatable("cpu=4 memory=8Gi"),
        2 => node
            .label(ZONE, zone)
            .allocatable("cpu=8 memory=8Gi example.com/x=2"),
        3 => node
            .allocatable("cpu=2 memory=2Gi")
            .taint("k", "v", "PreferNoSchedule"),
        4 => node
            .allocatable("cpu=4 memory=8Gi")
            .taint("k", "v", "NoSchedule"),
        // Less than what is on it, most of the time.
        5 => node
            .label(ZONE, zone)
            .allocatable("cpu=100m memory=0 pods=1"),
        _ => node.allocatable("cpu=-1 memory=9223372036854775807 pods=1000000"),
    }
}

fn shaped_pod(index: usize, shape: usize) -> PodBuilder {
    let small = pod(&format!("p{index}"))
        .label("app", "web")
        .container("cpu=1 memory=1Gi");
    match shape {
        0 => small,
        1 => small.container("cpu=2").priority(5),
        2 => small.container("cpu=3 example.com/x=1").priority(10),
        3 => small.apart(term(HOSTNAME, &["app In web"])),
        4 => small.near(term(ZONE, &["app In web"])),
        5 => small.spread(spread(ZONE, 1).app("web")),
        6 => small.spread(spread(HOSTNAME, 1).app("web").soft()),
        7 => small.host_port("0.0.0.0", "TCP", 80),
        8 => small.tolerates("k", "v", "").node_selector(ZONE, "a"),
        9 => small.terminating(),
        10 => small.with(|pod| pod.scheduling_gates = vec!["later".into()]),
        11 => small.with(|pod| pod.scheduler_name = "somebody-else".into()),
        // Invalid for an API server.
        12 => small.container("cpu=-5 memory=-9Gi example.com/x=-1"),
        13 => small
            .container("memory=8Ei")
            .container("memory=8Ei cpu=100P"),
        14 => small.with(|pod| {
            let faulty = NodeTerm::new(vec![requirement("zone In")], Vec::new());
            let terms = vec![faulty];
            pod.nodes.affinity = Some(NodeSelector { terms });
        }),
        15 => small.with(|pod| pod.affinity_errors = vec!["requiredAffinityTerms: no".into()]),
        _ => small.with(|pod| {
            pod.spread_errors = vec![(Unsatisfiable::DoNotSchedule, "no operator".into())];
            // The name of another pod, but not its uid.
            pod.name = "p0".into();
        }),
    }
}

struct Run {
    scheduler: Scheduler,
    now: Timestamp,
    /// Every instruction in full.
    log: String,
    /// Pods that want a node, as the API shows them.
    pending: Vec<(usize, Arc<Pod>)>,
}

impl Run {
    fn new() -> Self {
        let enabled = plugins::DEFAULT.iter().map(|(name, weight)| {
            let entry = plugins::find(name).unwrap();
            Enabled::new(entry, (*weight).max(1)).unwrap()
        });
        let profile = Profile::new("default-scheduler", enabled.collect());
        let mut run = Self {
            scheduler: Scheduler::new(vec![profile], Settings::default()).unwrap(),
            now: Timestamp::from_secs(1_000),
            log: String::new(),
            pending: Vec::new(),
        };
        run.apply(Input::Object(Update::from(Service {
            namespace: "default".into(),
            name: "web".into(),
            selector: Some([("app", "web")].into_iter().collect()),
        })));
        run
    }

    /// Invalid input gives an error and changes nothing.
    fn apply(&mut self, input: Input) {
        if let Err(error) = self.scheduler.apply(input, self.now) {
            self.log += &format!("refused: {error}\n");
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Node { node, shape } => {
                let node = shaped_node(*node, *shape).build();
                self.apply(Input::Object(Update::from(node)));
            }
            Step::NodeGone(node) => self.apply(Input::Object(Update::Delete(
                Kind::Node,
                node_name(*node).into(),
            ))),
            Step::Pod {
                pod,
                shape,
                on,
                seen,
            } => {
                let shaped = shaped_pod(*pod, *shape);
                let shaped = match on {
                    Some(node) => shaped.on(&node_name(*node)),
                    None => shaped,
                };
                let shown = shaped.build();
                for _ in 0..*seen {
                    self.apply(Input::Pod(shown.clone()));
                }
                // A name belongs to the pod that was seen with it last.
                self.pending
                    .retain(|(known, other)| known != pod && other.name != shown.name);
                let placed = self.scheduler.cluster().placed(&shown.uid);
                let bound = placed.is_some_and(|placed| !placed.assumed);
                let ours = *shown.scheduler_name == *"default-scheduler";
                if on.is_none() && !bound && ours && !shown.kind.terminating {
                    self.pending.push((*pod, shown));
                }
            }
            Step::PodGone(pod) => {
                self.pending.retain(|(known, _)| known != pod);
                self.apply(Input::PodGone(format!("p{pod}").into()));
            }
            Step::Bound { pod, ok } => self.bound(*pod, *ok),
            Step::Prepared { pod, ok } => self.apply(Input::Prepared {
                uid: format!("p{pod}").into(),
                result: ok
                    .then_some(())
                    .ok_or(("VolumeBinding".into(), "no".into())),
            }),
            Step::PreemptionDone { pod, failed } => self.apply(Input::PreemptionDone {
                uid: format!("p{pod}").into(),
                failed: *failed,
            }),
            Step::Next => {
                if let Some(outcome) = self.scheduler.schedule_next(self.now) {
                    self.fits(&outcome);
                    self.log += &format!("{outcome:?}\n");
                }
            }
            Step::Wait(seconds) => self.now = self.now.plus(Duration::from_secs(*seconds)),
        }
        if let Err(broken) = self.scheduler.check() {
            panic!("{broken} after {step:?}");
        }
        for (_, pod) in &self.pending {
            let placed = self.scheduler.cluster().placed(&pod.uid);
            let waits = self.scheduler.waiting(&pod.uid).is_some();
            assert!(
                waits || placed.is_some(),
                "{} is lost after {step:?}",
                pod.uid
            );
        }
    }

    fn bound(&mut self, pod: usize, ok: bool) {
        let uid = Name::from(format!("p{pod}"));
        let assumed = self.scheduler.cluster().placed(&uid);
        let assumed = assumed.filter(|placed| placed.assumed);
        let seen = assumed.map(|placed| (placed.pod.clone(), placed.node.clone()));
        let result = ok.then_some(()).ok_or_else(|| "refused".to_owned());
        self.apply(Input::Bound { uid, result });
        if let (true, Some((known, node))) = (ok, seen) {
            self.pending.retain(|(other, _)| *other != pod);
            let node = Some(node);
            let shown = Pod {
                node,
                ..(*known).clone()
            };
            self.apply(Input::Pod(Arc::new(shown)));
        }
    }

    /// The chosen node has enough of each resource that the pod requests for all its pods together.
    fn fits(&self, outcome: &Outcome) {
        let Outcome::Bind { pod, node, .. } = outcome else {
            return;
        };
        let cluster = self.scheduler.cluster();
        let slot = cluster
            .nodes()
            .slot(node)
            .expect("the chosen node is there");
        let entry = cluster.nodes().get(slot).expect("a node in its slot");
        let taken = |resource: &Resource| {
            let pods = cluster.pods_on(slot);
            pods.map(|placed| i128::from(placed.pod.requests.placed.get(resource)))
                .sum::<i128>()
        };
        for (resource, wanted) in pod.requests.wanted.iter() {
            // Sums that overflow wrap, as in kube-scheduler.
            let (taken, offered) = (taken(resource), entry.node.allocatable.get(resource));
            if wanted > 0 && i64::try_from(taken).is_ok() {
                let name = resource.name();
                assert!(
                    taken <= i128::from(offered),
                    "{node} holds {taken} {name} of {offered} after {}",
                    pod.uid
                );
            }
        }
        let pods = cluster.pods_on(slot).count() as i64;
        let offered = entry.node.allocatable.get(&Resource::Pods);
        assert!(pods <= offered, "{node} holds {pods} pods of {offered}");
    }
}

fn run(steps: &[Step]) -> String {
    let mut run = Run::new();
    steps.iter().for_each(|step| run.take(step));
    run.log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_comes_in(steps in prop::collection::vec(step(), 1..120)) {
        prop_assert_eq!(run(&steps), run(&steps));
    }
}
