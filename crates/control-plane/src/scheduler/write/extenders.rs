//! Calls of extenders: other programs that filter, score, choose victims or bind, over HTTP with JSON.
//!
//! Whole pods and nodes, where an extender needs them, are read before each call and not cached.

mod answers;
mod connection;

use std::sync::Arc;

use engine::model::{Name, Pod};
use engine::scheduling::extender::{Answer, Verb, Victims};
use futures::future;
use serde_json::{Value, json};

use super::requests::{Call, pod_path};
use crate::client::Exchange;
use connection::Connection;
pub use connection::ExtenderError;

/// Nodes per page when an extender needs whole nodes.
const PAGE: usize = 100;
/// Bytes of a page: etcd stores up to 1.5 MiB per object, which JSON writes longer than protobuf.
const LARGEST_PAGE: usize = PAGE * (3 << 20);

/// In the engine's order.
pub(crate) struct Extenders(Vec<Arc<Connection>>);

impl Extenders {
    pub(crate) async fn connect(
        configs: Vec<api::config::Extender>,
    ) -> Result<Self, ExtenderError> {
        let connections = configs.into_iter().map(Connection::new);
        let connections = future::try_join_all(connections).await?;
        Ok(Self(connections.into_iter().map(Arc::new).collect()))
    }

    pub(crate) fn get(&self, index: usize) -> Option<Arc<Connection>> {
        self.0.get(index).cloned()
    }
}

impl Connection {
    /// Sends one question. An error is an answer, too.
    pub(crate) async fn ask(&self, api: &Exchange, pod: &Pod, verb: Verb) -> Answer {
        let shown = object(api, Call::get(pod_path(pod, ""))).await?;
        match verb {
            Verb::Filter { nodes } => {
                let question = self.about_nodes(api, shown, &nodes).await?;
                let verb = &self.config.filter_verb;
                let capable = self.config.node_cache_capable;
                let read = |answer: &Value| answers::filtered(answer, capable);
                self.post(verb, question, read).await
            }
            Verb::Prioritize { nodes } => {
                let question = self.about_nodes(api, shown, &nodes).await?;
                let verb = &self.config.prioritize_verb;
                self.post(verb, question, answers::prioritized).await
            }
            Verb::Preempt { nodes } => {
                let question = self.about_victims(api, shown, &nodes).await?;
                let verb = &self.config.preempt_verb;
                self.post(verb, question, answers::preempted).await
            }
        }
    }

    pub(crate) fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    pub(crate) async fn bind(&self, pod: &Pod, node: &str) -> Result<(), String> {
        let question = json!({
            "PodName": &*pod.name, "PodNamespace": &**pod.namespace(), "PodUID": &*pod.uid, "Node": node,
        });
        let verb = &self.config.bind_verb;
        self.post(verb, question, answers::error).await
    }

    async fn about_nodes(
        &self,
        api: &Exchange,
        pod: Value,
        nodes: &[Name],
    ) -> Result<Value, String> {
        if self.config.node_cache_capable {
            let names: Vec<&str> = nodes.iter().map(|name| &**name).collect();
            return Ok(json!({"Pod": pod, "Nodes": null, "NodeNames": names}));
        }
        let items = whole_nodes(api, nodes).await?;
        let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items});
        Ok(json!({"Pod": pod, "Nodes": list, "NodeNames": null}))
    }

    async fn about_victims(
        &self,
        api: &Exchange,
        pod: Value,
        nodes: &[Victims],
    ) -> Result<Value, String> {
        let mut shown = serde_json::Map::new();
        for victims in nodes {
            let mut pods = Vec::with_capacity(victims.pods.len());
            for victim in &victims.pods {
                pods.push(if self.config.node_cache_capable {
                    json!({"UID": &*victim.uid})
                } else {
                    object(api, Call::get(pod_path(victim, ""))).await?
                });
            }
            let entry = json!({"Pods": pods, "NumPDBViolations": victims.violations});
            shown.insert(victims.node.to_string(), entry);
        }
        Ok(if self.config.node_cache_capable {
            json!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": shown})
        } else {
            json!({"Pod": pod, "NodeNameToVictims": shown, "NodeNameToMetaVictims": null})
        })
    }
}

async fn object(api: &Exchange, call: Call) -> Result<Value, String> {
    let bytes = call.send_retrying(api).await;
    let bytes = bytes.map_err(|refusal| refusal.to_string())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// The nodes that still exist, as whole objects.
async fn whole_nodes(api: &Exchange, nodes: &[Name]) -> Result<Vec<Value>, String> {
    let wanted: std::collections::BTreeSet<&str> = nodes.iter().map(|name| &**name).collect();
    let mut found = Vec::with_capacity(nodes.len());
    let mut token = String::new();
    loop {
        let token_part =
            percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC);
        let path = format!("/api/v1/nodes?limit={PAGE}&continue={token_part}");
        let mut call = Call::get(path);
        call.largest = Some(LARGEST_PAGE);
        let mut page = object(api, call).await?;
        let Value::Array(items) = page["items"].take() else {
            return Err("the list of nodes has no items".to_owned());
        };
        let is_wanted = |node: &Value| {
            let name = node["metadata"]["name"].as_str();
            name.is_some_and(|name| wanted.contains(name))
        };
        found.extend(items.into_iter().filter(is_wanted));
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            return Ok(found);
        }
    }
}
