//! The `scale` subresource: one number of the parent, seen as an `autoscaling/v1` Scale.

use serde_json::{Value, json};

use super::Call;
use super::admission::{Admission, AdmissionOperation, BodyType};
use super::patch::{apply_format, check_options};
use super::write::{MODIFIED, Ownership, meta_text, warn};
use crate::kinds::kind::{ScalePaths, Write};
use crate::objects::decode::{self, Expected};
use crate::objects::managed_fields;
use crate::objects::patch::PatchFormat;
use crate::objects::schema::Schema;
use crate::objects::status::{FieldError, Status};
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::response::{ApiResponse, Content};
use crate::resources::selector::label_selector_text;

const API_VERSION: &str = "autoscaling/v1";
/// As often as the real server applies a patch to an object that others change.
const PATCH_TRIES: usize = 5;

pub(super) fn get(call: &Call) -> Result<ApiResponse, Status> {
    let paths = paths(call)?;
    let object = call.server.store.get(call.served.table, &call.key());
    let object = object.ok_or_else(|| call.not_found())?;
    let scale = scale_of(&call.served.value(&object), paths);
    Ok(ApiResponse::ok(Content::Value(None, scale)))
}

pub(super) async fn write(call: &Call) -> Result<ApiResponse, Status> {
    let mut warnings = Vec::new();
    let written = write_warning(call, &mut warnings).await;
    warn(written, warnings)
}

/// The webhooks see a Scale, not the parent.
async fn admit(
    call: &Call,
    change: &ScaleRequest,
    paths: &ScalePaths,
    schema: &Schema,
    warnings: &mut Vec<String>,
) -> Result<Value, Status> {
    let object = call.server.store.get(call.served.table, &call.key());
    let object = object.ok_or_else(|| call.not_found())?;
    let old = scale_of(&call.served.value(&object), paths);
    let (mut scale, said) = change.scale(call, schema, &old)?;
    warnings.extend(said);
    let body = BodyType {
        api_version: API_VERSION,
        kind: "Scale",
        schema,
        rules: None,
    };
    let admission = Admission::write(call, AdmissionOperation::Update).body(body);
    let write = Write::Subresource("scale");
    admission
        .mutate(&mut scale, Some(&old), write, warnings)
        .await?;
    admission
        .validate(Some(&scale), Some(&old), warnings)
        .await?;
    Ok(scale)
}

async fn write_warning(call: &Call, warnings: &mut Vec<String>) -> Result<ApiResponse, Status> {
    let paths = paths(call)?;
    let schema = Schema::builtin(API_VERSION, "Scale")
        .ok_or_else(|| Status::internal("the schema of Scale is missing"))?;
    let change = ScaleRequest::read(call, &schema)?;
    let options = change.options();
    let write = Write::Subresource("scale");
    let mut tries = 0;
    let answer = loop {
        tries += 1;
        let mut said = Vec::new();
        let scale = admit(call, &change, paths, &schema, &mut said).await;
        warnings.splice(.., said);
        let scale = scale?;
        let answer = call.modify(
            write,
            options.dry_run,
            &Ownership::AlreadySet,
            None,
            |old| {
                let replicas = check(call, &scale, old)?;
                let mut new = old.clone();
                set_path(&mut new, &paths.spec_replicas, json!(replicas));
                let writer = call.writer(options, "scale");
                managed_fields::update(&call.served.kind.schema, Some(old), &mut new, &writer);
                if replicas == 0 {
                    disown(&mut new);
                }
                Ok(new)
            },
        );
        match answer.await {
            // A patch works on whatever is stored, unless it names a version.
            Err(status) if status.code == 409 && change.is_patch() && tries < PATCH_TRIES => {}
            answer => break answer?,
        }
    };
    let parent = match answer.content {
        Content::Object(served, object) => served.value(&object),
        Content::Value(_, value) => value,
        Content::List(_) | Content::Raw(_) => Value::Null,
    };
    Ok(
        ApiResponse::ok(Content::Value(None, scale_of(&parent, paths)))
            .with_warnings(answer.warnings),
    )
}

