//! Measures throughput and memory of the embedded cluster: creates one large cluster in process, with a watcher
//! on its pods, and binds all pods. Prints one JSON line per metric. Rates per second of CPU time, watcher and
//! client included, stay comparable on a busy machine.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apiserver::{Cluster, Options};
use futures::StreamExt;
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 30_000;
/// Concurrent requests.
const CONCURRENCY: usize = 64;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let cluster = Cluster::new(Options::default());
    let client = Client::new(cluster.service(), "default");
    let events = Arc::new(AtomicUsize::new(0));
    let watcher = tokio::spawn(count_events(client.clone(), Arc::clone(&events)));

    let nodes = "/api/v1/nodes";
    run("node_creates", &client, NODES, |at| {
        (nodes.to_owned(), node(at))
    })
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    run("pod_creates", &client, PODS, |at| {
        (pods.to_owned(), pod(at))
    })
    .await;
    run("bindings", &client, PODS, |at| {
        (format!("{pods}/pod-{at}/binding"), binding(at))
    })
    .await;

    let begun = Instant::now();
    while events.load(Ordering::Relaxed) < 2 * PODS {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the watcher missed events"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    report("watcher_lag", begun.elapsed().as_secs_f64() * 1e3, "ms");
    let begun = Instant::now();
    let list = Request::get("/api/v1/pods")
        .body(Body::empty())
        .expect("a request");
    let bytes = send(&client, list).await;
    report("list_all_pods", begun.elapsed().as_secs_f64() * 1e3, "ms");
    report("bytes_per_pod", bytes as f64 / PODS as f64, "B");
    report("peak_rss", peak_rss_mib(), "MiB");
    watcher.abort();
}

#[expect(clippy::print_stdout, reason = "the figures are the output")]
fn report(metric: &str, value: f64, unit: &str) {
    let value = (value * 10.0).round() / 10.0;
    println!(
        "{}",
        json!({"bench": "apiserver", "metric": metric, "value": value, "unit": unit})
    );
}

/// POSTs `count` bodies concurrently, and prints the rate.
async fn run(metric: &str, client: &Client, count: usize, make: impl Fn(usize) -> (String, Value)) {
    let requests: Vec<_> = (0..count)
        .map(|at| {
            let (path, body) = make(at);
            Request::post(path)
                .header("content-type", "application/json")
                .body(Body::from(body.to_string().into_bytes()))
                .expect("a request")
        })
        .collect();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let requests = Arc::new(std::sync::Mutex::new(requests));
    let workers = (0..CONCURRENCY).map(|_| {
        let (client, requests) = (client.clone(), Arc::clone(&requests));
        tokio::spawn(async move {
            loop {
                let next = requests.lock().expect("no worker panicked").pop();
                let Some(request) = next else { return };
                send(&client, request).await;
            }
        })
    });
    for worker in futures::future::join_all(workers).await {
        worker.expect("a worker ended well");
    }
    let (count, took) = (count as f64, begun.elapsed().as_secs_f64());
    report(metric, count / took, "1/s");
    let per_cpu = format!("{metric}_per_cpu_second");
    report(&per_cpu, count / (cpu_seconds() - cpu), "1/s");
}

/// Sends a request that must succeed; returns the length of the response.
async fn send(client: &Client, request: Request<Body>) -> usize {
    let response = client.send(request).await.expect("an answer");
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a whole answer");
    let body = body.to_bytes();
    assert!(
        status.is_success(),
        "{status}: {}",
        String::from_utf8_lossy(&body)
    );
    body.len()
}

async fn count_events(client: Client, events: Arc<AtomicUsize>) {
    let request = Request::get("/api/v1/pods?watch=true").body(Body::empty());
    let response = client
        .send(request.expect("a request"))
        .await
        .expect("a watch");
    let mut frames = response.into_body().into_data_stream();
    while let Some(frame) = frames.next().await {
        let frame = frame.expect("the watch goes on");
        events.fetch_add(
            frame.iter().filter(|b| **b == b'\n').count(),
            Ordering::Relaxed,
        );
    }
}

fn node(at: usize) -> Value {
    let resources = json!({
        "cpu": "64", "memory": "263871032Ki", "pods": "110", "ephemeral-storage": "102400Mi",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "KubeletHas", "message": "as it should be",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let image = |n: usize| json!({"names": [format!("registry.example.com/team/image-{n}@sha256:{n:064}")], "sizeBytes": 123_456_789});
    json!({
        "metadata": {
            "name": format!("node-{at}"),
            "labels": {
                "kubernetes.io/hostname": format!("node-{at}"), "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": format!("z{}", at % 3),
                "topology.kubernetes.io/region": "r1", "node.kubernetes.io/instance-type": "large",
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("Ready", "True"), condition("MemoryPressure", "False"),
                condition("DiskPressure", "False"), condition("PIDPressure", "False"),
            ],
            "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
            "images": (0..20).map(image).collect::<Vec<_>>(),
        },
    })
}

fn pod(at: usize) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("pod-{at}"), "labels": {"app": format!("app-{}", at % 100)}},
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example.com/team/app:v1",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"cpu": "200m", "memory": "256Mi"},
                },
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 8080}],
            }],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        },
    })
}

fn binding(at: usize) -> Value {
    json!({
        "kind": "Binding", "apiVersion": "v1", "metadata": {"name": format!("pod-{at}")},
        "target": {"kind": "Node", "apiVersion": "v1", "name": format!("node-{}", at % NODES)},
    })
}

/// The CPU time of this process so far.
fn cpu_seconds() -> f64 {
    /// Linux counts it in hundredths of a second.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The second field, the name in parentheses, may have spaces; the 14th and 15th are user and system time.
    let after_name = stat.rsplit(')').next().expect("a line");
    let fields = after_name.split_whitespace().skip(11).take(2);
    let ticks = fields.map(|field| field.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / TICKS
}

fn peak_rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line
        .and_then(|line| line.split_whitespace().nth(1))
        .expect("VmHWM");
    kib.parse::<f64>().expect("a number") / 1024.0
}
