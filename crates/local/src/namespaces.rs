//! The namespace controller: deletes the objects of namespaces that are being deleted.

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use reconcile::{Error, Key, Part, Requeue, WorkQueue, is_not_found};
use serde_json::json;

use crate::{context::Context, discovery::Kinds};

const WORKERS: usize = 4;
/// It checks this often for objects that take time to go: pods that stop, and objects with finalizers.
const PATIENCE: Duration = Duration::from_millis(500);

struct Namespaces {
    context: Arc<Context>,
}

/// Whether this controller must delete its objects first.
fn must_be_emptied(namespace: &Namespace) -> bool {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_ref());
    let ours = finalizers
        .into_iter()
        .flatten()
        .any(|finalizer| finalizer == "kubernetes");
    ours && namespace.metadata.deletion_timestamp.is_some()
}

/// Registers the listeners; the returned future does the work.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("namespaces");
    let wake = queue.clone();
    context.namespaces.listen(move |change| {
        if let Some(namespace) = change.new {
            wake.add(Key::of(&namespace.metadata));
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = Namespaces { context };
        let work = |key| controller.update(key);
        queue.run(WORKERS, cancel, work).await;
    }
}

impl Namespaces {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        let namespace = self.context.namespaces.get(&key);
        match namespace.filter(|namespace| must_be_emptied(namespace)) {
            Some(namespace) => self.empty(&namespace, &key.name).await,
            None => Ok(Requeue::OnChange),
        }
    }

    async fn empty(&self, namespace: &Namespace, name: &str) -> Result<Requeue, Error> {
        let kinds = Kinds::discover(&self.context.client).await?;
        let mut left = Vec::new();
        for kind in kinds.in_namespaces() {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.context.client.clone(), name, &kind.resource);
            let some = ListParams::default().limit(500);
            if api.list_metadata(&some).await?.items.is_empty() {
                continue;
            }
            api.delete_collection(&DeleteParams::background(), &ListParams::default())
                .await?;
            let remaining = api.list_metadata(&some).await?.items;
            let held = remaining
                .iter()
                .filter(|o| o.metadata.finalizers.is_some())
                .count();
            if !remaining.is_empty() {
                left.push(Left {
                    kind: kind.resource.plural.clone(),
                    count: remaining.len(),
                    held,
                });
            }
        }
        if left.is_empty() {
            self.finalize(namespace, name).await?;
            return Ok(Requeue::OnChange);
        }
        self.report(namespace, &left).await?;
        Ok(Requeue::After(PATIENCE))
    }

    /// Removes our finalizer, so that the server deletes the namespace.
    async fn finalize(&self, namespace: &Namespace, name: &str) -> Result<(), Error> {
        let mut namespace = namespace.clone();
        if let Some(finalizers) = namespace
            .spec
            .as_mut()
            .and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        let api: Api<Namespace> = Api::all(self.context.client.clone());
        match api
            .replace_subresource("finalize", name, &PostParams::default(), &namespace)
            .await
        {
            Err(error) if is_not_found(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Writes the conditions that name the remaining objects.
    async fn report(&self, namespace: &Namespace, left: &[Left]) -> Result<(), Error> {
        let conditions = conditions(namespace, left, Timestamp::now());
        let status = namespace.status.clone().unwrap_or_default();
        if status.conditions.as_ref() == Some(&conditions) {
            return Ok(());
        }
        let fields = json!({"status": {"conditions": conditions}});
        let requests = &self.context.requests;
        requests
            .merge::<Namespace>(&namespace.metadata, Part::Status, fields)
            .await?;
        Ok(())
    }
}

struct Left {
    kind: String,
    count: usize,
    held: usize,
}

fn conditions(namespace: &Namespace, left: &[Left], now: Timestamp) -> Vec<NamespaceCondition> {
    let list = |count: fn(&Left) -> usize| {
        let some = left.iter().filter(|left| count(left) > 0);
        let parts: Vec<String> = some
            .map(|left| format!("{} {}", count(left), left.kind))
            .collect();
        parts.join(", ")
    };
    let (content, held) = (list(|left| left.count), list(|left| left.held));
    let old = namespace
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let condition = |type_: &str, truth: bool, reason: &str, message: String| {
        let status = if truth { "True" } else { "False" };
        let before = old
            .into_iter()
            .flatten()
            .find(|c| c.type_ == type_ && c.status == status);
        NamespaceCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: before
                .and_then(|c| c.last_transition_time.clone())
                .or(Some(Time(now))),
        }
    };
    let remaining = format!("Some resources are remaining: {content}");
    let waiting = if held.is_empty() {
        condition(
            "NamespaceFinalizersRemaining",
            false,
            "ContentHasNoFinalizers",
            String::new(),
        )
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {held}");
        condition(
            "NamespaceFinalizersRemaining",
            true,
            "SomeFinalizersRemain",
            message,
        )
    };
    vec![
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            remaining,
        ),
        waiting,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_deleted_namespace_with_our_finalizer_is_emptied() {
        let dying = "2026-01-01T00:00:00Z";
        for (case, namespace, want) in [
            (
                "alive",
                json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}}),
                false,
            ),
            (
                "dying",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {"finalizers": ["kubernetes"]}}),
                true,
            ),
            (
                "held by others",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {"finalizers": ["x.y/z"]}}),
                false,
            ),
            (
                "going",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {}}),
                false,
            ),
        ] {
            let namespace = serde_json::from_value(namespace).unwrap();
            assert_eq!(must_be_emptied(&namespace), want, "{case}");
        }
    }

    #[test]
    fn the_conditions_name_what_is_left() {
        let left = [
            Left {
                kind: "pods".into(),
                count: 2,
                held: 0,
            },
            Left {
                kind: "widgets".into(),
                count: 1,
                held: 1,
            },
        ];
        let told = conditions(&Namespace::default(), &left, Timestamp::UNIX_EPOCH);
        let messages: Vec<_> = told.iter().map(|c| c.message.clone().unwrap()).collect();
        assert_eq!(
            messages,
            [
                "Some resources are remaining: 2 pods, 1 widgets",
                "Some content in the namespace has finalizers remaining: 1 widgets",
            ]
        );
        let mut namespace = Namespace::default();
        namespace.status.get_or_insert_default().conditions = Some(told.clone());
        let later = Timestamp::from_second(60).unwrap();
        assert_eq!(
            conditions(&namespace, &left, later),
            told,
            "the same state keeps its time"
        );
    }
}
