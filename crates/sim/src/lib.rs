//! A cluster in virtual time against the real engine: the same queue and the same path of a pod as in production, with
//! no clock, no API and no randomness, so that the same scenario gives the same output, byte for byte.
//!
//! A scenario is one YAML file that states one behaviour: [`run`] reads it, plays it and says what happened and which
//! expectations were not met. `docs/scenarios.md` has the format. After every step the engine's invariants are checked.
//!
//! | module | contents |
//! |---|---|
//! | `check` | what can be wrong with a scenario before it is played |
//! | `expect` | the expectations of a scenario, checked |
//! | `kinds` | lists of objects by kind |
//! | `objects` | the short forms of nodes and pods |
//! | `play` | the steps of a scenario |
//! | `scenario` | the file format |
//! | `simulation` | the cluster in virtual time |
//! | `tiers` | the tier controller, for nodes with a NodeMetric |
//! | `volumes` | binding of claims to volumes |

mod check;
mod expect;
mod kinds;
mod objects;
mod play;
mod scenario;
mod simulation;
mod tiers;
mod volumes;

use std::fmt;

pub use api::yaml::Finding;

/// A scenario that was played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What happened, one line each, in its order.
    pub log: Vec<String>,
    /// Expectations that were not met.
    pub failures: Vec<Finding>,
}

/// An invalid scenario: errors in its text, or steps that are impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadScenario(pub Vec<Finding>);

impl fmt::Display for BadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for BadScenario {}

/// Pods of documents have limits, which are for kubelets. Without requests the API server would set these to the limits, and nothing
/// does that here.
fn are_limits_beside_requests(text: &str, field: &str) -> bool {
    let resources = field.strip_suffix(".resources.limits");
    resources.is_some_and(|it| api::yaml::has(text, &format!("{it}.resources.requests")))
}

/// Plays a scenario.
pub fn run(text: &str) -> Result<Report, BadScenario> {
    let (scenario, mut faults) = api::yaml::decode(text);
    faults.retain(|fault| !are_limits_beside_requests(text, &fault.field));
    match scenario {
        Some(scenario) => play::play(text, scenario, faults),
        None => Err(BadScenario(faults)),
    }
}
