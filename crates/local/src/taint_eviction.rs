//! The taint eviction controller: deletes pods that do not, or no longer, tolerate the NoExecute taints of their node.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use reconcile::{Error, Index, Key, Part, Requeue, WorkQueue, true_condition};
use serde_json::json;

use crate::{context::Context, events::Events, objects::Pod};

const WORKERS: usize = 16;

/// When to delete a pod that has had these taints since `since`: never, if it tolerates all of them without a limit.
fn eviction_time(
    taints: &[Taint],
    tolerations: &[Toleration],
    since: Timestamp,
) -> Option<Timestamp> {
    let driving = taints.iter().filter(|taint| taint.effect == "NoExecute");
    let times = driving.filter_map(|taint| {
        let matching: Vec<_> = tolerations.iter().filter(|t| tolerates(t, taint)).collect();
        let added = taint.time_added.as_ref().map_or(since, |time| time.0);
        if matching.is_empty() {
            return Some(since);
        }
        let patience = matching.iter().filter_map(|t| t.toleration_seconds).min()?;
        // A user may write any number here: one beyond the calendar means never.
        added
            .checked_add(SignedDuration::from_secs(patience.max(0)))
            .ok()
    });
    times.min()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            !key.is_empty() && text(&toleration.value) == text(&taint.value)
        }
        Some(_) => false,
    }
}

fn driving(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints
        .into_iter()
        .flatten()
        .filter(|taint| taint.effect == "NoExecute")
        .cloned()
        .collect()
}

struct TaintEviction {
    context: Arc<Context>,
    events: Events,
    /// Since when a pod, by its uid, has been on a tainted node.
    met: Mutex<HashMap<Key, (String, Timestamp)>>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("taint-eviction");
    let (wake, nodes) = (queue.clone(), context.nodes.clone());
    context.pods.listen(move |change| {
        if change.new.is_none() {
            wake.add(Key::of(
                &change
                    .old
                    .map(|pod| pod.metadata.clone())
                    .unwrap_or_default(),
            ));
        } else if let Some(pod) = change.new.filter(|pod| pod.is_bound())
            && nodes
                .get(&Key::cluster(&pod.spec.node_name))
                .is_some_and(|node| !driving(&node).is_empty())
        {
            wake.add(Key::of(&pod.metadata));
        }
    });
    let (wake, pods) = (queue.clone(), context.pods.clone());
    context.nodes.listen(move |change| {
        let before = change.old.map(|node| driving(node)).unwrap_or_default();
        if let Some(node) = change.new
            && driving(node) != before
        {
            let name = node.metadata.name.clone().unwrap_or_default();
            for pod in pods.indexed(&Index::Node(name)) {
                wake.add(Key::of(&pod.metadata));
            }
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = TaintEviction {
            events: context.events("taint-eviction-controller"),
            context,
            met: Mutex::default(),
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl TaintEviction {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(pod) = self.context.pods.get(&key) else {
            self.forget(&key);
            return Ok(Requeue::OnChange);
        };
        let node = self.context.nodes.get(&Key::cluster(&pod.spec.node_name));
        let taints = node.map(|node| driving(&node)).unwrap_or_default();
        if taints.is_empty() || !pod.is_active() {
            self.forget(&key);
            return Ok(Requeue::OnChange);
        }
        let now = Timestamp::now();
        let since = {
            let mut met = self.met.lock().expect("no panic while held");
            let entry = met
                .entry(key.clone())
                .or_insert_with(|| (pod.uid().to_owned(), now));
            if entry.0 != pod.uid() {
                *entry = (pod.uid().to_owned(), now);
            }
            entry.1
        };
        let Some(time) = eviction_time(&taints, &pod.spec.tolerations, since) else {
            return Ok(Requeue::OnChange);
        };
        match Duration::try_from(time.duration_since(now)) {
            Ok(left) if !left.is_zero() => return Ok(Requeue::After(left)),
            _ => self.evict(&key, &pod).await?,
        }
        self.forget(&key);
        Ok(Requeue::OnChange)
    }

    fn forget(&self, key: &Key) {
        self.met.lock().expect("no panic while held").remove(key);
    }

    async fn evict(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        let message = format!("Marking for deletion Pod {key}");
        self.events
            .normal(pod, "TaintManagerEviction", &message)
            .await;
        let message = "Taint manager: deleting due to NoExecute taint";
        let why = true_condition("DisruptionTarget", "DeletionByTaintManager", message);
        let fields = json!({"status": {"conditions": [why]}});
        self.context
            .requests
            .strategic::<Pod>(&pod.metadata, Part::Status, fields)
            .await?;
        Ok(self.context.delete_pod(pod, None).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn a_pod_leaves_when_its_patience_ends() {
        let taint = |key: &str, effect: &str| Taint {
            key: key.into(),
            effect: effect.into(),
            value: Some("v".into()),
            time_added: Some(Time(Timestamp::from_second(1000).unwrap())),
        };
        let toleration =
            |key: &str, operator: &str, value: &str, seconds: Option<i64>| Toleration {
                key: Some(key.into()).filter(|key: &String| !key.is_empty()),
                operator: Some(operator.into()),
                value: Some(value.into()),
                toleration_seconds: seconds,
                effect: None,
            };
        let gone = || vec![taint("down", "NoExecute")];
        for (case, taints, tolerations, want) in [
            (
                "nothing drives it out",
                vec![taint("down", "NoSchedule")],
                vec![],
                None,
            ),
            ("no toleration", gone(), vec![], Some(1005)),
            (
                "another key",
                gone(),
                vec![toleration("up", "Exists", "", None)],
                Some(1005),
            ),
            (
                "tolerated for good",
                gone(),
                vec![toleration("down", "Exists", "", None)],
                None,
            ),
            (
                "everything tolerated",
                gone(),
                vec![toleration("", "Exists", "", None)],
                None,
            ),
            (
                "the value counts",
                gone(),
                vec![toleration("down", "Equal", "w", None)],
                Some(1005),
            ),
            (
                "for a while, from the taint on",
                gone(),
                vec![toleration("down", "Equal", "v", Some(300))],
                Some(1300),
            ),
            (
                "the least patience counts",
                gone(),
                vec![
                    toleration("down", "Exists", "", Some(300)),
                    toleration("down", "Exists", "", Some(20)),
                ],
                Some(1020),
            ),
            (
                "negative is at once",
                gone(),
                vec![toleration("down", "Exists", "", Some(-5))],
                Some(1000),
            ),
            (
                "longer than time itself",
                gone(),
                vec![toleration("down", "Exists", "", Some(i64::MAX))],
                None,
            ),
            (
                "the first taint drives",
                vec![taint("down", "NoExecute"), taint("broken", "NoExecute")],
                vec![toleration("down", "Exists", "", Some(300))],
                Some(1005),
            ),
        ] {
            let since = Timestamp::from_second(1005).unwrap();
            let got = eviction_time(&taints, &tolerations, since).map(|time| time.as_second());
            assert_eq!(got, want, "{case}");
        }
    }
}
