//! A node in a virtual machine, with a kernel of the distribution, cgroup v2, PSI, four CPUs and two NUMA nodes.
//!
//! QEMU emulates the processor: it needs no support of the machine, and everything in the guest takes several times as long. The
//! guest reaches nothing but the API server.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::initramfs::Initramfs;
use super::{image, machine, modules, program};
use crate::{ControlPlane, Process};

/// Drivers for the network and the file system of containers; the modules that they depend on come with them.
const MODULES: [&str; 3] = ["overlay", "virtio_pci", "virtio_net"];
/// The programs of a node in the guest: name and package.
const PROGRAMS: [(&str, &str); 5] = [
    ("busybox", "busybox-static"),
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
];
/// The directory of the node in the guest.
const INSIDE: &str = "/node";
/// Where the guest sees the API server.
const API_SERVER: &str = "10.0.2.100:6443";
/// How long the guest may take until its shell answers.
const BOOT: Duration = Duration::from_secs(120);
/// The end of a command's output on the serial line.
const END: &str = "@@@";

/// A running guest. [`GuestNode::stop`] ends it and checks that its process is gone; dropping it only ends it.
pub struct GuestNode {
    name: String,
    directory: PathBuf,
    qemu: Option<Process>,
    shell: BufReader<UnixStream>,
}

impl GuestNode {
    /// Boots the guest and lets its kubelet join; returns when the shell of the guest answers. The `programs` of this machine
    /// are in the guest's search path, under their own names.
    pub fn start(control_plane: &ControlPlane, name: &str, programs: &[&Path]) -> Result<Self> {
        Self::start_with(control_plane, name, programs, &json!({}))
    }

    /// Starts the guest with these fields of the kubelet's configuration in addition.
    pub fn start_with(
        control_plane: &ControlPlane,
        name: &str,
        programs: &[&Path],
        kubelet: &Value,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidepool-guest-")
            .tempdir()
            .context("no temporary directory for the guest")?
            .keep();
        let kernel = kernel()?;
        let mut config = super::kubelet_config(Path::new(INSIDE), "/", [10250, 10248]);
        for (field, value) in kubelet.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        write_initramfs(control_plane, name, programs, &kernel, &directory, &config)?;
        let log = directory.join("qemu.log");
        let arguments = arguments(control_plane, &kernel, &directory);
        let mut qemu = Process::start(
            &program("qemu-system-x86_64", "qemu-system-x86")?,
            &arguments,
            &log,
        )?;
        let shell = connect(&mut qemu, &directory.join("shell.sock"))?;
        let mut node = Self {
            name: name.to_owned(),
            directory,
            qemu: Some(qemu),
            shell: BufReader::new(shell),
        };
        node.wait_for_shell()?;
        Ok(node)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a shell command of one line in the guest and returns its output. A command that fails is an error.
    pub fn shell(&mut self, command: &str) -> Result<String> {
        if command.contains('\n') {
            bail!("a command for the guest has one line: {command}");
        }
        self.shell
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())?;
        let (output, status) = self
            .read_answer()
            .with_context(|| format!("no answer of the guest to: {command}"))?;
        if status != "0" {
            bail!("`{command}` failed in the guest with {status}: {output}");
        }
        Ok(output)
    }

    /// What the kernel and the first process of the guest printed.
    pub fn console(&self) -> String {
        fs::read_to_string(self.directory.join("console.log")).unwrap_or_default()
    }

    /// Ends the guest, removes its files, and checks that no process is left.
    pub fn stop(mut self) -> Result<()> {
        drop(self.qemu.take());
        let left = machine::processes_of(&self.directory)?;
        if !left.is_empty() {
            bail!("processes of the guest are left: {}", left.join("; "));
        }
        fs::remove_dir_all(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }

    /// What is sent before the guest listens is lost: wait until it says that it does.
    fn wait_for_shell(&mut self) -> Result<()> {
        self.shell.get_ref().set_read_timeout(Some(BOOT))?;
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let read = self.shell.read_line(&mut line);
            if !matches!(read, Ok(length) if length > 0) {
                bail!("the guest did not boot:\n{}", self.console());
            }
        }
        Ok(())
    }

    fn read_answer(&mut self) -> Result<(String, String)> {
        let mut output = String::new();
        loop {
            let mut line = String::new();
            if self.shell.read_line(&mut line)? == 0 {
                bail!("the guest has ended:\n{}", self.console());
            }
            if let Some(status) = line.trim_end().strip_prefix(END) {
                return Ok((output.trim_end().to_owned(), status.to_owned()));
            }
            output.push_str(&line.replace('\r', ""));
        }
    }
}

