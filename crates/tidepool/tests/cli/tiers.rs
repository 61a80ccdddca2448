//! The tiers in the demo of `up`: simulated agents report, the controller publishes, and `explain node` shows the sums.

use std::time::{Duration, Instant};

use engine::model::Quantity;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node, core::v1::Pod};
use kube::{Api, Client, api::ListParams};

use crate::{PATIENCE, Up, client, run, tidepool};

/// How much of a resource a node offers.
pub(crate) fn offers(node: &Node, resource: &str) -> i64 {
    let status = node.status.as_ref().unwrap();
    let amount = status.allocatable.as_ref().and_then(|it| it.get(resource));
    amount.map_or(0, |it| Quantity::parse(&it.0).unwrap().units())
}

/// The names of running pods of an app.
pub(crate) async fn running(client: &Client, app: &str) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "demo");
    let of_app = ListParams::default().labels(&format!("app={app}"));
    let pods = pods.list(&of_app).await.unwrap().items.into_iter();
    let is_running = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        phase == Some("Running")
    };
    pods.filter(is_running)
        .filter_map(|pod| pod.metadata.name)
        .collect()
}

#[tokio::test]
async fn the_demo_runs_pods_of_both_tiers_on_idle_capacity() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kubeconfig");
    let _up = Up::start(&["--nodes", "3", "--kubeconfig-out", path.to_str().unwrap()]);
    let client = client(&path).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let lent = async {
        loop {
            let node = nodes.get("node-001").await.unwrap();
            let amounts = ["kubernetes.io/mid-cpu", "kubernetes.io/batch-cpu"];
            let is_lent = amounts.iter().all(|it| offers(&node, it) > 0);
            let (mid, batch) =
                tokio::join!(running(&client, "recommend"), running(&client, "render"));
            if is_lent && !mid.is_empty() && !batch.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let lent = tokio::time::timeout(2 * PATIENCE, lent).await;
    lent.expect("nodes lend to both tiers, and their pods run");
    let leases: Api<Lease> = Api::namespaced(client, "tidepool-system");
    leases.get("agent-node-001").await.unwrap();

    let explain = ["explain", "node", "node-001", "--kubeconfig"];
    let parts = [
        "node       node-001\n",
        "reclaimed cpu  ",
        "tiers      from a current NodeMetric\n",
        "kubernetes.io/mid-cpu  ",
        "  not requested by services  ",
        "kubernetes.io/batch-memory  ",
        "  idle pool  ",
    ];
    // While amounts change, what the Node publishes may by chance be what the feature gate MidNoOverselling gives.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = run(tidepool(&explain).arg(&path));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let missing = parts.iter().find(|part| !output.stdout.contains(**part));
        let Some(missing) = missing else { break };
        assert!(Instant::now() < deadline, "{missing}: {}", output.stdout);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn without_the_demo_nodes_have_no_agents() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kubeconfig");
    let _up = Up::start(&[
        "--nodes",
        "1",
        "--no-demo",
        "--kubeconfig-out",
        path.to_str().unwrap(),
    ]);
    let explain = ["explain", "node", "node-001", "--kubeconfig"];
    let output = run(tidepool(&explain).arg(&path));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let stale = "tiers      stale: there is no current NodeMetric, so no new pod of a tier fits\n";
    assert!(output.stdout.contains(stale), "{}", output.stdout);
    let output = run(tidepool(&["explain", "node", "node-9", "--kubeconfig"]).arg(&path));
    assert_eq!(output.code, Some(1), "{}", output.stdout);
    assert!(
        output.stderr.contains("there is no node node-9 in context"),
        "{}",
        output.stderr
    );
}
