//! Garbage collection: deletes objects without owners, and carries out foreground and orphaning deletions.
//!
//! It watches the metadata of every kind, custom ones included, queries the server for owners it does not know, and
//! applies what `graph` plans.

mod graph;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
    core::PartialObjectMeta,
    discovery::ApiResource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use reconcile::{Error, Key, Requeue, WorkQueue, is_not_found};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::graph::{Action, Graph, Item, Policy};
use crate::discovery::Kinds;

const WORKERS: usize = 16;
/// It discovers new kinds this often, and when a CustomResourceDefinition changes.
const REDISCOVERY: Duration = Duration::from_secs(60);
/// The most absent owners that it remembers; then it queries the server again.
const REMEMBERED: usize = 10_000;

pub(crate) struct Garbage {
    client: Client,
    queue: Arc<WorkQueue<String>>,
    graph: Mutex<Graph>,
    kinds: Mutex<Kinds>,
    /// Owners that do not exist, according to the server.
    absent: Mutex<HashSet<String>>,
    definitions_changed: tokio::sync::Notify,
}

/// Runs until cancelled.
pub(crate) async fn run(client: Client, cancel: CancellationToken) {
    let garbage = Arc::new(Garbage {
        client,
        queue: WorkQueue::new("garbage-collector"),
        graph: Mutex::default(),
        kinds: Mutex::default(),
        absent: Mutex::default(),
        definitions_changed: tokio::sync::Notify::new(),
    });
    let tasks = TaskTracker::new();
    let (listing, mut all_listed) = mpsc::channel(1);
    let follow = garbage
        .clone()
        .follow_kinds(tasks.clone(), listing, cancel.clone());
    let collect = async {
        // Before every kind is listed, a missing object means nothing.
        cancel.run_until_cancelled(all_listed.recv()).await;
        let work = |uid| garbage.look(uid);
        garbage
            .queue
            .clone()
            .run(WORKERS, cancel.clone(), work)
            .await;
    };
    tokio::join!(follow, collect);
    tasks.close();
    tasks.wait().await;
}

