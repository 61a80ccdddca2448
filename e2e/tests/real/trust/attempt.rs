//! One attempt: who sends what, and what has to come of it.

use e2e::Api;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::shared_cluster::merge;

/// Whose rights count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Actor {
    /// A user with the role `edit` in the namespace `team`.
    Editor,
    /// One with the role `view` there.
    Viewer,
    /// The kubelet of node n1.
    Kubelet,
    /// The agent with a token for node n1.
    Agent,
    /// The agent with a token for no node.
    UnboundAgent,
    Scheduler,
    Controllers,
    Webhook,
    Gate,
}

impl Actor {
    pub(super) const ALL: [Self; 9] = [
        Self::Editor,
        Self::Viewer,
        Self::Kubelet,
        Self::Agent,
        Self::UnboundAgent,
        Self::Scheduler,
        Self::Controllers,
        Self::Webhook,
        Self::Gate,
    ];
}

/// A row. It has one of `post`, `patch`, `delete` and `get`, each with a path, and one of `refused`, `without`, `harmless` and
/// `allowed`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attempt {
    /// What is so, as a sentence.
    pub(super) name: String,
    pub(super) by: Actor,
    post: Option<String>,
    /// A merge patch.
    patch: Option<String>,
    delete: Option<String>,
    get: Option<String>,
    /// Merged into an ordinary object of the kind; `UID-OF-WEB` and `UID-OF-N1` are the uids of pod victim/web and of node n1.
    #[serde(default = "nothing")]
    with: Value,
    /// The container has a variable with so many `<`, which the API server sends to webhooks as six bytes each.
    #[serde(default)]
    escaped: usize,
    /// So many containers more.
    #[serde(default)]
    containers: usize,
    /// So many objects with different names; `NUMBER` is the number of each.
    #[serde(default = "once")]
    times: usize,
    /// It fails with a message that has this text.
    refused: Option<String>,
    /// The API server stores it, but without the field of this JSON pointer as it was sent.
    without: Option<String>,
    /// The API server stores it, and nothing of others changes.
    #[serde(default)]
    harmless: bool,
    /// A dry run of it passes: the actor needs it.
    #[serde(default)]
    allowed: bool,
}

fn nothing() -> Value {
    json!({})
}

