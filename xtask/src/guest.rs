//! What the tests on a real node need from the distribution: containerd, runc, QEMU, busybox and a kernel for the guest.
//!
//! The kernel is not installed: its files are kept in the cache, outside the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::{controlplane, process};

/// A program of each package, and the package.
const PACKAGES: [(&str, &str); 5] = [
    ("busybox", "busybox-static"),
    ("containerd", "containerd"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("runc", "runc"),
    ("strace", "strace"),
];

/// The package that depends on the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";

pub(crate) fn print_directory() -> Result<ExitCode> {
    println!("{}", directory()?.display());
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing; returns the directory with the kernel `vmlinuz` and its `modules`.
pub(crate) fn directory() -> Result<PathBuf> {
    install_packages()?;
    let directory = controlplane::cache_root()?.join("guest");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    // Two runs at a time would disturb each other: the second waits here.
    let lock = fs::File::create(directory.join("lock"))
        .with_context(|| format!("cannot write to {}", directory.display()))?;
    lock.lock().context("cannot lock the cache of the guest")?;
    let kernel = directory.join("kernel");
    if !kernel.is_dir() {
        // An interrupted run must not leave half a kernel under the final name.
        let unfinished = directory.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir(&unfinished)?;
        unpack_kernel(&unfinished)?;
        fs::rename(unfinished.join("kernel"), &kernel)?;
        fs::remove_dir_all(&unfinished)?;
    }
    Ok(kernel)
}

/// Whether this user can run a node: the kubelet, containerd and cgroups need root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn install_packages() -> Result<()> {
    let is_missing = |program: &str| {
        process::find(program).is_none() && !Path::new("/usr/sbin").join(program).is_file()
    };
    let missing = PACKAGES.iter().filter(|(program, _)| is_missing(program));
    install(&missing.map(|(_, package)| *package).collect::<Vec<_>>())
}

/// Installs Debian's packages, or names them if this user cannot.
pub(crate) fn install(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || process::find("apt-get").is_none() {
        bail!("install the packages {}", missing.join(", "));
    }
    eprintln!("installing {}", missing.join(", "));
    let install = || {
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]);
        process::read(install.args(missing))
    };
    if install().is_err() {
        // The lists of packages may be missing or old.
        process::read(Command::new("apt-get").args(["update", "--quiet"]))?;
        install()?;
    }
    Ok(())
}

/// Downloads the kernel's package and keeps `kernel/vmlinuz` and `kernel/modules/*.ko` of it.
fn unpack_kernel(directory: &Path) -> Result<()> {
    let depends = process::read(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("apt-cache shows no kernel for {KERNEL}"))?;
    eprintln!("downloading {package}");
    let mut download = Command::new("apt-get");
    process::read(
        download
            .args(["download", "--quiet", package])
            .current_dir(directory),
    )?;
    let archive = files(directory)?
        .into_iter()
        .find(|it| has_extension(it, "deb"));
    let archive = archive.with_context(|| format!("apt-get downloaded no file of {package}"))?;
    process::read(
        Command::new("dpkg")
            .arg("--extract")
            .args([&archive, directory]),
    )?;

    let modules = directory.join("kernel/modules");
    fs::create_dir_all(&modules)?;
    let images = files(&directory.join("boot"))?;
    let image = images
        .iter()
        .find(|it| it.to_string_lossy().contains("vmlinuz"));
    let image = image.with_context(|| format!("{package} has no kernel"))?;
    fs::copy(image, directory.join("kernel/vmlinuz"))?;
    for file in files(&directory.join("lib/modules"))? {
        if let Some(name) = file.file_name().filter(|_| has_extension(&file, "ko")) {
            fs::rename(&file, modules.join(name))?;
        }
    }
    Ok(())
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

/// All files below a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}
