//! The gate: judges every bind before the API server commits it, one after the other, for all schedulers of a cluster.
//!
//! Two schedulers that see the same free capacity both bind to it, and the kubelet fails the second pod for good. The gate knows
//! what the watches show and what it has allowed itself. An allowed bind takes the capacity of its node at once, as a hold, until
//! the watch shows the pod bound or deleted. So late watches cannot overcommit a node. A bind that is lost on its way leaves a hold
//! behind: after [`SETTLE_TIME`] the pod is read, and the hold of an unbound pod ends.
//!
//! | module | what it is |
//! |---|---|
//! | `checks` | what a bind must not exceed |
//! | `holds` | what was allowed and is not observed yet |
//! | `refusal` | why a bind is refused, in words |

mod checks;
mod holds;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::binding::kubelet::Applicant;
use crate::cluster::kinds::{Key, Update};
use crate::cluster::{Cluster, Corruption};
use crate::model::{Name, Pod, ZoneSet};
pub use holds::{HeldPod, ReadPod, SETTLE_TIME};
use holds::{Hold, Holds};
pub use refusal::BindRefusal;

/// A pod, as far as the gate judges it.
#[derive(Debug, Clone)]
pub struct GatePod {
    pub pod: Arc<Pod>,
    /// `spec.os.name`
    pub os: Option<Name>,
    /// `spec.securityContext.supplementalGroupsPolicy` is `Strict`.
    pub strict_groups: bool,
}

impl GatePod {
    /// A pod with nothing unusual.
    pub fn new(pod: Arc<Pod>) -> Self {
        Self {
            pod,
            os: None,
            strict_groups: false,
        }
    }

    /// A static pod is never bound.
    fn applicant(&self) -> Applicant<'_> {
        Applicant {
            os: self.os.as_deref(),
            strict_groups: self.strict_groups,
            ..Applicant::new(&self.pod)
        }
    }
}

/// What the gate reads of a Node beside the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub uid: Name,
    /// `status.nodeInfo.operatingSystem`; empty is Linux.
    pub os: Name,
    /// `status.features.supplementalGroupsPolicy`
    pub supports_strict_groups: bool,
}

/// A request to bind a pod.
#[derive(Debug, Clone, Default)]
pub struct BindRequest {
    pub namespace: Name,
    pub pod: Name,
    /// `metadata.uid`; empty if the scheduler does not say which pod of this name it means.
    pub uid: Name,
    pub node: Name,
    /// `target.uid`; empty in the binds of most schedulers.
    pub node_uid: Name,
    /// The NUMA zones that the scheduler gives the pod. `None` if the Binding does not name any, which leaves those that the pod's
    /// author wrote.
    pub zones: Option<ZoneSet>,
    /// Nothing is committed, so nothing is held.
    pub dry_run: bool,
}

/// What the gate knows of the pod of a bind.
#[derive(Debug, Clone)]
pub enum KnownPod {
    Waiting(Arc<GatePod>),
    /// It has a node already: the API server refuses the bind itself.
    Bound,
    /// The watch has not shown it, or shows another pod of this name: it must be read.
    Unknown,
}

/// Judges binds.
#[derive(Debug, Clone)]
pub struct BindGate {
    /// Bound pods as observed, and holds as assumed pods under uids of their own.
    cluster: Cluster,
    waiting: HashMap<Key, Arc<GatePod>>,
    machines: HashMap<Name, Machine>,
    holds: Holds,
}

impl Default for BindGate {
    fn default() -> Self {
        Self {
            cluster: Cluster::new(),
            waiting: HashMap::new(),
            machines: HashMap::new(),
            holds: Holds::default(),
        }
    }
}

impl BindGate {
    /// A Node, CustomNodeResource or ResourcePolicy was observed, or its deletion.
    pub fn apply(&mut self, update: Update) {
        // Only pods can be invalid, and they have a method of their own.
        let _ = self.cluster.apply(update);
    }

    pub fn set_machine(&mut self, node: Name, machine: Machine) {
        self.machines.insert(node, machine);
    }

    pub fn remove_machine(&mut self, node: &str) {
        self.machines.remove(node);
    }

    /// A pod that has not ended was observed.
    pub fn set_pod(&mut self, pod: GatePod) {
        let key = key_of(&pod.pod);
        if pod.pod.node.is_none() {
            self.waiting.insert(key, Arc::new(pod));
            return;
        }
        self.forget_waiting(&key, &pod.pod.uid);
        self.release(&pod.pod.uid, |_| true);
        // It fails for a pod without a uid, which the API server does not send.
        let _ = self.cluster.set_pod(pod.pod);
    }

