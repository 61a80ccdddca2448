//! `tidepool agent`: measures one node, lends what is idle and protects online pods, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agent::agent::{Agent, Options};
use ::agent::collect::Paths;
use ::agent::hierarchy::{Hierarchies, Reader};
use ::agent::kubelet::{cpu_manager, has_static_memory_manager};
use ::agent::report::taint::TaintTarget;
use ::agent::settings::SettingsSource;
use ::agent::tree::Tree;
use ::agent::write::kubelet_values::{Cpusets, kubelet_values};
use ::agent::write::{KernelFiles, Mode, Writer};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use control_plane::client::Connect;
use control_plane::serve::{Check, Component, encode_metrics};
use engine::node::{LocalPod, NumaMode};

use crate::component::{self, ServingFlags, StopSignals};
use crate::exit::{Code, error};

/// The port that it serves on by default.
const PORT: u16 = 10268;
/// The environment variable that a DaemonSet sets from `spec.nodeName`.
const NODE_NAME: &str = "NODE_NAME";

/// Measure a node, lend its idle capacity and protect its online pods
///
/// The agent runs on every node, beside the kubelet. It measures CPU, memory, throttling and pressure from cgroups (v1, v2 or
/// hybrid), reports in the CustomNodeResource what the node can lend, and keeps mid, batch, reclaimed and free pods from harming
/// online pods: it writes their cgroups, and evicts them under pressure.
#[derive(Args)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: the cluster it runs in]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// Name of the Node object [default: the environment variable NODE_NAME, or the name of the machine]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// File with the settings [default: the ConfigMap tidepool-system/tidepool-colocation]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Object that gets the agent's taints
    #[arg(long, value_name = "OBJECT", value_enum, default_value_t = TaintObject::Cnr)]
    taint_target: TaintObject,
    /// What to do about the NUMA zones of pods [default: check where the kubelet's static CPU or memory manager writes cpusets, else
    /// enforce]
    #[arg(long, value_name = "MODE", value_enum)]
    numa: Option<NumaValue>,
    /// Write no cgroup file and no object, and evict nothing; with --restore, print what would be restored
    #[arg(long)]
    dry_run: bool,
    /// Give all cgroup files that an agent changed on this node their original values, withdraw its reports, then exit
    #[arg(long)]
    restore: bool,
    /// With --restore: give every other cgroup file of pods that an agent can change the value that the kubelet gives it. For a
    /// journal that is damaged; needs the API server
    #[arg(long, requires = "restore")]
    kubelet_values: bool,
    /// Believe the CPUs in the annotation scheduling.koordinator.sh/resource-status of LSE and LSR pods. Only where Koordinator's
    /// scheduler runs and users cannot write the annotation
    #[arg(long)]
    koordinator_cpus: bool,
    /// Kill the process before the write of a cgroup file with this number; for tests
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    kill_before_write: Option<u64>,
    #[command(flatten)]
    periods: PeriodFlags,
    #[command(flatten)]
    host: HostFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port to serve on; 0 disables the server [default: 10268, or a free port if it is in use]
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TaintObject {
    /// The CustomNodeResource: the taints keep away only reclaimed, batch, free and Mid+BE pods
    Cnr,
    /// The Node: the taints keep away all pods; needs deploy/agent-node-taints.yaml
    Node,
}

#[derive(Clone, Copy, ValueEnum)]
enum NumaValue {
    /// Bind pods to their zones, and keep other pods off them
    Enforce,
    /// Report cpusets that differ from the zones, and write none
    Check,
}

/// How often the agent does what.
#[derive(Args)]
#[command(next_help_heading = "Periods")]
struct PeriodFlags {
    /// Time between two samples
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = component::duration)]
    sample_period: Duration,
    /// Time in which page cache, throttling, memory by NUMA node, pressure and containers of every pod are read once
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = component::duration)]
    detail_period: Duration,
    /// Time between two reports of use; what the node lends is reported when it changes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = component::duration)]
    report_period: Duration,
    /// Time between two renewals of the agent's Lease
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = component::duration)]
    lease_period: Duration,
    /// Time between two checkpoints of predictions
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = component::duration)]
    checkpoint_period: Duration,
}

