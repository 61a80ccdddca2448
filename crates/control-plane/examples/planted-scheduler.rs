//! A scheduler with a planted fault: `planted-scheduler scheduler --kubeconfig=PATH --config=PATH`.
//!
//! `cargo xtask chaos --planted NAME` builds and runs it in place of `tidepool scheduler`, and expects that the checker finds
//! the fault. It needs the feature `planted-faults`, which no shipped program has.

use std::error::Error;

use control_plane::client::Connect;
use control_plane::election::Election;
use control_plane::scheduler::{Options, Running};
use control_plane::serve::Serve;
use kube::config::{KubeConfigOptions, Kubeconfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let (configuration, _) = api::config::load(&std::fs::read_to_string(flag("--config=")?)?)?;
    let (mut options, _) =
        Options::new(&configuration, engine::scheduling::plugins::ALL, "planted")?;
    options.election = Some(Election::new(&configuration.leader_election, "planted"));
    options.serve = Some(Serve::default());
    let file = Kubeconfig::read_from(flag("--kubeconfig=")?)?;
    let cluster = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let mut running = Running::start(Connect::Config(Box::new(cluster)), options)?;
    Err(running.ended().await.into())
}

fn flag(name: &str) -> Result<String, String> {
    let mut given = std::env::args().filter_map(|it| it.strip_prefix(name).map(str::to_owned));
    given.next().ok_or_else(|| format!("{name} is missing"))
}
