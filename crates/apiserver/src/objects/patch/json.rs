//! JSON patches: a list of operations, applied one after the other or not at all.
//!
//! As the real server reads them, `replace` of a missing key adds it, indexes count from the end when
//! negative, and testing a missing key for `null` succeeds.

use serde::Deserialize;
use serde_json::Value;

use crate::objects::decode;
use crate::objects::golang;
use crate::objects::status::Status;

/// The real server's limit.
const MAX_OPERATIONS: usize = 10_000;
/// Copying a value into itself, again and again, would otherwise grow an object without limit.
const MAX_DEPTH: usize = 120;
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

#[derive(Debug, Deserialize)]
pub(super) struct JsonPatchOperation {
    #[serde(default)]
    op: String,
    path: Option<String>,
    from: Option<String>,
    #[serde(default)]
    value: Value,
}

/// An operation cannot be applied. The response does not contain the reason.
#[derive(Debug, PartialEq)]
pub(super) struct OperationFailed;

pub(super) fn parse(patch: &[u8]) -> Result<Vec<JsonPatchOperation>, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let document: Value =
        serde_json::from_slice(patch).map_err(|error| refuse(decode::json_error(&error)))?;
    let cannot = |found: &Value, wanted: &str| {
        let found = golang::json_type(found);
        refuse(format!(
            "json: cannot unmarshal {found} into Go value of type {wanted}"
        ))
    };
    let operations = match document {
        Value::Array(operations) => operations,
        // No operations at all.
        Value::Null => Vec::new(),
        document => return Err(cannot(&document, "[]handlers.jsonPatchOp")),
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let parse = |operation: Value| {
        if !operation.is_object() {
            return Err(cannot(&operation, "handlers.jsonPatchOp"));
        }
        serde_json::from_value(operation).map_err(|error| refuse(error.to_string()))
    };
    operations.into_iter().map(parse).collect()
}

pub(super) fn apply(
    mut object: Value,
    operations: &[JsonPatchOperation],
) -> Result<Value, OperationFailed> {
    let mut copied = 0;
    for operation in operations {
        let path = JsonPointer::parse(operation.path.as_deref().ok_or(OperationFailed)?)?;
        let from = operation.from.as_deref();
        match operation.op.as_str() {
            "add" => add(&mut object, &path, operation.value.clone())?,
            "replace" => replace(&mut object, &path, operation.value.clone())?,
            "remove" => drop(remove(&mut object, &path)?),
            "test" => {
                let found = find(&object, &path)?;
                if found.unwrap_or(&Value::Null) != &operation.value {
                    return Err(OperationFailed);
                }
            }
            "copy" => {
                let from = JsonPointer::parse(from.ok_or(OperationFailed)?)?;
                let value = find(&object, &from)?.ok_or(OperationFailed)?.clone();
                copied += value.to_string().len();
                if copied > MAX_COPIED_BYTES {
                    return Err(OperationFailed);
                }
                add(&mut object, &path, value)?;
            }
            "move" => {
                let from = JsonPointer::parse(from.ok_or(OperationFailed)?)?;
                let value = remove(&mut object, &from)?;
                add(&mut object, &path, value)?;
            }
            _ => return Err(OperationFailed),
        }
    }
    Ok(object)
}

/// Why the operations cannot be applied, in the words of the library that the real server uses.
pub(super) fn explain(mut object: Value, operations: &[JsonPatchOperation]) -> String {
    for operation in operations {
        match apply(object.clone(), std::slice::from_ref(operation)) {
            Ok(patched) => object = patched,
            Err(OperationFailed) => return reason(&object, operation),
        }
    }
    String::new()
}

