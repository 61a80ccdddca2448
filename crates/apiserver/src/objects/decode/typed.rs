//! Walks an object along its schema and brings it into the one form in which it is stored.
//!
//! Go structs (built-in kinds, metadata) leave no choice: unknown fields go, empty optional ones vanish,
//! others are always written, quantities and times have one spelling, and a wrong type is an error.
//! The structs of a CRD only lose unknown fields and stray nulls; their types are checked by validation.

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine};
use serde_json::Value;

use super::findings::MAX_FINDINGS;
use super::{quantity, time};
use crate::objects::fields::JsonObject;
use crate::objects::golang;
use crate::objects::schema::{Field, Schema, Struct, StructTypes, Type};

/// Go ignores the bits of the last character beyond the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A field that the schema does not have; it has been removed.
#[derive(Debug, PartialEq)]
pub(super) struct UnknownPath {
    pub(super) path: String,
    /// It was in the metadata of an object, which custom objects check apart.
    pub(super) in_metadata: bool,
}

/// Normalises `object`; the error is the text that follows `cannot be handled as a Pod: `.
pub(super) fn walk(schema: &Schema, object: &mut Value) -> Result<Vec<UnknownPath>, String> {
    let Value::Object(map) = object else {
        return Ok(Vec::new());
    };
    let mut walk = Walk {
        types: schema.types(),
        holder: schema.root(),
        path: String::new(),
        map: None,
        unknown: Vec::new(),
    };
    walk.structure(schema.root(), map)?;
    Ok(walk.unknown)
}

struct Walk<'a> {
    types: &'a StructTypes,
    /// The struct whose field is being looked at.
    holder: &'a Struct,
    path: String,
    /// Where the path of the map ends whose entry is being looked at.
    map: Option<usize>,
    unknown: Vec<UnknownPath>,
}

impl<'a> Walk<'a> {
    fn enter(&mut self, base: usize, key: &str) {
        self.path.truncate(base);
        if base > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
    }

    fn structure(&mut self, new: &'a Struct, map: &mut JsonObject) -> Result<(), String> {
        let outer = std::mem::replace(&mut self.holder, new);
        let base = self.path.len();
        let mut failure = None;
        map.retain(|key, value| {
            if failure.is_some() {
                return true;
            }
            self.enter(base, key);
            match new.field(key) {
                Some(field) => self.field(field, value).unwrap_or_else(|text| {
                    failure = Some(text);
                    true
                }),
                None if new.open => {
                    whole_numbers(value);
                    true
                }
                None => {
                    self.note_unknown();
                    false
                }
            }
        });
        self.path.truncate(base);
        self.holder = outer;
        if let Some(failure) = failure {
            return Err(failure);
        }
        for field in new.always_written() {
            if !map.contains_key(&field.name) {
                map.insert(field.name.clone(), self.zero_field(field));
            }
        }
        Ok(())
    }

    fn note_unknown(&mut self) {
        if self.unknown.len() < MAX_FINDINGS {
            self.unknown.push(UnknownPath {
                path: self.path.clone(),
                in_metadata: self.holder.name.starts_with("meta.v1."),
            });
        }
    }

    /// Normalises one field; returns whether it stays.
    fn field(&mut self, field: &'a Field, value: &mut Value) -> Result<bool, String> {
        if !self.holder.typed {
            if value.is_null() {
                return Ok(field.nullable);
            }
            self.value(&field.ty, value)?;
            return Ok(true);
        }
        if value.is_null() {
            *value = self.zero_field(field);
            return Ok(field.always);
        }
        self.value(&field.ty, value)?;
        // Storage does not tell an empty list from none.
        if field.always && value.as_array().is_some_and(Vec::is_empty) {
            *value = Value::Null;
        }
        // An explicit empty list clears the record of field owners.
        let clears = field.name == "managedFields";
        Ok(field.always || field.pointer || clears || !is_empty(&field.ty, value))
    }

