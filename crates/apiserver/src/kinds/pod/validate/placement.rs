//! Where a pod wants to run: gates, tolerations, selectors, affinity and spreading.

use serde_json::{Value, json};

use super::choice;
use crate::kinds::metadata::check_labels;
use crate::objects::fields::{at, is_empty, items, number, text};
use crate::objects::names::qualified_name;
use crate::objects::status::{FieldError, FieldErrors};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn check(spec: &Value, field: &str, errors: &mut FieldErrors) {
    check_labels(
        at(spec, "nodeSelector"),
        &format!("{field}.nodeSelector"),
        errors,
    );
    for (i, toleration) in items(spec, "tolerations").iter().enumerate() {
        check_toleration(toleration, &|| format!("{field}.tolerations[{i}]"), errors);
    }
    check_gates(spec, field, errors);
    for (i, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        check_spread(
            constraint,
            &|| format!("{field}.topologySpreadConstraints[{i}]"),
            errors,
        );
    }
    let affinity = at(spec, "affinity");
    if affinity.is_object() {
        check_node_affinity(
            at(affinity, "nodeAffinity"),
            &format!("{field}.affinity.nodeAffinity"),
            errors,
        );
        for side in ["podAffinity", "podAntiAffinity"] {
            check_pod_affinity(
                at(affinity, side),
                &format!("{field}.affinity.{side}"),
                errors,
            );
        }
    }
}

fn check_gates(spec: &Value, field: &str, errors: &mut FieldErrors) {
    let gates = items(spec, "schedulingGates");
    for (i, gate) in gates.iter().enumerate() {
        let path = || format!("{field}.schedulingGates[{i}]");
        let name = at(gate, "name");
        for problem in qualified_name(name.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path(), name, &problem));
        }
        if gates[..i].contains(gate) {
            errors.push(FieldError::duplicate(path(), name));
        }
    }
}

fn check_toleration(toleration: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (at(toleration, "value"), at(toleration, "effect"));
    let field = |name: &str| format!("{}.{name}", path());
    if !key.is_empty() {
        for problem in qualified_name(key) {
            errors.push(FieldError::invalid(field("key"), &json!(key), &problem));
        }
    }
    if key.is_empty() && operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(
            field("operator"),
            &json!(operator),
            detail,
        ));
    }
    if at(toleration, "tolerationSeconds").is_i64() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(field("effect"), effect, detail));
    }
    match operator {
        "Exists" if !is_empty(value) => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(field("operator"), value, detail));
        }
        "" | "Exists" | "Equal" => {}
        _ => errors.push(FieldError::not_supported(
            field("operator"),
            &json!(operator),
            &["Equal", "Exists"],
        )),
    }
    choice(
        toleration,
        "effect",
        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        path,
        errors,
    );
}

fn check_spread(constraint: &Value, path: &dyn Fn() -> String, errors: &mut FieldErrors) {
    let field = |name: &str| format!("{}.{name}", path());
    if number(constraint, "maxSkew") <= 0 {
        let skew = json!(number(constraint, "maxSkew"));
        errors.push(FieldError::invalid(
            field("maxSkew"),
            &skew,
            "must be greater than zero",
        ));
    }
    if text(constraint, "topologyKey").is_empty() {
        errors.push(FieldError::required(
            field("topologyKey"),
            "can not be empty",
        ));
    }
    let actions = ["DoNotSchedule", "ScheduleAnyway"];
    let action = at(constraint, "whenUnsatisfiable");
    if !actions.contains(&action.as_str().unwrap_or_default()) {
        let shown = json!(action.as_str().unwrap_or_default());
        errors.push(FieldError::not_supported(
            field("whenUnsatisfiable"),
            &shown,
            &actions,
        ));
    }
    check_label_selector(
        at(constraint, "labelSelector"),
        &field("labelSelector"),
        errors,
    );
    check_label_keys(constraint, &path(), errors);
}

/// Keys narrow a selector; without one there is nothing to narrow.
fn check_label_keys(term: &Value, field: &str, errors: &mut FieldErrors) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        if !items(term, list).is_empty() && at(term, "labelSelector").is_null() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(format!("{field}.{list}"), detail));
        }
    }
}

