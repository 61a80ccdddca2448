//! Pods in their scheduling cycle, and the events meanwhile.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::Audience;
use crate::model::Name;
use crate::scheduling::framework::Event;

/// Events kept for pods in flight. A pod that waits while more happens is simply tried again.
const MOST_EVENTS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The number of the first event that each pod may have missed.
    since: HashMap<Name, u64>,
    /// How many pods have each number.
    pods: BTreeMap<u64, usize>,
    events: VecDeque<(Event, Audience)>,
    /// Number of the first kept event.
    first: u64,
}

/// What a pod missed.
pub(super) enum Missed<'a> {
    /// More than is kept.
    TooMuch,
    Events(Vec<&'a (Event, Audience)>),
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.since.len()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.since.contains_key(uid)
    }

    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    pub(super) fn begin(&mut self, uid: Name) {
        let next = self.first + self.events.len() as u64;
        if self.since.insert(uid, next).is_none() {
            *self.pods.entry(next).or_default() += 1;
        }
    }

    pub(super) fn record(&mut self, event: &Event, audience: &Audience) {
        if self.since.is_empty() {
            return;
        }
        self.events.push_back((event.clone(), audience.clone()));
        if self.events.len() > MOST_EVENTS {
            self.events.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn missed(&self, uid: &str) -> Missed<'_> {
        let Some(since) = self.since.get(uid) else {
            return Missed::Events(Vec::new());
        };
        match since.checked_sub(self.first) {
            None => Missed::TooMuch,
            Some(from) => Missed::Events(self.events.iter().skip(from as usize).collect()),
        }
    }

    /// The cycle of the pod ended. Events that no other pod can have missed are dropped.
    pub(super) fn end(&mut self, uid: &str) {
        let Some(number) = self.since.remove(uid) else {
            return;
        };
        if let Some(pods) = self.pods.get_mut(&number) {
            *pods -= 1;
            if *pods == 0 {
                self.pods.remove(&number);
            }
        }
        match self.pods.first_key_value() {
            None => {
                self.first += self.events.len() as u64;
                self.events.clear();
            }
            Some((&keep, _)) => {
                while self.first < keep && self.events.pop_front().is_some() {
                    self.first += 1;
                }
            }
        }
    }
}