impl Garbage {
    /// Watches every kind, and new kinds when they appear. Holds `listing` until the first kinds are listed.
    async fn follow_kinds(
        self: Arc<Self>,
        tasks: TaskTracker,
        listing: mpsc::Sender<()>,
        cancel: CancellationToken,
    ) {
        let mut listing = Some(listing);
        let mut watched: BTreeMap<(String, String), CancellationToken> = BTreeMap::new();
        loop {
            let mut pause = REDISCOVERY;
            match cancel
                .run_until_cancelled(Kinds::discover(&self.client))
                .await
            {
                None => return,
                Some(Err(error)) => {
                    tracing::debug!(%error, "cannot discover kinds; retrying");
                    pause = Duration::from_secs(1);
                }
                Some(Ok(kinds)) => {
                    let now: BTreeMap<_, _> = kinds
                        .collectable()
                        .map(|kind| kind.resource.clone())
                        .map(|kind| ((kind.api_version.clone(), kind.plural.clone()), kind))
                        .collect();
                    watched.retain(|id, stop| {
                        let stays = now.contains_key(id);
                        if !stays {
                            stop.cancel();
                        }
                        stays
                    });
                    for (id, resource) in now {
                        watched.entry(id).or_insert_with(|| {
                            let stop = cancel.child_token();
                            tasks.spawn(self.clone().watch(
                                resource,
                                listing.clone(),
                                stop.clone(),
                            ));
                            stop
                        });
                    }
                    *self.kinds.lock().expect("no panic while held") = kinds;
                    drop(listing.take());
                }
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                // The server serves a new kind a moment after its definition appears.
                () = self.definitions_changed.notified() => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn watch(
        self: Arc<Self>,
        resource: ApiResource,
        mut listing: Option<mpsc::Sender<()>>,
        stop: CancellationToken,
    ) {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &resource);
        let kind = Arc::new(resource);
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        let mut listed: Option<Vec<Item>> = None;
        let item =
            |object: PartialObjectMeta<DynamicObject>| Item::new(kind.clone(), object.metadata);
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            match event {
                Err(error) => {
                    tracing::debug!(kind = %kind.kind, %error, "watch broke; resuming")
                }
                Ok(Event::Init) => listed = Some(Vec::new()),
                Ok(Event::InitApply(object)) => {
                    if let Some(list) = &mut listed {
                        list.push(item(object));
                    }
                }
                Ok(Event::InitDone) => {
                    self.replace(&kind, listed.take().unwrap_or_default());
                    drop(listing.take());
                }
                Ok(Event::Apply(object)) => {
                    self.note_definitions(&kind);
                    let touched = self.graph().put(item(object));
                    self.enqueue(touched);
                }
                Ok(Event::Delete(object)) => {
                    self.note_definitions(&kind);
                    let touched = self
                        .graph()
                        .remove(object.meta().uid.as_deref().unwrap_or_default());
                    self.enqueue(touched);
                }
            }
        }
        // The kind itself is gone, and its objects with it.
        self.replace(&kind, Vec::new());
    }

    fn replace(&self, kind: &ApiResource, items: Vec<Item>) {
        let mut touched = Vec::new();
        {
            let mut graph = self.graph();
            let present: HashSet<String> = items.iter().map(|item| item.uid.clone()).collect();
            for uid in graph.of_kind(kind) {
                if !present.contains(&uid) {
                    touched.extend(graph.remove(&uid));
                }
            }
            for item in items {
                touched.extend(graph.put(item));
            }
        }
        self.enqueue(touched);
    }

    fn note_definitions(&self, kind: &ApiResource) {
        if kind.kind == "CustomResourceDefinition" {
            self.definitions_changed.notify_one();
        }
    }

    fn enqueue(&self, uids: Vec<String>) {
        for uid in uids {
            self.queue.add(uid);
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().expect("no panic while held")
    }

    async fn look(&self, uid: String) -> Result<Requeue, Error> {
        let unknown = self.graph().unknown_owners(&uid);
        let namespace = self
            .graph()
            .get(&uid)
            .map(|item| item.key.namespace.clone());
        for owner in unknown {
            if !self
                .is_absent(&owner, namespace.as_deref().unwrap_or_default())
                .await?
            {
                // It exists, or its kind is unknown: the watch of its kind may be behind.
                return Ok(Requeue::After(Duration::from_secs(30)));
            }
        }
        let actions = self.graph().plan(&uid);
        for action in actions {
            self.act(action).await?;
        }
        Ok(Requeue::OnChange)
    }

    /// Queries the server whether an owner exists.
    async fn is_absent(&self, owner: &OwnerReference, namespace: &str) -> Result<bool, Error> {
        if self
            .absent
            .lock()
            .expect("no panic while held")
            .contains(&owner.uid)
        {
            return Ok(true);
        }
        let kind = self
            .kinds
            .lock()
            .expect("no panic while held")
            .find(&owner.api_version, &owner.kind)
            .cloned();
        let Some(kind) = kind else {
            return Ok(false);
        };
        let api: Api<PartialObjectMeta<DynamicObject>> = match (kind.namespaced, namespace) {
            (false, _) => Api::all_with(self.client.clone(), &kind.resource),
            // A cluster-scoped object cannot be owned by a namespaced one: leave it alone.
            (true, "") => return Ok(false),
            (true, namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
            }
        };
        let found = api.get_opt(&owner.name).await?;
        let absent = found.is_none_or(|found| found.metadata.uid.as_deref() != Some(&owner.uid));
        if absent {
            let mut remembered = self.absent.lock().expect("no panic while held");
            if remembered.len() >= REMEMBERED {
                remembered.clear();
            }
            remembered.insert(owner.uid.clone());
        }
        Ok(absent)
    }

    async fn act(&self, action: Action) -> Result<(), Error> {
        let result = match action {
            Action::Look { uid } => {
                self.queue.add(uid);
                return Ok(());
            }
            Action::Delete { uid, policy } => {
                let Some((item, api)) = self.target(&uid) else {
                    return Ok(());
                };
                let options = DeleteParams {
                    propagation_policy: Some(match policy {
                        Policy::Background => PropagationPolicy::Background,
                        Policy::Foreground => PropagationPolicy::Foreground,
                        Policy::Orphan => PropagationPolicy::Orphan,
                    }),
                    // With the revision, so that an object that got a new owner meanwhile is spared.
                    preconditions: Some(Preconditions {
                        uid: Some(uid),
                        resource_version: item.resource_version,
                    }),
                    ..DeleteParams::default()
                };
                api.delete(&item.key.name, &options).await.map(drop)
            }
            Action::KeepOwners { uid, owners } => {
                let fields = json!({"ownerReferences": owners});
                self.patch_metadata(&uid, fields).await
            }
            Action::RemoveFinalizer { uid, finalizer } => {
                let Some((mut item, _)) = self.target(&uid) else {
                    return Ok(());
                };
                item.finalizers.retain(|f| f != finalizer);
                self.patch_metadata(&uid, json!({"finalizers": item.finalizers}))
                    .await
            }
        };
        match result {
            Err(error) if is_not_found(&error) => Ok(()),
            result => Ok(result?),
        }
    }

    async fn patch_metadata(
        &self,
        uid: &str,
        mut fields: serde_json::Value,
    ) -> Result<(), kube::Error> {
        let Some((item, api)) = self.target(uid) else {
            return Ok(());
        };
        fields["uid"] = uid.into();
        fields["resourceVersion"] = item.resource_version.into();
        let patch = Patch::Merge(json!({"metadata": fields}));
        api.patch_metadata(&item.key.name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }

    fn target(&self, uid: &str) -> Option<(Item, Api<DynamicObject>)> {
        let item = self.graph().get(uid)?.clone();
        let Key { namespace, .. } = &item.key;
        let client = self.client.clone();
        let api = if namespace.is_empty() {
            Api::all_with(client, item.kind.as_ref())
        } else {
            Api::namespaced_with(client, namespace, item.kind.as_ref())
        };
        Some((item, api))
    }
}
