//! `tidepool webhook`: runs the admission webhook until it is stopped.

use api::contracts::NAMESPACE;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use control_plane::client::Connect;
use control_plane::webhook::bind_permission::BindAuthorization;
use control_plane::webhook::certificates::Configuration;
use control_plane::webhook::{HEALTH_PORT, NAME, PORT, Webhook, WebhookOptions};
use engine::admission::SystemNamespaces;

use crate::certificates::CertificateFlags;
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
    /// Name of the Secret, of the Service and of both webhook configurations; those for nodes and evictions add a suffix.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    webhook_name: String,
    /// Callers that create pods with spec.nodeName and may not bind pods of their scheduler: Audit counts and logs them, Enforce
    /// refuses the pods.
    #[arg(long, value_name = "MODE", default_value_t)]
    bind_authorization: BindAuthorization,
    /// Namespaces where pods of class system (SYSTEM, system_cores) are admitted, with commas between them. Pods of kube-system are
    /// never judged.
    #[arg(long, value_name = "NAMES", default_value_t)]
    system_namespaces: SystemNamespaces,
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port for health and metrics; 0 disables the server [default: 10269, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
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
        certificates: flags.certificates.options(
            &flags.namespace,
            &flags.webhook_name,
            &[
                Configuration::Mutating,
                Configuration::Validating,
                Configuration::NodeNames,
                Configuration::Evictions,
            ],
        ),
        bind_authorization: flags.bind_authorization,
        namespace: flags.namespace.clone(),
        system_namespaces: flags.system_namespaces.clone(),
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
