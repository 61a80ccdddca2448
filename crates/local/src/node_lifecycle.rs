//! The node lifecycle controller: marks nodes without heartbeats as not ready, and keeps the taints of their conditions.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use reconcile::{Error, Index, Key, Part, Requeue, WorkQueue};
use serde_json::json;
use tokio::time::Instant;

use crate::{context::Context, events::Events, objects::Pod};

const WORKERS: usize = 16;

/// The conditions that become unknown without heartbeats.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The taints of a condition in this state; `Ready` has one for new pods and one for running ones.
const TAINTS: [(&str, &str, &str, &[&str]); 6] = [
    (
        "Ready",
        "False",
        "node.kubernetes.io/not-ready",
        &["NoSchedule", "NoExecute"],
    ),
    (
        "Ready",
        "Unknown",
        "node.kubernetes.io/unreachable",
        &["NoSchedule", "NoExecute"],
    ),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
        &["NoSchedule"],
    ),
    (
        "DiskPressure",
        "True",
        "node.kubernetes.io/disk-pressure",
        &["NoSchedule"],
    ),
    (
        "PIDPressure",
        "True",
        "node.kubernetes.io/pid-pressure",
        &["NoSchedule"],
    ),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
        &["NoSchedule"],
    ),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

#[derive(Debug, PartialEq)]
enum NodeStep {
    /// The node sends no heartbeats: these conditions are now unknown.
    Doubt(Vec<NodeCondition>),
    SetTaints(Vec<Taint>),
}