    fn value(&mut self, ty: &'a Type, value: &mut Value) -> Result<(), String> {
        match (ty, &mut *value) {
            (Type::Struct(id), Value::Object(map)) => self.structure(self.types.get(*id), map),
            (Type::List(list), Value::Array(items)) => {
                let base = self.path.len();
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.truncate(base);
                    self.path.push_str(&format!("[{index}]"));
                    self.element(&list.item, item, quantity::NANO)?;
                }
                self.path.truncate(base);
                Ok(())
            }
            (Type::Map(map), Value::Object(entries)) => {
                let base = self.path.len();
                self.map = Some(base);
                for (key, entry) in entries.iter_mut() {
                    self.enter(base, key);
                    // Every map of quantities is a list of resources.
                    self.element(&map.value, entry, quantity::MILLI)?;
                }
                self.map = None;
                self.path.truncate(base);
                Ok(())
            }
            (Type::Any, _) => {
                if !self.holder.typed {
                    whole_numbers(value);
                }
                Ok(())
            }
            _ if self.holder.typed => self.scalar(ty, value, quantity::NANO),
            (Type::Struct(id), other) if self.types.get(*id).typed => {
                let (found, wanted) = (golang::json_type(other), go_type(self.types, ty));
                Err(format!(
                    "json: cannot unmarshal {found} into Go value of type {wanted}"
                ))
            }
            // Where a schema names no fields there are only unknown ones.
            (_, Value::Object(entries)) => {
                let base = self.path.len();
                for key in entries.keys() {
                    self.enter(base, key);
                    self.note_unknown();
                }
                self.path.truncate(base);
                entries.clear();
                Ok(())
            }
            // Validation reports what does not fit the schema of a custom object.
            _ => {
                whole_numbers(value);
                Ok(())
            }
        }
    }

    /// A list item or map value; in Go these are never absent.
    fn element(&mut self, ty: &'a Type, value: &mut Value, finest: i64) -> Result<(), String> {
        if !self.holder.typed {
            return self.value(ty, value);
        }
        if value.is_null() {
            *value = self.zero(ty);
        }
        match ty {
            Type::Quantity => self.scalar(ty, value, finest),
            _ => self.value(ty, value),
        }
    }

    fn scalar(&mut self, ty: &Type, value: &mut Value, finest: i64) -> Result<(), String> {
        let number = value.as_number().map(|number| match number.as_i64() {
            Some(whole) => Ok(whole),
            // `-0` is read as a float.
            None if number.as_f64() == Some(0.0) => Ok(0),
            None => Err(()),
        });
        match (ty, &*value, number) {
            (Type::String, Value::String(_), _)
            | (Type::Duration, Value::String(_), _)
            | (Type::IntOrString, Value::String(_), _)
            | (Type::Bool, Value::Bool(_), _)
            | (Type::Double, Value::Number(_), _) => Ok(()),
            (Type::Int64, _, Some(Ok(whole))) => {
                *value = Value::from(whole);
                Ok(())
            }
            (Type::Int32 | Type::IntOrString, _, Some(Ok(whole)))
                if i32::try_from(whole).is_ok() =>
            {
                *value = Value::from(whole);
                Ok(())
            }
            (Type::Quantity, Value::String(text), _) => {
                if let Some(canonical) = quantity::canonical(text, finest)? {
                    *value = Value::String(canonical);
                }
                Ok(())
            }
            (Type::Quantity, Value::Number(number), _) => {
                let text = match number.as_f64() {
                    // Display never writes an exponent, which would change the quantity's family.
                    Some(float) if !number.is_i64() && !number.is_u64() => float.to_string(),
                    _ => number.to_string(),
                };
                let canonical = quantity::canonical(&text, finest)?;
                *value = Value::String(canonical.unwrap_or(text));
                Ok(())
            }
            (Type::Quantity, ..) => Err(quantity::BAD_FORMAT.to_owned()),
            (Type::Time, Value::String(text), _) => {
                *value = time::normalize_seconds(text)?;
                Ok(())
            }
            (Type::MicroTime, Value::String(text), _) => {
                *value = time::normalize_micros(text)?;
                Ok(())
            }
            (Type::Bytes, Value::String(text), _) => {
                let lines: String = text.split(['\r', '\n']).collect();
                let bytes = BASE64.decode(&lines).map_err(|error| {
                    let byte = match error {
                        DecodeError::InvalidByte(byte, _) => byte,
                        // Go names the group of four that is not whole.
                        _ => lines.len() / 4 * 4,
                    };
                    format!("illegal base64 data at input byte {byte}")
                })?;
                let canonical = BASE64.encode(bytes);
                if canonical != *text {
                    *value = Value::String(canonical);
                }
                Ok(())
            }
            _ => Err(self.mismatch(ty, value)),
        }
    }

    /// As Go's JSON decoder puts it: the path has no list indexes and no map keys.
    fn mismatch(&self, ty: &Type, value: &Value) -> String {
        let mut path = String::new();
        let mut in_index = false;
        for c in self.path[..self.map.unwrap_or(self.path.len())].chars() {
            match c {
                '[' => in_index = true,
                ']' => in_index = false,
                c if !in_index => path.push(c),
                _ => (),
            }
        }
        let found = match value {
            Value::Number(number)
                if matches!(ty, Type::Int32 | Type::Int64 | Type::IntOrString) =>
            {
                format!("number {number}")
            }
            value => golang::json_type(value).to_owned(),
        };
        let holder = self.holder.name.rsplit('.').next().unwrap_or_default();
        let wanted = go_type(self.types, ty);
        format!(
            "json: cannot unmarshal {found} into Go struct field {holder}.{path} of type {wanted}"
        )
    }

    fn zero_field(&self, field: &Field) -> Value {
        if field.pointer {
            Value::Null
        } else {
            self.zero(&field.ty)
        }
    }

    fn zero(&self, ty: &Type) -> Value {
        match ty {
            Type::String | Type::Bytes => Value::from(""),
            Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
            Type::Bool => Value::from(false),
            Type::Quantity => Value::from("0"),
            Type::Duration => Value::from("0s"),
            Type::Time | Type::MicroTime | Type::Any | Type::List(_) | Type::Map(_) => Value::Null,
            Type::Struct(id) => {
                let fields = self.types.get(*id).always_written();
                let fields = fields.map(|field| (field.name.clone(), self.zero_field(field)));
                Value::Object(fields.collect())
            }
        }
    }
}

