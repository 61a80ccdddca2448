//! Priority classes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::spec_status;
use crate::kinds::kind::{Column, Lookup, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, text};
use crate::objects::status::{FieldError, Status};

/// Above it are only the classes of the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";

pub(super) struct PriorityClass;

/// The two classes that exist from the start.
pub(super) fn system_classes() -> Vec<Value> {
    let class = |name: &str, value: i64, what: &str| {
        json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1",
            "metadata": {"name": name}, "value": value,
            "description": format!("Used for system critical pods that must {what}"),
        })
    };
    vec![
        class(
            "system-node-critical",
            2_000_001_000,
            "not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

impl Rules for PriorityClass {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(fields, "value", 0);
            fill(fields, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    fn prepare(&self, object: &mut Value, old: Option<&Value>, _write: Write<'_>) {
        spec_status::count(object, old, old.is_none());
    }

    fn admit(
        &self,
        object: &mut Value,
        _old: Option<&Value>,
        _write: Write<'_>,
        others: &dyn Lookup,
    ) -> Result<(), Status> {
        if at(object, "globalDefault") != &Value::Bool(true) {
            return Ok(());
        }
        let name = text(object, "metadata.name");
        match global_default(others) {
            Some(class) if text(&class, "metadata.name") != name => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    text(&class, "metadata.name"),
                );
                Err(Status::forbidden(
                    "scheduling.k8s.io",
                    "priorityclasses",
                    name,
                    why,
                ))
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = text(object, "metadata.name");
        let value = at(object, "value");
        let known = system_classes()
            .iter()
            .any(|class| text(class, "metadata.name") == name && class.get("value") == Some(value));
        if name.starts_with(SYSTEM_PREFIX) && !known {
            let detail = format!(
                "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {name} is not a known system priority class"
            );
            errors.push(FieldError::forbidden("metadata.name", &detail));
        } else if !known
            && value
                .as_i64()
                .is_some_and(|value| value > HIGHEST_USER_PRIORITY)
        {
            let detail = format!(
                "maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            );
            errors.push(FieldError::forbidden("value", &detail));
        }
        let policy = at(object, "preemptionPolicy");
        let policies = ["PreemptLowerPriority", "Never"];
        if !policies.contains(&policy.as_str().unwrap_or_default()) {
            errors.push(FieldError::not_supported(
                "preemptionPolicy",
                policy,
                &policies,
            ));
        }
        if let Some(old) = old {
            if old.get("value") != object.get("value") {
                errors.push(FieldError::forbidden(
                    "value",
                    "may not be changed in an update.",
                ));
            }
            if old.get("preemptionPolicy") != object.get("preemptionPolicy") {
                errors.push(FieldError::invalid(
                    "preemptionPolicy",
                    policy,
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
        vec![("value", json!(0))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Value:integer, Global-Default:boolean, Age, PreemptionPolicy")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            at(object, "value").clone(),
            json!(at(object, "globalDefault") == &Value::Bool(true)),
            printer::created(object, now),
            text(object, "preemptionPolicy").into(),
        ]
    }
}

/// The class of pods that name none. Admission keeps it unique; if there are more, the lowest wins.
pub(super) fn global_default(others: &dyn Lookup) -> Option<std::sync::Arc<Value>> {
    others
        .list("scheduling.k8s.io", "priorityclasses", "")
        .into_iter()
        .filter(|class| at(class, "globalDefault") == &Value::Bool(true))
        .min_by_key(|class| at(class, "value").as_i64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_stay_below_system_priorities() {
        for (name, value, want) in [
            ("mine", 1_000_000_000, None),
            ("mine", 1_000_000_001, Some("value")),
            ("system-mine", 5, Some("metadata.name")),
            ("system-node-critical", 2_000_001_000, None),
            ("system-node-critical", 7, Some("metadata.name")),
        ] {
            let mut class = json!({"metadata": {"name": name}, "value": value});
            PriorityClass.default(&mut class);
            let errors = PriorityClass.validate(&class, None, Write::Create);
            assert_eq!(
                errors.first().map(|e| e.field.as_str()),
                want,
                "{name} {value}"
            );
        }
    }
}
