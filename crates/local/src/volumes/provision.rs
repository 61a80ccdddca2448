//! The simulated provisioner: makes a volume for any class at once. No storage is behind it.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::reclaim::PROVISIONED_BY;
use crate::objects::storage::{PersistentVolumeClaim, StorageClass};

const ZONE: &str = "topology.kubernetes.io/zone";

/// The name of the volume that is made for a claim.
pub(super) fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// A volume for the claim, which can be used in the zone of `node`, or where the class allows it.
pub(super) fn volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Option<&Node>,
) -> Value {
    let (name, meta) = (name(claim), &claim.metadata);
    let mut volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: class.provisioner}},
        "spec": {
            "accessModes": claim.spec.access_modes,
            "capacity": claim.spec.resources.requests,
            "volumeMode": claim.spec.volume_mode,
            "storageClassName": class.metadata.name,
            "persistentVolumeReclaimPolicy": class.reclaim_policy,
            "mountOptions": class.mount_options,
            "csi": {"driver": class.provisioner, "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace, "name": meta.name, "uid": meta.uid,
            },
        },
    });
    let terms = terms(class, node);
    if !terms.is_empty() {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    volume
}

/// Where the volume can be used; empty for everywhere.
fn terms(class: &StorageClass, node: Option<&Node>) -> Vec<Value> {
    let within =
        |key: &str, values: &[String]| json!({"key": key, "operator": "In", "values": values});
    let labels = node.and_then(|node| node.metadata.labels.as_ref());
    if let Some(zone) = labels.and_then(|labels| labels.get(ZONE)) {
        let zone = within(ZONE, std::slice::from_ref(zone));
        return vec![json!({"matchExpressions": [zone]})];
    }
    let allowed = class.allowed_topologies.iter();
    let terms = allowed.filter_map(|term| term.match_label_expressions.as_ref());
    terms
        .map(|all| {
            let all = all.iter().map(|one| within(&one.key, &one.values));
            json!({"matchExpressions": all.collect::<Vec<_>>()})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_made_for_its_claim_and_place() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "data", "uid": "1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .unwrap();
        let class: StorageClass = serde_json::from_value(json!({
            "metadata": {"name": "fast"}, "provisioner": "x.io/disk", "reclaimPolicy": "Delete",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}],
        }))
        .unwrap();
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {ZONE: "b"}}}))
                .unwrap();
        let zones = |volume: &Value| {
            let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
            terms[0]["matchExpressions"][0]["values"].clone()
        };
        let anywhere = volume(&claim, &class, None);
        assert_eq!(anywhere["metadata"]["name"], "pvc-1");
        assert_eq!(anywhere["spec"]["capacity"]["storage"], "1Gi");
        assert_eq!(anywhere["spec"]["claimRef"]["uid"], "1");
        assert_eq!(zones(&anywhere), json!(["a", "b"]));
        assert_eq!(zones(&volume(&claim, &class, Some(&node))), json!(["b"]));
    }
}
