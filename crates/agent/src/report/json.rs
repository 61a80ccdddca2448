//! Paths and differences of JSON values.

use serde_json::{Map, Value};

/// The value at a path; null if there is none.
pub(super) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, key| &value[*key])
}

/// Puts a value at a path; objects on the way are made.
pub(super) fn put(target: &mut Value, path: &[&str], value: Value) {
    let place = path.iter().fold(target, |place, key| {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        &mut place[*key]
    });
    *place = value;
}

/// The merge patch that turns one value into the other: null removes a key, a list is replaced as a whole.
pub(super) fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(present) if present == value => {}
            Some(present) => {
                patch.insert(key.clone(), difference(present, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Whether everything wanted is there; the server may have added defaults.
pub(super) fn covers(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            let present = present.get(key).unwrap_or(&Value::Null);
            covers(present, wanted)
        }),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(a, b)| covers(a, b))
        }
        _ => present == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_changes_removes_and_adds() {
        let old = json!({"same": 1, "gone": 2, "map": {"a": 1, "b": 2}, "list": [1, 2]});
        let new = json!({"same": 1, "map": {"a": 1, "c": 3}, "list": [2], "new": {"x": 1}});
        let want = json!({"gone": null, "map": {"b": null, "c": 3}, "list": [2], "new": {"x": 1}});
        assert_eq!(difference(&old, &new), want);
        assert_eq!(difference(&Value::Null, &new), new);
    }

    #[test]
    fn defaults_of_the_server_are_no_difference() {
        for (present, wanted, want) in [
            (json!({"a": 1, "default": 2}), json!({"a": 1}), true),
            (json!({"default": 2}), json!({"a": 1}), false),
            (json!({"a": 1}), json!({"a": null}), false),
            (json!({}), json!({"a": null}), true),
            (json!([{"a": 1, "b": 2}]), json!([{"a": 1}]), true),
            (json!([{"a": 1}, {"a": 2}]), json!([{"a": 1}]), false),
            (json!(null), json!({"a": 1}), false),
        ] {
            assert_eq!(covers(&present, &wanted), want, "{present} {wanted}");
        }
    }

    #[test]
    fn a_path_is_made_where_it_is_missing() {
        let mut value = json!({"status": null});
        put(&mut value, &["status", "a", "b"], json!(1));
        assert_eq!(value, json!({"status": {"a": {"b": 1}}}));
        assert_eq!(at(&value, &["status", "a", "b"]), &json!(1));
        assert_eq!(at(&value, &["spec", "a"]), &Value::Null);
    }
}
