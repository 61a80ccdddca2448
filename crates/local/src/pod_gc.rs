//! Removes pods that nobody else will: those of nodes that no longer exist, and the oldest of too many finished ones.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, core::PartialObjectMeta};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    cache::{Key, Link},
    objects::Pod,
    queue::{Next, Queue},
    requests::{Failure, Part, holds_now},
    world::World,
};

const WORKERS: usize = 4;
/// The real controller's default: so many finished pods are kept.
const FINISHED_KEPT: usize = 12_500;
const FINISHED_CHECK: Duration = Duration::from_secs(20);

struct PodGc {
    world: Arc<World>,
    /// Since when a node with pods has been missing.
    missing: Mutex<HashMap<String, Instant>>,
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>) -> impl Future<Output = ()> {
    let queue = Queue::new();
    let (wake, nodes) = (queue.clone(), world.nodes.clone());
    world.pods.listen(move |change| {
        if let Some(pod) = change.new.filter(|pod| pod.is_bound()) {
            let node = Key::cluster(&pod.spec.node_name);
            if nodes.get(&node).is_none() {
                wake.add(node);
            }
        }
    });
    let wake = queue.clone();
    world.nodes.listen(move |change| {
        // Also when one appears, which clears it of having been missing.
        if change.old.is_none() || change.new.is_none() {
            for node in change.sides() {
                wake.add(Key::cluster(node.metadata.name.clone().unwrap_or_default()));
            }
        }
    });
    async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let gc = PodGc {
            world,
            missing: Mutex::default(),
        };
        let work = |node| gc.update(node);
        tokio::join!(
            queue.run("pod gc", WORKERS, cancel.clone(), work),
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
    async fn update(&self, node: Key) -> Result<Next, Failure> {
        let pods = self.world.pods.linked(&Link::Node(node.name.clone()));
        if self.world.nodes.get(&node).is_some() || pods.is_empty() {
            self.missing
                .lock()
                .expect("no panic while held")
                .remove(&node.name);
            return Ok(Next::Idle);
        }
        let missing_for = {
            let mut missing = self.missing.lock().expect("no panic while held");
            missing
                .entry(node.name.clone())
                .or_insert_with(Instant::now)
                .elapsed()
        };
        let left = self.world.timings.lost_pods.saturating_sub(missing_for);
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        // The cache may be behind; removing pods of a living node would be a disaster.
        let api: Api<PartialObjectMeta<Node>> = Api::all(self.world.client.clone());
        if api.get_opt(&node.name).await?.is_some() {
            return Ok(Next::After(Duration::from_secs(1)));
        }
        for pod in pods {
            self.remove(&pod).await?;
        }
        self.missing
            .lock()
            .expect("no panic while held")
            .remove(&node.name);
        Ok(Next::Idle)
    }

    async fn remove(&self, pod: &Pod) -> Result<(), Failure> {
        if !pod.is_finished() {
            let message = "PodGC: node no longer exists";
            let why = holds_now("DisruptionTarget", "DeletionByPodGC", message);
            let fields = json!({"status": {"phase": "Failed", "conditions": [why]}});
            self.world
                .requests
                .strategic::<Pod>(&pod.metadata, Part::Status, fields)
                .await?;
        }
        Ok(self.world.delete_pod(pod, Some(0)).await?)
    }

    async fn limit_finished(&self, cancel: &CancellationToken) {
        while cancel
            .run_until_cancelled(tokio::time::sleep(FINISHED_CHECK))
            .await
            .is_some()
        {
            for pod in surplus(&self.world.pods.all(), FINISHED_KEPT) {
                let deletion = self.world.delete_pod(&pod, Some(0));
                match cancel.run_until_cancelled(deletion).await {
                    None => return,
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        tracing::debug!(pod = pod.name(), %error, "a finished pod stays for now");
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
