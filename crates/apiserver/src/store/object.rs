//! One version of an object: its JSON, serialized once, and the values that selectors use.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

/// Objects up to this size keep their parsed form after its first use: namespaces,
/// service accounts and priority classes are read by every admission.
const KEEP_PARSED_BELOW: usize = 2048;

/// The labels of an object and the values of its kind's selectable fields, in the kind's order.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) fields: Box<[Box<str>]>,
}

impl Index {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let (_, value) = self.labels.iter().find(|(k, _)| &**k == key)?;
        Some(value)
    }
}

/// An immutable version of an object.
///
/// The whole watch line is kept and everything else is a part of it, so that a change is
/// serialised once however many watchers, lists and reads follow:
/// `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",` rest `}}\n`.
#[derive(Debug)]
pub(crate) struct Object {
    /// `namespace/name`, or `name` for cluster-scoped kinds: the order of lists.
    pub(crate) key: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) index: Arc<Index>,
    line: Bytes,
    layout: Layout,
    parsed: OnceLock<Arc<Value>>,
}

/// Offsets into the watch line.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// The `{` of the object.
    object: usize,
    /// The first byte after kind and apiVersion.
    rest: usize,
    /// The first digit of the resourceVersion.
    revision: usize,
}

const LINE_END: &[u8] = b"}\n";

/// An object that is serialised and waits for its revision, so that the writer's lock is held
/// only for a copy.
pub(crate) struct Draft {
    key: Arc<str>,
    index: Arc<Index>,
    line: Vec<u8>,
    layout: Layout,
}

/// The `type` of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl Draft {
    /// `head` is `"kind":"Pod","apiVersion":"v1",`; the object's own kind and apiVersion are left out.
    pub(crate) fn new(change: Change, head: &str, key: &str, object: &Value, index: Index) -> Self {
        let mut line = line_start(change, head, 1024);
        let mut layout = line.1;
        let out = &mut line.0;
        let mut first = true;
        for (name, value) in object.as_object().into_iter().flatten() {
            if name == "kind" || name == "apiVersion" {
                continue;
            }
            if !first {
                out.push(b',');
            }
            first = false;
            write_json(out, name);
            out.push(b':');
            match value {
                Value::Object(metadata) if name == "metadata" => {
                    layout.revision = write_metadata(out, metadata);
                }
                value => write_json(out, value),
            }
        }
        out.push(b'}');
        out.extend_from_slice(LINE_END);
        Self {
            key: Arc::from(key),
            index: Arc::new(index),
            line: line.0,
            layout,
        }
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    pub(crate) fn size(&self) -> usize {
        self.line.len()
    }

    pub(crate) fn seal(self, revision: u64) -> Object {
        let at = self.layout.revision;
        let digits = revision.to_string();
        let mut line = Vec::with_capacity(self.line.len() + digits.len());
        line.extend_from_slice(&self.line[..at]);
        line.extend_from_slice(digits.as_bytes());
        line.extend_from_slice(&self.line[at..]);
        Object {
            key: self.key,
            revision,
            index: self.index,
            line: Bytes::from(line),
            layout: self.layout,
            parsed: OnceLock::new(),
        }
    }
}

impl Object {
    pub(crate) fn size(&self) -> usize {
        self.line.len()
    }

    /// `"kind":..,"apiVersion":..,` as it was written.
    pub(crate) fn head(&self) -> &[u8] {
        &self.line[self.layout.object + 1..self.layout.rest]
    }

