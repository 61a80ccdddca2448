//! Short ways to write clusters and pods, for tests and benchmarks of any crate. Bad text panics.
//!
//! A [`Lab`] holds a cluster and one plugin, so that a table test is one line per case:
//! ```
//! # use engine::testing::{Lab, node, pod};
//! let entry = engine::scheduling::plugins::find("TaintToleration").unwrap();
//! let lab = Lab::of(entry).node(node("n").taint("key", "value", "NoSchedule"));
//! assert_eq!(lab.filter(&pod("p")), ["UU node(s) had untolerated taint(s)"]);
//! ```

mod affinity;
#[cfg(test)]
mod dice;
mod lab;
mod numbers;
mod objects;
mod policy;
mod report;
mod storage;

pub use affinity::{TermBuilder, requirement, term};
#[cfg(test)]
pub(crate) use dice::Dice;
pub use lab::Lab;
pub use numbers::Numbers;
pub use objects::{NodeBuilder, PodBuilder, SpreadBuilder, node, pod, spread};
pub use policy::{PolicyBuilder, policy};
pub use report::{ReportBuilder, report};
pub use storage::{ClaimBuilder, ClassBuilder, VolumeBuilder, claim, class, volume};
