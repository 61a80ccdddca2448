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
fn foreign_lines(folder: &str, allowed: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(folder),
        &mut files,
    );
    assert!(!files.is_empty(), "no sources in {folder}");
    files.retain(|file| file.file_name().is_none_or(|name| name != "tests.rs"));
    let mut foreign = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let outside = line
                .split("crate::")
                .skip(1)
                .any(|rest| !allowed.iter().any(|name| rest.starts_with(name)));
            if outside {
                foreign.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    foreign
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
