//! `tidepool nodes`: simulated nodes on any cluster, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use api::zone_grid::ZoneGrid;
use clap::Args;
use control_plane::client::Connect;
use control_plane::serve::{Check, Component, encode_metrics, register_queues};
use k8s_openapi::api::core::v1::Taint;
use local::{Local, Nodes, Shape, Timings};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::component::{self, STOPPED_TWICE, ServingFlags, StopSignals};

/// The port that it serves on by default.
const PORT: u16 = 10266;
/// The most that the simulated kubelets are measured with.
const MOST_NODES: u16 = 5000;

/// Create simulated nodes on a cluster and act as their kubelets
///
/// Pods that are bound to a simulated node become Running; no containers run. The command acts only for Nodes with the
/// label tidepool.io/simulated=true, which it sets on the nodes that it creates; it never changes other Nodes or their pods.
/// When it stops, it deletes the nodes that it created.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// Kubeconfig of the cluster [default: the cluster it runs in]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// Number of nodes to create; 0 acts only for existing nodes with the label tidepool.io/simulated=true
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=i64::from(MOST_NODES)))]
    nodes: u16,
    /// Leave the nodes on the cluster at the end; they become NotReady. The next start with the same names uses them again
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    shape: ShapeFlags,
    #[command(flatten)]
    serving: ServingFlags,
    /// Port to serve on; 0 disables the server [default: 10266, or a free port if it is in use]
    #[arg(long, value_name = "PORT", help_heading = "HTTP server")]
    secure_port: Option<u16>,
}

/// What the created nodes look like.
#[derive(Args)]
#[command(next_help_heading = "Created nodes")]
struct ShapeFlags {
    /// The nodes are named PREFIX-001 and so on
    #[arg(long, value_name = "PREFIX", default_value = "simulated")]
    name_prefix: String,
    /// The cores of each node
    #[arg(long, value_name = "CORES", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpu: u32,
    /// The memory of each node, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    memory: u32,
    /// The pod capacity of each node
    #[arg(long, value_name = "COUNT", default_value_t = 110, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pods: u32,
    /// The zones, assigned to the nodes in round-robin order
    #[arg(
        long,
        value_name = "ZONES",
        value_delimiter = ',',
        default_value = "zone-a,zone-b,zone-c"
    )]
    zones: Vec<String>,
    /// NUMA zones of each node as sockets and zones per socket, such as 2x2; reported in its CustomNodeResource
    #[arg(long, value_name = "SOCKETSxZONES")]
    numa: Option<ZoneGrid>,
    /// A taint for each node, such as simulated=true:NoSchedule; it keeps pods of real workloads away
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = parse_taint)]
    taints: Vec<Taint>,
}

const EXAMPLES: &str = "\
Examples:
  tidepool nodes --kubeconfig ~/.kube/config --nodes 100     a hundred nodes
  tidepool nodes --kubeconfig F --taint fake=true:NoSchedule only pods that tolerate the taint run there
  tidepool nodes --kubeconfig F --numa 2x2                   two sockets with two NUMA zones each
  tidepool nodes --kubeconfig F --nodes 0                    act only for Nodes that you label";

fn parse_taint(text: &str) -> Result<Taint, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let (key, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    let (key, value) = match key.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (key, None),
    };
    if key.is_empty() || !EFFECTS.contains(&effect) {
        let effects = EFFECTS.join(", ");
        return Err(format!(
            "use KEY=VALUE:EFFECT or KEY:EFFECT, with one of the effects {effects}"
        ));
    }
    Ok(Taint {
        key: key.to_owned(),
        value,
        effect: effect.to_owned(),
        time_added: None,
    })
}

pub(crate) fn run(flags: &Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(simulate(flags))
}

async fn simulate(flags: &Flags) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let shapes = flags.shapes()?;
    let config = component::connection(flags.kubeconfig.as_deref(), flags.master.as_ref()).await?;
    let connect = Connect::Config(Box::new(config));
    let serve = flags.serving.serve(flags.secure_port, PORT);
    let listening = serve.map(|serve| serve.listen()).transpose()?;
    let local = Arc::new(local::start_nodes(connect.client()?, Timings::default()));
    if let Some(listening) = listening {
        let server = listening.serve(connect.exchange()?, Server(local.clone()));
        server.context("cannot listen for HTTP")?;
    }
    let mut created = Vec::new();
    let started = tokio::select! {
        started = work(&local, &shapes, &mut created) => started,
        () = signals.next() => Ok(()),
    };
    // After a failed start only the nodes of this run go; those of an earlier run stay.
    let nodes = match started {
        Ok(()) => shapes.into_iter().map(|shape| shape.name).collect(),
        Err(_) => created,
    };
    let stop = async {
        if !flags.keep {
            delete(local.nodes(), &nodes).await?;
        }
        local.stop().await;
        anyhow::Ok(())
    };
    let stopped = tokio::select! {
        stopped = stop => stopped,
        () = signals.next() => bail!(STOPPED_TWICE),
    };
    started.and(stopped)
}

