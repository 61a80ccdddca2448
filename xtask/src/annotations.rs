//! Annotations and labels that change decisions are read in few places, so that a review finds them: one module per component, which
//! says why each value may be believed (docs/security.md).
//!
//! It searches text for the ways in which our sources read them, not for types: a review has to find a new way.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process;

/// Files and folders that may read them, and whose part that is.
const READERS: &[(&str, &str)] = &[
    (
        "crates/agent/src/objects",
        "the agent: its Node and the pods of its node",
    ),
    (
        "crates/api/src/parse.rs",
        "objects as the scheduler, the controllers, the gate and the simulator read them",
    ),
    ("crates/api/src/parse/", "the same, by kind"),
    (
        "crates/apiserver/src/",
        "the embedded cluster stores what kube-apiserver stores, and decides nothing",
    ),
    (
        "crates/control-plane/src/controllers/agents/observe.rs",
        "the controller of agents: Leases of agents, and pods that stay on a silent node",
    ),
    (
        "crates/control-plane/src/controllers/resource_policy/observe.rs",
        "the controller of ResourcePolicies: its own two annotations",
    ),
    (
        "crates/control-plane/src/controllers/schedulers/observe.rs",
        "the registry of schedulers: names on Leases",
    ),
    (
        "crates/control-plane/src/election/lease/record.rs",
        "leader election: the component's own Lease",
    ),
    (
        "crates/control-plane/src/gate/reviewer.rs",
        "the gate: zones on a Binding",
    ),
    (
        "crates/reconcile/src/watch/reflector.rs",
        "bookmarks, which the API server makes",
    ),
    (
        "crates/control-plane/src/webhook/objects.rs",
        "the webhook: labels of Namespaces",
    ),
    (
        "crates/control-plane/src/webhook/pods.rs",
        "the webhook: which pods it is asked about",
    ),
    (
        "crates/engine/src/admission/",
        "the webhook: pods as JSON, before they are stored",
    ),
    (
        "crates/local/src/",
        "the embedded cluster: its one user is its administrator",
    ),
    (
        "crates/sim/src/expect.rs",
        "the simulator compares what a scenario expects",
    ),
    (
        "crates/tidepool/src/ask/lease.rs",
        "commands: where the leader of a component serves",
    ),
    (
        "crates/tidepool/src/explain/",
        "commands: what they print decides nothing",
    ),
    (
        "crates/tidepool/src/schedulers.rs",
        "commands: what they print decides nothing",
    ),
    (
        "crates/tidepool/src/up/",
        "the embedded cluster: its one user is its administrator",
    ),
];

/// What a read looks like, without spaces and line breaks before a dot.
const READS: &[&str] = &[
    "annotations.get(",
    "annotations[",
    ".get(\"annotations\")",
    ".pointer(\"/metadata/annotations",
    "annotations.contains_key(",
    "annotations.as_ref()",
    ".annotations.iter()",
    "annotations.unwrap_or_default()",
    "annotations()",
    "[\"annotations\"].",
    "[\"annotations\"][",
    ".annotation(",
    "meta.labels.get(",
    "meta.labels.as_ref()",
    "meta.labels.contains_key(",
    "meta.labels.iter()",
    "meta.labels.unwrap_or_default()",
    "meta.labels[",
    "metadata.labels.get(",
    "metadata.labels.as_ref()",
    "metadata.labels.contains_key(",
    "metadata.labels.iter()",
    "metadata.labels.unwrap_or_default()",
    "metadata.labels[",
    ".get(\"labels\")",
    ".pointer(\"/metadata/labels",
    "[\"labels\"].",
    "[\"labels\"][",
];

/// What is wrong with a file, or with a line of the list above.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    Read { path: String, text: String },
    Unused { reader: &'static str },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, text } => write!(
                f,
                "{path}: `{text}` reads annotations or labels: read them in the component's module of xtask/src/annotations.rs"
            ),
            Self::Unused { reader } => write!(
                f,
                "{reader} reads no annotations or labels: remove it from xtask/src/annotations.rs"
            ),
        }
    }
}

/// Every violation in the sources of our crates; empty when all is well.
pub(crate) fn violations() -> Result<Vec<Violation>> {
    let root = process::root();
    let mut files = Vec::new();
    walk(&root.join("crates"), &mut files)?;
    files.sort();
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for path in files {
        let file = root.join(&path);
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let reads = reads(&text);
        match READERS.iter().find(|(reader, _)| path.starts_with(reader)) {
            Some((reader, _)) if !reads.is_empty() => {
                used.insert(*reader);
            }
            Some(_) => {}
            None => found.extend(reads.into_iter().map(|text| Violation::Read {
                path: path.clone(),
                text,
            })),
        }
    }
    let readers = READERS.iter().map(|(reader, _)| *reader);
    let unused = readers.filter(|reader| !used.contains(reader));
    found.extend(unused.map(|reader| Violation::Unused { reader }));
    Ok(found)
}

/// The lines that read, without tests and comments.
fn reads(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next();
    let mut lines: Vec<String> = Vec::new();
    for line in code.unwrap_or_default().lines().map(str::trim) {
        if line.starts_with("//") {
            continue;
        }
        // A chain of calls is one line.
        match lines.last_mut().filter(|_| line.starts_with('.')) {
            Some(last) => last.push_str(line),
            None => lines.push(line.to_owned()),
        }
    }
    lines.retain(|line| READS.iter().any(|read| line.contains(read)));
    lines
}

/// Sources below `src`, without tests of their own file, as paths from the root.
fn walk(folder: &Path, files: &mut Vec<String>) -> Result<()> {
    let cannot = || format!("cannot list {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if matches!(name, Some("tests" | "tests.rs" | "examples" | "benches")) {
            continue;
        }
        if path.is_dir() {
            walk(&path, files)?;
        } else if name.is_some_and(|name| name.ends_with(".rs")) {
            let path = path.strip_prefix(process::root()).unwrap_or(&path);
            files.push(path.display().to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_where_the_list_says() {
        let found = violations().unwrap();
        let found: Vec<String> = found.iter().map(Violation::to_string).collect();
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_read_is_found_in_any_of_its_forms() {
        for (case, text, want) in [
            ("a key", "let a = meta.annotations.get(KEY);", 1),
            (
                "a chain over lines",
                "let a = pod\n    .metadata\n    .annotations\n    .get(KEY);",
                1,
            ),
            (
                "JSON",
                "pod[\"metadata\"][\"annotations\"][KEY].as_str()",
                1,
            ),
            ("a label", "pod.metadata.labels.get(KEY)", 1),
            ("an index", "let a = &meta.annotations[KEY];", 1),
            ("a field", "metadata.get(\"annotations\")?.get(KEY)", 1),
            ("a pointer", "pod.pointer(\"/metadata/annotations/a\")", 1),
            (
                "all labels",
                "namespace.metadata.labels.iter().flatten()",
                1,
            ),
            ("labels of JSON", "pod.pointer(\"/metadata/labels\")", 1),
            (
                "labels of JSON by name",
                "metadata\n    .get(\"labels\")",
                1,
            ),
            ("a comment", "// annotations.get(KEY)", 0),
            (
                "a test",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    annotations.get(KEY);\n}",
                0,
            ),
            (
                "a write into JSON",
                "metadata[\"labels\"] = labels.into();",
                0,
            ),
            (
                "a write",
                "json!({\"metadata\": {\"annotations\": {KEY: value}}})",
                0,
            ),
        ] {
            assert_eq!(reads(text).len(), want, "{case}");
        }
    }
}
