//! The dependencies between our crates are those of the table in ARCHITECTURE.md, checked with Cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// Our crates that a crate depends on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Edges {
    normal: BTreeSet<String>,
    /// Dev-dependencies that are not normal ones too.
    dev: BTreeSet<String>,
}

type Graph = BTreeMap<String, Edges>;

/// Crates that the engine must not depend on, even indirectly, and why.
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
    let text = std::fs::read_to_string(process::root().join("ARCHITECTURE.md"))
        .context("cannot read ARCHITECTURE.md")?;
    let metadata = process::metadata(&[])?;
    let tree = process::read(process::cargo().args([
        "tree",
        "--package=engine",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--locked",
    ]))?;
    let mut found = differences(&documented(&text), &actual(&metadata));
    found.extend(engine_reaches(&tree));
    Ok(found)
}

/// The table under the heading "Dependencies": crate, what it uses, what its tests use too.
fn documented(text: &str) -> Graph {
    let names = |cell: &str| {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let section = text
        .split("\n## ")
        .find(|it| it.starts_with("Dependencies\n"));
    let rows = section.unwrap_or_default().lines();
    rows.filter_map(|row| {
        let mut cells = row.strip_prefix("| `")?.split('|');
        let (name, normal, dev) = (cells.next()?, cells.next()?, cells.next()?);
        let name = name.trim().trim_end_matches('`').to_owned();
        let (normal, dev) = (names(normal), names(dev));
        Some((name, Edges { normal, dev }))
    })
    .collect()
}

/// These crates, and those that use one of them, directly or not, if only in tests.
pub(crate) fn with_dependents(metadata: &Value, crates: BTreeSet<String>) -> BTreeSet<String> {
    let graph = actual(metadata);
    let mut found = crates;
    loop {
        let uses_one = |edges: &Edges| {
            (&edges.normal | &edges.dev)
                .iter()
                .any(|it| found.contains(it))
        };
        let dependents = graph.iter().filter(|(_, edges)| uses_one(edges));
        let dependents: BTreeSet<String> = dependents.map(|(name, _)| name.clone()).collect();
        if dependents.is_subset(&found) {
            return found;
        }
        found.extend(dependents);
    }
}

/// The dependencies between our crates, from Cargo's metadata.
fn actual(metadata: &Value) -> Graph {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let ours: Vec<&Value> = packages
        .filter(|package| package["source"].is_null())
        .collect();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = ours.iter().map(|package| name(package)).collect();
    let edges = |package: &Value| {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let of_kind = |kind: Option<&str>| -> BTreeSet<String> {
            let dependencies = dependencies.clone();
            dependencies
                .filter(|dependency| dependency["kind"].as_str() == kind)
                .map(name)
                .filter(|dependency| names.contains(dependency))
                .collect()
        };
        let normal = of_kind(None);
        let dev = &of_kind(Some("dev")) - &normal;
        Edges { normal, dev }
    };
    ours.iter()
        .map(|package| (name(package), edges(package)))
        .collect()
}

fn differences(documented: &Graph, actual: &Graph) -> Vec<String> {
    let names: BTreeSet<&String> = documented.keys().chain(actual.keys()).collect();
    let compare = |name: &String| match (documented.get(name), actual.get(name)) {
        (None, _) => vec![format!("crate `{name}` is not in ARCHITECTURE.md's table")],
        (_, None) => vec![format!(
            "ARCHITECTURE.md names crate `{name}`, which does not exist"
        )],
        (Some(documented), Some(actual)) => {
            let uses = |what: &str, documented: &BTreeSet<String>, actual: &BTreeSet<String>| {
                let extra = actual - documented;
                let extra = extra
                    .iter()
                    .map(|it| format!("{what} `{it}`, but ARCHITECTURE.md does not allow it"));
                let missing = documented - actual;
                let missing = missing
                    .iter()
                    .map(|it| format!("{what} no `{it}`, but ARCHITECTURE.md lists it"));
                extra.chain(missing).collect::<Vec<_>>()
            };
            let normal = format!("crate `{name}` uses");
            let dev = format!("the tests of crate `{name}` use");
            [
                uses(&normal, &documented.normal, &actual.normal),
                uses(&dev, &documented.dev, &actual.dev),
            ]
            .concat()
        }
    };
    names.into_iter().flat_map(compare).collect()
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
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_are_those_of_the_table() {
        assert_eq!(violations().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_and_one_that_is_only_there_are_reported() {
        let table = "\n## Dependencies\n\n| crate | uses | its tests also use |\n|---|---|---|\n\
            | `api` | `engine` | `apiserver` |\n| `engine` | | |\n| `gone` | | |\n\n## Other\n| `no` | | |\n";
        let package = |name: &str, dependencies: Value| json!({"name": name, "source": null, "dependencies": dependencies});
        let metadata = json!({"packages": [
            package("api", json!([{"name": "engine", "kind": null}, {"name": "serde", "kind": null}])),
            package("apiserver", json!([])),
            package("engine", json!([{"name": "api", "kind": "dev"}])),
            {"name": "serde", "source": "registry", "dependencies": []},
        ]});
        assert_eq!(
            differences(&documented(table), &actual(&metadata)),
            [
                "the tests of crate `api` use no `apiserver`, but ARCHITECTURE.md lists it",
                "crate `apiserver` is not in ARCHITECTURE.md's table",
                "the tests of crate `engine` use `api`, but ARCHITECTURE.md does not allow it",
                "ARCHITECTURE.md names crate `gone`, which does not exist",
            ]
        );
    }

    #[test]
    fn an_engine_with_an_async_runtime_is_reported() {
        let tree = "engine v0.0.0\nserde v1.0.0\ntokio v1.54.1\n";
        assert_eq!(
            engine_reaches(tree),
            ["crate `engine` reaches `tokio`: the engine has no async"]
        );
    }
}
