//! Decodes the body of a request into an object in the stored form: known fields only, canonical values.
//!
//! It uses the names and types of fields only: defaults and validation come later.

mod findings;
mod protobuf;
mod quantity;
mod reader;
mod time;
mod typed;

use serde_json::{Value, json};

pub(crate) use self::findings::Findings;
pub(crate) use self::time::seconds;
use crate::objects::golang;
use crate::objects::schema::Schema;
use crate::objects::status::{FieldError, FieldReason, Status};

/// How a request treats unknown and duplicate fields: `?fieldValidation=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The type of the body, as the path of the request determines it.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: &'a Schema,
    /// Custom objects must name their kind; built-in ones may leave it out.
    pub custom: bool,
}

/// A decoded object, and the texts of the `Warning` headers.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub object: Value,
    pub warnings: Vec<String>,
}

/// Decodes the body of a POST, a PUT or a DELETE (its options).
///
/// `content_type` may be absent (JSON); an unknown one results in 415.
pub fn body(
    content_type: Option<&str>,
    body: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let mut findings = Findings::default();
    let object = match media_type(content_type).as_str() {
        "" | "application/json" => read_json(body, expected, &mut findings)?,
        "application/yaml" => read_yaml(body, expected, &mut findings)?,
        "application/vnd.kubernetes.protobuf" if !expected.custom => read_protobuf(body, expected)?,
        _ => {
            let accepted =
                "application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(Status::unsupported_media_type(accepted));
        }
    };
    let mut object = whole_object(object, body, expected)?;
    check_kind(&object, body, expected)?;
    let cannot = |why: &str| cannot_be_handled(expected.api_version, expected.kind, expected, why);
    normalize_noting(expected, &mut object, &mut findings).map_err(|why| cannot(&why))?;
    let warnings = settle(findings, validation).map_err(|why| cannot(&why))?;
    Ok(Decoded { object, warnings })
}

/// Decodes the body of a server-side apply, which is YAML (or JSON, which is YAML too).
///
/// The result is as the client wrote it: `managed_fields::apply` merges it before it is normalised.
pub fn apply_body(
    body: &[u8],
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let text = String::from_utf8_lossy(body);
    let mut findings = Findings::default();
    let json = reader::json(&text, None, &mut findings).ok();
    let (object, duplicate) = match json {
        Some(object) if findings.messages.is_empty() => (object, None),
        _ => reader::yaml(&text).map_err(|why| {
            let why = format!("error decoding YAML: error converting YAML to JSON: {why}");
            Status::bad_request(why)
        })?,
    };
    if let (Some(line), FieldValidation::Strict) = (&duplicate, validation) {
        return Err(Status::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {line}"
        )));
    }
    let object = match object {
        Value::Null => Value::Object(serde_json::Map::new()),
        object => object,
    };
    if !object.is_object() {
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            golang::json_type(&object)
        )));
    }
    let name = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    if (api_version, kind) != (expected.api_version, expected.kind) {
        let found = group_version_kind(api_version, kind);
        return Err(Status::bad_request(format!("invalid object type: {found}")));
    }
    if !object["metadata"]["managedFields"].is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let warn = validation == FieldValidation::Warn;
    let warnings = duplicate.into_iter().filter(|_| warn).collect();
    Ok(Decoded { object, warnings })
}

/// Decodes the result of a patch. `quoted` is the part that an error quotes.
pub(crate) fn patched(
    mut object: Value,
    expected: &Expected<'_>,
    validation: FieldValidation,
    mut findings: Findings,
    quoted: &dyn Fn() -> String,
) -> Result<Decoded, Status> {
    let refuse = |why: String| {
        let message = format!("Invalid value: {}: {why}", Value::String(quoted()));
        let error = FieldError::new("patch", FieldReason::Invalid, message);
        Status::invalid("", "", "", &[error])
    };
    if !object.is_object() {
        let found = golang::json_type(&object);
        return Err(refuse(format!("json: cannot unmarshal {found}")));
    }
    for (field, want) in [
        ("apiVersion", expected.api_version),
        ("kind", expected.kind),
    ] {
        if object[field].as_str().is_none_or(str::is_empty) {
            object[field] = Value::from(want);
        }
    }
    let name = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    if (api_version, kind) != (expected.api_version, expected.kind) {
        return Err(match expected.custom {
            true => other_kind(&object, expected),
            false => refuse(not_registered(api_version, kind)),
        });
    }
    normalize_noting(expected, &mut object, &mut findings).map_err(refuse)?;
    // The patched document was a map, which the real server writes in the order of its keys.
    if !expected.custom {
        findings.messages.sort();
    }
    let warnings = settle(findings, validation).map_err(refuse)?;
    Ok(Decoded { object, warnings })
}

