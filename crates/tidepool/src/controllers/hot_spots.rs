//! The flags of the controller of hot spots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use api::config::Configuration;
use clap::{Args, ValueEnum};
use control_plane::controllers::hot_spots::{Relief, ReliefSettings, SchedulerProfiles};
use engine::policies::hot_spots::{HotSpotSettings, Marks};

use crate::{component, config, up};

/// What to do about hot spots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReliefFlag {
    /// Evict pods.
    On,
    /// Only write events about the pods that would be evicted.
    DryRun,
    /// Do nothing.
    Off,
}

/// Nodes whose pods use too much, and which pods leave them.
#[derive(Args)]
#[command(next_help_heading = "Hot spots")]
pub(super) struct HotSpotFlags {
    /// Whether to evict free, batch, reclaimed and mid pods from nodes whose pods use too much.
    #[arg(long, value_name = "MODE", value_enum, default_value = "on")]
    hot_spot_relief: ReliefFlag,
    /// A node is hot if its pods use more of its CPU than this.
    #[arg(long, value_name = "PERCENT", default_value_t = 75, value_parser = percent())]
    hot_spot_high_cpu: u32,
    /// A node is hot if its pods use more of its memory than this.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = percent())]
    hot_spot_high_memory: u32,
    /// A node is cool if its pods use no more of its CPU than this; pods are evicted only while some node is cool.
    #[arg(long, value_name = "PERCENT", default_value_t = 45, value_parser = percent())]
    hot_spot_low_cpu: u32,
    /// A node is cool if its pods use no more of its memory than this, and no more of its CPU than --hot-spot-low-cpu.
    #[arg(long, value_name = "PERCENT", default_value_t = 55, value_parser = percent())]
    hot_spot_low_memory: u32,
    /// The time between two rounds, in which all nodes are judged.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = component::duration)]
    hot_spot_interval: Duration,
    /// Pods are evicted from a node that is hot in so many rounds in a row.
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = count())]
    hot_spot_rounds: u32,
    /// The most evicted pods of a node that have not ended yet.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count())]
    hot_spot_evictions_per_node: u32,
    /// The most evictions in a minute in the cluster.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = count())]
    hot_spot_evictions_per_minute: u32,
    /// Shortest time between two evictions of pods of one workload.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = component::duration)]
    hot_spot_workload_pause: Duration,
    /// Shortest time between two evictions of Mid+BE pods of one workload.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = component::duration)]
    hot_spot_mid_be_pause: Duration,
    /// The configuration of the scheduler, by which the controller decides whether a pod fits elsewhere [default: that of
    /// `tidepool up`].
    #[arg(long, value_name = "PATH")]
    hot_spot_scheduler_config: Option<PathBuf>,
}

fn percent() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=100)
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=10_000)
}

impl HotSpotFlags {
    pub(super) fn settings(&self) -> anyhow::Result<ReliefSettings> {
        let high = Marks {
            cpu: self.hot_spot_high_cpu,
            memory: self.hot_spot_high_memory,
        };
        let low = Marks {
            cpu: self.hot_spot_low_cpu,
            memory: self.hot_spot_low_memory,
        };
        for (resource, low, high) in [
            ("cpu", low.cpu, high.cpu),
            ("memory", low.memory, high.memory),
        ] {
            if low >= high {
                bail!(
                    "--hot-spot-low-{resource}: {low} is not allowed: use less than --hot-spot-high-{resource}, which is {high}"
                );
            }
        }
        let file = self.hot_spot_scheduler_config.as_deref();
        let configuration = up::configuration(file)?;
        Ok(ReliefSettings {
            relief: match self.hot_spot_relief {
                ReliefFlag::On => Relief::On,
                ReliefFlag::DryRun => Relief::DryRun,
                ReliefFlag::Off => Relief::Off,
            },
            plan: HotSpotSettings {
                high,
                low,
                rounds: self.hot_spot_rounds,
                per_node: self.hot_spot_evictions_per_node as usize,
                workload_pause: self.hot_spot_workload_pause,
                mid_best_effort_pause: self.hot_spot_mid_be_pause,
                per_minute: self.hot_spot_evictions_per_minute as usize,
            },
            interval: self.hot_spot_interval,
            scheduler: scheduler_profiles(&configuration, file)?,
        })
    }
}

/// The profiles of the scheduler, for the time that the process runs.
pub(crate) fn scheduler_profiles(
    configuration: &Configuration,
    file: Option<&Path>,
) -> anyhow::Result<SchedulerProfiles> {
    let built = configuration.profiles(engine::scheduling::plugins::ALL);
    let (profiles, _) = match file {
        None => built.context("cannot use the default configuration")?,
        Some(file) => built.map_err(|errors| config::refused(file, &errors))?,
    };
    Ok(SchedulerProfiles(Some(Vec::leak(profiles))))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: HotSpotFlags,
    }

    fn settings(arguments: &[&str]) -> Result<ReliefSettings, String> {
        let arguments = ["x"].iter().chain(arguments);
        let command = Command::try_parse_from(arguments).map_err(|error| error.to_string())?;
        command.flags.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_engine() {
        let found = settings(&[]).unwrap();
        let want = ReliefSettings::default();
        assert_eq!(found.plan, want.plan);
        assert_eq!((found.interval, found.relief), (want.interval, Relief::On));
        let profiles = found.scheduler.0.unwrap();
        let plugins = profiles[0].plugins().iter();
        assert!(plugins.map(|it| it.name).any(|it| it == "TierResourcesFit"));
    }

    #[test]
    fn bad_values_are_refused() {
        for (arguments, want) in [
            (
                ["--hot-spot-low-cpu=75"],
                "--hot-spot-low-cpu: 75 is not allowed: use less than --hot-spot-high-cpu, which is 75",
            ),
            (
                ["--hot-spot-high-memory=50"],
                "--hot-spot-low-memory: 55 is not allowed: use less than --hot-spot-high-memory, which is 50",
            ),
            (["--hot-spot-high-cpu=101"], "101 is not in 1..=100"),
            (["--hot-spot-rounds=0"], "0 is not in 1..=10000"),
            (
                ["--hot-spot-relief=maybe"],
                "possible values: on, dry-run, off",
            ),
            (["--hot-spot-scheduler-config=none.yaml"], "none.yaml"),
        ] {
            let found = settings(&arguments).unwrap_err();
            assert!(found.contains(want), "{arguments:?}: {found}");
        }
        let dry_run = settings(&["--hot-spot-relief=dry-run"]).unwrap();
        assert_eq!(dry_run.relief, Relief::DryRun);
    }
}
