//! Which fields differ between two versions of an object, and which fields an applied configuration contains.

use std::collections::HashMap;

use serde_json::Value;

use super::set::{FieldSet, PathNode, field_element, key_element, value_element};
use crate::objects::fields::JsonObject;
use crate::objects::schema::{ListKind, ListType, Schema, Struct, StructTypes, Type};

/// How field ownership divides a value.
pub(super) enum OwnershipView<'a> {
    /// As one piece.
    Leaf,
    /// As fields, each with an owner.
    Fields(Entries<'a>),
    /// As list elements with keys.
    Keyed(&'a ListType, &'a [String]),
    /// As the members of a set.
    Members,
}

/// The types of the entries of an object.
#[derive(Clone, Copy)]
pub(super) enum Entries<'a> {
    Struct(&'a Struct),
    All(&'a Type),
}

impl<'a> Entries<'a> {
    pub(super) fn get(self, name: &str) -> &'a Type {
        match self {
            Self::Struct(holder) => holder.field_type(name).unwrap_or(&Type::Any),
            Self::All(ty) => ty,
        }
    }
}

/// The view of a value of type `ty`; `value` decides where the type does not.
pub(super) fn view<'a>(types: &'a StructTypes, ty: &'a Type, value: &Value) -> OwnershipView<'a> {
    match (ty, value) {
        (Type::Struct(id), Value::Object(_) | Value::Null) if !types.get(*id).atomic => {
            OwnershipView::Fields(Entries::Struct(types.get(*id)))
        }
        (Type::Map(map), Value::Object(_) | Value::Null) if !map.atomic => {
            OwnershipView::Fields(Entries::All(&map.value))
        }
        (Type::Any, Value::Object(_)) => OwnershipView::Fields(Entries::All(&Type::Any)),
        (Type::List(list), Value::Array(_) | Value::Null) => match &list.kind {
            ListKind::Atomic => OwnershipView::Leaf,
            ListKind::Set => OwnershipView::Members,
            ListKind::Map(keys) => OwnershipView::Keyed(list, keys),
        },
        _ => OwnershipView::Leaf,
    }
}

/// The element of the path that names this list element; `None` when it has no key at all.
pub(super) fn element_key(
    types: &StructTypes,
    list: &ListType,
    keys: &[String],
    element: &Value,
) -> Option<String> {
    let Value::Object(map) = element else {
        return None;
    };
    let holder = match &list.item {
        Type::Struct(id) => Some(types.get(*id)),
        _ => None,
    };
    let default = |key: &str| {
        let field = holder?.field(key)?;
        field
            .default
            .clone()
            .or_else(|| field.always.then(|| zero(&field.ty)))
    };
    let mut found: Vec<(&str, Value)> = Vec::with_capacity(keys.len());
    for key in keys {
        let given = map.get(key).cloned();
        found.extend(
            given
                .or_else(|| default(key))
                .map(|value| (key.as_str(), value)),
        );
    }
    (!found.is_empty()).then(|| key_element(found.iter().map(|(key, value)| (*key, value))))
}

fn zero(ty: &Type) -> Value {
    match ty {
        Type::Int32 | Type::Int64 | Type::Double => Value::from(0),
        Type::Bool => Value::from(false),
        _ => Value::from(""),
    }
}

/// The fields that a write changed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FieldChanges {
    /// Fields with new values. Maps, lists and list elements that did not exist are members themselves.
    pub(super) changed: FieldSet,
    pub(super) removed: FieldSet,
}

pub(super) fn compare(schema: &Schema, old: &Value, new: &Value) -> FieldChanges {
    let mut changed = PathNode::default();
    let mut removed = PathNode::default();
    let comparer = Comparer {
        types: schema.types(),
    };
    let root = Type::Struct(schema.root_id());
    comparer.value(&root, Some(old), Some(new), &mut changed, &mut removed);
    FieldChanges {
        changed: changed.below,
        removed: removed.below,
    }
}

struct Comparer<'a> {
    types: &'a StructTypes,
}

