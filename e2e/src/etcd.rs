//! Reads etcd directly: keys in the store, how often each was written, and every change.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::loopback::{post, post_lines};

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    pub revision: u64,
    pub key: String,
    /// `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
}

/// The newest revision.
pub(crate) fn revision(port: u16) -> Result<u64> {
    number(&range(port, "\0", json!({}))?["header"]["revision"])
}

/// Forgets every revision before the present one.
pub(crate) fn compact(port: u16) -> Result<()> {
    let present = json!({"revision": revision(port)?.to_string(), "physical": true});
    post(port, "/v3/kv/compaction", &present)?;
    Ok(())
}

pub(crate) fn count(port: u16, prefix: &str) -> Result<u64> {
    let answer = range(port, prefix, json!({"count_only": true}))?;
    number(&answer["count"])
}

/// By key without the prefix. The store counts this itself: nothing that was written is missing.
pub(crate) fn writes(port: u16, prefix: &str) -> Result<BTreeMap<String, u64>> {
    let answer = range(port, prefix, json!({"keys_only": true}))?;
    let objects = answer["kvs"].as_array().into_iter().flatten();
    objects
        .map(|object| {
            let key = BASE64.decode(object["key"].as_str().unwrap_or_default())?;
            let key = String::from_utf8(key)?;
            let name = key
                .strip_prefix(prefix)
                .context("a key without its prefix")?;
            Ok((name.to_owned(), number(&object["version"])?))
        })
        .collect()
}

/// A watch of all keys, up to the revision that is the newest when this begins.
pub(crate) fn history(port: u16, from: u64) -> Result<Vec<Revision>> {
    let newest = revision(port)?;
    let mut found = Vec::new();
    if newest < from {
        return Ok(found);
    }
    // A range from the empty key to the empty key is all keys.
    let all = BASE64.encode("\0");
    let watch = json!({"create_request": {"key": all, "range_end": all, "start_revision": from.to_string()}});
    post_lines(port, "/v3/watch", &watch, |line| {
        let answer = &line["result"];
        if answer["canceled"] == true {
            bail!("etcd does not have revision {from} any more: {answer}");
        }
        for event in answer["events"].as_array().into_iter().flatten() {
            let object = &event["kv"];
            let bytes = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default());
            let is_deleted = event["type"] == "DELETE";
            found.push(Revision {
                revision: number(&object["mod_revision"])?,
                key: String::from_utf8_lossy(&bytes(&object["key"])?).into_owned(),
                value: (!is_deleted).then(|| bytes(&object["value"])).transpose()?,
            });
        }
        Ok(found.last().is_some_and(|last| last.revision >= newest))
    })?;
    Ok(found)
}

/// All keys that begin so.
fn range(port: u16, prefix: &str, mut request: Value) -> Result<Value> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    request["key"] = json!(BASE64.encode(prefix));
    request["range_end"] = json!(BASE64.encode(end));
    post(port, "/v3/kv/range", &request)
}

/// Zero is left out, and numbers are text.
fn number(value: &Value) -> Result<u64> {
    match value.as_str() {
        Some(text) => text.parse().with_context(|| format!("no number: {text}")),
        None => Ok(0),
    }
}