    /// Everything after kind and apiVersion, the closing brace included.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.line[self.layout.rest..self.line.len() - LINE_END.len()]
    }

    /// The watch line as it was written, if its type is `change`.
    pub(crate) fn line(&self, change: Change) -> Option<Bytes> {
        let kind = &self.line[br#"{"type":""#.len()..];
        kind.starts_with(change.as_str().as_bytes())
            .then(|| self.line.clone())
    }

    /// The object, parsed anew: for changing it.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_slice(&self.line[self.layout.object..self.line.len() - LINE_END.len()])
            .expect("a stored object is JSON that this server wrote")
    }

    /// The object, parsed, for looking at it.
    pub(crate) fn parsed(&self) -> Arc<Value> {
        if self.line.len() > KEEP_PARSED_BELOW {
            return Arc::new(self.to_value());
        }
        self.parsed_once()
    }

    /// The object, parsed only once whatever its size: for few objects that every write looks at.
    pub(crate) fn parsed_once(&self) -> Arc<Value> {
        let parsed = self.parsed.get_or_init(|| Arc::new(self.to_value()));
        Arc::clone(parsed)
    }

    /// This state under a later revision: what a deletion, or leaving a selector, shows.
    pub(crate) fn reissued(&self, change: Change, revision: u64) -> Self {
        let head = String::from_utf8_lossy(self.head());
        let (mut line, mut layout) = line_start(change, &head, self.line.len() + 8);
        let old_digits = self.revision.to_string().len();
        line.extend_from_slice(&self.line[self.layout.rest..self.layout.revision]);
        layout.revision = line.len();
        line.extend_from_slice(revision.to_string().as_bytes());
        line.extend_from_slice(&self.line[self.layout.revision + old_digits..]);
        Self {
            key: Arc::clone(&self.key),
            revision,
            index: Arc::clone(&self.index),
            line: Bytes::from(line),
            layout,
            parsed: OnceLock::new(),
        }
    }

    /// The last part of the key.
    pub(crate) fn name(&self) -> &str {
        split_key(&self.key).1
    }
}

/// Namespace (empty for cluster-scoped kinds) and name.
pub(crate) fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

fn line_start(change: Change, head: &str, capacity: usize) -> (Vec<u8>, Layout) {
    let mut line = Vec::with_capacity(capacity);
    line.extend_from_slice(br#"{"type":""#);
    line.extend_from_slice(change.as_str().as_bytes());
    line.extend_from_slice(br#"","object":"#);
    let object = line.len();
    line.push(b'{');
    line.extend_from_slice(head.as_bytes());
    let rest = line.len();
    let layout = Layout {
        object,
        rest,
        revision: 0,
    };
    (line, layout)
}

/// Writes metadata with an empty resourceVersion after the uid; returns where its digits go.
fn write_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>) -> usize {
    out.push(b'{');
    let mut revision_at = None;
    for (name, value) in metadata {
        if name == "resourceVersion" {
            continue;
        }
        write_json(out, name);
        out.push(b':');
        write_json(out, value);
        out.push(b',');
        if name == "uid" {
            revision_at = Some(write_empty_revision(out));
            out.push(b',');
        }
    }
    let revision_at = match revision_at {
        Some(at) => {
            out.pop();
            at
        }
        None => write_empty_revision(out),
    };
    out.push(b'}');
    revision_at
}

fn write_empty_revision(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(br#""resourceVersion":""#);
    let at = out.len();
    out.push(b'"');
    at
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("JSON values can be written to memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HEAD: &str = r#""kind":"ConfigMap","apiVersion":"v1","#;

    fn object(value: &Value, revision: u64) -> Object {
        Draft::new(Change::Added, HEAD, "ns/a", value, Index::default()).seal(revision)
    }

    #[test]
    fn a_version_reads_back_as_written_with_its_revision() {
        let metadata = [
            json!({"name": "a", "uid": "u", "labels": {"resourceVersion": "9"}}),
            json!({"name": "a", "resourceVersion": "3"}),
        ];
        for metadata in metadata {
            let mut want = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"k": "v"}});
            let stored = object(&want, 41);
            want["metadata"]["resourceVersion"] = json!("41");
            assert_eq!(stored.to_value(), want);

            want["metadata"]["resourceVersion"] = json!("1000");
            let deleted = stored.reissued(Change::Deleted, 1000);
            assert_eq!(deleted.to_value(), want);
            let line = deleted.line(Change::Deleted).unwrap();
            let line: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(line, json!({"type": "DELETED", "object": want}));
            assert!(deleted.line(Change::Added).is_none());
        }
    }
}
