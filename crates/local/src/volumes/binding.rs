//! The plan for a claim: which volume it gets, or why it waits.

use std::{collections::BTreeMap, sync::Arc};

use engine::model::Quantity;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::api::resource};
use kube::core::{Selector, SelectorExt};
use reconcile::Key;

use crate::{
    events::Report,
    objects::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass},
};

/// Annotation of a claim: its volume was found and both know of each other.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim or volume whose partner was chosen here, not by a user.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of a claim, by the scheduler: the node of the pod that waits for the volume.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const STORAGE: &str = "storage";

/// What the plan for a claim depends on.
pub(super) struct ObservedClaim<'a> {
    pub(super) claim: &'a PersistentVolumeClaim,
    pub(super) volumes: &'a [Arc<PersistentVolume>],
    pub(super) classes: &'a [Arc<StorageClass>],
    /// The names of the pods that use the claim and have no node yet.
    pub(super) waiting_pods: &'a [String],
}

#[derive(Debug)]
pub(super) enum ClaimStep {
    /// Makes claim and volume refer to each other and report it; does nothing if they do.
    Bind(Arc<PersistentVolume>),
    Provision(Arc<StorageClass>),
    AssignClass(String),
    Wait(Option<Report>),
    Lose(Report),
}

pub(super) fn plan(observed: &ObservedClaim<'_>) -> ClaimStep {
    let claim = observed.claim;
    if annotation(claim, BIND_COMPLETED).is_some() {
        return bound(observed);
    }
    if !claim.spec.volume_name.is_empty() {
        return requested(observed);
    }
    let class = find_class(observed, claim.class());
    let waits = class.is_some_and(|class| class.waits_for_a_pod());
    if let Some(volume) = best_match(claim, observed.volumes, waits) {
        return ClaimStep::Bind(volume.clone());
    }
    if claim.spec.storage_class_name.is_none()
        && let Some(class) = default_class(observed.classes)
    {
        return ClaimStep::AssignClass(class);
    }
    if waits && annotation(claim, SELECTED_NODE).is_none() {
        return ClaimStep::Wait(Some(waits_for_pods(observed.waiting_pods)));
    }
    match (claim.class(), class) {
        ("", _) => ClaimStep::Wait(Some(Report::normal(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        ))),
        (name, None) => ClaimStep::Wait(Some(Report::warning(
            "ProvisioningFailed",
            format!("storageclass.storage.k8s.io \"{name}\" not found"),
        ))),
        (_, Some(class)) if class.provisioner == NO_PROVISIONER => {
            ClaimStep::Wait(Some(Report::warning(
                "ProvisioningFailed",
                format!("no volume plugin matched name: {NO_PROVISIONER}"),
            )))
        }
        (_, Some(class)) => ClaimStep::Provision(class.clone()),
    }
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

/// The node that the scheduler selected for the pod of a claim.
pub(super) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, SELECTED_NODE)
}

fn find_class<'a>(observed: &ObservedClaim<'a>, name: &str) -> Option<&'a Arc<StorageClass>> {
    let mut classes = observed.classes.iter();
    classes.find(|class| class.metadata.name.as_deref() == Some(name))
}

/// The newest of the classes that are marked as the default.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<String> {
    let is_default = |class: &&Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.is_some_and(|it| it.get(DEFAULT_CLASS).is_some_and(|value| value == "true"))
    };
    let newest = classes.iter().filter(is_default).max_by_key(|class| {
        let created = class.metadata.creation_timestamp.clone();
        (created, std::cmp::Reverse(class.metadata.name.clone()))
    });
    newest.and_then(|class| class.metadata.name.clone())
}

