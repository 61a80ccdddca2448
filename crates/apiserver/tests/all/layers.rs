//! The top-level modules of the crate form layers: a module uses only itself and the modules below it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom to the top, as in the table of `lib.rs`.
const LAYERS: [&str; 8] = [
    "store",
    "objects",
    "kinds",
    "custom",
    "resources",
    "protocol",
    "handlers",
    "server",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `["kinds", "pod", "qos"]` for `src/kinds/pod/qos.rs`.
fn module_path(file: &Path) -> Vec<String> {
    let path = file.strip_prefix(source()).unwrap().with_extension("");
    let parts = path.iter().map(|part| part.to_str().unwrap().to_owned());
    parts.collect()
}

fn leading_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The top-level modules that a module at `depth` names, by `crate::` or by enough `super::`.
fn used_layers(text: &str, depth: usize) -> Vec<String> {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut used = Vec::new();
    for line in code {
        for (at, prefix) in line.match_indices("crate::") {
            used.push(leading_name(&line[at + prefix.len()..]).to_owned());
        }
        let climb = "super::".repeat(depth);
        for (at, _) in line.match_indices(&climb) {
            let name = leading_name(&line[at + climb.len()..]);
            used.extend(LAYERS.contains(&name).then(|| name.to_owned()));
        }
    }
    used
}

fn rank(layer: &str) -> Option<usize> {
    LAYERS.iter().position(|known| *known == layer)
}

#[test]
fn no_module_uses_a_module_above_it() {
    let mut files = Vec::new();
    rust_files(&source(), &mut files);
    let mut violations = Vec::new();
    for file in files {
        let path = module_path(&file);
        if path == ["lib"] {
            continue;
        }
        let own = rank(&path[0]).unwrap_or_else(|| panic!("`{}` is in no layer", path[0]));
        for used in used_layers(&fs::read_to_string(&file).unwrap(), path.len()) {
            // Names that are no layer, such as the `{` of a group, would hide a dependency.
            match rank(&used) {
                Some(layer) if layer <= own => {}
                _ => violations.push(format!("{} uses `crate::{used}`", path.join("::"))),
            }
        }
    }
    assert_eq!(violations, Vec::<String>::new());
}

#[test]
fn both_ways_to_name_a_module_are_found() {
    for (text, depth, want) in [
        ("use crate::server::Cluster;", 2, vec!["server"]),
        ("let x = crate::custom::kinds();", 1, vec!["custom"]),
        ("use super::server::Cluster;", 1, vec!["server"]),
        ("use super::super::server::Cluster;", 2, vec!["server"]),
        ("use super::pod;", 1, vec![]),
        ("use super::server;", 2, vec![]),
        ("use crate::{kinds, server};", 1, vec![""]),
        ("//! See `crate::server`.", 1, vec![]),
    ] {
        assert_eq!(used_layers(text, depth), want, "{text}");
    }
}

#[test]
fn the_table_of_the_crate_names_every_module() {
    let text = fs::read_to_string(source().join("lib.rs")).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("//! | `"))
        .collect();
    let layers = rows.iter().map(|row| leading_name(&row["//! | `".len()..]));
    assert_eq!(layers.rev().collect::<Vec<_>>(), LAYERS);
    let mut files = Vec::new();
    rust_files(&source(), &mut files);
    for file in files {
        if let [layer, module] = &module_path(&file)[..] {
            let row = rows.iter().rev().nth(rank(layer).unwrap()).unwrap();
            let named = row.contains(&format!("`{module}`"));
            assert!(named, "`{layer}::{module}` is not in the table of lib.rs");
        }
    }
}
