//! Pods that wait for an event, kept by the events that can help them: an event costs only the pods it can help.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use indexmap::{IndexMap, IndexSet};

use super::{Audience, Rejectors, World};
use crate::framework::Event;
use crate::model::{Name, Pod, Timestamp, VolumeSource};
use crate::profile::Hint;

/// Pods in the same situation. Whether an event can matter to them is computed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Situation {
    pub(super) profile: usize,
    pub(super) rejectors: Rejectors,
    pub(super) gate: Option<&'static str>,
}

/// Pods that are equal to every hint. Whether an event helps them is computed once.
#[derive(Debug, Clone)]
struct Alike(Arc<Pod>);

#[derive(Debug, Default)]
pub(super) struct Parked {
    situations: IndexMap<Situation, IndexMap<Alike, IndexSet<Name>>>,
    addresses: HashMap<Name, Address>,
    /// When each pod is tried again whatever happens, and the pod.
    deadlines: BTreeSet<(Timestamp, Name)>,
}

#[derive(Debug)]
struct Address {
    situation: Situation,
    alike: Alike,
    deadline: Timestamp,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn gated(&self) -> usize {
        let gated = self.situations.iter().filter(|(s, _)| s.gate.is_some());
        gated
            .flat_map(|(_, alike)| alike.values())
            .map(IndexSet::len)
            .sum()
    }

    pub(super) fn deadline_of(&self, uid: &str) -> Option<Timestamp> {
        Some(self.addresses.get(uid)?.deadline)
    }

    pub(super) fn first_deadline(&self) -> Option<Timestamp> {
        Some(self.deadlines.first()?.0)
    }

    /// The next pod whose deadline is over.
    pub(super) fn overdue(&self, now: Timestamp) -> Option<Name> {
        let (deadline, uid) = self.deadlines.first()?;
        (*deadline < now).then(|| uid.clone())
    }

    pub(super) fn insert(&mut self, pod: &Arc<Pod>, situation: Situation, deadline: Timestamp) {
        self.remove(&pod.uid);
        let alike = Alike(pod.clone());
        self.situations
            .entry(situation.clone())
            .or_default()
            .entry(alike.clone())
            .or_default()
            .insert(pod.uid.clone());
        self.deadlines.insert((deadline, pod.uid.clone()));
        self.addresses.insert(
            pod.uid.clone(),
            Address {
                situation,
                alike,
                deadline,
            },
        );
    }

    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let Some((uid, address)) = self.addresses.remove_entry(uid) else {
            return false;
        };
        self.deadlines.remove(&(address.deadline, uid.clone()));
        if let Some(classes) = self.situations.get_mut(&address.situation) {
            if let Some(pods) = classes.get_mut(&address.alike) {
                pods.swap_remove(&uid);
                if pods.is_empty() {
                    classes.swap_remove(&address.alike);
                }
            }
            if classes.is_empty() {
                self.situations.swap_remove(&address.situation);
            }
        }
        true
    }

    /// The pods that an event helps, and how.
    pub(super) fn helped(
        &self,
        event: &Event,
        audience: &Audience,
        world: World,
    ) -> Vec<(Name, Hint)> {
        let mut helped = Vec::new();
        for (situation, classes) in &self.situations {
            let rejectors = &situation.rejectors;
            // A gated pod waits for its gate first.
            let waits_for = match &situation.gate {
                None => &rejectors.plugins[..],
                Some(gate) => std::slice::from_ref(gate),
            };
            if !world
                .profiles
                .any_hears(situation.profile, waits_for, event)
            {
                continue;
            }
            for (Alike(pod), uids) in classes {
                if audience
                    .at_most
                    .is_some_and(|priority| pod.priority > priority)
                {
                    continue;
                }
                let hint = rejectors.hint(situation.profile, pod, event, world);
                if hint != Hint::Skip {
                    let meant = uids
                        .iter()
                        .filter(|uid| Some(*uid) != audience.but.as_ref());
                    helped.extend(meant.map(|uid| (uid.clone(), hint)));
                }
            }
        }
        helped
    }

    /// Every index names every pod once.
    pub(super) fn is_consistent(&self) -> bool {
        let listed: usize = self
            .situations
            .values()
            .flat_map(IndexMap::values)
            .map(IndexSet::len)
            .sum();
        listed == self.addresses.len() && self.deadlines.len() == self.addresses.len()
    }
}

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.kind.hash(state);
        self.0.priority.hash(state);
    }
}

impl Eq for Alike {}

impl PartialEq for Alike {
    /// Equal in everything but who the pod is and when it came.
    fn eq(&self, other: &Self) -> bool {
        // Every field is named, so that a new one must be thought about here.
        let Pod {
            name,
            uid: _,
            created: _,
            started: _,
            show_scores: _,
            kind,
            node,
            nominated_node,
            scheduler_name,
            priority,
            open_priority,
            preemption_policy,
            requests,
            nodes,
            preferred_nodes,
            tolerations,
            spread,
            scheduling_gates,
            owner,
            images,
            image_volumes,
            volumes,
            resource_claims,
            generated_claims,
            needed_features,
            qos,
            level,
            enhancements,
            preempted,
            affinity_errors,
            spread_errors,
            warnings: _,
        } = &*self.0;
        let b = &*other.0;
        // The claims of ephemeral volumes are named after the pod, and so may those of resource claims be.
        let named = !resource_claims.is_empty()
            || volumes
                .iter()
                .any(|volume| volume.source == VolumeSource::Ephemeral);
        (!named || *name == b.name)
            && *kind == b.kind
            && *requests == b.requests
            && *node == b.node
            && *nominated_node == b.nominated_node
            && *scheduler_name == b.scheduler_name
            && *priority == b.priority
            && *open_priority == b.open_priority
            && *preemption_policy == b.preemption_policy
            && *nodes == b.nodes
            && *preferred_nodes == b.preferred_nodes
            && *tolerations == b.tolerations
            && *spread == b.spread
            && *scheduling_gates == b.scheduling_gates
            && *owner == b.owner
            && *images == b.images
            && *image_volumes == b.image_volumes
            && *volumes == b.volumes
            && *resource_claims == b.resource_claims
            && *generated_claims == b.generated_claims
            && *needed_features == b.needed_features
            && *qos == b.qos
            && *level == b.level
            && *enhancements == b.enhancements
            && *preempted == b.preempted
            && *affinity_errors == b.affinity_errors
            && *spread_errors == b.spread_errors
    }
}
