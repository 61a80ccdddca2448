//! The real Kubernetes, built from the Go module registry and kept outside the checkout.
//!
//! The cache is keyed by the hash of `e2e/go.sum` and of the build flags, so a checkout that names
//! the same versions finds the binaries of an earlier one and builds only those that it lacks.

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
const BINARIES: [(&str, &str); 6] = [
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    (
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
];

/// Modules that only the kubelet imports. Their sums are not part of the key of the cache: a directory
/// that was built without the kubelet keeps its binaries and gains this one.
const KUBELET_MODULES: [&str; 2] = [
    "go.opentelemetry.io/contrib/instrumentation/github.com/emicklei/go-restful/otelrestful ",
    "k8s.io/cri-streaming ",
];

pub(crate) fn print_directory() -> Result<ExitCode> {
    println!("{}", directory()?.display());
    Ok(ExitCode::SUCCESS)
}

/// The directory that holds the six binaries; builds what is missing.
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
                "{} has no {file}; `cargo xtask controlplane` builds all six",
                directory.display()
            );
        }
    }
    Ok(directory.to_owned())
}

fn build() -> Result<PathBuf> {
    let module = process::root().join("e2e");
    let sums = std::fs::read_to_string(module.join("go.sum")).context("cannot read e2e/go.sum")?;
    let key = key_of(&[without_kubelet(&sums).into_bytes()]);
    let cache = Cache::with_key("controlplane", &key)?;
    let missing: Vec<_> = BINARIES
        .iter()
        .filter(|(file, _)| !cache.directory.join(file).is_file())
        .collect();
    if !missing.is_empty() {
        eprintln!(
            "building {} of Kubernetes {KUBERNETES} into {} (about seven minutes on two cores the first time)",
            plural(missing.len(), "binary", "binaries"),
            cache.directory.display()
        );
    }
    for (number, (file, package)) in missing.iter().enumerate() {
        let started = Instant::now();
        eprintln!("  [{}/{}] {file} ...", number + 1, missing.len());
        cache.build(&module, file, package)?;
        eprintln!(
            "  [{}/{}] {file} {:.0?}",
            number + 1,
            missing.len(),
            started.elapsed()
        );
    }
    complete(&cache.directory)
}

/// Go programs that stay outside the checkout, under the hash of what they are built from.
pub(crate) struct Cache {
    pub(crate) directory: PathBuf,
    /// Two builds of one checkout at a time would do the work twice: the second waits for it.
    _lock: File,
}

impl Cache {
    /// The cache of programs that these sources and the build flags determine.
    pub(crate) fn open(name: &str, sources: &[PathBuf]) -> Result<Self> {
        let read = |source: &PathBuf| {
            let content = std::fs::read(source);
            content.with_context(|| format!("cannot read {}", source.display()))
        };
        let contents: Result<Vec<_>> = sources.iter().map(read).collect();
        Self::with_key(name, &key_of(&contents?))
    }

    fn with_key(name: &str, key: &str) -> Result<Self> {
        let directory = cache_root()?.join(name).join(key);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let lock = File::create(directory.join("lock"))
            .with_context(|| format!("cannot write to {}", directory.display()))?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", directory.display()))?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    /// Builds a package of a module.
    pub(crate) fn build(&self, module: &Path, file: &str, package: &str) -> Result<()> {
        // An interrupted build must not leave half a binary under the final name.
        let unfinished = self.directory.join(format!("{file}.unfinished"));
        process::run(go_build(module, &unfinished).arg(package))?;
        std::fs::rename(&unfinished, self.directory.join(file))?;
        Ok(())
    }
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

fn key_of(contents: &[Vec<u8>]) -> String {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update(content);
    }
    hash.update(linker_flags());
    let bytes = hash.finalize();
    bytes.iter().take(8).map(|it| format!("{it:02x}")).collect()
}

/// The sums of all modules but those of [`KUBELET_MODULES`].
fn without_kubelet(sums: &str) -> String {
    let of_kubelet = |line: &&str| KUBELET_MODULES.iter().any(|it| line.starts_with(it));
    sums.split_inclusive('\n')
        .filter(|line| !of_kubelet(line))
        .collect()
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
    fn the_key_of_the_cache_leaves_out_only_the_modules_of_the_kubelet() {
        let sums = "k8s.io/api v0.36.4 h1:a=\nk8s.io/kubelet v0.36.4 h1:b=\n";
        let with_kubelet = format!("{sums}k8s.io/cri-streaming v0.36.4 h1:c=\n");
        assert_eq!(without_kubelet(&with_kubelet), sums);
        assert_eq!(without_kubelet(sums), sums);
    }

    #[test]
    fn the_stamped_version_is_the_one_in_go_mod() {
        for module in ["e2e/go.mod", "e2e/judge/go.mod"] {
            let text = std::fs::read_to_string(process::root().join(module)).unwrap();
            assert!(
                text.contains(&format!("k8s.io/kubernetes {KUBERNETES}")),
                "{module}"
            );
        }
    }
}
