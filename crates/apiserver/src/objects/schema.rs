//! Field names, types, list kinds and merge keys of a kind.
//!
//! Built-in kinds come from `schema/table.txt`, which `cargo xtask gen` derives from Kubernetes; custom
//! kinds from the schema in their definition. Decoding, patches and server-side apply all walk the same
//! description. It checks no values: `kinds` and `custom` check ranges, enums and patterns.

pub(crate) mod openapi;
mod structural;
mod table;

use std::sync::Arc;

use serde_json::Value;

/// The type of an object. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {
    types: Arc<StructTypes>,
    root: StructId,
}

impl Schema {
    /// The schema of a built-in kind; `None` when the table does not have it.
    pub fn builtin(api_version: &str, kind: &str) -> Option<Self> {
        table::builtin(api_version, kind)
    }

    /// The schema of a custom kind, from `openAPIV3Schema`; metadata is always that of built-in kinds.
    pub fn structural(open_api_v3_schema: &Value) -> Self {
        structural::schema(open_api_v3_schema)
    }

    /// Changes when the types of built-in kinds change.
    pub(crate) fn builtin_text() -> &'static str {
        table::TEXT
    }

    pub(crate) fn types(&self) -> &StructTypes {
        &self.types
    }

    pub(crate) fn root_id(&self) -> StructId {
        self.root
    }

    pub(crate) fn root(&self) -> &Struct {
        self.types.get(self.root)
    }

    /// A Go type: a wrong type is an error of decoding, for custom objects one of validation.
    pub(crate) fn is_typed(&self) -> bool {
        self.root().typed
    }
}

/// All structs of a schema; they refer to each other by number, because some are recursive.
#[derive(Debug, Clone, Default)]
pub(crate) struct StructTypes {
    structs: Vec<Struct>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StructId(usize);

impl StructTypes {
    pub(crate) fn get(&self, id: StructId) -> &Struct {
        &self.structs[id.0]
    }
}

/// An object with named fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Struct {
    /// `core.v1.PodSpec`; empty for the structs of a CRD.
    pub(crate) name: String,
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
    /// Server-side apply owns it as one value.
    pub(crate) atomic: bool,
    /// Keeps unknown fields.
    pub(crate) open: bool,
    /// A Go struct: it has one way to be written, and a wrong type does not decode.
    pub(crate) typed: bool,
    /// Fields that are written even when the client left them out.
    always: Vec<usize>,
}

impl Struct {
    fn new(name: String, mut fields: Vec<Field>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let always = (0..fields.len()).filter(|&i| fields[i].always).collect();
        Self {
            name,
            fields,
            always,
            ..Self::default()
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let found = self
            .fields
            .binary_search_by(|field| field.name.as_str().cmp(name));
        found.ok().map(|index| &self.fields[index])
    }

    /// The type of a field; unknown fields of an open struct can be anything.
    pub(crate) fn field_type(&self, name: &str) -> Option<&Type> {
        match self.field(name) {
            Some(field) => Some(&field.ty),
            None if self.open => Some(&Type::Any),
            None => None,
        }
    }

    pub(crate) fn always_written(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|&index| &self.fields[index])
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// A Go pointer: present and empty is not the same as absent.
    pub(crate) pointer: bool,
    pub(crate) always: bool,
    /// Only documented: the rules of the kind check it.
    pub(crate) required: bool,
    /// A custom field that may be `null`.
    pub(crate) nullable: bool,
    /// Fills in the key of a list element in server-side apply.
    pub(crate) default: Option<Value>,
    /// How a strategic merge patch merges this list or map, if not in the default way.
    pub(crate) patch: Option<PatchStrategy>,
    /// A client computes `$retainKeys` of its patches for this field; the patch then has them.
    pub(crate) retain_keys: bool,
    /// Protobuf field numbers from the outer message inwards: several where Go embeds a struct.
    pub(crate) numbers: Vec<u32>,
}

impl Field {
    fn new(name: impl Into<String>, ty: Type) -> Self {
        Self {
            name: name.into(),
            ty,
            pointer: false,
            always: false,
            required: false,
            nullable: false,
            default: None,
            patch: None,
            retain_keys: false,
            numbers: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PatchStrategy {
    /// A list of objects that merges by this key.
    MergeByKey(String),
    /// A list of strings that merges as a set.
    MergeAsSet,
    /// A map that is replaced as a whole.
    Replace,
}

#[derive(Debug, Clone)]
pub(crate) enum Type {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    /// Base64 in JSON.
    Bytes,
    Quantity,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with exactly six decimals.
    MicroTime,
    Duration,
    IntOrString,
    /// Any JSON value, kept as it is.
    Any,
    Struct(StructId),
    List(Box<ListType>),
    Map(Box<MapType>),
}

#[derive(Debug, Clone)]
pub(crate) struct ListType {
    pub(crate) item: Type,
    pub(crate) kind: ListKind,
}

/// How server-side apply identifies the elements of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ListKind {
    /// Not at all: the list has one owner.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields, sorted.
    Map(Vec<String>),
}

#[derive(Debug, Clone)]
pub(crate) struct MapType {
    pub(crate) value: Type,
    pub(crate) atomic: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::decode;
    use serde_json::json;

    #[test]
    fn every_built_in_kind_has_a_zero_object() {
        let cases = [
            (
                "v1",
                "Pod",
                json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
            ),
            ("v1", "ConfigMap", json!({"metadata": {}})),
            (
                "apps/v1",
                "ReplicaSet",
                json!({
                    "metadata": {},
                    "spec": {"selector": null, "template": {"metadata": {}, "spec": {"containers": null}}},
                    "status": {"replicas": 0},
                }),
            ),
        ];
        for (api_version, kind, want) in cases {
            let zero = decode::zero(&Schema::builtin(api_version, kind).unwrap());
            assert_eq!(zero, want, "{kind}");
        }
        assert!(Schema::builtin("v1", "Deployment").is_none());
        assert!(Schema::builtin("apps/v1", "Deployment").is_some());
    }

    #[test]
    fn lists_and_maps_have_their_merge_rules() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let types = schema.types();
        let struct_of = |holder: &Struct, field: &str| match &holder.field(field).unwrap().ty {
            Type::Struct(id) => types.get(*id).clone(),
            other => panic!("{field} is {other:?}"),
        };
        let item_of = |holder: &Struct, field: &str| match &holder.field(field).unwrap().ty {
            Type::List(list) => match &list.item {
                Type::Struct(id) => types.get(*id).clone(),
                other => panic!("{field} has {other:?}"),
            },
            other => panic!("{field} is {other:?}"),
        };
        let spec = struct_of(schema.root(), "spec");
        let container = item_of(&spec, "containers");
        let ports = container.field("ports").unwrap();
        let Type::List(list) = &ports.ty else {
            panic!("ports is {:?}", ports.ty)
        };
        assert_eq!(
            list.kind,
            ListKind::Map(vec!["containerPort".to_owned(), "protocol".to_owned()])
        );
        assert_eq!(
            ports.patch,
            Some(PatchStrategy::MergeByKey("containerPort".to_owned()))
        );
        let protocol = item_of(&container, "ports")
            .field("protocol")
            .unwrap()
            .clone();
        assert_eq!(protocol.default, Some(json!("TCP")));
        assert!(matches!(&spec.field("nodeSelector").unwrap().ty, Type::Map(map) if map.atomic));
        let volume = item_of(&spec, "volumes");
        assert_eq!(
            volume.field("hostPath").unwrap().numbers,
            [2, 1],
            "embedded in Go"
        );
    }
}
