//! `tidepool scheduler`: schedules the pods of a cluster, until somebody stops it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use control_plane::client::Connect;
use control_plane::scheduler::{Options, Running};
use tokio::signal::unix::{SignalKind, signal};

/// Schedule the pods of a cluster that name this scheduler.
#[derive(Args)]
pub(crate) struct Flags {
    /// How to reach the API server.
    #[arg(long, value_name = "PATH")]
    kubeconfig: PathBuf,
    /// A KubeSchedulerConfiguration; its profiles name the pods that are ours.
    #[arg(long, value_name = "PATH", conflicts_with = "scheduler_name")]
    config: Option<PathBuf>,
    /// Pods with this spec.schedulerName are ours.
    #[arg(long, value_name = "NAME", default_value = "tidepool")]
    scheduler_name: String,
}

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(schedule(flags))
}

async fn schedule(flags: Flags) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let path = &flags.kubeconfig;
    // Said in our words: kube's name the path and the cause twice.
    crate::read_input(path)?;
    let file = kube::config::Kubeconfig::read_from(path)
        .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default())
        .await
        .with_context(|| format!("cannot use the kubeconfig {}", path.display()))?;
    let options = options(&flags)?;
    let mut running = Running::start(Connect::Config(Box::new(config)), options)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        why = running.ended() => return Err(why.into()),
    }
    running.stop().await;
    Ok(())
}

fn options(flags: &Flags) -> anyhow::Result<Options> {
    let Some(file) = &flags.config else {
        return Ok(Options::with_defaults(&flags.scheduler_name, &host())?);
    };
    let refused = || format!("cannot use {}", file.display());
    let (configuration, warnings) =
        api::config::load(&crate::read_input(file)?).with_context(refused)?;
    let (options, more) =
        Options::new(&configuration, engine::plugins::ALL, &host()).with_context(refused)?;
    for warning in warnings.iter().chain(&more) {
        tracing::warn!("{}: {warning}", file.display());
    }
    Ok(options)
}

/// This machine's name, as the kernel has it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}
