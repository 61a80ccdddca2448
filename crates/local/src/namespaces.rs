//! Gives new namespaces what every pod in them needs, and empties those that are being deleted.

use std::{future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, NamespaceCondition, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};

use crate::{
    cache::Key,
    kinds::Kinds,
    queue::{Next, Queue},
    world::{Failure, World, already_exists, is_conflict, is_gone},
};

const WORKERS: usize = 4;
/// Things that take time to go (pods stop, others wait for a finalizer) are looked at this often.
const PATIENCE: Duration = Duration::from_millis(500);
/// A missing account or certificate bundle is put back at the latest after this time.
const REPAIR: Duration = Duration::from_secs(30);
const ROOT_CA: &str = "kube-root-ca.crt";

struct Namespaces {
    world: Arc<World>,
    root_ca: String,
}

#[derive(Debug, PartialEq)]
enum Plan {
    Furnish,
    Empty,
    Nothing,
}

fn plan(namespace: &Namespace) -> Plan {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_ref());
    let ours = finalizers
        .into_iter()
        .flatten()
        .any(|finalizer| finalizer == "kubernetes");
    match (&namespace.metadata.deletion_timestamp, ours) {
        (None, _) => Plan::Furnish,
        (Some(_), true) => Plan::Empty,
        (Some(_), false) => Plan::Nothing,
    }
}

/// Registers for changes at once; the work begins when the future runs.
pub(crate) fn start(world: Arc<World>, root_ca: String) -> impl Future<Output = ()> {
    let queue = Queue::new();
    let wake = queue.clone();
    world.namespaces.listen(move |change| {
        if let Some(namespace) = change.new {
            wake.add(Key::of(&namespace.metadata));
        }
    });
    async move {
        world.synced().await;
        let cancel = world.cancel.clone();
        let controller = Namespaces { world, root_ca };
        let work = |key| controller.update(key);
        queue.run("namespaces", WORKERS, cancel, work).await;
    }
}

impl Namespaces {
    async fn update(&self, key: Key) -> Result<Next, Failure> {
        let Some(namespace) = self.world.namespaces.get(&key) else {
            return Ok(Next::Idle);
        };
        match plan(&namespace) {
            Plan::Furnish => self.furnish(&key.name).await,
            Plan::Empty => self.empty(&namespace, &key.name).await,
            Plan::Nothing => Ok(Next::Idle),
        }
    }

    /// The account that pods run as by default, and the certificates by which they know the server.
    async fn furnish(&self, namespace: &str) -> Result<Next, Failure> {
        let named = |name: &str| ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount {
            metadata: named("default"),
            ..ServiceAccount::default()
        };
        let bundle = ConfigMap {
            metadata: named(ROOT_CA),
            data: Some([("ca.crt".to_owned(), self.root_ca.clone())].into()),
            ..ConfigMap::default()
        };
        let accounts: Api<ServiceAccount> = self.world.namespaced(namespace);
        if accounts.get_metadata_opt("default").await?.is_none() {
            ignore_existing(accounts.create(&PostParams::default(), &account).await)?;
        }
        let bundles: Api<ConfigMap> = self.world.namespaced(namespace);
        if bundles.get_metadata_opt(ROOT_CA).await?.is_none() {
            ignore_existing(bundles.create(&PostParams::default(), &bundle).await)?;
        }
        Ok(Next::After(REPAIR))
    }

    async fn empty(&self, namespace: &Namespace, name: &str) -> Result<Next, Failure> {
        let kinds = Kinds::discover(&self.world.client).await?;
        let mut left = Vec::new();
        for kind in kinds.in_namespaces() {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.world.client.clone(), name, &kind.resource);
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
            return Ok(Next::Idle);
        }
        self.report(namespace, name, &left).await?;
        Ok(Next::After(PATIENCE))
    }

    /// Gives up our finalizer, which lets the server remove the namespace.
    async fn finalize(&self, namespace: &Namespace, name: &str) -> Result<(), Failure> {
        let mut namespace = namespace.clone();
        if let Some(finalizers) = namespace
            .spec
            .as_mut()
            .and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        let api: Api<Namespace> = self.world.cluster();
        match api
            .replace_subresource("finalize", name, &PostParams::default(), &namespace)
            .await
        {
            Err(error) if is_gone(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Says what holds the namespace up, for `kubectl describe`.
    async fn report(
        &self,
        namespace: &Namespace,
        name: &str,
        left: &[Left],
    ) -> Result<(), Failure> {
        let conditions = conditions(namespace, left, Timestamp::now());
        let status = namespace.status.clone().unwrap_or_default();
        if status.conditions.as_ref() == Some(&conditions) {
            return Ok(());
        }
        let mut namespace = namespace.clone();
        namespace.status.get_or_insert_default().conditions = Some(conditions);
        let api: Api<Namespace> = self.world.cluster();
        match api
            .replace_status(name, &PostParams::default(), &namespace)
            .await
        {
            // It will be said next time.
            Err(error) if is_gone(&error) || is_conflict(&error) => Ok(()),
            result => Ok(result.map(drop)?),
        }
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

fn ignore_existing<K>(result: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match result {
        // A namespace that is being deleted takes nothing new.
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(()),
        Err(error) if already_exists(&error) || is_gone(&error) => Ok(()),
        result => result.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_namespace_is_furnished_while_it_lives_and_emptied_while_it_dies() {
        let dying = "2026-01-01T00:00:00Z";
        for (case, namespace, want) in [
            (
                "new",
                json!({"spec": {"finalizers": ["kubernetes"]}}),
                Plan::Furnish,
            ),
            (
                "dying",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {"finalizers": ["kubernetes"]}}),
                Plan::Empty,
            ),
            (
                "held by others",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {"finalizers": ["x.y/z"]}}),
                Plan::Nothing,
            ),
            (
                "going",
                json!({"metadata": {"deletionTimestamp": dying}, "spec": {}}),
                Plan::Nothing,
            ),
        ] {
            let mut whole = json!({"metadata": {}});
            crate::pod::testing::merge(&mut whole, namespace);
            assert_eq!(
                plan(&serde_json::from_value(whole).unwrap()),
                want,
                "{case}"
            );
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
