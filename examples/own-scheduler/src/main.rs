//! A custom scheduler: every plugin of Tidepool, one more plugin, and two hooks. `docs/extend-the-scheduler.md` explains
//! it.
//!
//! It is a small program on purpose. `tidepool scheduler` also has leader election, an HTTP server and kube-scheduler's flags;
//! the fields of `Options` enable them here, too.

mod keep_clear;
mod pause;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use control_plane::client::Connect;
use control_plane::scheduler::{Options, Running};
use engine::scheduling::event_hooks::EventHooks;
use engine::scheduling::framework::Entry;
use engine::scheduling::hooks::Hooks;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Tidepool's scheduler with an additional plugin and two hooks
#[derive(Parser)]
struct Flags {
    /// The kubeconfig of the cluster
    #[arg(long, value_name = "PATH")]
    kubeconfig: PathBuf,
    /// A KubeSchedulerConfiguration that enables the plugin
    #[arg(long, value_name = "PATH")]
    config: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let options = options(&flags)?;
    let file = Kubeconfig::read_from(&flags.kubeconfig)?;
    let cluster = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let mut running = Running::start(Connect::Config(Box::new(cluster)), options)?;
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped?,
        why = running.ended() => return Err(why.into()),
    }
    running.stop().await;
    Ok(())
}

fn options(flags: &Flags) -> anyhow::Result<Options> {
    let text = std::fs::read_to_string(&flags.config)
        .with_context(|| format!("cannot read {}", flags.config.display()))?;
    let (configuration, _) = api::config::load(&text)?;
    let plugins = [
        engine::scheduling::plugins::ALL,
        &[Entry::of::<keep_clear::KeepClear>()],
    ]
    .concat();
    let (mut options, _) = Options::new(&configuration, &plugins, "own-scheduler")?;
    options.settings.hooks = Hooks::default().with_rewrite(Arc::new(trial::Trial));
    options.settings.event_hooks = EventHooks::new(vec![Arc::new(pause::Pause::default())]);
    Ok(options)
}