/// A Scale omits zero replicas, and an absent field has no owner.
fn disown(object: &mut Value) {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.retain(|entry| entry["subresource"] != "scale");
    }
}

fn paths(call: &Call) -> Result<&ScalePaths, Status> {
    call.served
        .kind
        .scale
        .as_ref()
        .ok_or_else(Status::no_such_resource)
}

/// A PUT has the whole Scale, a PATCH works on the present one.
enum ScaleRequest {
    Put(WriteOptions, Value, Vec<String>),
    Patch(WriteOptions, PatchFormat),
}

impl ScaleRequest {
    fn read(call: &Call, schema: &Schema) -> Result<Self, Status> {
        if call.request.method == http::Method::PUT {
            let options = WriteOptions::parse(&call.request.query, WriteVerb::Update)?;
            let decoded = decode::body(
                call.content_type(),
                &call.request.body,
                &expected(schema),
                options.field_validation,
            )?;
            call.check_identity(&decoded.object)?;
            return Ok(Self::Put(options, decoded.object, decoded.warnings));
        }
        let content_type = call.content_type().unwrap_or_default();
        let format = PatchFormat::from_content_type(content_type, call.served.custom)?;
        let options = WriteOptions::parse(&call.request.query, WriteVerb::Patch)?;
        check_options(&options, format)?;
        Ok(Self::Patch(options, format))
    }

    fn is_patch(&self) -> bool {
        matches!(self, Self::Patch(..))
    }

    fn options(&self) -> &WriteOptions {
        match self {
            Self::Put(options, ..) | Self::Patch(options, _) => options,
        }
    }

    fn scale(
        &self,
        call: &Call,
        schema: &Schema,
        current: &Value,
    ) -> Result<(Value, Vec<String>), Status> {
        match self {
            Self::Put(_, scale, warnings) => Ok((scale.clone(), warnings.clone())),
            Self::Patch(options, PatchFormat::Apply) => {
                let validation = options.field_validation;
                let decoded =
                    decode::apply_body(&call.request.body, &expected(schema), validation)?;
                Ok((decoded.object, decoded.warnings))
            }
            Self::Patch(options, format) => {
                let validation = options.field_validation;
                let decoded = apply_format(call, *format, current, &expected(schema), validation)?;
                call.check_identity(&decoded.object)?;
                Ok((decoded.object, decoded.warnings))
            }
        }
    }
}

fn expected(schema: &Schema) -> Expected<'_> {
    Expected {
        api_version: API_VERSION,
        kind: "Scale",
        schema,
        custom: false,
    }
}

/// The requested replicas.
fn check(call: &Call, scale: &Value, old: &Value) -> Result<i64, Status> {
    call.check_uid(scale, old)?;
    let wanted = meta_text(scale, "resourceVersion");
    if !matches!(wanted, "" | "0") && wanted != meta_text(old, "resourceVersion") {
        return Err(call.conflict(MODIFIED));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    // Custom kinds check it themselves, under the names of their own fields.
    if replicas < 0 && !call.served.custom {
        let why = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), why);
        return Err(Status::invalid(
            "autoscaling",
            "Scale",
            &call.path.name,
            &[error],
        ));
    }
    Ok(replicas)
}

fn scale_of(parent: &Value, paths: &ScalePaths) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = parent["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": API_VERSION, "metadata": metadata, "spec": {},
        "status": {"replicas": at_path(parent, &paths.status_replicas).as_i64().unwrap_or(0)},
    });
    let wanted = at_path(parent, &paths.spec_replicas).as_i64().unwrap_or(0);
    if wanted != 0 {
        scale["spec"]["replicas"] = json!(wanted);
    }
    let selector = paths.selector.as_ref();
    let selector = selector.map(|path| label_selector_text(at_path(parent, path)));
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

fn at_path<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .filter(|key| !key.is_empty())
        .fold(object, |value, key| &value[key])
}

fn set_path(object: &mut Value, path: &str, new: Value) {
    let mut place = object;
    for key in path.split('.').filter(|key| !key.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = new;
}
