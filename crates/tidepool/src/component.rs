//! What the long-running commands share: flags, signals and the connection to a cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::config::LeaderElection;
use clap::Args;
use control_plane::election::Election;
use control_plane::serve::{Port, Serve, TlsFiles};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cluster::Source;
use crate::exit::{Code, error};

/// Leader election. Each command has flags of its own for the name and the namespace of the Lease.
#[derive(Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct ElectionFlags {
    /// Be active only while holding the Lease [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// Time without renewal after which another replica takes the Lease [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_lease_duration: Option<Duration>,
    /// Time without renewal after which the leader gives up [default: 10s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_renew_deadline: Option<Duration>,
    /// Time between attempts to take or renew the Lease [default: 2s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_retry_period: Option<Duration>,
    /// Time without synchronised watches after which the leader gives the Lease up [default: 60s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    leader_elect_sync_deadline: Option<Duration>,
    /// Kind of the lock; only `leases` is supported.
    #[arg(long, value_name = "KIND")]
    leader_elect_resource_lock: Option<String>,
}

impl ElectionFlags {
    /// Overrides the settings with the given flags.
    pub(crate) fn apply(
        &self,
        name: Option<&String>,
        namespace: Option<&String>,
        election: &mut LeaderElection,
    ) -> anyhow::Result<()> {
        let kind = self.leader_elect_resource_lock.as_deref();
        ensure!(
            kind.is_none_or(|kind| kind == "leases"),
            "unknown --leader-elect-resource-lock `{}`: use leases",
            kind.unwrap_or_default()
        );
        let take = |given: &Option<Duration>, place: &mut Duration| {
            *place = given.unwrap_or(*place);
        };
        take(
            &self.leader_elect_lease_duration,
            &mut election.lease_duration,
        );
        take(
            &self.leader_elect_renew_deadline,
            &mut election.renew_deadline,
        );
        take(&self.leader_elect_retry_period, &mut election.retry_period);
        if let Some(elect) = self.leader_elect {
            election.leader_elect = elect;
        }
        if let Some(name) = name {
            election.resource_name = name.clone();
            election.is_named = true;
        }
        if let Some(namespace) = namespace {
            election.resource_namespace = namespace.clone();
        }
        let (lease, renew, retry) = (
            election.lease_duration,
            election.renew_deadline,
            election.retry_period,
        );
        // kube-scheduler's rules; the values of the file have been checked already.
        ensure!(
            lease > renew,
            "lease duration {lease:?} must be longer than renew deadline {renew:?}"
        );
        ensure!(
            renew > retry.mul_f64(1.2),
            "renew deadline {renew:?} must be longer than 1.2 times the retry period {retry:?}"
        );
        Ok(())
    }

    /// The election with these settings; none if it is disabled.
    pub(crate) fn election(&self, settings: &LeaderElection, host: &str) -> Option<Election> {
        let mut election = Election::new(settings, host);
        if let Some(deadline) = self.leader_elect_sync_deadline {
            election.sync_deadline = deadline;
        }
        settings.leader_elect.then_some(election)
    }
}

/// The HTTP server. Each command has a flag `--secure-port` of its own, because the default differs.
#[derive(Args)]
#[command(next_help_heading = "HTTP server")]
pub(crate) struct ServingFlags {
    /// Address to serve on; other addresses than loopback use TLS and require a token or a client certificate.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind_address: IpAddr,
    /// Certificate chain to serve with [default: a self-signed certificate; none on loopback addresses].
    #[arg(long, value_name = "PATH", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, value_name = "PATH", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Paths that need no authentication; `*` at the end matches any path with this prefix.
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    authorization_always_allow_paths: Vec<String>,
}

