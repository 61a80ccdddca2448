//! How a scheduler lives with kube-scheduler: beside it, instead of it, or only looking.

use std::fmt;
use std::str::FromStr;

use api::config::Configuration;

/// kube-scheduler's pods.
const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Our pods in [`Mode::Second`], unless the configuration names others.
const SECOND_SCHEDULER: &str = "tidepool";
/// Our Lease in [`Mode::Second`], unless the configuration names another.
const SECOND_LEASE: &str = "tidepool-scheduler";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Beside kube-scheduler, for pods that ask for it.
    #[default]
    Second,
    /// Instead of kube-scheduler, for all pods; its Lease keeps the two from working at once.
    Primary,
    /// Decides about kube-scheduler's pods and logs it. No Lease, and nothing is written.
    Observe,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    #[error(
        "scheduler name `default-scheduler` belongs to kube-scheduler: use another one beside it, or --mode primary to take its place"
    )]
    NotOurs,
    #[error("mode `{0}` is not known: use second, primary or observe")]
    Unknown(String),
}

impl Mode {
    /// Fills in the names that the configuration leaves open, and refuses those that are not for this mode.
    pub fn settle(self, configuration: &mut Configuration) -> Result<(), ModeError> {
        let election = &mut configuration.leader_election;
        match self {
            Self::Second => {
                if !election.is_named {
                    election.resource_name = SECOND_LEASE.to_owned();
                }
                for profile in &mut configuration.profiles {
                    if !profile.is_named {
                        profile.scheduler_name = SECOND_SCHEDULER.to_owned();
                    }
                    if profile.scheduler_name == DEFAULT_SCHEDULER {
                        return Err(ModeError::NotOurs);
                    }
                }
            }
            // What the configuration leaves open is kube-scheduler's.
            Self::Primary => {}
            Self::Observe => election.leader_elect = false,
        }
        Ok(())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Primary => "primary",
            Self::Observe => "observe",
        })
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        match text {
            "second" => Ok(Self::Second),
            "primary" => Ok(Self::Primary),
            "observe" => Ok(Self::Observe),
            other => Err(ModeError::Unknown(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scheduler names, Lease and whether there is one.
    fn settled(mode: Mode, text: &str) -> Result<(Vec<String>, String, bool), ModeError> {
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let (mut configuration, _) = api::config::load(&format!("{head}{text}")).unwrap();
        mode.settle(&mut configuration)?;
        let election = configuration.leader_election;
        let names = configuration
            .profiles
            .into_iter()
            .map(|it| it.scheduler_name);
        let lease = format!("{}/{}", election.resource_namespace, election.resource_name);
        Ok((names.collect(), lease, election.leader_elect))
    }

    #[test]
    fn names_that_are_left_open_depend_on_the_mode() {
        let named = "profiles: [{schedulerName: mine}]\nleaderElection: {resourceName: lock, resourceNamespace: other}\n";
        let off = "leaderElection: {leaderElect: false}\n";
        for (mode, text, names, lease, elects) in [
            (
                Mode::Second,
                "",
                "tidepool",
                "kube-system/tidepool-scheduler",
                true,
            ),
            (
                Mode::Primary,
                "",
                "default-scheduler",
                "kube-system/kube-scheduler",
                true,
            ),
            (
                Mode::Observe,
                "",
                "default-scheduler",
                "kube-system/kube-scheduler",
                false,
            ),
            (Mode::Second, named, "mine", "other/lock", true),
            (Mode::Primary, named, "mine", "other/lock", true),
            (
                Mode::Second,
                off,
                "tidepool",
                "kube-system/tidepool-scheduler",
                false,
            ),
        ] {
            let want = (vec![names.to_owned()], lease.to_owned(), elects);
            assert_eq!(settled(mode, text), Ok(want), "{mode} {text}");
        }
    }

    #[test]
    fn beside_kube_scheduler_its_pods_are_left_to_it() {
        let text = "profiles: [{schedulerName: a}, {schedulerName: default-scheduler}]\n";
        assert_eq!(settled(Mode::Second, text), Err(ModeError::NotOurs));
        assert!(settled(Mode::Primary, text).is_ok());
        assert!("beside".parse::<Mode>().is_err());
    }
}
