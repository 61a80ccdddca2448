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
//! Nothing here decides, and only the index by node depends on a kind.
//!
//! | module | contents |
//! |---|---|
//! | [`backoff`] | exponential backoff |
//! | `cache` | the objects of a watched kind, with listeners and indexes |
//! | [`client`] | requests and their results |
//! | `events` | Kubernetes events of a controller |
//! | `expectations` | own writes that a cache does not show yet |
//! | `hash` | a stable hash |
//! | `outage` | when to log a failure that goes on |
//! | [`planted`] | faults for the chaos run, absent from the shipped program |
//! | `queue` | keys that wait for work, with backoff |
//! | `requests` | writes to the API server, and the meaning of errors |
//! | `testing` | for tests: captures the log of a thread |
//! | [`watch`] | reflectors: list and watch the objects of a kind |
//! | `watches` | the caches of a component, each with a watch of its own |

pub mod backoff;
mod cache;
pub mod client;
mod events;
mod expectations;
mod hash;
mod outage;
pub mod planted;
mod queue;
mod requests;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod watch;
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
