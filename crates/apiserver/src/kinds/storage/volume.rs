//! Persistent volumes and the claims on them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::spec_status;
use super::{
    access_modes_cell, check_access_modes, check_volume_mode, class, default_claim_spec, text_or,
};
use crate::kinds::kind::{Column, Lookup, Rules, Write};
use crate::kinds::{limit_range, printer};
use crate::objects::fields::{
    JsonObject, at, each, fill, inside, is_empty, items, open, put, text,
};
use crate::objects::status::{FieldError, Status};

/// Fields of a volume that do not name its storage.
const NOT_A_SOURCE: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

pub(in crate::kinds) struct Volume;

impl Rules for Volume {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill(spec, "volumeMode", "Filesystem");
        if let Some(path) = inside(spec, "hostPath") {
            fill(path, "type", "");
        }
        if let Some(disk) = inside(spec, "iscsi") {
            fill(disk, "iscsiInterface", "default");
        }
        fill(open(fields, "status"), "phase", "Pending");
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({"phase": "Pending"}));
        let phase = at(object, "status.phase").clone();
        let made = at(object, "metadata.creationTimestamp").clone();
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        match old {
            None => {
                protect(fields, "kubernetes.io/pv-protection");
                open(fields, "status").insert("lastPhaseTransitionTime".to_owned(), made);
            }
            Some(old) if *at(old, "status.phase") != phase => {
                let status = open(fields, "status");
                let before = at(old, "status.lastPhaseTransitionTime");
                if status
                    .get("lastPhaseTransitionTime")
                    .is_none_or(|time| time == before)
                {
                    let now = format!("{:.0}", Timestamp::now());
                    status.insert("lastPhaseTransitionTime".to_owned(), now.into());
                }
            }
            Some(_) => {}
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_access_modes(object, "", &mut errors);
        if is_empty(at(object, "spec.capacity")) {
            errors.push(FieldError::required("spec.capacity", ""));
        }
        if at(object, "spec.capacity").get("storage").is_none() {
            let capacity = at(object, "spec.capacity");
            errors.push(FieldError::not_supported(
                "spec.capacity",
                capacity,
                &["storage"],
            ));
        }
        let policy = at(object, "spec.persistentVolumeReclaimPolicy");
        let policies = ["Delete", "Recycle", "Retain"];
        if !policies.contains(&policy.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(
                "spec.persistentVolumeReclaimPolicy",
                policy,
                &policies,
            ));
        }
        let sources = sources(object);
        if sources.is_empty() {
            errors.push(FieldError::required("spec", "must specify a volume type"));
        }
        for (kind, _) in sources.iter().skip(1) {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("spec.{kind}"), detail));
        }
        if at(object, "spec.local").is_object() && at(object, "spec.nodeAffinity").is_null() {
            errors.push(FieldError::required(
                "spec.nodeAffinity",
                "Local volume requires node affinity",
            ));
        }
        check_volume_mode(object, &mut errors);
        if old.is_some_and(|old| self::sources(old) != sources) {
            let field = "spec.persistentvolumesource";
            errors.push(FieldError::forbidden(
                field,
                &format!("{field} is immutable after creation"),
            ));
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({})), ("status", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, Age, VolumeMode*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let claim = match text(object, "spec.claimRef.name") {
            "" => String::new(),
            name => format!("{}/{name}", text(object, "spec.claimRef.namespace")),
        };
        vec![
            printer::name(object),
            text(at(object, "spec.capacity"), "storage").into(),
            access_modes_cell(items(object, "spec.accessModes")).into(),
            text(object, "spec.persistentVolumeReclaimPolicy").into(),
            phase_cell(object).into(),
            claim.into(),
            text(object, "spec.storageClassName").into(),
            text_or(text(object, "spec.volumeAttributesClassName"), "<unset>").into(),
            text(object, "status.reason").into(),
            printer::created(object, now),
            text_or(text(object, "spec.volumeMode"), "<unset>").into(),
        ]
    }
}

fn sources(volume: &Value) -> Vec<(&String, &Value)> {
    let spec = at(volume, "spec").as_object();
    spec.into_iter()
        .flatten()
        .filter(|(key, _)| !NOT_A_SOURCE.contains(&key.as_str()))
        .collect()
}

fn phase_cell(object: &Value) -> &str {
    match at(object, "metadata.deletionTimestamp") {
        Value::Null => text(object, "status.phase"),
        _ => "Terminating",
    }
}

/// Adds the finalizer that protects a volume or claim in use; its controller removes it.
fn protect(object: &mut JsonObject, finalizer: &str) {
    let finalizers = open(object, "metadata")
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|present| present == finalizer)
    {
        list.push(finalizer.into());
    }
}

pub(in crate::kinds) struct Claim;