fn reason(object: &Value, operation: &JsonPatchOperation) -> String {
    let op = operation.op.as_str();
    let Some(path) = operation.path.as_deref() else {
        return format!("{op} operation failed to decode path: missing value");
    };
    let pointer = JsonPointer::parse(path).ok();
    let has_parent = pointer.as_ref().is_some_and(|pointer| {
        let mut object = object.clone();
        parent(&mut object, pointer).is_ok_and(|parent| parent.is_object() || parent.is_array())
    });
    let key = pointer.as_ref().and_then(|pointer| pointer.0.last());
    let key = key.map_or("", String::as_str);
    match op {
        "test" => format!("testing value {path} failed: test failed"),
        "add" | "remove" if !has_parent => {
            format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        "replace" if !has_parent => {
            format!("replace operation does not apply: doc is missing path: {path}: missing value")
        }
        "remove" => format!(
            "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
        ),
        "replace" => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        "add" => format!(
            "error in add for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
        ),
        "copy" | "move" => format!("error in {op} for path: '{path}'"),
        other => format!("Unexpected kind: {other}"),
    }
}

/// A JSON pointer (RFC 6901), unescaped.
struct JsonPointer(Vec<String>);

impl JsonPointer {
    fn parse(text: &str) -> Result<Self, OperationFailed> {
        let mut parts = text.split('/');
        // The part before the first slash is empty, and so is the pointer to the whole document.
        if parts.next() != Some("") {
            return Err(OperationFailed);
        }
        Ok(Self(
            parts
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
        ))
    }

    /// The way to the parent, and the last step.
    fn split(&self) -> Result<(&[String], &str), OperationFailed> {
        let (last, parent) = self.0.split_last().ok_or(OperationFailed)?;
        Ok((parent, last))
    }
}

fn parent<'a>(object: &'a mut Value, path: &JsonPointer) -> Result<&'a mut Value, OperationFailed> {
    let (way, _) = path.split()?;
    let mut here = object;
    for step in way {
        here = match here {
            Value::Object(map) => map.get_mut(step).ok_or(OperationFailed)?,
            Value::Array(items) => {
                let index = index(step, items.len())?;
                items.get_mut(index).ok_or(OperationFailed)?
            }
            _ => return Err(OperationFailed),
        };
    }
    Ok(here)
}

/// An index into a list of this length; negative ones count from its end.
fn index(step: &str, length: usize) -> Result<usize, OperationFailed> {
    let index: i64 = step.parse().map_err(|_| OperationFailed)?;
    let index = if index < 0 {
        index + length as i64
    } else {
        index
    };
    usize::try_from(index).map_err(|_| OperationFailed)
}

fn find<'a>(object: &'a Value, path: &JsonPointer) -> Result<Option<&'a Value>, OperationFailed> {
    let Ok((way, last)) = path.split() else {
        return Ok(Some(object));
    };
    let mut here = object;
    for step in way {
        here = match here {
            Value::Object(map) => map.get(step).ok_or(OperationFailed)?,
            Value::Array(items) => items
                .get(index(step, items.len())?)
                .ok_or(OperationFailed)?,
            _ => return Err(OperationFailed),
        };
    }
    match here {
        Value::Object(map) => Ok(map.get(last)),
        Value::Array(items) => Ok(Some(
            items
                .get(index(last, items.len())?)
                .ok_or(OperationFailed)?,
        )),
        _ => Err(OperationFailed),
    }
}

