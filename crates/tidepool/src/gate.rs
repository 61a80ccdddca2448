//! `tidepool gate`: runs the gate until it is stopped.

use api::contracts::NAMESPACE;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use api::config::Configuration as SchedulerConfiguration;
use clap::Args;
use control_plane::client::Connect;
use control_plane::election::Election;
use control_plane::gate::{Gate, GateOptions, HEALTH_PORT, NAME, PORT};
use control_plane::webhook::bind_permission::BindAuthorization;
use control_plane::webhook::certificates::Configuration;

use crate::certificates::CertificateFlags;
use crate::component::{self, ElectionFlags, STOPPED_TWICE, ServingFlags, StopSignals};
use crate::exit::{Code, error};

/// Run the gate of a cluster, which judges the binds of all schedulers
///
/// The API server asks it before it commits a bind. It refuses a bind that the kubelet would fail, or that exceeds reclaimed
/// resources, the limit of a ResourcePolicy or a NUMA zone; the pod stays Pending with its scheduler. It also asks whether the caller
/// may bind pods of the scheduler. Of several replicas, the one that holds the Lease answers.
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
    /// Address for the EndpointSlice [default: the one that leads to the API server].
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: Option<IpAddr>,
    /// Namespace of the Secret, the Service and the EndpointSlice; its pods are bound unjudged.
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Name of the Secret, the Service, the EndpointSlice and the webhook configuration.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    webhook_name: String,
    /// Callers that may not bind pods of the scheduler: Audit counts and logs them, Enforce refuses their binds.
    #[arg(long, value_name = "MODE", default_value_t)]
    bind_authorization: BindAuthorization,
    /// Time between the signal to stop and the end. The gate answers nothing more; binds that it allowed are committed meanwhile.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = humantime::parse_duration)]
    shutdown_delay: Duration,
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    election: ElectionFlags,
    /// Name of the Lease [default: tidepool-gate].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease [default: tidepool-system].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_namespace: Option<String>,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port for health and metrics; 0 disables the server [default: 10270, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

impl Flags {
    fn election(&self) -> anyhow::Result<Option<Election>> {
        let mut settings = SchedulerConfiguration::default().leader_election;
        settings.resource_name = NAME.to_owned();
        settings.resource_namespace = NAMESPACE.to_owned();
        self.election.apply(
            self.leader_elect_resource_name.as_ref(),
            self.leader_elect_resource_namespace.as_ref(),
            &mut settings,
        )?;
        Ok(self.election.election(&settings, &component::host()))
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
    let options = GateOptions {
        address: SocketAddr::new(flags.webhook_address, flags.webhook_port),
        advertise_address: flags.advertise_address,
        certificates: flags.certificates.options(
            &flags.namespace,
            &flags.webhook_name,
            &[Configuration::Validating],
        ),
        namespace: flags.namespace.clone(),
        name: flags.webhook_name.clone(),
        authorization: flags.bind_authorization,
        election: flags.election().map_err(|why| error(Code::BadInput, why))?,
        serve: flags.serving.serve(flags.secure_port, HEALTH_PORT),
        shutdown_delay: flags.shutdown_delay,
    };
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let gate = Gate::new(Connect::Config(Box::new(config)), options)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut running = std::pin::pin!(gate.run(async {
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
