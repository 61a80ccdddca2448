//! A scheduler that shares only one part with Tidepool: the kubelet's checks. It binds each of its pods to the first node whose
//! kubelet would admit it. `docs/extend-the-scheduler.md` explains it.
//!
//! It is an example: it lists all objects each second, and does not try to find the best node.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use api::{parse, wire};
use clap::Parser;
use engine::binding::kubelet::{Admission, Applicant, Host, admit};
use engine::model::{Name, Node, Pod};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Binds pods to the first node whose kubelet would admit them
#[derive(Parser)]
struct Flags {
    /// The kubeconfig of the cluster
    #[arg(long, value_name = "PATH")]
    kubeconfig: PathBuf,
    /// The pods with this `spec.schedulerName` are bound
    #[arg(long, value_name = "NAME", default_value = "first-fit")]
    scheduler_name: String,
}

const ROUND: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let file = Kubeconfig::read_from(&flags.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    loop {
        if let Err(error) = round(&client, &flags.scheduler_name).await {
            tracing::warn!("{error:#}");
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Tries every waiting pod once. A pod that is bound takes its part of the node before the next one is tried.
async fn round(client: &Client, scheduler: &str) -> anyhow::Result<()> {
    let nodes: Vec<wire::core::Node> = list(client, "/api/v1/nodes").await?;
    let nodes: Vec<Node> = nodes.iter().map(parse::node).collect::<Result<_, _>>()?;
    let pods: Vec<wire::core::Pod> = list(client, "/api/v1/pods").await?;
    let pods = pods.iter().filter(|pod| !pod.is_finished());
    let pods: Vec<Pod> = pods.map(parse::pod).collect::<Result<_, _>>()?;
    let (mut placed, waiting): (Vec<Pod>, Vec<Pod>) =
        pods.into_iter().partition(|pod| pod.node.is_some());
    for mut pod in waiting {
        if *pod.scheduler_name != *scheduler || !pod.scheduling_gates.is_empty() {
            continue;
        }
        match choose(&pod, &nodes, &placed) {
            Ok(node) => {
                bind(client, &pod, &node).await?;
                pod.node = Some(node);
                placed.push(pod);
            }
            Err(reasons) => tracing::info!(pod = %pod.name, "no node: {}", reasons.join("; ")),
        }
    }
    Ok(())
}

/// The first node whose kubelet would admit the pod, or what each kubelet would say.
fn choose(pod: &Pod, nodes: &[Node], placed: &[Pod]) -> Result<Name, Vec<String>> {
    let mut reasons = Vec::new();
    for node in nodes {
        let name = &node.spec.name;
        let is_there = |other: &&Pod| other.node.as_ref() == Some(name);
        let others: Vec<&Pod> = placed.iter().filter(is_there).collect();
        // A kubelet ignores NoSchedule taints, because it expects that the scheduler does not.
        let host = Host {
            heeds_no_schedule: true,
            ..Host::linux(node)
        };
        match admit(Applicant::new(pod), host, &others) {
            Admission::Admitted => return Ok(name.clone()),
            Admission::Rejected(failure) => reasons.push(format!("{name}: {failure}")),
            // The kubelet would evict other pods for a critical one.
            Admission::MakeRoom(failures) => {
                reasons.extend(failures.iter().map(|failure| format!("{name}: {failure}")));
            }
        }
    }
    Err(reasons)
}

async fn bind(client: &Client, pod: &Pod, node: &Name) -> anyhow::Result<()> {
    let (namespace, name) = (pod.namespace(), &pod.name);
    // With the uid: another pod may have the name by now.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": &**name, "uid": &*pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": &**node}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&binding)?)?;
    let bound = client.request::<Value>(request).await;
    bound.with_context(|| format!("cannot bind pod {namespace}/{name}"))?;
    tracing::info!(pod = %name, %node, "bound pod");
    Ok(())
}

async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Vec<T>> {
    let request = http::Request::get(path).body(Vec::new())?;
    let mut list: Value = client.request(request).await?;
    Ok(serde_json::from_value(list["items"].take())?)
}