/// Brings an object into the form that a typed server would store: unknown fields go, empty
/// optional ones vanish, structs that are always written appear, quantities become canonical.
///
/// For objects that the server creates: it stops silently at a value of the wrong type.
pub fn normalize(schema: &Schema, object: &mut Value) {
    let _ = typed::walk(schema, object);
}

/// The form in which a typed server writes an empty object.
pub(crate) fn zero(schema: &Schema) -> Value {
    let mut object = json!({});
    normalize(schema, &mut object);
    object
}

/// As [`normalize`], with the reason why the object does not fit its type.
pub(crate) fn try_normalize(schema: &Schema, object: &mut Value) -> Result<(), String> {
    typed::walk(schema, object).map(drop)
}

/// `apps/v1, Kind=Deployment` or `/v1, Kind=Pod`.
pub(crate) fn group_version_kind(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// The media type without its parameters, in lower case.
fn media_type(content_type: Option<&str>) -> String {
    let content_type = content_type.unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

fn read_json(
    body: &[u8],
    expected: &Expected<'_>,
    findings: &mut Findings,
) -> Result<Value, Status> {
    let text = String::from_utf8_lossy(body);
    let schema = (!expected.custom).then_some(expected.schema);
    reader::json(&text, schema, findings).map_err(|error| {
        let why = json_error(&error);
        unrecognized(
            expected,
            body,
            &format!("couldn't get version/kind; json parse error: {why}"),
        )
    })
}

fn read_yaml(
    body: &[u8],
    expected: &Expected<'_>,
    findings: &mut Findings,
) -> Result<Value, Status> {
    let text = String::from_utf8_lossy(body);
    let read = reader::yaml(&text);
    let (mut object, duplicate) = read.map_err(|why| unrecognized(expected, body, &why))?;
    if let Some(line) = duplicate {
        findings.add(|| format!("yaml: unmarshal errors:\n  {line}"));
    }
    // YAML is turned into JSON first, and that sorts its keys.
    object.sort_all_objects();
    Ok(object)
}

fn read_protobuf(body: &[u8], expected: &Expected<'_>) -> Result<Value, Status> {
    let refuse = |why: String| unrecognized(expected, body, &why);
    let envelope = protobuf::envelope(body).map_err(refuse)?;
    let mut object = protobuf::object(expected.schema, envelope.message).map_err(refuse)?;
    object["apiVersion"] = Value::String(envelope.api_version);
    object["kind"] = Value::String(envelope.kind);
    Ok(object)
}

/// Reads JSON of no particular kind, such as a patch, and notes duplicate keys.
pub(crate) fn json_document(body: &[u8], findings: &mut Findings) -> Result<Value, String> {
    let text = String::from_utf8_lossy(body);
    reader::json(&text, None, findings).map_err(|error| json_error(&error))
}

/// The media types in the error message of the real server.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    }
}

fn unrecognized(expected: &Expected<'_>, body: &[u8], why: &str) -> Status {
    let kind = expected.kind;
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        preview(body)
    ))
}

/// The beginning of a body: JSON as text, anything else in hexadecimal.
fn preview(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let head = &body[..body.len().min(LENGTH)];
    let more = if body.len() > LENGTH { " ..." } else { "" };
    match head.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(head)),
        Some(_) => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

fn cannot_be_handled(api_version: &str, kind: &str, expected: &Expected<'_>, why: &str) -> Status {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let wanted = expected.kind;
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {wanted}: {why}"
    ))
}

