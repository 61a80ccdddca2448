//! `pods/eviction`: a deletion that the disruption budgets must allow.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::{Admission, AdmissionOperation, BodyType};
use super::binding::set_condition;
use super::delete::DeleteOptions;
use super::write::{Ownership, is_deleting, meta_text, metadata_mut, now, warn};
use super::{Call, SERVER};
use crate::kinds::kind::{Lookup, Write};
use crate::objects::decode::{self, Expected};
use crate::objects::managed_fields::Writer;
use crate::objects::schema::Schema;
use crate::objects::status::{Cause, Details, Status};
use crate::protocol::options::{WriteOptions, WriteVerb};
use crate::protocol::response::ApiResponse;
use crate::resources::selector::matches_label_selector;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub(super) async fn create(call: &Call) -> Result<ApiResponse, Status> {
    let mut warnings = Vec::new();
    let evicted = evict(call, &mut warnings).await;
    warn(evicted, warnings)
}

async fn evict(call: &Call, warnings: &mut Vec<String>) -> Result<ApiResponse, Status> {
    let write = WriteOptions::parse(&call.request.query, WriteVerb::Create)?;
    let schema = Schema::builtin("policy/v1", "Eviction")
        .ok_or_else(|| Status::internal("the schema of Eviction is missing"))?;
    let mut eviction = decode_eviction(call, &schema, &write)?;
    let name = meta_text(&eviction, "name");
    if name != call.path.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    metadata_mut(&mut eviction).insert("namespace".to_owned(), json!(call.path.namespace));
    let body = BodyType {
        api_version: "policy/v1",
        kind: "Eviction",
        schema: &schema,
        rules: None,
    };
    let admission = Admission::write(call, AdmissionOperation::Create).body(body);
    let evicts = Write::Subresource("eviction");
    admission
        .mutate(&mut eviction, None, evicts, warnings)
        .await?;
    admission.validate(Some(&eviction), None, warnings).await?;
    let mut options = DeleteOptions::from_json(&eviction["deleteOptions"])?;
    options.dry_run |= write.dry_run;

    let pod = call.server.store.get(call.served.table, &call.key());
    let pod = call.served.value(&*pod.ok_or_else(|| call.not_found())?);
    if !ignores_budgets(&pod) {
        consume_budget(call, &pod, options.dry_run).await?;
    }
    if !options.dry_run {
        let write = Write::Subresource("status");
        let marked = call.modify(write, false, &Ownership::Unchanged, None, |old| {
            let mut new = old.clone();
            set_condition(
                &mut new,
                json!({
                    "type": "DisruptionTarget", "status": "True",
                    "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                }),
            );
            Ok(new)
        });
        marked.await?;
    }
    call.delete_object(&call.key(), &options)?;
    Ok(ApiResponse::success(StatusCode::CREATED, None))
}

fn decode_eviction(call: &Call, schema: &Schema, options: &WriteOptions) -> Result<Value, Status> {
    let claimed: Value = serde_json::from_slice(&call.request.body).unwrap_or_default();
    let api_version = match claimed["apiVersion"].as_str() {
        Some("policy/v1beta1") => "policy/v1beta1",
        _ => "policy/v1",
    };
    let expected = Expected {
        api_version,
        kind: "Eviction",
        schema,
        custom: false,
    };
    let content_type = call.content_type();
    let body = &call.request.body;
    let decoded = decode::body(content_type, body, &expected, options.field_validation)?;
    Ok(decoded.object)
}

/// Pods that do not run yet or any more need no budget.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    matches!(phase, "Pending" | "Succeeded" | "Failed") || is_deleting(pod)
}

async fn consume_budget(call: &Call, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let namespace = &call.path.namespace;
    let budgets = call
        .server
        .list("policy", "poddisruptionbudgets", namespace);
    let mut matching = budgets.into_iter().filter(|budget| {
        matches_label_selector(&budget["spec"]["selector"], &pod["metadata"]["labels"])
    });
    let Some(budget) = matching.next() else {
        return Ok(());
    };
    if matching.next().is_some() {
        return Err(Status::new(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    if !is_ready(pod) && spares_unready(&budget) {
        return Ok(());
    }
    let name = meta_text(&budget, "name").to_owned();
    let pod_name = meta_text(pod, "name").to_owned();
    let budget = call.on("policy", "poddisruptionbudgets", &name)?;
    let write = Write::Subresource("status");
    let writer = Writer {
        manager: SERVER,
        api_version: &budget.served.api_version,
        subresource: "status",
        has_status: true,
        now: Timestamp::now(),
    };
    let ownership = Ownership::Update(writer);
    let consumed = budget.modify(write, dry_run, &ownership, None, |old| {
        check_allowed(old)?;
        Ok(with_disruption(old, &pod_name))
    });
    consumed.await.map(drop)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Whether the budget allows the eviction of pods that are not ready.
fn spares_unready(budget: &Value) -> bool {
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0)
}

fn check_allowed(budget: &Value) -> Result<(), Status> {
    let name = meta_text(budget, "name");
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if status("observedGeneration") < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(too_many(why, Some(10)));
    }
    let allowed = status("disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Status::forbidden(
            "policy",
            "poddisruptionbudgets",
            name,
            why,
        ));
    }
    if allowed > 0 {
        return Ok(());
    }
    let (healthy, desired) = (status("currentHealthy"), status("desiredHealthy"));
    let mut why = if healthy <= desired {
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    };
    if let Some(failure) = sync_failure(budget) {
        why = format!("{why} because it failed sync: {failure}");
    }
    Err(too_many(why, None))
}

fn sync_failure(budget: &Value) -> Option<&str> {
    let conditions = budget["status"]["conditions"].as_array()?;
    let failed = conditions.iter().find(|c| {
        c["type"] == "DisruptionAllowed" && c["status"] == "False" && c["reason"] == "SyncFailed"
    })?;
    failed["message"]
        .as_str()
        .filter(|message| !message.is_empty())
}

fn too_many(why: String, retry_after_seconds: Option<u32>) -> Status {
    let mut status = Status::new(429, "TooManyRequests", REFUSED);
    status.details = Some(Details {
        causes: vec![Cause {
            reason: "DisruptionBudget".into(),
            message: why,
            field: String::new(),
        }],
        retry_after_seconds,
        ..Details::default()
    });
    status
}

fn with_disruption(budget: &Value, pod: &str) -> Value {
    let mut budget = budget.clone();
    let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
    budget["status"]["disruptionsAllowed"] = json!(left);
    budget["status"]["disruptedPods"][pod] = json!(now());
    if left == 0 {
        let generation = budget["metadata"]["generation"].clone();
        let mut condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "message": "", "observedGeneration": generation, "lastTransitionTime": now(),
        });
        if !budget["status"]["conditions"].is_array() {
            budget["status"]["conditions"] = json!([]);
        }
        if let Some(list) = budget["status"]["conditions"].as_array_mut() {
            match list.iter_mut().find(|c| c["type"] == "DisruptionAllowed") {
                Some(known) => {
                    if known["status"] == condition["status"] {
                        condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
                    }
                    *known = condition;
                }
                None => list.push(condition),
            }
        }
    }
    budget
}

impl Call {
    /// This request for another object of the same namespace.
    pub(super) fn on(&self, group: &str, plural: &str, name: &str) -> Result<Call, Status> {
        let registry = self.server.registry();
        let served = registry.find_resource(group, plural);
        let served = served.ok_or_else(Status::no_such_resource)?;
        let mut path = self.path.clone();
        name.clone_into(&mut path.name);
        Ok(Call {
            server: Arc::clone(&self.server),
            served: Arc::clone(served),
            path,
            accept: self.accept,
            include: self.include,
            request: self.request.clone(),
        })
    }
}
