//! Merges an applied configuration into an object, and removes what is no longer applied.

use std::collections::HashMap;

use serde_json::Value;

use super::compare::{OwnershipView, element_key, view};
use super::set::{FieldSet, PathNode, value_element};
use crate::objects::schema::{ListType, Schema, StructTypes, Type};

/// `object` with all fields of `applied`.
pub(super) fn merge(schema: &Schema, object: Value, applied: &Value) -> Value {
    let root = Type::Struct(schema.root_id());
    merge_value(schema.types(), &root, Some(object), applied)
}

fn merge_value(types: &StructTypes, ty: &Type, old: Option<Value>, applied: &Value) -> Value {
    let view = view(types, ty, applied);
    // An empty map or list owns nothing below it.
    if applied.is_null() && !matches!(view, OwnershipView::Leaf) {
        return old.unwrap_or(Value::Null);
    }
    match (view, old, applied) {
        (OwnershipView::Fields(entries), old, Value::Object(applied)) => {
            let mut merged = match old {
                Some(Value::Object(old)) => old,
                _ => serde_json::Map::new(),
            };
            for (key, value) in applied {
                let old = merged.get_mut(key).map(Value::take);
                let value = merge_value(types, entries.get(key), old, value);
                merged.insert(key.clone(), value);
            }
            Value::Object(merged)
        }
        (OwnershipView::Keyed(list, keys), Some(Value::Array(old)), Value::Array(applied)) => {
            merge_keyed(types, list, keys, old, applied)
        }
        (OwnershipView::Members, Some(Value::Array(old)), Value::Array(applied)) => {
            let element = |value: &Value| Some(value_element(value));
            let pairs = interleave(old, applied, element);
            Value::Array(
                pairs
                    .into_iter()
                    .filter_map(|(old, new)| new.cloned().or(old))
                    .collect(),
            )
        }
        (_, _, applied) => applied.clone(),
    }
}

fn merge_keyed(
    types: &StructTypes,
    list: &ListType,
    keys: &[String],
    old: Vec<Value>,
    applied: &[Value],
) -> Value {
    let element = |value: &Value| element_key(types, list, keys, value);
    let merge_one = |(old, new): (Option<Value>, Option<&Value>)| match new {
        Some(new) => Some(merge_value(types, &list.item, old, new)),
        None => old,
    };
    let pairs = interleave(old, applied, element);
    Value::Array(pairs.into_iter().filter_map(merge_one).collect())
}

/// Pairs the elements of two lists and settles their order: that of `applied`, and an element that only
/// `old` has stays before the shared element that it stood before, unless that one has moved forward.
fn interleave(
    old: Vec<Value>,
    applied: &[Value],
    element: impl Fn(&Value) -> Option<String>,
) -> Vec<(Option<Value>, Option<&Value>)> {
    let old: Vec<(Option<String>, Value)> = old
        .into_iter()
        .map(|value| (element(&value), value))
        .collect();
    let places: HashMap<&String, usize> = old
        .iter()
        .enumerate()
        .rev()
        .filter_map(|(place, (key, _))| Some((key.as_ref()?, place)))
        .collect();
    // For each applied element, where it stands in `old`.
    let shared: Vec<Option<usize>> = applied
        .iter()
        .map(|value| places.get(&element(value)?).copied())
        .collect();
    let mut in_applied = vec![false; old.len()];
    for place in shared.iter().flatten() {
        in_applied[*place] = true;
    }
    let mut old: Vec<Option<Value>> = old.into_iter().map(|(_, value)| Some(value)).collect();
    let mut out = Vec::new();
    let mut next = 0;
    for place in 0..old.len() {
        if !in_applied[place] {
            out.push((old[place].take(), None));
            continue;
        }
        let next_shared = (next..applied.len()).find(|index| shared[*index].is_some());
        if let Some(index) = next_shared.filter(|index| shared[*index] == Some(place)) {
            for index in next..=index {
                let old = shared[index].and_then(|place| old[place].take());
                out.push((old, Some(&applied[index])));
            }
            next = index + 1;
        }
    }
    for index in next..applied.len() {
        let old = shared[index].and_then(|place| old[place].take());
        out.push((old, Some(&applied[index])));
    }
    out
}

/// Removes the fields in `gone` that no manager in `kept` owns, with the maps and lists around them that no
/// other manager owns.
pub(super) fn prune(schema: &Schema, object: &mut Value, gone: &FieldSet, kept: &FieldSet) {
    let root = Type::Struct(schema.root_id());
    prune_value(schema.types(), &root, object, gone, kept);
}

