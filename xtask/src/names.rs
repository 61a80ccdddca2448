//! Names of types: a crate has one type per name, and no type is named by a pronoun or a question word.

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        path::{Path, PathBuf},
    };

    use crate::process;

    /// Names that several modules of a crate may use, each for a type of its own.
    const SHARED: &[(&str, &str)] = &[
        ("Args", "the arguments of the module's plugin"),
        ("Command", "the subcommands of the module's command"),
        ("Flags", "the flags of the module's command"),
    ];

    /// A name is the noun of a thing.
    const NOT_NOUNS: &[&str] = &[
        "How", "It", "Such", "That", "Them", "Then", "There", "They", "This", "Those", "What",
        "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why",
    ];

    /// The types of a file, tests excluded: `mod tests { ... }` is indented.
    fn types(text: &str) -> impl Iterator<Item = &str> {
        text.lines().filter_map(|line| {
            let item = match line.strip_prefix("pub") {
                Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
                Some(rest) => rest.trim_start(),
                None => line,
            };
            let kinds = ["struct ", "enum ", "trait "];
            let name = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
            name.split(|c: char| !c.is_alphanumeric()).next()
        })
    }

    /// Adds the sources in a folder that are not under `#[cfg(test)]`.
    fn add_sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                add_sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }

    fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        add_sources(folder, &mut found);
        let mut test_only = Vec::new();
        for (path, text) in &found {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let children = match stem {
                "lib" | "main" => path.with_file_name(""),
                _ => path.with_extension(""),
            };
            for rest in text.split("#[cfg(test)]\nmod ").skip(1) {
                if let Some((name, _)) =
                    rest.split_once(';').filter(|(name, _)| !name.contains(' '))
                {
                    test_only.push(children.join(name));
                }
            }
        }
        found.retain(|(path, _)| {
            !test_only
                .iter()
                .any(|module| path.with_extension("").starts_with(module))
        });
        found
    }

    #[test]
    fn a_crate_has_one_type_per_name() {
        let mut wrong = Vec::new();
        for entry in std::fs::read_dir(process::root().join("crates")).unwrap() {
            let folder = entry.unwrap().path();
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (path, text) in sources(&folder.join("src")) {
                let place = path.strip_prefix(&folder).unwrap().display().to_string();
                for found in types(&text) {
                    places
                        .entry(found.to_owned())
                        .or_default()
                        .push(place.clone());
                }
            }
            assert!(!places.is_empty(), "{name} has no types");
            for (found, places) in places {
                if NOT_NOUNS.contains(&&found[..]) {
                    wrong.push(format!(
                        "{name}: `{found}` is no noun: {}",
                        places.join(", ")
                    ));
                } else if places.len() > 1 && !SHARED.iter().any(|(shared, _)| *shared == found) {
                    wrong.push(format!("{name}: several `{found}`: {}", places.join(", ")));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }

    #[test]
    fn types_are_found_by_their_declarations() {
        let text = "pub struct A;\nstruct B<T>(T);\npub(crate) enum C {\nmod tests {\n    struct D;\ntrait E {}\nfn struct_f() {}\n";
        assert_eq!(types(text).collect::<Vec<_>>(), ["A", "B", "C", "E"]);
    }
}
