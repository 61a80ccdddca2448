//! The pods of a StatefulSet and their claims: stable names, and the labels that identify them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde_json::{Value, json};

use crate::{
    objects::{Pod, StatefulSet},
    ownership::{controlled_by, pod_from},
    revisions::HASH,
};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

pub(super) fn ordinal_of(set: &StatefulSet, pod: &Pod) -> Option<i64> {
    let (prefix, ordinal) = pod.name().rsplit_once('-')?;
    let ordinal: i64 = ordinal.parse().ok()?;
    (prefix == set.name() && ordinal >= 0).then_some(ordinal)
}

pub(super) fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|it| it.get(HASH))
        .map_or("", String::as_str)
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i64) -> String {
    format!("{}-{ordinal}", set.name())
}

/// The pod with this ordinal, of the template and revision.
pub(super) fn pod(set: &StatefulSet, ordinal: i64, template: &Value, revision: &str) -> Value {
    let mut pod = pod_from(template, &controlled_by(set));
    let name = pod_name(set, ordinal);
    pod["metadata"]["name"] = name.clone().into();
    for (label, value) in [
        (POD_NAME, name.clone()),
        (POD_INDEX, ordinal.to_string()),
        (HASH, revision.to_owned()),
    ] {
        pod["metadata"]["labels"][label] = value.into();
    }
    let own: Vec<(&str, Value)> = templates(set)
        .map(|(template, _)| {
            let claim = json!({"claimName": claim_name(template, &name)});
            (
                template,
                json!({"name": template, "persistentVolumeClaim": claim}),
            )
        })
        .collect();
    if !own.is_empty() {
        let mut volumes = pod["spec"]["volumes"].take();
        let others = volumes.as_array_mut().map(std::mem::take);
        let others = others.into_iter().flatten();
        let others = others.filter(|volume| own.iter().all(|(name, _)| volume["name"] != *name));
        let others: Vec<Value> = others.collect();
        let own = own.iter().map(|(_, volume)| volume.clone());
        pod["spec"]["volumes"] = own.chain(others).collect();
    }
    pod["spec"]["hostname"] = name.into();
    pod["spec"]["subdomain"] = set.spec.service_name.clone().into();
    pod
}

fn templates(set: &StatefulSet) -> impl Iterator<Item = (&str, &Value)> {
    let templates = set.spec.volume_claim_templates.iter();
    templates.filter_map(|template| Some((template["metadata"]["name"].as_str()?, template)))
}

fn claim_name(template: &str, pod: &str) -> String {
    format!("{template}-{pod}")
}

/// The claims of a pod: their names and objects.
pub(super) fn claims(set: &StatefulSet, pod: &str) -> Vec<(String, Value)> {
    let claim = |(name, template): (&str, &Value)| {
        let name = claim_name(name, pod);
        let mut meta = json!({"name": name});
        for key in ["labels", "annotations"] {
            if template["metadata"][key].is_object() {
                meta[key] = template["metadata"][key].clone();
            }
        }
        for (label, value) in set.spec.selector.match_labels.iter().flatten() {
            meta["labels"][label] = value.clone().into();
        }
        let kept = set
            .spec
            .persistent_volume_claim_retention_policy
            .when_deleted
            != "Delete";
        if !kept {
            meta["ownerReferences"] = json!([owner(set)]);
        }
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": meta, "spec": template["spec"],
        });
        (name, claim)
    };
    templates(set).map(claim).collect()
}

/// The owner of the claims of a pod, with which they are deleted: none, the set, or the pod that is no longer wanted.
pub(super) fn claim_owner(set: &StatefulSet, pod: &Pod, condemned: bool) -> Option<OwnerReference> {
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    if condemned && policy.when_scaled == "Delete" {
        Some(owner(pod))
    } else if policy.when_deleted == "Delete" {
        Some(owner(set))
    } else {
        None
    }
}

fn owner<K: Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
    object.owner_ref(&()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_a_stable_name_and_its_own_claims() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "ns", "uid": "1"},
            "spec": {
                "serviceName": "dbs",
                "selector": {"matchLabels": {"app": "db"}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            },
        }))
        .unwrap();
        let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {
            "containers": [], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
        }});
        let made = pod(&set, 7, &template, "db-1");
        assert_eq!(made["metadata"]["name"], "db-7");
        assert_eq!(
            made["metadata"]["labels"],
            json!({"app": "db", POD_NAME: "db-7", POD_INDEX: "7", HASH: "db-1"})
        );
        assert_eq!(made["spec"]["hostname"], "db-7");
        assert_eq!(made["spec"]["subdomain"], "dbs");
        assert_eq!(
            made["spec"]["volumes"],
            json!([
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-7"}},
                {"name": "tmp", "emptyDir": {}},
            ])
        );
        let claims = claims(&set, "db-7");
        assert_eq!(claims[0].0, "data-db-7");
        assert_eq!(claims[0].1["metadata"]["labels"], json!({"app": "db"}));
        let made: Pod = serde_json::from_value(made).unwrap();
        assert_eq!(ordinal_of(&set, &made), Some(7));
    }
}
