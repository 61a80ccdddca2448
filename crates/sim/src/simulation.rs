//! The simulated environment of the scheduler: objects as the API would keep them, a clock that only steps move, and a
//! driver that carries out every instruction at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::parse::{self, Manifest};
use api::wire::core;
use api::wire::meta::Time;
use engine::cluster::kinds::{Key, Kind, Object, Update};
use engine::model::{Name, Pod, Resource, Timestamp};
use engine::scheduling::profile::Unoffered;
use engine::scheduling::scheduler::{Annotations, Failure, Input, Nomination, Outcome, Scheduler};
use indexmap::IndexMap;

use crate::tiers::Tiers;
use crate::volumes::Storage;

/// More than any scenario decides; beyond it something goes round in circles.
const MOST_DECISIONS: u64 = 1_000_000;

pub(crate) struct Simulation {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Timestamp,
    pub(crate) nodes: IndexMap<String, core::Node>,
    /// Resources that some node had at some time.
    offered: BTreeSet<Resource>,
    /// By namespace and name; those that are gone too.
    pub(crate) pods: IndexMap<String, SimPod>,
    pub(crate) storage: Storage,
    pub(crate) tiers: Tiers,
    /// Everything but nodes and pods.
    others: BTreeSet<(Kind, Key)>,
    pub(crate) log: Vec<String>,
    /// Pods whose next binding fails.
    pub(crate) refusals: BTreeSet<String>,
    /// Pods that are on their way out, by when they will have left.
    leaving: BTreeMap<(Timestamp, Name), String>,
    births: u64,
    decisions: u64,
}

/// Why a pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    Asked,
    Preempted,
}

/// A pod with what became of it.
pub(crate) struct SimPod {
    /// As the API has it.
    pub(crate) wire: core::Pod,
    pub(crate) pod: Arc<Pod>,
    created: Timestamp,
    /// Since when it is on its node.
    pub(crate) bound: Option<Timestamp>,
    /// How long it takes to leave its node.
    leaves_after: Duration,
    pub(crate) gone: bool,
    /// The message of the last failed attempt.
    pub(crate) message: Option<String>,
    /// Warnings about it.
    pub(crate) warnings: Vec<String>,
    pub(crate) attempts: u32,
    /// It has a node and is not bound yet.
    is_under_way: bool,
}

impl SimPod {
    pub(crate) fn node(&self) -> Option<&str> {
        Some(&self.wire.spec.node_name[..]).filter(|node| !node.is_empty() && !self.gone)
    }
}

/// The key of a pod; a name without namespace is in `default`.
pub(crate) fn key(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("default/{name}")
    }
}

fn key_of(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name)
}

impl Simulation {
    pub(crate) fn new(scheduler: Scheduler) -> Self {
        Self {
            scheduler,
            now: Timestamp(0),
            nodes: IndexMap::new(),
            offered: BTreeSet::new(),
            pods: IndexMap::new(),
            storage: Storage::default(),
            tiers: Tiers::default(),
            others: BTreeSet::new(),
            log: Vec::new(),
            refusals: BTreeSet::new(),
            leaving: BTreeMap::new(),
            births: 0,
            decisions: 0,
        }
    }

    pub(crate) fn log(&mut self, text: impl AsRef<str>) {
        self.log
            .push(format!("{:>8}  {}", seconds(self.now), text.as_ref()));
    }

    /// Sends an input to the scheduler, and checks its invariants.
    pub(crate) fn apply(&mut self, input: Input) -> Result<(), String> {
        self.scheduler
            .apply(input, self.now)
            .map_err(|error| error.to_string())?;
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        let result = self.scheduler.check();
        result.map_err(|text| format!("an invariant of the engine is broken: {text}"))
    }

    /// Parses an object that is neither a node nor a pod.
    pub(crate) fn parse(&mut self, kind: Kind, mut manifest: Manifest) -> Result<Object, String> {
        let meta = manifest.metadata_mut();
        if kind.is_namespaced() && meta.namespace.is_empty() {
            "default".clone_into(&mut meta.namespace);
        }
        if kind == Kind::PersistentVolumeClaim {
            // So that a volume can name the claim it is bound to.
            meta.uid = format!("claim-{}", meta.name);
        }
        let mut warnings = Vec::new();
        let parsed = manifest.parse(&mut warnings);
        for warning in warnings {
            self.log(format!("warning: {warning}"));
        }
        parsed.map_err(|error| error.to_string())
    }

