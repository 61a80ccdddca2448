//! Who owns which field: `metadata.managedFields`, and server-side apply, which lives by it.

use serde_json::Value;

use crate::schema::Schema;
use crate::status::Status;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty on the main path.
    pub subresource: &'a str,
    /// The kind has a `status` subresource, so that its main path neither writes nor owns `status`.
    pub has_status: bool,
    pub now: jiff::Timestamp,
}

/// Records a plain write in `new.metadata.managedFields`.
///
/// `new` is decoded and defaulted. On create (`old` is `None`) call it before `Rules::prepare`, for
/// what strategy and admission add belongs to nobody; on update call it after `Rules::prepare`, so
/// that what the path may not change counts as unchanged, and before `Rules::admit`.
pub fn update(_schema: &Schema, _old: Option<&Value>, _new: &mut Value, _writer: &Writer<'_>) {}

/// Merges an applied configuration into the stored object. The result is neither defaulted nor
/// prepared; its `managedFields` are final, so `update` must not follow.
pub fn apply(
    _schema: &Schema,
    old: Option<&Value>,
    applied: Value,
    _writer: &Writer<'_>,
    _force: bool,
) -> Result<Value, Status> {
    let mut object = old.cloned().unwrap_or_default();
    json_patch::merge(&mut object, &applied);
    Ok(object)
}
