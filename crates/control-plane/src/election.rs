//! Leader election: which replica may write, and since when its view of the cluster is current.

mod fence;
pub(crate) mod leadership;
mod lease;

pub(crate) use fence::fence;
pub(crate) use lease::{Annotations, Candidate, LeaderWork};
pub use lease::{Election, LeaseError, SYNC_DEADLINE};
