//! Leases: leader election and node heartbeats.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, text};
use crate::objects::status::FieldError;

pub(super) struct Lease;

impl Rules for Lease {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(fields, "spec", json!({}));
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let duration = at(object, "spec.leaseDurationSeconds");
        if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
            errors.push(FieldError::invalid(
                "spec.leaseDurationSeconds",
                duration,
                "must be greater than 0",
            ));
        }
        let transitions = at(object, "spec.leaseTransitions");
        if transitions.as_i64().is_some_and(|count| count < 0) {
            errors.push(FieldError::invalid(
                "spec.leaseTransitions",
                transitions,
                "must be greater than or equal to 0",
            ));
        }
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("spec", json!({}))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Holder, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "spec.holderIdentity").into(),
            printer::created(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_positive() {
        for (seconds, errors) in [(1, 0), (0, 1), (-1, 1)] {
            let lease = json!({"spec": {"leaseDurationSeconds": seconds}});
            assert_eq!(
                Lease.validate(&lease, None, Write::Create).len(),
                errors,
                "{seconds}"
            );
        }
    }
}
