//! Reads JSON and YAML text into a value, keeping the order of the document and noting duplicate keys.
//!
//! With a schema at hand it also notes and skips unknown fields, so that both come in document order.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::map::Entry;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::findings::Findings;
use crate::objects::schema::{Schema, StructTypes, Type};

/// Reads one JSON document. Deeper than 128 levels is an error.
pub(super) fn json(
    text: &str,
    schema: Option<&Schema>,
    findings: &mut Findings,
) -> Result<Value, serde_json::Error> {
    let root = schema.map(|schema| Type::Struct(schema.root_id()));
    let mut reader = DocumentReader {
        types: schema.map(Schema::types),
        path: String::new(),
        findings,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = ValueReader {
        reader: &mut reader,
        ty: root.as_ref(),
    };
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads one YAML document by the rules of YAML 1.1: `yes` is true and `010` is eight.
///
/// The second part is the message about a duplicate key; the last value wins.
pub(super) fn yaml(text: &str) -> Result<(Value, Option<String>), String> {
    use serde_saphyr::Error;
    match yaml_with(text, DuplicateKeyPolicy::Error) {
        Ok(value) => Ok((value, None)),
        Err(error) => match error.without_snippet() {
            Error::DuplicateMappingKey { key, location, .. } => {
                let key = key.as_deref().unwrap_or_default();
                let message = format!("line {}: key {key:?} already set in map", location.line());
                let value = yaml_with(text, DuplicateKeyPolicy::LastWins);
                Ok((value.map_err(|e| one_line(&e))?, Some(message)))
            }
            error => Err(one_line(error)),
        },
    }
}

fn yaml_with(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicates,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        let mut reader = DocumentReader {
            types: None,
            path: String::new(),
            findings: &mut Findings::default(),
        };
        let seed = ValueReader {
            reader: &mut reader,
            ty: None,
        };
        seed.deserialize(deserializer)
    })
}

fn one_line(error: &serde_saphyr::Error) -> String {
    if matches!(error, serde_saphyr::Error::MultipleDocuments { .. }) {
        return "yaml: the body holds more than one document".to_owned();
    }
    let text = error.to_string();
    format!("yaml: {}", text.lines().next().unwrap_or_default())
}

struct DocumentReader<'a> {
    types: Option<&'a StructTypes>,
    path: String,
    findings: &'a mut Findings,
}

impl<'a> DocumentReader<'a> {
    /// What is known about the field of an object: nothing, that it does not exist, or its type.
    fn child(&self, ty: Option<&'a Type>, key: &str) -> Result<Option<&'a Type>, UnknownField> {
        match (self.types, ty) {
            (Some(types), Some(Type::Struct(id))) => {
                types.get(*id).field_type(key).map(Some).ok_or(UnknownField)
            }
            (_, Some(Type::Map(map))) => Ok(Some(&map.value)),
            _ => Ok(None),
        }
    }
}

struct UnknownField;

struct ValueReader<'r, 'a> {
    reader: &'r mut DocumentReader<'a>,
    ty: Option<&'a Type>,
}

impl<'de> DeserializeSeed<'de> for ValueReader<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { reader, ty } = self;
        let item = match ty {
            Some(Type::List(list)) => Some(&list.item),
            _ => None,
        };
        let base = reader.path.len();
        let mut items = Vec::new();
        loop {
            reader.path.truncate(base);
            reader.path.push_str(&format!("[{}]", items.len()));
            let seed = ValueReader {
                reader: &mut *reader,
                ty: item,
            };
            match access.next_element_seed(seed)? {
                Some(value) => items.push(value),
                None => break,
            }
        }
        reader.path.truncate(base);
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let Self { reader, ty } = self;
        let base = reader.path.len();
        let mut map = serde_json::Map::new();
        while let Some(key) = access.next_key_seed(KeyReader)? {
            reader.path.truncate(base);
            if base > 0 {
                reader.path.push('.');
            }
            reader.path.push_str(&key);
            let Ok(child) = reader.child(ty, &key) else {
                reader.findings.unknown(&reader.path);
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            let seed = ValueReader {
                reader: &mut *reader,
                ty: child,
            };
            let value = access.next_value_seed(seed)?;
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    reader.findings.duplicate(&reader.path);
                    if child.is_some() {
                        overlay(entry.get_mut(), value);
                    } else {
                        entry.insert(value);
                    }
                }
            }
        }
        reader.path.truncate(base);
        Ok(Value::Object(map))
    }
}

