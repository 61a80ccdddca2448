//! The raw binder: what an API server and our own client allow when nothing has to be decided.

use std::path::Path;

use anyhow::{Context, Result, bail};
use control_plane::client::Connect;
use control_plane::scheduler::replay::{Placement, replay};

/// Ends when everything is bound.
pub(crate) fn run(kubeconfig: &Path, placements: &Path) -> Result<()> {
    let text = std::fs::read_to_string(placements)
        .with_context(|| format!("cannot read {}", placements.display()))?;
    let placements: Vec<Placement> = text.lines().map(placement).collect::<Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        replay(Connect::Config(Box::new(config)), placements).await?;
        // The benchmark reads what this process has used, and then stops it.
        std::future::pending::<()>().await;
        Ok(())
    })
}

/// `namespace name uid node`
fn placement(line: &str) -> Result<Placement> {
    let words: Vec<&str> = line.split(' ').collect();
    let [namespace, name, uid, node] = words[..] else {
        bail!("`{line}` is no placement: want namespace, name, uid and node");
    };
    Ok(Placement {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
    })
}
