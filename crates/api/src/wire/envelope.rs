//! The protobuf formats around objects: the envelope, lists and the frames of a watch.
//!
//! Objects stay encoded here, so that an invalid object does not affect the others.

use bytes::Bytes;
use prost::Message;

/// The prefix of lists, single objects and the objects of watch frames.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("the message does not begin with `k8s\\0`")]
    Magic,
    #[error("unknown content encoding `{0}`")]
    Encoding(String),
    #[error(transparent)]
    Message(#[from] prost::DecodeError),
}

/// The message inside an envelope.
pub fn open(bytes: &Bytes) -> Result<Bytes, EnvelopeError> {
    if !bytes.starts_with(MAGIC) {
        return Err(EnvelopeError::Magic);
    }
    let unknown = Unknown::decode(bytes.slice(MAGIC.len()..))?;
    if !unknown.content_encoding.is_empty() {
        return Err(EnvelopeError::Encoding(unknown.content_encoding));
    }
    Ok(unknown.raw)
}

/// The message with an envelope around it.
pub fn wrap(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
    let unknown = Unknown {
        type_meta: TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        },
        raw: message.encode_to_vec().into(),
        content_encoding: String::new(),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend(unknown.encode_to_vec());
    bytes
}

#[derive(Clone, PartialEq, prost::Message)]
struct Unknown {
    #[prost(message, required, tag = "1")]
    type_meta: TypeMeta,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
    #[prost(string, tag = "3")]
    content_encoding: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// A list of any kind; its items are messages without envelopes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct List {
    #[prost(message, required, tag = "1")]
    pub metadata: ListMeta,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub items: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    #[prost(string, tag = "3")]
    #[serde(rename = "continue")]
    pub continue_token: String,
}

/// A frame of a watch; it has no envelope.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchEvent {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(message, required, tag = "2")]
    pub object: RawExtension,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub raw: Bytes,
}

/// The status of a failed request or of a watch that ended.
#[derive(Clone, PartialEq, Eq, prost::Message, serde::Deserialize)]
#[serde(default)]
pub struct RequestStatus {
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(string, tag = "4")]
    pub reason: String,
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message, serde::Deserialize)]
#[serde(default)]
pub struct StatusDetails {
    /// The resource that the status is about, such as `namespaces`.
    #[prost(string, tag = "3")]
    pub kind: String,
}
