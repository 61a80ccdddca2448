//! Tests of the documentation: files that it names exist, links lead to files, tables are complete.

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        path::{Path, PathBuf},
    };

    use crate::process;

    #[test]
    fn every_path_in_the_code_map_exists() {
        let text = std::fs::read_to_string(process::root().join("ARCHITECTURE.md")).unwrap();
        let (_, map) = text.split_once("\n## Code map\n").unwrap();
        let paths: Vec<&str> = map
            .lines()
            .take_while(|line| !line.starts_with("## "))
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        assert!(paths.len() > 5, "the code map was not found: {paths:?}");
        for path in paths {
            assert!(
                process::root().join(path).exists(),
                "ARCHITECTURE.md names {path}"
            );
        }
    }

    #[test]
    fn every_crate_is_in_the_code_map() {
        let text = std::fs::read_to_string(process::root().join("ARCHITECTURE.md")).unwrap();
        for entry in std::fs::read_dir(process::root().join("crates")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                text.contains(&format!("| `crates/{name}` |")),
                "crates/{name} is missing"
            );
        }
    }

    /// Crates whose `lib.rs` has a table of modules. Tables of layers are read by `layers`.
    const WITH_TABLES: &[&str] = &["agent", "api", "local", "reconcile", "sim"];

    #[test]
    fn the_table_of_a_crate_names_its_modules() {
        for name in WITH_TABLES {
            let path = process::root().join(format!("crates/{name}/src/lib.rs"));
            let text = std::fs::read_to_string(path).unwrap();
            let (_, table) = text.split_once("//! | module |").unwrap();
            let named: BTreeSet<&str> = table
                .lines()
                .skip(1)
                .map_while(|line| line.strip_prefix("//! |"))
                .filter_map(|row| row.split('`').nth(1))
                .collect();
            // Modules of tests only are left out.
            let code = text.replace("#[cfg(test)]\nmod ", "");
            let modules: BTreeSet<&str> = code
                .lines()
                .filter_map(|line| {
                    let line = line.strip_suffix(';')?;
                    line.strip_prefix("mod ")
                        .or_else(|| line.strip_prefix("pub mod "))
                })
                .collect();
            assert_eq!(named, modules, "crates/{name}/src/lib.rs");
        }
    }

    #[test]
    fn the_example_of_a_plugin_is_the_plugin() {
        let read = |path: &str| std::fs::read_to_string(process::root().join(path)).unwrap();
        let (text, plugins) = (
            read("CONTRIBUTING.md"),
            "crates/engine/src/scheduling/plugins",
        );
        let sources = [
            read(&format!("{plugins}/node_name.rs")),
            read(&format!("{plugins}.rs")),
        ];
        let blocks: Vec<&str> = text
            .split("```rust\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert_eq!(blocks.len(), sources.len());
        for (block, source) in blocks.iter().zip(&sources) {
            assert!(source.contains(block), "not in the sources:\n{block}");
        }
    }

    fn documents() -> Vec<(PathBuf, String)> {
        let root = process::root();
        let folders = [root.to_owned(), root.join("docs")];
        let entries = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
            .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
            .collect()
    }

    #[test]
    fn relative_links_in_documents_lead_to_files() {
        for (document, text) in documents() {
            for target in text
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") {
                    continue;
                }
                let folder = document.parent().unwrap_or(Path::new(""));
                assert!(
                    folder.join(file).exists(),
                    "{} links to {target}",
                    document.display()
                );
            }
        }
    }

    #[test]
    fn files_named_in_documents_exist() {
        let folders = ["crates/", "docs/", "e2e/", "scenarios/", "xtask/"];
        let mut seen = 0;
        for (document, text) in documents() {
            let quoted = text.split('`').skip(1).step_by(2);
            let is_path = |text: &&str| {
                folders.iter().any(|folder| text.starts_with(folder))
                    && !text.contains([' ', '<', '*', '\n'])
            };
            for path in quoted.filter(is_path) {
                let exists = process::root().join(path).exists();
                assert!(exists, "{} names {path}", document.display());
                seen += 1;
            }
        }
        assert!(seen > 10, "paths were not found: {seen}");
    }
}
