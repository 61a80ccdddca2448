//! The scheduling queue: the order of the pods that wait, and what each waits for. It decides nothing about nodes.
//!
//! A pod is in exactly one place:
//!
//! | place | until |
//! |---|---|
//! | active | it is popped, in the order of the QueueSort plugin; `active.rs` is fair to newcomers |
//! | backoff | its backoff ends, or no other pod is left to try |
//! | parked | an event may help it, at the latest after five minutes |
//! | in flight | its scheduling cycle ends; events meanwhile are kept for it |
//!
//! Time comes in with every call, and the timing is kube-scheduler's. Repeated, late and contradictory updates of a
//! pod are normal: the last one holds.

mod active;
mod arrivals;
mod backoff;
mod heap;
mod in_flight;
mod parked;
#[cfg(test)]
mod tests;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::cluster::Catalog;
use crate::cluster::capacity::shrink_map;
use crate::cluster::kinds::pod_actions;
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::framework::{Change, Changed, Event};
pub use crate::scheduling::profile::Rejectors;
use crate::scheduling::profile::{Hint, Profiles};
use active::Active;
use arrivals::Arrivals;
pub use arrivals::{Cause, SubQueue};
use backoff::Backoffs;
use heap::Item;
use in_flight::{InFlight, Missed};
use parked::{Parked, Situation};
pub use ticket::{Attempt, Audience, Ticket, Whereabouts};

/// How often the queue looks for pods that are parked for too long.
const FLUSH_PERIOD: Duration = Duration::from_secs(30);

/// A pod's own changes that are kept while it is in flight; with more, it is simply tried again.
const MOST_OWN_EVENTS: usize = 64;

/// How long pods wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// After the first failure; doubled with each further one.
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// A parked pod that nothing helps is tried again after this long.
    pub longest_parked: Duration,
}

impl Default for Timing {
    /// kube-scheduler's: 1 s, 10 s and 5 min.
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            longest_parked: Duration::from_secs(300),
        }
    }
}

/// What the queue looks at but does not keep.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub profiles: &'a Profiles,
    pub catalog: &'a Catalog,
    pub now: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location {
    Active,
    Backoff,
    Parked,
    InFlight,
}

#[derive(Debug)]
struct QueuedPod {
    ticket: Ticket,
    place: Location,
    /// What happened to the pod itself while in flight.
    own_events: Vec<Event>,
}

/// How many pods are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
    pub in_flight: usize,
}

#[derive(Debug, Default)]
pub struct Queue {
    timing: Timing,
    /// In boxes: the table has space for twice as many.
    entries: HashMap<Name, Box<QueuedPod>>,
    /// Namespace and name to uid: a new pod under a known name means that the old one is gone.
    names: HashMap<(Name, Name), Name>,
    active: Active,
    backoffs: Backoffs,
    parked: Parked,
    in_flight: InFlight,
    arrivals: Arrivals,
    next_sequence: u64,
    /// When the queue was first used: the periods of the flush begin here.
    begun: Option<Timestamp>,
}

