//! What the scheduler costs: drains a backlog of pods through a real kube-apiserver and prints one JSON line.
//!
//! `cargo run --release -p e2e --example drain -- [NODES] [PODS]`. CPU is read per thread, after the last event.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control_plane::client::Connect;
use control_plane::scheduler::{DECIDE_THREAD, IO_THREAD, Options, Running};
use e2e::ControlPlane;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

const SCHEDULER: &str = "tidepool";
/// Creations at a time.
const AT_ONCE: usize = 16;
const LONGEST: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text
            .parse()
            .with_context(|| format!("`{text}` is no number")),
        None => Ok(default),
    };
    let (nodes, pods) = (number(1_000)?, number(2_000)?);
    let control_plane = ControlPlane::start(e2e::Options {
        disable_admission_plugins: vec![
            "ServiceAccount".to_owned(),
            "TaintNodesByCondition".to_owned(),
        ],
        ..e2e::Options::default()
    })?;
    let config = control_plane.admin().to_client_config().await?;
    let client = Client::try_from(config.clone())?;
    create(&client, nodes, pods).await?;

    let begun = Instant::now();
    let options = Options::with_defaults(SCHEDULER, "host")?;
    let running = Running::start(Connect::Config(Box::new(config)), options)?;
    let counters = running.counters();
    let mut last_bind = None;
    loop {
        let bound = counters.bound.load(Relaxed);
        if bound == pods as u64 {
            last_bind.get_or_insert_with(|| begun.elapsed());
        }
        if counters.events_written.load(Relaxed) == pods as u64 {
            break;
        }
        if begun.elapsed() > LONGEST {
            bail!("only {bound} of {pods} pods were bound in time");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = begun.elapsed();
    let per_pod = |thread| Ok::<f64, anyhow::Error>(cpu(thread)?.as_secs_f64() * 1e3 / pods as f64);
    let bound_in = last_bind.unwrap_or(all).as_secs_f64();
    let line = json!({
        "bench": "drain", "nodes": nodes, "pods": pods,
        "pods_per_s": pods as f64 / bound_in,
        "pods_per_s_with_events": pods as f64 / all.as_secs_f64(),
        "io_cpu_ms_per_pod": per_pod(IO_THREAD)?,
        "decide_cpu_ms_per_pod": per_pod(DECIDE_THREAD)?,
        "bind_failures": counters.bind_failures.load(Relaxed),
    });
    #[expect(clippy::print_stdout, reason = "it is what this program is for")]
    {
        println!("{line}");
    }
    running.stop().await;
    Ok(())
}

async fn create(client: &Client, nodes: usize, pods: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let node = |index: usize| {
        let capacity = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
        let labels = json!({"topology.kubernetes.io/zone": format!("zone-{}", index % 3)});
        serde_json::from_value(json!({
            "metadata": {"name": format!("node-{index}"), "labels": labels},
            "status": {"capacity": capacity, "allocatable": capacity},
        }))
    };
    let made = stream::iter(0..nodes).map(|index| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &node(index)?).await?;
            Ok::<(), anyhow::Error>(())
        }
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = |index: usize| {
        let requests = json!({"cpu": "100m", "memory": "200Mi"});
        serde_json::from_value(json!({
            "metadata": {"name": format!("pod-{index}"), "labels": {"app": "drain"}},
            "spec": {
                "schedulerName": SCHEDULER,
                "containers": [{"name": "main", "image": "app:1", "resources": {"requests": requests}}],
            },
        }))
    };
    let made = stream::iter(0..pods).map(|index| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &pod(index)?).await?;
            Ok::<(), anyhow::Error>(())
        }
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// CPU time of a thread of ours, by its name.
fn cpu(thread: &str) -> Result<Duration> {
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() != thread {
            continue;
        }
        let schedstat = std::fs::read_to_string(path.join("schedstat"))?;
        let nanos = schedstat.split(' ').next().unwrap_or_default();
        return Ok(Duration::from_nanos(nanos.parse()?));
    }
    bail!("no thread is named {thread}")
}
