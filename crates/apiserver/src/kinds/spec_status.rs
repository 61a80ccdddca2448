//! Users write the spec, controllers the status: each path keeps the other's part.
//!
//! Also counts `metadata.generation`, which shows controllers that the spec changed.

use serde_json::{Value, json};

use crate::kinds::kind::Write;
use crate::objects::fields::{JsonObject, at, open, put};

/// On create `fresh` replaces whatever status was sent; later the main path keeps the stored
/// status, and the `status` path keeps everything but status and metadata.
pub(crate) fn separate_status(
    object: &mut Value,
    old: Option<&Value>,
    write: Write<'_>,
    fresh: impl FnOnce(&JsonObject) -> Value,
) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    match (old, write) {
        (None, _) => {
            let status = fresh(fields);
            fields.insert("status".to_owned(), status);
        }
        (Some(old), Write::Subresource("status")) => keep_all_but_status(fields, old),
        (Some(old), _) => put(fields, "status", old.get("status")),
    }
}

fn keep_all_but_status(object: &mut JsonObject, old: &Value) {
    let mine = |key: &str| ["apiVersion", "kind", "metadata", "status"].contains(&key);
    object.retain(|key, _| mine(key));
    for (key, value) in old.as_object().into_iter().flatten() {
        if !mine(key) {
            object.insert(key.clone(), value.clone());
        }
    }
}

/// Takes parts of the metadata from the stored object.
pub(super) fn keep_metadata(object: &mut Value, old: Option<&Value>, keys: &[&str]) {
    if let (Some(fields), Some(old)) = (object.as_object_mut(), old) {
        let metadata = open(fields, "metadata");
        for key in keys {
            put(metadata, key, at(old, "metadata").get(*key));
        }
    }
}

/// A generation of 1 on create, one more whenever the spec changes.
pub(crate) fn count_spec_changes(object: &mut Value, old: Option<&Value>) {
    let changed = old.is_none_or(|old| object.get("spec") != old.get("spec"));
    count(object, old, changed);
}

/// A generation of 1 on create, one more if `changed`.
pub(super) fn count(object: &mut Value, old: Option<&Value>, changed: bool) {
    let before = old.map_or(0, |old| {
        at(old, "metadata.generation").as_i64().unwrap_or_default()
    });
    let generation = before.saturating_add(i64::from(changed));
    if let Some(fields) = object.as_object_mut()
        && generation > 0
    {
        open(fields, "metadata").insert("generation".to_owned(), json!(generation));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_keeps_what_the_other_owns() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"s": 1}});
        let sent =
            json!({"metadata": {"labels": {"l": "v"}}, "spec": {"a": 2}, "status": {"s": 2}});
        for (case, old, write, spec, status, generation) in [
            (
                "create takes the spec",
                None,
                Write::Create,
                json!({"a": 2}),
                json!({}),
                1,
            ),
            (
                "update takes the spec",
                Some(&old),
                Write::Update,
                json!({"a": 2}),
                json!({"s": 1}),
                4,
            ),
            (
                "status takes the status",
                Some(&old),
                Write::Subresource("status"),
                json!({"a": 1}),
                json!({"s": 2}),
                3,
            ),
        ] {
            let mut object = sent.clone();
            separate_status(&mut object, old, write, |_| json!({}));
            count_spec_changes(&mut object, old);
            assert_eq!(object["spec"], spec, "{case}");
            assert_eq!(object["status"], status, "{case}");
            assert_eq!(object["metadata"]["generation"], generation, "{case}");
            assert_eq!(object["metadata"]["labels"]["l"], "v", "{case}");
        }
    }
}
