//! Claims and volumes: binds them, provisions volumes, reclaims them, and keeps those in use from being deleted.
//!
//! `binding` decides about a claim, `reclaim` about a volume, and `provision` makes volumes. One queue serves both kinds,
//! so that no two claims choose one volume at the same time. Claims do not grow: nothing resizes a volume.

mod binding;
mod provision;
mod reclaim;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{Api, Resource, api::DeleteParams};
use reconcile::{Error, Expectations, Key, Part, Requeue, WorkQueue, is_already_exists};
use serde_json::{Value, json};

use self::{
    binding::{ClaimStep, ObservedClaim},
    reclaim::VolumeStep,
};
use crate::{
    context::Context,
    events::{Events, Report},
    objects::{
        Pod,
        storage::{PersistentVolume, PersistentVolumeClaim, StorageClass},
    },
    ownership::controlled_by,
};

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Annotations of a claim: the provisioner that makes its volume.
const PROVISIONER: [&str; 2] = [
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];

struct Volumes {
    context: Arc<Context>,
    events: Events,
    provisioner: Events,
    claims: Expectations<PersistentVolumeClaim>,
    volumes: Expectations<PersistentVolume>,
    queue: Arc<WorkQueue<Key>>,
    /// Why each claim waits.
    reported: Mutex<HashMap<Key, Report>>,
}

/// Registers the listeners; the returned future does the work. A key without a namespace is that of a volume.
pub(crate) fn start(context: Arc<Context>) -> impl Future<Output = ()> {
    let queue = WorkQueue::new("volumes");
    let (wake, volumes) = (queue.clone(), context.volumes.clone());
    context.claims.listen(move |change| {
        for claim in change.sides() {
            wake.add(Key::of(&claim.metadata));
            if !claim.spec.volume_name.is_empty() {
                wake.add(Key::cluster(&claim.spec.volume_name));
            }
        }
        if change.new.is_none()
            && let Some(claim) = change.old
        {
            let all = volumes.all();
            for volume in all.iter().filter(|it| binding::is_for(it, claim)) {
                wake.add(Key::of(&volume.metadata));
            }
        }
    });
    let (wake, claims) = (queue.clone(), context.claims.clone());
    context.volumes.listen(move |change| {
        for volume in change.sides() {
            wake.add(Key::of(&volume.metadata));
            match &volume.spec.claim_ref {
                Some(owner) => wake.add(binding::claim_key(owner)),
                None => wake_pending(&wake, &claims.all(), |_| true),
            }
        }
    });
    let (wake, claims) = (queue.clone(), context.claims.clone());
    context.classes.listen(move |change| {
        for class in change.sides() {
            let name = class.metadata.name.clone().unwrap_or_default();
            wake_pending(&wake, &claims.all(), |claim| {
                claim.spec.storage_class_name.is_none() || claim.class() == name
            });
        }
    });
    let (wake, own) = (queue.clone(), WorkQueue::new("ephemeral-volumes"));
    let wake_own = own.clone();
    context.pods.listen(move |change| {
        for pod in change.sides() {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            for name in pod.claim_names() {
                wake.add(Key::new(&namespace, name));
            }
        }
        if let Some(pod) = change.new.filter(|pod| pod.own_claims().next().is_some()) {
            wake_own.add(Key::of(&pod.metadata));
        }
    });
    async move {
        context.synced().await;
        let cancel = context.cancel.clone();
        let controller = Volumes {
            events: context.events("persistentvolume-controller"),
            provisioner: context.events("simulated-provisioner"),
            claims: Expectations::new(context.claims.clone()),
            volumes: Expectations::new(context.volumes.clone()),
            queue: queue.clone(),
            reported: Mutex::default(),
            context,
        };
        let work = |key| controller.update(key);
        let create = |key| controller.create_own_claims(key);
        tokio::join!(
            queue.run(1, cancel.clone(), work),
            own.run(1, cancel, create),
        );
    }
}