    /// Writes an object that is neither a node nor a pod, new or known.
    pub(crate) fn set_object(&mut self, object: Object) -> Result<(), String> {
        self.others.insert((object.kind(), object.key()));
        self.storage.set(&object);
        self.apply(Input::Object(object.into()))
    }

    /// Deletes an object that is neither a node nor a pod.
    pub(crate) fn delete(&mut self, kind: Kind, key: Key) -> Result<(), String> {
        let known = (kind, key);
        if !self.others.remove(&known) {
            return Err(format!("there is no {kind} `{}`", known.1));
        }
        self.log(format!("{kind} {} is deleted", known.1));
        self.storage.delete(kind, &known.1);
        self.apply(Input::Object(Update::Delete(kind, known.1)))
    }

    /// Writes a node, new or known.
    pub(crate) fn set_node(&mut self, node: core::Node) -> Result<(), String> {
        let parsed = parse::node(&node).map_err(|error| error.to_string())?;
        self.nodes.insert(node.metadata.name.clone(), node);
        self.apply(Input::Object(parsed.into()))?;
        let catalog = self.scheduler.cluster().catalog();
        self.offered.extend(catalog.offered());
        Ok(())
    }

    /// Resources that the configuration names and no node ever had; none if there was no node.
    pub(crate) fn unoffered(&self) -> Vec<Unoffered> {
        let offered: Vec<Resource> = self.offered.iter().cloned().collect();
        match offered.is_empty() {
            true => Vec::new(),
            false => Unoffered::among(self.scheduler.profiles().iter(), &offered),
        }
    }

    /// Pods stay where they were, as they do until a controller deletes them.
    pub(crate) fn delete_node(&mut self, name: &str) -> Result<(), String> {
        if self.nodes.shift_remove(name).is_none() {
            return Err(format!("node `{name}` does not exist"));
        }
        self.log(format!("node {name} is deleted"));
        self.apply(Input::Object(Update::Delete(Kind::Node, name.into())))
    }

    pub(crate) fn node(&self, name: &str) -> Result<core::Node, String> {
        let node = self.nodes.get(name).cloned();
        node.ok_or_else(|| format!("node `{name}` does not exist"))
    }

    pub(crate) fn create_pod(
        &mut self,
        mut wire: core::Pod,
        leaves_after: Duration,
    ) -> Result<(), String> {
        let key = format!("{}/{}", wire.metadata.namespace, wire.metadata.name);
        if self.pods.get(&key).is_some_and(|pod| !pod.gone) {
            return Err(format!("pod `{key}` exists already"));
        }
        let node = &wire.spec.node_name;
        if !node.is_empty() && !self.nodes.contains_key(node) {
            return Err(format!("pod `{key}`: node `{node}` does not exist"));
        }
        self.births += 1;
        wire.metadata.uid = format!("{key}#{}", self.births);
        let bound = (!node.is_empty()).then_some(self.now);
        let pod = parsed(&wire, self.now, bound)?;
        self.pods.insert(
            key,
            SimPod {
                wire,
                pod: pod.clone(),
                created: self.now,
                bound,
                leaves_after,
                gone: false,
                message: None,
                warnings: Vec::new(),
                attempts: 0,
                is_under_way: false,
            },
        );
        self.apply(Input::Pod(pod))
    }

    pub(crate) fn pod(&self, name: &str) -> Result<&SimPod, String> {
        let pod = self.pods.get(&key(name)).filter(|pod| !pod.gone);
        pod.ok_or_else(|| format!("pod `{name}` does not exist"))
    }