fn once() -> usize {
    1
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verb {
    Post,
    Patch,
    Delete,
    Get,
}

impl Attempt {
    /// Why it is no valid row.
    pub(super) fn problem(&self) -> Option<String> {
        let requests = [&self.post, &self.patch, &self.delete, &self.get];
        let requests = requests.iter().filter(|it| it.is_some()).count();
        let texts = [&self.refused, &self.without];
        let texts = texts.iter().filter(|it| it.is_some()).count();
        let wants = texts + usize::from(self.harmless) + usize::from(self.allowed);
        match (requests, wants) {
            (1, 1) => self.request().1.is_empty().then(|| "no path".to_owned()),
            _ => Some(format!("{requests} requests and {wants} results, not one")),
        }
    }

    fn request(&self) -> (Verb, &str) {
        let all = [
            (Verb::Post, &self.post),
            (Verb::Patch, &self.patch),
            (Verb::Delete, &self.delete),
            (Verb::Get, &self.get),
        ];
        let mut all = all.into_iter();
        all.find_map(|(verb, path)| Some((verb, path.as_deref()?)))
            .unwrap_or((Verb::Get, ""))
    }

    /// Sends it. The error says what came of it instead.
    pub(super) fn run(&self, cluster: &Cluster, unique: &str) -> Result<(), String> {
        let api = cluster.api_of(self.by);
        for number in 0..self.times {
            let name = match self.times {
                1 => unique.to_owned(),
                _ => format!("{unique}-{number}"),
            };
            let with = self.with.to_string();
            let with = with.replace("UID-OF-WEB", &cluster.uid_of_web);
            let with = with.replace("UID-OF-N1", &cluster.uid_of_n1);
            let with = with.replace("NUMBER", &number.to_string());
            let with = serde_json::from_str(&with).unwrap();
            let answer = self.send(api, &name, with);
            self.judge(answer)?;
        }
        Ok(())
    }

    fn judge(&self, answer: Result<Value, String>) -> Result<(), String> {
        match (&self.refused, answer) {
            (Some(want), Err(found)) if found.contains(want) => Ok(()),
            (Some(want), Err(found)) => {
                Err(format!("refused, but not with `{want}`: {}", short(&found)))
            }
            (Some(want), Ok(_)) => Err(format!("not refused with `{want}`")),
            (None, Err(found)) => Err(format!("refused: {}", short(&found))),
            (None, Ok(stored)) => match &self.without {
                Some(pointer) if stored.pointer(pointer) == self.with.pointer(pointer) => {
                    Err(format!("{pointer} is stored as it was sent"))
                }
                _ => Ok(()),
            },
        }
    }

    fn send(&self, api: &Api, name: &str, with: Value) -> Result<Value, String> {
        let (verb, path) = self.request();
        // What is allowed would change the cluster for the next rows.
        let query = if self.allowed { "?dryRun=All" } else { "" };
        let path = format!("{path}{query}");
        let answer = match verb {
            Verb::Post => api.post(&path, &self.body(&path, name, with)),
            Verb::Patch => api.patch(&path, &with),
            // Options in a body would take the place of the query.
            Verb::Delete if self.allowed => api.delete(&path),
            Verb::Delete => api.delete_now(&path),
            Verb::Get => api.get(&path),
        };
        // Without the request, which would have the text that is looked for.
        answer.map_err(|error| error.root_cause().to_string())
    }

    fn body(&self, path: &str, name: &str, with: Value) -> Value {
        let mut body = ordinary(path, name);
        merge(&mut body, with);
        if self.escaped > 0 {
            let text = "<".repeat(self.escaped);
            body["spec"]["containers"][0]["env"] = json!([{"name": "TEXT", "value": text}]);
        }
        if let Some(all) = body["spec"]["containers"].as_array_mut() {
            let more = (0..self.containers).map(|n| json!({"name": format!("c{n}"), "image": "i"}));
            all.extend(more);
        }
        body
    }
}

/// Errors repeat the request, which may be long.
fn short(text: &str) -> String {
    let head: String = text.chars().take(300).collect();
    let tail: Vec<char> = text.chars().rev().take(300).collect();
    let tail: String = tail.into_iter().rev().collect();
    match text.len() {
        0..=600 => text.to_owned(),
        _ => format!("{head} … {tail}"),
    }
}

/// An object that the API server takes at this path.
fn ordinary(path: &str, name: &str) -> Value {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.rsplit('/');
    let (plural, owner) = (parts.next(), parts.next());
    let owner = owner.unwrap_or_default();
    let object = |version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        merge(&mut object, rest);
        object
    };
    let named = json!({"metadata": {"name": owner}});
    match plural.unwrap_or_default() {
        "pods" => object(
            "v1",
            "Pod",
            // No scheduler has this name, so that only an attempt itself can bind the pod.
            json!({"spec": {"schedulerName": "held", "containers": [{"name": "c", "image": "i"}]}}),
        ),
        "binding" => object(
            "v1",
            "Binding",
            json!({"metadata": {"name": owner}, "target": {"kind": "Node", "name": "n1"}}),
        ),
        "bindings" => object("v1", "Binding", json!({})),
        "persistentvolumes" => object("v1", "PersistentVolume", json!({})),
        "eviction" => object("policy/v1", "Eviction", named),
        "token" => object(
            "authentication.k8s.io/v1",
            "TokenRequest",
            json!({"spec": {}}),
        ),
        "configmaps" => object("v1", "ConfigMap", json!({})),
        "secrets" => object("v1", "Secret", json!({})),
        "nodes" => object("v1", "Node", json!({})),
        "events" => object("v1", "Event", json!({})),
        "leases" => object(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 3600}}),
        ),
        "persistentvolumeclaims" => object(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        "poddisruptionbudgets" => object("policy/v1", "PodDisruptionBudget", json!({})),
        "customnoderesources" => object(
            "node.katalyst.kubewharf.io/v1alpha1",
            "CustomNodeResource",
            json!({}),
        ),
        "nodemetrics" => object("slo.koordinator.sh/v1alpha1", "NodeMetric", json!({})),
        "resourcepolicies" => object(
            "scheduling.sigs.x-k8s.io/v1alpha1",
            "ResourcePolicy",
            json!({"spec": {"units": [{"name": "all", "maxCount": 0, "nodeSelector": {}}]}}),
        ),
        "clustercolocationprofiles" => object(
            "config.koordinator.sh/v1alpha1",
            "ClusterColocationProfile",
            json!({"spec": {"schedulerName": "mine"}}),
        ),
        "endpointslices" => object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
        "deployments" => object(
            "apps/v1",
            "Deployment",
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        ),
        "validatingwebhookconfigurations" => object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({}),
        ),
        "clusterrolebindings" => object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
        ),
        other => panic!("no ordinary object for `{other}`: add it"),
    }
}