/// Where the files of the node are.
#[derive(Args)]
#[command(next_help_heading = "Files of the node")]
struct HostFlags {
    /// Where cgroups are mounted
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/cgroup")]
    cgroup_mount: PathBuf,
    /// The kubelet's cgroupRoot
    #[arg(long, value_name = "PATH", default_value = "/")]
    cgroup_root: PathBuf,
    /// Where the node's proc file system is mounted
    #[arg(long, value_name = "PATH", default_value = "/proc")]
    proc: PathBuf,
    /// Where the node's sys file system is mounted
    #[arg(long, value_name = "PATH", default_value = "/sys")]
    sys: PathBuf,
    /// The directory of the kubelet's state
    #[arg(long, value_name = "PATH", default_value = "/var/lib/kubelet")]
    kubelet_root: PathBuf,
    /// The kubelet's podLogsDir, whose directories show which static pods it runs
    #[arg(long, value_name = "PATH", default_value = "/var/log/pods")]
    pod_logs: PathBuf,
    /// Directory for checkpoints and for the original values of changed cgroup files
    #[arg(long, value_name = "PATH", default_value = "/var/lib/tidepool-agent")]
    state_dir: PathBuf,
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    if !flags.restore {
        return runtime.block_on(run_agent(flags));
    }
    let pods = match flags.kubelet_values {
        true => Some(runtime.block_on(list_pods(flags))?),
        false => None,
    };
    let damage = restore(flags, pods.as_deref())?;
    let has_cluster = flags.kubeconfig.is_some()
        || flags.master.is_some()
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    if has_cluster && !flags.dry_run {
        runtime.block_on(withdraw(flags))?;
    }
    match damage {
        None => Ok(()),
        Some(damage) => bail!("{damage}"),
    }
}

/// The pods of the node, for the values that the kubelet gives them.
async fn list_pods(flags: &Flags) -> anyhow::Result<Vec<LocalPod>> {
    let options = flags.options().map_err(|why| error(Code::BadInput, why))?;
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let client = Connect::Config(Box::new(config)).client()?;
    let node = &options.node;
    let pods = ::agent::objects::list_pods(&client, &options).await;
    pods.with_context(|| format!("cannot list the pods of node {node}"))
}

/// Removes the reports of the agent from the cluster.
async fn withdraw(flags: &Flags) -> anyhow::Result<()> {
    let options = flags.options().map_err(|why| error(Code::BadInput, why))?;
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let client = Connect::Config(Box::new(config)).client()?;
    let withdrawn = ::agent::report::withdraw(&client, &options.node, options.taint_target).await;
    withdrawn.with_context(|| format!("cannot withdraw the reports about node {}", options.node))
}

async fn run_agent(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let options = flags.options().map_err(|why| error(Code::BadInput, why))?;
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let connect = Connect::Config(Box::new(config));
    let serve = flags.serving.serve(flags.secure_port, PORT);
    let listening = serve.map(|serve| serve.listen()).transpose()?;
    let agent = Agent::start(connect.client()?, options).context("cannot start threads")?;
    let agent = Arc::new(agent);
    if let Some(listening) = listening {
        let server = listening.serve(connect.exchange()?, AgentServer(agent.clone()));
        server.context("cannot listen for HTTP")?;
    }
    signals.next().await;
    Ok(())
}

