//! The one-way dependencies of ARCHITECTURE.md, proved from Cargo's own metadata.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// Which of our crates each crate may use. A crate that is not listed may not exist.
const MAY_USE: &[(&str, &[&str])] = &[
    ("engine", &[]),
    ("api", &["engine"]),
    ("apiserver", &[]),
    ("local", &["apiserver", "api", "engine"]),
    ("control-plane", &["api", "engine"]),
    ("agent", &["api", "engine"]),
    ("sim", &["api", "engine"]),
    (
        "tidepool",
        &[
            "control-plane",
            "agent",
            "sim",
            "local",
            "apiserver",
            "api",
            "engine",
        ],
    ),
    (
        "e2e",
        &[
            "control-plane",
            "agent",
            "sim",
            "local",
            "apiserver",
            "api",
            "engine",
        ],
    ),
    ("own-scheduler", &["control-plane", "api", "engine"]),
    ("xtask", &["api", "engine"]),
];

/// What the pure crate must never reach, by any path, and why.
const ENGINE_NEVER: &[(&str, &str)] = &[
    ("tokio", "the engine has no async"),
    ("kube", "the engine does no I/O"),
    ("kube-client", "the engine does no I/O"),
    ("k8s-openapi", "a wire format must not freeze the engine"),
    ("rayon", "the engine has one writer and no threads"),
    ("rand", "seeds come in as arguments"),
];

/// Every broken rule, as a sentence; empty when all hold.
pub(crate) fn violations() -> Result<Vec<String>> {
    let metadata =
        process::read(process::cargo().args(["metadata", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let mut found = check(&direct(&metadata));
    if metadata_has(&metadata, "engine") {
        let tree = process::read(process::cargo().args([
            "tree",
            "--package=engine",
            "--edges=normal",
            "--prefix=none",
            "--format={p}",
            "--locked",
        ]))?;
        found.extend(engine_reaches(&tree));
    }
    Ok(found)
}

fn metadata_has(metadata: &Value, name: &str) -> bool {
    direct(metadata).contains_key(name)
}

/// Our crates, each with those of ours that it names outside its tests.
fn direct(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let ours: Vec<&Value> = packages
        .filter(|package| package["source"].is_null())
        .collect();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = ours.iter().map(|package| name(package)).collect();
    ours.iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let used = dependencies
                .filter(|dependency| dependency["kind"].is_null())
                .map(&name)
                .filter(|dependency| names.contains(dependency))
                .collect();
            (name(package), used)
        })
        .collect()
}

fn check(crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, used) in crates {
        let Some((_, allowed)) = MAY_USE.iter().find(|(listed, _)| listed == name) else {
            found.push(format!(
                "crate `{name}` is not in the list of xtask/src/boundaries.rs"
            ));
            continue;
        };
        for dependency in used
            .iter()
            .filter(|dependency| !allowed.contains(&dependency.as_str()))
        {
            found.push(format!(
                "crate `{name}` uses `{dependency}`; it may use only: {}",
                if allowed.is_empty() {
                    "none of ours".to_owned()
                } else {
                    allowed.join(", ")
                }
            ));
        }
    }
    found
}

fn engine_reaches(tree: &str) -> Vec<String> {
    let reached = |name: &str| {
        tree.lines()
            .any(|line| line.split(' ').next() == Some(name))
    };
    ENGINE_NEVER
        .iter()
        .filter(|(name, _)| reached(name))
        .map(|(name, why)| format!("crate `engine` reaches `{name}`: {why}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_its_boundaries() {
        assert_eq!(violations().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_looks_upwards_is_named() {
        let crates = BTreeMap::from([
            ("engine".to_owned(), vec!["api".to_owned()]),
            ("api".to_owned(), vec!["engine".to_owned()]),
            ("utils".to_owned(), vec![]),
        ]);
        assert_eq!(
            check(&crates),
            [
                "crate `engine` uses `api`; it may use only: none of ours",
                "crate `utils` is not in the list of xtask/src/boundaries.rs",
            ]
        );
    }

    #[test]
    fn an_engine_with_a_runtime_is_named() {
        let tree = "engine v0.0.0\nserde v1.0.0\ntokio v1.54.1\n";
        assert_eq!(
            engine_reaches(tree),
            ["crate `engine` reaches `tokio`: the engine has no async"]
        );
    }
}
