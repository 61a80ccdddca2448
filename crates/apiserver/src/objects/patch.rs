//! The three patch formats that are computed from a stored object and a patch document alone.
//!
//! Server-side apply is in `managed_fields`, because it needs the field owners.

mod json;
mod merge;
mod strategic;

use serde_json::Value;

use crate::objects::decode::{self, Decoded, Expected, FieldValidation, Findings};
use crate::objects::fields::JsonObject;
use crate::objects::golang;
use crate::objects::status::{Details, Status};

/// A patch format, by the request's content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchFormat {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchFormat {
    /// `custom` objects do not support strategic merge patches.
    pub(crate) fn from_content_type(content_type: &str, custom: bool) -> Result<Self, Status> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            _ if custom => Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status {
                details: Some(Details::default()),
                ..Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            }),
        }
    }
}

/// Applies a JSON patch (RFC 6902) to a stored object and decodes the result.
pub(crate) fn json(
    object: &Value,
    patch: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let operations = json::parse(patch)?;
    let patched = json::apply(object.clone(), &operations).map_err(|_| {
        // The real server does not report which operation failed.
        let message = "the server rejected our request due to an error in our request";
        Status {
            details: Some(Details::default()),
            ..Status::new(422, "Invalid", message)
        }
    })?;
    let quoted = || {
        let patched = json::apply(object.clone(), &operations);
        patched.map(|object| object.to_string()).unwrap_or_default()
    };
    decode::patched(patched, expected, validation, Findings::default(), &quoted)
}

/// Applies the JSON patch of a webhook; `None` if it has no operations.
pub(crate) fn webhook(object: &Value, patch: &[u8]) -> Result<Option<Value>, String> {
    let operations = json::parse(patch).map_err(|status| status.message)?;
    if operations.is_empty() {
        return Ok(None);
    }
    match json::apply(object.clone(), &operations) {
        Ok(patched) => Ok(Some(patched)),
        Err(_) => Err(json::explain(object.clone(), &operations)),
    }
}

/// Applies a merge patch (RFC 7386) to a stored object and decodes the result.
pub(crate) fn merge(
    object: &Value,
    patch: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let mut findings = Findings::default();
    let patch = match decode::json_document(patch, &mut findings) {
        Ok(Value::Object(patch)) => patch,
        Ok(Value::Null) => return Err(Status::bad_request("Invalid JSON Patch")),
        Ok(other) => return Err(not_a_map("error decoding patch: ", &other)),
        Err(why) => return Err(Status::bad_request(format!("error decoding patch: {why}"))),
    };
    let merged = || {
        let mut object = object.clone();
        merge::apply(&mut object, &patch);
        object
    };
    let quoted = || merged().to_string();
    decode::patched(merged(), expected, validation, findings, &quoted)
}

/// Applies a strategic merge patch to a stored object and decodes the result: like a merge patch, but
/// some lists merge by key.
pub(crate) fn strategic(
    object: &Value,
    patch: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let mut findings = Findings::default();
    let patch = match decode::json_document(patch, &mut findings) {
        Ok(Value::Object(patch)) => patch,
        Ok(Value::Null) => JsonObject::new(),
        Ok(other) => return Err(not_a_map("", &other)),
        Err(why) => return Err(Status::bad_request(why)),
    };
    let quoted = || golang::text(&Value::Object(patch.clone()));
    // The type of a typed object cannot be patched.
    let mut without_type = patch.clone();
    without_type.shift_remove("apiVersion");
    without_type.shift_remove("kind");
    let patched = strategic::apply(expected.schema, object.clone(), without_type)?;
    decode::patched(patched, expected, validation, findings, &quoted)
}

