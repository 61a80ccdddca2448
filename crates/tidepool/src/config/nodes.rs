//! Checks a configuration against the nodes of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};
use api::config::{self, Warning};
use engine::model::Resource;
use engine::scheduling::plugins;
use engine::scheduling::profile::Unoffered;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A node or a list of nodes, as kubectl prints it in YAML or JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Printed {
    kind: String,
    items: Vec<Printed>,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    allocatable: BTreeMap<String, IgnoredAny>,
}

/// Warnings about resources of the configuration that no node of the file has. None for an invalid configuration.
pub(super) fn unoffered(file: &Path, configuration: &str) -> Result<Vec<Warning>> {
    let offered = offered(file)?;
    let Ok((configuration, _)) = config::load(configuration) else {
        return Ok(Vec::new());
    };
    let Ok((profiles, _)) = configuration.profiles(plugins::ALL) else {
        return Ok(Vec::new());
    };
    let unoffered = Unoffered::among(profiles.iter(), &offered);
    let warnings = unoffered.iter().map(|it| Warning {
        line: None,
        field: String::new(),
        text: it.to_string(),
    });
    Ok(warnings.collect())
}

fn offered(file: &Path) -> Result<Vec<Resource>> {
    let (name, wanted) = (
        file.display(),
        "pass the output of `kubectl get nodes -o yaml`",
    );
    let printed: Printed = match serde_saphyr::from_str(&crate::read_input(file)?) {
        Ok(printed) => printed,
        Err(error) => bail!("cannot read nodes from {name}: {error}"),
    };
    let nodes = match &printed.kind[..] {
        "List" | "NodeList" => printed.items,
        _ => vec![printed],
    };
    if nodes.is_empty() {
        bail!("{name} contains no nodes: {wanted}");
    }
    if let Some(other) = nodes.iter().find(|node| node.kind != "Node") {
        bail!(
            "{name} contains a `{}` instead of a Node: {wanted}",
            other.kind
        );
    }
    let names = nodes.iter().flat_map(|node| node.status.allocatable.keys());
    let resources: BTreeSet<Resource> = names.filter_map(|name| Resource::parse(name)).collect();
    Ok(resources.into_iter().collect())
}
