//! Sets of fields as `fieldsV1` writes them, and their algebra.
//!
//! An element of a path is kept as its text: `f:name` for a field, `k:{"name":"c"}` for a list element by
//! key, `v:"x"` for a set member, `i:0` for an index. Texts are canonical, so that equal elements are equal texts.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Paths below one place. An empty node is never kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FieldSet {
    children: BTreeMap<String, PathNode>,
}

/// A place: whether it is itself in the set, and what is below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PathNode {
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

impl PathNode {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    pub(super) fn get(&self, element: &str) -> Option<&PathNode> {
        self.children.get(element)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &PathNode)> {
        self.children.iter()
    }

    /// Adds what is in `node` under `element()`; the text is only made when there is something.
    pub(super) fn add(&mut self, element: impl FnOnce() -> String, node: PathNode) {
        if node.is_empty() {
            return;
        }
        let slot = self.children.entry(element()).or_default();
        slot.member |= node.member;
        slot.below.unite(node.below);
    }

    pub(super) fn unite(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (element, node) in other.children {
            self.add(|| element, node);
        }
    }

    /// Removes the members of `other`, place by place.
    pub(super) fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.children.retain(|element, node| {
            if let Some(other) = other.children.get(element) {
                node.member &= !other.member;
                node.below.subtract(&other.below);
            }
            !node.is_empty()
        });
    }

    /// The members that both have.
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (element, node) in &self.children {
            if let Some(other) = other.children.get(element) {
                let node = PathNode {
                    member: node.member && other.member,
                    below: node.below.common(&other.below),
                };
                out.add(|| element.clone(), node);
            }
        }
        out
    }

    /// Makes a place a member.
    pub(super) fn insert(&mut self, element: &str) {
        self.children.entry(element.to_owned()).or_default().member = true;
    }

    /// Removes a place and all below it.
    pub(super) fn remove(&mut self, element: &str) {
        self.children.remove(element);
    }

    /// Changes what is below a place.
    pub(super) fn change(&mut self, element: &str, change: impl FnOnce(&mut PathNode)) {
        if let Some(node) = self.children.get_mut(element) {
            change(node);
            if node.is_empty() {
                self.children.remove(element);
            }
        }
    }

    /// Every member as error messages write it: `.spec.containers[name="c"].image`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths(&mut String::new(), &mut out);
        out
    }

    fn collect_paths(&self, path: &mut String, out: &mut Vec<String>) {
        let base = path.len();
        for (element, node) in &self.children {
            path.push_str(&display(element));
            if node.member {
                out.push(path.clone());
            }
            node.below.collect_paths(path, out);
            path.truncate(base);
        }
    }

    /// Reads `fieldsV1`; `None` when it is not one.
    pub(super) fn from_json(fields: &Value) -> Option<Self> {
        let mut out = Self::default();
        for (element, below) in fields.as_object()? {
            if element == "." {
                continue;
            }
            let node = PathNode {
                member: below.get(".").is_some() || below.as_object()?.is_empty(),
                below: Self::from_json(below)?,
            };
            let element = canonical(element)?;
            out.add(|| element, node);
        }
        Some(out)
    }

    pub(super) fn into_json(self) -> Value {
        let mut out = Map::new();
        for (element, node) in self.children {
            let mut below = node.below.into_json();
            if let Value::Object(below) = &mut below
                && node.member
                && !below.is_empty()
            {
                below.shift_insert(0, ".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(element, below);
        }
        Value::Object(out)
    }
}

pub(super) fn field_element(name: &str) -> String {
    format!("f:{name}")
}

pub(super) fn value_element(value: &Value) -> String {
    format!("v:{value}")
}

/// `keys` are sorted by name.
pub(super) fn key_element<'a>(keys: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let keys: Map<String, Value> = keys
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    format!("k:{}", Value::Object(keys))
}

/// The one text of an element; `None` when it is none.
fn canonical(element: &str) -> Option<String> {
    let (kind, rest) = element.split_at_checked(2)?;
    match kind {
        "f:" | "i:" => Some(element.to_owned()),
        "v:" => Some(value_element(&serde_json::from_str(rest).ok()?)),
        "k:" => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
            Some(key_element(
                keys.iter().map(|(key, value)| (key.as_str(), value)),
            ))
        }
        _ => None,
    }
}

/// `.name`, `[name="c",port=1]`, `[="x"]` or `[0]`.
pub(super) fn display(element: &str) -> String {
    let (kind, rest) = element.split_at_checked(2).unwrap_or(("", element));
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={rest}]"),
        "k:" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).unwrap_or_default();
            let keys: Vec<String> = keys
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_json(&fields).unwrap()
    }

    #[test]
    fn fields_are_read_and_written() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
        });
        assert_eq!(set(fields.clone()).into_json(), fields);
        let unsorted = json!({"f:l": {"k:{\"b\": 1, \"a\": \"x\"}": {}}});
        assert_eq!(
            set(unsorted).into_json(),
            json!({"f:l": {"k:{\"a\":\"x\",\"b\":1}": {}}})
        );
        for bad in [
            json!([]),
            json!({"x": {}}),
            json!({"f:a": 1}),
            json!({"k:nope": {}}),
            json!({"": {}}),
        ] {
            assert_eq!(FieldSet::from_json(&bad), None, "{bad}");
        }
    }

    #[test]
    fn algebra() {
        let a = set(json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:x": {}}));
        let b = set(json!({"f:data": {"f:a": {}}, "f:x": {}, "f:y": {}}));
        let mut difference = a.clone();
        difference.subtract(&b);
        assert_eq!(
            difference.into_json(),
            json!({"f:data": {".": {}, "f:b": {}}})
        );
        assert_eq!(
            a.common(&b).into_json(),
            json!({"f:data": {"f:a": {}}, "f:x": {}})
        );
        let mut union = a.clone();
        union.unite(b.clone());
        assert_eq!(
            union.into_json(),
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:x": {}, "f:y": {}})
        );
        // What is left of a map without entries is the map itself.
        let mut alone = a;
        alone.subtract(&set(json!({"f:data": {"f:a": {}, "f:b": {}}, "f:x": {}})));
        assert_eq!(alone.into_json(), json!({"f:data": {}}));
    }

    #[test]
    fn paths_are_displayed() {
        let fields = json!({"f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
            "f:s": {"v:\"x\"": {}}, "f:i": {"i:0": {}}});
        assert_eq!(
            set(fields).paths(),
            [
                ".i[0]",
                ".s[=\"x\"]",
                ".spec.ports[containerPort=80,protocol=\"TCP\"]",
                ".spec.ports[containerPort=80,protocol=\"TCP\"].name",
            ]
        );
    }
}
