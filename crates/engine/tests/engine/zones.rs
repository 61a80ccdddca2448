//! A long random history of pods with NUMA zones: created, bound, refused, deleted, resized, evicted; reports of agents that
//! come late or are wrong; annotations that users edit; schedulers that start anew.
//!
//! After every step the zones of all pods are compared by a plain record of what the API server has: no pod has a zone that
//! another has alone. `TIDEPOOL_FULL` has a million steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::cluster::kinds::{Kind, Update};
use engine::model::{Name, NumaBinding, Pod, Resource, Timestamp, ZoneSet};
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use engine::testing::{Numbers, node, pod, report};

const NODES: u64 = 3;
const ZONES: u8 = 4;
const PODS: usize = 24;

/// A pod as the API server has it.
#[derive(Clone)]
struct Record {
    pod: Arc<Pod>,
    /// A user changed its annotation, or let it grow again after it had given zones back, so nothing holds for it.
    is_edited: bool,
}

struct World {
    scheduler: Scheduler,
    numbers: Numbers,
    now: Timestamp,
    pods: BTreeMap<Name, Record>,
    /// Bindings that were sent and not answered.
    sent: Vec<(Arc<Pod>, Name)>,
    /// Reports that the agents made, with the allocations that they saw, some of which arrive later.
    late: Vec<Update>,
    created: u64,
    bound: u64,
    waited: u64,
    evicted: u64,
}

fn scheduler() -> Scheduler {
    let ours = [("QoSAwareNodeResourcesFit", 1), ("NodeResourceTopology", 1)];
    let names = ours.into_iter().chain(plugins::DEFAULT.iter().copied());
    let enabled = names.map(|(name, weight)| {
        let entry = plugins::find(name).unwrap();
        Enabled::new(entry, weight.max(1)).unwrap()
    });
    let profile = Profile::new("default-scheduler", enabled.collect());
    Scheduler::new(vec![profile], Settings::default()).unwrap()
}

/// The zones that the request of a pod can need, among those in its annotation.
fn needed(pod: &Pod) -> ZoneSet {
    let (Some(zones), Some(binding)) = (pod.zones, pod.numa_binding()) else {
        return ZoneSet::EMPTY;
    };
    let placed = &pod.requests.placed;
    zones.needed(binding, |zones| {
        let count = zones.iter().count() as i64;
        placed.get(&Resource::Cpu) <= count * 4_000
            && placed.get(&Resource::Memory) <= count * (8 << 30)
    })
}

