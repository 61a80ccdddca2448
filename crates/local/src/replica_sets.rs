//! The controller of ReplicaSets and ReplicationControllers: keeps the requested number of pods.

use std::{cmp::Reverse, collections::HashMap, future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use reconcile::{Cache, Error, Expectations, Key, Part, Requeue, WorkQueue};
use serde_json::{Value, json};

use crate::{
    context::Context,
    objects::{
        Pod,
        replica_set::{ReplicaSetStatus, Replicated},
    },
    ownership::{claims, controlled_by, owner_keys, pod_from},
    pod_control::{BURST, PodControl},
};

/// How many objects it reconciles at a time.
const WORKERS: usize = 8;

#[derive(Debug)]
struct ReplicaSetPlan {
    create: usize,
    delete: Vec<Arc<Pod>>,
    /// The status, if it changes.
    status: Option<ReplicaSetStatus>,
    /// The time until a pod becomes available without any event.
    recheck: Option<Duration>,
}

/// The plan for `set`, which owns `pods`.
fn plan<K: Replicated>(set: &K, pods: &[Arc<Pod>], now: Timestamp) -> ReplicaSetPlan {
    let (spec, meta) = (set.spec(), set.meta());
    let wanted = usize::try_from(spec.replicas).unwrap_or(0);
    let mut active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();

    // How long until each ready pod is available.
    let waits: Vec<Duration> = active
        .iter()
        .filter_map(|pod| pod.available_in(spec.min_ready_seconds, now))
        .collect();
    let available = |wait: &&Duration| wait.is_zero();
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let template_labels = &spec.template["metadata"]["labels"];
    let status = ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: count(
            active
                .iter()
                .filter(|pod| has_all(pod, template_labels))
                .count(),
        ),
        ready_replicas: count(waits.len()),
        available_replicas: count(waits.iter().filter(available).count()),
        observed_generation: meta.generation.unwrap_or(0),
    };
    let recheck = waits.iter().filter(|wait| !available(wait)).min();
    let recheck = recheck.copied();

    let (mut create, mut delete) = (0, Vec::new());
    if meta.deletion_timestamp.is_none() {
        if active.len() < wanted {
            create = (wanted - active.len()).min(BURST);
        } else {
            let surplus = (active.len() - wanted).min(BURST);
            sort_least_useful_first(&mut active);
            active.truncate(surplus);
            delete = active;
        }
    }
    let status = (status != *set.status()).then_some(status);
    ReplicaSetPlan {
        create,
        delete,
        status,
        recheck,
    }
}

fn has_all(pod: &Pod, labels: &Value) -> bool {
    let has = pod.metadata.labels.as_ref();
    labels
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| {
            let label = has.and_then(|labels| labels.get(key)).map(String::as_str);
            label == value.as_str()
        })
}

/// The order in which surplus pods are deleted: pods that do not run yet, then by deletion cost, pods per node, time of
/// readiness, restarts and age.
fn sort_least_useful_first(pods: &mut [Arc<Pod>]) {
    let mut on_node: HashMap<String, usize> = HashMap::new();
    for pod in pods.iter() {
        *on_node.entry(pod.spec.node_name.clone()).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let phase = match pod.status.phase.as_str() {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        (
            pod.is_bound(),
            phase,
            pod.is_ready(),
            deletion_cost(pod),
            Reverse(on_node[&pod.spec.node_name]),
            Reverse(pod.ready_since()),
            Reverse(pod.restarts()),
            Reverse(pod.metadata.creation_timestamp.clone()),
            pod.metadata.name.clone(),
        )
    });
}

