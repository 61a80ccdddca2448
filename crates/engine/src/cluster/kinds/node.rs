//! Nodes. [`Cluster`] keeps them with their accounts and their pods.

use std::sync::Arc;

use super::{Applied, Changed, Key, Watched};
use crate::cluster::Cluster;
use crate::cluster::event::{Actions, Change, Event};
use crate::model::Node;

impl Watched for Node {
    const NAME: &'static str = "Node";
    const PLURAL: &'static str = "nodes";
    const NAMESPACED: bool = false;

    fn key(&self) -> Key {
        self.spec.name.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let old = cluster.node(&key.name).cloned();
        match new {
            Some(node) => cluster.set_node(node),
            None => cluster.remove_node(&key.name),
        }
        Ok(events(old, cluster.node(&key.name).cloned()))
    }
}

/// One event per kind of difference, in kube-scheduler's order; none for a heartbeat.
fn events(old: Option<Arc<Node>>, new: Option<Arc<Node>>) -> Vec<Event> {
    let (Some(before), Some(after)) = (&old, &new) else {
        return Change { old, new }.events(Changed::Node);
    };
    let (was, is) = (&before.spec, &after.spec);
    [
        (was.unschedulable && !is.unschedulable, Actions::NODE_TAINT),
        (
            before.allocatable != after.allocatable,
            Actions::NODE_ALLOCATABLE,
        ),
        (was.labels != is.labels, Actions::NODE_LABEL),
        (was.taints != is.taints, Actions::NODE_TAINT),
        (
            before.conditions != after.conditions,
            Actions::NODE_CONDITION,
        ),
        (
            before.annotations != after.annotations,
            Actions::NODE_ANNOTATION,
        ),
        (
            was.declared_features != is.declared_features,
            Actions::NODE_DECLARED_FEATURE,
        ),
    ]
    .into_iter()
    .filter(|(differs, _)| *differs)
    .map(|(_, actions)| Event {
        actions,
        changed: Changed::Node(Change {
            old: old.clone(),
            new: new.clone(),
        }),
    })
    .collect()
}