/// What Go leaves out of a field that is marked `omitempty`.
fn is_empty(ty: &Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && !matches!(ty, Type::Any),
    }
}

/// Untyped numbers are floats in Go, and a float without decimals is written without a point.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            // Beyond this a float has no decimals anyway, and the cast would lose digits.
            if float.fract() == 0.0 && float.abs() < 9e15 {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => (),
    }
}

fn go_type(types: &StructTypes, ty: &Type) -> String {
    match ty {
        Type::String | Type::Time | Type::MicroTime | Type::Duration | Type::Quantity => {
            "string".to_owned()
        }
        Type::Int32 | Type::IntOrString => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Any => "interface {}".to_owned(),
        Type::List(list) => format!("[]{}", go_type(types, &list.item)),
        Type::Map(map) => format!("map[string]{}", go_type(types, &map.value)),
        Type::Struct(id) => {
            let name = &types.get(*id).name;
            name.split_once('.')
                .map_or(name.as_str(), |(_, rest)| rest)
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn normalized(api_version: &str, kind: &str, mut object: Value) -> Value {
        let schema = Schema::builtin(api_version, kind).unwrap();
        walk(&schema, &mut object).unwrap();
        object
    }

    #[test]
    fn typed_objects_have_one_form() {
        let pod = normalized(
            "v1",
            "Pod",
            json!({
                "metadata": {"name": "x", "labels": {}, "annotations": null, "finalizers": [], "generateName": ""},
                "spec": {
                    "nodeSelector": {}, "affinity": {}, "hostNetwork": false, "priority": 0,
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{
                        "name": "c", "args": [], "env": [{"name": "B", "value": "", "valueFrom": null}],
                        "ports": [{"containerPort": 80, "hostPort": 0}],
                        "resources": {"limits": {}, "requests": {"cpu": null, "memory": 0.5, "gpu": "1000"}},
                    }, null],
                    "os": null,
                },
            }),
        );
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "x"},
                "spec": {
                    "affinity": {}, "priority": 0,
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{
                        "name": "c", "env": [{"name": "B"}], "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "0", "memory": "500m", "gpu": "1k"}},
                    }, {"name": "", "resources": {}}],
                },
                "status": {},
            })
        );
        assert_eq!(
            normalized(
                "v1",
                "Node",
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
            )["status"],
            json!({
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": "",
                },
            })
        );
    }

    #[test]
    fn a_wrong_type_is_named_as_go_names_it() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        for (object, want) in [
            (
                json!({"spec": {"containers": "x"}}),
                "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                json!({"spec": {"containers": [{"name": 5}]}}),
                "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
            ),
            (
                json!({"spec": {"priority": 1.5}}),
                "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
            ),
            (
                json!({"spec": {"priority": 99999999999_i64}}),
                "json: cannot unmarshal number 99999999999 into Go struct field PodSpec.spec.priority of type int32",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"spec": {"overhead": {"cpu": true}}}),
                quantity::BAD_FORMAT,
            ),
        ] {
            let mut object = object;
            assert_eq!(walk(&schema, &mut object), Err(want.to_owned()));
        }
    }

    #[test]
    fn custom_objects_lose_unknown_fields_and_stray_nulls() {
        let schema = Schema::structural(&json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "maybe": {"type": "string", "nullable": true},
                "number": {"type": "integer"},
                "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {}}}},
                "items": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true},
                "list": {"type": "array", "items": {"type": "string"}},
            },
        }}}));
        let mut object = json!({
            "metadata": {"name": "w", "labels": {}, "foo": 1},
            "spec": {
                "text": null, "maybe": null, "number": 1.0, "extra": 1,
                "raw": {"any": {"x": null}, "known": {"gone": 1}},
                "items": [{"a": "", "b": 1}],
                "embedded": {"apiVersion": "v1", "metadata": {"bar": 1}, "spec": {}},
                "list": {"not": "a list"},
            },
        });
        let unknown = walk(&schema, &mut object).unwrap();
        assert_eq!(
            object,
            json!({
                "metadata": {"name": "w"},
                "spec": {
                    "maybe": null, "number": 1,
                    "raw": {"any": {"x": null}, "known": {}},
                    "items": [{"a": ""}],
                    "embedded": {"apiVersion": "v1", "metadata": {}},
                    "list": {},
                },
            })
        );
        let paths: Vec<_> = unknown
            .iter()
            .map(|u| (u.path.as_str(), u.in_metadata))
            .collect();
        assert_eq!(
            paths,
            [
                ("metadata.foo", true),
                ("spec.extra", false),
                ("spec.raw.known.gone", false),
                ("spec.items[0].b", false),
                ("spec.embedded.metadata.bar", true),
                ("spec.embedded.spec", false),
                ("spec.list.not", false),
            ]
        );
    }

    #[test]
    fn secrets_hold_canonical_base64() {
        for (text, want) in [
            ("YQ==", Some("YQ==")),
            ("YR==", Some("YQ==")),
            ("YQ==\n", Some("YQ==")),
            ("", Some("")),
            ("YQ", None),
            ("%%%", None),
        ] {
            let mut object = json!({"data": {"a": text}});
            let schema = Schema::builtin("v1", "Secret").unwrap();
            let got = walk(&schema, &mut object)
                .ok()
                .map(|_| object["data"]["a"].clone());
            assert_eq!(got, want.map(Value::from), "{text:?}");
        }
    }
}
