//! A pod's history in the queue: how often it was tried, how that ended, and which plugins rejected it.

use std::sync::Arc;

use super::heap::Item;
use super::{Rejectors, Timing, backoff};
use crate::model::{Name, Pod, Timestamp};

/// Which pods an event is for; by default all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audience {
    /// Pods of this priority or lower.
    pub at_most: Option<i32>,
    /// Not this pod.
    pub but: Option<Name>,
}

/// How the last attempt to place a pod ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub at: Timestamp,
    /// As in the pod's condition.
    pub reason: &'static str,
    pub message: String,
    /// Where the message of PostFilter begins in `message`.
    pub post_filter_at: usize,
    /// Pods that are being evicted for it, as `namespace/name`.
    pub evicted: Vec<String>,
}

impl Attempt {
    /// The message without that of PostFilter.
    pub fn reasons(&self) -> &str {
        self.message.get(..self.post_filter_at).unwrap_or_default()
    }
}

/// Where a pod is in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    Active,
    Backoff { until: Timestamp },
    Parked { latest_retry: Timestamp },
    InFlight,
}

/// A pod with its history in the queue.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub pod: Arc<Pod>,
    /// Position of its profile.
    pub profile: usize,
    /// Times it was popped.
    pub attempts: u32,
    /// When it could first be tried; not set while gated.
    pub first_tried: Option<Timestamp>,
    /// `None` until an attempt has failed.
    pub last: Option<Arc<Attempt>>,
    /// Since when it is queued: since it came, or since its last failure.
    pub(super) since: Timestamp,
    pub(super) rejections: u32,
    /// Consecutive attempts that ended in an error.
    pub(super) errors: u32,
    /// Consecutive attempts in which another scheduler was faster.
    pub(super) conflicts: u32,
    pub(super) rejectors: Rejectors,
    pub(super) gate: Option<&'static str>,
    pub(super) flushed: Option<Timestamp>,
    pub(super) sequence: u64,
}

impl Ticket {
    /// Since it could first be tried, or since it came if it never could.
    pub fn waits_since(&self) -> Timestamp {
        self.first_tried.unwrap_or(self.since)
    }

    /// Kept out of the queue by a PreEnqueue plugin.
    pub fn is_gated(&self) -> bool {
        self.gate.is_some()
    }

    /// The plugin that keeps it out.
    pub fn gate(&self) -> Option<&'static str> {
        self.gate
    }

    /// The plugins that rejected it the last time.
    pub fn rejectors(&self) -> &Rejectors {
        &self.rejectors
    }

    /// The pod as heaps know it.
    pub(super) fn item(&self, timing: Timing) -> Item {
        let release = match (self.conflicts, self.errors) {
            (0, 0) => backoff::release(self.since, self.rejections, timing),
            (0, errors) => backoff::release(self.since, errors, timing),
            (conflicts, _) => {
                backoff::release_after_conflict(self.since, conflicts, &self.pod.uid, timing)
            }
        };
        Item {
            pod: self.pod.clone(),
            since: self.since,
            release,
            sequence: self.sequence,
        }
    }

    /// Until when it may be parked.
    pub(super) fn deadline(&self, timing: Timing) -> Timestamp {
        let since = self.flushed.map_or(self.since, |at| at.max(self.since));
        since.plus(timing.longest_parked)
    }
}

impl Audience {
    pub(super) fn includes(&self, pod: &Pod) -> bool {
        self.at_most.is_none_or(|priority| pod.priority <= priority)
            && self.but.as_ref() != Some(&pod.uid)
    }
}
