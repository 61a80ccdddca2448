//! The JSON patch (RFC 6902) from one object to another.

use serde_json::{Value, json};

/// A list with more changes is replaced as a whole: many operations cost more than a long one.
const MOST_IN_LIST: usize = 200;

/// The operations that make `after` of `before`. Lists of the same length are compared element by element.
pub fn json_patch(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(before, after, &mut String::new(), &mut operations);
    operations
}

fn compare(before: &Value, after: &Value, path: &mut String, operations: &mut Vec<Value>) {
    let length = path.len();
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                step(path, key);
                operations.push(json!({"op": "remove", "path": path}));
                path.truncate(length);
            }
            for (key, value) in new {
                step(path, key);
                match old.get(key) {
                    None => operations.push(json!({"op": "add", "path": path, "value": value})),
                    Some(old) => compare(old, value, path, operations),
                }
                path.truncate(length);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let count = operations.len();
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                step(path, &i.to_string());
                compare(old, new, path, operations);
                path.truncate(length);
                if operations.len() - count > MOST_IN_LIST {
                    operations.truncate(count);
                    operations.push(json!({"op": "replace", "path": path, "value": after}));
                    return;
                }
            }
        }
        _ if before == after => {}
        _ => operations.push(json!({"op": "replace", "path": path, "value": after})),
    }
}

fn step(path: &mut String, key: &str) {
    path.push('/');
    match key.contains(['~', '/']) {
        true => path.push_str(&key.replace('~', "~0").replace('/', "~1")),
        false => path.push_str(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations() {
        let before = json!({"a": 1, "b": {"x/y": "1", "~": 2}, "c": [1, 2], "d": [1]});
        let after =
            json!({"b": {"x/y": "2", "~": 2, "new": {}}, "c": [1, 3], "d": [1, 2], "e": null});
        assert_eq!(
            json!(json_patch(&before, &after)),
            json!([
                {"op": "remove", "path": "/a"},
                {"op": "replace", "path": "/b/x~1y", "value": "2"},
                {"op": "add", "path": "/b/new", "value": {}},
                {"op": "replace", "path": "/c/1", "value": 3},
                {"op": "replace", "path": "/d", "value": [1, 2]},
                {"op": "add", "path": "/e", "value": null},
            ])
        );
        assert!(json_patch(&before, &before).is_empty());
        let many = |value: u32| json!({"list": vec![value; MOST_IN_LIST + 1]});
        assert_eq!(json_patch(&many(1), &many(2)).len(), 1);
    }
}
