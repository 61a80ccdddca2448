//! The served kinds, and how their stored objects are shown.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::kind::{Kind, Name};
use crate::objects::decode::Expected;
use crate::store::object::{Change, Draft, Index, Object, split_key};
use crate::store::{Store, TableId};

/// A served kind, its table, and the forms of its objects.
pub(crate) struct ServedKind {
    pub(crate) kind: Kind,
    pub(crate) api_version: String,
    pub(crate) table: TableId,
    pub(crate) selectable: Vec<Name>,
    pub(crate) custom: bool,
    /// `"kind":"Pod","apiVersion":"v1",`: a response starts with it, a stored object omits it.
    head: String,
    /// The head of the stored objects; an alias stores them with the head of another kind.
    stored_head: String,
}

impl ServedKind {
    fn new(kind: Kind, store: &Store, all: &[Kind]) -> Self {
        let api_version = kind.api_version();
        let head = head_of(&kind);
        let (group, plural) = match &kind.alias {
            Some(alias) => (alias.group, alias.plural),
            None => (&*kind.group, &*kind.plural),
        };
        let owner = all
            .iter()
            .find(|k| k.alias.is_none() && k.group == group && k.plural == plural);
        let owner = owner.unwrap_or(&kind);
        Self {
            table: store.table(group, plural, owner.rules.time_to_live()),
            selectable: kind.rules.selectable_fields(),
            custom: kind.rules.is_custom(),
            stored_head: if kind.alias.is_some() {
                head_of(owner)
            } else {
                head.clone()
            },
            api_version,
            head,
            kind,
        }
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.kind.verbs.contains(&verb)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.kind.subresources.iter().any(|s| s.name == "status")
    }

    pub(crate) fn expected(&self) -> Expected<'_> {
        Expected {
            api_version: &self.api_version,
            kind: &self.kind.kind,
            schema: &self.kind.schema,
            custom: self.custom,
        }
    }

    /// The key of an object and the prefix of a namespace's keys.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.kind.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// An object in the form for the store. `object` has the form of this kind.
    pub(crate) fn draft(&self, change: Change, object: &Value) -> Draft {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let key = self.key(text("namespace"), text("name"));
        let stored = self.to_stored(object);
        let index = self.index(&stored);
        Draft::new(change, &self.stored_head, &key, &stored, index)
    }

    fn to_stored<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match &self.kind.alias {
            Some(alias) => Cow::Owned((alias.to_stored)(object.clone())),
            None => Cow::Borrowed(object),
        }
    }

    /// The object, which has the form of this kind, in the form of another kind of the same table.
    pub(crate) fn convert(&self, object: &Value, to: &ServedKind) -> Value {
        let stored = self.to_stored(object);
        let mut value = match &to.kind.alias {
            Some(alias) => (alias.from_stored)(&stored),
            None => stored.into_owned(),
        };
        value["kind"] = json!(to.kind.kind);
        value["apiVersion"] = json!(to.api_version);
        value
    }

    fn index(&self, stored: &Value) -> Index {
        let labels = stored["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten();
        let labels = labels.filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into())));
        // An alias has other field names: its values are computed when a selector needs them.
        let fields = match self.kind.alias {
            Some(_) => Box::default(),
            None => self
                .selectable
                .iter()
                .map(|path| self.kind.rules.field(stored, path))
                .map(|value| value.unwrap_or_default().into())
                .collect(),
        };
        Index {
            labels: labels.collect(),
            fields,
        }
    }

    /// What a field selector compares; `path` is one that [`ServedKind::selects`].
    pub(crate) fn field(&self, object: &Object, path: &str) -> String {
        let (namespace, name) = split_key(&object.key);
        match path {
            "metadata.name" => return name.to_owned(),
            "metadata.namespace" => return namespace.to_owned(),
            _ => {}
        }
        // The index has the fields of the stored kind only.
        let indexed = self.selectable.iter().filter(|_| self.kind.alias.is_none());
        let at = indexed.into_iter().position(|known| known == path);
        match at.and_then(|at| object.index.fields.get(at)) {
            Some(value) => value.to_string(),
            None => {
                let view = self.value(object);
                self.kind.rules.field(&view, path).unwrap_or_default()
            }
        }
    }

    pub(crate) fn selects(&self, path: &str) -> bool {
        match path {
            "metadata.name" => true,
            // Cluster-scoped kinds with specific selectors (nodes, namespaces) refuse it.
            "metadata.namespace" => self.kind.namespaced || self.selectable.is_empty(),
            _ => self.selectable.iter().any(|known| known == path),
        }
    }

    /// The object in the form of this kind.
    pub(crate) fn value(&self, object: &Object) -> Value {
        let mut value = object.to_value();
        if let Some(alias) = &self.kind.alias {
            value = (alias.from_stored)(&value);
        }
        value["kind"] = json!(self.kind.kind);
        value["apiVersion"] = json!(self.api_version);
        value
    }

    /// Whether stored bytes can be shown as they are, but for kind and apiVersion.
    fn shows_stored_bytes(&self) -> bool {
        self.kind.alias.is_none()
    }

    /// Appends the object as JSON with kind and apiVersion.
    pub(crate) fn write_object(&self, object: &Object, out: &mut Vec<u8>) {
        if self.shows_stored_bytes() {
            out.push(b'{');
            out.extend_from_slice(self.head.as_bytes());
            out.extend_from_slice(object.rest());
        } else {
            out.extend_from_slice(self.value(object).to_string().as_bytes());
        }
    }

    /// Appends the object as an item of a list: built-in kinds leave kind and apiVersion out.
    pub(crate) fn write_item(&self, object: &Object, out: &mut Vec<u8>) {
        if self.custom {
            return self.write_object(object, out);
        }
        if self.shows_stored_bytes() {
            out.push(b'{');
            out.extend_from_slice(object.rest());
        } else {
            let mut value = self.value(object);
            if let Some(fields) = value.as_object_mut() {
                fields.shift_remove("kind");
                fields.shift_remove("apiVersion");
            }
            out.extend_from_slice(value.to_string().as_bytes());
        }
    }

    /// The watch line; shared if this kind shows the stored bytes.
    pub(crate) fn line(&self, object: &Object, change: Change) -> Bytes {
        if self.shows_stored_bytes()
            && object.head() == self.head.as_bytes()
            && let Some(line) = object.line(change)
        {
            return line;
        }
        let mut out = Vec::with_capacity(object.size() + 64);
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(change.as_str().as_bytes());
        out.extend_from_slice(br#"","object":"#);
        self.write_object(object, &mut out);
        out.extend_from_slice(b"}\n");
        Bytes::from(out)
    }
}

