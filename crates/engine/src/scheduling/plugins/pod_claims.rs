//! The PersistentVolumeClaims of a pod's volumes, including generic ephemeral volumes.

use crate::model::{Name, Pod, Volume, VolumeSource};
use crate::scheduling::framework::Claim;

/// The claim of a volume: named in the volume, or created for it with the names of the pod and the volume.
pub(super) fn claim_of(pod: &Pod, volume: &Volume) -> Option<Name> {
    match &volume.source {
        VolumeSource::Claim(name) => Some(name.clone()),
        VolumeSource::Ephemeral => Some(format!("{}-{}", pod.name, volume.name).into()),
        VolumeSource::Csi { .. } | VolumeSource::InTree { .. } | VolumeSource::Other => None,
    }
}

/// The error if a claim has the name of an ephemeral volume's claim, but does not belong to the pod.
pub(super) fn not_made_for(pod: &Pod, volume: &Volume, claim: &Claim) -> Option<String> {
    let is_ours = claim
        .owner
        .as_ref()
        .is_some_and(|owner| owner.uid == pod.uid);
    (volume.source == VolumeSource::Ephemeral && !is_ours).then(|| {
        format!(
            "PVC {}/{} was not created for pod {}/{} (pod is not owner)",
            claim.namespace,
            claim.name,
            pod.namespace(),
            pod.name
        )
    })
}

pub(super) fn uses(pod: &Pod, claim: &Claim) -> bool {
    let mut names = pod
        .volumes
        .iter()
        .filter_map(|volume| claim_of(pod, volume));
    claim.namespace == *pod.namespace() && names.any(|name| name == claim.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{claim, pod};

    #[test]
    fn a_pod_uses_the_claims_of_its_volumes() {
        let pod = |namespace| pod("p").namespace(namespace).claim("a").claim("b").build();
        for (case, namespace, name, want) in [
            ("the first", "default", "a", true),
            ("the last", "default", "b", true),
            ("another", "default", "c", false),
            ("one of another namespace", "elsewhere", "a", false),
        ] {
            let claim = claim(name).build();
            assert_eq!(uses(&pod(namespace), &claim), want, "{case}");
        }
    }
}
