//! The real Kubernetes, built from the Go module registry and kept outside the checkout.
//!
//! The cache is keyed by the hash of `e2e/go.sum` and of the build flags, so a checkout that names
//! the same versions finds the binaries of an earlier one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::process;

/// The version that the built binaries report; the module version in `e2e/go.mod`.
const KUBERNETES: &str = "v1.36.4";

/// File name and Go package, slowest to compile first: the later ones share its packages.
const BINARIES: [(&str, &str); 5] = [
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
];

pub(crate) fn print_directory() -> Result<ExitCode> {
    println!("{}", directory()?.display());
    Ok(ExitCode::SUCCESS)
}

/// The directory that holds the five binaries; builds what is missing.
pub(crate) fn directory() -> Result<PathBuf> {
    for variable in ["TIDEPOOL_CONTROLPLANE", "KUBEBUILDER_ASSETS"] {
        if let Some(given) = std::env::var_os(variable) {
            return complete(Path::new(&given)).with_context(|| format!("in ${variable}"));
        }
    }
    build()
}

/// Refuses a directory in which a binary is missing.
fn complete(directory: &Path) -> Result<PathBuf> {
    for (file, _) in BINARIES {
        if !directory.join(file).is_file() {
            bail!(
                "{} has no {file}; `cargo xtask controlplane` builds all five",
                directory.display()
            );
        }
    }
    Ok(directory.to_owned())
}

fn build() -> Result<PathBuf> {
    let module = process::root().join("e2e");
    let directory = cache_root()?.join("controlplane").join(cache_key(&module)?);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;

    // Two builds of one checkout at a time would do the work twice: the second waits here.
    let lock = File::create(directory.join("lock"))
        .with_context(|| format!("cannot write to {}", directory.display()))?;
    lock.lock()
        .context("cannot lock the control plane's cache")?;

    let missing: Vec<_> = BINARIES
        .iter()
        .filter(|(file, _)| !directory.join(file).is_file())
        .collect();
    if !missing.is_empty() {
        eprintln!(
            "building {} of Kubernetes {KUBERNETES} into {} (about six minutes on two cores the first time)",
            plural(missing.len(), "binary", "binaries"),
            directory.display()
        );
    }
    for (number, (file, package)) in missing.iter().enumerate() {
        let started = Instant::now();
        eprintln!("  [{}/{}] {file} ...", number + 1, missing.len());
        // An interrupted build must not leave half a binary under the final name.
        let unfinished = directory.join(format!("{file}.unfinished"));
        process::run(go_build(&module, &unfinished).arg(package))?;
        std::fs::rename(&unfinished, directory.join(file))?;
        eprintln!(
            "  [{}/{}] {file} {:.0?}",
            number + 1,
            missing.len(),
            started.elapsed()
        );
    }
    complete(&directory)
}

/// `go build` as every Go program of this repository is built.
pub(crate) fn go_build(module: &Path, output: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            &linker_flags(),
            "-o",
        ])
        .arg(output);
    command
}

fn linker_flags() -> String {
    // Without it the version is v0.0.0-master, and kubectl warns.
    let version = "k8s.io/component-base/version";
    format!(
        "-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor=36"
    )
}

fn cache_key(module: &Path) -> Result<String> {
    let sums = std::fs::read(module.join("go.sum")).context("cannot read e2e/go.sum")?;
    let mut hash = Sha256::new();
    hash.update(sums);
    hash.update(linker_flags());
    Ok(hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// `$XDG_CACHE_HOME/tidepool` or `~/.cache/tidepool`.
pub(crate) fn cache_root() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        return Ok(PathBuf::from(cache).join("tidepool"));
    }
    let home = std::env::home_dir().context("there is no home directory; set XDG_CACHE_HOME")?;
    Ok(home.join(".cache").join("tidepool"))
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_binary_is_refused_by_name() {
        let empty = std::env::temp_dir();
        let error = complete(&empty.join("no-such-directory"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("has no kube-scheduler"), "{error}");
        assert!(error.contains("cargo xtask controlplane"), "{error}");
    }

    #[test]
    fn the_stamped_version_is_the_one_in_go_mod() {
        let module = std::fs::read_to_string(process::root().join("e2e/go.mod")).unwrap();
        assert!(module.contains(&format!("k8s.io/kubernetes {KUBERNETES}")));
    }
}
