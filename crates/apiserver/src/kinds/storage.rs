//! Volumes, claims and their classes and drivers. A controller binds them.

use serde_json::{Value, json};

use crate::objects::fields::{JsonObject, at, fill, is_empty, items, open};
use crate::objects::status::FieldError;

mod class;
mod csi;
mod volume;

pub(super) use class::StorageClass;
pub(super) use csi::{CsiDriver, CsiNode, StorageCapacity, VolumeAttachment};
pub(super) use volume::{Claim, Volume};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// A claim inside a stateful set is stored as a whole object.
pub(super) fn default_claim_template(claim: &mut JsonObject) {
    fill(claim, "kind", "PersistentVolumeClaim");
    fill(claim, "apiVersion", "v1");
    fill(claim, "metadata", json!({}));
    default_claim_spec(open(claim, "spec"));
    fill(open(claim, "status"), "phase", "Pending");
}

fn default_claim_spec(spec: &mut JsonObject) {
    fill(spec, "volumeMode", "Filesystem");
    fill(spec, "resources", json!({}));
    for (given, other) in [
        ("dataSource", "dataSourceRef"),
        ("dataSourceRef", "dataSource"),
    ] {
        if let Some(Value::Object(source)) = spec.get(given) {
            let mut source = source.clone();
            fill(&mut source, "apiGroup", Value::Null);
            spec.insert(given.to_owned(), Value::Object(source.clone()));
            // A source in another namespace has no form in the older field.
            if !source.contains_key("namespace") {
                fill(spec, other, Value::Object(source));
            }
        }
    }
}

fn check_access_modes(object: &Value, detail: &str, errors: &mut Vec<FieldError>) {
    let field = "spec.accessModes";
    if items(object, field).is_empty() {
        errors.push(FieldError::required(field, detail));
    }
    for mode in items(object, field) {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(field, mode, &ACCESS_MODES));
        }
    }
}

fn check_volume_mode(object: &Value, errors: &mut Vec<FieldError>) {
    let mode = at(object, "spec.volumeMode");
    let modes = ["Block", "Filesystem"];
    if !is_empty(mode) && !modes.contains(&mode.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported("spec.volumeMode", mode, &modes));
    }
}

/// `RWO,ROX`: each mode once.
fn access_modes_cell(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let present = short
        .iter()
        .filter(|(mode, _)| modes.iter().any(|m| m == mode));
    present
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
}

fn text_or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_are_abbreviated() {
        assert_eq!(
            access_modes_cell(&[
                json!("ReadOnlyMany"),
                json!("ReadWriteOnce"),
                json!("ReadOnlyMany")
            ]),
            "RWO,ROX"
        );
        assert_eq!(access_modes_cell(&[]), "");
    }

    #[test]
    fn a_data_source_is_written_both_ways() {
        let mut spec = json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}});
        default_claim_spec(spec.as_object_mut().unwrap());
        let source = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "x"});
        assert_eq!(
            (&spec["dataSource"], &spec["dataSourceRef"]),
            (&source, &source)
        );
    }
}
