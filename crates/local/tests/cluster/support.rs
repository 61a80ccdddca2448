//! A cluster for one test, and functions that wait for a state.

use std::{fmt::Debug, future::Future, time::Duration};

use apiserver::{Cluster, Options};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Event, Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use local::{Local, Timings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) const NAMESPACE: &str = "default";

pub(crate) fn short() -> Timings {
    Timings {
        pod_start: Duration::from_millis(10),
        pod_stop: Duration::from_millis(20),
        lease_renewal: Duration::from_millis(300),
        node_status: Duration::from_secs(5),
        node_grace: Duration::from_millis(1500),
        lost_pods: Duration::from_millis(300),
        job_retry: Duration::from_millis(50),
        job_run: Duration::from_millis(100),
    }
}

pub(crate) struct Fixture {
    pub(crate) client: Client,
    pub(crate) local: Local,
    binder: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.binder.abort();
    }
}

/// A cluster with `nodes` demo nodes, whose pods are bound to them in turn.
pub(crate) async fn cluster(nodes: usize) -> Fixture {
    let cluster = Cluster::new(Options::default());
    let client = Client::new(cluster.service(), NAMESPACE);
    let local = local::start(client.clone(), "the root certificate".into(), short());
    local.synced().await;
    local.nodes().add_demo(nodes).await.unwrap();
    let binder = tokio::spawn(bind_in_turn(client.clone()));
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::default_namespaced(client.clone());
    eventually("the default account exists", || async {
        accounts.get_opt("default").await.unwrap().ok_or("none")
    })
    .await;
    Fixture {
        client,
        local,
        binder,
    }
}

/// A minimal scheduler: ready nodes in turn.
pub(crate) async fn bind_in_turn(client: Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let unbound = watcher::Config::default().fields("spec.nodeName=");
    let pods = watcher(Api::<Pod>::all(client.clone()), unbound)
        .default_backoff()
        .applied_objects();
    let mut pods = pods.boxed();
    let mut turn = 0;
    while let Some(pod) = pods.next().await {
        let Ok(pod) = pod else { continue };
        if pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Some(node) = named_node(&pod) {
            bind(&client, &pod, &node).await;
            continue;
        }
        loop {
            let all = nodes.list(&ListParams::default()).await.unwrap();
            let open: Vec<&Node> = all.iter().filter(|node| is_open(node)).collect();
            if open.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            turn += 1;
            bind(&client, &pod, &open[turn % open.len()].name_any()).await;
            break;
        }
    }
}

/// The node that the affinity of a daemon's pod names.
fn named_node(pod: &Pod) -> Option<String> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?;
    let node = affinity.node_affinity.as_ref()?;
    let required = node
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let fields = required
        .node_selector_terms
        .first()?
        .match_fields
        .as_ref()?;
    fields.first()?.values.as_ref()?.first().cloned()
}

fn is_open(node: &Node) -> bool {
    node.spec
        .as_ref()
        .is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
}

/// Ignores a pod that is gone or bound already.
pub(crate) async fn bind(client: &Client, pod: &Pod, node: &str) {
    let binding: Binding = object(json!({
        "metadata": {"name": pod.name_any()}, "target": {"kind": "Node", "name": node},
    }));
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let options = PostParams::default();
    let _: Result<Value, _> = api
        .create_subresource("binding", &pod.name_any(), &options, &binding)
        .await;
}

pub(crate) fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

impl Fixture {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, value: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + Debug,
    {
        self.api::<K>()
            .create(&PostParams::default(), &object(value))
            .await
            .unwrap()
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let all = ListParams::default();
        self.api::<K>().list(&all).await.unwrap().items
    }

    /// The pods with this label `app`, terminating ones included.
    pub(crate) async fn pods(&self, app: &str) -> Vec<Pod> {
        let labelled = ListParams::default().labels(&format!("app={app}"));
        self.api::<Pod>().list(&labelled).await.unwrap().items
    }

    /// Returns once exactly `count` pods of the app are ready and no others are there.
    pub(crate) async fn ready(&self, app: &str, count: usize) -> Vec<Pod> {
        eventually(&format!("{count} pods of {app} are ready"), || async {
            let pods = self.pods(app).await;
            let states: Vec<_> = pods
                .iter()
                .map(|pod| format!("{} {}", pod.name_any(), phase(pod)))
                .collect();
            if pods.len() == count && pods.iter().all(is_ready) {
                Ok(pods)
            } else {
                Err(states)
            }
        })
        .await
    }

    pub(crate) async fn events_about(&self, name: &str) -> Vec<(String, String)> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = self.api::<Event>().list(&about).await.unwrap();
        let events = events.items.into_iter();
        events
            .map(|e| (e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
            .collect()
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// A pod template whose label `app` is `app`.
pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": image}],
    }})
}

pub(crate) fn deployment(app: &str, replicas: i32) -> Value {
    json!({"metadata": {"name": app}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": app}},
        "template": template(app, "app:1"),
    }})
}

/// Tries until it gets an `Ok`, and fails with the last `Err` when that takes too long.
pub(crate) async fn eventually<T, E: Debug, F>(what: &str, attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let start = std::time::Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(last) if start.elapsed() > Duration::from_secs(60) => {
                panic!("waited in vain until {what}: {last:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Returns once the object is gone.
pub(crate) async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + Debug,
{
    eventually(&format!("{name} is gone"), || async {
        match api.get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(object) => Err(object),
        }
    })
    .await;
}
