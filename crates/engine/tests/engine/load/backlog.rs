//! A backlog of pods that fit nowhere, while nodes change: newcomers must not wait for it.
//!
//! Time is virtual. A decision that evaluates the cluster takes as long as on five thousand nodes, and one whose answer is
//! known takes some microseconds. Nodes change every ten milliseconds, whether the scheduler is behind or not.

use std::time::Duration;

use engine::cluster::kinds::Object;
use engine::model::{Node, Timestamp};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{PodBuilder, node, pod, term};

use super::{NOW, ZONE, scheduler};

const NODES: usize = 20;
const BACKLOG: usize = 20_000;
const EVALUATION: Duration = Duration::from_millis(1);
const KNOWN: Duration = Duration::from_micros(30);
const NODE_CHANGES: Duration = Duration::from_millis(10);
const NEWCOMERS: Duration = Duration::from_millis(100);
const LASTS: Duration = Duration::from_secs(3);

/// A node that is full.
fn full(index: usize) -> engine::testing::NodeBuilder {
    node(&format!("node-{index}"))
        .allocatable("cpu=4 memory=16Gi pods=10")
        .label(ZONE, "a")
}

struct Simulation {
    scheduler: Scheduler,
    now: Timestamp,
    evaluations: (u64, u64),
    /// How long each newcomer waited.
    waits: Vec<Duration>,
    /// Attempts that failed.
    failures: usize,
}

impl Simulation {
    /// Full nodes, one with capacity, and a backlog whose first attempts have failed.
    fn new(backlog: impl Fn(usize) -> PodBuilder) -> Self {
        let mut this = Self {
            scheduler: scheduler(Settings::default()),
            now: NOW,
            evaluations: (0, 0),
            waits: Vec::new(),
            failures: 0,
        };
        for index in 0..NODES {
            this.set(full(index).build());
            let name = format!("placed-{index}");
            let placed = pod(&name).container("cpu=4").on(&format!("node-{index}"));
            this.apply(Input::Pod(placed.build()));
        }
        let free = node("free").allocatable("cpu=100 memory=100Gi pods=1000");
        this.set(free.taint("only", "newcomers", "NoSchedule").build());
        for index in 0..BACKLOG {
            this.apply(Input::Pod(backlog(index).build()));
        }
        while let Some(outcome) = this.scheduler.schedule_next(this.now) {
            assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
        }
        this.evaluations = this.scheduler.evaluations();
        this
    }

    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.now).unwrap();
    }

    fn set(&mut self, node: Node) {
        self.apply(Input::Object(Object::from(node).into()));
    }

    /// Changes a node every ten milliseconds, and creates a newcomer ten times a second.
    fn run(&mut self, change: impl Fn(usize) -> Node) {
        let begun = self.now;
        let (mut changes, mut newcomers) = (0, 0);
        let after = |count: usize, every: Duration| begun.plus(every * count as u32);
        while self.now < begun.plus(LASTS) {
            while after(changes, NODE_CHANGES) <= self.now {
                self.set(change(changes));
                changes += 1;
            }
            while after(newcomers, NEWCOMERS) <= self.now {
                let created = after(newcomers, NEWCOMERS);
                let newcomer = pod(&format!("new-{newcomers}"))
                    .container("cpu=100m")
                    .tolerates("only", "newcomers", "NoSchedule")
                    .with(|pod| pod.created = created);
                self.apply(Input::Pod(newcomer.build()));
                newcomers += 1;
            }
            let outcome = self.scheduler.schedule_next(self.now);
            self.pay();
            match outcome {
                Some(Outcome::Bind { pod, .. }) => {
                    let waited = self.now.0 - pod.created.0;
                    self.waits.push(Duration::from_nanos(waited as u64));
                }
                Some(Outcome::Park(_)) => self.failures += 1,
                None => self.now = after(changes, NODE_CHANGES),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets the time of the last decision pass.
    fn pay(&mut self) {
        let (evaluated, known) = self.scheduler.evaluations();
        let evaluations = (evaluated - self.evaluations.0) as u32;
        let answers = (known - self.evaluations.1) as u32;
        self.now = self.now.plus(EVALUATION * evaluations + KNOWN * answers);
        self.evaluations = (evaluated, known);
    }

    fn assert_quick(&self) {
        let wanted = LASTS.as_millis() / NEWCOMERS.as_millis();
        assert!(self.waits.len() as u128 >= wanted - 1, "{:?}", self.waits);
        let longest = self.waits.iter().max().unwrap();
        assert!(*longest < Duration::from_secs(1), "{longest:?}");
    }
}

#[test]
fn equal_pods_are_evaluated_once() {
    let simulation = Simulation::new(|index| pod(&format!("p{index}")).container("cpu=2"));
    assert_eq!(simulation.evaluations, (1, BACKLOG as u64 - 1));
}

#[test]
fn a_heartbeat_wakes_no_pod() {
    let mut simulation = Simulation::new(|index| pod(&format!("p{index}")).container("cpu=2"));
    // A condition that changes is none of a scheduler's business either.
    simulation.run(|count| {
        full(count % NODES)
            .with(|node| node.conditions = (count / 100) as u64)
            .build()
    });
    simulation.assert_quick();
    assert_eq!(simulation.failures, 0, "a pod of the backlog was tried");
}

/// Each change wakes the whole backlog: an empty node of this size would do.
#[test]
fn newcomers_do_not_wait_while_allocatable_changes() {
    let mut simulation = Simulation::new(|index| pod(&format!("p{index}")).container("cpu=2"));
    simulation.run(|count| {
        let cpu = 4_000 + 100 * (count / NODES % 2);
        let allocatable = format!("cpu={cpu}m memory=16Gi pods=10");
        full(count % NODES).allocatable(&allocatable).build()
    });
    simulation.assert_quick();
    assert!(simulation.failures > BACKLOG, "{}", simulation.failures);
}

/// Each change wakes the whole backlog: a pod that it waits for may be in that zone.
#[test]
fn newcomers_do_not_wait_while_zones_change() {
    let mut simulation = Simulation::new(|index| {
        // Without requests: otherwise NodeResourcesFit rejects it first.
        pod(&format!("p{index}")).near(term(ZONE, &["app In nowhere"]))
    });
    simulation.run(|count| {
        let zone = ["a", "b"][count / NODES % 2];
        full(count % NODES).label(ZONE, zone).build()
    });
    simulation.assert_quick();
    assert!(simulation.failures > BACKLOG, "{}", simulation.failures);
}

/// No two pods are equal, so that each retry evaluates the cluster: newcomers take turns with them.
#[test]
fn newcomers_take_turns_with_different_pods() {
    let mut simulation = Simulation::new(|index| {
        let cpu = 2_000 + index / 20;
        pod(&format!("p{index}"))
            .label("index", &index.to_string())
            .container(&format!("cpu={cpu}m"))
    });
    simulation.run(|count| {
        let cpu = 4_000 + 100 * (count / NODES % 2);
        let allocatable = format!("cpu={cpu}m memory=16Gi pods=10");
        full(count % NODES).allocatable(&allocatable).build()
    });
    simulation.assert_quick();
}
