//! PUT on an object or a subresource of it.

use serde_json::{Value, json};

use super::Call;
use super::admission::{Admission, AdmissionOperation};
use super::write::{MODIFIED, Ownership, meta_text, warn};
use crate::kinds::kind::Write;
use crate::objects::decode;
use crate::objects::status::{FieldError, Status};
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::response::ApiResponse;

/// What marks an object as being deleted; only a DELETE sets it.
pub(super) const DELETION: [&str; 2] = ["deletionTimestamp", "deletionGracePeriodSeconds"];

/// `subresource` is empty on the main path.
pub(super) async fn update(call: &Call, subresource: &str) -> Result<ApiResponse, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Update)?;
    let decoded = decode::body(
        call.content_type(),
        &call.request.body,
        &call.served.expected(),
        options.field_validation,
    )?;
    let object = decoded.object;
    call.check_identity(&object)?;
    let main_path = subresource.is_empty();
    let missing = call
        .server
        .store
        .get(call.served.table, &call.key())
        .is_none();
    if missing && main_path && call.served.kind.rules.creates_on_update() {
        let ownership = Ownership::Update(call.writer(&options, ""));
        match call.create(object.clone(), &options, &ownership).await {
            // Another writer made it in the meantime.
            Err(status) if status.reason == "AlreadyExists" => {}
            created => return warn(created, decoded.warnings),
        }
    }
    let write = if main_path {
        Write::Update
    } else {
        Write::Subresource(subresource)
    };
    let ownership = Ownership::Update(call.writer(&options, subresource));
    let admission = Admission::write(call, AdmissionOperation::Update);
    let updated = call.modify(
        write,
        options.dry_run,
        &ownership,
        Some(&admission),
        |old| {
            call.check_uid(&object, old)?;
            call.check_revision(&object, old)?;
            call.check_immutable(&object, old, &DELETION)?;
            Ok(object.clone())
        },
    );
    warn(updated.await, decoded.warnings)
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

    /// A namespace in the body must be that of the path, for namespaced kinds.
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

    /// Metadata that a write may repeat or leave out, but not change.
    pub(super) fn check_immutable(
        &self,
        object: &Value,
        old: &Value,
        fields: &[&str],
    ) -> Result<(), Status> {
        let (new, old) = (&object["metadata"], &old["metadata"]);
        let errors: Vec<FieldError> = fields
            .iter()
            .filter(|field| !new[**field].is_null() && new[**field] != old[**field])
            .map(|field| {
                let path = format!("metadata.{field}");
                FieldError::invalid(path, &new[*field], "field is immutable")
            })
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(self.invalid(&self.path.name, &errors))
    }

    /// The message of the real server's storage.
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

    /// The key prefix of the kind in the real server's storage; some have an older name.
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
    pub(super) fn check_revision(&self, object: &Value, old: &Value) -> Result<(), Status> {
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
