//! `tidepool webhook`: runs the admission webhook until it is stopped.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use control_plane::client::Connect;
use control_plane::serve::TlsFiles;
use control_plane::webhook::certificates::{
    CertificateOptions, CertificatePeriods, ManagedCertificate,
};
use control_plane::webhook::{HEALTH_PORT, NAME, NAMESPACE, PORT, Webhook, WebhookOptions};

use crate::component::{self, STOPPED_TWICE, ServingFlags, StopSignals};

/// Run the admission webhook of a cluster
///
/// It applies ClusterColocationProfiles, turns cpu and memory of pods into the resources of their tier, and sets the scheduler of
/// pods. It refuses pods whose classes do not go together, and invalid settings of tiers and agents. It warns about schedulers that
/// do not run. All replicas answer. Without certificate files the replicas keep a certificate in a Secret and write its CA into the
/// webhook configurations.
#[derive(Args)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: the cluster it runs in].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig.
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// Address to answer reviews on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    webhook_address: IpAddr,
    /// Port to answer reviews on; 0 for a free one.
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    webhook_port: u16,
    /// Namespace of the Secret and the Service; its pods are admitted as they are.
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Time between the signal to stop and the end; API servers learn meanwhile that this replica is not ready.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = component::duration_or_zero)]
    shutdown_delay: Duration,
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port for health and metrics; 0 disables the server [default: 10268, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

/// The certificate for reviews.
#[derive(Args)]
#[command(next_help_heading = "Certificate for reviews")]
struct CertificateFlags {
    /// Certificate chain for reviews, for example from cert-manager [default: one that the replicas keep in a Secret].
    #[arg(long, value_name = "PATH", requires = "webhook_private_key_file")]
    webhook_cert_file: Option<PathBuf>,
    /// Private key of the certificate.
    #[arg(long, value_name = "PATH", requires = "webhook_cert_file")]
    webhook_private_key_file: Option<PathBuf>,
    /// Name of the Secret, of the Service and of both webhook configurations.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    webhook_name: String,
    /// Host name or address in the certificate, as webhook configurations with a URL use it; may be repeated. The names of the
    /// Service are always in it.
    #[arg(long = "webhook-host", value_name = "HOST")]
    webhook_hosts: Vec<String>,
    /// Life of the CA.
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = component::duration)]
    ca_lifetime: Duration,
    /// Life of the certificate.
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = component::duration)]
    certificate_lifetime: Duration,
    /// Age at which the CA is renewed [default: two thirds of its life].
    #[arg(long, value_name = "DURATION", value_parser = component::duration)]
    ca_renewal: Option<Duration>,
    /// Age at which the certificate is renewed [default: two thirds of its life].
    #[arg(long, value_name = "DURATION", value_parser = component::duration)]
    certificate_renewal: Option<Duration>,
    /// Time that a new CA is in the CA bundles before it is used.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = component::duration)]
    ca_settle_time: Duration,
    /// Time between two reads of the Secret or of the files.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = component::duration)]
    certificate_check_interval: Duration,
}

impl CertificateFlags {
    fn options(&self, namespace: &str) -> CertificateOptions {
        let files = self
            .webhook_cert_file
            .clone()
            .zip(self.webhook_private_key_file.clone());
        if let Some((certificate, key)) = files {
            return CertificateOptions::Files {
                files: TlsFiles { certificate, key },
                reload: self.certificate_check_interval,
            };
        }
        let name = self.webhook_name.clone();
        let service = [
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}.svc.cluster.local"),
        ];
        CertificateOptions::Managed(ManagedCertificate {
            hosts: service
                .into_iter()
                .chain(self.webhook_hosts.iter().cloned())
                .collect(),
            namespace: namespace.to_owned(),
            name,
            periods: CertificatePeriods {
                authority: self.ca_lifetime,
                certificate: self.certificate_lifetime,
                renew_certificate: self.certificate_renewal,
                renew_authority: self.ca_renewal,
                settle: self.ca_settle_time,
                check: self.certificate_check_interval,
            },
        })
    }
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(serve(flags))
}

async fn serve(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let options = WebhookOptions {
        address: SocketAddr::new(flags.webhook_address, flags.webhook_port),
        certificates: flags.certificates.options(&flags.namespace),
        namespace: flags.namespace.clone(),
        serve: flags.serving.serve(flags.secure_port, HEALTH_PORT),
        shutdown_delay: flags.shutdown_delay,
    };
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let webhook = Webhook::new(Connect::Config(Box::new(config)), options)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut running = std::pin::pin!(webhook.run(async {
        // An error is this function that ended: stop as well.
        let _ = stopped.await;
    }));
    tokio::select! {
        result = &mut running => return Ok(result?),
        () = signals.next() => drop(stop),
    }
    tokio::select! {
        result = running => Ok(result?),
        () = signals.next() => bail!(STOPPED_TWICE),
    }
}