/// The next step for a node whose last heartbeat was `silence` ago.
fn plan(node: &Node, silence: Duration, grace: Duration, now: Timestamp) -> Option<NodeStep> {
    if silence >= grace {
        let doubts = doubts(node, now);
        if !doubts.is_empty() {
            return Some(NodeStep::Doubt(doubts));
        }
    }
    let taints = taints(node, now);
    let written = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    (taints != written).then_some(NodeStep::SetTaints(taints))
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn doubts(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let unknown = |type_: &&str| {
        let before = condition(node, type_);
        if before.is_some_and(|before| before.status == "Unknown") {
            return None;
        }
        let (reason, message) = match before {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => (
                "NodeStatusNeverUpdated",
                "Kubelet never posted node status.",
            ),
        };
        Some(NodeCondition {
            type_: (*type_).into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: before.and_then(|before| before.last_heartbeat_time.clone()),
            last_transition_time: Some(Time(now)),
        })
    };
    REPORTED.iter().filter_map(unknown).collect()
}

/// The taints that the node should have: foreign ones stay, ours follow the conditions.
fn taints(node: &Node, now: Timestamp) -> Vec<Taint> {
    let spec = node.spec.clone().unwrap_or_default();
    let mut written = spec.taints.unwrap_or_default();
    // A node that has never reported keeps the taint it was created with.
    if condition(node, "Ready").is_none() {
        return written;
    }
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (type_, state, key, effects) in TAINTS {
        if condition(node, type_).is_some_and(|condition| condition.status == state) {
            wanted.extend(effects.iter().map(|effect| (key, *effect)));
        }
    }
    if spec.unschedulable == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_ours = |taint: &Taint| {
        taint.key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, key, _)| taint.key == *key)
    };
    written.retain(|taint| {
        !is_ours(taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str()))
    });
    for (key, effect) in wanted {
        if !written
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
        {
            written.push(Taint {
                key: key.into(),
                effect: effect.into(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    written
}

fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

struct NodeLifecycle {
    context: Arc<Context>,
    events: Events,
    heard: Arc<Mutex<HashMap<String, Instant>>>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("node-lifecycle");
    let heard: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();

    let (wake, news) = (queue.clone(), heard.clone());
    context.nodes.listen(move |change| {
        let beat = |node: &Arc<Node>| {
            condition(node, "Ready").and_then(|ready| ready.last_heartbeat_time.clone())
        };
        let mut heard = news.lock().expect("no panic while held");
        match (change.old, change.new) {
            (_, None) => {
                let name = change.old.and_then(|node| node.metadata.name.clone());
                heard.remove(&name.unwrap_or_default());
            }
            (old, Some(node)) => {
                let key = Key::of(&node.metadata);
                if old.is_none_or(|old| beat(old) != beat(node)) {
                    heard.insert(key.name.clone(), Instant::now());
                }
                wake.add(key);
            }
        }
    });
    let news = heard.clone();
    context.leases.listen(move |change| {
        let renewed = |lease: &Arc<_>| {
            let lease: &k8s_openapi::api::coordination::v1::Lease = lease;
            lease.spec.as_ref().and_then(|spec| spec.renew_time.clone())
        };
        if let Some(lease) = change.new
            && change.old.is_none_or(|old| renewed(old) != renewed(lease))
        {
            let name = lease.metadata.name.clone().unwrap_or_default();
            let mut heard = news.lock().expect("no panic while held");
            if let Some(last) = heard.get_mut(&name) {
                *last = Instant::now();
            }
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = NodeLifecycle {
            events: context.events("node-controller"),
            context,
            heard,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl NodeLifecycle {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(node) = self.context.nodes.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        let grace = self.context.timings.node_grace;
        let silence = {
            let mut heard = self.heard.lock().expect("no panic while held");
            heard
                .entry(key.name.clone())
                .or_insert_with(Instant::now)
                .elapsed()
        };
        match plan(&node, silence, grace, Timestamp::now()) {
            Some(NodeStep::Doubt(conditions)) => self.doubt(&node, conditions).await?,
            Some(NodeStep::SetTaints(taints)) => self.set_taints(&node, taints).await?,
            None => {}
        }
        if !is_ready(&node) && condition(&node, "Ready").is_some() {
            self.mark_pods_not_ready(&key.name).await?;
        }
        Ok(Requeue::After(grace.saturating_sub(silence).max(grace / 8)))
    }

    async fn doubt(&self, node: &Node, conditions: Vec<NodeCondition>) -> Result<(), Error> {
        let fields = json!({"status": {"conditions": conditions}});
        let requests = &self.context.requests;
        if requests
            .strategic::<Node>(&node.metadata, Part::Status, fields)
            .await?
            .is_some()
        {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let message = format!("Node {name} status is now: NodeNotReady");
            self.events.normal(node, "NodeNotReady", &message).await;
        }
        Ok(())
    }

    /// Only if the node has not changed: the patch replaces the whole list, and users change taints too.
    async fn set_taints(&self, node: &Node, taints: Vec<Taint>) -> Result<(), Error> {
        let fields = json!({"spec": {"taints": taints}});
        let requests = &self.context.requests;
        requests
            .merge_unchanged::<Node>(&node.metadata, Part::Object, fields)
            .await?;
        Ok(())
    }

    /// Marks the pods of a node without heartbeats as not ready.
    async fn mark_pods_not_ready(&self, node: &str) -> Result<(), Error> {
        for pod in self.context.pods.indexed(&Index::Node(node.into())) {
            if pod.is_ready() && !pod.is_finished() {
                let now = Time(Timestamp::now());
                let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
                let fields = json!({"status": {"conditions": [ready]}});
                self.context
                    .requests
                    .strategic::<Pod>(&pod.metadata, Part::Status, fields)
                    .await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const GRACE: Duration = Duration::from_secs(40);

    fn node(conditions: &[(&str, &str)], spec: Value) -> Node {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status)| json!({"type": type_, "status": status}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn next(node: &Node, silence: u64) -> Vec<String> {
        match plan(
            node,
            Duration::from_secs(silence),
            GRACE,
            Timestamp::UNIX_EPOCH,
        ) {
            None => vec![],
            Some(NodeStep::Doubt(conditions)) => conditions
                .iter()
                .map(|c| format!("{} {} {}", c.type_, c.status, c.reason.as_deref().unwrap()))
                .collect(),
            Some(NodeStep::SetTaints(taints)) => taints
                .iter()
                .map(|t| {
                    format!(
                        "{}:{}",
                        t.key.trim_start_matches("node.kubernetes.io/"),
                        t.effect
                    )
                })
                .collect(),
        }
    }

    #[test]
    fn taints_follow_the_conditions() {
        let born =
            json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        let foreign = json!({"taints": [
            {"key": "gpu", "value": "a", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        ]});
        for (case, conditions, spec, want) in [
            ("healthy", vec![("Ready", "True")], json!({}), vec![]),
            ("born", vec![], born.clone(), vec![]),
            (
                "not ready",
                vec![("Ready", "False")],
                born,
                vec!["not-ready:NoSchedule", "not-ready:NoExecute"],
            ),
            (
                "unknown",
                vec![("Ready", "Unknown")],
                json!({}),
                vec!["unreachable:NoSchedule", "unreachable:NoExecute"],
            ),
            (
                "back again, foreign taints stay",
                vec![("Ready", "True")],
                foreign,
                vec!["gpu:NoSchedule"],
            ),
            (
                "cordoned",
                vec![("Ready", "True")],
                json!({"unschedulable": true}),
                vec!["unschedulable:NoSchedule"],
            ),
            (
                "under pressure",
                vec![("Ready", "True"), ("MemoryPressure", "True")],
                json!({}),
                vec!["memory-pressure:NoSchedule"],
            ),
        ] {
            assert_eq!(next(&node(&conditions, spec), 0), want, "{case}");
        }
        let written = json!({"taints": [
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        ], "unschedulable": true});
        assert_eq!(
            next(&node(&[("Ready", "True")], written), 0),
            [""; 0],
            "a taint keeps its time"
        );
    }

    #[test]
    fn a_node_without_heartbeats_becomes_unknown_once() {
        let healthy = [
            ("Ready", "True"),
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
        ];
        assert_eq!(next(&node(&healthy, json!({})), 39), [""; 0]);
        assert_eq!(
            next(&node(&healthy, json!({})), 40),
            [
                "Ready Unknown NodeStatusUnknown",
                "MemoryPressure Unknown NodeStatusUnknown",
                "DiskPressure Unknown NodeStatusUnknown",
                "PIDPressure Unknown NodeStatusUnknown",
            ]
        );
        assert_eq!(
            next(&node(&[], json!({})), 40)[0],
            "Ready Unknown NodeStatusNeverUpdated"
        );
        let doubted: Vec<_> = healthy.map(|(type_, _)| (type_, "Unknown")).to_vec();
        assert_eq!(
            next(&node(&doubted, json!({})), 99),
            ["unreachable:NoSchedule", "unreachable:NoExecute"]
        );
    }
}
