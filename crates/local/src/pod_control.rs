//! Creates and deletes the pods of one controller, and remembers it until the cache shows it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use reconcile::{Cache, Error, Expectations, Key, message_of, revision};
use serde_json::Value;

use crate::{context::Context, events::Events, objects::Pod};

/// The most pods to create or delete in one plan; the next plan does the rest.
pub(crate) const BURST: usize = 500;
/// How many requests a controller sends at a time for one object.
pub(crate) const REQUESTS: usize = 16;

/// Pods that all controllers together may have created and not seen yet. If the watch of pods is behind, because the
/// controllers or the server are busy, they wait: so they create no more pods than they can keep up with.
const MOST_UNSEEN: usize = 500;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Pods that controllers created and the cache does not show yet.
#[derive(Default)]
pub(crate) struct Creations {
    /// Their revisions, the oldest first.
    unseen: Mutex<VecDeque<u64>>,
}

impl Creations {
    /// Returns when another pod may be created.
    async fn wait(&self, cache: &Cache<Pod>) {
        while self.unseen(cache) >= MOST_UNSEEN {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn add(&self, created: &ObjectMeta) {
        self.lock().push_back(revision(created));
    }

    fn unseen(&self, cache: &Cache<Pod>) -> usize {
        let mut unseen = self.lock();
        while unseen.front().is_some_and(|&oldest| cache.has_seen(oldest)) {
            unseen.pop_front();
        }
        unseen.len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct PodControl {
    context: Arc<Context>,
    events: Events,
    expected: Expectations<Pod>,
}

impl PodControl {
    /// For the controller that writes these events.
    pub(crate) fn new(context: &Arc<Context>, events: &Events) -> Self {
        Self {
            expected: Expectations::new(context.pods.clone()),
            events: events.clone(),
            context: context.clone(),
        }
    }

    /// Whether the cache shows everything that was written for `key`.
    pub(crate) fn satisfied(&self, key: &Key) -> bool {
        self.expected.satisfied(key)
    }

    pub(crate) fn wrote(&self, key: &Key, written: Option<&ObjectMeta>) {
        self.expected.wrote(key, written);
    }

    /// Creates pods for `owner` and returns their names.
    pub(crate) async fn create<K: Resource<DynamicType = ()>>(
        &self,
        key: &Key,
        owner: &K,
        pods: Vec<Value>,
    ) -> Result<Vec<String>, Error> {
        let created = stream::iter(pods)
            .map(|pod| async move { self.create_one(key, &pod).await })
            .buffer_unordered(REQUESTS)
            .try_collect()
            .await;
        if let Err(error) = &created {
            let message = format!("Error creating: {}", message_of(error));
            self.events.warning(owner, "FailedCreate", &message).await;
        }
        Ok(created?)
    }

    /// Creates a pod and returns its name.
    pub(crate) async fn create_one(&self, key: &Key, pod: &Value) -> Result<String, kube::Error> {
        let Context {
            requests,
            creations,
            pods,
            ..
        } = &*self.context;
        creations.wait(pods).await;
        let made = requests.create::<Pod>(Some(&key.namespace), pod).await?;
        self.expected.wrote(key, Some(&made));
        creations.add(&made);
        Ok(made.name.unwrap_or_default())
    }

    pub(crate) async fn delete(&self, key: &Key, pods: &[Arc<Pod>]) -> Result<(), Error> {
        self.each(pods, |pod| async move {
            self.context.delete_pod(&pod, None).await?;
            self.expected
                .deleted(key, Key::of(&pod.metadata), pod.uid());
            Ok(())
        })
        .await
    }

    /// Works on some pods at a time.
    pub(crate) async fn each<F>(
        &self,
        pods: &[Arc<Pod>],
        work: impl Fn(Arc<Pod>) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        stream::iter(pods.to_vec())
            .map(work)
            .buffer_unordered(REQUESTS)
            .try_collect()
            .await
    }

    /// The events of the real controllers about pods that `owner` got or lost.
    pub(crate) async fn report<K>(&self, owner: &K, created: &[String], deleted: &[Arc<Pod>])
    where
        K: Resource<DynamicType = ()>,
    {
        for name in created {
            let message = format!("Created pod: {name}");
            self.events
                .normal(owner, "SuccessfulCreate", &message)
                .await;
        }
        for pod in deleted {
            let message = format!("Deleted pod: {}", pod.name());
            self.events
                .normal(owner, "SuccessfulDelete", &message)
                .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::objects::pod::testing::pod;

    fn created(revision: u64) -> Pod {
        let version = serde_json::json!({"metadata": {"resourceVersion": revision.to_string()}});
        pod("p", version)
    }

    #[tokio::test]
    async fn controllers_wait_while_the_watch_is_behind() {
        let (cache, creations) = (Cache::new(Pod::index), Arc::new(Creations::default()));
        for revision in 1..=MOST_UNSEEN as u64 {
            creations.wait(&cache).await;
            creations.add(&created(revision).metadata);
        }
        let next = tokio::spawn({
            let (cache, creations) = (cache.clone(), creations.clone());
            async move { creations.wait(&cache).await }
        });
        tokio::time::sleep(4 * LOOK_EVERY).await;
        assert!(!next.is_finished(), "nothing was seen yet");
        cache.apply(Event::Apply(created(1)));
        next.await.unwrap();
        cache.apply(Event::Apply(created(MOST_UNSEEN as u64)));
        assert_eq!(creations.unseen(&cache), 0);
    }
}