fn head_of(kind: &Kind) -> String {
    let (name, version) = (json!(kind.kind), json!(kind.api_version()));
    if kind.rules.is_custom() {
        format!(r#""apiVersion":{version},"kind":{name},"#)
    } else {
        format!(r#""kind":{name},"apiVersion":{version},"#)
    }
}

/// All served kinds; replaced as a whole when a CRD is created or deleted.
pub(crate) struct Registry {
    /// In the order of discovery: built-in kinds as listed, then custom ones by group.
    pub(crate) kinds: Vec<Arc<ServedKind>>,
}

impl Registry {
    pub(crate) fn new(kinds: Vec<Kind>, store: &Store) -> Self {
        let served: Vec<Arc<ServedKind>> = kinds
            .iter()
            .map(|kind| Arc::new(ServedKind::new(kind.clone(), store, &kinds)))
            .collect();
        Self { kinds: served }
    }

    // Some seventy kinds, the busiest first: looking at each is quicker than making a key for a map.
    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<ServedKind>> {
        self.in_version(group, version)
            .find(|served| served.kind.plural == plural)
    }

    /// The kind under any version.
    pub(crate) fn find_resource(&self, group: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.kinds
            .iter()
            .find(|s| s.kind.group == group && s.kind.plural == plural)
    }

    /// Groups in order of appearance, each with its versions.
    pub(crate) fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for served in &self.kinds {
            let (group, version) = (&*served.kind.group, &*served.kind.version);
            match groups.iter_mut().find(|(known, _)| *known == group) {
                None => groups.push((group, vec![version])),
                Some((_, versions)) if versions.contains(&version) => {}
                Some((_, versions)) => versions.push(version),
            }
        }
        groups
    }

    pub(crate) fn in_version<'a>(
        &'a self,
        group: &str,
        version: &str,
    ) -> impl Iterator<Item = &'a Arc<ServedKind>> {
        self.kinds
            .iter()
            .filter(move |s| s.kind.group == group && s.kind.version == version)
    }
}