impl Comparer<'_> {
    fn value(
        &self,
        ty: &Type,
        old: Option<&Value>,
        new: Option<&Value>,
        changed: &mut PathNode,
        removed: &mut PathNode,
    ) {
        let Some(either) = new.filter(|new| !new.is_null()).or(old).or(new) else {
            return;
        };
        let view = view(self.types, ty, either);
        let other_view_fits = match (&view, old) {
            (OwnershipView::Fields(_), Some(old)) => old.is_object() || old.is_null(),
            (OwnershipView::Keyed(..) | OwnershipView::Members, Some(old)) => {
                old.is_array() || old.is_null()
            }
            _ => true,
        };
        // `null` in place of a map or list that never was is a value like any other.
        let null_leaf = either.is_null() && (old.is_none() || new.is_none());
        if matches!(view, OwnershipView::Leaf) || !other_view_fits || null_leaf {
            changed.member = new.is_some() && new != old;
            removed.member = new.is_none();
            return;
        }
        changed.member = old.is_none();
        removed.member = new.is_none();
        match view {
            OwnershipView::Leaf => (),
            OwnershipView::Fields(entries) => {
                let (old, new) = (as_map(old), as_map(new));
                self.fields(entries, old, new, changed, removed);
            }
            OwnershipView::Keyed(list, keys) => {
                let (old, new) = (as_list(old), as_list(new));
                self.keyed(list, keys, old, new, changed, removed);
            }
            OwnershipView::Members => {
                let member = || PathNode {
                    member: true,
                    below: FieldSet::default(),
                };
                let (old, new) = (texts(as_list(old)), texts(as_list(new)));
                for text in &new {
                    if old.binary_search(text).is_err() {
                        changed.below.add(|| text.clone(), member());
                    }
                }
                for text in &old {
                    if new.binary_search(text).is_err() {
                        removed.below.add(|| text.clone(), member());
                    }
                }
            }
        }
    }

    fn fields(
        &self,
        entries: Entries<'_>,
        old: Option<&JsonObject>,
        new: Option<&JsonObject>,
        changed: &mut PathNode,
        removed: &mut PathNode,
    ) {
        let mut one = |name: &str, before: Option<&Value>, after: Option<&Value>| {
            let (mut c, mut r) = (PathNode::default(), PathNode::default());
            self.value(entries.get(name), before, after, &mut c, &mut r);
            changed.below.add(|| field_element(name), c);
            removed.below.add(|| field_element(name), r);
        };
        for (name, after) in new.into_iter().flatten() {
            one(name, old.and_then(|old| old.get(name)), Some(after));
        }
        for (name, before) in old.into_iter().flatten() {
            if new.is_none_or(|new| !new.contains_key(name)) {
                one(name, Some(before), None);
            }
        }
    }

    fn keyed(
        &self,
        list: &ListType,
        keys: &[String],
        old: &[Value],
        new: &[Value],
        changed: &mut PathNode,
        removed: &mut PathNode,
    ) {
        if old == new {
            return;
        }
        let by_key = |items| keyed_elements(self.types, list, keys, items);
        let (old_items, new_items) = (by_key(old), by_key(new));
        let find = |items: &[(String, &Value)]| -> HashMap<String, usize> {
            let items = items.iter().enumerate().rev();
            items
                .map(|(place, (key, _))| (key.clone(), place))
                .collect()
        };
        let (old_places, new_places) = (find(&old_items), find(&new_items));
        let mut one = |key: &String, before: Option<&Value>, after: Option<&Value>| {
            let (mut c, mut r) = (PathNode::default(), PathNode::default());
            self.value(&list.item, before, after, &mut c, &mut r);
            changed.below.add(|| key.clone(), c);
            removed.below.add(|| key.clone(), r);
        };
        for (key, after) in &new_items {
            let before = old_places.get(key).map(|place| old_items[*place].1);
            one(key, before, Some(after));
        }
        for (key, before) in &old_items {
            if !new_places.contains_key(key) {
                one(key, Some(before), None);
            }
        }
    }
}

/// The elements of a list that have a key, with it.
pub(super) fn keyed_elements<'v>(
    types: &StructTypes,
    list: &ListType,
    keys: &[String],
    items: &'v [Value],
) -> Vec<(String, &'v Value)> {
    let keyed = items
        .iter()
        .map(|item| (element_key(types, list, keys, item), item));
    keyed.filter_map(|(key, item)| Some((key?, item))).collect()
}

fn as_map(value: Option<&Value>) -> Option<&JsonObject> {
    value.and_then(Value::as_object)
}

fn as_list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The members of a set, sorted.
fn texts(items: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = items.iter().map(value_element).collect();
    texts.sort();
    texts
}

/// The fields that an applied configuration contains: leaves, empty maps, nulls and list elements.
pub(super) fn applied_fields(schema: &Schema, applied: &Value) -> FieldSet {
    let mut node = PathNode::default();
    let root = Type::Struct(schema.root_id());
    speaks_of(schema.types(), &root, applied, &mut node);
    node.below
}

