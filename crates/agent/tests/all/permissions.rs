//! The manifests give the agent the permissions that it uses, and no others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use agent::agent::Agent;
use agent::evict::{Outcome, evict};
use agent::report::taint::TaintTarget;
use agent::report::withdraw;
use engine::model::Name;
use engine::node::EvictionOrder;
use http::Request;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::client::Body;
use reconcile::{EventRecorder, EventType};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::fake::FakeNode;
use crate::rights::{Right, granted, objects, of_kind, right};
use crate::support::{CNR, METRICS, TestCluster, eventually};

const MANIFEST: &str = include_str!("../../../../deploy/agent.yaml");
const NODE_TAINTS: &str = include_str!("../../../../deploy/agent-node-taints.yaml");

/// A client that writes down what it is used for.
fn recording(cluster: &TestCluster) -> (Client, Arc<Mutex<BTreeSet<Right>>>) {
    let used = Arc::new(Mutex::new(BTreeSet::new()));
    let service = cluster.faults.wrap(cluster.cluster.service());
    let service = ServiceExt::<Request<Body>>::map_request(service, {
        let used = used.clone();
        move |request: Request<Body>| {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default();
            used.lock()
                .unwrap()
                .extend(right(request.method(), uri.path(), query));
            request
        }
    });
    (Client::new(service, "default"), used)
}

/// The agent reports, evicts a pod, writes an event twice, and then takes back what it reported, as `--restore` does.
#[tokio::test]
async fn what_is_granted_is_what_is_used() {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        node.set_group_v2(group, 1, 5000);
    }
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let (client, used) = recording(&cluster);
    let agent = Agent::start(client.clone(), node.options("n1")).unwrap();
    let reported = |object: &Value| object["status"].is_object();
    for collection in [CNR, METRICS] {
        let url = format!("{collection}/n1");
        cluster.wait_for("it is reported", &url, reported).await;
    }
    let manifest = [objects(MANIFEST), objects(NODE_TAINTS)].concat();
    let roles = of_kind(&manifest, "ClusterRole").chain(of_kind(&manifest, "Role"));
    let mut want = granted(&roles.collect::<Vec<_>>());
    // The HTTP server uses them.
    want.retain(|(group, ..)| !group.starts_with("auth"));
    let url = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/agent-n1";
    cluster.wait_for("the Lease exists", url, |_| true).await;
    let watches: BTreeSet<Right> = want.iter().filter(|it| it.2 == "watch").cloned().collect();
    eventually("it watches", || watches.is_subset(&used.lock().unwrap())).await;

    let pod = cluster
        .create_pod(
            &node,
            "p",
            "00000000-0000-4000-8000-000000000001",
            json!({}),
        )
        .await;
    let order = EvictionOrder {
        namespace: Name::from("default"),
        name: Name::from("p"),
        uid: Name::from(pod["metadata"]["uid"].as_str().unwrap()),
        reason: "memory".to_owned(),
    };
    assert_eq!(evict(&client, &order, true).await, Outcome::Evicted);
    let events = EventRecorder::new(client.clone(), "tidepool-agent");
    for _ in 0..2 {
        let about = ObjectReference {
            namespace: Some("default".to_owned()),
            name: Some("p".to_owned()),
            ..ObjectReference::default()
        };
        events
            .record(about, EventType::Warning, "Evicted", "memory")
            .await;
    }
    drop(agent);
    let taints =
        json!({"spec": {"taints": [{"key": "tidepool.io/pressure", "effect": "NoSchedule"}]}});
    cluster.patch("/api/v1/nodes/n1", &taints).await;
    withdraw(&client, "n1", TaintTarget::Node).await.unwrap();

    let used = used.lock().unwrap().clone();
    let missing: Vec<_> = want.difference(&used).collect();
    assert!(missing.is_empty(), "granted and not used: {missing:?}");
    let beyond: Vec<_> = used.difference(&want).collect();
    assert!(beyond.is_empty(), "used without permission: {beyond:?}");
}
