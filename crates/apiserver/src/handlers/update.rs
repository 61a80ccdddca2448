//! PUT on an object or a subresource of it.

use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::write::{MODIFIED, Ownership, meta_text};
use crate::answer::Answer;
use crate::decode;
use crate::kind::Write;
use crate::options::{WriteOptions, WriteVerb};
use crate::status::{FieldError, Status};

/// `subresource` is empty on the main path.
pub(super) fn update(call: &Call, subresource: &str) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Update)?;
    let decoded = decode::body(
        call.content_type(),
        &call.request.body,
        &call.served.expected(),
        options.field_validation,
    )?;
    let object = decoded.object;
    call.check_identity(&object)?;
    let mut warnings = decoded.warnings;
    warnings.extend(call.served.kind.rules.warnings(&object));

    let main_path = subresource.is_empty();
    let missing = call
        .server
        .store
        .get(call.served.table, &call.key())
        .is_none();
    if missing && main_path && call.served.kind.rules.creates_on_update() {
        let ownership = Ownership::Update(call.writer(&options, ""));
        let content = call.create(object, &options, &ownership)?;
        return Ok(Answer::new(StatusCode::CREATED, content).with_warnings(warnings));
    }
    let write = if main_path {
        Write::Update
    } else {
        Write::Subresource(subresource)
    };
    let ownership = Ownership::Update(call.writer(&options, subresource));
    let content = call.modify(write, options.dry_run, &ownership, |old| {
        call.check_uid(&object, old)?;
        call.check_revision(&object, old)?;
        Ok(object.clone())
    })?;
    Ok(Answer::ok(content).with_warnings(warnings))
}

impl Call {
    /// Name and namespace of the body are those of the path.
    pub(super) fn check_identity(&self, object: &Value) -> Result<(), Status> {
        let wanted = &self.path.name;
        let name = meta_text(object, "name");
        if name.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
            )));
        }
        if name != wanted {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({wanted})"
            )));
        }
        self.check_namespace(object)
    }

    /// A namespace in the body is that of the path; kinds without one do not care.
    pub(super) fn check_namespace(&self, object: &Value) -> Result<(), Status> {
        let namespace = meta_text(object, "namespace");
        let wanted = &self.path.namespace;
        if wanted.is_empty() || namespace.is_empty() || namespace == wanted {
            return Ok(());
        }
        Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }

    /// A uid in the body is a precondition.
    pub(super) fn check_uid(&self, object: &Value, old: &Value) -> Result<(), Status> {
        let (wanted, stored) = (meta_text(object, "uid"), meta_text(old, "uid"));
        if wanted.is_empty() || wanted == stored {
            return Ok(());
        }
        Err(self.precondition_failed("UID", wanted, stored))
    }

    /// The words in which the real server's storage reports it.
    pub(super) fn precondition_failed(&self, what: &str, wanted: &str, stored: &str) -> Status {
        let place = if what == "UID" {
            "UID"
        } else {
            "ResourceVersion"
        };
        self.conflict(format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {place} in \
             object meta: {stored}",
            self.registry_path(),
            self.key(),
        ))
    }

    /// Where the real server keeps objects of the kind; some are called as they were at first.
    fn registry_path(&self) -> String {
        let kind = &self.served.kind;
        match &*kind.plural {
            "nodes" => "minions".to_owned(),
            "replicationcontrollers" => "controllers".to_owned(),
            "services" => "services/specs".to_owned(),
            plural if self.served.custom => format!("{}/{plural}", kind.group),
            plural => plural.to_owned(),
        }
    }

    /// A resourceVersion in the body must be the stored one; without one, some kinds refuse.
    fn check_revision(&self, object: &Value, old: &Value) -> Result<(), Status> {
        let wanted = meta_text(object, "resourceVersion");
        let stored = meta_text(old, "resourceVersion");
        if matches!(wanted, "" | "0") {
            if self.served.kind.rules.allows_unconditional_update() {
                return Ok(());
            }
            let kind = &self.served.kind;
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
            return Err(Status::invalid(
                &kind.group,
                &kind.plural,
                &self.path.name,
                &[error],
            ));
        }
        if wanted.parse::<u64>().is_err() {
            return Err(Status::internal(format!(
                "strconv.ParseUint: parsing {wanted:?}: invalid syntax"
            )));
        }
        if wanted != stored {
            return Err(self.conflict(MODIFIED));
        }
        Ok(())
    }
}
