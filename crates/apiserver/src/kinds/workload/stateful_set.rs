//! Stateful sets: pods with stable names and volumes.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::spec_status;
use super::super::storage::default_claim_template;
use super::{
    check_not_negative, check_runs_forever, check_selector, check_template, container_cells,
};
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, each, fill, items, number, open, put, text};
use crate::objects::status::FieldError;

const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(in crate::kinds) struct StatefulSet;

impl Rules for StatefulSet {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "replicas", 1);
        fill(spec, "serviceName", "");
        fill(spec, "podManagementPolicy", "OrderedReady");
        fill(spec, "revisionHistoryLimit", 10);
        let strategy = open(spec, "updateStrategy");
        fill(strategy, "type", "RollingUpdate");
        if strategy
            .get("type")
            .is_some_and(|kind| kind == "RollingUpdate")
        {
            fill(open(strategy, "rollingUpdate"), "partition", 0);
        }
        let retention = open(spec, "persistentVolumeClaimRetentionPolicy");
        fill(retention, "whenDeleted", "Retain");
        fill(retention, "whenScaled", "Retain");
        each(spec, "volumeClaimTemplates").for_each(default_claim_template);
        super::default_template(spec);
        let status = open(fields, "status");
        fill(status, "replicas", 0);
        fill(status, "availableReplicas", 0);
        for condition in each(status, "conditions") {
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        let fresh = |_: &_| json!({"replicas": 0, "availableReplicas": 0});
        spec_status::separate_status(object, old, write, fresh);
        spec_status::count_spec_changes(object, old);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        let policy = at(object, "spec.podManagementPolicy");
        if !["OrderedReady", "Parallel"].contains(&policy.as_str().unwrap_or_default()) {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(FieldError::invalid(
                "spec.podManagementPolicy",
                policy,
                detail,
            ));
        }
        let strategy = text(object, "spec.updateStrategy.type");
        if !["RollingUpdate", "OnDelete"].contains(&strategy) {
            let shown = json!({"Type": strategy, "RollingUpdate": null});
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid("spec.updateStrategy", &shown, detail));
        }
        check_not_negative(
            object,
            &["spec.replicas", "spec.minReadySeconds"],
            &mut errors,
        );
        let selected = check_selector(object, "statefulset", &mut errors);
        check_template(&with_claims(object), selected, &mut errors);
        check_runs_forever(object, &mut errors);
        if let Some(old) = old
            && fixed_part(object) != fixed_part(old)
        {
            let (last, others) = (CHANGEABLE[6], CHANGEABLE[..6].join("', '"));
            let detail = format!(
                "updates to statefulset spec for fields other than '{others}' and '{last}' are forbidden"
            );
            errors.push(FieldError::forbidden("spec", &detail));
        }
        errors
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        super::template_warnings(object, old)
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::dns_label_without_dots(name)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        let template = json!({"metadata": {}, "spec": {"containers": null}});
        let spec = json!({"replicas": 0, "selector": null, "template": template, "serviceName": "", "updateStrategy": {}});
        vec![
            ("spec", spec),
            ("status", json!({"replicas": 0, "availableReplicas": 0})),
        ]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Ready, Age, Containers*, Images*")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let [containers, images] = container_cells(object);
        vec![
            printer::name(object),
            format!(
                "{}/{}",
                number(object, "status.readyReplicas"),
                number(object, "spec.replicas")
            )
            .into(),
            printer::created(object, now),
            containers,
            images,
        ]
    }
}

/// The set with the volumes that its pods get from the claim templates: containers may mount them.
fn with_claims(object: &Value) -> Cow<'_, Value> {
    let claims = items(object, "spec.volumeClaimTemplates");
    if claims.is_empty() {
        return Cow::Borrowed(object);
    }
    let claims: Vec<&Value> = claims
        .iter()
        .map(|claim| at(claim, "metadata.name"))
        .collect();
    let own = items(object, "spec.template.spec.volumes").iter();
    let own = own.filter(|volume| !claims.contains(&at(volume, "name")));
    let made = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = own.cloned().chain(made).collect();
    let mut object = object.clone();
    if let Some(spec) = object.pointer_mut("/spec/template/spec") {
        spec["volumes"] = Value::Array(volumes);
    }
    Cow::Owned(object)
}

fn fixed_part(object: &Value) -> Value {
    let mut spec = at(object, "spec").clone();
    if let Some(fields) = spec.as_object_mut() {
        for field in CHANGEABLE {
            put(fields, field, None);
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(change: Value) -> Value {
        let mut object = json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}}, "serviceName": "s",
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"resources": {}}}],
        }});
        for (key, value) in change.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        StatefulSet.default(&mut object);
        object
    }

    #[test]
    fn claims_in_a_set_are_whole_objects() {
        assert_eq!(
            set(json!({}))["spec"]["volumeClaimTemplates"][0],
            json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "v"}, "spec": {"resources": {}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}})
        );
    }

    #[test]
    fn containers_mount_the_claims_of_their_set() {
        let mounts = |name: &str| {
            let mounts = json!([{"name": name, "mountPath": "/x"}]);
            let container = json!({"name": "c", "image": "i", "volumeMounts": mounts});
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}})
        };
        for (volume, want) in [
            ("v", None),
            (
                "w",
                Some("spec.template.spec.containers[0].volumeMounts[0].name"),
            ),
        ] {
            let errors = StatefulSet.validate(&set(mounts(volume)), None, Write::Create);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{volume}");
        }
    }

    #[test]
    fn only_some_fields_may_change() {
        for (case, change, want) in [
            ("replicas", json!({"replicas": 3}), None),
            ("its service", json!({"serviceName": "t"}), Some("spec")),
            (
                "a policy",
                json!({"podManagementPolicy": "X"}),
                Some("spec.podManagementPolicy"),
            ),
        ] {
            let errors = StatefulSet.validate(&set(change), Some(&set(json!({}))), Write::Update);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }
}
