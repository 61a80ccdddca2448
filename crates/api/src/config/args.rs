//! Arguments of plugins: from the text straight into the plugin's own type, with the keys that all arguments have
//! (`apiVersion`, `kind`) taken out and what the rest of the configuration dictates put in.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use engine::framework::ConfigureError;
use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// The keys of arguments, and what those say that are not the plugin's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ArgsHead {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) fields: Vec<String>,
}

impl ArgsHead {
    pub(super) fn seed() -> PhantomData<Self> {
        PhantomData
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|known| known == field)
    }
}

impl<'de> Deserialize<'de> for ArgsHead {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Head;
        impl<'de> Visitor<'de> for Head {
            type Value = ArgsHead;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("arguments by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ArgsHead, A::Error> {
                let mut head = ArgsHead::default();
                while let Some(key) = map.next_key::<String>()? {
                    match &key[..] {
                        "apiVersion" => head.api_version = map.next_value()?,
                        "kind" => head.kind = map.next_value()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            head.fields.push(key);
                        }
                    }
                }
                Ok(head)
            }
        }
        deserializer.deserialize_struct("arguments", &[], Head)
    }
}

/// An argument that the rest of the configuration dictates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dictated {
    /// Whatever the arguments say.
    Text(&'static str, String),
    /// Whatever the arguments say.
    Names(&'static str, Vec<String>),
    /// After what the arguments say.
    More(&'static str, Vec<String>),
}

impl Dictated {
    fn field(&self) -> &'static str {
        match self {
            Self::Text(field, _) | Self::Names(field, _) | Self::More(field, _) => field,
        }
    }
}

impl<'de, E: Error> IntoDeserializer<'de, E> for &Dictated {
    type Deserializer = DictatedValue<E>;

    fn into_deserializer(self) -> DictatedValue<E> {
        DictatedValue(self.clone(), PhantomData)
    }
}

pub(super) struct DictatedValue<E>(Dictated, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for DictatedValue<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.0 {
            Dictated::Text(_, text) => StringDeserializer::new(text).deserialize_any(visitor),
            Dictated::Names(_, names) | Dictated::More(_, names) => {
                SeqDeserializer::new(names.into_iter()).deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

pub(super) type Erased<'a, 'de> = &'a mut dyn erased_serde::Deserializer<'de>;

/// Makes something of the arguments at hand.
pub(super) struct With<'a, F> {
    pub(super) dictated: &'a [Dictated],
    pub(super) make: F,
}

impl<T, F: FnOnce(Erased<'_, '_>) -> Result<T, ConfigureError>> With<'_, F> {
    /// From what is dictated alone.
    pub(super) fn without_text(self) -> Result<T, ConfigureError> {
        let none =
            MapDeserializer::<_, serde::de::value::Error>::new(std::iter::empty::<(&str, &str)>());
        match self.deserialize(none) {
            Ok(made) => made,
            Err(error) => Err(ConfigureError::Read(Error::custom(error))),
        }
    }
}

impl<'de, T, F> DeserializeSeed<'de> for With<'_, F>
where
    F: FnOnce(Erased<'_, '_>) -> Result<T, ConfigureError>,
{
    type Value = Result<T, ConfigureError>;

    /// An error of the text comes back as one; the inner result is about values.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let args = Args {
            inner: deserializer,
            dictated: self.dictated,
        };
        match (self.make)(&mut <dyn erased_serde::Deserializer<'_>>::erase(args)) {
            Err(ConfigureError::Read(error)) => Err(Error::custom(error)),
            made => Ok(made),
        }
    }
}

/// The arguments of a plugin inside all that stands there.
struct Args<'a, D> {
    inner: D,
    dictated: &'a [Dictated],
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Args<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = Inner {
            visitor,
            dictated: self.dictated,
        };
        self.inner.deserialize_struct("arguments", &[], visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Inner<'a, V> {
    visitor: V,
    dictated: &'a [Dictated],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Inner<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(InnerMap {
            map,
            given: true,
            dictated: self.dictated.to_vec().into(),
        })
    }
}

struct InnerMap<A> {
    map: A,
    /// Not yet at the end of what is given.
    given: bool,
    /// Not yet handed over.
    dictated: VecDeque<Dictated>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for InnerMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while self.given {
            let Some(key) = self.map.next_key::<String>()? else {
                self.given = false;
                break;
            };
            let mut dictated = self.dictated.iter_mut();
            match dictated.find(|dictated| dictated.field() == key) {
                Some(Dictated::More(_, more)) => {
                    let given: Option<Vec<String>> = self.map.next_value()?;
                    let given = given.unwrap_or_default();
                    more.retain(|name| !given.contains(name));
                    more.splice(..0, given);
                    continue;
                }
                None if !matches!(&key[..], "apiVersion" | "kind") => {}
                _ => {
                    self.map.next_value::<IgnoredAny>()?;
                    continue;
                }
            }
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        match self.dictated.front() {
            Some(dictated) => seed
                .deserialize(dictated.field().into_deserializer())
                .map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.given {
            return self.map.next_value_seed(seed);
        }
        match self.dictated.pop_front() {
            Some(first) => seed.deserialize((&first).into_deserializer()),
            None => self.map.next_value_seed(seed),
        }
    }
}
