//! A node on this machine.
//!
//! containerd and the kubelet run in PID and mount namespaces of their own: all processes and mounts of the node end with the
//! first process of the PID namespace. Their cgroups are below a directory of their own in every hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cgroups::Cgroups;
use super::{image, machine, program};
use crate::loopback::free_port;
use crate::{Binaries, ControlPlane, Process};

/// The kubelet writes these unless they have the value that it wants. In the node's mount namespace a plain file with that value
/// hides each of them, so that the machine's own do not change.
const KUBELET_SETTINGS: [(&str, &str); 4] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
];
/// How long a program of the node may take to start.
const STARTUP: Duration = Duration::from_secs(60);

/// A running node. [`HostNode::stop`] ends it and returns what went wrong; dropping it only ends it.
pub struct HostNode {
    name: String,
    directory: PathBuf,
    kubelet_program: PathBuf,
    // Ended in this order; the groups can be removed only when no process is left in them.
    kubelet: Option<Process>,
    containerd: Option<Process>,
    namespaces: Option<Process>,
    cgroups: Cgroups,
}

impl HostNode {
    /// Starts the node and lets it join; its user must be among the control plane's (see [`super::options`]).
    pub fn start(control_plane: &ControlPlane, name: &str) -> Result<Self> {
        let kubeconfig = control_plane.kubeconfig(&super::user(name)).to_yaml();
        Self::join(control_plane.binaries(), &kubeconfig, name)
    }

