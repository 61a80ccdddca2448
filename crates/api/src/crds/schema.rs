//! Parts of schemas that several definitions use.

use serde_json::{Value, json};

/// In the format of Kubernetes.
const QUANTITY: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$";

/// The most resources in one object. Rules over longer lists exceed the API server's cost limit.
const MOST_RESOURCES: u32 = 64;

pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn one_of(description: &str, values: &[&str]) -> Value {
    json!({"type": "string", "description": description, "enum": values})
}

pub(super) fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

pub(super) fn quantity() -> Value {
    json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY,
        "maxLength": 40,
        "x-kubernetes-int-or-string": true,
    })
}

/// Amounts by resource, not negative.
pub(super) fn resources(description: &str) -> Value {
    let mut schema = unchecked_resources(description);
    schema["x-kubernetes-validations"] = json!([{
        "rule": "self.all(name, !quantity(string(self[name])).isLessThan(quantity('0')))",
        "message": "amounts must not be negative",
    }]);
    schema
}

/// Amounts by resource, without a rule for each, because there may be too many.
pub(super) fn unchecked_resources(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "maxProperties": MOST_RESOURCES,
        "additionalProperties": quantity(),
    })
}

pub(super) fn object(description: &str, required: &[&str], properties: Value) -> Value {
    let mut schema = json!({"type": "object", "description": description});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["properties"] = properties;
    schema
}

pub(super) fn list(most: usize, items: Value) -> Value {
    json!({"type": "array", "maxItems": most, "items": items})
}

/// A map of strings.
pub(super) fn attributes() -> Value {
    let pair = object(
        "An attribute.",
        &["name", "value"],
        json!({"name": text("Its name."), "value": text("Its value.")}),
    );
    list(64, pair)
}
