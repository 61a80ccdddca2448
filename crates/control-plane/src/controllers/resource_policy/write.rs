//! Writes deletion costs, status and the event about costs of other writers.

use std::sync::Arc;
use std::time::Duration;

use api::wire::policy::ResourcePolicyStatus;
use engine::model::{DELETION_COST, POLICY_UNIT};
use engine::policies::resource_policy::{CostChange, DELETION_COST_CONFLICT, PolicyPod};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{EventType, Part, message_of};
use serde_json::{Value, json};

use super::observe::{Policy, State};
use super::pace::Limiter;
use crate::controllers::Context;

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
const GROUP_VERSION: &str = "scheduling.sigs.x-k8s.io/v1alpha1";

/// Why a write failed; a later turn retries it.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("cannot patch {object}: {}", message_of(.source))]
    Request { object: String, source: kube::Error },
    #[error("cannot patch {0}: no response within {TIMEOUT:?}")]
    Timeout(String),
}

pub(super) struct PolicyWriter {
    pub(super) context: Arc<Context>,
    pub(super) state: Arc<State>,
    pub(super) limiter: Limiter,
}

impl PolicyWriter {
    /// Changes the two annotations of a pod, unless they are not as they were seen.
    pub(super) async fn cost(
        &self,
        namespace: &str,
        pod: &PolicyPod,
        change: &CostChange,
    ) -> Result<(), WriteError> {
        let target = target(namespace, &pod.name, &pod.uid);
        let request = self
            .context
            .requests
            .json::<Pod>(&target, operations(pod, change));
        let object = format!("pod {namespace}/{}", pod.name);
        if let Some(written) = self.send(object, request).await? {
            let version = version(&written);
            self.state.wrote_cost(namespace, pod, change, version);
        }
        Ok(())
    }

    /// Writes the status of a policy. A cost of another writer is an event too, once.
    pub(super) async fn status(
        &self,
        policy: &Policy,
        status: ResourcePolicyStatus,
    ) -> Result<(), WriteError> {
        let (namespace, name) = (&policy.model.namespace, &policy.model.name);
        let collection = format!("/apis/{GROUP_VERSION}/namespaces/{namespace}/resourcepolicies");
        let target = target(namespace, name, &policy.uid);
        let fields = json!({"status": status});
        let requests = &self.context.requests;
        let request = requests.merge_at(collection, &target, Part::Status, fields);
        let object = format!("the status of resourcepolicy {namespace}/{name}");
        let Some(written) = self.send(object, request).await? else {
            return Ok(());
        };
        if let Some(conflict) = begins(DELETION_COST_CONFLICT, &policy.status, &status) {
            let about = ObjectReference {
                api_version: Some(GROUP_VERSION.to_owned()),
                kind: Some("ResourcePolicy".to_owned()),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
                uid: target.uid.clone(),
                ..ObjectReference::default()
            };
            let (events, message) = (&self.context.events, &conflict.message);
            let event = events.record(about, EventType::Warning, DELETION_COST_CONFLICT, message);
            if tokio::time::timeout(TIMEOUT, event).await.is_err() {
                tracing::warn!(%namespace, %name, "cannot write event: no response within {TIMEOUT:?}");
            }
        }
        self.state.wrote_status(policy, status, version(&written));
        Ok(())
    }

    async fn send(
        &self,
        object: String,
        request: impl Future<Output = Result<Option<ObjectMeta>, kube::Error>>,
    ) -> Result<Option<ObjectMeta>, WriteError> {
        self.limiter.turn().await;
        match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(source)) => Err(WriteError::Request { object, source }),
            Err(_) => Err(WriteError::Timeout(object)),
        }
    }
}

/// The condition, if it is true now and was not before.
fn begins<'a>(
    kind: &str,
    before: &ResourcePolicyStatus,
    now: &'a ResourcePolicyStatus,
) -> Option<&'a api::wire::policy::Condition> {
    let was_true = before.condition(kind).is_some_and(|it| it.status == "True");
    let now = now.condition(kind)?;
    (now.status == "True" && !was_true).then_some(now)
}