/// An object with the kind that it is known to have; `null` stands for an empty one.
fn whole_object(object: Value, body: &[u8], expected: &Expected<'_>) -> Result<Value, Status> {
    let mut map = match object {
        Value::Null => serde_json::Map::new(),
        Value::Object(map) => map,
        other => {
            let found = golang::json_type(&other);
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            );
            return Err(unrecognized(expected, body, &why));
        }
    };
    for field in ["kind", "apiVersion"] {
        match map.get(field) {
            None | Some(Value::Null | Value::String(_)) => (),
            Some(other) => {
                let found = golang::json_type(other);
                let why = format!(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct field .{field} of type string"
                );
                return Err(unrecognized(expected, body, &why));
            }
        }
    }
    if !expected.custom {
        let known = [
            ("apiVersion", expected.api_version),
            ("kind", expected.kind),
        ];
        for (field, value) in known {
            if map
                .get(field)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
            {
                map.shift_remove(field);
                map.shift_insert(0, field.to_owned(), Value::from(value));
            }
        }
    }
    Ok(Value::Object(map))
}

fn check_kind(object: &Value, body: &[u8], expected: &Expected<'_>) -> Result<(), Status> {
    let name = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    if expected.custom {
        return check_custom_kind(object, body, expected);
    }
    if api_version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {api_version}");
        return Err(unrecognized(expected, body, &why));
    }
    let same_kind = kind == expected.kind;
    // Options belong to every group; evictions once belonged to another version.
    let any_version = matches!(kind, "DeleteOptions" | "Eviction");
    if same_kind && (api_version == expected.api_version || any_version) {
        return Ok(());
    }
    let why = if Schema::builtin(api_version, kind).is_some() {
        format!(
            "converting ({api_version}.{kind}) to ({}): unknown conversion",
            expected.kind
        )
    } else {
        not_registered(api_version, kind)
    };
    Err(cannot_be_handled(api_version, kind, expected, &why))
}

fn not_registered(api_version: &str, kind: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )
}

fn check_custom_kind(object: &Value, body: &[u8], expected: &Expected<'_>) -> Result<(), Status> {
    let name = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (name("apiVersion"), name("kind"));
    if kind.is_empty() {
        let text = String::from_utf8_lossy(body);
        let why = format!("Object 'Kind' is missing in '{text}'");
        return Err(unrecognized(expected, body, &why));
    }
    if api_version != expected.api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            expected.api_version
        )));
    }
    if kind != expected.kind {
        return Err(other_kind(object, expected));
    }
    Ok(())
}

/// The error for a custom object whose `apiVersion` or `kind` names another type.
fn other_kind(object: &Value, expected: &Expected<'_>) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let mut errors = Vec::new();
    for (field, found, want) in [
        ("kind", &kind, expected.kind),
        ("apiVersion", &api_version, expected.api_version),
    ] {
        if found != want {
            let must = format!("must be {want}");
            errors.push(FieldError::invalid(
                field,
                &Value::from(found.as_str()),
                &must,
            ));
        }
    }
    Status::invalid(group, &kind, &text(&object["metadata"]["name"]), &errors)
}

/// Normalises and notes unknown fields in the order in which they are reported.
fn normalize_noting(
    expected: &Expected<'_>,
    object: &mut Value,
    findings: &mut Findings,
) -> Result<(), String> {
    let mut unknown = typed::walk(expected.schema, object)?;
    if expected.custom {
        // First the object's own metadata, then what pruning found, then the metadata of embedded objects.
        unknown.sort_by_cached_key(|field| {
            let own = field.in_metadata && field.path.starts_with("metadata.");
            match (own, field.in_metadata) {
                (true, _) => (0, String::new()),
                (_, false) => (1, field.path.clone()),
                (_, true) => (2, String::new()),
            }
        });
        if object["metadata"].is_null() {
            object["metadata"] = Value::Object(serde_json::Map::new());
        }
    }
    for field in unknown {
        findings.unknown(&field.path);
    }
    Ok(())
}

/// Findings are warnings or, under strict validation, one error.
fn settle(findings: Findings, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !findings.messages.is_empty() => Err(format!(
            "strict decoding error: {}",
            findings.messages.join(", ")
        )),
        FieldValidation::Strict | FieldValidation::Warn => Ok(findings.messages),
    }
}

#[cfg(test)]
mod tests;
