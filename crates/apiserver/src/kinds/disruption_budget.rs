//! Pod disruption budgets: how many pods must stay available. `handlers/eviction` checks them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::workload::check_amount;
use super::{pod, spec_status};
use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{JsonObject, at, fill, is_empty, items, number, open};
use crate::objects::status::FieldError;

const COUNTS: [&str; 4] = [
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
];

pub(super) struct DisruptionBudget;

impl Rules for DisruptionBudget {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            open(fields, "spec");
            fill_counts(open(fields, "status"));
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, write: Write<'_>) {
        spec_status::separate_status(object, old, write, |_| no_counts());
        spec_status::count_spec_changes(object, old);
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if write == Write::Subresource("status") {
            check_conditions(object, &mut errors);
            return errors;
        }
        let spec = at(object, "spec");
        if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            errors.push(FieldError::invalid("spec", spec, detail));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            let amount = at(spec, field);
            let field = format!("spec.{field}");
            check_amount(amount, &field, &mut errors);
            let percent = amount
                .as_str()
                .and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
            if percent.is_some_and(|percent| percent > 100) {
                errors.push(FieldError::invalid(
                    field,
                    amount,
                    "must not be greater than 100%",
                ));
            }
        }
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        let policy = at(spec, "unhealthyPodEvictionPolicy");
        if policy
            .as_str()
            .is_some_and(|policy| !policies.contains(&policy))
        {
            errors.push(FieldError::not_supported(
                "spec.unhealthyPodEvictionPolicy",
                policy,
                &policies,
            ));
        }
        pod::check_label_selector(at(spec, "selector"), "spec.selector", &mut errors);
        errors
    }

    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::path_segment(name)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({})), ("status", no_counts())]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Min Available, Max Unavailable, Allowed Disruptions:integer, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let amount = |path: &str| match at(object, path) {
            Value::Null => "N/A".to_owned(),
            Value::String(share) => share.clone(),
            count => count.to_string(),
        };
        vec![
            printer::name(object),
            amount("spec.minAvailable").into(),
            amount("spec.maxUnavailable").into(),
            json!(number(object, "status.disruptionsAllowed")),
            printer::created(object, now),
        ]
    }
}

fn fill_counts(status: &mut JsonObject) {
    for count in COUNTS {
        fill(status, count, 0);
    }
}

fn no_counts() -> Value {
    let mut counts = JsonObject::new();
    fill_counts(&mut counts);
    Value::Object(counts)
}

fn check_conditions(object: &Value, errors: &mut Vec<FieldError>) {
    for (i, condition) in items(object, "status.conditions").iter().enumerate() {
        for field in ["lastTransitionTime", "reason"] {
            if is_empty(at(condition, field)) {
                errors.push(FieldError::required(
                    format!("status.conditions[{i}].{field}"),
                    "",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_budgets_are_refused() {
        for (case, spec, want) in [
            ("a number", json!({"minAvailable": 1}), None),
            ("a share", json!({"maxUnavailable": "100%"}), None),
            (
                "both",
                json!({"minAvailable": 1, "maxUnavailable": 1}),
                Some("spec"),
            ),
            (
                "too much",
                json!({"minAvailable": "101%"}),
                Some("spec.minAvailable"),
            ),
            (
                "less than none",
                json!({"minAvailable": -1}),
                Some("spec.minAvailable"),
            ),
            (
                "another policy",
                json!({"unhealthyPodEvictionPolicy": "X"}),
                Some("spec.unhealthyPodEvictionPolicy"),
            ),
        ] {
            let errors = DisruptionBudget.validate(&json!({"spec": spec}), None, Write::Create);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }

    #[test]
    fn a_row_shows_the_spec() {
        let now = Timestamp::UNIX_EPOCH;
        let cells = DisruptionBudget.cells(
            &json!({"metadata": {"name": "p"}, "spec": {"minAvailable": "50%"}}),
            now,
        );
        assert_eq!(cells[1..4], [json!("50%"), json!("N/A"), json!(0)]);
    }
}
