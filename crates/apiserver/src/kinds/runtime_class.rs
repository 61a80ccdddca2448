//! Runtime classes, with the overhead of their pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::kind::{Column, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, text};
use crate::objects::names::dns_label;
use crate::objects::status::FieldError;

pub(super) struct RuntimeClass;

impl Rules for RuntimeClass {
    fn default(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fill(fields, "handler", "");
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let handler = text(object, "handler");
        if handler.is_empty() {
            return vec![FieldError::required("handler", "")];
        }
        if old.is_some_and(|old| text(old, "handler") != handler) {
            return vec![FieldError::invalid(
                "handler",
                at(object, "handler"),
                "field is immutable",
            )];
        }
        let problem = dns_label(handler);
        let error = |problem: String| FieldError::invalid("handler", &json!(handler), &problem);
        problem.map(error).into_iter().collect()
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        vec![("handler", json!(""))]
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Handler, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "handler").into(),
            printer::created(object, now),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_is_a_dns_label_and_immutable() {
        let old = json!({"handler": "a"});
        for (handler, old, errors) in [
            ("a", None, 0),
            ("", None, 1),
            ("A", None, 1),
            ("b", Some(&old), 1),
        ] {
            let found = RuntimeClass.validate(&json!({"handler": handler}), old, Write::Create);
            assert_eq!(found.len(), errors, "{handler:?}");
        }
    }
}
