//! Merge patches: objects merge, `null` removes, everything else replaces.

use serde_json::Value;

use crate::objects::fields::JsonObject;

pub(super) fn apply(target: &mut Value, patch: &JsonObject) {
    if !target.is_object() {
        *target = Value::Object(JsonObject::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.shift_remove(key);
            }
            Value::Object(patch) => {
                let slot = target.entry(key.clone()).or_insert(Value::Null);
                apply(slot, patch);
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_merge_and_null_removes() {
        for (object, patch, want) in [
            (
                json!({"a": 1, "b": {"c": 2}}),
                json!({"b": {"d": 3}}),
                json!({"a": 1, "b": {"c": 2, "d": 3}}),
            ),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": null, "z": null}),
                json!({"b": 2}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                json!({"a": "x"}),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
        ] {
            let mut got = object;
            apply(&mut got, patch.as_object().unwrap());
            assert_eq!(got, want);
        }
    }
}