fn wake_pending(
    queue: &WorkQueue<Key>,
    claims: &[Arc<PersistentVolumeClaim>],
    concerns: impl Fn(&PersistentVolumeClaim) -> bool,
) {
    for claim in claims {
        if claim.status.phase != "Bound" && concerns(claim) {
            queue.add(Key::of(&claim.metadata));
        }
    }
}

impl Volumes {
    async fn update(&self, key: Key) -> Result<Requeue, Error> {
        if !self.claims.satisfied(&key) || !self.volumes.satisfied(&key) {
            return Ok(Requeue::After(Duration::from_secs(1)));
        }
        if key.namespace.is_empty() {
            if let Some(volume) = self.context.volumes.get(&key) {
                self.update_volume(&key, &volume).await?;
            }
            return Ok(Requeue::OnChange);
        }
        let claim = self.context.claims.get(&key);
        let waits = |claim: &PersistentVolumeClaim| claim.status.phase == "Pending";
        if !claim.as_ref().is_some_and(|claim| waits(claim)) {
            let mut reported = self.reported.lock().expect("no panic while held");
            reported.remove(&key);
        }
        if let Some(claim) = claim {
            if claim.metadata.deletion_timestamp.is_some() {
                self.release_claim(&key, &claim).await?;
            } else {
                self.update_claim(&key, &claim).await?;
            }
        }
        Ok(Requeue::OnChange)
    }

    async fn update_claim(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let context = &self.context;
        let users = context.pods.in_namespace(&key.namespace).into_iter();
        let waiting = users.filter(|pod| !pod.is_bound() && uses(pod, &key.name));
        let waiting: Vec<String> = waiting.map(|pod| pod.name().to_owned()).collect();
        let step = binding::plan(&ObservedClaim {
            claim,
            volumes: &context.volumes.all(),
            classes: &context.classes.all(),
            waiting_pods: &waiting,
        });
        match step {
            ClaimStep::Bind(volume) => self.bind(key, claim, &volume).await,
            ClaimStep::Provision(class) => self.provision(key, claim, &class).await,
            ClaimStep::AssignClass(class) => {
                let fields = json!({"spec": {"storageClassName": class}});
                self.patch_claim(key, claim, Part::Object, fields).await
            }
            ClaimStep::Wait(report) => {
                if let Some(report) = report {
                    self.report_once(key, claim, report).await;
                }
                Ok(())
            }
            ClaimStep::Lose(report) => {
                if claim.status.phase != "Lost" {
                    let fields = json!({"status": {"phase": "Lost"}});
                    self.patch_claim(key, claim, Part::Status, fields).await?;
                    self.events.record(claim, &report).await;
                }
                Ok(())
            }
        }
    }

    /// Every free volume wakes all claims that wait: the reason is not written again.
    async fn report_once(&self, key: &Key, claim: &PersistentVolumeClaim, report: Report) {
        {
            let mut reported = self.reported.lock().expect("no panic while held");
            if reported.get(key) == Some(&report) {
                return;
            }
            reported.insert(key.clone(), report.clone());
        }
        self.events.record(claim, &report).await;
    }