fn check_node_affinity(affinity: &Value, field: &str, errors: &mut FieldErrors) {
    let required = at(affinity, REQUIRED);
    if required.is_object() {
        let field = format!("{field}.{REQUIRED}.nodeSelectorTerms");
        let terms = items(required, "nodeSelectorTerms");
        if terms.is_empty() {
            let detail = "must have at least one node selector term";
            errors.push(FieldError::required(&field, detail));
        }
        for (i, term) in terms.iter().enumerate() {
            check_node_term(term, &format!("{field}[{i}]"), errors);
        }
    }
    for (i, term) in items(affinity, PREFERRED).iter().enumerate() {
        let field = format!("{field}.{PREFERRED}[{i}]");
        check_weight(term, &field, errors);
        check_node_term(
            at(term, "preference"),
            &format!("{field}.preference"),
            errors,
        );
    }
}

fn check_weight(term: &Value, field: &str, errors: &mut FieldErrors) {
    let weight = number(term, "weight");
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(
            format!("{field}.weight"),
            &json!(weight),
            "must be in the range 1-100",
        ));
    }
}

fn check_node_term(term: &Value, field: &str, errors: &mut FieldErrors) {
    for (i, expression) in items(term, "matchExpressions").iter().enumerate() {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
        check_expression(
            expression,
            &operators,
            &format!("{field}.matchExpressions[{i}]"),
            errors,
        );
    }
}

fn check_pod_affinity(affinity: &Value, field: &str, errors: &mut FieldErrors) {
    for (i, term) in items(affinity, REQUIRED).iter().enumerate() {
        check_pod_term(term, &format!("{field}.{REQUIRED}[{i}]"), errors);
    }
    for (i, term) in items(affinity, PREFERRED).iter().enumerate() {
        let field = format!("{field}.{PREFERRED}[{i}]");
        check_weight(term, &field, errors);
        check_pod_term(
            at(term, "podAffinityTerm"),
            &format!("{field}.podAffinityTerm"),
            errors,
        );
    }
}

fn check_pod_term(term: &Value, field: &str, errors: &mut FieldErrors) {
    check_label_selector(
        at(term, "labelSelector"),
        &format!("{field}.labelSelector"),
        errors,
    );
    check_label_selector(
        at(term, "namespaceSelector"),
        &format!("{field}.namespaceSelector"),
        errors,
    );
    check_label_keys(term, field, errors);
    let key = text(term, "topologyKey");
    let field = format!("{field}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&field, "can not be empty"));
    }
    for problem in qualified_name(key) {
        errors.push(FieldError::invalid(&field, &json!(key), &problem));
    }
}

/// A label selector: labels and expressions.
pub(in crate::kinds) fn check_label_selector(
    selector: &Value,
    field: &str,
    errors: &mut FieldErrors,
) {
    check_labels(
        at(selector, "matchLabels"),
        &format!("{field}.matchLabels"),
        errors,
    );
    for (i, expression) in items(selector, "matchExpressions").iter().enumerate() {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
        check_expression(
            expression,
            &operators,
            &format!("{field}.matchExpressions[{i}]"),
            errors,
        );
    }
}

fn check_expression(expression: &Value, operators: &[&str], field: &str, errors: &mut FieldErrors) {
    let operator = text(expression, "operator");
    let values = items(expression, "values");
    if !operators.contains(&operator) {
        let detail = "not a valid selector operator";
        errors.push(FieldError::invalid(
            format!("{field}.operator"),
            &json!(operator),
            detail,
        ));
    } else if ["In", "NotIn"].contains(&operator) && values.is_empty() {
        let detail = "must be specified when `operator` is 'In' or 'NotIn'";
        errors.push(FieldError::required(format!("{field}.values"), detail));
    } else if ["Exists", "DoesNotExist"].contains(&operator) && !values.is_empty() {
        let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
        errors.push(FieldError::forbidden(format!("{field}.values"), detail));
    }
    let key = text(expression, "key");
    for problem in qualified_name(key) {
        errors.push(FieldError::invalid(
            format!("{field}.key"),
            &json!(key),
            &problem,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_placement_is_refused() {
        for (spec, want) in [
            (
                json!({"tolerations": [{"key": "a", "operator": "Foo"}]}),
                "tolerations[0].operator: Unsupported value: \"Foo\": supported values: \"Equal\", \"Exists\"",
            ),
            (
                json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}),
                "tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            ),
            (
                json!({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3}]}),
                "tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            ),
            (
                json!({"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]}),
                "schedulingGates[1]: Duplicate value: \"a/b\"",
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            ),
            (
                json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}),
                "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
            ),
            (
                json!({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}}),
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
            ),
            (
                json!({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Foo"}]}}]}}}),
                "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].operator: Invalid value: \"Foo\": not a valid selector operator",
            ),
        ] {
            let mut errors = Vec::new();
            check(&spec, "spec", &mut errors);
            let found: Vec<_> = errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.message))
                .collect();
            assert_eq!(found, [format!("spec.{want}")]);
        }
    }
}
