//! Reads a tree into a type, as strict about types as Kubernetes, and records the place of each fault.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{Key, Value, YamlNode, below};
use super::{Finding, suggest};

/// The state of one attempt to read.
#[derive(Default)]
pub(super) struct Attempt<'a> {
    /// Paths with a known fault; they are read as if absent.
    pub(super) wrong: &'a [String],
    /// The first fault, with its place.
    pub(super) fault: RefCell<Option<Finding>>,
    /// Fields that the type does not have.
    pub(super) unread: RefCell<Vec<String>>,
}

impl Attempt<'_> {
    fn is_wrong(&self, path: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong == path)
    }
}

/// Reads the node at a path.
#[derive(Clone)]
pub(super) struct Reader<'de, 'a> {
    pub(super) node: &'de YamlNode,
    pub(super) line: u64,
    pub(super) path: String,
    pub(super) attempt: &'a Attempt<'a>,
}

/// The text of a fault; its place is in the attempt.
#[derive(Debug)]
pub(super) struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(text.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(value) => Value::Bool(value),
            Unexpected::Signed(value) => Value::Integer(i128::from(value)),
            Unexpected::Unsigned(value) => Value::Integer(i128::from(value)),
            Unexpected::Float(value) => Value::Float(value),
            Unexpected::Str(text) => Value::Text(text.to_owned()),
            Unexpected::Seq => Value::List(Vec::new()),
            Unexpected::Map => Value::Map(Vec::new()),
            _ => Value::Null,
        };
        Self::custom(format_args!("found {found}: only {expected} is allowed"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let known = expected.iter().copied().filter(|name| !name.is_empty());
        let nearest = suggest(field, known);
        Self(format!("unknown field `{field}`{nearest}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let nearest = suggest(variant, expected.iter().copied());
        Self::custom(format_args!(
            "found the text {variant:?}: unknown value{nearest}"
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("required field `{field}` is missing"))
    }
}

impl<'de, 'a> Reader<'de, 'a> {
    fn is_blank(&self) -> bool {
        self.attempt.is_wrong(&self.path)
    }

    /// Records the place of a fault, unless an inner reader already did.
    fn placed<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.inspect_err(|fault| self.note(&self.path, self.line, fault))
    }

    fn note(&self, path: &str, line: u64, fault: &Fault) {
        self.attempt
            .fault
            .borrow_mut()
            .get_or_insert_with(|| Finding {
                line: Some(line),
                field: path.to_owned(),
                text: fault.0.clone(),
            });
    }

    fn only<T>(&self, allowed: &str) -> Result<T, Fault> {
        let found = &self.node.value;
        self.placed(Err(de::Error::custom(format_args!(
            "found {found}: only {allowed} is allowed"
        ))))
    }

    fn integer<V: Visitor<'de>>(
        self,
        visitor: V,
        least: i128,
        most: i128,
    ) -> Result<V::Value, Fault> {
        let number = match self.node.value {
            _ if self.is_blank() => 0,
            Value::Integer(number) => number,
            // `4.0` is a whole number too; a larger float does not have enough digits.
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => number as i128,
            _ => return self.only("a whole number"),
        };
        if !(least..=most).contains(&number) {
            return self.only(&format!("a whole number from {least} to {most}"));
        }
        let result = match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => visitor.visit_i64(number),
            (_, Ok(number)) => visitor.visit_u64(number),
            _ => visitor.visit_i128(number),
        };
        self.placed(result)
    }

    fn entries<V: Visitor<'de>>(self, visitor: V, nulls: Nulls) -> Result<V::Value, Fault> {
        let entries = match &self.node.value {
            _ if self.is_blank() => &[][..],
            Value::Map(entries) => &entries[..],
            Value::Null => &[],
            _ => return self.only("a map of fields"),
        };
        let result = visitor.visit_map(Entries {
            reader: &self,
            entries,
            next: 0,
            nulls,
        });
        self.placed(result)
    }

    fn items<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let items = match &self.node.value {
            _ if self.is_blank() => &[][..],
            Value::List(items) => &items[..],
            Value::Null => &[],
            _ => return self.only("a list"),
        };
        let result = visitor.visit_seq(Items {
            reader: &self,
            items,
            next: 0,
        });
        self.placed(result)
    }
}

