//! `pods/binding`, and its older form `bindings`: one guarded update that gives a pod its node.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Call;
use super::admission::{Admission, AdmissionOperation, BodyType};
use super::write::{Ownership, is_deleting, meta_text, metadata_mut, now, warn};
use crate::kinds::TOPOLOGY_LABELS;
use crate::kinds::kind::Write;
use crate::objects::decode::{self, Expected};
use crate::objects::managed_fields::{self, Writer};
use crate::objects::schema::Schema;
use crate::objects::status::{FieldError, Status};
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::response::ApiResponse;

pub(super) async fn create(call: &Call) -> Result<ApiResponse, Status> {
    let options = WriteOptions::parse(&call.request.query, WriteVerb::Create)?;
    let schema = Schema::builtin("v1", "Binding")
        .ok_or_else(|| Status::internal("the schema of Binding is missing"))?;
    let expected = Expected {
        api_version: "v1",
        kind: "Binding",
        schema: &schema,
        custom: false,
    };
    let content_type = call.content_type();
    let body = &call.request.body;
    let decoded = decode::body(content_type, body, &expected, options.field_validation)?;
    let mut binding = decoded.object;
    let name = meta_text(&binding, "name").to_owned();
    let legacy = call.path.name.is_empty();
    if !legacy && name != call.path.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    call.check_namespace(&binding)?;
    let mut warnings = decoded.warnings;
    let bound = bind(call, &mut binding, &schema, &options, &mut warnings);
    warn(bound.await, warnings)
}

async fn bind(
    call: &Call,
    binding: &mut Value,
    schema: &Schema,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<ApiResponse, Status> {
    let name = meta_text(binding, "name").to_owned();
    metadata_mut(binding).insert("namespace".to_owned(), json!(call.path.namespace));
    copy_topology(call, binding);
    let body = BodyType {
        api_version: "v1",
        kind: "Binding",
        schema,
        rules: None,
    };
    let writer = Writer {
        api_version: "v1",
        has_status: false,
        ..call.writer(options, "binding")
    };
    managed_fields::update(schema, None, binding, &writer);
    let admission = Admission::write(call, AdmissionOperation::Create)
        .body(body)
        .name(&name);
    let write = Write::Subresource("binding");
    admission.mutate(binding, None, write, warnings).await?;
    check_target(binding)?;
    admission.validate(Some(&*binding), None, warnings).await?;
    let pod = call.on("", "pods", &name)?;
    let binding = &*binding;
    let bound = pod.modify(write, options.dry_run, &Ownership::Unchanged, None, |old| {
        pod.check_bindable(old, binding)?;
        Ok(bound(old, binding))
    });
    bound.await?;
    Ok(ApiResponse::success(StatusCode::CREATED, None))
}

fn check_target(binding: &Value) -> Result<(), Status> {
    let target = &binding["target"];
    let kind = target["kind"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported(
            "target.kind",
            &json!(kind),
            &["Node", "<empty>"],
        ));
    }
    if target["name"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required("target.name", ""));
    }
    // The real server passes these on as they are.
    let texts: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    match texts.as_slice() {
        [] => Ok(()),
        [text] => Err(Status::internal(text)),
        texts => Err(Status::internal(format!("[{}]", texts.join(", ")))),
    }
}

/// Copies the topology labels of the node to the pod.
fn copy_topology(call: &Call, binding: &mut Value) {
    if binding["target"]["kind"] != "Node" {
        return;
    }
    let registry = call.server.registry();
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let node = registry
        .find_resource("", "nodes")
        .and_then(|nodes| call.server.store.get(nodes.table, node));
    let Some(node) = node else { return };
    for key in TOPOLOGY_LABELS {
        if let Some(value) = node.index.label(key) {
            let labels = metadata_mut(binding)
                .entry("labels")
                .or_insert_with(|| json!({}));
            labels[key] = json!(value);
        }
    }
}

impl Call {
    fn check_bindable(&self, pod: &Value, binding: &Value) -> Result<(), Status> {
        self.check_uid(binding, pod)?;
        let (wanted, stored) = (
            meta_text(binding, "resourceVersion"),
            meta_text(pod, "resourceVersion"),
        );
        if !wanted.is_empty() && wanted != stored {
            return Err(self.precondition_failed("ResourceVersion", wanted, stored));
        }
        let name = &self.path.name;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let gates = pod["spec"]["schedulingGates"].as_array();
        let why = if is_deleting(pod) {
            format!("pod {name} is being deleted, cannot be assigned to a host")
        } else if !node.is_empty() {
            format!("pod {name} is already assigned to node {node:?}")
        } else if gates.is_some_and(|gates| !gates.is_empty()) {
            format!("pod {name} has non-empty .spec.schedulingGates")
        } else {
            return Ok(());
        };
        Err(Status::conflict("", "pods/binding", name, why))
    }
}

fn bound(pod: &Value, binding: &Value) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    if let Some(status) = pod["status"].as_object_mut() {
        status.shift_remove("nominatedNodeName");
    }
    for part in ["annotations", "labels"] {
        let Some(added) = binding["metadata"][part]
            .as_object()
            .filter(|m| !m.is_empty())
        else {
            continue;
        };
        let target = metadata_mut(&mut pod)
            .entry(part)
            .or_insert_with(|| Value::Object(Map::new()));
        for (key, value) in added {
            target[key] = value.clone();
        }
    }
    let scheduled = json!({"type": "PodScheduled", "status": "True"});
    set_condition(&mut pod, scheduled);
    pod
}

/// Replaces the condition of this type, or adds it; the time moves with the status.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = json!(now());
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(list) = pod["status"]["conditions"].as_array_mut() else {
        return;
    };
    match list
        .iter_mut()
        .find(|known| known["type"] == condition["type"])
    {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => list.push(condition),
    }
}