fn add(object: &mut Value, path: &JsonPointer, value: Value) -> Result<(), OperationFailed> {
    if path.0.len() + depth(&value) > MAX_DEPTH {
        return Err(OperationFailed);
    }
    let (_, last) = path.split()?;
    match parent(object, path)? {
        Value::Object(map) => {
            map.insert(last.to_owned(), value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(last, items.len() + 1)?;
            if index > items.len() {
                return Err(OperationFailed);
            }
            items.insert(index, value);
        }
        _ => return Err(OperationFailed),
    }
    Ok(())
}

fn replace(object: &mut Value, path: &JsonPointer, value: Value) -> Result<(), OperationFailed> {
    if path.0.len() + depth(&value) > MAX_DEPTH {
        return Err(OperationFailed);
    }
    let Ok((_, last)) = path.split() else {
        *object = value;
        return Ok(());
    };
    match parent(object, path)? {
        Value::Object(map) => {
            map.insert(last.to_owned(), value);
        }
        Value::Array(items) => {
            let index = index(last, items.len())?;
            *items.get_mut(index).ok_or(OperationFailed)? = value;
        }
        _ => return Err(OperationFailed),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &JsonPointer) -> Result<Value, OperationFailed> {
    let (_, last) = path.split()?;
    match parent(object, path)? {
        Value::Object(map) => map.shift_remove(last).ok_or(OperationFailed),
        Value::Array(items) => {
            let index = index(last, items.len())?;
            if index >= items.len() {
                return Err(OperationFailed);
            }
            Ok(items.remove(index))
        }
        _ => Err(OperationFailed),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn patch(object: Value, operations: Value) -> Result<Value, OperationFailed> {
        apply(object, &parse(operations.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn operations() {
        let object = json!({"a": {"b": 1}, "l": [1, 2, 3]});
        for (operation, want) in [
            (
                json!({"op": "add", "path": "/a/c", "value": 2}),
                Some(json!({"a": {"b": 1, "c": 2}, "l": [1, 2, 3]})),
            ),
            (
                json!({"op": "add", "path": "/a/c"}),
                Some(json!({"a": {"b": 1, "c": null}, "l": [1, 2, 3]})),
            ),
            (
                json!({"op": "add", "path": "/a/x~1y~0", "value": 2}),
                Some(json!({"a": {"b": 1, "x/y~": 2}, "l": [1, 2, 3]})),
            ),
            (
                json!({"op": "add", "path": "/l/0", "value": 0}),
                Some(json!({"a": {"b": 1}, "l": [0, 1, 2, 3]})),
            ),
            (
                json!({"op": "add", "path": "/l/-", "value": 4}),
                Some(json!({"a": {"b": 1}, "l": [1, 2, 3, 4]})),
            ),
            (json!({"op": "add", "path": "/l/9", "value": 4}), None),
            (json!({"op": "add", "path": "/nope/x", "value": 4}), None),
            (json!({"op": "add", "path": "", "value": {}}), None),
            (json!({"op": "add", "path": "a", "value": {}}), None),
            (
                json!({"op": "replace", "path": "/a/new", "value": 4}),
                Some(json!({"a": {"b": 1, "new": 4}, "l": [1, 2, 3]})),
            ),
            (json!({"op": "replace", "path": "/l/9", "value": 4}), None),
            (
                json!({"op": "replace", "path": "", "value": {}}),
                Some(json!({})),
            ),
            (
                json!({"op": "remove", "path": "/l/-1"}),
                Some(json!({"a": {"b": 1}, "l": [1, 2]})),
            ),
            (json!({"op": "remove", "path": "/a/nope"}), None),
            (json!({"op": "remove", "path": ""}), None),
            (
                json!({"op": "copy", "from": "/a/b", "path": "/c"}),
                Some(json!({"a": {"b": 1}, "l": [1, 2, 3], "c": 1})),
            ),
            (
                json!({"op": "move", "from": "/a/b", "path": "/c"}),
                Some(json!({"a": {}, "l": [1, 2, 3], "c": 1})),
            ),
            (json!({"op": "move", "from": "/a/z", "path": "/c"}), None),
            (
                json!({"op": "test", "path": "/a", "value": {"b": 1}}),
                Some(object.clone()),
            ),
            (json!({"op": "test", "path": "/a/b", "value": 2}), None),
            (
                json!({"op": "test", "path": "/a/nope", "value": null}),
                Some(object.clone()),
            ),
            (json!({"op": "test", "path": "", "value": {}}), None),
            (json!({"op": "foo", "path": "/a"}), None),
            (json!({"op": "add", "value": 1}), None),
        ] {
            let got = patch(object.clone(), json!([operation]));
            assert_eq!(got.ok(), want, "{operation}");
        }
    }

    #[test]
    fn the_operation_that_failed_is_explained() {
        for (operation, want) in [
            (
                json!({"op": "add", "path": "/x/y", "value": 1}),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!({"op": "remove", "path": "/a/z"}),
                "error in remove for path: '/a/z': Unable to remove nonexistent key: z: missing value",
            ),
            (
                json!({"op": "test", "path": "/a/b", "value": 2}),
                "testing value /a/b failed: test failed",
            ),
        ] {
            let good = json!({"op": "add", "path": "/c", "value": 1});
            let patch = json!([good, operation]).to_string();
            let operations = parse(patch.as_bytes()).unwrap();
            assert_eq!(explain(json!({"a": {"b": 1}}), &operations), want);
        }
    }

    #[test]
    fn growth_is_limited() {
        let copy = json!({"op": "copy", "from": "/a", "path": "/a/a"});
        assert_eq!(
            patch(json!({"a": {}}), json!(vec![copy; 200])),
            Err(OperationFailed)
        );
        let wide = json!({"op": "copy", "from": "/l", "path": "/l/-"});
        assert_eq!(
            patch(json!({"l": ["x".repeat(1000)]}), json!(vec![wide; 30])),
            Err(OperationFailed)
        );
        let many = json!(vec![
            json!({"op": "test", "path": "/a", "value": 1});
            10_001
        ]);
        assert_eq!(parse(many.to_string().as_bytes()).unwrap_err().code, 413);
    }

    proptest! {
        #[test]
        fn no_patch_panics(
            op in "add|remove|replace|copy|move|test",
            path in "(/(a|b|l|0|1|-|-1|99|~|~0|)){0,4}",
            from in "(/(a|b|l|0|-1)){0,3}",
        ) {
            let object = json!({"a": {"b": [1, {"l": 2}]}, "l": [[], {}, null]});
            let operation = json!([{"op": op, "path": path, "from": from, "value": {"x": []}}]);
            let _ = patch(object, operation);
        }
    }
}
