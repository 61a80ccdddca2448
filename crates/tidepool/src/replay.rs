//! `tidepool replay`: binds pods without decisions, to measure API server and client. For benchmarks.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use control_plane::client::Connect;
use control_plane::scheduler::replay::{Placement, replay};

use crate::cluster::Source;

/// Bind the pods of a file as fast as possible, and wait to be stopped
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct Flags {
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Lines of namespace, name, uid and node
    placements: PathBuf,
}

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let text = crate::read_input(&flags.placements)?;
    let placements: Vec<Placement> = text.lines().map(placement).collect::<Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let config = Source::File(flags.kubeconfig.clone()).read(None).await?.0;
        replay(Connect::Config(Box::new(config)), placements).await?;
        // The benchmark reads the resource usage of this process, and then stops it.
        std::future::pending::<()>().await;
        Ok(())
    })
}

fn placement(line: &str) -> Result<Placement> {
    let words: Vec<&str> = line.split(' ').collect();
    let [namespace, name, uid, node] = words[..] else {
        bail!("invalid placement `{line}`: use namespace, name, uid and node");
    };
    Ok(Placement {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
    })
}
