//! Fills in the defaults of a schema.

use serde_json::Value;

use super::validation_schema::ValidationSchema;

/// Sets defaults in present objects, at every depth. A `null` where the schema has a
/// default and does not allow `null` counts as absent.
pub(super) fn fill(value: &mut Value, shape: &ValidationSchema) {
    match value {
        Value::Object(fields) => {
            for (name, shape) in &shape.properties {
                let Some(default) = &shape.default else {
                    continue;
                };
                match fields.get_mut(name) {
                    None => {
                        fields.insert(name.clone(), default.clone());
                    }
                    Some(found) if found.is_null() && !shape.nullable => *found = default.clone(),
                    Some(_) => {}
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(shape) = shape.field(name) {
                    fill(field, shape);
                }
            }
        }
        Value::Array(list) => {
            if let Some(shape) = &shape.items {
                list.iter_mut().for_each(|item| fill(item, shape));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_reach_every_object_that_is_there() {
        let shape = ValidationSchema::parse(&json!({"type": "object", "properties": {
            "n": {"type": "integer", "default": 3},
            "nullable": {"type": "string", "nullable": true, "default": "d"},
            "made": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 5}}},
            "optional": {"type": "object", "properties": {"deep": {"type": "integer", "default": 5}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"v": {"type": "integer", "default": 7}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer", "default": 7}}}},
        }}));
        for (case, given, want) in [
            (
                "nothing",
                json!({}),
                json!({"n": 3, "nullable": "d", "made": {"deep": 5}}),
            ),
            (
                "null",
                json!({"n": null, "nullable": null, "made": null}),
                json!({"n": 3, "nullable": null, "made": {"deep": 5}}),
            ),
            (
                "inside",
                json!({"n": 1, "nullable": "x", "made": {"deep": 1}, "optional": {}, "list": [{}, {"v": 1}], "map": {"a": {}}}),
                json!({"n": 1, "nullable": "x", "made": {"deep": 1}, "optional": {"deep": 5}, "list": [{"v": 7}, {"v": 1}], "map": {"a": {"v": 7}}}),
            ),
        ] {
            let mut value = given;
            fill(&mut value, &shape);
            assert_eq!(value, want, "{case}");
        }
    }
}
