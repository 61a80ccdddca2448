//! An embedded cluster with the agent's kinds, and waiting.

use std::time::{Duration, Instant};

use agent::agent::Agent;
use apiserver::Cluster;
use apiserver::faults::Faults;
use kube::Client;
use serde_json::{Value, json};

use crate::fake::FakeNode;

pub(crate) const CNR: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
pub(crate) const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn text(agent: &Agent) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &agent.metrics()).unwrap();
    text
}

/// A cluster and a client of it.
pub(crate) struct TestCluster {
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    pub(crate) cluster: Cluster,
}

impl TestCluster {
    /// Without custom kinds.
    pub(crate) async fn bare() -> Self {
        let cluster = Cluster::new(apiserver::Options::default());
        let faults = Faults::new();
        let client = Client::new(faults.wrap(cluster.service()), "default");
        let cluster = Self {
            client,
            faults,
            cluster,
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tidepool-system"}});
        cluster.create("/api/v1/namespaces", &namespace).await;
        cluster
    }

    pub(crate) async fn new() -> Self {
        let cluster = Self::bare().await;
        cluster.define(|_| {}).await;
        cluster
    }

    /// Defines the agent's kinds after a change of the definition of CNRs.
    pub(crate) async fn define(&self, change: impl Fn(&mut Value)) {
        for (_, mut definition) in api::crds::all() {
            let kind = definition["spec"]["names"]["kind"].clone();
            if kind == "ResourcePolicy" {
                continue;
            }
            if kind == "CustomNodeResource" {
                change(&mut definition);
            }
            self.create(DEFINITIONS, &definition).await;
        }
        for url in [CNR, METRICS] {
            self.wait_for("the kind is served", url, |_| true).await;
        }
    }

    pub(crate) async fn create(&self, url: &str, object: &Value) -> Value {
        let request = http::Request::post(url)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(object).unwrap());
        self.client.request(request.unwrap()).await.unwrap()
    }

    pub(crate) async fn patch(&self, url: &str, patch: &Value) -> Value {
        let request = http::Request::patch(url)
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(patch).unwrap());
        self.client.request(request.unwrap()).await.unwrap()
    }

    pub(crate) async fn delete(&self, url: &str) {
        let request = http::Request::delete(url).body(Vec::new());
        let _: Value = self.client.request(request.unwrap()).await.unwrap();
    }

    pub(crate) async fn get(&self, url: &str) -> Option<Value> {
        let request = http::Request::get(url).body(Vec::new());
        self.client.request(request.unwrap()).await.ok()
    }

    /// Returns the object once it is as wanted.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        url: &str,
        is_true: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let object = self.get(url).await;
            if let Some(object) = object.clone().filter(&is_true) {
                return object;
            }
            let now = object.unwrap_or_default();
            assert!(
                Instant::now() < deadline,
                "waited in vain until {what}: {now:#}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A node with two CPUs and as much memory as [`crate::fake::FakeNode`].
    pub(crate) async fn create_node(&self, name: &str) {
        let amounts = json!({"cpu": "2", "memory": "1000Ki"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"capacity": amounts, "allocatable": amounts},
        });
        self.create("/api/v1/nodes", &node).await;
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        self.patch(&format!("/api/v1/nodes/{name}/status"), &status)
            .await;
    }

    /// A static pod on node `n1`: its cgroup has the hash of its file as uid, so that the test can choose it.
    pub(crate) async fn create_pod(
        &self,
        node: &FakeNode,
        name: &str,
        group: &str,
        resources: Value,
    ) -> Value {
        node.show_static_pod(name, group);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default",
                "annotations": {"kubernetes.io/config.hash": group, "kubernetes.io/config.mirror": group},
            },
            "spec": {"nodeName": "n1", "containers": [
                {"name": "main", "image": "i", "resources": resources},
            ]},
        });
        self.create("/api/v1/namespaces/default/pods", &pod).await;
        let id = format!("containerd://{}", "c".repeat(64));
        let status = json!({"status": {"phase": "Running", "containerStatuses": [{
            "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": id,
        }]}});
        let url = format!("/api/v1/namespaces/default/pods/{name}/status");
        self.patch(&url, &status).await
    }
}
