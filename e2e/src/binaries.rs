//! Finds the binaries of the real control plane.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A directory that holds kube-apiserver, etcd, kubectl and their siblings.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// `$TIDEPOOL_CONTROLPLANE`, else `$KUBEBUILDER_ASSETS`, else what `cargo xtask controlplane` built.
    pub fn find() -> Result<Self> {
        for variable in ["TIDEPOOL_CONTROLPLANE", "KUBEBUILDER_ASSETS"] {
            if let Some(directory) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
                return Ok(Self {
                    directory: directory.into(),
                });
            }
        }
        Ok(Self {
            directory: built_by_xtask()?,
        })
    }

    /// The path of one program, which must exist.
    pub fn path(&self, program: &str) -> Result<PathBuf> {
        let path = self.directory.join(program);
        if !path.is_file() {
            bail!(
                "{program} is not in {}: run `cargo xtask controlplane` to build it, or point \
                 TIDEPOOL_CONTROLPLANE to a directory that has it",
                self.directory.display()
            );
        }
        Ok(path)
    }
}

/// Asks xtask, which answers at once when its cache is warm; its progress goes to our stderr.
fn built_by_xtask() -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the e2e package has no parent directory")?;
    let output = Command::new("cargo")
        .args(["xtask", "controlplane"])
        .current_dir(workspace)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run `cargo xtask controlplane`")?;
    if !output.status.success() {
        bail!(
            "no control plane to test against: `cargo xtask controlplane` failed ({}); run it to see why",
            output.status
        );
    }
    let stdout =
        String::from_utf8(output.stdout).context("`cargo xtask controlplane` printed no UTF-8")?;
    let last = stdout
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .context("`cargo xtask controlplane` did not print where it put the binaries")?;
    Ok(PathBuf::from(last.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_binary_names_the_command() {
        let empty = tempfile::tempdir().unwrap();
        let binaries = Binaries {
            directory: empty.path().to_owned(),
        };
        let message = binaries.path("etcd").unwrap_err().to_string();
        assert!(message.starts_with("etcd is not in "), "{message}");
        assert!(
            message.contains("run `cargo xtask controlplane`"),
            "{message}"
        );
    }
}
