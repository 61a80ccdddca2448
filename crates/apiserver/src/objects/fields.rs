//! Reading and filling the fields of a JSON object.
//!
//! Objects come from clients: nothing here panics when a field has another type than expected,
//! it then counts as absent.

use serde_json::{Map, Value};

pub(crate) type JsonObject = Map<String, Value>;

/// The value at a dotted path, `null` when there is none.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .fold(object, |value, key| value.get(key).unwrap_or(&Value::Null))
}

/// The text at a dotted path, empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The whole number at a dotted path, 0 when there is none.
pub(crate) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or_default()
}

/// The items at a dotted path, none when there is no list.
pub(crate) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// The value of a label: label keys have dots, so a path cannot name them.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, "metadata.labels").get(key)?.as_str()
}

/// Whether there is nothing: no value, `null`, or an empty text, list or map.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Sets a field that is absent, `null` or an empty text.
pub(crate) fn fill(object: &mut JsonObject, key: &str, value: impl Into<Value>) {
    match object.get_mut(key) {
        None => {
            object.insert(key.to_owned(), value.into());
        }
        Some(found) if found.is_null() || found == "" => *found = value.into(),
        Some(_) => {}
    }
}

/// The object in a field; made if there is none.
pub(crate) fn open<'a>(object: &'a mut JsonObject, key: &str) -> &'a mut JsonObject {
    let value = object.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(JsonObject::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("made an object above"),
    }
}

/// The object in a field, if there is one.
pub(crate) fn inside<'a>(object: &'a mut JsonObject, key: &str) -> Option<&'a mut JsonObject> {
    object.get_mut(key)?.as_object_mut()
}

/// The objects of a list.
pub(crate) fn each<'a>(
    object: &'a mut JsonObject,
    key: &str,
) -> impl Iterator<Item = &'a mut JsonObject> {
    object
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Sets a field, or removes it when there is nothing to keep.
pub(crate) fn put(object: &mut JsonObject, key: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            object.insert(key.to_owned(), value.clone());
        }
        None => {
            object.shift_remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_of_another_type_counts_as_absent() {
        let object = json!({"a": {"b": "x"}, "n": 5, "l": [1]});
        for (path, want) in [
            ("a.b", "x"),
            ("a.c", ""),
            ("n.b", ""),
            ("l.b", ""),
            ("n", ""),
        ] {
            assert_eq!(text(&object, path), want, "{path}");
        }
        assert!(items(&object, "a").is_empty());
    }

    #[test]
    fn filling_keeps_what_is_there_and_replaces_null() {
        let mut object = json!({"kept": false, "null": null, "text": "t"});
        let fields = object.as_object_mut().unwrap();
        for key in ["kept", "null", "new"] {
            fill(fields, key, true);
        }
        open(fields, "text").insert("x".into(), json!(1));
        assert_eq!(
            object,
            json!({"kept": false, "null": true, "new": true, "text": {"x": 1}})
        );
    }
}