    /// Writes a pod as the API would, and lets the scheduler see it.
    pub(crate) fn edit_pod(
        &mut self,
        key: &str,
        edit: impl FnOnce(&mut core::Pod),
    ) -> Result<(), String> {
        let Some(known) = self.pods.get_mut(key).filter(|pod| !pod.gone) else {
            return Ok(());
        };
        edit(&mut known.wire);
        known.pod = parsed(&known.wire, known.created, known.bound)?;
        let pod = known.pod.clone();
        self.apply(Input::Pod(pod))
    }

    /// Deletes a pod. On a node it may take its time, and counts until it has left.
    pub(crate) fn delete_pod(&mut self, key: &str, why: Deletion) -> Result<(), String> {
        let Some(known) = self.pods.get(key).filter(|pod| !pod.gone) else {
            return Err(format!("pod `{key}` does not exist"));
        };
        if known.leaves_after.is_zero() || known.node().is_none() {
            return self.gone(key);
        }
        if known.wire.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let at = self.now.plus(known.leaves_after);
        self.leaving
            .insert((at, known.pod.uid.clone()), key.to_owned());
        self.edit_pod(key, |wire| {
            wire.metadata.deletion_timestamp = Some(Time::default());
            if why == Deletion::Preempted {
                wire.status.conditions.push(core::PodCondition {
                    kind: "DisruptionTarget".to_owned(),
                    status: "True".to_owned(),
                    reason: "PreemptionByScheduler".to_owned(),
                    ..core::PodCondition::default()
                });
            }
        })
    }

    fn gone(&mut self, key: &str) -> Result<(), String> {
        let Some(known) = self.pods.get_mut(key) else {
            return Ok(());
        };
        known.gone = true;
        let uid = known.pod.uid.clone();
        self.apply(Input::PodGone(uid))
    }

    /// Lets time pass, and everything happen that is due meanwhile.
    pub(crate) fn advance(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now.plus(span);
        self.settle()?;
        loop {
            let idle = self.scheduler.idle_until(self.now);
            let leaving = self.leaving.keys().next().map(|(at, _)| *at);
            let due = [idle, leaving, self.publish_due()].into_iter().flatten();
            let Some(due) = due.min() else {
                break;
            };
            if due > end {
                break;
            }
            if due <= self.now {
                let due = seconds(due);
                return Err(format!("something is due at {due} and does not happen"));
            }
            self.now = due;
            self.let_leave()?;
            self.settle()?;
        }
        self.now = end;
        self.settle()
    }

    /// Ends the pods whose time to leave is over.
    fn let_leave(&mut self) -> Result<(), String> {
        while let Some(first) = self.leaving.first_entry()
            && first.key().0 <= self.now
        {
            let key = first.remove();
            self.log(format!("pod {key} has left"));
            self.gone(&key)?;
        }
        Ok(())
    }

