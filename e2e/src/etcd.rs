//! Reads etcd directly: keys in the store, and how often each was written.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::loopback::post;

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