fn waits_for_pods(pods: &[String]) -> Report {
    match pods {
        [] => Report::normal(
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        [pod] => Report::normal(
            "WaitForPodScheduled",
            format!("waiting for pod {pod} to be scheduled"),
        ),
        pods => Report::normal(
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// A claim that was bound before.
fn bound(observed: &ObservedClaim<'_>) -> ClaimStep {
    let claim = observed.claim;
    if claim.spec.volume_name.is_empty() {
        return ClaimStep::Lose(Report::warning(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ));
    }
    match find_volume(observed) {
        None => ClaimStep::Lose(Report::warning(
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        )),
        Some(volume) if is_free(volume) || has_uid(volume, claim) => {
            ClaimStep::Bind(volume.clone())
        }
        Some(_) => ClaimStep::Lose(Report::warning(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        )),
    }
}

/// A claim whose user names the volume.
fn requested(observed: &ObservedClaim<'_>) -> ClaimStep {
    let claim = observed.claim;
    let Some(volume) = find_volume(observed) else {
        return ClaimStep::Wait(None);
    };
    let name = &claim.spec.volume_name;
    if is_free(volume)
        && let Some(why) = mismatch(volume, claim)
    {
        let message = format!("Cannot bind to requested volume \"{name}\": {why}");
        return ClaimStep::Wait(Some(Report::warning("VolumeMismatch", message)));
    }
    if is_free(volume) || is_for(volume, claim) {
        return ClaimStep::Bind(volume.clone());
    }
    let message = format!("volume \"{name}\" already bound to a different claim.");
    ClaimStep::Wait(Some(Report::warning("FailedBinding", message)))
}

fn find_volume<'a>(observed: &ObservedClaim<'a>) -> Option<&'a Arc<PersistentVolume>> {
    let name = &observed.claim.spec.volume_name;
    let mut volumes = observed.volumes.iter();
    volumes.find(|volume| volume.metadata.name.as_ref() == Some(name))
}

fn is_free(volume: &PersistentVolume) -> bool {
    volume.spec.claim_ref.is_none()
}

fn has_uid(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let owner = volume.spec.claim_ref.as_ref();
    owner.is_some_and(|owner| owner.uid.is_some() && owner.uid == claim.metadata.uid)
}

/// Whether the volume is reserved for this claim; a user may have left out the uid.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(owner) = &volume.spec.claim_ref else {
        return false;
    };
    let any_uid = owner.uid.as_ref().is_none_or(String::is_empty);
    claim_key(owner) == Key::of(&claim.metadata) && (any_uid || owner.uid == claim.metadata.uid)
}

/// The claim that a volume refers to.
pub(super) fn claim_key(owner: &ObjectReference) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&owner.namespace), text(&owner.name))
}

/// A volume that is reserved for the claim, or else the smallest free one that is large enough. The scheduler chooses
/// for a claim that waits for a pod.
fn best_match<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    waits: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let usable = |volume: &&Arc<PersistentVolume>| {
        volume.metadata.deletion_timestamp.is_none()
            && is_large_enough(volume, claim)
            && same_mode(volume, claim)
    };
    let mut reserved = volumes.iter().filter(usable);
    if let Some(volume) = reserved.find(|volume| is_for(volume, claim)) {
        return Some(volume);
    }
    if waits {
        return None;
    }
    let selector = claim.spec.selector.clone().map(Selector::try_from);
    let no_labels = BTreeMap::new();
    let selected = |volume: &PersistentVolume| match &selector {
        None => true,
        Some(Err(_)) => false,
        Some(Ok(it)) => it.matches(volume.metadata.labels.as_ref().unwrap_or(&no_labels)),
    };
    let free = volumes.iter().filter(usable).filter(|volume| {
        is_free(volume)
            && volume.status.phase == "Available"
            && volume.spec.storage_class_name == claim.class()
            && has_modes(volume, claim)
            && selected(volume)
    });
    free.min_by_key(|volume| (size(&volume.spec.capacity), volume.metadata.name.clone()))
}

/// Why a volume that a claim names cannot serve it.
fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if !is_large_enough(volume, claim) {
        Some("requested PV is too small")
    } else if volume.spec.storage_class_name != claim.class() {
        Some("storageClassName does not match")
    } else if !same_mode(volume, claim) {
        Some("incompatible volumeMode")
    } else if !has_modes(volume, claim) {
        Some("incompatible accessMode")
    } else {
        None
    }
}

fn size(amounts: &BTreeMap<String, resource::Quantity>) -> Quantity {
    let text = amounts.get(STORAGE).map_or("0", |amount| &amount.0);
    // The server has validated it.
    Quantity::parse(text).unwrap_or(Quantity::from_units(0))
}

fn is_large_enough(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    size(&volume.spec.capacity) >= size(&claim.spec.resources.requests)
}

