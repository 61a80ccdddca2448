//! The `scale` subresource of a custom kind: the paths of its fields, and their validation.

use serde_json::{Value, json};

use crate::kinds::kind::{Name, ScalePaths};
use crate::objects::fields::{at, text};
use crate::objects::status::FieldError;

pub(super) fn paths(version: &Value) -> Option<ScalePaths> {
    let scale = at(version, "subresources").get("scale")?;
    let path = |key: &str| {
        let path = text(scale, key).trim_start_matches('.');
        (!path.is_empty()).then(|| Name::from(path.to_owned()))
    };
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

/// The values at the paths of the subresource must be numbers of replicas.
pub(super) fn check(object: &Value, paths: &ScalePaths, errors: &mut Vec<FieldError>) {
    for path in [&paths.spec_replicas, &paths.status_replicas] {
        let field = format!(".{path}");
        match find(object, path) {
            Ok(Some(replicas)) if replicas < 0 => {
                let detail = "should be a non-negative integer";
                errors.push(FieldError::invalid(field, &json!(replicas), detail));
            }
            Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(field, &json!(replicas), &detail));
            }
            Ok(_) => {}
            Err(problem) => {
                let detail = format!("{field} accessor error: {problem}");
                errors.push(FieldError::invalid(field, &json!(0), &detail));
            }
        }
    }
}

fn find(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let mut value = object;
    for key in path.split('.') {
        let Some(fields) = value.as_object() else {
            return Err(wrong(value, "map[string]interface{}"));
        };
        match fields.get(key) {
            None => return Ok(None),
            Some(found) => value = found,
        }
    }
    value
        .as_i64()
        .map(Some)
        .ok_or_else(|| wrong(value, "int64"))
}

/// The message of the real server, which is Go's.
fn wrong(value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("{shown} is of the type {kind}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_in_whole_numbers_from_zero() {
        let version = json!({"subresources": {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}});
        let paths = paths(&version).unwrap();
        for (object, want) in [
            (json!({"spec": {"n": 3}}), ""),
            (json!({}), ""),
            (
                json!({"spec": {"n": -1}}),
                "Invalid value: -1: should be a non-negative integer",
            ),
            (
                json!({"spec": {"n": "x"}}),
                "Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64",
            ),
            (
                json!({"spec": []}),
                "Invalid value: 0: .spec.n accessor error: [] is of the type []interface {}, expected map[string]interface{}",
            ),
        ] {
            let mut errors = Vec::new();
            check(&object, &paths, &mut errors);
            let found: Vec<_> = errors.iter().map(|e| e.message.as_str()).collect();
            assert_eq!(found.join(" "), want, "{object}");
        }
    }
}