fn node_name(index: u64) -> Name {
    format!("n{index}").into()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            scheduler: scheduler(),
            numbers: Numbers::new(seed),
            now: Timestamp::from_secs(1_000),
            pods: BTreeMap::new(),
            sent: Vec::new(),
            late: Vec::new(),
            created: 0,
            bound: 0,
            waited: 0,
            evicted: 0,
        };
        world.show_nodes();
        world
    }

    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.now).unwrap();
    }

    fn show_nodes(&mut self) {
        for index in 0..NODES {
            let machine = node(&node_name(index)).allocatable("cpu=16 memory=32Gi");
            self.apply(Input::Object(Update::from(machine.build())));
            let report = self.report(index);
            self.apply(Input::Object(report));
        }
    }

    /// What the agent of a node sees.
    fn report(&mut self, index: u64) -> Update {
        let name = node_name(index);
        let mut found = report(&name).lends(8_000, 8 << 30);
        for id in 0..ZONES {
            found = found.zone(&(id / 2).to_string(), id, "cpu=4 memory=8Gi");
        }
        let on_it = self
            .pods
            .values()
            .filter(|it| it.pod.node.as_ref() == Some(&name));
        let seen: Vec<(Name, ZoneSet)> = on_it
            .filter_map(|it| Some((it.pod.uid.clone(), it.pod.zones?)))
            .collect();
        for (uid, zones) in seen {
            for id in zones.iter() {
                found = found.allocation(id, &uid, "cpu=1 memory=1Gi");
            }
        }
        Update::from(found)
    }

    /// Names a pod, or none, in a zone where it need not be.
    fn wrong_report(&mut self) -> Update {
        let index = self.numbers.below(NODES);
        let id = self.numbers.below(u64::from(ZONES)) as u8;
        let uid = self.any_pod().unwrap_or_else(|| "unknown".into());
        let zones = (0..ZONES).fold(report(&node_name(index)), |found, id| {
            found.zone(&(id / 2).to_string(), id, "cpu=4 memory=8Gi")
        });
        Update::from(zones.allocation(id, &uid, "cpu=4"))
    }

    fn any_pod(&mut self) -> Option<Name> {
        let count = self.pods.len() as u64;
        let position = (count > 0).then(|| self.numbers.below(count))?;
        self.pods.keys().nth(position as usize).cloned()
    }

    fn requests(&mut self) -> String {
        let (cpu, memory) = (1 + self.numbers.below(9), 1 + self.numbers.below(9));
        format!("cpu={cpu} memory={memory}Gi")
    }

    fn create(&mut self) {
        if self.pods.len() >= PODS {
            return;
        }
        self.created += 1;
        let requests = self.requests();
        let mut new = pod(&format!("p{}", self.created)).container(&requests);
        match self.numbers.below(6) {
            0 => new = new.container("cpu=1"),
            1 => new = new.dedicated(Some(false)),
            2 => new = new.dedicated(Some(true)).priority(10),
            _ => new = new.dedicated(None),
        }
        let created = Timestamp::from_secs(self.created as i64);
        let new = new.with(|pod| pod.created = created).build();
        let record = Record {
            pod: new.clone(),
            is_edited: false,
        };
        self.pods.insert(new.uid.clone(), record);
        self.apply(Input::Pod(new));
    }

    fn delete(&mut self, uid: &Name) {
        self.pods.remove(uid);
        self.sent.retain(|(pod, _)| pod.uid != *uid);
        self.apply(Input::PodGone(uid.clone()));
    }

    fn decide(&mut self) {
        match self.scheduler.schedule_next(self.now) {
            Some(Outcome::Bind {
                pod,
                node,
                annotations,
                ..
            }) => {
                let given = annotations
                    .iter()
                    .find(|(key, _)| *key == "tidepool.io/numa-zones");
                let given = given.map(|(_, text)| ZoneSet::parse(text).unwrap());
                assert_eq!(given, pod.zones, "the annotation has the zones");
                self.sent.push((pod, node));
            }
            Some(Outcome::Preempt {
                victims, failure, ..
            }) => {
                for victim in victims {
                    self.evicted += 1;
                    self.delete(&victim.uid);
                }
                let uid = failure.pod.uid.clone();
                self.apply(Input::PreemptionDone { uid, failed: false });
            }
            Some(Outcome::Park(_)) => self.waited += 1,
            _ => {}
        }
    }

    /// The API server answers a binding, and shows the pod at once or not at all yet.
    fn answer(&mut self) {
        let count = self.sent.len() as u64;
        if count == 0 {
            return;
        }
        let (pod, node) = self.sent.remove(self.numbers.below(count) as usize);
        let uid = pod.uid.clone();
        if self.numbers.below(4) == 0 {
            let result = Err("refused".to_owned());
            return self.apply(Input::Bound { uid, result });
        }
        self.bound += 1;
        self.bind(&pod, node);
        self.apply(Input::Bound {
            uid: uid.clone(),
            result: Ok(()),
        });
        if self.numbers.below(2) == 0 {
            self.show(&uid);
        }
    }

    /// The API server writes the binding.
    fn bind(&mut self, pod: &Arc<Pod>, node: Name) {
        if let Some(record) = self.pods.get_mut(&pod.uid) {
            let mut bound = (**pod).clone();
            bound.node = Some(node);
            record.pod = Arc::new(bound);
        }
    }

    fn show(&mut self, uid: &Name) {
        if let Some(record) = self.pods.get(uid) {
            let pod = record.pod.clone();
            self.apply(Input::Pod(pod));
        }
    }

    fn resize(&mut self, uid: &Name) {
        let requests = self.requests();
        let Some(record) = self.pods.get_mut(uid) else {
            return;
        };
        if record.pod.node.is_some() {
            let mut resized = (*record.pod).clone();
            resized.requests = pod("p").container(&requests).build().requests.clone();
            // It gives back what it needs no more, and another pod may have that when it grows.
            record.is_edited |= needed(&resized).without(needed(&record.pod)) != ZoneSet::EMPTY;
            record.pod = Arc::new(resized);
            self.show(uid);
        }
    }

    fn edit(&mut self, uid: &Name) {
        let zone = ZoneSet::of(self.numbers.below(u64::from(ZONES)) as u8);
        let Some(record) = self.pods.get_mut(uid) else {
            return;
        };
        if record.pod.node.is_some() {
            record.is_edited = true;
            Arc::make_mut(&mut record.pod).zones = zone;
            self.show(uid);
        }
    }

    /// Bindings that were sent are written or lost; the new scheduler learns what the API server has.
    fn restart(&mut self) {
        for (pod, node) in std::mem::take(&mut self.sent) {
            if self.numbers.below(2) == 0 {
                self.bind(&pod, node);
            }
        }
        self.scheduler = scheduler();
        let pods: Vec<Name> = self.pods.keys().cloned().collect();
        pods.iter().for_each(|uid| self.show(uid));
        self.show_nodes();
    }

    fn step(&mut self) {
        match self.numbers.below(100) {
            0..20 => self.create(),
            20..60 => self.decide(),
            60..78 => self.answer(),
            78..86 => {
                if let Some(uid) = self.any_pod() {
                    self.delete(&uid);
                }
            }
            86..89 => {
                if let Some(uid) = self.any_pod() {
                    self.show(&uid);
                }
            }
            89..91 => {
                if let Some(uid) = self.any_pod() {
                    self.resize(&uid);
                }
            }
            91 => {
                let index = self.numbers.below(NODES);
                let found = self.report(index);
                self.late.push(found);
            }
            92..94 => {
                if let Some(found) = self.late.pop() {
                    self.apply(Input::Object(found));
                }
            }
            94 => {
                let found = self.wrong_report();
                self.apply(Input::Object(found));
            }
            95 => match self.numbers.below(8) {
                0 => {
                    if let Some(uid) = self.any_pod() {
                        self.edit(&uid);
                    }
                }
                1 => {
                    let name = node_name(self.numbers.below(NODES));
                    let gone = Update::Delete(Kind::CustomNodeResource, name.into());
                    self.apply(Input::Object(gone));
                }
                2 => self.restart(),
                _ => self.show_nodes(),
            },
            _ => self.now = self.now.plus(Duration::from_secs(20)),
        }
    }

    /// By the API server's record and the bindings that are on their way.
    fn check(&self) {
        let mut owners: BTreeMap<(Name, u8), Vec<(Name, bool)>> = BTreeMap::new();
        let bound = self.pods.values().filter(|record| !record.is_edited);
        let bound = bound.filter_map(|it| Some((&it.pod, it.pod.node.clone()?)));
        let sent = self.sent.iter().map(|(pod, node)| (pod, node.clone()));
        for (pod, node) in bound.chain(sent) {
            let is_alone = pod.numa_binding() == Some(NumaBinding::Exclusive);
            for id in needed(pod).iter() {
                let zone = owners.entry((node.clone(), id)).or_default();
                zone.push((pod.uid.clone(), is_alone));
            }
        }
        for (zone, owners) in owners {
            let is_shared = owners.len() == 1 || owners.iter().all(|(_, is_alone)| !is_alone);
            assert!(is_shared, "zone {zone:?} has the owners {owners:?}");
        }
    }
}

#[test]
fn no_zone_has_two_owners() {
    let is_full = std::env::var_os("TIDEPOOL_FULL").is_some();
    let steps = if is_full { 1_000_000 } else { 100_000 };
    let mut world = World::new(0x7a6f_6e65);
    for step in 0..steps {
        world.step();
        world.check();
        if step % 97 == 0
            && let Err(broken) = world.scheduler.check()
        {
            panic!("{broken} after step {step}");
        }
    }
    let found = [world.bound, world.waited, world.evicted];
    assert!(
        found[0] > steps / 50 && found[1] > steps / 50 && found[2] > steps / 1000,
        "bound, waited and evicted: {found:?}"
    );
}