/// Returns only if the nodes cannot be created; the kubelets run beside it.
async fn work(local: &Local, shapes: &[Shape], created: &mut Vec<String>) -> anyhow::Result<()> {
    local.synced().await;
    if shapes.iter().any(|shape| shape.numa.is_some()) {
        let checked = local.nodes().check_zones().await;
        checked.context("cannot report NUMA zones")?;
    }
    let ensured = local.nodes().ensure(shapes, created).await;
    ensured.context("cannot create the nodes")?;
    tracing::info!(
        created = created.len(),
        existing = shapes.len() - created.len(),
        "acting as the kubelets of simulated nodes"
    );
    std::future::pending().await
}

async fn delete(nodes: &Nodes, names: &[String]) -> anyhow::Result<()> {
    let deleted = nodes.delete_simulated(names).await;
    let count = deleted.context("cannot delete the nodes")?;
    tracing::info!(count, "deleted nodes");
    Ok(())
}

impl Flags {
    fn shapes(&self) -> anyhow::Result<Vec<Shape>> {
        let given = &self.shape;
        let prefix = &given.name_prefix;
        ensure!(
            !prefix.is_empty(),
            "--name-prefix is empty: use the start of a node's name"
        );
        let count = usize::from(self.nodes);
        let shapes = (0..count).map(|index| Shape {
            name: Shape::numbered(prefix, index, count),
            zone: given.zones[index % given.zones.len()].clone(),
            cpu: given.cpu,
            memory: given.memory,
            pods: given.pods,
            taints: given.taints.clone(),
            numa: given.numa,
        });
        Ok(shapes.collect())
    }
}

/// The HTTP server of the kubelets.
#[derive(Clone)]
struct Server(Arc<Local>);

impl Component for Server {
    fn ready(&self) -> Vec<Check> {
        let synced = match self.0.unsynced() {
            kinds if kinds.is_empty() => Ok(()),
            kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
        };
        vec![("ping", Ok(())), ("informer-sync", synced)]
    }

    fn metrics(&self) -> String {
        let mut registry = Registry::default();
        let nodes = Gauge::<i64>::default();
        nodes.set(i64::try_from(self.0.nodes().count()).unwrap_or(i64::MAX));
        registry.register(
            "tidepool_simulated_nodes",
            "Number of simulated nodes",
            nodes,
        );
        register_queues(&mut registry, &self.0.nodes().queues());
        encode_metrics(&registry)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn nodes_have_the_shape_of_the_flags() {
        let arguments = [
            "x",
            "--nodes=2",
            "--name-prefix=fake",
            "--cpu=4",
            "--zones=a,b",
            "--taint=fake=true:NoSchedule",
        ];
        let flags = Cli::try_parse_from(arguments).unwrap().flags;
        let shapes = flags.shapes().unwrap();
        let seen: Vec<_> = shapes
            .iter()
            .map(|it| (it.name.as_str(), it.zone.as_str(), it.cpu, it.memory))
            .collect();
        assert_eq!(seen, [("fake-001", "a", 4, 64), ("fake-002", "b", 4, 64)]);
        assert_eq!(shapes[0].taints[0].effect, "NoSchedule");
    }

    #[test]
    fn invalid_flags_are_refused() {
        for (argument, want) in [
            ("--taint=fake", "KEY=VALUE:EFFECT"),
            ("--taint=fake:Never", "NoExecute"),
            ("--taint=:NoExecute", "KEY=VALUE:EFFECT"),
            ("--nodes=5001", "5000"),
            ("--cpu=0", "1..=1024"),
            ("--numa=2", "`2` is not SOCKETSxZONES, such as 2x2"),
            ("--numa=9x9", "with at most 64 zones"),
        ] {
            let error = Cli::try_parse_from(["x", argument]).map(drop).unwrap_err();
            assert!(error.to_string().contains(want), "{argument}: {error}");
        }
    }
}
