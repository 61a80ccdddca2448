//! Namespaces. They are deleted in two steps, because of the finalizer in their spec.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::spec_status;
use crate::kinds::kind::{Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, items, open, put, text};
use crate::objects::status::{FieldError, Status};

/// The namespaces of the cluster itself, which cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
const FINALIZER: &str = "kubernetes";

pub(super) struct Namespace;

impl Rules for Namespace {
    fn default(&self, object: &mut Value) {
        let name = text(object, "metadata.name").to_owned();
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        fill(fields, "spec", json!({}));
        fill(open(fields, "status"), "phase", "Active");
        // Selectors find a namespace by its name through this label.
        let labels = open(open(fields, "metadata"), "labels");
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({"phase": "Active"}));
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        match (old, write) {
            (None, _) => {
                let finalizers = open(fields, "spec")
                    .entry("finalizers")
                    .or_insert_with(|| json!([]));
                if let Some(finalizers) = finalizers.as_array_mut()
                    && !finalizers.iter().any(|f| f == FINALIZER)
                {
                    finalizers.push(FINALIZER.into());
                }
            }
            (Some(_), Write::Subresource("finalize")) => {}
            (Some(old), _) => put(
                open(fields, "spec"),
                "finalizers",
                at(old, "spec").get("finalizers"),
            ),
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let phase = at(object, "status.phase");
        let leaving = !at(object, "metadata.deletionTimestamp").is_null();
        if write != Write::Subresource("status") || leaving || phase == "Active" {
            return Vec::new();
        }
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        vec![FieldError::invalid("status.Phase", phase, detail)]
    }

    fn admit_delete(&self, object: &Value) -> Result<(), Status> {
        let name = text(object, "metadata.name");
        if !IMMORTAL.contains(&name) {
            return Ok(());
        }
        Err(Status::forbidden(
            "",
            "namespaces",
            name,
            "this namespace may not be deleted",
        ))
    }

    fn begin_delete(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            open(fields, "status").insert("phase".to_owned(), "Terminating".into());
        }
    }

    fn holds_back_delete(&self, object: &Value) -> bool {
        !items(object, "spec.finalizers").is_empty()
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({})), ("status", json!({}))]
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&["status.phase"])
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::dns_label_without_dots(name)
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        super::select(object, &["status.phase"], path)
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Status, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "status.phase").into(),
            printer::created(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mut object: Value, old: Option<&Value>, write: Write<'_>) -> Value {
        Namespace.default(&mut object);
        Namespace.prepare(&mut object, old, write);
        object
    }

    #[test]
    fn only_finalize_removes_the_finalizer() {
        let sent = json!({"metadata": {"name": "a"}, "status": {"phase": "Terminating"}});
        let made = written(sent.clone(), None, Write::Create);
        assert_eq!(
            made,
            json!({
                "metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            })
        );
        let updated = written(sent.clone(), Some(&made), Write::Update);
        assert!(Namespace.holds_back_delete(&updated));
        assert_eq!(updated["status"]["phase"], "Active");
        let finalized = written(sent, Some(&made), Write::Subresource("finalize"));
        assert!(!Namespace.holds_back_delete(&finalized));
    }

    #[test]
    fn some_namespaces_stay() {
        for (name, dies) in [
            ("default", false),
            ("kube-system", false),
            ("kube-node-lease", true),
            ("mine", true),
        ] {
            let namespace = json!({"metadata": {"name": name}});
            assert_eq!(Namespace.admit_delete(&namespace).is_ok(), dies, "{name}");
        }
    }
}