fn speaks_of(types: &StructTypes, ty: &Type, value: &Value, node: &mut PathNode) {
    match view(types, ty, value) {
        OwnershipView::Leaf => node.member = true,
        OwnershipView::Fields(entries) => {
            // The schema does not declare the fields below `Any`, so the map itself counts too.
            node.member = matches!(ty, Type::Any);
            for (name, value) in value.as_object().into_iter().flatten() {
                let mut below = PathNode::default();
                speaks_of(types, entries.get(name), value, &mut below);
                node.below.add(|| field_element(name), below);
            }
        }
        OwnershipView::Keyed(list, keys) => {
            for (key, element) in keyed_elements(types, list, keys, as_list(Some(value))) {
                let mut below = PathNode::default();
                speaks_of(types, &list.item, element, &mut below);
                below.member = true;
                node.below.add(|| key, below);
            }
        }
        OwnershipView::Members => {
            for text in texts(as_list(Some(value))) {
                let member = PathNode {
                    member: true,
                    below: FieldSet::default(),
                };
                node.below.add(|| text, member);
            }
        }
    }
    // An empty list of elements owns nothing.
    node.member |= node.below.is_empty() && !value.is_array();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::decode;
    use serde_json::json;

    fn changes(old: Value, new: Value) -> (Value, Value) {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let changes = compare(&schema, &old, &new);
        (changes.changed.into_json(), changes.removed.into_json())
    }

    #[test]
    fn new_maps_and_elements_count_themselves() {
        let zero = decode::zero(&Schema::builtin("v1", "Pod").unwrap());
        let pod = json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x"], "ownerReferences": [{"uid": "u"}]},
            "spec": {
                "containers": [{"name": "c", "args": ["a"], "ports": [{"containerPort": 80}], "resources": {}}],
                "nodeSelector": {"x": "y"}, "tolerations": [{"key": "t"}],
                "securityContext": {}, "affinity": {"nodeAffinity": {}},
            },
            "status": {},
        });
        assert_eq!(
            changes(zero, pod),
            (
                json!({
                    "f:metadata": {
                        "f:finalizers": {".": {}, "v:\"x\"": {}},
                        "f:labels": {".": {}, "f:a": {}},
                        "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}},
                    },
                    "f:spec": {
                        "f:affinity": {".": {}, "f:nodeAffinity": {}},
                        "f:containers": {"k:{\"name\":\"c\"}": {
                            ".": {}, "f:args": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                            "f:resources": {},
                        }},
                        "f:nodeSelector": {}, "f:securityContext": {}, "f:tolerations": {},
                    },
                }),
                json!({})
            )
        );
    }

    #[test]
    fn updates_name_changed_and_removed_fields() {
        let pod = |containers: Value, labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        for (old, new, want) in [
            (
                pod(
                    json!([{"name": "c", "image": "1"}]),
                    json!({"a": "1", "b": "2"}),
                ),
                pod(json!([{"name": "c", "image": "2"}]), json!({"a": "1"})),
                (
                    json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}),
                    json!({"f:metadata": {"f:labels": {"f:b": {}}}}),
                ),
            ),
            (
                pod(json!([{"name": "c"}, {"name": "d"}]), json!({"a": "1"})),
                json!({"metadata": {}, "spec": {"containers": [{"name": "d"}]}}),
                (
                    json!({}),
                    json!({
                        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}},
                    }),
                ),
            ),
            (
                pod(json!([{"name": "c"}, {"name": "d"}]), json!({})),
                pod(json!([{"name": "d"}, {"name": "c"}]), json!({})),
                (json!({}), json!({})),
            ),
        ] {
            assert_eq!(changes(old, new), want);
        }
    }

    #[test]
    fn applied_configurations_own_their_fields() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let applied = json!({
            "metadata": {"labels": {}, "annotations": null, "finalizers": ["x"], "ownerReferences": []},
            "spec": {"volumes": null, "containers": [{"name": "c", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": 1}}}]},
        });
        assert_eq!(
            applied_fields(&schema, &applied).into_json(),
            json!({
                "f:metadata": {"f:annotations": {}, "f:finalizers": {"v:\"x\"": {}}, "f:labels": {}},
                "f:spec": {"f:volumes": {}, "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:name": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:requests": {"f:cpu": {}}},
                }}},
            })
        );
        let custom = Schema::structural(&json!({"type": "object", "properties": {
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}));
        assert_eq!(
            applied_fields(&custom, &json!({"raw": {"p": {"q": 1, "l": [1]}}})).into_json(),
            json!({"f:raw": {"f:p": {".": {}, "f:l": {}, "f:q": {}}}})
        );
    }
}
