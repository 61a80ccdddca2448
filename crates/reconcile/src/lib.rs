//! What every controller needs: caches of watched kinds, a work queue, requests and events.
//!
//! A controller is three things: the kinds it watches, a pure plan (a function from the observed objects to actions), and a
//! thin part that applies the plan. It runs like this:
//!
//! 1. It creates a [`WorkQueue`] and registers listeners at each [`Cache`] it watches; a listener adds the keys that a
//!    change concerns.
//! 2. [`Watches::start`] lists and watches the kinds; [`Watches::synced`] returns when every first list is complete.
//! 3. [`WorkQueue::run`] calls a function for each key. While the caches do not show its own earlier writes
//!    ([`Expectations`]), the function returns early and is called again. Otherwise it computes the plan from the caches and
//!    applies it with [`Requests`]. It returns a [`Requeue`].
//!
//! Nothing here decides, and only the index by node depends on a kind. The crate uses none of our other crates.
//!
//! | module | contents |
//! |---|---|
//! | `cache` | the objects of a watched kind, with listeners and indexes |
//! | `events` | Kubernetes events of a controller |
//! | `expectations` | own writes that a cache does not show yet |
//! | `hash` | a stable hash |
//! | `outage` | when to log a failure that goes on |
//! | `queue` | keys that wait for work, with backoff |
//! | `requests` | writes to the API server, and the meaning of errors |
//! | `watches` | lists and watches of all kinds of a component |

mod cache;
mod events;
mod expectations;
mod hash;
mod outage;
mod queue;
mod requests;
mod watches;

pub use self::{
    cache::{Cache, Change, Index, Key, Object, by_owner, controller_of, revision},
    events::{EventRecorder, EventType},
    expectations::Expectations,
    hash::fnv1a,
    outage::Outage,
    queue::{QueueStats, Requeue, WorkQueue},
    requests::{
        Error, EvictionAnswer, Part, Requests, is_already_exists, is_forbidden, is_not_found,
        message_of, true_condition,
    },
    watches::Watches,
};
