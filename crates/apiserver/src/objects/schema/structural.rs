//! Reads the `openAPIV3Schema` of a CustomResourceDefinition.
//!
//! It takes any JSON: whether a schema is a valid structural one is checked where definitions are written.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{
    Field, ListKind, ListType, MapType, Schema, Struct, StructId, StructTypes, Type, table,
};

pub(super) fn schema(open_api_v3_schema: &Value) -> Schema {
    let mut builder = Builder::default();
    let root = builder.object(open_api_v3_schema, true);
    Schema {
        types: Arc::new(builder.types),
        root,
    }
}

#[derive(Default)]
struct Builder {
    types: StructTypes,
    /// Built-in structs that were copied in, by their number in the table.
    imported: HashMap<usize, StructId>,
}

impl Builder {
    fn add(&mut self, new: Struct) -> StructId {
        self.types.structs.push(new);
        StructId(self.types.structs.len() - 1)
    }

    fn value(&mut self, schema: &Value) -> Type {
        if schema["x-kubernetes-int-or-string"] == true {
            return Type::IntOrString;
        }
        match schema["type"].as_str() {
            Some("object") => {
                let values = &schema["additionalProperties"];
                if values.is_object() || values == true {
                    let value = self.value(values);
                    let atomic = schema["x-kubernetes-map-type"] == "atomic";
                    return Type::Map(Box::new(MapType { value, atomic }));
                }
                let embedded = schema["x-kubernetes-embedded-resource"] == true;
                Type::Struct(self.object(schema, embedded))
            }
            Some("array") => {
                let item = self.value(&schema["items"]);
                let kind = list_kind(schema);
                Type::List(Box::new(ListType { item, kind }))
            }
            Some("string") => Type::String,
            Some("integer") => Type::Int64,
            Some("number") => Type::Double,
            Some("boolean") => Type::Bool,
            _ => Type::Any,
        }
    }

    /// `whole` objects have a kind and metadata.
    fn object(&mut self, schema: &Value, whole: bool) -> StructId {
        let mut fields = Vec::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let mut field = Field::new(name, self.value(schema));
            field.nullable = schema["nullable"] == true;
            field.default = schema.get("default").cloned();
            fields.push(field);
        }
        if whole {
            fields.push(Field::new("apiVersion", Type::String));
            fields.push(Field::new("kind", Type::String));
            if let Some((types, id)) = table::named("meta.v1.ObjectMeta") {
                let metadata = self.import(types, id);
                fields.push(Field::new("metadata", Type::Struct(metadata)));
            }
        }
        let new = Struct {
            open: schema["x-kubernetes-preserve-unknown-fields"] == true,
            atomic: schema["x-kubernetes-map-type"] == "atomic",
            ..Struct::new(String::new(), fields)
        };
        self.add(new)
    }

    /// Copies a built-in struct and what it reaches.
    fn import(&mut self, types: &StructTypes, id: StructId) -> StructId {
        if let Some(known) = self.imported.get(&id.0) {
            return *known;
        }
        let copy = self.add(types.get(id).clone());
        self.imported.insert(id.0, copy);
        let mut fields = types.get(id).fields.clone();
        for field in &mut fields {
            self.import_type(types, &mut field.ty);
        }
        self.types.structs[copy.0].fields = fields;
        copy
    }

    fn import_type(&mut self, types: &StructTypes, ty: &mut Type) {
        match ty {
            Type::Struct(id) => *id = self.import(types, *id),
            Type::List(list) => self.import_type(types, &mut list.item),
            Type::Map(map) => self.import_type(types, &mut map.value),
            _ => (),
        }
    }
}

fn list_kind(schema: &Value) -> ListKind {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let mut keys: Vec<String> = keys
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect();
            keys.sort();
            ListKind::Map(keys)
        }
        _ => ListKind::Atomic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_structural_schema_has_list_types_and_metadata() {
        let schema = schema(&json!({"type": "object", "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": {"type": "object", "properties": {
                "byName": {"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
        }}));
        let types = schema.types();
        let struct_of = |holder: &Struct, name: &str| match &holder.field(name).unwrap().ty {
            Type::Struct(id) => types.get(*id).clone(),
            other => panic!("{name} is {other:?}"),
        };
        let metadata = struct_of(schema.root(), "metadata");
        assert!(metadata.typed && metadata.field("ownerReferences").is_some());
        let spec = struct_of(schema.root(), "spec");
        assert!(!spec.typed && !spec.open);
        assert!(struct_of(&spec, "raw").open);
        let Type::List(list) = &spec.field("byName").unwrap().ty else {
            panic!("byName is a list")
        };
        assert_eq!(list.kind, ListKind::Map(vec!["name".to_owned()]));
        assert!(matches!(spec.field("labels").unwrap().ty, Type::Map(_)));
    }

    #[test]
    fn any_json_is_accepted() {
        for odd in [
            json!(null),
            json!([]),
            json!({"properties": 5}),
            json!({"type": "array", "items": 3}),
        ] {
            assert!(schema(&odd).root().field("metadata").is_some(), "{odd}");
        }
    }
}