impl Queue {
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            ..Self::default()
        }
    }

    pub fn sizes(&self) -> Sizes {
        let gated = self.parked.gated();
        Sizes {
            active: self.active.len(),
            backoff: self.backoffs.len(),
            unschedulable: self.parked.len() - gated,
            gated,
            in_flight: self.in_flight.len(),
        }
    }

    /// How often pods came where, and why, since this was last asked.
    pub fn take_arrivals(&mut self) -> Vec<(SubQueue, Cause, u64)> {
        self.arrivals.take()
    }

    /// The pod that waits longest.
    pub fn oldest(&self) -> Option<&Ticket> {
        let tickets = self.entries.values().map(|entry| &entry.ticket);
        tickets.min_by_key(|ticket| (ticket.waits_since(), ticket.sequence))
    }

    /// The pod as last heard of, wherever it waits.
    pub fn get(&self, uid: &str) -> Option<&Ticket> {
        Some(&self.entries.get(uid)?.ticket)
    }

    /// All pods, in the order in which they first came.
    pub fn tickets(&self) -> Vec<&Ticket> {
        let mut tickets: Vec<&Ticket> = self.entries.values().map(|entry| &entry.ticket).collect();
        tickets.sort_by_key(|ticket| ticket.sequence);
        tickets
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<&Ticket> {
        let uid = self.names.get(&(namespace.into(), name.into()))?;
        self.get(uid)
    }

    pub fn whereabouts(&self, uid: &str) -> Option<Whereabouts> {
        Some(match self.entries.get(uid)?.place {
            Location::Active => Whereabouts::Active,
            Location::Backoff => Whereabouts::Backoff {
                until: self.backoffs.release_of(uid)?,
            },
            Location::Parked => Whereabouts::Parked {
                latest_retry: self.latest_retry(uid)?,
            },
            Location::InFlight => Whereabouts::InFlight,
        })
    }

    /// Writes down how the last attempt ended.
    pub fn note(&mut self, uid: &str, attempt: Arc<Attempt>) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.ticket.last = Some(attempt);
        }
    }

    /// A pod came or changed.
    pub fn set(&mut self, pod: Arc<Pod>, profile: usize, world: World) {
        self.begun.get_or_insert(world.now);
        let name = name_of(&pod);
        // A uid keeps its name. If an update says otherwise, the old name must not stay behind.
        if let Some(entry) = self.entries.get(&pod.uid)
            && name_of(&entry.ticket.pod) != name
        {
            self.names.remove(&name_of(&entry.ticket.pod));
        }
        if let Some(old) = self.names.insert(name, pod.uid.clone())
            && old != pod.uid
        {
            self.drop_entry(&old, world);
        }
        if self.entries.contains_key(&pod.uid) {
            return self.update(pod, world);
        }
        self.next_sequence += 1;
        let uid = pod.uid.clone();
        let ticket = Ticket {
            pod,
            profile,
            attempts: 0,
            first_tried: None,
            last: None,
            since: world.now,
            rejections: 0,
            errors: 0,
            conflicts: 0,
            rejectors: Rejectors::default(),
            gate: None,
            flushed: None,
            sequence: self.next_sequence,
        };
        self.insert(ticket, Location::InFlight);
        self.settle(&uid, Hint::Immediately, Cause::NEW, world);
    }

    fn update(&mut self, pod: Arc<Pod>, world: World) {
        let Some(entry) = self.entries.get_mut(&pod.uid) else {
            return;
        };
        let old = std::mem::replace(&mut entry.ticket.pod, pod.clone());
        if old == pod {
            return;
        }
        let uid = pod.uid.clone();
        let events = pod_actions(&old, &pod).into_iter().map(|actions| Event {
            actions,
            changed: Changed::WaitingPod(Change {
                old: Some(old.clone()),
                new: Some(pod.clone()),
            }),
        });
        match entry.place {
            Location::InFlight => {
                let room = (MOST_OWN_EVENTS + 1).saturating_sub(entry.own_events.len());
                entry.own_events.extend(events.take(room));
            }
            Location::Active => {
                let item = entry.ticket.item(self.timing);
                let is_new = entry.ticket.attempts == 0;
                self.active.push(item, is_new, world.profiles);
            }
            Location::Backoff => {
                let item = entry.ticket.item(self.timing);
                let blamed = entry.ticket.rejectors.is_blamed();
                self.backoffs.push(item, blamed, world.profiles);
            }
            Location::Parked => {
                let ticket = &entry.ticket;
                let helps = events
                    .map(|event| {
                        let hint = world.profiles.hint(
                            ticket.profile,
                            &ticket.rejectors,
                            &pod,
                            &event,
                            world.catalog,
                        );
                        (hint, Cause::from(&event))
                    })
                    .find(|(hint, _)| *hint != Hint::Skip);
                let (hint, cause) = helps.unwrap_or((Hint::Skip, Cause::NEW));
                self.settle(&uid, hint, cause, world);
            }
        }
    }

    /// Replaces the pod without an event: with what the scheduler itself wrote into it.
    pub fn rewrite(&mut self, pod: Arc<Pod>) {
        if let Some(entry) = self.entries.get_mut(&pod.uid)
            && name_of(&entry.ticket.pod) == name_of(&pod)
        {
            entry.ticket.pod = pod;
        }
    }

    /// The pod is deleted or bound.
    pub fn remove(&mut self, uid: &str, world: World) -> Option<Arc<Pod>> {
        let ticket = self.drop_entry(uid, world)?;
        let name = name_of(&ticket.pod);
        if self.names.get(&name).is_some_and(|known| **known == *uid) {
            self.names.remove(&name);
        }
        Some(ticket.pod)
    }

    /// Takes the next pod, which is in flight from now on. A pod in backoff goes only if no other pod is left
    /// and a plugin rejected it: after an error it must wait.
    pub fn pop(&mut self, world: World) -> Option<&Ticket> {
        self.advance(world);
        let item = match self.active.pop(world.profiles) {
            Some(item) => item,
            None => self.backoffs.pop_blamed(world.profiles)?,
        };
        let entry = self.entries.get_mut(&item.pod.uid)?;
        entry.place = Location::InFlight;
        entry.ticket.attempts = entry.ticket.attempts.saturating_add(1);
        self.in_flight.begin(item.pod.uid.clone());
        Some(&self.entries.get(&item.pod.uid)?.ticket)
    }

    /// The pod has a node and leaves the queue. Its ticket is for [`Queue::take_back`], if binding fails.
    pub fn take(&mut self, uid: &str, world: World) -> Option<Ticket> {
        let ticket = self.drop_entry(uid, world)?;
        self.names.remove(&name_of(&ticket.pod));
        Some(ticket)
    }

    /// A pod that was taken waits again, because binding failed.
    pub fn take_back(&mut self, ticket: Ticket, rejectors: Rejectors, world: World) {
        let uid = ticket.pod.uid.clone();
        let name = name_of(&ticket.pod);
        if self.entries.contains_key(&uid) || self.names.contains_key(&name) {
            // It came again meanwhile, or another pod has its name.
            return;
        }
        self.names.insert(name, uid.clone());
        self.insert(ticket, Location::InFlight);
        self.give_back(&uid, rejectors, world);
    }

    /// The attempt failed: the pod returns to the queue, unless it is gone. Without a rejecting plugin it is tried again
    /// after its backoff; otherwise when an event, past or future, may help.
    pub fn give_back(&mut self, uid: &str, rejectors: Rejectors, world: World) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let own_events = std::mem::take(&mut entry.own_events);
        let ticket = &mut entry.ticket;
        ticket.since = world.now;
        ticket.gate = None;
        ticket.rejectors = rejectors;
        let conflicts = ticket.conflicts.saturating_add(1);
        ticket.conflicts = if ticket.rejectors.is_conflict {
            conflicts
        } else {
            0
        };
        if ticket.rejectors.is_blamed() {
            ticket.rejections = ticket.rejections.saturating_add(1);
            ticket.errors = 0;
        } else if !ticket.rejectors.is_conflict {
            ticket.errors = ticket.errors.saturating_add(1);
        }
        let ticket = &entry.ticket;
        let hint = if !ticket.rejectors.is_blamed() {
            Hint::AfterBackoff
        } else {
            replay(ticket, &own_events, &self.in_flight, world)
        };
        self.in_flight.end(uid);
        self.settle(uid, hint, Cause::Failure, world);
    }

    /// Handles an event: pods that it may help are moved, and it is kept for pods in flight.
    pub fn notify(&mut self, event: &Event, audience: &Audience, world: World) {
        if !world.profiles.wants(event) {
            return;
        }
        for (uid, hint) in self.parked.helped(event, audience, world) {
            self.settle(&uid, hint, event.into(), world);
        }
        self.in_flight.record(event, audience);
    }

    /// Forces a pod to be tried again soon, whatever it waits for.
    pub fn activate(&mut self, uid: &str, world: World) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        match entry.place {
            Location::Active => {}
            Location::InFlight => {
                if entry.own_events.len() <= MOST_OWN_EVENTS {
                    entry
                        .own_events
                        .push(anything(entry.ticket.pod.uid.clone()));
                }
            }
            Location::Parked | Location::Backoff => {
                self.backoffs.remove(uid, world.profiles);
                self.settle(uid, Hint::Immediately, Cause::Forced, world);
            }
        }
    }

    /// Moves pods whose time has come. Called by `pop`.
    pub fn advance(&mut self, world: World) {
        while let Some(item) = self.backoffs.pop_finished(world.now, world.profiles) {
            if let Some(entry) = self.entries.get_mut(&item.pod.uid) {
                entry.place = Location::Active;
                entry.ticket.first_tried.get_or_insert(world.now);
                let is_new = entry.ticket.attempts == 0;
                self.active.push(item, is_new, world.profiles);
                self.arrivals
                    .count(SubQueue::Active, Cause::BackoffComplete);
            }
        }
        let flush = self.last_flush(world.now);
        while let Some(uid) = self.parked.overdue(flush) {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.ticket.flushed = Some(world.now);
            }
            self.settle(&uid, Hint::AfterBackoff, Cause::Timeout, world);
        }
    }

    /// When the queue next has something to do by itself: now, if a pod can be popped.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.active.is_empty() || self.backoffs.has_blamed() {
            return Some(now);
        }
        let parked = self.parked.first_deadline();
        let parked = parked.map(|deadline| self.flush_after(deadline));
        let due = [self.backoffs.first_release(), parked];
        due.into_iter().flatten().min().map(|due| due.max(now))
    }

    /// Until when the pod waits at the longest; `None` if it is not parked.
    pub fn latest_retry(&self, uid: &str) -> Option<Timestamp> {
        Some(self.flush_after(self.parked.deadline_of(uid)?))
    }

    /// The end of the last period that is over.
    fn last_flush(&self, now: Timestamp) -> Timestamp {
        let begun = self.begun.map_or(0, |begun| begun.0);
        let since = now.0.saturating_sub(begun);
        Timestamp(
            now.0
                .saturating_sub(since.rem_euclid(FLUSH_PERIOD.as_nanos() as i64)),
        )
    }

    /// The first flush that finds the deadline over.
    fn flush_after(&self, deadline: Timestamp) -> Timestamp {
        self.last_flush(deadline).plus(FLUSH_PERIOD)
    }

    fn insert(&mut self, ticket: Ticket, place: Location) {
        let entry = QueuedPod {
            ticket,
            place,
            own_events: Vec::new(),
        };
        let uid = entry.ticket.pod.uid.clone();
        self.entries.insert(uid, Box::new(entry));
    }

    fn drop_entry(&mut self, uid: &str, world: World) -> Option<Ticket> {
        let entry = self.entries.remove(uid)?;
        shrink_map(&mut self.entries);
        shrink_map(&mut self.names);
        self.active.remove(uid, world.profiles);
        self.backoffs.remove(uid, world.profiles);
        self.parked.remove(uid);
        self.in_flight.end(uid);
        Some(entry.ticket)
    }

    /// Puts a pod that is in no heap where the hint says. Gates are asked on the way into a heap.
    fn settle(&mut self, uid: &str, hint: Hint, cause: Cause, world: World) {
        self.parked.remove(uid);
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        let was_parked = entry.place == Location::Parked;
        let ticket = &mut entry.ticket;
        if hint != Hint::Skip {
            let World {
                profiles, catalog, ..
            } = world;
            ticket.gate = profiles.gate(ticket.profile, &ticket.pod, catalog, ticket.gate);
            if let Some(gate) = ticket.gate
                && !ticket.rejectors.plugins.contains(&gate)
            {
                ticket.rejectors.plugins.push(gate);
            }
        }
        if hint == Hint::Skip || ticket.gate.is_some() {
            entry.place = Location::Parked;
            let situation = Situation {
                profile: ticket.profile,
                rejectors: ticket.rejectors.clone(),
                gate: ticket.gate,
            };
            let deadline = ticket.deadline(self.timing);
            self.parked.insert(&ticket.pod, situation, deadline);
            if !was_parked {
                self.arrivals.count(SubQueue::Unschedulable, cause);
            }
            return;
        }
        let item = ticket.item(self.timing);
        if hint == Hint::AfterBackoff && world.now < item.release {
            entry.place = Location::Backoff;
            let blamed = ticket.rejectors.is_blamed();
            self.backoffs.push(item, blamed, world.profiles);
            self.arrivals.count(SubQueue::Backoff, cause);
        } else {
            entry.place = Location::Active;
            ticket.first_tried.get_or_insert(world.now);
            let is_new = ticket.attempts == 0;
            self.active.push(item, is_new, world.profiles);
            self.arrivals.count(SubQueue::Active, cause);
        }
    }

    /// Says what is wrong if a pod is nowhere or in two places, or parked without an end. For tests.
    pub fn check(&self) -> Result<(), String> {
        let mut uids: Vec<&Name> = self.entries.keys().collect();
        uids.sort();
        for uid in uids {
            let entry = &self.entries[uid];
            let places = [
                (Location::Active, self.active.contains(uid)),
                (Location::Backoff, self.backoffs.contains(uid)),
                (Location::Parked, self.parked.deadline_of(uid).is_some()),
                (Location::InFlight, self.in_flight.contains(uid)),
            ];
            let found: Vec<Location> = places
                .into_iter()
                .filter_map(|(place, there)| there.then_some(place))
                .collect();
            if found != [entry.place] {
                return Err(format!(
                    "pod {uid} should be in {:?} and is in {found:?}",
                    entry.place
                ));
            }
            let latest = entry.ticket.deadline(self.timing).plus(FLUSH_PERIOD);
            if self.latest_retry(uid).is_some_and(|retry| retry > latest) {
                return Err(format!("pod {uid} is parked beyond {latest:?}"));
            }
        }
        let sizes = self.sizes();
        let total =
            sizes.active + sizes.backoff + sizes.unschedulable + sizes.gated + sizes.in_flight;
        if total != self.entries.len() || self.names.len() != self.entries.len() {
            return Err(format!(
                "{} pods, {} names, but {sizes:?}",
                self.entries.len(),
                self.names.len()
            ));
        }
        if !self.parked.is_consistent() {
            return Err("the indexes of parked pods disagree".into());
        }
        if self.in_flight.len() == 0 && self.in_flight.events() > 0 {
            return Err("events are kept for no pod".into());
        }
        Ok(())
    }
}

