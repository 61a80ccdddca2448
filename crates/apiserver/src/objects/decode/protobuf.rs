//! Reads protobuf bodies, which commands such as `kubectl create namespace` send.
//!
//! One generic reader serves every kind: the table has the field numbers. Answers stay JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::time;
use crate::objects::fields::JsonObject;
use crate::objects::schema::{Field, Schema, Struct, StructTypes, Type};

/// Nothing that clients send is deeper; recursive types could be.
const MAX_DEPTH: usize = 64;

/// The type that the envelope names, and the message itself.
#[derive(Debug, PartialEq)]
pub(super) struct Envelope<'a> {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) message: &'a [u8],
}

/// Opens the envelope: the bytes `k8s\0`, then a `runtime.Unknown` message.
pub(super) fn envelope(body: &[u8]) -> Result<Envelope<'_>, String> {
    let body = body.strip_prefix(b"k8s\0").ok_or(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    )?;
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        message: &[],
    };
    let mut input = Input(body);
    while let Some((number, wire)) = input.field()? {
        match (number, wire) {
            (1, Wire::Bytes(type_meta)) => {
                let mut input = Input(type_meta);
                while let Some((number, wire)) = input.field()? {
                    match (number, wire) {
                        (1, Wire::Bytes(text)) => envelope.api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => envelope.kind = utf8(text)?,
                        _ => (),
                    }
                }
            }
            (2, Wire::Bytes(message)) => envelope.message = message,
            (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                return Err("the protobuf message has an unknown content encoding".to_owned());
            }
            _ => (),
        }
    }
    Ok(envelope)
}

/// Reads the message of an object of the type `schema`.
pub(super) fn object(schema: &Schema, message: &[u8]) -> Result<Value, String> {
    let reader = MessageReader {
        types: schema.types(),
    };
    let mut map = JsonObject::new();
    reader.message(schema.root(), message, &[], &mut map, 0)?;
    Ok(Value::Object(map))
}

/// Bytes that are left to read.
struct Input<'a>(&'a [u8]);

enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Input<'a> {
    fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| malformed())?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk::<8>().ok_or_else(malformed)?;
                self.0 = rest;
                Wire::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| malformed())?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => {
                self.0 = self.0.get(4..).ok_or_else(malformed)?;
                Wire::Fixed32
            }
            _ => return Err(malformed()),
        };
        Ok(Some((number, wire)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or_else(malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed())
    }
}

fn malformed() -> String {
    "the protobuf message is malformed".to_owned()
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| malformed())
}

struct MessageReader<'a> {
    types: &'a StructTypes,
}

impl MessageReader<'_> {
    /// `outer` are the numbers of the embedded structs that this message belongs to.
    fn message(
        &self,
        holder: &Struct,
        bytes: &[u8],
        outer: &[u32],
        map: &mut JsonObject,
        depth: usize,
    ) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err("the protobuf message is nested too deeply".to_owned());
        }
        let mut input = Input(bytes);
        while let Some((number, wire)) = input.field()? {
            let path = [outer, &[number]].concat();
            let mut inside = holder
                .fields
                .iter()
                .filter(|f| f.numbers.starts_with(&path));
            match (inside.next(), wire) {
                (Some(field), wire) if field.numbers == path => {
                    self.field(field, wire, map, depth)?;
                }
                (Some(_), Wire::Bytes(bytes)) => {
                    self.message(holder, bytes, &path, map, depth + 1)?;
                }
                // A field of a newer version, or one that only JSON can express.
                _ => (),
            }
        }
        Ok(())
    }

    fn field(
        &self,
        field: &Field,
        wire: Wire<'_>,
        map: &mut JsonObject,
        depth: usize,
    ) -> Result<(), String> {
        match &field.ty {
            Type::List(list) => {
                let slot = map.entry(field.name.clone());
                let slot = slot.or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(items) = slot else {
                    return Ok(());
                };
                match (&list.item, wire) {
                    // Numbers may be packed into one field.
                    (Type::Int32 | Type::Int64, Wire::Bytes(packed)) => {
                        let mut input = Input(packed);
                        while !input.0.is_empty() {
                            items.push(Value::from(input.varint()? as i64));
                        }
                    }
                    (item, wire) => items.push(self.value(item, wire, depth)?),
                }
            }
            Type::Map(entries) => {
                let Wire::Bytes(bytes) = wire else {
                    return Err(malformed());
                };
                let (key, value) = self.entry(&entries.value, bytes, depth)?;
                let slot = map.entry(field.name.clone());
                let slot = slot.or_insert_with(|| Value::Object(JsonObject::new()));
                if let Value::Object(entries) = slot {
                    entries.insert(key, value);
                }
            }
            ty => {
                let value = self.value(ty, wire, depth)?;
                map.insert(field.name.clone(), value);
            }
        }
        Ok(())
    }

    fn entry(&self, ty: &Type, bytes: &[u8], depth: usize) -> Result<(String, Value), String> {
        let mut key = String::new();
        let mut value = Value::Null;
        let mut input = Input(bytes);
        while let Some((number, wire)) = input.field()? {
            match (number, wire) {
                (1, Wire::Bytes(text)) => key = utf8(text)?,
                (2, wire) => value = self.value(ty, wire, depth)?,
                _ => (),
            }
        }
        Ok((key, value))
    }

    fn value(&self, ty: &Type, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
        Ok(match (ty, wire) {
            (Type::String, Wire::Bytes(text)) => Value::String(utf8(text)?),
            (Type::Bytes, Wire::Bytes(bytes)) => Value::String(STANDARD.encode(bytes)),
            (Type::Int32 | Type::Int64, Wire::Varint(number)) => Value::from(number as i64),
            (Type::Bool, Wire::Varint(flag)) => Value::from(flag != 0),
            (Type::Double, Wire::Fixed64(bits)) => Value::from(f64::from_bits(bits)),
            (Type::Struct(id), Wire::Bytes(bytes)) => {
                let mut map = JsonObject::new();
                self.message(self.types.get(*id), bytes, &[], &mut map, depth + 1)?;
                Value::Object(map)
            }
            (Type::Quantity, Wire::Bytes(bytes)) => {
                let [text, ..] = strings(bytes)?;
                Value::String(utf8(text)?)
            }
            (Type::Any, Wire::Bytes(bytes)) => {
                let [raw, ..] = strings(bytes)?;
                serde_json::from_slice(raw).map_err(|error| error.to_string())?
            }
            (Type::Time, Wire::Bytes(bytes)) => time::seconds(timestamp(bytes)?),
            (Type::MicroTime, Wire::Bytes(bytes)) => time::micros(timestamp(bytes)?),
            (Type::IntOrString, Wire::Bytes(bytes)) => {
                let [is_string, number, _] = numbers(bytes)?;
                match is_string {
                    0 => Value::from(number),
                    _ => {
                        let [_, _, text] = strings(bytes)?;
                        Value::String(utf8(text)?)
                    }
                }
            }
            (Type::List(_) | Type::Map(_) | Type::Duration, _) => {
                return Err("the protobuf message has a field that is not supported".to_owned());
            }
            _ => return Err(malformed()),
        })
    }
}