/// Pods with a lower cost are deleted first; an invalid value counts as 0.
fn deletion_cost(pod: &Pod) -> i32 {
    pod.annotation("controller.kubernetes.io/pod-deletion-cost")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

struct ReplicaSets<K> {
    context: Arc<Context>,
    cache: Arc<Cache<K>>,
    pods: PodControl,
    sets: Expectations<K>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start<K: Replicated>(
    context: Arc<Context>,
    cache: &Arc<Cache<K>>,
) -> impl Future<Output = ()> + use<K> {
    let queue = WorkQueue::new(K::CONTROLLER);
    let wake = queue.clone();
    cache.listen(move |change| {
        for set in change.sides() {
            wake.add(Key::of(set.meta()));
        }
    });
    let (wake, sets) = (queue.clone(), cache.clone());
    context.pods.listen(move |change| {
        for pod in change.sides() {
            for key in owner_keys(&pod.metadata, &sets, |set| &set.spec().selector) {
                wake.add(key);
            }
        }
    });
    let cache = cache.clone();
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = ReplicaSets {
            pods: PodControl::new(&context, &context.events(K::CONTROLLER)),
            sets: Expectations::new(cache.clone()),
            cache,
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl<K: Replicated> ReplicaSets<K> {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(set) = self.cache.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        if !self.pods.satisfied(&key) || !self.sets.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let claims = claims(set.meta(), &set.spec().selector, &self.context.pods)?;
        let requests = &self.context.requests;
        let owner = controlled_by(&*set);
        if claims.settle(&owner, requests).await? {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let plan = plan(&*set, &claims.owned, Timestamp::now());
        self.pods.delete(&key, &plan.delete).await?;
        let pod = pod_from(&set.spec().template, &owner);
        let pods = vec![pod; plan.create];
        self.pods.create(&key, &*set, pods).await?;
        if let Some(status) = plan.status {
            let fields = json!({"status": status});
            let patch = requests.merge::<K>(set.meta(), Part::Status, fields);
            self.sets.wrote(&key, patch.await?.as_ref());
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{
        ReplicaSet,
        pod::testing::{merge, pod},
    };
    use jiff::SignedDuration;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn set(replicas: i32, status: Value) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "set", "uid": "set", "generation": 2},
            "spec": {
                "replicas": replicas, "minReadySeconds": 30, "selector": {},
                "template": {"metadata": {"labels": {"app": "web"}}},
            },
            "status": status,
        }))
        .unwrap()
    }

    fn ready(seconds_ago: i64) -> Value {
        let since = now() - SignedDuration::from_secs(seconds_ago);
        json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": since.to_string()}
            ]},
        })
    }

    #[test]
    fn the_number_of_live_pods_follows_the_wish() {
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let failed = json!({"status": {"phase": "Failed"}});
        for (case, wanted, pods, create, delete) in [
            ("none yet", 2, vec![], 2, 0),
            ("enough", 1, vec![json!({})], 0, 0),
            (
                "dying and finished pods do not count",
                1,
                vec![dying, failed],
                1,
                0,
            ),
            ("scaled to nothing", 0, vec![json!({}), json!({})], 0, 2),
            ("one burst at a time", 1200, vec![], 500, 0),
        ] {
            let pods: Vec<_> = pods
                .into_iter()
                .map(|parts| Arc::new(pod("p", parts)))
                .collect();
            let plan = plan(&set(wanted, json!({"replicas": 0})), &pods, now());
            assert_eq!((plan.create, plan.delete.len()), (create, delete), "{case}");
        }
    }

    #[test]
    fn the_least_useful_pod_goes_first() {
        let with = |parts: Value| {
            let mut whole = ready(100);
            merge(&mut whole, parts);
            whole
        };
        let cost = |cost: &str| {
            with(
                json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}}),
            )
        };
        for (case, stays, goes) in [
            ("unbound before bound", ready(100), json!({})),
            (
                "pending before running",
                ready(100),
                json!({"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}),
            ),
            (
                "not ready before ready",
                ready(100),
                json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}),
            ),
            ("cheap before dear", cost("10"), cost("-10")),
            ("nonsense is free", cost("10"), cost("much")),
            ("young before old", ready(100), ready(10)),
            (
                "restless before calm",
                ready(100),
                with(json!({"status": {"containerStatuses": [{"restartCount": 3}]}})),
            ),
        ] {
            let pods = [Arc::new(pod("stays", stays)), Arc::new(pod("goes", goes))];
            let plan = plan(&set(1, json!({"replicas": 2})), &pods, now());
            assert_eq!(plan.delete[0].name(), "goes", "{case}");
        }
    }

    #[test]
    fn the_status_counts_and_knows_when_to_look_again() {
        let pods = [Arc::new(pod("a", ready(40))), Arc::new(pod("b", ready(10)))];
        let first = plan(&set(2, json!({"replicas": 0})), &pods, now());
        let counts = ReplicaSetStatus {
            replicas: 2,
            fully_labeled_replicas: 2,
            ready_replicas: 2,
            available_replicas: 1,
            observed_generation: 2,
        };
        assert_eq!(first.status, Some(counts));
        assert_eq!(first.recheck, Some(Duration::from_secs(20)));
        let written = json!({
            "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
            "observedGeneration": 2,
        });
        assert_eq!(
            plan(&set(2, written), &pods, now()).status,
            None,
            "nothing to say twice"
        );
    }

    #[test]
    fn a_dying_set_is_left_to_the_garbage_collector() {
        let mut set = set(3, json!({"replicas": 1}));
        set.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        let plan = plan(&set, &[Arc::new(pod("a", ready(1)))], now());
        assert_eq!((plan.create, plan.delete.len()), (0, 0));
    }
}