    /// Makes the volume and the claim refer to each other, the volume first: it can refer to one claim only.
    async fn bind(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), Error> {
        let volume_name = volume.metadata.name.clone().unwrap_or_default();
        let owner = volume.spec.claim_ref.as_ref();
        if owner.is_none_or(|owner| owner.uid != claim.metadata.uid) {
            let meta = &claim.metadata;
            let mut fields = json!({"spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace,
                "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version,
            }}});
            if owner.is_none() {
                fields["metadata"]["annotations"][binding::BOUND_BY_CONTROLLER] = "yes".into();
            }
            // The next plan sees the reference and goes on with the claim.
            return self.patch_volume(key, volume, Part::Object, fields).await;
        }
        if volume.status.phase != "Bound" {
            let fields = json!({"status": {"phase": "Bound"}});
            self.patch_volume(key, volume, Part::Status, fields).await?;
        }
        let annotations = claim.metadata.annotations.as_ref();
        let completed = annotations.is_some_and(|it| it.contains_key(binding::BIND_COMPLETED));
        if claim.spec.volume_name != volume_name || !completed {
            let mut fields = json!({"spec": {"volumeName": volume_name}});
            let annotations = &mut fields["metadata"]["annotations"];
            annotations[binding::BIND_COMPLETED] = "yes".into();
            if claim.spec.volume_name.is_empty() {
                annotations[binding::BOUND_BY_CONTROLLER] = "yes".into();
            }
            self.patch_claim(key, claim, Part::Object, fields).await?;
        }
        let status = &claim.status;
        if status.phase != "Bound"
            || status.access_modes != volume.spec.access_modes
            || status.capacity != volume.spec.capacity
        {
            let fields = json!({"status": {
                "phase": "Bound",
                "accessModes": volume.spec.access_modes,
                "capacity": volume.spec.capacity,
            }});
            self.patch_claim(key, claim, Part::Status, fields).await?;
        }
        Ok(())
    }

    async fn provision(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<(), Error> {
        let mut node = None;
        if let Some(name) = binding::selected_node(claim) {
            node = self.context.nodes.get(&Key::cluster(name));
            if node.is_none() {
                // The scheduler selects another node.
                let message = format!("Failed to get target node: node \"{name}\" not found");
                self.events
                    .warning(claim, "ProvisioningFailed", &message)
                    .await;
                let annotations = json!({binding::SELECTED_NODE: null});
                let fields = json!({"metadata": {"annotations": annotations}});
                return self.patch_claim(key, claim, Part::Object, fields).await;
            }
        }
        let annotations = claim.metadata.annotations.as_ref();
        if !annotations.is_some_and(|it| it.contains_key(PROVISIONER[0])) {
            let mut fields = Value::default();
            for key in PROVISIONER {
                fields["metadata"]["annotations"][key] = class.provisioner.clone().into();
            }
            self.patch_claim(key, claim, Part::Object, fields).await?;
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system \
                 administrator. If volume creation is delayed, please verify that the provisioner is running and \
                 correctly registered.",
                class.provisioner
            );
            self.events
                .normal(claim, "ExternalProvisioning", &message)
                .await;
        }
        let volume = provision::volume(claim, class, node.as_deref());
        let requests = &self.context.requests;
        match requests.create::<PersistentVolume>(None, &volume).await {
            Ok(made) => {
                self.volumes.wrote(key, Some(&made));
                let name = provision::name(claim);
                let message = format!("Successfully provisioned volume {name}");
                self.provisioner
                    .normal(claim, "ProvisioningSucceeded", &message)
                    .await;
                Ok(())
            }
            Err(error) if is_already_exists(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn update_volume(&self, key: &Key, volume: &PersistentVolume) -> Result<(), Error> {
        let deleting = volume.metadata.deletion_timestamp.is_some();
        if deleting && volume.status.phase != "Bound" {
            let fields = without_finalizer(VOLUME_PROTECTION);
            if has_finalizer(volume, VOLUME_PROTECTION) {
                self.patch_volume_finalizer(key, volume, fields).await?;
            }
            return Ok(());
        }
        let owner = volume.spec.claim_ref.as_ref().map(binding::claim_key);
        let mut claim = owner.as_ref().and_then(|key| self.context.claims.get(key));
        let mut step = reclaim::plan(volume, claim.as_deref());
        if step == VolumeStep::SetPhase("Released")
            && let Some(owner) = &owner
        {
            // The cache may be behind.
            let claims: Api<PersistentVolumeClaim> =
                Api::namespaced(self.context.client.clone(), &owner.namespace);
            claim = claims.get_opt(&owner.name).await?.map(Arc::new);
            step = reclaim::plan(volume, claim.as_deref());
        }
        match step {
            VolumeStep::Nothing => Ok(()),
            VolumeStep::SetPhase(phase) => {
                let fields = json!({"status": {"phase": phase}});
                self.patch_volume(key, volume, Part::Status, fields).await
            }
            VolumeStep::WakeClaim => {
                self.queue.add(owner.unwrap_or_else(|| key.clone()));
                Ok(())
            }
            VolumeStep::Delete => {
                let options = DeleteParams::background();
                let requests = &self.context.requests;
                requests
                    .delete::<PersistentVolume>(&volume.metadata, options)
                    .await?;
                Ok(())
            }
            VolumeStep::Free { keeps_reference } => {
                let fields = if keeps_reference {
                    json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}})
                } else {
                    json!({
                        "metadata": {"annotations": {binding::BOUND_BY_CONTROLLER: null}},
                        "spec": {"claimRef": null},
                    })
                };
                self.patch_volume(key, volume, Part::Object, fields).await
            }
        }
    }

    /// Lets a deleted claim go when no pod on a node uses it.
    async fn release_claim(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let pods = self.context.pods.in_namespace(&key.namespace);
        let in_use = pods
            .iter()
            .any(|pod| pod.is_bound() && uses(pod, &key.name));
        if in_use || !has_finalizer(claim, CLAIM_PROTECTION) {
            return Ok(());
        }
        let fields = without_finalizer(CLAIM_PROTECTION);
        let requests = &self.context.requests;
        requests
            .strategic::<PersistentVolumeClaim>(&claim.metadata, Part::Object, fields)
            .await?;
        Ok(())
    }

    /// Creates the claims that exist only for one pod.
    async fn create_own_claims(&self, key: Key) -> Result<Requeue, Error> {
        let Some(pod) = self.context.pods.get(&key).filter(|pod| pod.is_active()) else {
            return Ok(Requeue::OnChange);
        };
        for (name, template) in pod.own_claims() {
            let claim = Key::new(&key.namespace, &name);
            if self.context.claims.get(&claim).is_some() {
                continue;
            }
            let mut meta = template["metadata"].clone();
            meta["name"] = name.into();
            meta["ownerReferences"] = json!([controlled_by(&*pod)]);
            let claim = json!({"metadata": meta, "spec": template["spec"]});
            let requests = &self.context.requests;
            match requests
                .create::<PersistentVolumeClaim>(Some(&key.namespace), &claim)
                .await
            {
                Err(error) if !is_already_exists(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Requeue::OnChange)
    }

    async fn patch_claim(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        part: Part,
        fields: Value,
    ) -> Result<(), Error> {
        let requests = &self.context.requests;
        let patch = requests.merge::<PersistentVolumeClaim>(&claim.metadata, part, fields);
        self.claims.wrote(key, patch.await?.as_ref());
        Ok(())
    }

    /// Fails if the spec of the volume has changed since it was read: the scheduler reserves volumes too.
    async fn patch_volume(
        &self,
        key: &Key,
        volume: &PersistentVolume,
        part: Part,
        fields: Value,
    ) -> Result<(), Error> {
        let (requests, meta) = (&self.context.requests, &volume.metadata);
        let written = match part {
            Part::Object => {
                let patch = requests.merge_unchanged::<PersistentVolume>(meta, part, fields);
                patch.await?
            }
            Part::Status => {
                let patch = requests.merge::<PersistentVolume>(meta, part, fields);
                patch.await?
            }
        };
        self.volumes.wrote(key, written.as_ref());
        Ok(())
    }

    async fn patch_volume_finalizer(
        &self,
        key: &Key,
        volume: &PersistentVolume,
        fields: Value,
    ) -> Result<(), Error> {
        let requests = &self.context.requests;
        let patch = requests.strategic::<PersistentVolume>(&volume.metadata, Part::Object, fields);
        self.volumes.wrote(key, patch.await?.as_ref());
        Ok(())
    }
}

fn uses(pod: &Pod, claim: &str) -> bool {
    pod.claim_names().any(|name| name == claim)
}

fn has_finalizer<K: Resource>(object: &K, finalizer: &str) -> bool {
    let mut all = object.meta().finalizers.iter().flatten();
    all.any(|it| it == finalizer)
}

fn without_finalizer(finalizer: &str) -> Value {
    json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}})
}
