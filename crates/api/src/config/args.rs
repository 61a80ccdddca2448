//! Arguments of plugins: from the text straight into the plugin's own type. The keys that all arguments have
//! (`apiVersion`, `kind`) are removed, and overrides from the rest of the configuration are applied.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use engine::scheduling::framework::{ArgOverride, ConfigureError};
use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// The keys of arguments, with the values of those that all arguments have.
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

/// The value of an override.
struct OverrideDeserializer<E>(ArgOverride, PhantomData<E>);

impl<'de, E: Error> Deserializer<'de> for OverrideDeserializer<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        match self.0 {
            ArgOverride::Text(_, text) => StringDeserializer::new(text).deserialize_any(visitor),
            ArgOverride::List(_, values) | ArgOverride::Append(_, values) => {
                SeqDeserializer::new(values.into_iter()).deserialize_any(visitor)
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

/// Builds something from arguments and overrides.
pub(super) struct With<'a, F> {
    pub(super) overrides: &'a [ArgOverride],
    pub(super) make: F,
}

impl<T, F: FnOnce(Erased<'_, '_>) -> Result<T, ConfigureError>> With<'_, F> {
    /// From the overrides alone.
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

    /// The outer error is about the text; the inner result is about values.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let args = ArgsDeserializer {
            inner: deserializer,
            overrides: self.overrides,
        };
        match (self.make)(&mut <dyn erased_serde::Deserializer<'_>>::erase(args)) {
            Err(ConfigureError::Read(error)) => Err(Error::custom(error)),
            made => Ok(made),
        }
    }
}

struct ArgsDeserializer<'a, D> {
    inner: D,
    overrides: &'a [ArgOverride],
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ArgsDeserializer<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = ArgsVisitor {
            visitor,
            overrides: self.overrides,
        };
        self.inner.deserialize_struct("arguments", &[], visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct ArgsVisitor<'a, V> {
    visitor: V,
    overrides: &'a [ArgOverride],
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ArgsVisitor<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(ArgsMap {
            map,
            is_at_end: false,
            overrides: self.overrides.to_vec().into(),
        })
    }
}

/// The entries of the text, then the overrides.
struct ArgsMap<A> {
    map: A,
    /// Whether all entries of the text are read.
    is_at_end: bool,
    /// Overrides that are not yet read.
    overrides: VecDeque<ArgOverride>,
}

/// Passes the key of an argument to the plugin's type unless the argument is not the plugin's to read. The text's own
/// deserializer calls it, so that this one knows which key is wrong.
struct KeySeed<'a, K> {
    seed: &'a mut Option<K>,
    overrides: &'a VecDeque<ArgOverride>,
}

enum ArgKey<T> {
    Plugin(T),
    /// The key of the override at this position.
    Overridden(usize),
    /// A key that all arguments have: `apiVersion` or `kind`.
    Head,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'_, K> {
    type Value = ArgKey<K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        let mut overrides = self.overrides.iter();
        if let Some(i) = overrides.position(|given| given.field() == key) {
            return Ok(ArgKey::Overridden(i));
        }
        match self.seed.take() {
            Some(seed) if !matches!(&key[..], "apiVersion" | "kind") => seed
                .deserialize(key.into_deserializer())
                .map(ArgKey::Plugin),
            seed => {
                *self.seed = seed;
                Ok(ArgKey::Head)
            }
        }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ArgsMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        while !self.is_at_end {
            let key = self.map.next_key_seed(KeySeed {
                seed: &mut seed,
                overrides: &self.overrides,
            })?;
            match key {
                Some(ArgKey::Plugin(key)) => return Ok(Some(key)),
                Some(ArgKey::Overridden(i)) => match &mut self.overrides[i] {
                    ArgOverride::Append(_, more) => {
                        let given: Option<Vec<String>> = self.map.next_value()?;
                        let given = given.unwrap_or_default();
                        more.retain(|name| !given.contains(name));
                        more.splice(..0, given);
                    }
                    _ => drop(self.map.next_value::<IgnoredAny>()?),
                },
                Some(ArgKey::Head) => drop(self.map.next_value::<IgnoredAny>()?),
                None => self.is_at_end = true,
            }
        }
        match (self.overrides.front(), seed) {
            (Some(first), Some(seed)) => {
                let key = first.field().into_deserializer();
                seed.deserialize(key).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if !self.is_at_end {
            return self.map.next_value_seed(seed);
        }
        match self.overrides.pop_front() {
            Some(first) => seed.deserialize(OverrideDeserializer(first, PhantomData)),
            None => self.map.next_value_seed(seed),
        }
    }
}