fn target(namespace: &str, name: &str, uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    }
}

fn version(meta: &ObjectMeta) -> u64 {
    let version = meta.resource_version.as_deref();
    version.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A JSON patch. It fails as a whole if an annotation is not as it was seen.
fn operations(pod: &PolicyPod, change: &CostChange) -> Vec<Value> {
    const ANNOTATIONS: &str = "/metadata/annotations";
    let path = |key: &str| format!("{ANNOTATIONS}/{}", key.replace('/', "~1"));
    if let (false, CostChange::Set(mark)) = (pod.annotated, change) {
        let both = json!({DELETION_COST: mark.cost.to_string(), POLICY_UNIT: mark.to_string()});
        return vec![
            json!({"op": "test", "path": ANNOTATIONS, "value": null}),
            json!({"op": "add", "path": ANNOTATIONS, "value": both}),
        ];
    }
    let test = |key, seen: &Option<_>| json!({"op": "test", "path": path(key), "value": seen});
    let add = |key, value: String| json!({"op": "add", "path": path(key), "value": value});
    let remove = |key| json!({"op": "remove", "path": path(key)});
    let mut operations = vec![test(DELETION_COST, &pod.cost), test(POLICY_UNIT, &pod.mark)];
    operations.extend(match change {
        CostChange::Set(mark) => vec![
            add(DELETION_COST, mark.cost.to_string()),
            add(POLICY_UNIT, mark.to_string()),
        ],
        CostChange::Remove => vec![remove(DELETION_COST), remove(POLICY_UNIT)],
        CostChange::RemoveMark => vec![remove(POLICY_UNIT)],
    });
    operations
}

#[cfg(test)]
mod tests {
    use engine::model::{Timestamp, UnitMark};

    use super::*;

    #[test]
    fn every_patch_tests_both_annotations_as_they_were_seen() {
        let pod = |annotated, cost: Option<&str>, mark: Option<&str>| PolicyPod {
            name: "p".into(),
            uid: "1".into(),
            labels: Default::default(),
            node: None,
            created: Timestamp::from_secs(0),
            terminating: false,
            annotated,
            cost: cost.map(Into::into),
            mark: mark.map(Into::into),
        };
        let set = || CostChange::Set(UnitMark::parse("web/spot=2").unwrap());
        let (cost, mark) = (
            "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost",
            "/metadata/annotations/tidepool.io~1policy-unit",
        );
        for (case, pod, change, want) in [
            (
                "no annotations",
                pod(false, None, None),
                set(),
                json!([
                    {"op": "test", "path": "/metadata/annotations", "value": null},
                    {"op": "add", "path": "/metadata/annotations",
                        "value": {DELETION_COST: "2", POLICY_UNIT: "web/spot=2"}},
                ]),
            ),
            (
                "others",
                pod(true, None, None),
                set(),
                json!([
                    {"op": "test", "path": cost, "value": null},
                    {"op": "test", "path": mark, "value": null},
                    {"op": "add", "path": cost, "value": "2"},
                    {"op": "add", "path": mark, "value": "web/spot=2"},
                ]),
            ),
            (
                "ours, which go",
                pod(true, Some("6"), Some("web/reserved=6")),
                CostChange::Remove,
                json!([
                    {"op": "test", "path": cost, "value": "6"},
                    {"op": "test", "path": mark, "value": "web/reserved=6"},
                    {"op": "remove", "path": cost},
                    {"op": "remove", "path": mark},
                ]),
            ),
            (
                "the cost of another writer stays",
                pod(true, Some("7"), Some("web/reserved=6")),
                CostChange::RemoveMark,
                json!([
                    {"op": "test", "path": cost, "value": "7"},
                    {"op": "test", "path": mark, "value": "web/reserved=6"},
                    {"op": "remove", "path": mark},
                ]),
            ),
        ] {
            assert_eq!(json!(operations(&pod, &change)), want, "{case}");
        }
    }
}
