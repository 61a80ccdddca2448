//! The plan for a volume: its phase, and what happens to it when its claim is gone.

use crate::objects::storage::{PersistentVolume, PersistentVolumeClaim};

use super::binding::BOUND_BY_CONTROLLER;

/// Annotation of a volume that a provisioner made.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumeStep {
    Nothing,
    /// Its status has another phase.
    SetPhase(&'static str),
    /// Its claim does not refer to it yet.
    WakeClaim,
    Delete,
    /// Other claims may use it; the reference to a claim that a user wrote stays, without its uid.
    Free {
        keeps_reference: bool,
    },
}

/// The plan for a volume; `claim` is the one that it refers to, if that exists.
pub(super) fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let phase = |phase: &'static str| {
        if volume.status.phase == phase {
            VolumeStep::Nothing
        } else {
            VolumeStep::SetPhase(phase)
        }
    };
    let uid = volume
        .spec
        .claim_ref
        .as_ref()
        .and_then(|it| it.uid.as_ref());
    let Some(uid) = uid.filter(|uid| !uid.is_empty()) else {
        return match (phase("Available"), &claim) {
            (VolumeStep::Nothing, Some(_)) => VolumeStep::WakeClaim,
            (step, _) => step,
        };
    };
    let claim = claim.filter(|claim| claim.metadata.uid.as_ref() == Some(uid));
    let policy = volume.spec.persistent_volume_reclaim_policy.as_str();
    let Some(claim) = claim else {
        return match (phase("Released"), policy) {
            (VolumeStep::Nothing, "Delete") if volume.metadata.deletion_timestamp.is_none() => {
                VolumeStep::Delete
            }
            (VolumeStep::Nothing, "Recycle") => VolumeStep::Free {
                keeps_reference: false,
            },
            (step, _) => step,
        };
    };
    let annotations = volume.metadata.annotations.as_ref();
    let has = |key: &str| annotations.is_some_and(|it| it.contains_key(key));
    match claim.spec.volume_name.as_str() {
        "" => VolumeStep::WakeClaim,
        name if volume.metadata.name.as_deref() == Some(name) => phase("Bound"),
        // Its claim got another volume.
        _ if has(PROVISIONED_BY) && policy == "Delete" => match phase("Released") {
            VolumeStep::Nothing => VolumeStep::Delete,
            step => step,
        },
        _ => VolumeStep::Free {
            keeps_reference: !has(BOUND_BY_CONTROLLER),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_follows_its_claim() {
        use VolumeStep::{Delete, Free, Nothing, SetPhase, WakeClaim};
        let claim = |uid: &str, volume: &str| {
            let claim = json!({"metadata": {"uid": uid}, "spec": {"volumeName": volume}});
            Some(serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap())
        };
        for (case, phase, uid, policy, claim, want) in [
            (
                "new",
                "Pending",
                None,
                "Retain",
                None,
                SetPhase("Available"),
            ),
            ("free", "Available", None, "Retain", None, Nothing),
            (
                "reserved",
                "Available",
                Some(""),
                "Retain",
                claim("1", ""),
                WakeClaim,
            ),
            (
                "half bound",
                "Available",
                Some("1"),
                "Retain",
                claim("1", ""),
                WakeClaim,
            ),
            (
                "bound",
                "Available",
                Some("1"),
                "Retain",
                claim("1", "v"),
                SetPhase("Bound"),
            ),
            (
                "its claim is gone",
                "Bound",
                Some("1"),
                "Delete",
                None,
                SetPhase("Released"),
            ),
            (
                "another claim of that name",
                "Bound",
                Some("1"),
                "Retain",
                claim("2", ""),
                SetPhase("Released"),
            ),
            ("kept", "Released", Some("1"), "Retain", None, Nothing),
            ("deleted", "Released", Some("1"), "Delete", None, Delete),
            (
                "used again",
                "Released",
                Some("1"),
                "Recycle",
                None,
                Free {
                    keeps_reference: false,
                },
            ),
            (
                "not needed",
                "Bound",
                Some("1"),
                "Retain",
                claim("1", "w"),
                Free {
                    keeps_reference: true,
                },
            ),
        ] {
            let reference = uid.map(|uid| json!({"namespace": "ns", "name": "data", "uid": uid}));
            let volume: PersistentVolume = serde_json::from_value(json!({
                "metadata": {"name": "v"}, "status": {"phase": phase},
                "spec": {"claimRef": reference, "persistentVolumeReclaimPolicy": policy},
            }))
            .unwrap();
            assert_eq!(plan(&volume, claim.as_ref()), want, "{case}");
        }
    }
}
