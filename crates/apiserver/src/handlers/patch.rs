//! PATCH on an object or a subresource of it: three patch formats and server-side apply.

use serde_json::Value;

use super::Call;
use super::admission::{Admission, AdmissionOperation};
use super::update::DELETION;
use super::write::{Ownership, meta_text, warn};
use crate::kinds::kind::Write;
use crate::objects::decode::{self, Decoded, Expected, FieldValidation};
use crate::objects::managed_fields;
use crate::objects::patch::{self, PatchFormat};
use crate::objects::status::{FieldError, Status};
use crate::protocol::options::{WriteOptions, WriteVerb, refuse};
use crate::protocol::response::ApiResponse;

/// `subresource` is empty on the main path.
pub(super) async fn patch(call: &Call, subresource: &str) -> Result<ApiResponse, Status> {
    let content_type = call.content_type().unwrap_or_default();
    let format = PatchFormat::from_content_type(content_type, call.served.custom)?;
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Patch)?;
    check_options(&options, format)?;
    if format == PatchFormat::Apply {
        return apply(call, subresource, &options).await;
    }
    let mut warnings = Vec::new();
    let ownership = Ownership::Update(call.writer(&options, subresource));
    let admission = Admission::write(call, AdmissionOperation::Update);
    let patched = call.modify(
        write_kind(subresource),
        options.dry_run,
        &ownership,
        Some(&admission),
        |old| {
            let expected = call.served.expected();
            let decoded = apply_format(call, format, old, &expected, options.field_validation)?;
            warnings = decoded.warnings;
            call.check_patched(&decoded.object, old)?;
            Ok(decoded.object)
        },
    );
    let patched = patched.await;
    warn(patched, warnings)
}

fn write_kind(subresource: &str) -> Write<'_> {
    if subresource.is_empty() {
        Write::Update
    } else {
        Write::Subresource(subresource)
    }
}

pub(super) fn check_options(options: &WriteOptions, format: PatchFormat) -> Result<(), Status> {
    let mut errors = Vec::new();
    if format == PatchFormat::Apply && options.field_manager.is_empty() {
        errors.push(FieldError::required(
            "fieldManager",
            "is required for apply patch",
        ));
    }
    if format != PatchFormat::Apply && options.force.is_some() {
        errors.push(FieldError::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    refuse("PatchOptions", &errors)
}

pub(super) fn apply_format(
    call: &Call,
    format: PatchFormat,
    old: &Value,
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let body = &call.request.body;
    match format {
        PatchFormat::Json => patch::json(old, body, expected, validation),
        PatchFormat::Merge => patch::merge(old, body, expected, validation),
        PatchFormat::Strategic => patch::strategic(old, body, expected, validation),
        PatchFormat::Apply => Err(Status::internal(
            "an apply is not a patch of the stored object",
        )),
    }
}

async fn apply(
    call: &Call,
    subresource: &str,
    options: &WriteOptions,
) -> Result<ApiResponse, Status> {
    let expected = call.served.expected();
    let decoded = decode::apply_body(&call.request.body, &expected, options.field_validation)?;
    let applied = decoded.object;
    let schema = &call.served.kind.schema;
    let force = options.force.unwrap_or(false);
    let missing = call
        .server
        .store
        .get(call.served.table, &call.key())
        .is_none();
    if missing && subresource.is_empty() {
        let uid = meta_text(&applied, "uid");
        if !uid.is_empty() {
            return Err(call.conflict(format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            )));
        }
        let mut new = applied.clone();
        if let Some(metadata) = new["metadata"].as_object_mut() {
            metadata.shift_remove("resourceVersion");
        }
        let writer = call.writer(options, subresource);
        let object = managed_fields::apply(schema, None, new, &writer, force)?;
        call.check_identity(&object)?;
        match call.create(object, options, &Ownership::AlreadySet).await {
            // Another writer made it in the meantime.
            Err(status) if status.reason == "AlreadyExists" => {}
            created => return warn(created, decoded.warnings),
        }
    }
    let write = write_kind(subresource);
    let admission = Admission::write(call, AdmissionOperation::Update);
    let applied = call.modify(
        write,
        options.dry_run,
        &Ownership::AlreadySet,
        Some(&admission),
        |old| {
            let writer = call.writer(options, subresource);
            let new = managed_fields::apply(schema, Some(old), applied.clone(), &writer, force)?;
            call.check_patched(&new, old)?;
            Ok(new)
        },
    );
    warn(applied.await, decoded.warnings)
}

impl Call {
    /// A patch may carry the identity of the object, not change it; a resourceVersion in it is a
    /// precondition.
    pub(super) fn check_patched(&self, new: &Value, old: &Value) -> Result<(), Status> {
        self.check_identity(new)?;
        self.check_immutable(new, old, &["uid"])?;
        self.check_immutable(new, old, &DELETION)?;
        self.check_revision(new, old)
    }
}