/// Fields 1 to 3 of a small message, where they are numbers.
fn numbers(message: &[u8]) -> Result<[i64; 3], String> {
    let mut out = [0; 3];
    let mut input = Input(message);
    while let Some((number, wire)) = input.field()? {
        if let (1..=3, Wire::Varint(value)) = (number, wire) {
            out[number as usize - 1] = value as i64;
        }
    }
    Ok(out)
}

/// Fields 1 to 3 of a small message, where they are bytes.
fn strings(message: &[u8]) -> Result<[&[u8]; 3], String> {
    let mut out: [&[u8]; 3] = [&[]; 3];
    let mut input = Input(message);
    while let Some((number, wire)) = input.field()? {
        if let (1..=3, Wire::Bytes(value)) = (number, wire) {
            out[number as usize - 1] = value;
        }
    }
    Ok(out)
}

/// Go's zero time, the first of January of the year 1.
const ZERO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Seconds and nanoseconds; nothing at all is the zero time.
fn timestamp(message: &[u8]) -> Result<Timestamp, String> {
    let [seconds, nanos, _] = numbers(message)?;
    if (seconds, nanos) == (0, 0) {
        return Ok(ZERO_TIME);
    }
    let nanos = i32::try_from(nanos).map_err(|_| malformed())?;
    Timestamp::new(seconds, nanos).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let tag = u32::from(number) << 3 | 2;
        let tag = match tag {
            0..128 => vec![tag as u8],
            _ => vec![tag as u8 & 0x7f | 0x80, (tag >> 7) as u8],
        };
        [&tag[..], &[bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn a_deployment_is_read_by_its_field_numbers() {
        let resources = field(
            8,
            &field(
                2,
                &[field(1, b"cpu"), field(2, &field(1, b"500m"))].concat(),
            ),
        );
        let port = field(6, &[0x18, 80]);
        let container = [field(1, b"c"), field(2, b"i"), port, resources].concat();
        let config_map = field(19, &field(1, &field(1, b"cm")));
        // `volumeSource` is embedded in Go and a message of its own here.
        let volume = [field(1, b"v"), field(2, &config_map)].concat();
        let pod_spec = [field(1, &volume), field(2, &container)].concat();
        let template = field(3, &field(2, &pod_spec));
        let rolling = field(
            4,
            &field(2, &field(2, &[0x08, 1, 0x10, 0, 0x1a, 3, b'2', b'5', b'%'])),
        );
        let spec = field(2, &[&[0x08, 3][..], &template, &rolling].concat());
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let metadata = field(1, &[field(1, b"d"), field(11, &label)].concat());
        let message = [metadata, spec].concat();
        let schema = Schema::builtin("apps/v1", "Deployment").unwrap();
        assert_eq!(
            object(&schema, &message).unwrap(),
            json!({
                "metadata": {"name": "d", "labels": {"a": "b"}},
                "spec": {
                    "replicas": 3,
                    "template": {"spec": {
                        "volumes": [{"name": "v", "configMap": {"name": "cm"}}],
                        "containers": [{
                            "name": "c", "image": "i", "ports": [{"containerPort": 80}],
                            "resources": {"requests": {"cpu": "500m"}},
                        }],
                    }},
                    "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
                },
            })
        );
    }

    #[test]
    fn the_envelope_names_the_kind() {
        let type_meta = [field(1, b"v1"), field(2, b"Pod")].concat();
        let body = [b"k8s\0".to_vec(), field(1, &type_meta), field(2, b"xyz")].concat();
        assert_eq!(
            envelope(&body),
            Ok(Envelope {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                message: b"xyz",
            })
        );
        assert!(envelope(b"{}").unwrap_err().contains("expected prefix"));
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (api_version, kind) in [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
                let schema = Schema::builtin(api_version, kind).unwrap();
                let _ = object(&schema, &bytes);
            }
            let _ = envelope(&[b"k8s\0", &bytes[..]].concat());
        }
    }
}
