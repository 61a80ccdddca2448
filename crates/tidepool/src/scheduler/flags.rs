//! The flags of `tidepool scheduler`, which override the configuration file.

mod ignored;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use api::config::{Configuration, LeaderElection};
use clap::Args;
use control_plane::election::Election;
use control_plane::scheduler::Mode;
use control_plane::serve::{PORT, Serve};
use engine::scheduling::scheduler::score_count;

use self::ignored::Ignored;
use crate::component::{ElectionFlags, ServingFlags, duration};

/// Schedule the pods of a cluster
#[derive(Args)]
pub(crate) struct Flags {
    /// How to run with kube-scheduler: `second` beside it, `primary` instead of it, `observe` only logs decisions.
    #[arg(long, value_name = "MODE", default_value = "second")]
    pub(super) mode: Mode,
    /// Kubeconfig of the cluster [default: clientConnection.kubeconfig of the file, else the cluster it runs in].
    #[arg(long, value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(super) master: Option<http::Uri>,
    /// A KubeSchedulerConfiguration file; the scheduler schedules the pods whose spec.schedulerName is that of a profile.
    #[arg(long, value_name = "PATH")]
    pub(super) config: Option<PathBuf>,
    /// Schedule pods with this spec.schedulerName [default: tidepool with --mode second, otherwise default-scheduler].
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// Print the manifests of another scheduler with the name of --scheduler-name, for `kubectl apply -f -`, and exit.
    #[arg(long, requires = "scheduler_name")]
    print_manifests: bool,
    /// Choose at random among the best COUNT nodes, so that schedulers with the same nodes and scores rarely choose the same one.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = among)]
    randomize_node_selection: NonZero<usize>,
    #[command(flatten)]
    election: ElectionFlags,
    /// Name of the Lease [default: tidepool-scheduler; kube-scheduler with --mode primary].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease [default: kube-system].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_namespace: Option<String>,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port to serve on; 0 disables the server [default: 10259, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
    /// Log the scores of the best COUNT nodes of every decision, by plugin; 0 logs none.
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 0, value_parser = score_count)]
    pub(super) debug_scores: u16,
    /// Retry an unschedulable pod after this time, even without a change in the cluster [default: 5m].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pod_max_in_unschedulable_pods_duration: Option<Duration>,
    /// Features to switch on or off. MidProdNoOverAllocation=true: services and mid pods together never request more than a node has.
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    feature_gates: Vec<String>,
    #[command(flatten)]
    ignored: Ignored,
}

/// The feature gate, and the plugin that it enables.
const NO_OVER_ALLOCATION: &str = "MidProdNoOverAllocation";

/// More nodes than this are no choice by score.
const MOST_NODES: usize = 1_000;

fn name_of(gate: &str) -> &str {
    gate.split_once('=').map_or(gate, |(name, _)| name)
}

fn among(text: &str) -> Result<NonZero<usize>, String> {
    let count = text.parse().ok();
    let count = count.filter(|count: &NonZero<usize>| count.get() <= MOST_NODES);
    count.ok_or_else(|| format!("use a whole number from 1 to {MOST_NODES}"))
}

impl Flags {
    /// The name of the scheduler whose manifests are requested.
    pub(super) fn manifests_of(&self) -> Option<&str> {
        let name = self.scheduler_name.as_deref();
        name.filter(|_| self.print_manifests)
    }

    /// The number of nodes to choose among at random; none for the best node.
    pub(super) fn random_nodes(&self) -> Option<NonZero<usize>> {
        let count = self.randomize_node_selection;
        (count.get() > 1).then_some(count)
    }

    /// Overrides the configuration with the given flags.
    pub(super) fn change(&self, configuration: &mut Configuration) -> anyhow::Result<()> {
        ensure!(
            self.config.is_none() || self.scheduler_name.is_none(),
            "--scheduler-name cannot be used with --config, whose profiles have names; only --print-manifests takes both"
        );
        if let (Some(name), [profile]) = (&self.scheduler_name, &mut configuration.profiles[..]) {
            ensure!(!name.is_empty(), "--scheduler-name is empty: pass a name");
            profile.scheduler_name = name.clone();
            profile.is_named = true;
        }
        if self.forbids_over_allocation()? {
            for profile in &mut configuration.profiles {
                profile.plugins.enable(NO_OVER_ALLOCATION);
            }
        }
        self.election.apply(
            self.leader_elect_resource_name.as_ref(),
            self.leader_elect_resource_namespace.as_ref(),
            &mut configuration.leader_election,
        )
    }

    pub(super) fn election(&self, settings: &LeaderElection, host: &str) -> Option<Election> {
        self.election.election(settings, host)
    }

    pub(super) fn serve(&self) -> Option<Serve> {
        self.serving.serve(self.secure_port, PORT)
    }

    pub(super) fn longest_parked(&self) -> Option<Duration> {
        self.pod_max_in_unschedulable_pods_duration
    }

    /// The last one of the gate holds.
    fn forbids_over_allocation(&self) -> anyhow::Result<bool> {
        let mut forbids = false;
        for gate in &self.feature_gates {
            match gate.split_once('=').unwrap_or((gate, "")) {
                (NO_OVER_ALLOCATION, "true") => forbids = true,
                (NO_OVER_ALLOCATION, "false") => forbids = false,
                (NO_OVER_ALLOCATION, other) => bail!(
                    "--feature-gates: {NO_OVER_ALLOCATION} is {other:?}: use {NO_OVER_ALLOCATION}=true or {NO_OVER_ALLOCATION}=false"
                ),
                _ => {}
            }
        }
        Ok(forbids)
    }

