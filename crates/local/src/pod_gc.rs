//! Pod garbage collection: deletes pods of nodes that no longer exist, and the oldest of too many finished pods.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, core::PartialObjectMeta};
use reconcile::{Error, Index, Key, Part, Requeue, WorkQueue, true_condition};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, objects::Pod};

const WORKERS: usize = 4;
/// How many finished pods are kept; the real controller's default.
const FINISHED_KEPT: usize = 12_500;
const FINISHED_CHECK: Duration = Duration::from_secs(20);

struct PodGc {
    context: Arc<Context>,
    /// Since when a node with pods has been missing.
    missing: Mutex<HashMap<String, Instant>>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("pod-gc");
    let (wake, nodes) = (queue.clone(), context.nodes.clone());
    context.pods.listen(move |change| {
        if let Some(pod) = change.new.filter(|pod| pod.is_bound()) {
            let node = Key::cluster(&pod.spec.node_name);
            if nodes.get(&node).is_none() {
                wake.add(node);
            }
        }
    });
    let wake = queue.clone();
    context.nodes.listen(move |change| {
        // Also when one appears: it is no longer missing.
        if change.old.is_none() || change.new.is_none() {
            for node in change.sides() {
                wake.add(Key::cluster(node.metadata.name.clone().unwrap_or_default()));
            }
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let gc = PodGc {
            context,
            missing: Mutex::default(),
        };
        let work = |node| gc.update(node);
        tokio::join!(
            queue.run(WORKERS, cancel.clone(), work),
            gc.limit_finished(&cancel)
        );
    }
}

/// The oldest finished pods beyond `kept`.
fn surplus(pods: &[Arc<Pod>], kept: usize) -> Vec<Arc<Pod>> {
    let mut finished: Vec<_> = pods
        .iter()
        .filter(|pod| pod.is_finished() && !pod.is_deleting())
        .cloned()
        .collect();
    let surplus = finished.len().saturating_sub(kept);
    finished.sort_by_key(|pod| {
        (
            pod.metadata.creation_timestamp.clone(),
            Key::of(&pod.metadata),
        )
    });
    finished.truncate(surplus);
    finished
}

impl PodGc {
    async fn update(&self, node: Key) -> Result<Requeue, Error> {
        let pods = self.context.pods.indexed(&Index::Node(node.name.clone()));
        if self.context.nodes.get(&node).is_some() || pods.is_empty() {
            self.missing
                .lock()
                .expect("no panic while held")
                .remove(&node.name);
            return Ok(Requeue::OnChange);
        }
        let missing_for = {
            let mut missing = self.missing.lock().expect("no panic while held");
            missing
                .entry(node.name.clone())
                .or_insert_with(Instant::now)
                .elapsed()
        };
        let left = self.context.timings.lost_pods.saturating_sub(missing_for);
        if !left.is_zero() {
            return Ok(Requeue::After(left));
        }
        // The cache may be behind, and pods of an existing node must not be deleted.
        let api: Api<PartialObjectMeta<Node>> = Api::all(self.context.client.clone());
        if api.get_opt(&node.name).await?.is_some() {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        for pod in pods {
            self.remove(&pod).await?;
        }
        self.missing
            .lock()
            .expect("no panic while held")
            .remove(&node.name);
        Ok(Requeue::OnChange)
    }

    async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        if !pod.is_finished() {
            let message = "PodGC: node no longer exists";
            let why = true_condition("DisruptionTarget", "DeletionByPodGC", message);
            let fields = json!({"status": {"phase": "Failed", "conditions": [why]}});
            self.context
                .requests
                .strategic::<Pod>(&pod.metadata, Part::Status, fields)
                .await?;
        }
        Ok(self.context.delete_pod(pod, Some(0)).await?)
    }

    async fn limit_finished(&self, cancel: &CancellationToken) {
        while cancel
            .run_until_cancelled(tokio::time::sleep(FINISHED_CHECK))
            .await
            .is_some()
        {
            for pod in surplus(&self.context.pods.all(), FINISHED_KEPT) {
                let deletion = self.context.delete_pod(&pod, Some(0));
                match cancel.run_until_cancelled(deletion).await {
                    None => return,
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        tracing::debug!(pod = pod.name(), %error, "cannot delete finished pod; retrying");
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::pod;

    #[test]
    fn the_oldest_finished_pods_go_first() {
        let made = |name: &str, phase: &str, second: u32| {
            let time = format!("2026-01-01T00:00:{second:02}Z");
            Arc::new(pod(
                name,
                json!({"metadata": {"creationTimestamp": time}, "status": {"phase": phase}}),
            ))
        };
        let pods = [
            made("new", "Failed", 9),
            made("old", "Succeeded", 1),
            made("older", "Running", 0),
            made("mid", "Failed", 5),
        ];
        let names = |kept| {
            surplus(&pods, kept)
                .iter()
                .map(|pod| pod.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(3), [""; 0]);
        assert_eq!(names(1), ["old", "mid"]);
    }
}
