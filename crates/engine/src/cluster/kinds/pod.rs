//! Pods that are bound to a node. [`Cluster`] keeps them with their nodes; pods that wait are in the scheduler's queue.

use std::sync::Arc;

use super::{Applied, Changed, Key, Watched};
use crate::cluster::Cluster;
use crate::cluster::event::{Actions, Change, Event};
use crate::model::Pod;

impl Watched for Arc<Pod> {
    const NAME: &'static str = "Pod";
    const PLURAL: &'static str = "pods";
    const NAMESPACED: bool = true;

    fn key(&self) -> Key {
        self.uid.clone().into()
    }

    fn apply(cluster: &mut Cluster, key: Key, new: Option<Self>) -> Applied {
        let uid = key.name;
        let Some(pod) = new else {
            cluster.remove_nomination(&uid);
            cluster.withdraw_promise(&uid);
            return Ok(events(cluster.remove_pod(&uid), None));
        };
        // A pod that was only assumed makes an event now that it is observed.
        let old = cluster
            .placed(&uid)
            .filter(|placed| !placed.assumed)
            .map(|placed| placed.pod.clone());
        cluster.set_pod(pod.clone())?;
        cluster.withdraw_promise(&uid);
        Ok(events(old, Some(pod)))
    }
}

pub(crate) fn events(old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) -> Vec<Event> {
    let (Some(was), Some(is)) = (&old, &new) else {
        return Change { old, new }.events(Changed::AssignedPod);
    };
    pod_actions(was, is)
        .into_iter()
        .map(|actions| Event {
            actions,
            changed: Changed::AssignedPod(Change {
                old: old.clone(),
                new: new.clone(),
            }),
        })
        .collect()
}

/// What differs between two forms of a pod; a plain update if it is nothing that a plugin can register for.
pub fn pod_actions(was: &Pod, is: &Pod) -> Vec<Actions> {
    let shrank = is.requests.shrank_from(&was.requests) || is.gave_up_zones(was);
    let found: Vec<Actions> = [
        (was.labels() != is.labels(), Actions::POD_LABEL),
        (shrank, Actions::POD_SCALE_DOWN),
        (
            !was.scheduling_gates.is_empty() && is.scheduling_gates.is_empty(),
            Actions::POD_GATES_ELIMINATED,
        ),
        (
            // The level says which QoS taints are meant for the pod.
            was.tolerations.len() != is.tolerations.len() || was.level != is.level,
            Actions::POD_TOLERATION,
        ),
        (
            was.generated_claims != is.generated_claims,
            Actions::POD_GENERATED_CLAIM,
        ),
    ]
    .into_iter()
    .filter_map(|(differs, actions)| differs.then_some(actions))
    .collect();
    if found.is_empty() {
        vec![Actions::UPDATE]
    } else {
        found
    }
}
