//! Writes types as schemas of an OpenAPI document: names, types and merge rules, no descriptions.
//!
//! `kubectl explain` shows them, and `kubectl apply` computes its patches with them.

use serde_json::{Map, Value, json};

use super::{Field, ListKind, PatchStrategy, Schema, Struct, StructTypes, Type};

const QUANTITY: &str = "resource.Quantity";
const INT_OR_STRING: &str = "intstr.IntOrString";

/// Adds the schema of a kind under `name`, and every type that it mentions.
pub(crate) fn add(schema: &Schema, name: &str, kind: &Value, components: &mut Map<String, Value>) {
    let mut writer = SchemaWriter {
        types: schema.types(),
        components,
    };
    let mut root = writer.fields(schema.root());
    root["x-kubernetes-group-version-kind"] = json!([kind]);
    writer.components.insert(name.to_owned(), root);
}

struct SchemaWriter<'a> {
    types: &'a StructTypes,
    components: &'a mut Map<String, Value>,
}

impl SchemaWriter<'_> {
    fn fields(&mut self, of: &Struct) -> Value {
        let mut properties = Map::new();
        for field in &of.fields {
            properties.insert(field.name.clone(), self.field(field));
        }
        let mut schema = json!({"type": "object", "properties": properties});
        let required = of.fields.iter().filter(|field| field.required);
        let required: Vec<&str> = required.map(|field| field.name.as_str()).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if of.atomic {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        if of.open {
            schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        schema
    }

    fn field(&mut self, field: &Field) -> Value {
        let mut schema = self.schema(&field.ty);
        if let Some(default) = &field.default {
            schema["default"] = default.clone();
        }
        match &field.ty {
            Type::List(list) => match &list.kind {
                ListKind::Atomic => schema["x-kubernetes-list-type"] = json!("atomic"),
                ListKind::Set => schema["x-kubernetes-list-type"] = json!("set"),
                ListKind::Map(keys) => {
                    schema["x-kubernetes-list-type"] = json!("map");
                    schema["x-kubernetes-list-map-keys"] = json!(keys);
                }
            },
            Type::Map(map) if map.atomic => schema["x-kubernetes-map-type"] = json!("atomic"),
            _ => {}
        }
        let strategy = match &field.patch {
            Some(PatchStrategy::MergeByKey(key)) => {
                schema["x-kubernetes-patch-merge-key"] = json!(key);
                Some("merge")
            }
            Some(PatchStrategy::MergeAsSet) => Some("merge"),
            Some(PatchStrategy::Replace) => Some("replace"),
            None => None,
        };
        let retain_keys = field.retain_keys.then_some("retainKeys");
        let strategies: Vec<&str> = strategy.into_iter().chain(retain_keys).collect();
        if !strategies.is_empty() {
            schema["x-kubernetes-patch-strategy"] = json!(strategies.join(","));
        }
        schema
    }

    fn schema(&mut self, ty: &Type) -> Value {
        match ty {
            Type::String => json!({"type": "string"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Bool => json!({"type": "boolean"}),
            Type::Double => json!({"type": "number", "format": "double"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
            Type::Duration => json!({"type": "string"}),
            Type::Any => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            Type::Quantity => {
                let either = json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
                self.refer(QUANTITY, |_| either)
            }
            Type::IntOrString => {
                let either = json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"});
                self.refer(INT_OR_STRING, |_| either)
            }
            Type::List(list) => json!({"type": "array", "items": self.schema(&list.item)}),
            Type::Map(map) => {
                json!({"type": "object", "additionalProperties": self.schema(&map.value)})
            }
            Type::Struct(id) => {
                let types = self.types;
                let of = types.get(*id);
                match of.name.as_str() {
                    // The structs of custom kinds have no names, and do not refer to themselves.
                    "" => self.fields(of),
                    name => self.refer(name, |writer| writer.fields(of)),
                }
            }
        }
    }

    /// A reference to a component, which is added if it is new.
    fn refer(&mut self, name: &str, write: impl FnOnce(&mut Self) -> Value) -> Value {
        if !self.components.contains_key(name) {
            // First a place for it: types may refer to themselves.
            self.components.insert(name.to_owned(), Value::Null);
            let schema = write(self);
            self.components.insert(name.to_owned(), schema);
        }
        // Rules of the field stand beside the reference, which only `allOf` permits.
        json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_brings_its_types_and_merge_rules() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let mut components = Map::new();
        add(&schema, "core.v1.Pod", &kind, &mut components);
        assert_eq!(
            components["core.v1.Pod"]["properties"]["spec"],
            json!({"allOf": [{"$ref": "#/components/schemas/core.v1.PodSpec"}]})
        );
        let spec = &components["core.v1.PodSpec"];
        assert_eq!(spec["required"], json!(["containers"]));
        let containers = &spec["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        let volumes = &spec["properties"]["volumes"];
        assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
        // Every reference leads somewhere.
        let text = Value::Object(components.clone()).to_string();
        for name in text.split("#/components/schemas/").skip(1) {
            let name = name.split('"').next().unwrap();
            assert!(components[name].is_object(), "{name}");
        }
    }

    #[test]
    fn custom_kinds_have_inner_schemas() {
        let definition = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
        let mut components = Map::new();
        let schema = Schema::structural(&definition);
        add(&schema, "io.x.v1.Widget", &json!({}), &mut components);
        let spec = &components["io.x.v1.Widget"]["properties"]["spec"];
        assert_eq!(spec["properties"]["size"]["type"], "integer");
    }
}
