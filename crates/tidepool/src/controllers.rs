//! `tidepool controllers`: runs the controllers of a cluster until it is stopped.

use std::path::PathBuf;

use anyhow::{Context, bail};
use api::config::Configuration;
use clap::Args;
use control_plane::client::Connect;
use control_plane::controllers::{ALL, Controllers, ControllersOptions, NAME, NAMESPACE, PORT};
use control_plane::election::Election;

use crate::component::{self, ElectionFlags, STOPPED_TWICE, ServingFlags, StopSignals};
use crate::exit::{Code, error};

/// Run the controllers of a cluster
///
/// This version has no controllers yet: the command takes its Lease, serves health checks and metrics, and does nothing else.
#[derive(Args)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: the cluster it runs in].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig.
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    #[command(flatten)]
    election: ElectionFlags,
    /// Name of the Lease [default: tidepool-controllers].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the Lease [default: tidepool-system].
    #[arg(long, value_name = "NAME", help_heading = "Leader election")]
    leader_elect_resource_namespace: Option<String>,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port to serve on; 0 disables the server [default: 10267, or a free port if it is in use].
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(control(flags))
}

async fn control(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let options = ControllersOptions {
        controllers: ALL,
        election: flags.election().map_err(|why| error(Code::BadInput, why))?,
        serve: flags.serving.serve(flags.secure_port, PORT),
    };
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let controllers = Controllers::new(Connect::Config(Box::new(config)), options)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut running = std::pin::pin!(controllers.run(async {
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

impl Flags {
    fn election(&self) -> anyhow::Result<Option<Election>> {
        let mut settings = Configuration::default().leader_election;
        settings.resource_name = NAME.to_owned();
        settings.resource_namespace = NAMESPACE.to_owned();
        self.election.apply(
            self.leader_elect_resource_name.as_ref(),
            self.leader_elect_resource_namespace.as_ref(),
            &mut settings,
        )?;
        let host = component::host();
        let elects = settings.leader_elect;
        Ok(elects.then(|| Election::new(&settings, &host)))
    }
}
