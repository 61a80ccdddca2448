//! Checks on the sources what plugins use. `cargo xtask test` checks the layers of the other modules.
#![expect(
    clippy::disallowed_methods,
    reason = "a test may read the sources it is about"
)]

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

/// Lines of code that are not comments nor part of what is only compiled for tests.
fn code(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    // Inside of an item for tests: how many of its brackets are open, and whether there was one.
    let mut testing: Option<(i64, bool)> = None;
    for line in text.lines().map(str::trim) {
        let line = match line.strip_prefix("#[cfg(test)]") {
            Some(rest) => {
                testing.get_or_insert((0, false));
                rest
            }
            None => line,
        };
        match &mut testing {
            None if line.starts_with("//") => {}
            None => found.push(line),
            Some((open, had_one)) => {
                let count = |brackets: [char; 2]| line.matches(brackets).count() as i64;
                let opened = count(['{', '(']);
                *had_one |= opened > 0;
                *open += opened - count(['}', ')']);
                let ends = line.ends_with(';') || (*had_one && line.ends_with('}'));
                if *open == 0 && ends {
                    testing = None;
                }
            }
        }
    }
    found
}

/// Lines of code that name a module of the crate outside of these.
fn foreign<'a>(text: &'a str, allowed: &[&str]) -> Vec<&'a str> {
    let is_allowed = |rest: &str| allowed.iter().any(|name| rest.starts_with(name));
    code(text)
        .into_iter()
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

/// What plugins may use.
const OF_PLUGINS: &[&str] = &["scheduling::framework", "model"];

#[test]
fn what_reaches_out_is_found() {
    for (line, want) in [
        ("use crate::scheduling::framework::Plan;", false),
        ("// use crate::cluster::Cluster;", false),
        ("use crate::cluster::Cluster;", true),
        ("use crate::{cluster, model};", true),
        (
            "let n = f(crate::model::X, crate::scheduling::evaluate::Y);",
            true,
        ),
        ("use super::super::cluster;", true),
        ("#[cfg(test)] mod tests { use crate::testing::Lab; }", false),
        ("#[cfg(test)]\nuse crate::testing::Lab;", false),
        (
            "#[cfg(test)]\nmod tests;\nuse crate::cluster::Cluster;",
            true,
        ),
        (
            "#[cfg(test)]\nmod tests {\n  use crate::testing::Lab;\n}\nuse crate::cluster::Cluster;",
            true,
        ),
        (
            "#[cfg(test)]\nmod tests {\n  fn f() {\n    crate::testing::node();\n  }\n}\n",
            false,
        ),
    ] {
        let found = !foreign(line, OF_PLUGINS).is_empty();
        assert_eq!(found, want, "{line}");
    }
}

#[test]
fn plugins_import_the_framework_and_the_model_only() {
    assert_eq!(
        foreign_lines("scheduling/plugins", OF_PLUGINS),
        Vec::<String>::new()
    );
}

/// Results of an opaque check cannot be kept, so only plugins whose state is neither a number nor a count may use one.
#[test]
fn only_some_plugins_are_opaque() {
    let mut files = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scheduling/plugins");
    sources(&folder, &mut files);
    files.retain(|file| file.file_name().is_none_or(|name| name != "tests.rs"));
    let mut opaque: Vec<String> = files
        .iter()
        .filter(|file| {
            let text = fs::read_to_string(file).unwrap();
            let lines = code(&text).join("\n");
            ["filter_nodes", "score_nodes", "NodeFilter", "NodeScore"]
                .iter()
                .any(|word| lines.contains(word))
        })
        .map(|file| {
            let plugin = file.strip_prefix(&folder).unwrap().components().next();
            let plugin = plugin.unwrap().as_os_str().to_string_lossy();
            plugin.trim_end_matches(".rs").to_owned()
        })
        .collect();
    opaque.sort();
    opaque.dedup();
    // NUMA will be the third.
    assert_eq!(opaque, ["node_volume_limits", "volume_binding"]);
}
