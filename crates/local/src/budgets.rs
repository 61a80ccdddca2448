//! The disruption controller: keeps the status of PodDisruptionBudgets, which the server checks at evictions.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    apimachinery::pkg::{
        apis::meta::v1::{Condition, OwnerReference, Time},
        util::intstr::IntOrString,
    },
};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
    core::{GroupVersionKind, Selector, SelectorExt},
    discovery::ApiResource,
};
use reconcile::{Cache, Error, Expectations, Key, Requeue, WorkQueue, controller_of, is_not_found};

use crate::{
    context::Context,
    events::Events,
    objects::Pod,
    scaled_value::{Rounding, scaled_value},
};

const WORKERS: usize = 4;
/// An eviction without a deletion within this time is ignored.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// How many pods should exist, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    /// The sum of their controllers' replicas.
    Scale(i32),
    Unknown(String),
}

struct BudgetPlan {
    status: Option<PodDisruptionBudgetStatus>,
    recheck: Option<Duration>,
}

/// `pods` are those that the budget selects.
fn plan(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scale: &Expected,
    now: Timestamp,
) -> BudgetPlan {
    let before = budget.status.clone().unwrap_or_default();
    let disrupted = still_disrupted(&before, pods, now);
    let recheck = disrupted
        .values()
        .map(|time| EVICTION_TIMEOUT - now.duration_since(time.0))
        .min();
    let healthy = pods
        .iter()
        .filter(|pod| pod.is_ready() && !pod.is_deleting() && !disrupted.contains_key(pod.name()))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let numbers = match needed(budget, pods, scale) {
        Ok((expected, desired)) => {
            let allowed = if expected > 0 {
                (healthy - desired).max(0)
            } else {
                0
            };
            let reason = if allowed > 0 {
                "SufficientPods"
            } else {
                "InsufficientPods"
            };
            (expected, desired, allowed, reason, String::new())
        }
        Err(why) => (0, 0, 0, "SyncFailed", why),
    };
    let (expected, desired, allowed, reason, message) = numbers;
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: budget.metadata.generation,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        conditions: Some(with_condition(budget, allowed > 0, reason, message, now)),
    };
    BudgetPlan {
        status: (status != before).then_some(status),
        recheck: recheck.map(|left| Duration::try_from(left).unwrap_or(Duration::ZERO)),
    }
}

/// The number of expected pods, and of healthy pods needed.
fn needed(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    scale: &Expected,
) -> Result<(i32, i32), String> {
    let spec = budget.spec.clone().unwrap_or_default();
    let scale = || match scale {
        Expected::Scale(count) => Ok(*count),
        Expected::Unknown(why) => Err(why.clone()),
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let expected = scale()?;
            let unavailable = scaled_value(Some(unavailable), expected, Rounding::Up);
            Ok((expected, (expected - unavailable).max(0)))
        }
        (None, Some(IntOrString::Int(least))) => {
            Ok((i32::try_from(pods.len()).unwrap_or(i32::MAX), *least))
        }
        (None, Some(percent)) => {
            let expected = scale()?;
            Ok((
                expected,
                scaled_value(Some(percent), expected, Rounding::Up),
            ))
        }
        (None, None) => Ok((i32::try_from(pods.len()).unwrap_or(i32::MAX), 1)),
    }
}

