//! How the scheduler runs with kube-scheduler: beside it, instead of it, or as an observer.

use std::fmt;
use std::str::FromStr;

use api::config::Configuration;
pub use engine::policies::schedulers::DEFAULT_SCHEDULER;

/// The scheduler name in [`Mode::Second`], unless the configuration has another.
pub const SECOND_SCHEDULER: &str = "tidepool";
/// kube-scheduler's Lease, and its namespace.
pub const DEFAULT_LEASE: &str = "kube-scheduler";
const DEFAULT_NAMESPACE: &str = "kube-system";
/// The Lease in [`Mode::Second`], unless the configuration has another.
pub const SECOND_LEASE: &str = "tidepool-scheduler";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Beside kube-scheduler, for pods with its scheduler name.
    #[default]
    Second,
    /// Instead of kube-scheduler, for all pods; both use the same Lease.
    Primary,
    /// Decides about kube-scheduler's pods and logs the decisions. It has no Lease and writes nothing.
    Observe,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    #[error(
        "scheduler name `default-scheduler` belongs to kube-scheduler: use another name, or --mode primary to replace kube-scheduler"
    )]
    NotOurs,
    #[error("unknown mode `{0}`: use second, primary or observe")]
    Unknown(String),
}

impl Mode {
    /// Sets the names that the configuration does not have, and refuses names that are invalid in this mode.
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
            // The defaults are kube-scheduler's.
            Self::Primary => {}
            Self::Observe => election.leader_elect = false,
        }
        election.is_named = true;
        for profile in &mut configuration.profiles {
            profile.is_named = true;
        }
        Ok(())
    }

    /// A warning about conflicts with kube-scheduler, for a settled configuration.
    pub fn warning(self, configuration: &Configuration) -> Option<String> {
        let election = &configuration.leader_election;
        let (namespace, name) = (&election.resource_namespace, &election.resource_name);
        let is_its_own = namespace == DEFAULT_NAMESPACE && name == DEFAULT_LEASE;
        match self {
            Self::Second if election.leader_elect && is_its_own => Some(format!(
                "Lease {namespace}/{name} belongs to kube-scheduler, which does not schedule while this scheduler holds it; set another one with leaderElection.resourceName or --leader-elect-resource-name"
            )),
            Self::Primary if !election.leader_elect => Some(
                "without leader election kube-scheduler may schedule the same pods at the same time: stop it, or enable leader election".to_owned(),
            ),
            Self::Primary if !is_its_own => Some(format!(
                "Lease {namespace}/{name} is not kube-scheduler's ({DEFAULT_NAMESPACE}/{DEFAULT_LEASE}), so kube-scheduler may schedule the same pods at the same time: stop it, or use its Lease"
            )),
            Self::Second | Self::Primary | Self::Observe => None,
        }
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
        let mut configuration = configuration(text);
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

    fn configuration(text: &str) -> Configuration {
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        api::config::load(&format!("{head}{text}")).unwrap().0
    }

    #[test]
    fn conflicts_with_the_lease_of_kube_scheduler_cause_warnings() {
        let its_own = "leaderElection: {resourceName: kube-scheduler}\n";
        let other = "leaderElection: {resourceName: other}\n";
        let elsewhere = "leaderElection: {resourceNamespace: infra}\n";
        let off = "leaderElection: {leaderElect: false, resourceName: kube-scheduler}\n";
        let (stands_by, at_once) = (Some("does not schedule while"), Some("at the same time"));
        for (mode, text, want) in [
            (Mode::Second, "", None),
            (Mode::Second, its_own, stands_by),
            (Mode::Second, other, None),
            (Mode::Second, off, None),
            (Mode::Primary, "", None),
            (Mode::Primary, its_own, None),
            (Mode::Primary, other, at_once),
            (Mode::Primary, elsewhere, at_once),
            (Mode::Primary, off, at_once),
            (Mode::Observe, off, None),
        ] {
            let mut configuration = configuration(text);
            mode.settle(&mut configuration).unwrap();
            let warning = mode.warning(&configuration);
            let as_wanted = match (&warning, want) {
                (Some(warning), Some(want)) => warning.contains(want),
                (found, want) => found.is_none() && want.is_none(),
            };
            assert!(as_wanted, "{mode} {text}: {warning:?}");
        }
    }

    /// What `config show` writes leaves open what the file leaves open.
    #[test]
    fn a_configuration_that_is_written_out_is_settled_as_before() {
        let named =
            "profiles: [{schedulerName: mine}]\nleaderElection: {resourceName: kube-scheduler}\n";
        for mode in [Mode::Second, Mode::Primary, Mode::Observe] {
            for text in ["", named, "leaderElection: {resourceNamespace: infra}\n"] {
                let given = configuration(text);
                let shown =
                    api::config::Effective::new(&given, engine::scheduling::plugins::ALL).unwrap();
                let shown = api::config::to_yaml(&shown);
                let (mut given, mut again) = (given, api::config::load(&shown).unwrap().0);
                mode.settle(&mut given).unwrap();
                mode.settle(&mut again).unwrap();
                assert_eq!(
                    given.leader_election, again.leader_election,
                    "{mode} {text}"
                );
                let names = |it: &Configuration| it.profiles[0].scheduler_name.clone();
                assert_eq!(names(&given), names(&again), "{mode} {text}");
            }
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
