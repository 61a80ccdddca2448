//! Metadata and types that all objects share.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Deserializer, de};

use super::nullable;

pub type Map = BTreeMap<String, String>;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "5")]
    pub uid: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(int64, tag = "7")]
    pub generation: i64,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: Map,
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: Map,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub deletion_timestamp: Option<Time>,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
}

/// Any object with its metadata only.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct Partial {
    #[prost(message, required, tag = "1")]
    pub metadata: ObjectMeta,
}

impl Partial {
    /// Decodes at least the identity of the object. The API server stores invalid UTF-8 that it received in protobuf, and a
    /// message with such text cannot be decoded as a whole.
    pub fn decode_identity(message: &[u8]) -> Result<Self, prost::DecodeError> {
        Self::decode(message).or_else(|_| {
            let Identified { metadata } = Identified::decode(message)?;
            let metadata = metadata.into();
            Ok(Self { metadata })
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Identified {
    #[prost(message, required, tag = "1")]
    metadata: Identity,
}

/// The identity of an object: the fields that the API server sets or validates.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Identity {
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "1")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "5")]
    pub uid: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(int64, tag = "7")]
    pub generation: i64,
}

impl From<Identity> for ObjectMeta {
    fn from(identity: Identity) -> Self {
        Self {
            name: identity.name,
            namespace: identity.namespace,
            uid: identity.uid,
            resource_version: identity.resource_version,
            generation: identity.generation,
            ..Self::default()
        }
    }
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OwnerReference {
    #[prost(string, tag = "5")]
    pub api_version: String,
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub uid: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(bool, tag = "6")]
    pub controller: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(deserialize_with = "nullable")]
    #[prost(btree_map = "string, string", tag = "1")]
    pub match_labels: Map,
    #[serde(deserialize_with = "nullable")]
    #[prost(message, repeated, tag = "2")]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement of a label selector or a node selector.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
}

/// A time; RFC 3339 in JSON.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Time {
    /// Since the Unix epoch.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = jiff::Timestamp::deserialize(deserializer)?;
        Ok(Self {
            seconds: time.as_second(),
            nanos: time.subsec_nanosecond(),
        })
    }
}

/// A quantity as written; a number is accepted too.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Quantity(#[prost(string, tag = "1")] pub String);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity such as 500m or 1Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

pub type ResourceList = BTreeMap<String, Quantity>;
