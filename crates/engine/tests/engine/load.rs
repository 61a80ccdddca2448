//! Large numbers: a backlog of thousands of pods, and costs that must not grow with the square of something.

mod backlog;
mod growth;
mod plans;

use engine::model::Timestamp;
use engine::scheduling::plugins;
use engine::scheduling::profile::{Enabled, Profile};
use engine::scheduling::scheduler::{Input, Scheduler, Settings};

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// A scheduler with the plugins that Kubernetes enables by default.
fn scheduler(settings: Settings) -> Scheduler {
    Scheduler::new(vec![profile(&[])], settings).unwrap()
}

/// The plugins that Kubernetes enables by default, and others.
fn profile(others: &[&'static str]) -> Profile {
    let others = others.iter().map(|name| (*name, 1));
    let enabled = plugins::DEFAULT.iter().copied().chain(others);
    let enabled = enabled.map(|(name, weight)| {
        let entry = plugins::find(name).unwrap();
        Enabled::new(entry, weight.max(1)).unwrap()
    });
    Profile::new("default-scheduler", enabled.collect())
}

fn apply(scheduler: &mut Scheduler, input: Input) {
    scheduler.apply(input, NOW).unwrap();
}
