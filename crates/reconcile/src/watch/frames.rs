//! Cuts the stream of a watch into events.

use api::wire::envelope::{RawExtension, RequestStatus, WatchEvent, open};
use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::RawObject;

/// An object has at most 1.5 MB in etcd; JSON with its escapes stays below this.
const LONGEST: usize = 32 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("watch event of {0} bytes: at most {LONGEST} are allowed")]
    TooLong(usize),
    #[error("invalid watch event: {0}")]
    Invalid(String),
}

#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Applied(RawObject),
    Deleted(RawObject),
    /// Only a resource version.
    Bookmark(RawObject),
    Error(RequestStatus),
}

#[derive(Debug)]
pub(super) struct Frames {
    protobuf: bool,
    buffer: BytesMut,
    /// Bytes in which no end of line was found.
    searched: usize,
}

impl Frames {
    pub(super) fn new(protobuf: bool) -> Self {
        Self {
            protobuf,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete event; `None` if more bytes are needed.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(frame) = self.frame()? else {
            return Ok(None);
        };
        let event = if self.protobuf {
            read_protobuf(frame)
        } else {
            read_json(frame)
        };
        event.map(Some).map_err(FrameError::Invalid)
    }

    fn frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.protobuf {
            let Some(Ok(head)) = self.buffer.get(..4).map(<[u8; 4]>::try_from) else {
                return Ok(None);
            };
            let length = u32::from_be_bytes(head) as usize;
            if length > LONGEST {
                return Err(FrameError::TooLong(length));
            }
            if self.buffer.len() < 4 + length {
                return Ok(None);
            }
            self.buffer.advance(4);
            return Ok(Some(self.buffer.split_to(length).freeze()));
        }
        let end = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.buffer.len();
            if self.searched > LONGEST {
                return Err(FrameError::TooLong(self.searched));
            }
            return Ok(None);
        };
        let line = self.buffer.split_to(self.searched + end).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        Ok(Some(line))
    }
}

fn read_protobuf(frame: Bytes) -> Result<Frame, String> {
    let event = WatchEvent::decode(frame).map_err(|error| error.to_string())?;
    let RawExtension { raw } = event.object;
    let message = open(&raw).map_err(|error| error.to_string())?;
    if event.kind == "ERROR" {
        let status = RequestStatus::decode(message).map_err(|error| error.to_string())?;
        return Ok(Frame::Error(status));
    }
    frame_of(&event.kind, RawObject::Protobuf(message))
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn read_json(frame: Bytes) -> Result<Frame, String> {
    let line: JsonEvent = serde_json::from_slice(&frame).map_err(|error| error.to_string())?;
    if line.kind == "ERROR" {
        let status = serde_json::from_str(line.object.get()).map_err(|error| error.to_string())?;
        return Ok(Frame::Error(status));
    }
    let object = frame.slice_ref(line.object.get().as_bytes());
    frame_of(&line.kind, RawObject::Json(object))
}

fn frame_of(kind: &str, object: RawObject) -> Result<Frame, String> {
    match kind {
        "ADDED" | "MODIFIED" => Ok(Frame::Applied(object)),
        "DELETED" => Ok(Frame::Deleted(object)),
        "BOOKMARK" => Ok(Frame::Bookmark(object)),
        other => Err(format!("unknown type `{other}`")),
    }
}

#[cfg(test)]
mod tests {
    use api::wire::envelope::wrap;
    use api::wire::meta::{ObjectMeta, Partial};

    use super::*;

    fn all(frames: &mut Frames) -> Vec<Frame> {
        std::iter::from_fn(|| frames.next().unwrap()).collect()
    }

    #[test]
    fn lines_in_any_pieces() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"a":1}}"#,
            "\n",
            r#"{"object":{"b":[2]},"type":"DELETED"}"#,
            "\n",
            r#"{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"old"}}"#,
            "\n",
        );
        let json = |text: &'static str| RawObject::Json(Bytes::from_static(text.as_bytes()));
        let want = [
            Frame::Applied(json(r#"{"a":1}"#)),
            Frame::Deleted(json(r#"{"b":[2]}"#)),
            Frame::Error(RequestStatus {
                message: "old".into(),
                reason: "Expired".into(),
                code: 410,
                details: None,
            }),
        ];
        for size in 1..text.len() {
            let mut frames = Frames::new(false);
            let mut found = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                frames.push(chunk);
                found.extend(all(&mut frames));
            }
            assert_eq!(found, want, "in pieces of {size}");
        }
    }

    #[test]
    fn protobuf_in_any_pieces() {
        let partial = Partial {
            metadata: ObjectMeta {
                name: "x".into(),
                ..ObjectMeta::default()
            },
        };
        let event = WatchEvent {
            kind: "BOOKMARK".into(),
            object: RawExtension {
                raw: wrap("v1", "Pod", &partial).into(),
            },
        };
        let bytes = event.encode_to_vec();
        let mut stream = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        stream.extend(bytes);
        let stream = stream.repeat(2);
        let message = Bytes::from(partial.encode_to_vec());
        for size in 1..stream.len() {
            let mut frames = Frames::new(true);
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                frames.push(chunk);
                found.extend(all(&mut frames));
            }
            let want = || Frame::Bookmark(RawObject::Protobuf(message.clone()));
            assert_eq!(found, [want(), want()], "in pieces of {size}");
        }
    }

    #[test]
    fn invalid_events_are_errors() {
        let mut frames = Frames::new(true);
        frames.push(&u32::MAX.to_be_bytes());
        assert_eq!(frames.next(), Err(FrameError::TooLong(u32::MAX as usize)));
        for line in ["{}\n", "x\n", r#"{"type":"WHAT","object":{}}"#] {
            let mut frames = Frames::new(false);
            frames.push(line.as_bytes());
            frames.push(b"\n");
            assert!(frames.next().is_err(), "{line}");
        }
    }
}
