//! A cluster in virtual time against the real engine: the same queue and the same path of a pod as in production, with
//! no clock, no API and no randomness, so that the same scenario gives the same words, byte for byte.
//!
//! A scenario is one YAML file that states one behaviour: [`run`] reads it, plays it and says what happened and which
//! expectations were not met. `docs/scenarios.md` has the format. After every step the engine's invariants are checked.
//!
//! | module | contents |
//! |---|---|
//! | `expect` | the expectations of a scenario, checked |
//! | `kinds` | the kinds that a scenario can create and delete |
//! | `objects` | the short forms of nodes and pods |
//! | `play` | the steps of a scenario |
//! | `scenario` | the file format |
//! | `volumes` | binding of claims to volumes |
//! | `world` | the cluster in virtual time |

mod expect;
mod kinds;
mod objects;
mod play;
mod scenario;
mod volumes;
mod world;

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

/// A scenario that cannot be played: what is wrong with its text, or what in it makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadScenario(pub Vec<Finding>);

impl fmt::Display for BadScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for BadScenario {}

/// Plays a scenario.
pub fn run(text: &str) -> Result<Report, BadScenario> {
    let scenario = scenario::read(text)?;
    play::play(text, scenario)
}