fn same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mut wanted = claim.spec.access_modes.iter();
    wanted.all(|mode| volume.spec.access_modes.contains(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::merge;
    use serde_json::{Value, json};

    fn claim(parts: Value) -> PersistentVolumeClaim {
        let mut whole = json!({
            "metadata": {"namespace": "ns", "name": "data", "uid": "1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": {"requests": {"storage": "5Gi"}}},
        });
        merge(&mut whole, parts);
        serde_json::from_value(whole).unwrap()
    }

    fn volume(name: &str, parts: Value) -> Arc<PersistentVolume> {
        let mut whole = json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}},
            "status": {"phase": "Available"},
        });
        merge(&mut whole, parts);
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn class(name: &str, provisioner: &str, mode: &str) -> Arc<StorageClass> {
        let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
        Arc::new(serde_json::from_value(class).unwrap())
    }

    /// The volume, the class or the message.
    fn step(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>]) -> String {
        let mut default = class("fast", "x.io/disk", "Immediate");
        Arc::make_mut(&mut default).metadata.annotations =
            Some([(DEFAULT_CLASS.to_owned(), "true".to_owned())].into());
        let classes = [
            default,
            class("late", "x.io/disk", "WaitForFirstConsumer"),
            class("manual", NO_PROVISIONER, "Immediate"),
        ];
        let step = plan(&ObservedClaim {
            claim,
            volumes,
            classes: &classes,
            waiting_pods: &[],
        });
        match step {
            ClaimStep::Bind(volume) => format!("bind {}", volume.metadata.name.as_ref().unwrap()),
            ClaimStep::Provision(class) => {
                format!("provision {}", class.metadata.name.as_ref().unwrap())
            }
            ClaimStep::AssignClass(class) => format!("class {class}"),
            ClaimStep::Wait(None) => "wait".into(),
            ClaimStep::Wait(Some(report)) => format!("{}: {}", report.reason, report.message),
            ClaimStep::Lose(report) => format!("lost {}", report.reason),
        }
    }

    #[test]
    fn a_claim_gets_the_smallest_volume_that_fits() {
        let volumes = [
            volume("small", json!({"spec": {"capacity": {"storage": "4Gi"}}})),
            volume("large", json!({"spec": {"capacity": {"storage": "1Ti"}}})),
            volume("fits", json!({"metadata": {"labels": {"disk": "ssd"}}})),
            volume(
                "taken",
                json!({"spec": {"claimRef": {"namespace": "ns", "name": "other", "uid": "2"}}}),
            ),
            volume(
                "shared",
                json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
            ),
            volume("raw", json!({"spec": {"volumeMode": "Block"}})),
            volume(
                "classy",
                json!({"spec": {"storageClassName": "fast", "capacity": {"storage": "6Gi"}}}),
            ),
        ];
        let with = |parts: Value| step(&claim(json!({"spec": parts})), &volumes);
        for (case, spec, want) in [
            ("smallest", json!({}), "bind fits"),
            (
                "mode",
                json!({"accessModes": ["ReadWriteMany"]}),
                "bind shared",
            ),
            ("block", json!({"volumeMode": "Block"}), "bind raw"),
            ("class", json!({"storageClassName": "fast"}), "bind classy"),
            (
                "selector",
                json!({"selector": {"matchLabels": {"disk": "ssd"}}}),
                "bind fits",
            ),
            (
                "no default for an empty class",
                json!({"accessModes": ["ReadOnlyMany"]}),
                "FailedBinding: no persistent volumes available for this claim and no storage class is set",
            ),
            (
                "an absent class",
                json!({"accessModes": ["ReadOnlyMany"], "storageClassName": null}),
                "class fast",
            ),
            (
                "provisioned",
                json!({"accessModes": ["ReadOnlyMany"], "storageClassName": "fast"}),
                "provision fast",
            ),
            (
                "the pod comes first",
                json!({"storageClassName": "late"}),
                "WaitForFirstConsumer: waiting for first consumer to be created before binding",
            ),
            (
                "by hand",
                json!({"storageClassName": "manual"}),
                "ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner",
            ),
            (
                "an unknown class",
                json!({"storageClassName": "gold"}),
                "ProvisioningFailed: storageclass.storage.k8s.io \"gold\" not found",
            ),
            (
                "a named volume",
                json!({"volumeName": "large"}),
                "bind large",
            ),
            (
                "a small one",
                json!({"volumeName": "small"}),
                "VolumeMismatch: Cannot bind to requested volume \"small\": requested PV is too small",
            ),
            (
                "a taken one",
                json!({"volumeName": "taken"}),
                "FailedBinding: volume \"taken\" already bound to a different claim.",
            ),
            ("a missing one", json!({"volumeName": "none"}), "wait"),
        ] {
            assert_eq!(with(spec), want, "{case}");
        }
    }

    #[test]
    fn a_reserved_volume_and_a_selected_node_decide() {
        let late = |annotations: Value| {
            claim(
                json!({"metadata": {"annotations": annotations}, "spec": {"storageClassName": "late"}}),
            )
        };
        let reserved = volume(
            "r",
            json!({"spec": {"claimRef": {"namespace": "ns", "name": "data"}}}),
        );
        assert_eq!(step(&late(json!({})), &[reserved]), "bind r");
        assert_eq!(
            step(&late(json!({SELECTED_NODE: "n"})), &[]),
            "provision late"
        );
        let done = |name: &str| {
            claim(
                json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}),
            )
        };
        let other = volume(
            "v",
            json!({"spec": {"claimRef": {"namespace": "ns", "name": "data", "uid": "9"}}}),
        );
        assert_eq!(step(&done("v"), &[volume("v", json!({}))]), "bind v");
        assert_eq!(step(&done("v"), &[other]), "lost ClaimMisbound");
        assert_eq!(step(&done("v"), &[]), "lost ClaimLost");
        assert_eq!(step(&done(""), &[]), "lost ClaimLost");
    }
}