    /// Carries out instructions until there are none, and nodes have published what changed.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.decide()?;
        while self.publish()? {
            self.decide()?;
        }
        Ok(())
    }

    fn decide(&mut self) -> Result<(), String> {
        while let Some(outcome) = self.scheduler.schedule_next(self.now) {
            self.decisions += 1;
            if self.decisions > MOST_DECISIONS {
                return Err(format!(
                    "more than {MOST_DECISIONS} decisions: this does not end"
                ));
            }
            self.carry_out(outcome)?;
            self.check()?;
        }
        Ok(())
    }

    fn carry_out(&mut self, outcome: Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Bind {
                pod,
                node,
                annotations,
                ..
            } => self.bind(&pod, &node, annotations),
            Outcome::Prepare { pod, node, work } => {
                self.attempted(&key_of(&pod), true);
                let steps = work.into_iter().flat_map(|(_, work)| work.steps);
                for step in steps {
                    for object in self.storage.carry_out(step) {
                        self.set_object(object)?;
                    }
                }
                self.log(format!(
                    "pod {} gets its volumes for node {node}",
                    key_of(&pod)
                ));
                self.apply(Input::Prepared {
                    uid: pod.uid.clone(),
                    result: Ok(()),
                })
            }
            Outcome::Wait { pod, node, .. } => {
                self.attempted(&key_of(&pod), true);
                self.log(format!(
                    "pod {} waits on permit for node {node}",
                    key_of(&pod)
                ));
                Ok(())
            }
            Outcome::Park(failure) => self.park(failure),
            Outcome::Preempt {
                failure,
                node,
                victims,
                displaced,
            } => self.preempt(failure, &node, &victims, &displaced),
            Outcome::Skip { pod, message } => {
                self.log(format!("pod {}: {message}", key_of(&pod)));
                Ok(())
            }
            Outcome::Warn { pod, message } => {
                let key = key_of(&pod);
                self.log(format!("pod {key} gets a warning: {message}"));
                if let Some(known) = self.pods.get_mut(&key) {
                    known.warnings.push(message);
                }
                Ok(())
            }
            Outcome::Ask { .. } => Err("extenders cannot be asked in a simulation".to_owned()),
        }
    }

    fn attempted(&mut self, key: &str, succeeded: bool) {
        if let Some(known) = self.pods.get_mut(key) {
            // What comes after the choice of a node belongs to the same attempt.
            known.attempts += u32::from(!known.is_under_way);
            known.is_under_way = succeeded;
        }
    }

    fn bind(&mut self, pod: &Pod, node: &Name, annotations: Annotations) -> Result<(), String> {
        let key = key_of(pod);
        self.attempted(&key, true);
        let uid = pod.uid.clone();
        if self.refusals.remove(&key) {
            self.log(format!("pod {key}: the binding to {node} is refused"));
            let result = Err("the binding was refused".to_owned());
            return self.apply(Input::Bound { uid, result });
        }
        self.log(format!("pod {key} is bound to {node}"));
        self.apply(Input::Bound {
            uid,
            result: Ok(()),
        })?;
        let now = self.now;
        if let Some(known) = self.pods.get_mut(&key) {
            known.bound = Some(now);
            known.message = None;
            known.is_under_way = false;
        }
        self.edit_pod(&key, |wire| {
            let annotations = annotations.into_iter();
            let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
            wire.metadata.annotations.extend(annotations);
            wire.spec.node_name = node.to_string();
            wire.status.nominated_node_name.clear();
        })
    }

    fn park(&mut self, failure: Failure) -> Result<(), String> {
        let key = key_of(&failure.pod);
        self.attempted(&key, false);
        self.log(format!("pod {key} waits: {}", failure.message));
        if let Some(known) = self.pods.get_mut(&key) {
            known.message = Some(failure.message);
        }
        let nominated = match failure.nomination {
            Nomination::Keep => return Ok(()),
            Nomination::Clear => String::new(),
            Nomination::Set(node) => node.to_string(),
        };
        let known = self.pods.get(&key);
        if known.is_some_and(|known| known.wire.status.nominated_node_name != nominated) {
            self.edit_pod(&key, |wire| wire.status.nominated_node_name = nominated)?;
        }
        Ok(())
    }

    fn preempt(
        &mut self,
        failure: Failure,
        node: &Name,
        victims: &[Arc<Pod>],
        displaced: &[Arc<Pod>],
    ) -> Result<(), String> {
        let uid = failure.pod.uid.clone();
        let preemptor = key_of(&failure.pod);
        self.park(failure)?;
        for pod in displaced {
            self.edit_pod(&key_of(pod), |wire| wire.status.nominated_node_name.clear())?;
        }
        for victim in victims {
            let key = key_of(victim);
            self.log(format!("pod {key} is evicted from {node} for {preemptor}"));
            self.delete_pod(&key, Deletion::Preempted)?;
        }
        self.apply(Input::PreemptionDone { uid, failed: false })
    }
}

fn parsed(
    wire: &core::Pod,
    created: Timestamp,
    bound: Option<Timestamp>,
) -> Result<Arc<Pod>, String> {
    let mut pod = parse::pod(wire).map_err(|error| error.to_string())?;
    pod.created = created;
    pod.started = bound;
    Ok(Arc::new(pod))
}

/// Time since the beginning, as people write it.
pub(crate) fn seconds(time: Timestamp) -> String {
    let milliseconds = time.0 / 1_000_000;
    match milliseconds % 1_000 {
        0 => format!("{}s", milliseconds / 1_000),
        rest => format!("{}.{rest:03}s", milliseconds / 1_000),
    }
}
