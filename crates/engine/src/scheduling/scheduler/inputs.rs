//! Inputs of the driver: observed pods and other objects, and the results of instructions.

use std::sync::Arc;

use super::{Failure, Input, Outcome, Scheduler, world};
use crate::cluster::UpdateError;
use crate::cluster::kinds::{Key, Kind, Object, Update};
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::framework::{Actions, Change, Changed, Event};
use crate::scheduling::queue::Audience;

impl Scheduler {
    /// Applies an input. An error names an object that cannot be used; nothing has changed then.
    pub fn apply(&mut self, input: Input, now: Timestamp) -> Result<(), UpdateError> {
        let taken = if self.event_hooks.is_empty() {
            self.apply_input(input, now)
        } else {
            self.apply_with_hooks(input, now)
        };
        self.check_if_wanted();
        taken
    }

    pub(super) fn apply_input(&mut self, input: Input, now: Timestamp) -> Result<(), UpdateError> {
        match input {
            Input::Pod(pod) | Input::Object(Update::Set(Object::Pod(pod))) => {
                self.pod_seen(pod, now)?;
            }
            Input::PodGone(uid)
            | Input::Object(Update::Delete(Kind::Pod, Key { name: uid, .. })) => {
                self.pod_gone(&uid, now)?;
            }
            Input::Object(update) => {
                let kind = update.kind();
                let reporting = reporting_node(&update);
                let refused = reporting.as_ref().map(|node| self.refused_zones(node));
                let events = self.cluster.apply(update)?;
                if let (Some(node), Some(refused)) = (&reporting, &refused) {
                    self.warn_of_refused_zones(node, refused);
                }
                self.notify(&events, &Audience::default(), now);
                if kind == Kind::PriorityClass {
                    self.priorities_changed(now)?;
                }
            }
            Input::Bound { uid, result } => self.bound(&uid, result, now),
            Input::Conflict { uid, message } => self.refused(&uid, message, Failure::conflict, now),
            Input::Prepared { uid, result } => self.prepared(&uid, result, now),
            Input::Permit {
                uid,
                plugin,
                verdict,
            } => self.permit_answered(&uid, &plugin, verdict, now),
            Input::Extender {
                uid,
                extender,
                answer,
            } => {
                let conversation = self.conversation.as_mut();
                if let Some(conversation) = conversation.filter(|it| it.uid == uid) {
                    conversation.answer(extender, answer);
                }
            }
            Input::PreemptionDone { uid, failed } => self.preemption_done(&uid, failed, now),
        }
        Ok(())
    }

    fn pod_seen(&mut self, pod: Arc<Pod>, now: Timestamp) -> Result<(), UpdateError> {
        if pod.uid.is_empty() {
            let (namespace, name) = (pod.namespace().clone(), pod.name.clone());
            return Err(UpdateError::NoUid { namespace, name });
        }
        let pod = self.with_priority(pod);
        if pod.kind.terminating {
            self.victim_leaves(&pod.uid);
        }
        if pod.node.is_some() {
            return self.bound_pod_seen(pod, now);
        }
        match (
            self.cluster.placed(&pod.uid),
            self.profiles.find(&pod.scheduler_name),
        ) {
            // A late update: the pod was observed bound since.
            (Some(placed), _) if !placed.assumed => {}
            (Some(_), _) => self.assumed_pod_seen(pod, now),
            (None, Some(profile)) => self.waiting_pod_seen(pod, profile, now),
            (None, None) => {}
        }
        Ok(())
    }

    pub(super) fn bound_pod_seen(
        &mut self,
        pod: Arc<Pod>,
        now: Timestamp,
    ) -> Result<(), UpdateError> {
        let uid = pod.uid.clone();
        let before = self.cluster.placed(&uid).map(|placed| placed.pod.clone());
        let nominated = self.cluster.remove_nomination(&uid);
        let node = pod.node.clone();
        let refused = node.as_ref().map(|node| self.refused_zones(node));
        let events = self.cluster.apply(pod.clone().into())?;
        self.warn_of_zones(&pod, before.as_ref());
        if let (Some(node), Some(refused)) = (&node, &refused) {
            self.warn_of_refused_zones(node, refused);
        }
        self.arrived(&uid, node.as_ref());
        self.unconfirmed.remove(&uid);
        let queue_world = world(&self.profiles, &self.cluster, now);
        self.queue.remove(&uid, queue_world);
        self.notify(&events, &Audience::default(), now);
        // It went to another node than the one that preemption made capacity on.
        if let Some(nominated) = nominated
            && before.is_none()
        {
            self.nomination_ended(&nominated, now);
        }
        Ok(())
    }