impl ServingFlags {
    /// Where to serve, on this port or by default on `preferred`; none for port 0.
    pub(crate) fn serve(&self, port: Option<u16>, preferred: u16) -> Option<Serve> {
        let port = match port {
            Some(0) => return None,
            Some(port) => Port::Exactly(port),
            None => Port::Preferred(preferred),
        };
        let tls = self
            .tls_cert_file
            .clone()
            .zip(self.tls_private_key_file.clone());
        Some(Serve {
            address: self.bind_address,
            port,
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            always_allow: self.authorization_always_allow_paths.clone(),
            pod: pod(|name| std::env::var(name).ok()),
            ..Serve::default()
        })
    }
}

/// The pod of this process as NAMESPACE/NAME, from the variables that the manifests set.
fn pod(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let given = |name| variable(name).filter(|value| is_name(value));
    let (namespace, name) = given("POD_NAMESPACE").zip(given("POD_NAME"))?;
    Some(format!("{namespace}/{name}"))
}

/// Whether Kubernetes allows these characters in names.
pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !text.is_empty() && text.chars().all(is_allowed)
}

/// The value of a flag.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    match engine::model::is_dns_label(text) {
        true => Ok(text.to_owned()),
        false => Err("it is not the name of a namespace".to_owned()),
    }
}

/// The value of a flag.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "use a duration like 20s, 5m or 1h30m".to_owned())
}

/// As in Go: 15s, 1m30s.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = duration_or_zero(text)?;
    if parsed.is_zero() {
        return Err("must be greater than zero".to_owned());
    }
    Ok(parsed)
}

/// SIGTERM and Ctrl-C.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    last: Option<Instant>,
}

/// Signals that follow within this time are the same request: timeout(1) signals the process and then its group.
const SAME_REQUEST: Duration = Duration::from_millis(500);

impl StopSignals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            last: None,
        })
    }

    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            let last = self.last.replace(Instant::now());
            if last.is_none_or(|last| last.elapsed() > SAME_REQUEST) {
                return;
            }
        }
    }
}

/// What ends a command that gets a second signal while it stops.
pub(crate) const STOPPED_TWICE: &str = "second signal received: stopped without cleanup";

/// The connection of this kubeconfig, or without one to the cluster that this process runs in.
pub(crate) async fn connection(
    path: Option<&Path>,
    server: Option<&http::Uri>,
) -> anyhow::Result<kube::Config> {
    let is_in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = match (path, server) {
        (Some(path), _) => Source::File(path.to_owned()).read(None).await?.0,
        (None, _) if is_in_cluster => {
            kube::Config::incluster().context("cannot use the pod's service account")?
        }
        (None, Some(server)) => kube::Config::new(server.clone()),
        (None, None) => {
            let text = "not running inside a cluster: pass --kubeconfig PATH";
            return Err(error(Code::BadInput, text));
        }
    };
    if let Some(server) = server {
        config.cluster_url = server.clone();
    }
    Ok(config)
}

/// The host name, from the kernel.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_is_known_by_both_variables() {
        for (namespace, name, want) in [
            (
                Some("infra"),
                Some("scheduler-0"),
                Some("infra/scheduler-0"),
            ),
            (Some("infra"), None, None),
            (None, Some("scheduler-0"), None),
            (Some("infra"), Some(""), None),
            (Some("infra/x"), Some("scheduler-0"), None),
        ] {
            let found = pod(|variable| {
                let value = if variable == "POD_NAME" {
                    name
                } else {
                    namespace
                };
                value.map(str::to_owned)
            });
            assert_eq!(found.as_deref(), want, "{namespace:?} {name:?}");
        }
    }

    /// As timeout(1) signals the process and then its group. A person who presses Ctrl-C again means it.
    #[tokio::test]
    async fn two_signals_at_once_are_one_request_to_stop() {
        let signal = || {
            let ourselves = rustix::process::getpid();
            rustix::process::kill_process(ourselves, rustix::process::Signal::TERM).unwrap();
        };
        let mut signals = StopSignals::listen().unwrap();
        signal();
        signals.next().await;
        signal();
        let second = tokio::time::timeout(2 * SAME_REQUEST, signals.next()).await;
        assert!(second.is_err(), "it is a second request");
        signal();
        signals.next().await;
    }
}
