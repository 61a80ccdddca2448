//! The clusters that the tests run on, each with four simulated nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::{Binaries, ControlPlane, Kubectl, Options, Process, eventually};
use serde::Deserialize;
use serde_json::{Value, json};

/// Four nodes in three zones: the tests of preemption use two, those of zones all.
pub(crate) const NODES: usize = 4;
/// How long a cluster may take to start.
const STARTUP: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cluster {
    /// `tidepool up`
    Embedded,
    /// The real API server and controllers, with `tidepool scheduler --mode primary`
    Tidepool,
    /// The real API server and controllers, with kube-scheduler
    KubeScheduler,
}

/// A running cluster. Dropping it stops it.
pub(crate) struct Running {
    pub(crate) kubeconfig: PathBuf,
    // Stopped in this order.
    programs: Vec<Process>,
    control_plane: Option<ControlPlane>,
}

impl Cluster {
    pub(crate) const ALL: [Self; 3] = [Self::Embedded, Self::Tidepool, Self::KubeScheduler];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Tidepool => "tidepool",
            Self::KubeScheduler => "kube-scheduler",
        }
    }

    /// Starts it and waits until all nodes accept pods. The logs of our own programs are in the directory.
    pub(crate) fn start(self, directory: &Path) -> Result<Running> {
        let running = match self {
            Self::Embedded => embedded(directory)?,
            Self::Tidepool => real(None)?,
            Self::KubeScheduler => real(Some(json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
            })))?,
        };
        let kubeconfig = std::fs::read_to_string(&running.kubeconfig)?;
        let kubectl = Kubectl::with_text(&Binaries::find()?, &kubeconfig)?;
        let nodes = eventually("all nodes accept pods", STARTUP, || {
            let nodes = ready_nodes(&kubectl).map_err(|error| format!("{error:#}"))?;
            match nodes.len() {
                NODES => Ok(nodes),
                count => Err(format!("{count} of {NODES}")),
            }
        });
        create_system_pods(&kubectl, &nodes)?;
        Ok(running)
    }
}

impl Running {
    /// Keeps the logs of the control plane.
    pub(crate) fn keep_logs(&mut self) {
        self.control_plane.as_mut().map(ControlPlane::keep_logs);
    }

    /// A program of the cluster that ended, with the end of its log.
    pub(crate) fn ended(&mut self) -> Result<Option<String>> {
        for program in &mut self.programs {
            if let Some(status) = program.ended()? {
                return Ok(Some(format!("{status}: {}", program.last_words())));
            }
        }
        Ok(None)
    }
}

fn embedded(directory: &Path) -> Result<Running> {
    let kubeconfig = directory.join("kubeconfig");
    let arguments = [
        "up".to_owned(),
        "--port=0".to_owned(),
        format!("--nodes={NODES}"),
        "--no-demo".to_owned(),
        "--plain".to_owned(),
        format!("--kubeconfig-out={}", kubeconfig.display()),
    ];
    let up = Process::start(
        &e2e::tidepool::binary()?,
        &arguments,
        &directory.join("up.log"),
    )?;
    eventually("`tidepool up` is ready", STARTUP, || match up.log() {
        log if log.contains("kubeconfig: ") => Ok(()),
        log => Err(log),
    });
    Ok(Running {
        kubeconfig,
        programs: vec![up],
        control_plane: None,
    })
}

/// With this configuration kube-scheduler runs, without one ours.
fn real(kube_scheduler: Option<Value>) -> Result<Running> {
    let ours = kube_scheduler.is_none();
    let control_plane = ControlPlane::start(Options {
        controllers: vec!["*".to_owned()],
        scheduler: kube_scheduler,
        ..Options::default()
    })
    .context("cannot start the control plane")?;
    let mut programs = Vec::new();
    if ours {
        let flags = ["--mode=primary", "--secure-port=0"];
        programs.push(control_plane.tidepool("tidepool", &control_plane.admin(), &flags)?);
    }
    let kubeconfig = control_plane.kubeconfig_file("admin")?;
    let arguments = [
        "nodes".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--nodes={NODES}"),
        "--secure-port=0".to_owned(),
    ];
    programs.push(control_plane.run("nodes", &e2e::tidepool::binary()?, &arguments)?);
    Ok(Running {
        kubeconfig,
        programs,
        control_plane: Some(control_plane),
    })
}

/// The names of the nodes that are ready and have no taints.
fn ready_nodes(kubectl: &Kubectl) -> Result<Vec<String>> {
    let list = run(kubectl, &["get", "--raw", "/api/v1/nodes"])?;
    let mut list: Value = serde_json::from_str(&list)?;
    let nodes: Vec<Value> = serde_json::from_value(list["items"].take())?;
    let ready = nodes.iter().filter(|node| {
        let conditions = node["status"]["conditions"].as_array();
        let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        conditions.is_some_and(|all| all.iter().any(is_ready)) && node["spec"]["taints"].is_null()
    });
    let names = ready.map(|node| node["metadata"]["name"].as_str().unwrap_or_default());
    Ok(names.map(str::to_owned).collect())
}

/// Creates on each node a pod with the names of the three system pods that the tests wait for: without them each test of
/// preemption and priorities waits a minute.
fn create_system_pods(kubectl: &Kubectl, nodes: &[String]) -> Result<()> {
    let pods: Vec<Value> = nodes
        .iter()
        .map(|node| {
            let name = format!("kube-proxy-fluentd-elasticsearch-node-problem-detector-{node}");
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"},
                "spec": {
                    "nodeName": node,
                    "priorityClassName": "system-node-critical",
                    "automountServiceAccountToken": false,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "main", "image": "system"}],
                }})
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    std::fs::write(kubectl.directory().join("pods.json"), list.to_string())?;
    // On a new cluster the service account of the namespace may be missing for a moment.
    run(
        kubectl,
        &[
            "wait",
            "--for=create",
            "serviceaccount/default",
            "-n",
            "kube-system",
            "--timeout=60s",
        ],
    )?;
    run(kubectl, &["create", "-f", "pods.json"])?;
    run(
        kubectl,
        &[
            "wait",
            "--for=condition=Ready",
            "pods",
            "--all",
            "-n",
            "kube-system",
            "--timeout=60s",
        ],
    )?;
    Ok(())
}

fn run(kubectl: &Kubectl, arguments: &[&str]) -> Result<String> {
    let run = kubectl.run(arguments, STARTUP)?;
    if run.code != Some(0) {
        bail!("kubectl {}: {}", arguments.join(" "), run.stderr);
    }
    Ok(run.stdout)
}
