//! From a tree into a type: as strict about types as Kubernetes, and every fault with its place.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{Node, Value, below};
use super::{Finding, suggest};

/// What is known of one attempt to read.
#[derive(Default)]
pub(super) struct Attempt<'a> {
    /// Paths that are known to be wrong, and are read as if they were not there.
    pub(super) wrong: &'a [String],
    /// The first fault, and where it is.
    pub(super) fault: RefCell<Option<Finding>>,
    /// Fields that nobody asked for.
    pub(super) unread: RefCell<Vec<String>>,
}

impl Attempt<'_> {
    fn is_wrong(&self, path: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong == path)
    }
}

/// Something at a path.
#[derive(Clone)]
pub(super) struct Reader<'de, 'a> {
    pub(super) node: &'de Node,
    pub(super) line: u64,
    pub(super) path: String,
    pub(super) attempt: &'a Attempt<'a>,
}

/// The words of a fault. Where it is stands in the attempt.
#[derive(Debug)]
pub(super) struct Fault {
    text: String,
    is_unknown_field: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(words: T) -> Self {
        let text = words.to_string();
        // Whoever erased the type of an error on its way left the words.
        let unknown = text.strip_prefix("unknown field `");
        let named = unknown.and_then(|rest| rest.split_once("`, expected "));
        if let Some((field, known)) = named {
            let known = known.strip_prefix("one of ").unwrap_or(known).split(", ");
            let known = known.flat_map(|names| names.split(" or "));
            return unknown_field(field, known.map(|name| name.trim_matches('`')));
        }
        let is_unknown_field = unknown.is_some();
        Self {
            text,
            is_unknown_field,
        }
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
        unknown_field(field, expected.iter().copied())
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let nearest = suggest(variant, expected.iter().copied());
        Self::custom(format_args!(
            "found the text {variant:?}, which is not known{nearest}"
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("`{field}` is missing"))
    }
}

fn unknown_field<'a>(field: &str, known: impl Iterator<Item = &'a str>) -> Fault {
    let nearest = suggest(field, known.filter(|name| !name.is_empty()));
    Fault {
        text: format!("unknown field `{field}`{nearest}"),
        is_unknown_field: true,
    }
}

impl<'de, 'a> Reader<'de, 'a> {
    fn is_blank(&self) -> bool {
        self.attempt.is_wrong(&self.path)
    }

    /// Notes where a fault is, unless somebody closer to it has.
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
                text: fault.text.clone(),
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
            // `4.0` is a whole number too; beyond this a float has not the digits to tell.
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
        let mut map = Entries {
            reader: &self,
            entries,
            next: 0,
            nulls,
        };
        let result = visitor.visit_map(&mut map);
        let last = map.next.checked_sub(1).map(|last| &entries[last].0);
        if let (Err(fault), Some(key)) = (&result, last)
            && fault.is_unknown_field
        {
            self.note(&below(&self.path, &key.name), key.line, fault);
        }
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

/// What an entry without a value is: nothing at all where the fields are known, as in Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    Kept,
    LeftOut,
}

struct Entries<'r, 'de, 'a> {
    reader: &'r Reader<'de, 'a>,
    entries: &'de [(super::tree::Key, Node)],
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
            let attempt = self.reader.attempt;
            if is_repeated || is_left_out || attempt.is_wrong(&below(&self.reader.path, &key.name))
            {
                continue;
            }
            let name: StrDeserializer<'_, Fault> = key.name[..].into_deserializer();
            return seed.deserialize(name).map(Some);
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
    items: &'de [Node],
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