impl Rules for Claim {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        default_claim_spec(open(fields, "spec"));
        let status = open(fields, "status");
        fill(status, "phase", "Pending");
        for condition in each(status, "conditions") {
            fill(condition, "lastProbeTime", Value::Null);
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({"phase": "Pending"}));
        if let (None, Some(fields)) = (old, object.as_object_mut()) {
            protect(fields, "kubernetes.io/pvc-protection");
        }
    }

    fn admit(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        _write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        // An empty class means no class; only an absent one gets the default.
        if old.is_none()
            && at(object, "spec.storageClassName").is_null()
            && let Some(class) = class::default_class(others)
            && let Some(spec) = object
                .as_object_mut()
                .and_then(|fields| inside(fields, "spec"))
        {
            fill(spec, "storageClassName", text(&class, "metadata.name"));
        }
        Ok(())
    }

    fn admit_valid(
        &self,
        object: &Value,
        write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        match write {
            Write::Subresource(_) => Ok(()),
            // Whatever it requests, it can lose its finalizers.
            _ if !at(object, "metadata.deletionTimestamp").is_null() => Ok(()),
            Write::Create | Write::Update => limit_range::check_claim(object, others),
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_access_modes(object, "at least 1 access mode is required", &mut errors);
        if at(object, "spec.resources.requests")
            .get("storage")
            .is_none()
        {
            errors.push(FieldError::required("spec.resources[storage]", ""));
        }
        check_volume_mode(object, &mut errors);
        if let Some(old) = old
            && fixed_part(object, old) != *at(old, "spec")
        {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
            errors.push(FieldError::forbidden("spec", detail));
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({"resources": {}})), ("status", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let volume = text(object, "spec.volumeName");
        let (capacity, modes) = match volume {
            "" => ("", String::new()),
            _ => (
                text(at(object, "status.capacity"), "storage"),
                access_modes_cell(items(object, "status.accessModes")),
            ),
        };
        vec![
            printer::name(object),
            phase_cell(object).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            text(object, "spec.storageClassName").into(),
            text_or(text(object, "spec.volumeAttributesClassName"), "<unset>").into(),
            printer::created(object, now),
            text_or(text(object, "spec.volumeMode"), "<unset>").into(),
        ]
    }
}

/// The new spec with all fields that may change reset to their old values.
fn fixed_part(claim: &Value, old: &Value) -> Value {
    let mut spec = at(claim, "spec").clone();
    let before = at(old, "spec");
    let Some(fields) = spec.as_object_mut() else {
        return spec;
    };
    // Both can be set once: the binder names the volume, an administrator the class.
    for field in ["volumeName", "storageClassName"] {
        if before.get(field).is_none_or(is_empty) {
            put(fields, field, before.get(field));
        }
    }
    if text(old, "status.phase") == "Bound" {
        put(
            fields,
            "volumeAttributesClassName",
            before.get("volumeAttributesClassName"),
        );
        if let Some(resources) = inside(fields, "resources") {
            put(
                resources,
                "requests",
                at(before, "resources").get("requests"),
            );
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_claims_start_protected_and_pending() {
        let mut volume = json!({"metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"}});
        Volume.default(&mut volume);
        Volume.prepare(&mut volume, None, Write::Create);
        assert_eq!(
            volume["metadata"]["finalizers"],
            json!(["kubernetes.io/pv-protection"])
        );
        assert_eq!(
            volume["status"],
            json!({"phase": "Pending", "lastPhaseTransitionTime": "2030-01-01T00:00:00Z"})
        );
        let mut claim = json!({"metadata": {}});
        Claim.default(&mut claim);
        Claim.prepare(&mut claim, None, Write::Create);
        assert_eq!(
            claim["metadata"]["finalizers"],
            json!(["kubernetes.io/pvc-protection"])
        );
        assert_eq!(claim["status"], json!({"phase": "Pending"}));
    }

    #[test]
    fn a_volume_has_one_immutable_source() {
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain"});
        let with = |source: Value| {
            let mut spec = spec.clone();
            for (key, value) in source.as_object().unwrap() {
                spec[key] = value.clone();
            }
            json!({"spec": spec})
        };
        let old = with(json!({"hostPath": {"path": "/x"}}));
        for (case, object, want) in [
            ("one", old.clone(), None),
            ("none", with(json!({})), Some("spec")),
            (
                "two",
                with(json!({"csi": {}, "hostPath": {"path": "/x"}})),
                Some("spec.hostPath"),
            ),
            (
                "another",
                with(json!({"hostPath": {"path": "/y"}})),
                Some("spec.persistentvolumesource"),
            ),
        ] {
            let old = (case == "another").then_some(&old);
            let errors = Volume.validate(&object, old, Write::Update);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn only_some_fields_of_a_claim_may_change() {
        let claim = |phase: &str, volume: Value, storage: &str| json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": volume, "resources": {"requests": {"storage": storage}}}, "status": {"phase": phase}});
        for (case, old, new, allowed) in [
            (
                "its volume once",
                claim("Pending", json!(""), "1Gi"),
                claim("Pending", json!("v"), "1Gi"),
                true,
            ),
            (
                "its volume twice",
                claim("Pending", json!("v"), "1Gi"),
                claim("Pending", json!("w"), "1Gi"),
                false,
            ),
            (
                "its size when bound",
                claim("Bound", json!("v"), "1Gi"),
                claim("Bound", json!("v"), "2Gi"),
                true,
            ),
            (
                "its size before",
                claim("Pending", json!("v"), "1Gi"),
                claim("Pending", json!("v"), "2Gi"),
                false,
            ),
        ] {
            assert_eq!(
                Claim.validate(&new, Some(&old), Write::Update).is_empty(),
                allowed,
                "{case}"
            );
        }
    }
}
