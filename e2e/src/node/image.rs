//! Makes the images of the test pods as archives in OCI layout.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{IMAGE, program};

/// As the container runtime completes the name in the manifests.
const TIDEPOOL: &str = "docker.io/library/tidepool:latest";

/// Writes an archive with busybox as the only file and `sleep` as the default command; returns its path.
pub(super) fn busybox(directory: &Path) -> Result<PathBuf> {
    let files = directory.join("image-files");
    fs::create_dir_all(files.join("bin"))?;
    let busybox = files.join("bin/busybox");
    fs::copy(program("busybox", "busybox-static")?, &busybox)?;
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755))?;
    let config = json!({"Cmd": ["/bin/busybox", "sleep", "1000000"]});
    archive(directory, IMAGE, &files, &config)
}

/// The image of the manifests in `deploy/`: a program and the libraries that it is linked to. Returns the path of the archive.
pub(super) fn tidepool(directory: &Path, program: &Path) -> Result<PathBuf> {
    let files = directory.join("image-files");
    let copy = |source: &Path, place: &str| -> Result<()> {
        let target = files.join(place.trim_start_matches('/'));
        fs::create_dir_all(target.parent().context("a file has a directory")?)?;
        fs::copy(source, &target)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
        Ok(())
    };
    let stripped = directory.join("tidepool");
    strip(program, &stripped)?;
    copy(&stripped, "/tidepool")?;
    for library in libraries(program)? {
        copy(Path::new(&library), &library)?;
    }
    let config = json!({"Entrypoint": ["/tidepool"]});
    archive(directory, TIDEPOOL, &files, &config)
}

/// Copies a program without its symbols, which are most of what a build for tests has.
pub(super) fn strip(program: &Path, target: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    let status = strip.arg("-o").arg(target).arg(program).status();
    let status = status.context("cannot start `strip`; install the package binutils")?;
    if !status.success() {
        bail!("`strip` cannot copy {}: {status}", program.display());
    }
    Ok(())
}

/// Absolute paths; none for a static program.
pub(super) fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output()?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8(output.stdout)?;
    let paths = text.split_whitespace().filter(|it| it.starts_with('/'));
    Ok(paths.map(str::to_owned).collect())
}

/// Writes an image with one layer: the files of a directory.
fn archive(directory: &Path, name: &str, files: &Path, config: &Value) -> Result<PathBuf> {
    let layout = directory.join("image-layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer_archive = directory.join("layer.tar");
    tar(files, &layer_archive)?;
    let layer = add(&blobs, &fs::read(&layer_archive)?, "layer.v1.tar")?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        // The layer is not compressed, so the two digests are one.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = add(&blobs, config.to_string().as_bytes(), "config.v1+json")?;
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = add(&blobs, manifest.to_string().as_bytes(), "manifest.v1+json")?;
    manifest["annotations"] = json!({"io.containerd.image.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string())?;
    let image = directory.join("image.tar");
    tar(&layout, &image)?;
    Ok(image)
}

/// Stores content under its digest and returns its descriptor.
fn add(blobs: &Path, content: &[u8], kind: &str) -> Result<Value> {
    let digest: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    fs::write(blobs.join(&digest), content)?;
    Ok(json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"),
        "size": content.len(),
    }))
}

fn tar(directory: &Path, archive: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--create", "--file"]);
    tar.arg(archive).arg("--directory").arg(directory).arg(".");
    let status = tar.status().context("cannot start tar")?;
    if !status.success() {
        bail!("tar of {} failed with {status}", directory.display());
    }
    Ok(())
}
