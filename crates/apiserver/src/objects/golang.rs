//! Values as Go prints them, for the error messages that quote them.

use serde_json::Value;

/// As `%v`: `map[image:i:3 name:c]`, `[a b]`, `<nil>`; keys are sorted.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{key}:{}", text(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// As `%#v`: `map[string]interface {}{"x":1}`, `[]interface {}{1, "b"}`.
pub(crate) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries
                .into_iter()
                .map(|(key, value)| format!("{key:?}:{}", syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

/// What JSON calls the type of a value, as Go's decoder names it.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_printed_as_in_go() {
        let value = json!({"name": "c", "image": "i:3", "args": ["a", 1, null]});
        assert_eq!(text(&value), "map[args:[a 1 <nil>] image:i:3 name:c]");
        assert_eq!(
            syntax(&json!({"x": [1, "b"]})),
            "map[string]interface {}{\"x\":[]interface {}{1, \"b\"}}"
        );
    }
}
