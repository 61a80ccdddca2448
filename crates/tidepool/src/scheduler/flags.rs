//! The flags of `tidepool scheduler`, and how they change what a file says.

mod ignored;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use api::config::Configuration;
use clap::Args;
use control_plane::scheduler::Mode;
use control_plane::serve::{PORT, Port, Serve, TlsFiles};
use engine::scheduler::score_count;

use self::ignored::Ignored;

/// Schedule the pods of a cluster.
#[derive(Args)]
pub(crate) struct Flags {
    /// How to live with kube-scheduler: `second` beside it, `primary` in its place, `observe` only looks and logs.
    #[arg(long, value_name = "MODE", default_value = "second")]
    pub(super) mode: Mode,
    /// How to reach the API server [default: clientConnection.kubeconfig of the file, else the cluster this runs in].
    #[arg(long, value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The address of the API server, instead of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub(super) master: Option<http::Uri>,
    /// A KubeSchedulerConfiguration; its profiles name the pods that are ours.
    #[arg(long, value_name = "PATH", conflicts_with = "scheduler_name")]
    pub(super) config: Option<PathBuf>,
    /// Pods with this spec.schedulerName are ours [default: tidepool; default-scheduler unless --mode second].
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Log the scores of so many nodes with every decision, plugin by plugin; 0 logs none.
    #[arg(short = 's', long, value_name = "COUNT", default_value_t = 0, value_parser = score_count)]
    pub(super) debug_scores: u16,
    /// A pod that nothing helps is tried again after this time [default: 5m].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pod_max_in_unschedulable_pods_duration: Option<Duration>,
    #[command(flatten)]
    ignored: Ignored,
}

#[derive(Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionFlags {
    /// Whether only the holder of the Lease decides [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// Others take the Lease when it has not been renewed for so long [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,
    /// The leader gives up when it could not renew the Lease for so long [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,
    /// Between attempts to take or renew the Lease [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
    /// The kind of the lock: only `leases`.
    #[arg(long, value_name = "KIND")]
    leader_elect_resource_lock: Option<String>,
    /// The name of the Lease [default: tidepool-scheduler; kube-scheduler with --mode primary].
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// The namespace of the Lease [default: kube-system].
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
}

#[derive(Args)]
#[command(next_help_heading = "HTTP server")]
struct ServingFlags {
    /// Where to serve; on any address but loopback with TLS, and to those who have a token.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind_address: IpAddr,
    /// The port to serve on; 0 serves nothing [default: 10259, or a free one if that is taken].
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,
    /// The certificate to serve with, and those that signed it [default: on other addresses than loopback, one that nobody signed].
    #[arg(long, value_name = "PATH", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    #[arg(long, value_name = "PATH", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Paths that anybody may see where others need a token; `*` at the end stands for anything.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    authorization_always_allow_paths: Vec<String>,
}

impl Flags {
    /// Lets what was given here win over the file.
    pub(super) fn change(&self, configuration: &mut Configuration) -> anyhow::Result<()> {
        if let (Some(name), [profile]) = (&self.scheduler_name, &mut configuration.profiles[..]) {
            ensure!(!name.is_empty(), "--scheduler-name is empty: give a name");
            profile.scheduler_name = name.clone();
            profile.is_named = true;
        }
        let (given, election) = (&self.election, &mut configuration.leader_election);
        let kind = given.leader_elect_resource_lock.as_deref();
        ensure!(
            kind.is_none_or(|kind| kind == "leases"),
            "--leader-elect-resource-lock `{}` is not known: use leases",
            kind.unwrap_or_default()
        );
        let take = |given: &Option<Duration>, place: &mut Duration| {
            *place = given.unwrap_or(*place);
        };
        take(
            &given.leader_elect_lease_duration,
            &mut election.lease_duration,
        );
        take(
            &given.leader_elect_renew_deadline,
            &mut election.renew_deadline,
        );
        take(&given.leader_elect_retry_period, &mut election.retry_period);
        if let Some(elect) = given.leader_elect {
            election.leader_elect = elect;
        }
        if let Some(name) = &given.leader_elect_resource_name {
            election.resource_name = name.clone();
            election.is_named = true;
        }
        if let Some(namespace) = &given.leader_elect_resource_namespace {
            election.resource_namespace = namespace.clone();
        }
        let (lease, renew, retry) = (
            election.lease_duration,
            election.renew_deadline,
            election.retry_period,
        );
        // kube-scheduler's rules; the file's own values have been checked against them already.
        ensure!(
            lease > renew,
            "the Lease would run out before it must be renewed: lease duration {lease:?} must be longer than renew deadline {renew:?}"
        );
        ensure!(
            renew > retry.mul_f64(1.2),
            "renew deadline {renew:?} must be longer than 1.2 times the retry period {retry:?}"
        );
        Ok(())
    }

    pub(super) fn serve(&self) -> Option<Serve> {
        let given = &self.serving;
        let port = match given.secure_port {
            Some(0) => return None,
            Some(port) => Port::Exactly(port),
            None => Port::Preferred(PORT),
        };
        let tls = given
            .tls_cert_file
            .clone()
            .zip(given.tls_private_key_file.clone());
        Some(Serve {
            address: given.bind_address,
            port,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            always_allow: given.authorization_always_allow_paths.clone(),
        })
    }

    pub(super) fn longest_parked(&self) -> Option<Duration> {
        self.pod_max_in_unschedulable_pods_duration
    }

    /// A sentence for each flag that is accepted and does nothing.
    pub(super) fn without_effect(&self) -> Vec<String> {
        self.ignored.warnings()
    }
}

/// As Go and people write it: 15s, 1m30s.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if parsed.is_zero() {
        return Err("must be greater than zero".to_owned());
    }
    Ok(parsed)
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
    fn what_a_flag_says_goes_before_the_file() {
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
    fn what_makes_no_sense_gets_a_sentence() {
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
            (&["--write-config-to=a"], "tidepool config show"),
            (&["--profiling=perhaps"], "'perhaps' for '--profiling"),
        ] {
            let error = changed(arguments).map(drop).unwrap_err();
            assert!(error.contains(want), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn flags_of_kube_scheduler_without_a_meaning_here_are_warned_of() {
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
        assert!(!help.contains("--feature-gates"), "{help}");
    }
}