impl Drop for GuestNode {
    fn drop(&mut self) {
        drop(self.qemu.take());
        let _ = fs::remove_file(self.directory.join("initramfs"));
        if std::thread::panicking() {
            #[expect(
                clippy::print_stderr,
                reason = "the reader of the failure needs the place"
            )]
            {
                eprintln!("logs of the guest: {}", self.directory.display());
            }
        } else {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// `$TIDEPOOL_GUEST`, else what `cargo xtask guest` prints: a directory with `vmlinuz` and `modules`.
fn kernel() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("TIDEPOOL_GUEST").filter(|it| !it.is_empty()) {
        return Ok(directory.into());
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let output = Command::new("cargo")
        .args(["xtask", "guest"])
        .current_dir(workspace.context("the e2e package has no parent directory")?)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run `cargo xtask guest`")?;
    if !output.status.success() {
        bail!(
            "no kernel for the guest: `cargo xtask guest` failed ({})",
            output.status
        );
    }
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.context("`cargo xtask guest` printed no directory")?;
    Ok(PathBuf::from(last.trim()))
}

fn write_initramfs(
    control_plane: &ControlPlane,
    name: &str,
    programs: &[&Path],
    kernel: &Path,
    directory: &Path,
    config: &Value,
) -> Result<()> {
    let inside = Path::new(INSIDE);
    let flags = super::kubelet_flags(inside, name, "10.0.2.15");
    let modules = modules::load_order(&kernel.join("modules"), &MODULES)?;
    let names: Vec<&str> = modules.iter().map(|module| &*module.name).collect();
    let init = include_str!("init.sh")
        .replace("MODULES", &names.join(" "))
        .replace("KUBELET_FLAGS", &flags.join(" "));
    let mut archive = Initramfs::create(&directory.join("initramfs"))?;
    archive.directory("/initramfs")?;
    archive.script("/init", &init)?;
    for (program, package) in PROGRAMS {
        archive.program(
            &format!("/bin/{program}"),
            &super::program(program, package)?,
        )?;
    }
    archive.program("/bin/kubelet", &control_plane.binaries().path("kubelet")?)?;
    for program in programs {
        let name = program.file_name().and_then(OsStr::to_str);
        let name = name.with_context(|| format!("{} has no name", program.display()))?;
        let stripped = directory.join(name);
        image::strip(program, &stripped)?;
        archive.program(&format!("/bin/{name}"), &stripped)?;
        fs::remove_file(stripped)?;
    }
    for module in &modules {
        archive.file(&format!("/modules/{}.ko", module.name), &module.content)?;
    }
    archive.file("/etc/hosts", b"127.0.0.1 localhost\n")?;
    archive.file("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")?;
    archive.file(
        "/node/containerd.toml",
        super::containerd_config(inside).as_bytes(),
    )?;
    archive.file(
        "/node/cni/10-none.conflist",
        super::cni_config().to_string().as_bytes(),
    )?;
    archive.file("/node/kubelet.json", config.to_string().as_bytes())?;
    archive.file(
        "/node/kubeconfig",
        kubeconfig(control_plane, name)?.to_string().as_bytes(),
    )?;
    archive.file("/node/image.tar", &fs::read(image::busybox(directory)?)?)?;
    archive.finish()
}

/// The guest reaches the server under an address that is not in its certificate.
fn kubeconfig(control_plane: &ControlPlane, name: &str) -> Result<Value> {
    let text = control_plane.kubeconfig(&super::user(name)).to_yaml();
    let mut kubeconfig: Value = serde_json::from_str(&text)?;
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{API_SERVER}"));
    cluster["tls-server-name"] = json!("localhost");
    Ok(kubeconfig)
}

fn arguments(control_plane: &ControlPlane, kernel: &Path, directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let url = control_plane.url();
    let port = url.rsplit(':').next().unwrap_or_default();
    // One process per connection: a plain address would carry only one.
    let network =
        format!("user,id=n0,restrict=on,guestfwd=tcp:{API_SERVER}-cmd:busybox nc 127.0.0.1 {port}");
    let kernel = kernel.join("vmlinuz").display().to_string();
    let (initramfs, console) = (file("initramfs"), format!("file:{}", file("console.log")));
    let shell = format!("unix:{},server=on,wait=off", file("shell.sock"));
    [
        ["-accel", "tcg,thread=multi"],
        ["-cpu", "max"],
        ["-m", "3072"],
        ["-smp", "4,sockets=2,cores=2"],
        ["-object", "memory-backend-ram,size=1536M,id=m0"],
        ["-object", "memory-backend-ram,size=1536M,id=m1"],
        ["-numa", "node,nodeid=0,cpus=0-1,memdev=m0"],
        ["-numa", "node,nodeid=1,cpus=2-3,memdev=m1"],
        ["-numa", "dist,src=0,dst=1,val=20"],
        ["-kernel", &kernel],
        ["-initrd", &initramfs],
        ["-append", "console=ttyS0 quiet panic=-1 psi=1"],
        ["-netdev", &network],
        ["-device", "virtio-net-pci,netdev=n0,romfile="],
        ["-display", "none"],
        ["-serial", &console],
        ["-serial", &shell],
        ["-monitor", "none"],
    ]
    .iter()
    .flatten()
    .copied()
    .chain(["-no-reboot", "-nodefaults"])
    .map(str::to_owned)
    .collect()
}

fn connect(qemu: &mut Process, socket: &Path) -> Result<UnixStream> {
    let deadline = Instant::now() + BOOT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if qemu.ended()?.is_none() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => bail!("QEMU did not start ({error}):\n{}", qemu.last_words()),
        }
    }
}