/// Undoes the changes that the journal lists, and prints each. With pods, other files get the kubelet's values. Returns what was
/// wrong with the journal, as a sentence.
fn restore(flags: &Flags, pods: Option<&[LocalPod]>) -> anyhow::Result<Option<String>> {
    let host = &flags.host;
    let hierarchies = Hierarchies::find(&host.cgroup_mount, &host.cgroup_root)?;
    let mode = if flags.dry_run {
        Mode::DryRun
    } else {
        Mode::Apply
    };
    let journal = host.state_dir.join("journal");
    let mut writer = Writer::for_restore(mode, journal.clone())?;
    let damage = writer.damage().cloned();
    let mut files = KernelFiles {
        hierarchies: &hierarchies,
        reader: &mut Reader::default(),
    };
    let mut others = Vec::new();
    if let Some(pods) = pods {
        let mut tree = Tree::default();
        tree.scan(&hierarchies)
            .context("cannot list the cgroups of pods")?;
        let is_static = cpu_manager(&host.kubelet_root).is_static
            || has_static_memory_manager(&host.kubelet_root);
        let cpusets = match is_static {
            true => Cpusets::Static,
            false => Cpusets::Inherited,
        };
        if is_static {
            crate::say(
                "cpusets stay as they are: the kubelet's static CPU or memory manager binds containers\n",
            )?;
        }
        others = kubelet_values(&mut files, &tree, pods, cpusets);
    }
    let report = writer.restore_with(&mut files, others);
    let journal = journal.display();
    if report.written.is_empty() && report.failed.is_empty() && damage.is_none() {
        crate::say(&format!(
            "nothing to restore: {journal} lists no changed cgroup file of this node\n"
        ))?;
    }
    for (file, value) in &report.written {
        crate::say(&format!("{file}: {value}\n"))?;
    }
    let others = match pods {
        Some(_) => "other files have the values that the kubelet gives them",
        None => {
            "other files that an agent changed keep their values, use --kubelet-values to give them those of the kubelet"
        }
    };
    let damage = damage.map(|damage| match writer.damage() {
        Some(_) if !report.failed.is_empty() => format!(
            "the journal {journal} is damaged: {damage}; it stays so until --restore can write all files; {others}"
        ),
        _ => format!(
            "the journal {journal} was damaged: {damage}; the records that can be read are restored; {others}"
        ),
    });
    if report.failed.is_empty() {
        return Ok(damage);
    }
    let failed = report.failed.iter();
    let failed = failed.map(|(file, why)| format!("{file}: {why}"));
    let all: Vec<String> = failed.chain(damage).collect();
    bail!("cannot restore {}", all.join("; "))
}

impl Flags {
    fn options(&self) -> anyhow::Result<Options> {
        let given = self.node_name.clone();
        let node = given.or_else(|| std::env::var(NODE_NAME).ok());
        let node = node.unwrap_or_else(component::host);
        ensure!(
            !node.is_empty(),
            "the name of the node is empty: set --node-name"
        );
        let periods = &self.periods;
        ensure!(
            periods.detail_period >= periods.sample_period,
            "--detail-period {:?} must not be shorter than --sample-period {:?}",
            periods.detail_period,
            periods.sample_period
        );
        let settings = match &self.config {
            Some(path) => SettingsSource::File(path.clone()),
            None => SettingsSource::ConfigMap,
        };
        Ok(Options {
            node,
            paths: Paths {
                proc: self.host.proc.clone(),
                sys: self.host.sys.clone(),
                cgroups: self.host.cgroup_mount.clone(),
                cgroup_root: self.host.cgroup_root.clone(),
            },
            kubelet_root: self.host.kubelet_root.clone(),
            pod_logs: self.host.pod_logs.clone(),
            koordinator_cpus: self.koordinator_cpus,
            state_dir: self.host.state_dir.clone(),
            period: periods.sample_period,
            detail_period: periods.detail_period,
            report_period: periods.report_period,
            lease_period: periods.lease_period,
            checkpoint_period: periods.checkpoint_period,
            taint_target: match self.taint_target {
                TaintObject::Cnr => TaintTarget::Cnr,
                TaintObject::Node => TaintTarget::Node,
            },
            numa: self.numa.map(|numa| match numa {
                NumaValue::Enforce => NumaMode::Enforce,
                NumaValue::Check => NumaMode::Check,
            }),
            settings,
            dry_run: self.dry_run,
            kill_before_write: self.kill_before_write,
        })
    }
}

/// The HTTP server of the agent.
#[derive(Clone)]
struct AgentServer(Arc<Agent>);

impl Component for AgentServer {
    fn live(&self) -> Vec<Check> {
        vec![("ping", Ok(())), ("node", self.0.check_thread())]
    }

    fn ready(&self) -> Vec<Check> {
        vec![
            ("ping", Ok(())),
            ("samples", self.0.check_samples()),
            ("informer-sync", self.0.check_objects()),
        ]
    }

    fn metrics(&self) -> String {
        encode_metrics(&self.0.metrics())
    }
}
