//! ConfigMaps and Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::kind::{Column, Name, Rules, Write};
use crate::kinds::printer;
use crate::objects::fields::{at, fill, open, text};
use crate::objects::status::{FieldError, FieldReason};

/// The limit of etcd less space for metadata, as in upstream.
const MAX_DATA_BYTES: usize = 1 << 20;

/// The annotation that names the service account of a token.
const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub(super) struct ConfigMap;

impl Rules for ConfigMap {
    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        check_keys(object, "data", &mut errors);
        check_keys(object, "binaryData", &mut errors);
        for key in keys(object, "data") {
            if at(object, "binaryData").get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(
                    format!("data[{key}]"),
                    &json!(key),
                    detail,
                ));
            }
        }
        let bytes = text_bytes(object, "data") + decoded_bytes(object, "binaryData");
        check_size(bytes, "[]", &mut errors);
        check_immutable(object, old, &["data", "binaryData"], &mut errors);
        errors
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Data, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let entries = keys(object, "data").count() + keys(object, "binaryData").count();
        vec![
            printer::name(object),
            json!(entries),
            printer::created(object, now),
        ]
    }
}

pub(super) struct Secret;

impl Rules for Secret {
    fn default(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        fill(fields, "type", "Opaque");
        // `stringData` is for writing only: it is merged over `data` and never stored.
        if let Some(Value::Object(plain)) = fields.shift_remove("stringData") {
            let data = open(fields, "data");
            for (key, value) in plain {
                let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, encoded.into());
            }
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>, _write: Write<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        check_keys(object, "data", &mut errors);
        check_size(decoded_bytes(object, "data"), "data", &mut errors);
        if let Some(old) = old
            && object.get("type") != old.get("type")
        {
            errors.push(FieldError::invalid(
                "type",
                at(object, "type"),
                "field is immutable",
            ));
        }
        check_immutable(object, old, &["data"], &mut errors);
        let account = at(object, "metadata.annotations").get(ACCOUNT);
        if text(object, "type") == "kubernetes.io/service-account-token" && account.is_none() {
            let field = format!("metadata.annotations[{ACCOUNT}]");
            errors.push(FieldError::required(field, ""));
        }
        for key in required_keys(text(object, "type")) {
            if at(object, "data").get(key).is_none() {
                errors.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<Name> {
        super::names(&["type"])
    }

    fn field(&self, object: &Value, path: &str) -> Option<String> {
        super::select(object, &["type"], path)
    }

    fn columns(&self) -> Vec<Column> {
        printer::columns("Name, Type, Data, Age")
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            printer::name(object),
            text(object, "type").into(),
            json!(keys(object, "data").count()),
            printer::created(object, now),
        ]
    }
}

fn required_keys(secret_type: &str) -> &'static [&'static str] {
    match secret_type {
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/basic-auth" => &["username", "password"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        _ => &[],
    }
}

fn keys<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a String> {
    at(object, field)
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
}

fn text_bytes(object: &Value, field: &str) -> usize {
    let values = at(object, field)
        .as_object()
        .into_iter()
        .flat_map(|map| map.values());
    values.filter_map(Value::as_str).map(str::len).sum()
}

fn decoded_bytes(object: &Value, field: &str) -> usize {
    text_bytes(object, field) / 4 * 3
}

fn check_size(bytes: usize, field: &str, errors: &mut Vec<FieldError>) {
    if bytes > MAX_DATA_BYTES {
        let message = format!("Too long: may not be more than {MAX_DATA_BYTES} bytes");
        errors.push(FieldError::new(field, FieldReason::TooLong, message));
    }
}

/// Keys become file names.
fn check_keys(object: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for key in keys(object, field) {
        if let Some(problem) = crate::objects::names::config_key(key) {
            errors.push(FieldError::invalid(
                format!("{field}[{key}]"),
                &json!(key),
                &problem,
            ));
        }
    }
}

fn check_immutable(
    object: &Value,
    old: Option<&Value>,
    data: &[&str],
    errors: &mut Vec<FieldError>,
) {
    let Some(old) = old.filter(|old| at(old, "immutable") == &Value::Bool(true)) else {
        return;
    };
    let detail = "field is immutable when `immutable` is set";
    if at(object, "immutable") != &Value::Bool(true) {
        errors.push(FieldError::forbidden("immutable", detail));
    }
    for field in data {
        if object.get(*field) != old.get(*field) {
            errors.push(FieldError::forbidden(*field, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_becomes_encoded_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "plain", "b": "y"}});
        Secret.default(&mut secret);
        assert_eq!(
            secret,
            json!({"data": {"a": "cGxhaW4=", "b": "eQ=="}, "type": "Opaque"})
        );
    }

    #[test]
    fn invalid_config_maps_are_refused() {
        let big = "x".repeat(MAX_DATA_BYTES + 1);
        let frozen = json!({"immutable": true, "data": {"a": "1"}});
        for (case, object, old, want) in [
            ("fine", json!({"data": {"a": "1"}}), None, None),
            (
                "bad key",
                json!({"data": {"a/b": "1"}}),
                None,
                Some("data[a/b]"),
            ),
            (
                "a key twice",
                json!({"data": {"a": "1"}, "binaryData": {"a": ""}}),
                None,
                Some("data[a]"),
            ),
            ("too big", json!({"data": {"a": big}}), None, Some("[]")),
            (
                "frozen data",
                json!({"immutable": true, "data": {"a": "2"}}),
                Some(&frozen),
                Some("data"),
            ),
            (
                "thawing",
                json!({"data": {"a": "1"}}),
                Some(&frozen),
                Some("immutable"),
            ),
        ] {
            let errors = ConfigMap.validate(&object, old, Write::Update);
            assert_eq!(errors.first().map(|e| e.field.as_str()), want, "{case}");
        }
    }
}
