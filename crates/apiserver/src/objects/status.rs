//! Errors in Kubernetes' form: a `Status` object with a code, a reason and details.
//!
//! Every handler returns `Result<_, Status>`; only this module decides how an error is written.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

/// The body of an error response.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u16,
    /// Empty for errors that the real server passes on as raw text. A webhook chooses its own.
    pub reason: Cow<'static, str>,
    pub message: String,
    /// `Some` even when empty where the real server writes `"details":{}`.
    pub details: Option<Details>,
    /// `metadata.continue` of an expired list.
    pub continue_token: Option<String>,
    /// Texts of `Warning` headers: the findings in the body before it was refused.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The plural resource for 403, 404 and 409, the kind for 422.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: Cow<'static, str>,
    pub message: String,
    pub field: String,
}

/// An error in one field: a part of a 422 response.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub field: String,
    pub reason: FieldReason,
    /// The text after the field, for example `Required value` or `Invalid value: -1: must be positive`.
    pub message: String,
}

pub type FieldErrors = Vec<FieldError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReason {
    Required,
    Invalid,
    NotSupported,
    Forbidden,
    Duplicate,
    NotFound,
    TooLong,
    TooMany,
    TypeInvalid,
}

impl FieldReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

impl FieldError {
    pub fn new(field: impl Into<String>, reason: FieldReason, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason,
            message: message.into(),
        }
    }

    /// `Required value`, with an optional explanation after a colon.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            field,
            FieldReason::Required,
            with_detail("Required value", detail),
        )
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(
            field,
            FieldReason::Invalid,
            with_detail(&format!("Invalid value: {value}"), detail),
        )
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(
            field,
            FieldReason::Forbidden,
            with_detail("Forbidden", detail),
        )
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            field,
            FieldReason::Duplicate,
            format!("Duplicate value: {value}"),
        )
    }

    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, FieldReason::NotFound, format!("Not found: {value}"))
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(|a| format!("\"{a}\"")).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        );
        Self::new(field, FieldReason::NotSupported, message)
    }
}

fn with_detail(text: &str, detail: &str) -> String {
    if detail.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {detail}")
    }
}

impl Status {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            continue_token: None,
            warnings: Vec::new(),
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..Details::default()
        });
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Refused by admission: `pods "q" is forbidden: <why>`.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", qualified(plural, group));
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(plural, group));
        Self::new(404, "NotFound", message).about(group, plural, name)
    }

    /// A resource, version or subresource that a known group does not have.
    pub fn no_such_resource() -> Self {
        let mut status = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        status.details = Some(Details::default());
        status
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::new(405, "MethodNotAllowed", message);
        status.details = Some(Details::default());
        status
    }

    /// The message of 405 for custom kinds.
    pub fn verb_not_supported(group: &str, plural: &str, verb: &str) -> Self {
        let resource = qualified(plural, group);
        let message = format!("{verb} is not supported on resources of kind {resource:?}");
        Self::new(405, "MethodNotAllowed", message).about(group, plural, "")
    }

    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Self::new(406, "NotAcceptable", message)
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(plural, group));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    /// `Operation cannot be fulfilled on <resource> "<name>": <why>`.
    pub fn conflict(group: &str, plural: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            qualified(plural, group)
        );
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_large() -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        )
    }

    /// `accepted` is the list of media types that the path takes.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// `<Kind>.<group> "<name>" is invalid: ...`; the text names each error once.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {}", error.field, error.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = if texts.len() == 1 {
            texts.remove(0)
        } else {
            format!("[{}]", texts.join(", "))
        };
        let message = format!("{} {name:?} is invalid: {text}", qualified(kind, group));
        let mut status = Self::new(422, "Invalid", message).about(group, kind, name);
        if let Some(details) = &mut status.details {
            details.causes = errors
                .iter()
                .map(|error| Cause {
                    reason: error.reason.as_str().into(),
                    message: error.message.clone(),
                    field: error.field.clone(),
                })
                .collect();
        }
        status
    }

    /// `Internal error occurred: <why>`: a failure in the server or in what it depends on.
    pub fn internal_error(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        let message = format!("Internal error occurred: {why}");
        let mut status = Self::new(500, "InternalError", message);
        status.details = Some(Details {
            causes: vec![Cause {
                reason: "".into(),
                message: why,
                field: String::new(),
            }],
            ..Details::default()
        });
        status
    }

    /// A raw error text with code 500, as the real server returns unexpected errors.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub fn to_json(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            body["details"] = details.to_json();
        }
        body["code"] = json!(self.code);
        body
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = json!({});
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                out[key] = json!(text);
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(Cause::to_json).collect();
            out["causes"] = Value::Array(causes);
        }
        if let Some(seconds) = self.retry_after_seconds {
            out["retryAfterSeconds"] = json!(seconds);
        }
        out
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = json!({});
        for (key, text) in [
            ("reason", &*self.reason),
            ("message", self.message.as_str()),
            ("field", self.field.as_str()),
        ] {
            if !text.is_empty() {
                out[key] = json!(text);
            }
        }
        out
    }
}

/// `deployments.apps`, or just `pods` for the core group.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_object_names_each_error_once_and_lists_every_cause() {
        let errors = [
            FieldError::required("spec.containers", ""),
            FieldError::required("spec.containers", ""),
            FieldError::not_supported("spec.restartPolicy", &json!("Foo"), &["Always", "Never"]),
        ];
        let body = Status::invalid("", "Pod", "x", &errors).to_json();
        assert_eq!(
            body["message"],
            "Pod \"x\" is invalid: [spec.containers: Required value, spec.restartPolicy: \
             Unsupported value: \"Foo\": supported values: \"Always\", \"Never\"]"
        );
        assert_eq!(body["details"]["causes"].as_array().map(Vec::len), Some(3));
        assert_eq!(
            body["details"]["causes"][2]["reason"],
            "FieldValueNotSupported"
        );
    }

    #[test]
    fn the_core_group_has_no_suffix() {
        assert_eq!(
            Status::not_found("", "pods", "x").message,
            "pods \"x\" not found"
        );
        assert_eq!(
            Status::not_found("apps", "deployments", "x").message,
            "deployments.apps \"x\" not found"
        );
    }
}
