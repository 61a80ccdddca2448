//! Random histories of a cluster with several schedulers and the gate: binds from old views, watches that lag, commits that are
//! lost or come late, two binds of one pod, deleted pods, and gates that take over.
//!
//! The store is the judge: after every commit no node has more than its native, reclaimed and idle capacity, no unit more than its
//! maxCount, and no NUMA zone two owners. In the end no hold is left. `TIDEPOOL_FULL` has ten times as many histories.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::binding::gate::{BindGate, BindRequest, GatePod, KnownPod, ReadPod, SETTLE_TIME};
use engine::binding::kubelet::CRITICAL_PRIORITY;
use engine::cluster::kinds::{Key, Update};
use engine::model::{Name, NumaBinding, Pod, Resource, ZoneSet};
use engine::testing::{Numbers, node, pod, policy, report};

const NODES: u64 = 3;
const SCHEDULERS: u64 = 3;
const STEPS: u64 = 240;
const MAX_COUNT: usize = 3;
const LENT: i64 = 2000;
const POOL: i64 = 2600;
const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const BATCH: &str = "kubernetes.io/batch-cpu";

/// A change of the store, as watches show it.
#[derive(Clone)]
enum Event {
    Set(Arc<Pod>),
    Deleted(Arc<Pod>),
}

/// A bind that the gate allowed and the API server has not committed.
struct InFlight {
    pod: Arc<Pod>,
    node: Name,
    zones: Option<ZoneSet>,
    allowed: Duration,
}

struct World {
    numbers: Numbers,
    now: Duration,
    store: BTreeMap<Name, Arc<Pod>>,
    log: Vec<Event>,
    gate: BindGate,
    /// How much of the log the gate has seen.
    seen: usize,
    /// What the schedulers have seen: they decide on old views.
    views: Vec<(usize, BTreeMap<Name, Arc<Pod>>)>,
    in_flight: Vec<InFlight>,
    created: u64,
    committed: u64,
    refused: u64,
}

fn node_name(index: u64) -> Name {
    format!("n{index}").into()
}

/// Even nodes are spot nodes; the last one has NUMA zones.
fn objects() -> Vec<Update> {
    let policy = policy("p").selects("app", "web");
    let mut objects = vec![
        policy
            .prefers()
            .unit("spot", 1, Some(MAX_COUNT as u32), "kind=spot")
            .into(),
    ];
    for index in 0..NODES {
        let kind = if index % 2 == 0 { "spot" } else { "reserved" };
        let offers = format!("cpu=4 memory=16Gi pods=8 {BATCH}=2000");
        let name = node_name(index);
        let node = node(&name).allocatable(&offers).label("kind", kind);
        objects.push(node.build().into());
        let report = report(&name).lends(LENT, 0).pool(POOL, 1 << 30);
        objects.push(if index == NODES - 1 {
            let zones = report.zone("0", 0, "cpu=2 memory=8Gi");
            zones.zone("0", 1, "cpu=2 memory=8Gi").into()
        } else {
            report.into()
        });
    }
    objects
}

fn new_gate() -> BindGate {
    let mut gate = BindGate::default();
    objects().into_iter().for_each(|object| gate.apply(object));
    gate
}