fn name_of(pod: &Pod) -> (Name, Name) {
    (pod.namespace().clone(), pod.name.clone())
}

/// The best that anything missed in flight can do for the pod.
fn replay(ticket: &Ticket, own: &[Event], in_flight: &InFlight, world: World) -> Hint {
    let (pod, rejectors) = (&ticket.pod, &ticket.rejectors);
    let missed = match in_flight.missed(&pod.uid) {
        Missed::TooMuch => return Hint::AfterBackoff,
        Missed::Events(_) if own.len() > MOST_OWN_EVENTS => return Hint::AfterBackoff,
        Missed::Events(events) => events,
    };
    let meant = missed
        .into_iter()
        .filter(|(_, audience)| audience.includes(pod));
    meant
        .map(|(event, _)| event)
        .chain(own)
        .map(|event| {
            world
                .profiles
                .hint(ticket.profile, rejectors, pod, event, world.catalog)
        })
        .max()
        .unwrap_or(Hint::Skip)
}

fn anything(pod: Name) -> Event {
    Event {
        actions: crate::scheduling::framework::Actions::ALL,
        changed: Changed::Anything { pod: Some(pod) },
    }
}

/// The order of QueueSort; among equals, who came first.
fn by_turn(profiles: &Profiles) -> impl Fn(&Item, &Item) -> bool {
    move |a, b| {
        let (x, y) = ((&a.pod, a.since), (&b.pod, b.since));
        profiles.goes_before(x, y) || (!profiles.goes_before(y, x) && a.sequence < b.sequence)
    }
}