    /// A pod ended or was deleted.
    pub fn remove_pod(&mut self, key: &Key, uid: &str) {
        self.forget_waiting(key, uid);
        self.release(uid, |_| true);
        self.cluster.remove_pod(uid);
    }

    fn forget_waiting(&mut self, key: &Key, uid: &str) {
        let known = self.waiting.get(key);
        if known.is_some_and(|known| *known.pod.uid == *uid) {
            self.waiting.remove(key);
        }
    }

    /// The pod that a bind is about. Without a uid it may be another pod of the same name by now, so it is unknown.
    pub fn find(&self, request: &BindRequest) -> KnownPod {
        if request.uid.is_empty() {
            return KnownPod::Unknown;
        }
        if self.cluster.placed(&request.uid).is_some() {
            return KnownPod::Bound;
        }
        let key = Key::new(request.namespace.clone(), request.pod.clone());
        match self.waiting.get(&key) {
            Some(known) if known.pod.uid == request.uid => KnownPod::Waiting(known.clone()),
            _ => KnownPod::Unknown,
        }
    }

    /// Judges a bind of this pod, and holds what an allowed one takes.
    pub fn judge(
        &mut self,
        pod: &GatePod,
        request: &BindRequest,
        now: Duration,
    ) -> Result<(), BindRefusal> {
        let uid = &pod.pod.uid;
        if !request.uid.is_empty() && request.uid != *uid {
            return Err(BindRefusal::PodReplaced {
                wanted: request.uid.clone(),
                found: uid.clone(),
            });
        }
        if pod.pod.node.is_some() || self.cluster.placed(uid).is_some() {
            return Ok(());
        }
        let candidate = Arc::new(Pod {
            uid: holds::uid_of(uid, &request.node),
            // As the annotation of the pod will be: that of the Binding replaces the pod's own.
            zones: request.zones.or(pod.pod.claims.zones),
            ..(*pod.pod).clone()
        });
        // A bind that is sent again takes nothing more.
        let before = self.cluster.remove_pod(&candidate.uid);
        let judged = self.check(pod, &candidate, request).and_then(|()| {
            if before.is_none() && !request.dry_run && self.holds.is_full(uid) {
                return Err(BindRefusal::TooManyBinds);
            }
            Ok(())
        });
        let is_held = judged.is_ok() && !request.dry_run;
        // The bind before it may still be committed, even if this one is refused.
        let held = if is_held { Some(candidate) } else { before };
        if let Some(held) = held {
            let _ = self.cluster.assume(held, request.node.clone());
        }
        if is_held {
            self.holds.add(&pod.pod, &request.node, now);
        }
        judged
    }

    /// The pods to read now, because their binds are late. Each is returned again if there is no answer for a while.
    pub fn late_pods(&mut self, now: Duration) -> Vec<HeldPod> {
        self.holds.late(now)
    }

    /// A late pod was read at a time after `since`.
    pub fn settle(&mut self, uid: &str, read: &ReadPod, since: Duration) {
        self.release(uid, |hold| match read {
            ReadPod::Gone => true,
            // A bind that was allowed lately may be on its way.
            ReadPod::Unbound => hold.is_late(since),
            // The watch will show it there.
            ReadPod::On(node) => hold.node != *node,
        });
    }

    fn release(&mut self, uid: &str, ends: impl Fn(&Hold) -> bool) {
        for node in self.holds.release(uid, ends) {
            self.cluster.remove_pod(&holds::uid_of(uid, &node));
        }
    }

    /// How many binds are allowed and not yet settled.
    pub fn holds(&self) -> usize {
        self.holds.len()
    }

    /// How many pods the watches show.
    pub fn pods(&self) -> usize {
        self.waiting.len() + self.cluster.placed_count() - self.holds.len()
    }

    pub fn nodes(&self) -> usize {
        self.cluster.nodes().len()
    }

    /// Whether all sums follow from the objects and the holds.
    pub fn verify(&self) -> Result<(), Corruption> {
        self.cluster.check()
    }
}

fn key_of(pod: &Pod) -> Key {
    Key::new(pod.namespace().clone(), pod.name.clone())
}

#[cfg(test)]
mod tests;
