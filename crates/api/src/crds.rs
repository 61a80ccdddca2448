//! Kinds of our own and of the peers' that a cluster must know: their definitions, as they are applied.
//!
//! `cargo xtask gen` writes them to `deploy/crds`; a test fails when those files are stale. Both forms of each kind are
//! accepted, the one of the design and the one of today.

mod custom_node_resource;
mod schema;

use serde_json::Value;

/// Every definition with the name of its file.
pub fn all() -> Vec<(&'static str, Value)> {
    vec![(
        "node.katalyst.kubewharf.io_customnoderesources.yaml",
        custom_node_resource::definition(),
    )]
}

/// A definition as YAML.
pub fn yaml(definition: &Value) -> Result<String, String> {
    let text = serde_saphyr::to_string(definition).map_err(|error| error.to_string())?;
    Ok(format!("# Written by `cargo xtask gen`.\n{text}"))
}