/// Evicted pods whose deletion has not been seen yet.
fn still_disrupted(
    before: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> BTreeMap<String, Time> {
    let noted = before
        .disrupted_pods
        .clone()
        .unwrap_or_default()
        .into_iter();
    noted
        .filter(|(name, time)| {
            let lives = pods
                .iter()
                .any(|pod| pod.name() == name && !pod.is_deleting());
            lives && now.duration_since(time.0) < EVICTION_TIMEOUT
        })
        .collect()
}

fn with_condition(
    budget: &PodDisruptionBudget,
    allowed: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if allowed { "True" } else { "False" };
    let mut conditions = budget
        .status
        .as_ref()
        .and_then(|s| s.conditions.clone())
        .unwrap_or_default();
    let old = conditions
        .iter()
        .position(|c| c.type_ == "DisruptionAllowed");
    let since = old.map(|at| &conditions[at]).filter(|c| c.status == status);
    let condition = Condition {
        type_: "DisruptionAllowed".into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: budget.metadata.generation,
        last_transition_time: since.map_or(Time(now), |c| c.last_transition_time.clone()),
    };
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    conditions
}

struct Budgets {
    context: Arc<Context>,
    events: Events,
    own: Expectations<PodDisruptionBudget>,
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("disruption");
    let wake = queue.clone();
    context.budgets.listen(move |change| {
        if let Some(budget) = change.new {
            wake.add(Key::of(&budget.metadata));
        }
    });
    let (wake, budgets) = (queue.clone(), context.budgets.clone());
    context.pods.listen(move |change| {
        for pod in change.sides() {
            for budget in
                budgets.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default())
            {
                if selects(&budget, pod) {
                    wake.add(Key::of(&budget.metadata));
                }
            }
        }
    });
    // A budget in percent depends on the replicas of the workload.
    let (wake, budgets) = (queue.clone(), context.budgets.clone());
    context.deployments.listen(move |change| {
        if let Some(deployment) = change.new {
            wake_namespace(&wake, &budgets, &deployment.metadata.namespace);
        }
    });
    let (wake, budgets) = (queue.clone(), context.budgets.clone());
    context.replica_sets.listen(move |change| {
        if let Some(set) = change.new {
            wake_namespace(&wake, &budgets, &set.metadata.namespace);
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = Budgets {
            own: Expectations::new(context.budgets.clone()),
            events: context.events("controllermanager"),
            context,
        };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

fn wake_namespace(
    queue: &WorkQueue<Key>,
    budgets: &Cache<PodDisruptionBudget>,
    namespace: &Option<String>,
) {
    for budget in budgets.in_namespace(namespace.as_deref().unwrap_or_default()) {
        queue.add(Key::of(&budget.metadata));
    }
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    // No selector selects no pod, an empty one every pod.
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let Some(Ok(selector)) = selector.map(Selector::try_from) else {
        return false;
    };
    selector.matches(pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

impl Budgets {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let Some(budget) = self.context.budgets.get(&key) else {
            return Ok(Requeue::OnChange);
        };
        if budget.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::OnChange);
        }
        if !self.own.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        let mut pods = self.context.pods.in_namespace(&key.namespace);
        pods.retain(|pod| selects(&budget, pod));
        let scale = self.scale(&key.namespace, &pods).await?;
        if let Expected::Unknown(why) = &scale {
            let reason = "CalculateExpectedPodCountFailed";
            let message = format!("Failed to calculate the number of expected pods: {why}");
            self.events.warning(&*budget, reason, &message).await;
        }
        let plan = plan(&budget, &pods, &scale, Timestamp::now());
        if let Some(status) = plan.status {
            // With its revision: the server records evictions in the same status.
            let budget = PodDisruptionBudget {
                status: Some(status),
                ..(*budget).clone()
            };
            let api: Api<PodDisruptionBudget> =
                Api::namespaced(self.context.client.clone(), &key.namespace);
            match api
                .replace_status(&key.name, &PostParams::default(), &budget)
                .await
            {
                Ok(written) => self.own.wrote(&key, Some(&written.metadata)),
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(plan.recheck.map_or(Requeue::OnChange, Requeue::After))
    }

    /// The sum of the replicas of the pods' controllers; pods without one do not count.
    async fn scale(&self, namespace: &str, pods: &[Arc<Pod>]) -> Result<Expected, Error> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = controller_of(&pod.metadata) else {
                continue;
            };
            let (owner, replicas) = match self.known_scale(namespace, owner) {
                Some(known) => known,
                None if scales.contains_key(&owner.uid) => continue,
                None => match self.asked_scale(namespace, owner).await? {
                    Some(replicas) => (owner.uid.clone(), replicas),
                    None => {
                        let why = format!(
                            "{} {} of pod {} has no scale",
                            owner.kind,
                            owner.name,
                            pod.name()
                        );
                        return Ok(Expected::Unknown(why));
                    }
                },
            };
            scales.insert(owner, replicas);
        }
        Ok(Expected::Scale(
            scales
                .values()
                .fold(0, |sum: i32, n| sum.saturating_add(*n)),
        ))
    }

    /// The uid and the replicas of a ReplicaSet or, if it has one, of its Deployment.
    fn known_scale(&self, namespace: &str, owner: &OwnerReference) -> Option<(String, i32)> {
        let set = self
            .context
            .replica_sets
            .get(&Key::new(namespace, &owner.name))?;
        if set.metadata.uid.as_deref() != Some(&owner.uid) {
            return None;
        }
        let deployment = controller_of(&set.metadata).and_then(|of_set| {
            let found = self
                .context
                .deployments
                .get(&Key::new(namespace, &of_set.name))?;
            (found.metadata.uid.as_deref() == Some(&of_set.uid)).then_some(found)
        });
        Some(match deployment {
            Some(deployment) => (deployment.metadata.uid.clone()?, deployment.spec.replicas),
            None => (owner.uid.clone(), set.spec.replicas),
        })
    }

    /// Gets the scale of any other kind of owner from the server.
    async fn asked_scale(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<i32>, Error> {
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), namespace, &resource);
        match api.get_scale(&owner.name).await {
            Ok(scale) => Ok(Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::pod;
    use serde_json::{Value, json};

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().unwrap()
    }

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let budget = json!({"metadata": {"namespace": "ns", "name": "b", "generation": 3}, "spec": spec, "status": status});
        serde_json::from_value(budget).unwrap()
    }

    fn pods(ready: usize, unready: usize) -> Vec<Arc<Pod>> {
        let ready_pod = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let mut pods: Vec<_> = (0..ready)
            .map(|i| Arc::new(pod(&format!("r{i}"), ready_pod.clone())))
            .collect();
        pods.extend((0..unready).map(|i| Arc::new(pod(&format!("u{i}"), json!({})))));
        pods
    }

    fn empty_status() -> Value {
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
    }

    #[test]
    fn the_numbers_follow_the_budget() {
        let four = Expected::Scale(4);
        let unknown = Expected::Unknown("Job j of pod r0 has no scale".into());
        for (case, spec, ready, unready, scale, want) in [
            (
                "a count",
                json!({"minAvailable": 2}),
                3,
                1,
                &four,
                (4, 2, 3, 1, "SufficientPods"),
            ),
            (
                "too few",
                json!({"minAvailable": 4}),
                3,
                1,
                &four,
                (4, 4, 3, 0, "InsufficientPods"),
            ),
            (
                "a percentage of the wish, rounded up",
                json!({"minAvailable": "30%"}),
                3,
                0,
                &four,
                (4, 2, 3, 1, "SufficientPods"),
            ),
            (
                "unavailable",
                json!({"maxUnavailable": 1}),
                4,
                0,
                &four,
                (4, 3, 4, 1, "SufficientPods"),
            ),
            (
                "unavailable in percent",
                json!({"maxUnavailable": "30%"}),
                4,
                0,
                &four,
                (4, 2, 4, 2, "SufficientPods"),
            ),
            (
                "no controller at all",
                json!({"maxUnavailable": 1}),
                2,
                0,
                &Expected::Scale(0),
                (0, 0, 2, 0, "InsufficientPods"),
            ),
            (
                "a controller without scale",
                json!({"maxUnavailable": 1}),
                1,
                0,
                &unknown,
                (0, 0, 1, 0, "SyncFailed"),
            ),
            (
                "a count needs no controller",
                json!({"minAvailable": 1}),
                2,
                0,
                &unknown,
                (2, 1, 2, 1, "SufficientPods"),
            ),
            (
                "nothing selected",
                json!({"minAvailable": 0}),
                0,
                0,
                &four,
                (0, 0, 0, 0, "InsufficientPods"),
            ),
        ] {
            let status = plan(
                &budget(spec, empty_status()),
                &pods(ready, unready),
                scale,
                now(),
            )
            .status
            .unwrap();
            let reason = &status.conditions.as_ref().unwrap()[0].reason;
            let numbers = [
                status.expected_pods,
                status.desired_healthy,
                status.current_healthy,
                status.disruptions_allowed,
            ];
            let [expected, desired, healthy, allowed] = numbers.map(Option::unwrap);
            assert_eq!(
                (expected, desired, healthy, allowed, reason.as_str()),
                want,
                "{case}"
            );
            assert_eq!(status.observed_generation, Some(3), "{case}");
        }
    }

    #[test]
    fn an_evicted_pod_is_not_healthy_until_the_eviction_is_forgotten() {
        let mut status = empty_status();
        status["disruptedPods"] = json!({"r0": "2026-01-01T00:09:00Z", "r1": "2026-01-01T00:07:00Z", "gone": "2026-01-01T00:09:59Z"});
        let planned = plan(
            &budget(json!({"minAvailable": 1}), status),
            &pods(2, 0),
            &Expected::Scale(2),
            now(),
        );
        let status = planned.status.unwrap();
        assert_eq!(
            status.current_healthy,
            Some(1),
            "r0 is about to go, r1 was not deleted in time"
        );
        assert_eq!(
            status
                .disrupted_pods
                .unwrap()
                .into_keys()
                .collect::<Vec<_>>(),
            ["r0"]
        );
        assert_eq!(planned.recheck, Some(Duration::from_secs(60)));
    }

    #[test]
    fn an_unchanged_status_is_not_written_again() {
        let spec = json!({"minAvailable": 1});
        let first = plan(
            &budget(spec.clone(), empty_status()),
            &pods(2, 0),
            &Expected::Scale(2),
            now(),
        )
        .status
        .unwrap();
        let written = serde_json::to_value(first).unwrap();
        let later = now() + SignedDuration::from_secs(9);
        assert!(
            plan(
                &budget(spec, written),
                &pods(2, 0),
                &Expected::Scale(2),
                later
            )
            .status
            .is_none()
        );
    }
}