    /// A warning for each flag that has no effect.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let mut warnings = self.ignored.warnings();
        let gates = self.feature_gates.iter().map(String::as_str);
        let others: Vec<&str> = gates
            .filter(|gate| name_of(gate) != NO_OVER_ALLOCATION)
            .collect();
        if !others.is_empty() {
            warnings.push(format!(
                "--feature-gates has no effect: {}: the only feature gate of the scheduler is {NO_OVER_ALLOCATION}",
                others.join(",")
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn changed(arguments: &[&str]) -> Result<Configuration, String> {
        let arguments = std::iter::once(&"x").chain(arguments);
        let cli = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let mut configuration = Configuration::default();
        let change = cli.flags.change(&mut configuration);
        change.map_err(|error| error.to_string())?;
        cli.flags
            .mode
            .settle(&mut configuration)
            .map_err(|error| error.to_string())?;
        Ok(configuration)
    }

    #[test]
    fn the_feature_gate_enables_its_plugin_in_every_profile() {
        for (gates, want) in [
            ("MidProdNoOverAllocation=true", Ok(1)),
            ("A=true,MidProdNoOverAllocation=true", Ok(1)),
            (
                "MidProdNoOverAllocation=true,MidProdNoOverAllocation=false",
                Ok(0),
            ),
            ("A=true", Ok(0)),
            (
                "MidProdNoOverAllocation=yes",
                Err(
                    "--feature-gates: MidProdNoOverAllocation is \"yes\": use MidProdNoOverAllocation=true or MidProdNoOverAllocation=false",
                ),
            ),
        ] {
            let flag = format!("--feature-gates={gates}");
            let found = changed(&[&flag]).map(|configuration| {
                let plugins = &configuration.profiles[0].plugins;
                plugins.multi_point().enabled.len()
            });
            assert_eq!(found, want.map_err(str::to_owned), "{gates}");
        }
    }

    #[test]
    fn flags_override_the_file() {
        let configuration = changed(&[
            "--scheduler-name=mine",
            "--leader-elect=false",
            "--leader-elect-lease-duration=3s",
            "--leader-elect-renew-deadline=2s",
            "--leader-elect-retry-period=500ms",
            "--leader-elect-resource-name=lock",
            "--leader-elect-resource-namespace=here",
        ])
        .unwrap();
        assert_eq!(configuration.profiles[0].scheduler_name, "mine");
        let election = configuration.leader_election;
        assert!(!election.leader_elect);
        assert_eq!(election.lease_duration, Duration::from_secs(3));
        assert_eq!(election.renew_deadline, Duration::from_secs(2));
        assert_eq!(election.retry_period, Duration::from_millis(500));
        let lease = (election.resource_namespace, election.resource_name);
        assert_eq!(lease, ("here".to_owned(), "lock".to_owned()));
        assert!(
            changed(&["--leader-elect"])
                .unwrap()
                .leader_election
                .leader_elect
        );
    }

    #[test]
    fn invalid_flags_are_refused() {
        for (arguments, want) in [
            (
                &["--scheduler-name=default-scheduler"][..],
                "belongs to kube-scheduler",
            ),
            (&["--scheduler-name="], "--scheduler-name is empty"),
            (&["--mode=beside"], "use second, primary or observe"),
            (
                &["--leader-elect-lease-duration=5s"],
                "must be longer than renew deadline",
            ),
            (
                &["--leader-elect-retry-period=9s"],
                "1.2 times the retry period",
            ),
            (
                &["--leader-elect-retry-period=0s"],
                "must be greater than zero",
            ),
            (&["--leader-elect-resource-lock=endpoints"], "use leases"),
            (&["--tls-cert-file=a"], "--tls-private-key-file"),
            (&["--scheduler-name=a", "--config=b"], "cannot be used with"),
            (&["--print-manifests"], "--scheduler-name <NAME>"),
            (&["--randomize-node-selection=0"], "from 1 to 1000"),
            (&["--randomize-node-selection=x"], "from 1 to 1000"),
            (&["--write-config-to=a"], "tidepool config show"),
            (&["--profiling=perhaps"], "'perhaps' for '--profiling"),
        ] {
            let error = changed(arguments).map(drop).unwrap_err();
            assert!(error.contains(want), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn kube_scheduler_flags_without_effect_cause_warnings() {
        for (arguments, want) in [
            (&[][..], &[][..]),
            (&["--profiling"], &["profiling"]),
            (&["--profiling=false"], &["profiling"]),
            // What follows is a flag of its own, not a value.
            (
                &["--contention-profiling", "--leader-elect=false"],
                &["contention-profiling"],
            ),
            (
                &["--kube-api-qps=50", "--kube-api-burst", "100"],
                &["kube-api-burst", "kube-api-qps"],
            ),
            (
                &["--feature-gates=A=true,B=false", "--feature-gates=C=true"],
                &["feature-gates"],
            ),
            (
                &["--authentication-kubeconfig=/etc/kubernetes/scheduler.conf"],
                &["authentication-kubeconfig"],
            ),
            (
                &["--requestheader-extra-headers-prefix=X-Remote-Extra-"],
                &["requestheader-extra-headers-prefix"],
            ),
            (
                &["--tls-min-version=VersionTLS13", "--permit-port-sharing"],
                &["tls-min-version", "permit-port-sharing"],
            ),
        ] {
            let cli = Cli::try_parse_from([&["x"], arguments].concat()).unwrap();
            let warnings = cli.flags.without_effect();
            assert_eq!(warnings.len(), want.len(), "{arguments:?}: {warnings:?}");
            for (warning, flag) in warnings.iter().zip(want) {
                let begin = format!("--{flag} has no effect: ");
                assert!(warning.starts_with(&begin), "{arguments:?}: {warning}");
            }
        }
        let help = Cli::command().render_long_help().to_string();
        assert!(!help.contains("--kube-api-qps"), "{help}");
    }
}