fn with_node(pod: &Pod, node: &Name, zones: Option<ZoneSet>) -> Arc<Pod> {
    Arc::new(Pod {
        node: Some(node.clone()),
        zones,
        ..pod.clone()
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let numbers = Numbers::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self {
            numbers,
            now: Duration::ZERO,
            store: BTreeMap::new(),
            log: Vec::new(),
            gate: new_gate(),
            seen: 0,
            views: vec![(0, BTreeMap::new()); SCHEDULERS as usize],
            in_flight: Vec::new(),
            created: 0,
            committed: 0,
            refused: 0,
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.numbers.below(900));
        match self.numbers.below(100) {
            0..20 => self.create(),
            20..50 => self.decide(),
            50..70 => self.commit_one(),
            70..75 => self.lose_one(),
            75..85 => self.watch(),
            85..93 => self.follow(),
            93..97 => self.delete(),
            97..99 => self.read_late(),
            _ => self.take_over(),
        }
        // The API server answers a bind long before the gate reads its pod.
        while let Some(late) = self
            .in_flight
            .iter()
            .position(|it| it.allowed + SETTLE_TIME / 2 <= self.now)
        {
            self.commit(late);
        }
        self.read_late();
    }

    fn create(&mut self) {
        self.created += 1;
        let new = pod(&format!("p{}", self.created));
        let new = match self.numbers.below(8) {
            0 => new.container("cpu=2500m"),
            1 => new.container("cpu=1200m memory=9Gi"),
            2 => new.label("app", "web").container("cpu=100m"),
            3 => new.reclaimed().container(&format!("{CPU}=900")),
            4 => new.container(&format!("{BATCH}=800")),
            5 => new.host_port("", "TCP", 80),
            6 => new.dedicated(None).container("cpu=1"),
            _ => new.priority(CRITICAL_PRIORITY).container("cpu=2"),
        };
        let new = new.build();
        self.store.insert(new.uid.clone(), new.clone());
        self.log.push(Event::Set(new));
    }

    /// A scheduler binds a pod that waits by its own view, to any node. That is worse than any real scheduler.
    fn decide(&mut self) {
        let view = self.numbers.below(SCHEDULERS) as usize;
        let waiting: Vec<Arc<Pod>> = self.views[view]
            .1
            .values()
            .filter(|pod| pod.node.is_none())
            .cloned()
            .collect();
        if waiting.is_empty() {
            return self.follow();
        }
        let chosen = self.numbers.below(waiting.len() as u64) as usize;
        let node = node_name(self.numbers.below(NODES));
        let zone = self.numbers.below(2) as u8;
        self.bind(&waiting[chosen].clone(), node, zone);
    }

    fn bind(&mut self, pod: &Arc<Pod>, node: Name, zone: u8) {
        let zones = pod.numa_binding().and_then(|_| ZoneSet::of(zone));
        let request = BindRequest {
            namespace: pod.namespace().clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            node: node.clone(),
            zones,
            ..BindRequest::default()
        };
        let found = match self.gate.find(&request) {
            KnownPod::Bound => return,
            KnownPod::Waiting(found) => found,
            KnownPod::Unknown => match self.store.get(&pod.uid) {
                None => return,
                Some(stored) => Arc::new(GatePod::new(stored.clone())),
            },
        };
        match self.gate.judge(&found, &request, self.now) {
            Err(_) => self.refused += 1,
            Ok(()) => self.in_flight.push(InFlight {
                pod: pod.clone(),
                node,
                zones,
                allowed: self.now,
            }),
        }
    }

    fn commit_one(&mut self) {
        if !self.in_flight.is_empty() {
            let index = self.numbers.below(self.in_flight.len() as u64) as usize;
            self.commit(index);
        }
    }

    /// As the API server does: only a pod that exists and has no node.
    fn commit(&mut self, index: usize) {
        let bind = self.in_flight.swap_remove(index);
        let stored = self.store.get(&bind.pod.uid);
        if stored.is_none_or(|stored| stored.node.is_some()) {
            return;
        }
        let bound = with_node(&bind.pod, &bind.node, bind.zones);
        self.store.insert(bound.uid.clone(), bound.clone());
        self.log.push(Event::Set(bound));
        self.committed += 1;
        self.check();
    }

    fn lose_one(&mut self) {
        if !self.in_flight.is_empty() {
            let index = self.numbers.below(self.in_flight.len() as u64) as usize;
            self.in_flight.swap_remove(index);
        }
    }

    /// The gate sees some of what it has not seen.
    fn watch(&mut self) {
        let most = (self.log.len() - self.seen) as u64;
        let until = self.seen + self.numbers.below(most + 1) as usize;
        self.watch_until(until);
    }

    fn watch_until(&mut self, until: usize) {
        for event in &self.log[self.seen..until] {
            match event {
                Event::Set(pod) => self.gate.set_pod(GatePod::new(pod.clone())),
                Event::Deleted(pod) => {
                    let key = Key::new(pod.namespace().clone(), pod.name.clone());
                    self.gate.remove_pod(&key, &pod.uid);
                }
            }
        }
        self.seen = until;
    }

    /// A scheduler sees some of what it has not seen.
    fn follow(&mut self) {
        let index = self.numbers.below(SCHEDULERS) as usize;
        let (seen, view) = &mut self.views[index];
        let until = *seen + self.numbers.below((self.log.len() - *seen) as u64 + 1) as usize;
        for event in &self.log[*seen..until] {
            match event {
                Event::Set(pod) => view.insert(pod.uid.clone(), pod.clone()),
                Event::Deleted(pod) => view.remove(&pod.uid),
            };
        }
        *seen = until;
    }

    fn delete(&mut self) {
        let index = self.numbers.below(self.store.len().max(1) as u64) as usize;
        let Some(uid) = self.store.keys().nth(index).cloned() else {
            return;
        };
        let gone = self.store.remove(&uid).unwrap();
        self.log.push(Event::Deleted(gone));
    }

    fn read_late(&mut self) {
        for held in self.gate.late_pods(self.now) {
            if self.numbers.below(4) == 0 {
                continue; // No answer.
            }
            let read = match self.store.get(&held.uid) {
                None => ReadPod::Gone,
                Some(pod) => match &pod.node {
                    None => ReadPod::Unbound,
                    Some(node) => ReadPod::On(node.clone()),
                },
            };
            self.gate.settle(&held.uid, &read, self.now);
        }
    }

    /// The process before it stops answering, and what it allowed is over before another one lists.
    fn take_over(&mut self) {
        while !self.in_flight.is_empty() {
            match self.numbers.below(4) {
                0 => self.lose_one(),
                _ => self.commit_one(),
            }
        }
        self.gate = new_gate();
        for pod in self.store.values() {
            self.gate.set_pod(GatePod::new(pod.clone()));
        }
        self.seen = self.log.len();
    }

    /// The store keeps every limit.
    fn check(&self) {
        for index in 0..NODES {
            let name = node_name(index);
            let here = || {
                self.store
                    .values()
                    .filter(|pod| pod.node.as_ref() == Some(&name))
            };
            let sum = |resource: &Resource| -> i64 {
                let counted = here().filter(|pod| pod.priority < CRITICAL_PRIORITY);
                counted.map(|pod| pod.requests.placed.get(resource)).sum()
            };
            assert!(sum(&Resource::Cpu) <= 4000, "{name}: cpu");
            assert!(sum(&Resource::Memory) <= 16 << 30, "{name}: memory");
            let ports = here().filter(|pod| !pod.kind.ports.is_empty());
            assert!(ports.count() <= 1, "{name}: ports");
            let lent: i64 = here()
                .map(|pod| pod.requests.wanted_reclaimed().milli_cpu)
                .sum();
            assert!(lent <= LENT, "{name}: {lent} lent");
            let batch = sum(&Resource::Scalar(BATCH.into()));
            assert!(batch <= 2000, "{name}: {batch} batch");
            assert!(lent + batch <= POOL, "{name}: {lent} lent, {batch} batch");
            if index == NODES - 1 {
                let owners = |zone: ZoneSet| {
                    let owns = |pod: &&Arc<Pod>| {
                        pod.numa_binding() == Some(NumaBinding::Exclusive)
                            && pod.zones == Some(zone)
                    };
                    here().filter(owns).count()
                };
                for zone in [0, 1] {
                    assert!(owners(ZoneSet::of(zone).unwrap()) <= 1, "zone {zone}");
                }
            }
        }
        let is_spot = |node: &Name| (0..NODES).step_by(2).any(|index| node_name(index) == *node);
        let web = self.store.values().filter(|pod| {
            pod.labels().get("app") == Some("web") && pod.node.as_ref().is_some_and(is_spot)
        });
        let web = web.count();
        assert!(web <= MAX_COUNT, "{web} pods in the unit");
    }

    /// Every bind ends, watches catch up, and time passes.
    fn settle(&mut self) {
        while !self.in_flight.is_empty() {
            self.lose_one();
        }
        self.watch_until(self.log.len());
        for _ in 0..40 {
            self.now += Duration::from_secs(6);
            self.read_late();
        }
        assert_eq!(self.gate.holds(), 0, "a hold is left");
        assert_eq!(self.gate.pods(), self.store.len());
        self.gate.verify().unwrap();
    }
}

#[test]
fn no_history_overcommits_or_leaks() {
    #[expect(clippy::disallowed_methods, reason = "the size of the test")]
    let full = std::env::var("TIDEPOOL_FULL").is_ok();
    let histories = if full { 20_000 } else { 2_000 };
    let (mut committed, mut refused) = (0, 0);
    for seed in 1..=histories {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step();
            if step % 16 == 0 {
                world.gate.verify().unwrap();
            }
        }
        world.settle();
        committed += world.committed;
        refused += world.refused;
    }
    // Otherwise the histories prove nothing.
    assert!(committed > 5 * histories, "{committed} commits");
    assert!(refused > 5 * histories, "{refused} refusals");
}
