//! Storage classes.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::kind::{Column, Lookup, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, is_empty, text};
use crate::objects::status::FieldError;

const DEFAULT_ANNOTATIONS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(in crate::kinds) struct StorageClass;

impl Rules for StorageClass {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(fields, "provisioner", "");
            fill(fields, "reclaimPolicy", "Delete");
            fill(fields, "volumeBindingMode", "Immediate");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if is_empty(at(object, "provisioner")) {
            errors.push(FieldError::required("provisioner", ""));
        }
        for (field, words) in [
            ("reclaimPolicy", ["Delete", "Retain"]),
            ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ] {
            if !words.contains(&text(object, field)) {
                errors.push(FieldError::not_supported(field, at(object, field), &words));
            }
        }
        for field in [
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ] {
            if old.is_some_and(|old| at(old, field) != at(object, field)) {
                errors.push(FieldError::invalid(
                    field,
                    at(object, field),
                    "field is immutable",
                ));
            }
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("provisioner", json!(""))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(
            "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        )
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mark = if is_default(object) { " (default)" } else { "" };
        vec![
            format!("{}{mark}", text(object, "metadata.name")).into(),
            text(object, "provisioner").into(),
            text(object, "reclaimPolicy").into(),
            text(object, "volumeBindingMode").into(),
            json!(at(object, "allowVolumeExpansion") == &Value::Bool(true)),
            printer::created(object, now),
        ]
    }
}

fn is_default(class: &Value) -> bool {
    let annotations = at(class, "metadata.annotations");
    DEFAULT_ANNOTATIONS
        .iter()
        .any(|key| annotations.get(key).is_some_and(|value| value == "true"))
}

/// The class of claims that name none: the newest, then the first by name.
pub(super) fn default_class(others: &dyn Lookup) -> Option<Arc<Value>> {
    let mut classes = others.list("storage.k8s.io", "storageclasses", "");
    classes.retain(|class| is_default(class));
    classes.sort_by(|a, b| {
        let key = |class: &Value| text(class, "metadata.creationTimestamp").to_owned();
        let name = |class: &Value| text(class, "metadata.name").to_owned();
        key(b).cmp(&key(a)).then_with(|| name(a).cmp(&name(b)))
    });
    classes.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_immutable() {
        let mut old = json!({"provisioner": "p"});
        StorageClass.default(&mut old);
        assert_eq!(StorageClass.validate(&old, None, Write::Create), []);
        for (field, value, allowed) in [
            ("provisioner", json!("q"), false),
            ("reclaimPolicy", json!("Retain"), false),
            ("allowVolumeExpansion", json!(true), true),
        ] {
            let mut class = old.clone();
            class[field] = value;
            assert_eq!(
                StorageClass
                    .validate(&class, Some(&old), Write::Update)
                    .is_empty(),
                allowed,
                "{field}"
            );
        }
    }
}
