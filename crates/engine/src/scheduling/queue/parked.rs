//! Pods that wait for an event, kept by the events that can help them: an event costs only the pods it can help.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use indexmap::{IndexMap, IndexSet};

use super::{Audience, Rejectors, World};
use crate::cluster::capacity::shrink_map;
use crate::model::{Name, Pod, PodShape, Timestamp};
use crate::scheduling::framework::Event;
use crate::scheduling::profile::Hint;

/// Pods in the same situation. Whether an event can matter to them is computed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Situation {
    pub(super) profile: usize,
    pub(super) rejectors: Rejectors,
    pub(super) gate: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(super) struct Parked {
    /// Pods of one shape are equal to every hint. Whether an event helps them is computed once.
    situations: IndexMap<Situation, IndexMap<PodShape, IndexSet<Name>>>,
    addresses: HashMap<Name, Address>,
    /// How many wait for a gate.
    gated: usize,
    /// When each pod is tried again whatever happens, and the pod.
    deadlines: BTreeSet<(Timestamp, Name)>,
}

#[derive(Debug)]
struct Address {
    situation: Situation,
    shape: PodShape,
    deadline: Timestamp,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn gated(&self) -> usize {
        self.gated
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
        let shape = PodShape::of(pod);
        self.situations
            .entry(situation.clone())
            .or_default()
            .entry(shape.clone())
            .or_default()
            .insert(pod.uid.clone());
        self.gated += usize::from(situation.gate.is_some());
        self.deadlines.insert((deadline, pod.uid.clone()));
        self.addresses.insert(
            pod.uid.clone(),
            Address {
                situation,
                shape,
                deadline,
            },
        );
    }

    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let Some((uid, address)) = self.addresses.remove_entry(uid) else {
            return false;
        };
        shrink_map(&mut self.addresses);
        self.gated -= usize::from(address.situation.gate.is_some());
        self.deadlines.remove(&(address.deadline, uid.clone()));
        if let Some(classes) = self.situations.get_mut(&address.situation) {
            if let Some(pods) = classes.get_mut(&address.shape) {
                pods.swap_remove(&uid);
                if pods.is_empty() {
                    classes.swap_remove(&address.shape);
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
            for (shape, uids) in classes {
                let pod = shape.pod();
                if audience
                    .at_most
                    .is_some_and(|priority| pod.priority > priority)
                {
                    continue;
                }
                let hint =
                    world
                        .profiles
                        .hint(situation.profile, rejectors, pod, event, world.catalog);
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
        let gated = self
            .addresses
            .values()
            .filter(|address| address.situation.gate.is_some());
        listed == self.addresses.len()
            && self.deadlines.len() == self.addresses.len()
            && gated.count() == self.gated
    }
}