macro_rules! integers {
    ($($method:ident $type:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.integer(visitor, i128::from($type::MIN), i128::from($type::MAX))
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Null => {
                let result = visitor.visit_unit();
                self.placed(result)
            }
            Value::Bool(_) => self.deserialize_bool(visitor),
            Value::Integer(_) => self.integer(visitor, i128::MIN, i128::MAX),
            Value::Float(_) => self.deserialize_f64(visitor),
            Value::Text(_) => self.deserialize_str(visitor),
            Value::List(_) => self.items(visitor),
            Value::Map(_) => self.entries(visitor, Nulls::Kept),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let value = match self.node.value {
            _ if self.is_blank() => false,
            Value::Bool(value) => value,
            _ => return self.only("true or false"),
        };
        self.placed(visitor.visit_bool(value))
    }

    integers!(
        deserialize_i8 i8, deserialize_i16 i16, deserialize_i32 i32, deserialize_i64 i64,
        deserialize_u8 u8, deserialize_u16 u16, deserialize_u32 u32, deserialize_u64 u64
    );

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let number = match self.node.value {
            _ if self.is_blank() => 0.0,
            Value::Float(number) => number,
            Value::Integer(number) => number as f64,
            _ => return self.only("a number"),
        };
        self.placed(visitor.visit_f64(number))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = match &self.node.value {
            _ if self.is_blank() => "",
            Value::Text(text) => text,
            Value::Null => return self.only("text"),
            _ => return self.only("text (numbers, and true and false, in quotes)"),
        };
        self.placed(visitor.visit_borrowed_str(text))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let outer = self.clone();
        let result = match self.node.value {
            _ if self.is_blank() => visitor.visit_none(),
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        };
        outer.placed(result)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.items(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.entries(visitor, Nulls::Kept)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.entries(visitor, Nulls::LeftOut)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Value::Text(text) = &self.node.value else {
            return self.only("text");
        };
        let variant: StrDeserializer<'_, Fault> = text[..].into_deserializer();
        let result = visitor.visit_enum(variant);
        self.placed(result)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.attempt.unread.borrow_mut().push(self.path);
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

/// How an entry without a value is read: as absent where the fields are known, as in Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    Kept,
    LeftOut,
}

struct Entries<'r, 'de, 'a> {
    reader: &'r Reader<'de, 'a>,
    entries: &'de [(Key, YamlNode)],
    next: usize,
    nulls: Nulls,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de, '_> {
    type Error = Fault;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        while let Some((key, value)) = self.entries.get(self.next) {
            self.next += 1;
            let known = &self.entries[..self.next - 1];
            let is_repeated = known.iter().any(|(known, _)| known.name == key.name);
            let is_left_out = self.nulls == Nulls::LeftOut && value.value == Value::Null;
            let path = below(&self.reader.path, &key.name);
            if is_repeated || is_left_out || self.reader.attempt.is_wrong(&path) {
                continue;
            }
            let name: StrDeserializer<'_, Fault> = key.name[..].into_deserializer();
            let read = seed.deserialize(name);
            let read = read.inspect_err(|fault| self.reader.note(&path, key.line, fault));
            return read.map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let (key, node) = &self.entries[self.next.saturating_sub(1)];
        seed.deserialize(Reader {
            node,
            line: key.line,
            path: below(&self.reader.path, &key.name),
            attempt: self.reader.attempt,
        })
    }
}

struct Items<'r, 'de, 'a> {
    reader: &'r Reader<'de, 'a>,
    items: &'de [YamlNode],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de, '_> {
    type Error = Fault;

    fn next_element_seed<S: de::DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(node) = self.items.get(self.next) else {
            return Ok(None);
        };
        let path = format!("{}[{}]", self.reader.path, self.next);
        self.next += 1;
        let reader = Reader {
            node,
            line: node.line,
            path,
            attempt: self.reader.attempt,
        };
        seed.deserialize(reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len().saturating_sub(self.next))
    }
}
