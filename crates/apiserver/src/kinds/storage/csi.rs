//! CSI drivers, CSI nodes, storage capacities and volume attachments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::spec_status;
use super::text_or;
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, is_empty, items, open, text};
use crate::objects::names::dns_subdomain;
use crate::objects::status::FieldError;

pub(in crate::kinds) struct CsiNode;

impl Rules for CsiNode {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(open(fields, "spec"), "drivers", Value::Null);
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (i, driver) in items(object, "spec.drivers").iter().enumerate() {
            for field in ["name", "nodeID"] {
                if text(driver, field).is_empty() {
                    errors.push(FieldError::required(
                        format!("spec.drivers[{i}].{field}"),
                        "",
                    ));
                }
            }
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({"drivers": null}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Drivers:integer, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let drivers = items(object, "spec.drivers").len();
        vec![
            printer::name(object),
            json!(drivers),
            printer::created(object, now),
        ]
    }
}

pub(in crate::kinds) struct CsiDriver;

impl Rules for CsiDriver {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "attachRequired", true);
        fill(spec, "volumeLifecycleModes", json!(["Persistent"]));
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        for flag in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            fill(spec, flag, false);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, _write: Write<'_>) {
        // A new driver has no generation; changes count from there.
        if old.is_some() {
            spec_status::count_spec_changes(object, old);
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        // The first name is how upstream spells it.
        for (field, path) in [
            ("spec.attachedRequired", "spec.attachRequired"),
            ("spec.volumeLifecycleModes", "spec.volumeLifecycleModes"),
        ] {
            if old.is_some_and(|old| at(old, path) != at(object, path)) {
                errors.push(FieldError::invalid(
                    field,
                    at(object, path),
                    "field is immutable",
                ));
            }
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, TokenRequests, RequiresRepublish:boolean, Modes, Age",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let flag = |field: &str| json!(at(at(object, "spec"), field) == &Value::Bool(true));
        let audiences: Vec<&str> = items(object, "spec.tokenRequests")
            .iter()
            .map(|request| text(request, "audience"))
            .collect();
        let modes: Vec<&str> = items(object, "spec.volumeLifecycleModes")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        vec![
            printer::name(object),
            flag("attachRequired"),
            flag("podInfoOnMount"),
            flag("storageCapacity"),
            text_or(&audiences.join(","), "<unset>").into(),
            flag("requiresRepublish"),
            text_or(&modes.join(","), "<none>").into(),
            printer::created(object, now),
        ]
    }
}

pub(in crate::kinds) struct StorageCapacity;

impl Rules for StorageCapacity {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(fields, "storageClassName", "");
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let class = at(object, "storageClassName");
        let problem = dns_subdomain(class.as_str().unwrap_or_default());
        let error = |problem: String| FieldError::invalid("storageClassName", class, &problem);
        problem.map(error).into_iter().collect()
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("storageClassName", json!(""))]
    }

    fn has_own_columns(&self) -> bool {
        false
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Created At:date")
    }

    fn cells(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            at(object, "metadata.creationTimestamp").clone(),
        ]
    }
}

pub(in crate::kinds) struct VolumeAttachment;

impl Rules for VolumeAttachment {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "attacher", "");
        fill(spec, "source", json!({}));
        fill(spec, "nodeName", "");
        fill(open(fields, "status"), "attached", false);
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({"attached": false}));
        if write == Write::Subresource("status") {
            spec_status::keep_metadata(
                object,
                old,
                &["labels", "annotations", "finalizers", "ownerReferences"],
            );
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        if text(object, "spec.attacher").is_empty() {
            errors.push(FieldError::required("spec.attacher", ""));
        }
        let source = at(object, "spec.source");
        if is_empty(source) {
            let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.push(FieldError::required("spec.source", detail));
        }
        let node = at(object, "spec.nodeName");
        if let Some(problem) = dns_subdomain(node.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("spec.nodeName", node, &problem));
        }
        if old.is_some_and(|old| old.get("spec") != object.get("spec")) {
            errors.push(FieldError::invalid(
                "spec",
                at(object, "spec"),
                "field is immutable",
            ));
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let spec = json!({"attacher": "", "source": {}, "nodeName": ""});
        vec![("spec", spec), ("status", json!({"attached": false}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Attacher:string:name, PV, Node, Attached:boolean, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "spec.attacher").into(),
            text(object, "spec.source.persistentVolumeName").into(),
            text(object, "spec.nodeName").into(),
            json!(at(object, "status.attached") == &Value::Bool(true)),
            printer::created(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_counts_changes_from_none() {
        let mut old = json!({"metadata": {}});
        CsiDriver.default(&mut old);
        CsiDriver.prepare(&mut old, None, Write::Create);
        assert_eq!(old["metadata"].get("generation"), None);
        let mut changed = old.clone();
        changed["spec"]["podInfoOnMount"] = json!(true);
        CsiDriver.prepare(&mut changed, Some(&old), Write::Update);
        assert_eq!(changed["metadata"]["generation"], 1);
        assert_eq!(CsiDriver.validate(&changed, Some(&old), Write::Update), []);
        changed["spec"]["attachRequired"] = json!(false);
        assert_eq!(
            CsiDriver
                .validate(&changed, Some(&old), Write::Update)
                .len(),
            1
        );
    }

    #[test]
    fn an_attachment_needs_attacher_node_and_volume() {
        let mut empty = json!({});
        VolumeAttachment.default(&mut empty);
        let errors = VolumeAttachment.validate(&empty, None, Write::Create);
        let fields: Vec<_> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, ["spec.attacher", "spec.source", "spec.nodeName"]);
    }

    #[test]
    fn drivers_on_a_node_need_names() {
        let node = json!({"spec": {"drivers": [{"name": "d"}]}});
        assert_eq!(
            CsiNode.validate(&node, None, Write::Create)[0].field,
            "spec.drivers[0].nodeID"
        );
    }
}
