//! The walls inside the crate, checked on the sources.
#![expect(
    clippy::disallowed_methods,
    reason = "a test may read the sources it is about"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lines of code that are not part of tests and name a module of the crate outside of these.
fn foreign<'a>(text: &'a str, allowed: &[&str]) -> Vec<&'a str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_allowed = |rest: &str| allowed.iter().any(|name| rest.starts_with(name));
    code.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
        .filter(|line| {
            let reaches_out = line.split("crate::").skip(1).any(|rest| !is_allowed(rest));
            reaches_out || line.contains("super::super")
        })
        .collect()
}

fn foreign_lines(folder: &str, allowed: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&source.join(folder), &mut files);
    assert!(!files.is_empty(), "no sources in {folder}");
    files.retain(|file| file.file_name().is_none_or(|name| name != "tests.rs"));
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = foreign(&text, allowed);
        found.extend(
            lines
                .iter()
                .map(|line| format!("{}: {line}", file.display())),
        );
    }
    found
}

#[test]
fn what_reaches_out_is_found() {
    for (line, want) in [
        ("use crate::framework::Plan;", false),
        ("// use crate::cluster::Cluster;", false),
        ("use crate::cluster::Cluster;", true),
        ("use crate::{cluster, model};", true),
        ("let n = f(crate::model::X, crate::evaluate::Y);", true),
        ("use super::super::cluster;", true),
        ("#[cfg(test)] mod tests { use crate::testing::Lab; }", false),
    ] {
        let found = !foreign(line, &["framework", "model"]).is_empty();
        assert_eq!(found, want, "{line}");
    }
}

#[test]
fn plugins_import_the_framework_and_the_model_only() {
    assert_eq!(
        foreign_lines("plugins", &["framework", "model"]),
        Vec::<String>::new()
    );
}

#[test]
fn the_model_imports_nothing_of_the_crate() {
    assert_eq!(foreign_lines("model", &[]), Vec::<String>::new());
}