fn prune_value(
    types: &StructTypes,
    ty: &Type,
    value: &mut Value,
    gone: &FieldSet,
    kept: &FieldSet,
) {
    let nothing = PathNode::default();
    match (view(types, ty, value), &mut *value) {
        (OwnershipView::Fields(entries), Value::Object(map)) => {
            for (element, node) in gone.iter() {
                let Some(name) = element.strip_prefix("f:") else {
                    continue;
                };
                let kept = kept.get(element).unwrap_or(&nothing);
                if let Some(child) = map.get_mut(name)
                    && prune_child(types, entries.get(name), child, node, kept)
                {
                    map.shift_remove(name);
                }
            }
        }
        (OwnershipView::Keyed(list, keys), Value::Array(items)) => {
            let elements: Vec<Option<String>> = items
                .iter()
                .map(|item| element_key(types, list, keys, item))
                .collect();
            let mut elements = elements.into_iter();
            items.retain_mut(|item| {
                let Some((element, node)) = elements
                    .next()
                    .flatten()
                    .and_then(|element| gone.get(&element).map(|node| (element, node)))
                else {
                    return true;
                };
                let kept = kept.get(&element).unwrap_or(&nothing);
                // An element that no manager applies any more is removed with all its fields, owned or not.
                let abandoned = node.member && !kept.member;
                !abandoned && !prune_child(types, &list.item, item, node, kept)
            });
        }
        (OwnershipView::Members, Value::Array(items)) => items.retain(|item| {
            let element = value_element(item);
            gone.get(&element).is_none() || kept.get(&element).is_some()
        }),
        _ => (),
    }
}

/// Whether the whole child is removed: no remaining manager owns it or a field in it.
fn prune_child(
    types: &StructTypes,
    ty: &Type,
    child: &mut Value,
    gone: &PathNode,
    kept: &PathNode,
) -> bool {
    if kept.is_empty() {
        return true;
    }
    prune_value(types, ty, child, &gone.below, &kept.below);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merge_pod(old: Value, applied: Value) -> Value {
        merge(&Schema::builtin("v1", "Pod").unwrap(), old, &applied)
    }

    #[test]
    fn lists_merge_by_key_and_atomic_values_are_replaced() {
        let old = json!({"spec": {
            "containers": [{"name": "c", "image": "1", "args": ["a"], "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
            "nodeSelector": {"a": "b"}, "securityContext": {"runAsUser": 1},
        }});
        let applied = json!({"spec": {
            "containers": [
                {"name": "z"},
                {"name": "c", "args": ["b"], "ports": [{"containerPort": 80, "name": "x"}, {"containerPort": 81}]},
            ],
            "nodeSelector": {"x": "y"}, "securityContext": null, "nodeName": null,
        }});
        assert_eq!(
            merge_pod(old, applied),
            json!({"spec": {
                "containers": [
                    {"name": "z"},
                    {"name": "c", "image": "1", "args": ["b"],
                        "ports": [{"containerPort": 80, "protocol": "TCP", "name": "x"}, {"containerPort": 81}]},
                ],
                "nodeSelector": {"x": "y"}, "securityContext": {"runAsUser": 1}, "nodeName": null,
            }})
        );
    }

    /// Orders that kube-apiserver v1.36.4 produced.
    #[test]
    fn elements_keep_their_place() {
        for (old, applied, want) in [
            ("cd", "ed", "ced"),
            ("zc", "qzrc", "qzrc"),
            ("abec", "cbdf", "aecbdf"),
            ("decb", "cgde", "cbgde"),
            ("adebc", "efcad", "ebfcad"),
            ("bde", "fdgb", "fdegb"),
            ("dge", "jed", "gjed"),
            ("egbch", "jhbai", "egcjhbai"),
            ("facdhbg", "ifaegch", "ifadbegch"),
            ("", "ab", "ab"),
            ("ab", "", "ab"),
        ] {
            let list = |text: &str| {
                text.chars()
                    .map(|c| json!(c.to_string()))
                    .collect::<Vec<Value>>()
            };
            let object = |text| json!({"metadata": {"finalizers": list(text)}});
            let merged = merge_pod(object(old), object(applied));
            assert_eq!(merged, object(want), "{old} {applied}");
        }
    }

    #[test]
    fn fields_without_an_owner_are_removed() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let set = |fields: Value| FieldSet::from_json(&fields).unwrap();
        let mut object = json!({
            "metadata": {"labels": {"a": "1", "unowned": "2"}, "annotations": {"b": "2", "c": "3"}, "finalizers": ["x", "y"]},
            "spec": {"containers": [
                {"name": "c", "image": "i", "env": [{"name": "E"}]}, {"name": "d", "image": "j"}, {"name": "e", "image": "k"},
            ]},
        });
        let container = json!({".": {}, "f:name": {}, "f:image": {}});
        prune(
            &schema,
            &mut object,
            &set(json!({
                "f:metadata": {
                    "f:labels": {"f:a": {}}, "f:annotations": {"f:b": {}, "f:c": {}},
                    "f:finalizers": {"v:\"x\"": {}, "v:\"y\"": {}},
                },
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": container, "k:{\"name\":\"d\"}": container, "k:{\"name\":\"e\"}": container}},
            })),
            &set(json!({
                "f:metadata": {"f:annotations": {"f:c": {}}, "f:finalizers": {"v:\"y\"": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:env": {}}, "k:{\"name\":\"e\"}": {"f:image": {}}}},
            })),
        );
        assert_eq!(
            object,
            json!({
                "metadata": {"annotations": {"c": "3"}, "finalizers": ["y"]},
                "spec": {"containers": [{"name": "c", "env": [{"name": "E"}]}]},
            })
        );
    }
}