    /// Not observed on its node yet: only its deletion matters.
    fn assumed_pod_seen(&mut self, pod: Arc<Pod>, now: Timestamp) {
        let uid = pod.uid.clone();
        if !pod.kind.terminating {
            if let Some(binding) = self.binding.get_mut(&uid) {
                binding.remember(pod.clone());
            }
            // A name belongs to the pod that was observed with it last.
            if let Some(other) = self.queue.find(pod.namespace(), &pod.name)
                && other.pod.uid != uid
            {
                let other = other.pod.uid.clone();
                let queue_world = world(&self.profiles, &self.cluster, now);
                self.queue.remove(&other, queue_world);
            }
            if self.queue.get(&uid).is_some() {
                self.queue.rewrite(pod);
            }
            return;
        }
        self.end_binding(&uid, "the pod is being deleted", now);
        let queue_world = world(&self.profiles, &self.cluster, now);
        self.queue.remove(&uid, queue_world);
    }

    fn waiting_pod_seen(&mut self, pod: Arc<Pod>, profile: usize, now: Timestamp) {
        let uid = pod.uid.clone();
        let before = self.queue.get(&uid).map(|ticket| ticket.pod.clone());
        let ours = before
            .as_ref()
            .and_then(|before| before.nominated_node.clone());
        let told = before.as_ref().map_or(&[][..], |before| &before.warnings);
        for warning in pod.warnings.iter().filter(|text| !told.contains(text)) {
            self.ready.push_back(Outcome::Warn {
                pod: pod.clone(),
                message: warning.clone(),
            });
        }
        let pod = match &pod.nominated_node {
            // The API does not know yet what we decided.
            None if ours.is_some() && self.unconfirmed.contains(&uid) => Arc::new(Pod {
                nominated_node: ours.clone(),
                ..(*pod).clone()
            }),
            Some(_) => {
                self.unconfirmed.remove(&uid);
                pod
            }
            None => pod,
        };
        let new = pod.nominated_node.clone();
        match &new {
            // The pod has a uid and is not placed, so it can be nominated.
            Some(node) => drop(self.cluster.nominate(pod.clone(), node.clone())),
            None => drop(self.cluster.remove_nomination(&uid)),
        }
        let queue_world = world(&self.profiles, &self.cluster, now);
        self.queue.set(pod, profile, queue_world);
        if let Some(before) = before
            && ours.is_some()
            && ours != new
        {
            self.nomination_ended(&before, now);
        }
    }

    fn pod_gone(&mut self, uid: &Name, now: Timestamp) -> Result<(), UpdateError> {
        self.victim_leaves(uid);
        self.preemption_over(uid);
        self.unconfirmed.remove(uid);
        self.end_binding(uid, "the pod is gone", now);
        let nominated = self.cluster.remove_nomination(uid);
        let queue_world = world(&self.profiles, &self.cluster, now);
        self.queue.remove(uid, queue_world);
        let deleted = Update::Delete(Kind::Pod, uid.clone().into());
        let events = self.cluster.apply(deleted)?;
        self.notify(&events, &Audience::default(), now);
        if let Some(nominated) = nominated {
            self.nomination_ended(&nominated, now);
        }
        Ok(())
    }

    /// Capacity that was kept for a pod is free for pods of the same or a lower priority.
    fn nomination_ended(&mut self, pod: &Arc<Pod>, now: Timestamp) {
        let event = Event {
            actions: Actions::DELETE,
            changed: Changed::AssignedPod(Change {
                old: Some(pod.clone()),
                new: None,
            }),
        };
        let audience = Audience {
            at_most: Some(pod.priority),
            but: Some(pod.uid.clone()),
        };
        self.notify(&[event], &audience, now);
    }

    /// The victims of a preemption are being deleted; if not all of them, the pod is tried again.
    fn preemption_done(&mut self, uid: &Name, failed: bool, now: Timestamp) {
        let was_preempting = self.preempting.contains(uid);
        self.preemption_over(uid);
        let gated = self.queue.get(uid).is_some_and(|ticket| ticket.is_gated());
        if failed || (was_preempting && gated) {
            let queue_world = world(&self.profiles, &self.cluster, now);
            self.queue.activate(uid, queue_world);
        }
    }
}

/// The node that reports anew.
fn reporting_node(update: &Update) -> Option<Name> {
    match update {
        Update::Set(Object::CustomNodeResource(report)) => Some(report.node.clone()),
        _ => None,
    }
}