/// Go decodes a repeated field into the struct or map that it has already filled.
fn overlay(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(old) => overlay(old, value),
                    None => {
                        old.insert(key, value);
                    }
                }
            }
        }
        (old, new) => *old = new,
    }
}

/// A key: YAML has others than strings.
struct KeyReader;

impl<'de> DeserializeSeed<'de> for KeyReader {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyReader {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a single value")
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<String, E> {
        Ok(value)
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_and_duplicate_fields_come_in_document_order() {
        let schema = Schema::builtin("v1", "Pod").unwrap();
        let mut findings = Findings::default();
        let text = r#"{"metadata": {"name": "x"}, "spec": {"z": 1, "containers": [
            {"name": "a", "foo": 1, "name": "b"}, {"name": "c", "foo": {"x": []}}],
            "a": 2, "z": 3}, "status": {"x": 1}, "metadata": {"namespace": "y"}}"#;
        let value = json(text, Some(&schema), &mut findings).unwrap();
        assert_eq!(
            findings.messages,
            [
                "unknown field \"spec.z\"",
                "unknown field \"spec.containers[0].foo\"",
                "duplicate field \"spec.containers[0].name\"",
                "unknown field \"spec.containers[1].foo\"",
                "unknown field \"spec.a\"",
                "unknown field \"status.x\"",
                "duplicate field \"metadata\"",
            ]
        );
        assert_eq!(value["metadata"], json!({"name": "x", "namespace": "y"}));
        assert_eq!(value["spec"]["containers"][0], json!({"name": "b"}));
    }

    #[test]
    fn the_last_duplicate_of_a_custom_object_wins() {
        let mut findings = Findings::default();
        let value = json(r#"{"a": {"x": 1}, "a": {"y": 2}}"#, None, &mut findings).unwrap();
        assert_eq!(value, json!({"a": {"y": 2}}));
        assert_eq!(findings.messages, ["duplicate field \"a\""]);
    }

    #[test]
    fn yaml_is_read_by_the_old_rules() {
        for (text, want) in [
            (
                "a: yes\nb: off\nc: \"yes\"",
                json!({"a": true, "b": false, "c": "yes"}),
            ),
            (
                "a: 010\nb: 0x1f\nc: 1e3\nd: ~",
                json!({"a": 8, "b": 31, "c": 1000.0, "d": null}),
            ),
            ("y: 1\n2: 2\n1.5: 3", json!({"true": 1, "2": 2, "1.5": 3})),
            ("a: 2001-01-01", json!({"a": "2001-01-01"})),
            (
                "a: &x {b: c}\nd: *x",
                json!({"a": {"b": "c"}, "d": {"b": "c"}}),
            ),
            ("", json!(null)),
        ] {
            assert_eq!(yaml(text).unwrap(), (want, None), "{text}");
        }
        let (value, warning) = yaml("data:\n  a: 1\n  a: 2\n").unwrap();
        assert_eq!(value, json!({"data": {"a": 2}}));
        assert_eq!(
            warning.as_deref(),
            Some("line 3: key \"a\" already set in map")
        );
        assert!(yaml("a: [").unwrap_err().starts_with("yaml: "));
    }

    #[test]
    fn deep_nesting_and_alias_bombs_are_refused() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(json(&deep, None, &mut Findings::default()).is_err());
        assert!(yaml(&deep).is_err());
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
            laughs.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
        }
        assert!(yaml(&laughs).is_err());
    }
}
