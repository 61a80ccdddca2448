//! Deployments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{selector, spec_status};
use super::{
    check_immutable_selector, check_not_negative, check_runs_forever, check_selector,
    check_template, container_cells,
};
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, each, fill, number, open, text};
use crate::objects::status::FieldError;

pub(in crate::kinds) struct Deployment;

impl Rules for Deployment {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        let spec = open(fields, "spec");
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        let strategy = open(spec, "strategy");
        fill(strategy, "type", "RollingUpdate");
        if strategy
            .get("type")
            .is_some_and(|kind| kind == "RollingUpdate")
        {
            let rolling = open(strategy, "rollingUpdate");
            fill(rolling, "maxUnavailable", "25%");
            fill(rolling, "maxSurge", "25%");
        }
        super::default_template(spec);
        for condition in each(open(fields, "status"), "conditions") {
            fill(condition, "lastUpdateTime", Value::Null);
            fill(condition, "lastTransitionTime", Value::Null);
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| json!({}));
        if write == Write::Subresource("status") {
            spec_status::keep_metadata(object, old, &["labels"]);
            return;
        }
        // The controller copies annotations to replica sets, so they count as a change.
        let changed = old.is_none_or(|old| {
            object.get("spec") != old.get("spec")
                || at(object, "metadata.annotations") != at(old, "metadata.annotations")
        });
        spec_status::count(object, old, changed);
    }

    fn validate(&self, object: &Value, old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            return errors;
        }
        check_not_negative(object, &["spec.replicas"], &mut errors);
        let selected = check_selector(object, "deployment", &mut errors);
        check_template(object, selected, &mut errors);
        check_runs_forever(object, &mut errors);
        check_strategy(object, &mut errors);
        check_not_negative(
            object,
            &["spec.minReadySeconds", "spec.revisionHistoryLimit"],
            &mut errors,
        );
        let deadline = at(object, "spec.progressDeadlineSeconds");
        if deadline
            .as_i64()
            .is_some_and(|seconds| seconds <= number(object, "spec.minReadySeconds"))
        {
            let detail = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid(
                "spec.progressDeadlineSeconds",
                deadline,
                detail,
            ));
        }
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
        let spec = json!({"replicas": 0, "selector": null, "template": template, "strategy": {}});
        vec![("spec", spec), ("status", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*")
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
            json!(number(object, "status.updatedReplicas")),
            json!(number(object, "status.availableReplicas")),
            printer::created(object, now),
            containers,
            images,
            selector::cell(at(object, "spec.selector")).into(),
        ]
    }
}

fn check_strategy(object: &Value, errors: &mut Vec<FieldError>) {
    let strategy = at(object, "spec.strategy");
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if rolling.is_object() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
        }
        "Recreate" => {}
        "RollingUpdate" => check_rolling_update(rolling, errors),
        other => {
            let shown = json!({"Type": other, "RollingUpdate": null});
            let known = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported("spec.strategy", &shown, &known));
        }
    }
}

fn check_rolling_update(rolling: &Value, errors: &mut Vec<FieldError>) {
    for field in ["maxUnavailable", "maxSurge"] {
        check_amount(
            at(rolling, field),
            &format!("spec.strategy.rollingUpdate.{field}"),
            errors,
        );
    }
    let is_zero =
        |field: &str| matches!(at(rolling, field), amount if amount == 0 || amount == "0%");
    if is_zero("maxUnavailable") && is_zero("maxSurge") {
        let field = "spec.strategy.rollingUpdate.maxUnavailable";
        let shown = at(rolling, "maxUnavailable");
        errors.push(FieldError::invalid(
            field,
            shown,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
}

/// A number of pods or a share of them.
pub(in crate::kinds) fn check_amount(amount: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if amount.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(
            field,
            amount,
            "must be greater than or equal to 0",
        ));
    }
    if let Some(text) = amount.as_str() {
        let digits = text.strip_suffix('%').unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(field, amount, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(change: Value) -> Value {
        let mut object = json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }});
        for (key, value) in change.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        Deployment.default(&mut object);
        Deployment.prepare(&mut object, None, Write::Create);
        object
    }

    #[test]
    fn defaults_roll_out_a_quarter_at_a_time() {
        let spec = &deployment(json!({}))["spec"];
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!(
            (
                &spec["replicas"],
                &spec["revisionHistoryLimit"],
                &spec["progressDeadlineSeconds"]
            ),
            (&json!(1), &json!(10), &json!(600))
        );
        assert_eq!(
            deployment(json!({"strategy": {"type": "Recreate"}}))["spec"]["strategy"],
            json!({"type": "Recreate"})
        );
    }

    #[test]
    fn annotations_count_as_a_change() {
        let old = deployment(json!({}));
        for (case, path, want) in [("annotations", "annotations", 2), ("labels", "labels", 1)] {
            let mut object = old.clone();
            object["metadata"][path] = json!({"x": "y"});
            Deployment.prepare(&mut object, Some(&old), Write::Update);
            assert_eq!(object["metadata"]["generation"], want, "{case}");
        }
    }

    #[test]
    fn invalid_deployments_are_refused() {
        for (case, change, want) in [
            ("nothing", json!({}), None),
            (
                "another selector",
                json!({"selector": {"matchLabels": {"x": "y"}}}),
                Some("spec.template.metadata.labels"),
            ),
            (
                "no selector",
                json!({"selector": null}),
                Some("spec.selector"),
            ),
            (
                "an empty selector",
                json!({"selector": {}}),
                Some("spec.selector"),
            ),
            (
                "fewer than none",
                json!({"replicas": -1}),
                Some("spec.replicas"),
            ),
            (
                "no movement",
                json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
                Some("spec.strategy.rollingUpdate.maxUnavailable"),
            ),
            (
                "no percent",
                json!({"strategy": {"rollingUpdate": {"maxSurge": "10"}}}),
                Some("spec.strategy.rollingUpdate.maxSurge"),
            ),
            (
                "recreate with a roll",
                json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
                Some("spec.strategy.rollingUpdate"),
            ),
            (
                "no patience",
                json!({"progressDeadlineSeconds": 0}),
                Some("spec.progressDeadlineSeconds"),
            ),
        ] {
            let errors = Deployment.validate(&deployment(change), None, Write::Create);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
        let moved = deployment(
            json!({"selector": {"matchLabels": {}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        );
        let errors = Deployment.validate(&moved, Some(&deployment(json!({}))), Write::Update);
        assert_eq!(
            errors[0].message,
            "Invalid value: {\"matchLabels\":{},\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}: field is immutable"
        );
    }
}
