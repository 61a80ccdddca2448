//! Every dependency in a Cargo.toml occurs in the sources of its package.
//!
//! It searches text, so it may miss an unused dependency; it needs no other program.

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use crate::process;

    /// Dependencies that only select features of others, and one of a file that tests share with those of control-plane.
    const ELSEWHERE: &[(&str, &str)] = &[
        ("agent", "serde-saphyr"),
        ("control-plane", "k8s-openapi"),
        ("e2e", "k8s-openapi"),
    ];

    fn occurs(name: &str, folder: &Path) -> bool {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return false;
        };
        let library = match name {
            "rustls-webpki" => "webpki".to_owned(),
            _ => name.replace('-', "_"),
        };
        let path = format!("{library}::");
        entries.map(|entry| entry.unwrap().path()).any(|file| {
            if file.is_dir() {
                return occurs(name, &file);
            }
            let is_source = file.extension().is_some_and(|extension| extension == "rs");
            is_source && std::fs::read_to_string(file).unwrap().contains(&path)
        })
    }

    #[test]
    fn every_dependency_is_used() {
        let metadata = process::read(process::cargo().args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--locked",
        ]));
        let metadata: Value = serde_json::from_str(&metadata.unwrap()).unwrap();
        let mut unused = Vec::new();
        for package in metadata["packages"].as_array().unwrap() {
            let crate_name = package["name"].as_str().unwrap();
            let folder = Path::new(package["manifest_path"].as_str().unwrap());
            let folder = folder.parent().unwrap();
            for dependency in package["dependencies"].as_array().unwrap() {
                let name = dependency["name"].as_str().unwrap();
                let is_dev = dependency["kind"] == "dev";
                let folders: &[&str] = if is_dev {
                    &["src", "tests", "examples", "benches"]
                } else {
                    &["src"]
                };
                let is_used = folders.iter().any(|it| occurs(name, &folder.join(it)));
                if !is_used && !ELSEWHERE.contains(&(crate_name, name)) {
                    unused.push(format!("{crate_name}: {name}"));
                }
            }
        }
        assert!(unused.is_empty(), "unused: {}", unused.join(", "));
    }
}
