//! CustomResourceDefinitions that a cluster needs.
//!
//! `cargo xtask gen` writes them to `deploy/crds`; a test fails when those files are stale. The schemas accept the current
//! and the older layout of each kind.

mod custom_node_resource;
mod schema;

use serde_json::Value;

/// All definitions with the names of their files.
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
