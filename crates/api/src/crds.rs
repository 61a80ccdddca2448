//! CustomResourceDefinitions that a cluster needs.
//!
//! `cargo xtask gen` writes them to `deploy/crds` with the example `write-crds`; a test fails when those files are stale. The
//! schemas accept the current and the older layout of each kind.

mod cluster_colocation_profile;
mod custom_node_resource;
mod node_metric;
mod resource_policy;
mod schema;

use serde_json::Value;

/// All definitions with the names of their files.
pub fn all() -> Vec<(&'static str, Value)> {
    vec![
        (
            "config.koordinator.sh_clustercolocationprofiles.yaml",
            cluster_colocation_profile::definition(),
        ),
        (
            "node.katalyst.kubewharf.io_customnoderesources.yaml",
            custom_node_resource::definition(),
        ),
        (
            "scheduling.sigs.x-k8s.io_resourcepolicies.yaml",
            resource_policy::definition(),
        ),
        (
            "slo.koordinator.sh_nodemetrics.yaml",
            node_metric::definition(),
        ),
    ]
}

/// A definition as YAML.
pub fn yaml(definition: &Value) -> Result<String, String> {
    let text = serde_saphyr::to_string(definition).map_err(|error| error.to_string())?;
    Ok(format!("# Written by `cargo xtask gen`.\n{text}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_files_that_users_apply_are_these_definitions() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let files = fs::read_dir(folder).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        });
        let definitions = super::all()
            .into_iter()
            .map(|(name, definition)| (name.to_owned(), super::yaml(&definition).unwrap()));
        let (files, definitions): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (files.collect(), definitions.collect());
        assert!(
            files == definitions,
            "run `cargo xtask gen`, and delete the files in deploy/crds that it does not write"
        );
    }
}