fn not_a_map(prefix: &str, found: &Value) -> Status {
    Status::bad_request(format!(
        "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        golang::json_type(found)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::schema::Schema;
    use serde_json::json;

    #[test]
    fn the_result_of_a_patch_is_decoded() {
        let schema = Schema::builtin("apps/v1", "Deployment").unwrap();
        let expected = Expected {
            api_version: "apps/v1",
            kind: "Deployment",
            schema: &schema,
            custom: false,
        };
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d"}, "spec": {"replicas": 1}});
        decode::normalize(&schema, &mut object);
        type Patch = fn(&Value, &[u8], &Expected<'_>, FieldValidation) -> Result<Decoded, Status>;
        let strict = FieldValidation::Strict;
        // (format, patch, code, how the message ends)
        let cases: [(Patch, &str, u16, &str); 16] = [
            (
                merge,
                "[]",
                400,
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (merge, "null", 400, "Invalid JSON Patch"),
            (
                merge,
                "{\"a\":",
                400,
                "error decoding patch: unexpected end of JSON input",
            ),
            (
                merge,
                r#"{"foo":1}"#,
                422,
                "strict decoding error: unknown field \"foo\"",
            ),
            (
                merge,
                r#"{"spec":{"replicas":1,"replicas":2}}"#,
                422,
                "strict decoding error: duplicate field \"spec.replicas\"",
            ),
            (merge, r#"{"spec":{"replicas":"x"}}"#, 422, "of type int32"),
            (
                merge,
                r#"{"kind":"Foo"}"#,
                422,
                "no kind \"Foo\" is registered for version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
            ),
            (
                strategic,
                "[]",
                400,
                "json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (strategic, "", 400, "unexpected end of JSON input"),
            (
                strategic,
                r#"{"foo":1}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"map[foo:1]\": strict decoding error: unknown field \"foo\"",
            ),
            (
                json,
                "{}",
                400,
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                json,
                "{\"a\":",
                400,
                "error decoding patch: unexpected end of JSON input",
            ),
            (
                json,
                r#"[{"op":"remove","path":"/spec/nope"}]"#,
                422,
                "the server rejected our request due to an error in our request",
            ),
            (
                json,
                r#"[{"op":"foo","path":"/spec"}]"#,
                422,
                "the server rejected our request due to an error in our request",
            ),
            (
                json,
                r#"[{"op":"add","path":"/spec/foo","value":1}]"#,
                422,
                "strict decoding error: unknown field \"spec.foo\"",
            ),
            (
                json,
                r#"[{"op":"replace","path":"/spec/replicas","value":"x"}]"#,
                422,
                "of type int32",
            ),
        ];
        for (patch, text, code, want) in cases {
            let status = patch(&object, text.as_bytes(), &expected, strict).unwrap_err();
            assert_eq!(status.code, code, "{text}: {}", status.message);
            assert!(status.message.ends_with(want), "{text}: {}", status.message);
        }
        for (patch, text) in [
            (
                strategic as Patch,
                r#"{"kind":"Foo","spec":{"replicas":3}}"#,
            ),
            (merge, r#"{"spec":{"replicas":3,"paused":false}}"#),
            (
                json,
                r#"[{"op":"replace","path":"/spec/replicas","value":3}]"#,
            ),
        ] {
            let patched = patch(&object, text.as_bytes(), &expected, strict)
                .unwrap()
                .object;
            let mut want = object.clone();
            want["spec"]["replicas"] = json!(3);
            assert_eq!(patched, want, "{text}");
        }
    }

    #[test]
    fn the_format_is_in_the_content_type() {
        for (content_type, custom, want) in [
            (
                "application/merge-patch+json; charset=utf-8",
                true,
                Ok(PatchFormat::Merge),
            ),
            (
                "application/strategic-merge-patch+json",
                false,
                Ok(PatchFormat::Strategic),
            ),
            ("application/strategic-merge-patch+json", true, Err(415)),
            ("application/json", false, Err(415)),
        ] {
            let got = PatchFormat::from_content_type(content_type, custom).map_err(|s| s.code);
            assert_eq!(got, want, "{content_type}");
        }
    }
}
