//! A blocking client for objects of a cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::{Method, Request};
use serde_json::{Value, json};

use crate::Kubeconfig;

/// One user's connection. Every call blocks; none may be made inside an async runtime.
pub struct Api {
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
}

impl Api {
    pub fn new(kubeconfig: &Kubeconfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let config = runtime.block_on(kubeconfig.to_client_config())?;
        let client = {
            let _inside = runtime.enter();
            kube::Client::try_from(config)?
        };
        Ok(Self { runtime, client })
    }

    /// The object as it is now.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, &Value::Null)
    }

    /// The items of a list.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut list = self.get(path)?;
        let items = list["items"].take();
        serde_json::from_value(items).with_context(|| format!("{path} is no list"))
    }

    /// Creates objects of the kinds in [`path`], in their own namespace or `default`.
    pub fn create(&self, object: &Value) -> Result<Value> {
        self.send(Method::POST, &path(object)?, object)
    }

    /// Sends an object to a place that is not its collection.
    pub fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Method::POST, path, object)
    }

    /// Sends an object in protobuf, with its envelope.
    pub fn post_protobuf(&self, path: &str, object: Vec<u8>) -> Result<Value> {
        let request = Request::post(path)
            .header("content-type", "application/vnd.kubernetes.protobuf")
            .header("accept", "application/json")
            .body(object)?;
        let answer = self.runtime.block_on(self.client.request(request));
        answer.with_context(|| format!("POST {path}"))
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.send(Method::DELETE, path, &Value::Null)
    }

    /// Deletes without waiting for a kubelet, which there is none of.
    pub fn delete_now(&self, path: &str) -> Result<Value> {
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.send(Method::DELETE, path, &now)
    }

    /// Deletes this very object at once, and not another one of its name.
    pub fn delete_uid(&self, path: &str, uid: &str) -> Result<Value> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid}});
        self.send(Method::DELETE, path, &options)
    }

    /// Changes what the merge patch says.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, patch)
    }

    pub fn text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        let text = self.runtime.block_on(self.client.request_text(request));
        text.with_context(|| format!("GET {path}"))
    }

    /// A patch is a merge patch; without a body it is null.
    pub fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value> {
        let media_type = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("content-type", media_type)
            .body(bytes)?;
        self.runtime
            .block_on(self.client.request(request))
            .with_context(|| format!("{method} {path} {body}"))
    }
}

/// Asks every 50 ms until the answer pleases. Panics with the last answer after `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(last) => assert!(
                Instant::now() < deadline,
                "waited {limit:?} in vain until {what}: {last}"
            ),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where objects of this kind are created.
fn path(object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let group = if version == "v1" {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{version}")
    };
    let (plural, namespaced) = match &kind[..] {
        "Node" => ("nodes", false),
        "Namespace" => ("namespaces", false),
        "PersistentVolume" => ("persistentvolumes", false),
        "PriorityClass" => ("priorityclasses", false),
        "StorageClass" => ("storageclasses", false),
        "CSIDriver" => ("csidrivers", false),
        "CSINode" => ("csinodes", false),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        "CustomNodeResource" => ("customnoderesources", false),
        "ConfigMap" => ("configmaps", true),
        "Lease" => ("leases", true),
        "Pod" => ("pods", true),
        "Role" => ("roles", true),
        "RoleBinding" => ("rolebindings", true),
        "ServiceAccount" => ("serviceaccounts", true),
        "Deployment" => ("deployments", true),
        "Service" => ("services", true),
        "PersistentVolumeClaim" => ("persistentvolumeclaims", true),
        "PodDisruptionBudget" => ("poddisruptionbudgets", true),
        _ => anyhow::bail!("where `{kind}` objects are is not known here"),
    };
    if !namespaced {
        return Ok(format!("{group}/{plural}"));
    }
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    Ok(format!("{group}/namespaces/{namespace}/{plural}"))
}
