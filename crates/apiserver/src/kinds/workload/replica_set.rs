//! Replica sets, and their older form, replication controllers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{selector, spec_status};
use super::{
    check_immutable_selector, check_not_negative, check_runs_forever, check_selector,
    check_template, container_cells,
};
use crate::kinds::kind::{Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{JsonObject, at, each, fill, is_empty, number, open};
use crate::objects::status::FieldError;

const COLUMNS: &str =
    "Name, Desired:integer, Current:integer, Ready:integer, Age, Containers*, Images*, Selector*";

fn default_status(status: &mut JsonObject) {
    fill(status, "replicas", 0);
    for condition in each(status, "conditions") {
        fill(condition, "lastTransitionTime", Value::Null);
    }
}

fn prepare(object: &mut Value, old: Option<&Value>, write: Write<'_>) {
    spec_status::separate_status(object, old, write, |_| json!({"replicas": 0}));
    spec_status::count_spec_changes(object, old);
}

fn cells(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let [containers, images] = container_cells(object);
    vec![
        printer::name(object),
        json!(number(object, "spec.replicas")),
        json!(number(object, "status.replicas")),
        json!(number(object, "status.readyReplicas")),
        printer::created(object, now),
        containers,
        images,
        selector.into(),
    ]
}

pub(in crate::kinds) struct ReplicaSet;

impl Rules for ReplicaSet {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "replicas", 1);
        super::default_template(spec);
        default_status(open(fields, "status"));
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        prepare(object, old, write);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_not_negative(
            object,
            &["spec.replicas", "spec.minReadySeconds"],
            &mut errors,
        );
        let selected = check_selector(object, "deployment", &mut errors);
        check_template(object, selected, &mut errors);
        check_runs_forever(object, &mut errors);
        check_immutable_selector(object, old, &mut errors);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::template_warnings(object, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let spec = json!({"replicas": 0, "selector": null, "template": template});
        vec![("spec", spec), ("status", json!({"replicas": 0}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(COLUMNS)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        cells(object, now, selector::cell(at(object, "spec.selector")))
    }
}

pub(in crate::kinds) struct ReplicationController;

impl Rules for ReplicationController {
    fn default(&self, object: &mut Value) {
        let labels = at(object, "spec.template.metadata.labels").clone();
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "replicas", 1);
        if spec.get("template").is_some_and(Value::is_object) {
            super::default_template(spec);
        }
        if !is_empty(&labels) {
            fill(spec, "selector", labels.clone());
            fill(open(fields, "metadata"), "labels", labels);
        }
        default_status(open(fields, "status"));
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        prepare(object, old, write);
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_not_negative(
            object,
            &["spec.replicas", "spec.minReadySeconds"],
            &mut errors,
        );
        let wanted = at(object, "spec.selector");
        if is_empty(wanted) {
            errors.push(FieldError::required("spec.selector", ""));
        }
        if !at(object, "spec.template").is_object() {
            errors.push(FieldError::required("spec.template", ""));
            return errors;
        }
        let selected = selector::matches(
            &json!({"matchLabels": wanted}),
            at(object, "spec.template.metadata.labels"),
        );
        check_template(object, selected, &mut errors);
        check_runs_forever(object, &mut errors);
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::template_warnings(object, old)
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::super::names(&["status.replicas"])
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        super::super::select(object, &["status.replicas"], path)
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({})), ("status", json!({"replicas": 0}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns(COLUMNS)
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        cells(object, now, selector::map_cell(at(object, "spec.selector")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replication_controller_selects_what_it_makes() {
        let mut object = json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        ReplicationController.default(&mut object);
        assert_eq!(object["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(object["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(
            ReplicationController.validate(&object, None, Write::Create),
            []
        );
        object["spec"]["selector"] = json!({"x": "y"});
        let errors = ReplicationController.validate(&object, None, Write::Create);
        assert_eq!(errors[0].field, "spec.template.metadata.labels");
    }

    #[test]
    fn pods_of_a_replica_set_always_restart() {
        let mut object = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        ReplicaSet.default(&mut object);
        let errors = ReplicaSet.validate(&object, None, Write::Create);
        assert_eq!(
            errors[0].message,
            "Unsupported value: \"Never\": supported values: \"Always\""
        );
    }
}