    /// Starts the node and lets it join any API server.
    pub fn join(binaries: &Binaries, kubeconfig: &str, name: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidepool-node-")
            .tempdir()
            .context("no temporary directory for the node")?
            .keep();
        let group = format!("tidepool-e2e-{}-{name}", std::process::id());
        let mut node = Self {
            name: name.to_owned(),
            kubelet_program: binaries.path("kubelet")?,
            kubelet: None,
            containerd: None,
            namespaces: None,
            cgroups: Cgroups::create(&group)?,
            directory,
        };
        node.write(
            "containerd.toml",
            &super::containerd_config(&node.directory),
        )?;
        fs::create_dir(node.path("cni"))?;
        node.write("cni/10-none.conflist", &super::cni_config().to_string())?;
        node.write("kubeconfig", kubeconfig)?;
        let ports = [free_port()?, free_port()?];
        let config = super::kubelet_config(&node.directory, &format!("/{group}"), ports);
        node.write("kubelet.json", &config.to_string())?;
        node.start_namespaces()?;
        node.start_containerd()?;
        node.start_kubelet()?;
        Ok(node)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the node's groups in each hierarchy, such as `tidepool-e2e-12-a`; `kubepods` is below it.
    pub fn cgroup_root(&self) -> &str {
        self.cgroups.name()
    }

    /// The files of the node: logs, sockets and configuration.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The log of the kubelet so far.
    pub fn kubelet_log(&self) -> String {
        self.kubelet.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Kills the kubelet and starts it again; containers run on.
    pub fn restart_kubelet(&mut self) -> Result<()> {
        if let Some(mut kubelet) = self.kubelet.take() {
            kill(child_of(kubelet.id())?)?;
            kubelet.stop();
        }
        self.start_kubelet()
    }

    /// Ends all processes, removes the groups and the files, and checks that no process is left.
    pub fn stop(mut self) -> Result<()> {
        self.end_processes();
        self.cgroups.remove()?;
        let left = machine::processes_of(&self.directory)?;
        if !left.is_empty() {
            bail!("processes of the node are left: {}", left.join("; "));
        }
        fs::remove_dir_all(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }

    /// The first process of the PID namespace hides the settings and then reaps orphans.
    fn start_namespaces(&mut self) -> Result<()> {
        let mut script = "set -e\n".to_owned();
        for (setting, value) in KUBELET_SETTINGS {
            let name = setting.replace('/', ".");
            self.write(&name, value)?;
            let file = self.path(&name);
            script.push_str(&format!(
                "mount --bind '{}' /proc/sys/{setting}\n",
                file.display()
            ));
        }
        let ready = self.path("namespaces-ready");
        script.push_str(&format!(
            "touch '{}'\nsleep 1000000 & wait\n",
            ready.display()
        ));
        let arguments = [
            "--mount",
            "--propagation=private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            &script,
        ]
        .map(str::to_owned);
        let mut process =
            self.process("namespaces", &program("unshare", "util-linux")?, &arguments)?;
        wait(&mut process, "the namespaces of the node", || {
            ready.exists()
        })?;
        self.namespaces = Some(process);
        Ok(())
    }

    fn start_containerd(&mut self) -> Result<()> {
        let image = image::busybox(&self.directory)?;
        let containerd = program("containerd", "containerd")?;
        let arguments = [
            "--config".to_owned(),
            self.path("containerd.toml").display().to_string(),
        ];
        let mut process = self.inside("containerd", &containerd, &arguments)?;
        wait(&mut process, "containerd", || {
            self.ctr(&["version"]).is_ok()
        })?;
        self.containerd = Some(process);
        self.import(&image)
    }

    /// Adds the image of the manifests in `deploy/` with this program.
    pub fn add_tidepool(&self, program: &Path) -> Result<()> {
        let directory = self.path("tidepool-image");
        fs::create_dir(&directory)?;
        let image = image::tidepool(&directory, program)?;
        self.import(&image)?;
        Ok(fs::remove_dir_all(&directory)?)
    }

    fn import(&self, image: &Path) -> Result<()> {
        let image = image.display().to_string();
        self.ctr(&["--namespace=k8s.io", "images", "import", &image])
    }

    fn ctr(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(program("ctr", "containerd")?)
            .arg("--address")
            .arg(self.path("containerd.sock"))
            .args(arguments)
            .output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("ctr failed: {}", why.trim());
        }
        Ok(())
    }

    fn start_kubelet(&mut self) -> Result<()> {
        let flags = super::kubelet_flags(&self.directory, &self.name, "127.0.0.1");
        self.kubelet = Some(self.inside("kubelet", &self.kubelet_program, &flags)?);
        Ok(())
    }

    /// A program in the namespaces of the node.
    fn inside(&self, name: &str, program: &Path, arguments: &[String]) -> Result<Process> {
        let namespaces = self
            .namespaces
            .as_ref()
            .context("the node has no namespaces")?;
        let mut all = vec![
            format!("--target={}", child_of(namespaces.id())?),
            "--mount".to_owned(),
            "--pid".to_owned(),
            program.display().to_string(),
        ];
        all.extend_from_slice(arguments);
        self.process(name, &super::program("nsenter", "util-linux")?, &all)
    }

    fn process(&self, name: &str, program: &Path, arguments: &[String]) -> Result<Process> {
        Process::start(program, arguments, &self.path(&format!("{name}.log")))
    }

    fn end_processes(&mut self) {
        // The kernel ends all processes of the namespace with its first.
        drop(self.namespaces.take());
        drop(self.kubelet.take());
        drop(self.containerd.take());
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for HostNode {
    fn drop(&mut self) {
        self.end_processes();
        if std::thread::panicking() {
            #[expect(
                clippy::print_stderr,
                reason = "the reader of the failure needs the place"
            )]
            {
                eprintln!("logs of the node: {}", self.directory.display());
            }
        } else {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Asks until the answer is yes, the process ends or the time is up.
fn wait(process: &mut Process, what: &str, ready: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + STARTUP;
    while !ready() {
        if process.ended()?.is_some() || Instant::now() > deadline {
            bail!("{what} did not start:\n{}", process.last_words());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// `unshare` and `nsenter` run their program as their only child.
fn child_of(parent: u32) -> Result<u32> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let child = text.split_whitespace().next();
    child
        .and_then(|it| it.parse().ok())
        .with_context(|| format!("process {parent} has no child"))
}

fn kill(process: u32) -> Result<()> {
    let status = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status()?;
    if !status.success() {
        bail!("process {process} cannot be killed: {status}");
    }
    Ok(())
}
