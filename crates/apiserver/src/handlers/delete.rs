//! DELETE of one object or of a collection: options, grace, finalizers.

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admission::{Admission, AdmissionOperation};
use super::write::{finalizers, format_time, is_deleting, meta_text, metadata_mut, warn};
use super::{Call, read};
use crate::objects::decode::{self, Expected, FieldValidation};
use crate::objects::schema::Schema;
use crate::objects::status::{FieldError, Status};
use crate::protocol::options::{ListOptions, check_dry_run, refuse};
use crate::protocol::response::{ApiResponse, Content, ListPage};
use crate::resources::registry::ServedKind;
use crate::resources::selector::Selector;
use crate::resources::state::ServerState;
use crate::store::Conflict;
use crate::store::object::{Change, Object};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DeleteOptions {
    grace: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(super) dry_run: bool,
    /// As sent, for webhooks.
    sent: Value,
}

impl DeleteOptions {
    /// From the body, else from the query.
    fn read(call: &Call) -> Result<Self, Status> {
        let query = &call.request.query;
        if !call.request.body.is_empty() {
            return Self::from_json(&decode_options(call)?);
        }
        let mut options = json!({});
        if let Some(grace) = query.integer("gracePeriodSeconds")? {
            options["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = query.find("propagationPolicy") {
            options["propagationPolicy"] = json!(policy);
        }
        if let Some(orphan) = query.flag("orphanDependents") {
            options["orphanDependents"] = json!(orphan);
        }
        options["dryRun"] = query.all("dryRun").collect();
        Self::from_json(&options)
    }

    pub(super) fn from_json(options: &Value) -> Result<Self, Status> {
        let mut errors = Vec::new();
        let dry_run = options["dryRun"].as_array().into_iter().flatten();
        let dry_run = check_dry_run(dry_run.filter_map(Value::as_str), &mut errors);
        let policy = options["propagationPolicy"].as_str();
        let orphan = options["orphanDependents"].as_bool();
        let propagation = match (policy, orphan) {
            (Some(_), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(
                    "propagationPolicy",
                    &json!(policy),
                    why,
                ));
                None
            }
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    &allowed,
                ));
                None
            }
            (None, None) => None,
        };
        refuse("DeleteOptions", &errors)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            grace: options["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: text(&options["preconditions"]["uid"]),
            resource_version: text(&options["preconditions"]["resourceVersion"]),
            dry_run,
            sent: options.clone(),
        })
    }
}

/// Clients send the options with the version of the object they delete, or without any.
fn decode_options(call: &Call) -> Result<Value, Status> {
    let schema = Schema::builtin("v1", "DeleteOptions")
        .ok_or_else(|| Status::internal("the schema of DeleteOptions is missing"))?;
    let claimed: Value = serde_json::from_slice(&call.request.body).unwrap_or_default();
    let version = claimed["apiVersion"].as_str();
    if let Some(kind) = claimed["kind"]
        .as_str()
        .filter(|kind| !matches!(*kind, "" | "DeleteOptions"))
    {
        let version = version.unwrap_or("meta.k8s.io/v1");
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    let expected = Expected {
        api_version: version.unwrap_or("v1"),
        kind: "DeleteOptions",
        schema: &schema,
        custom: false,
    };
    let content_type = call.content_type();
    let body = &call.request.body;
    let decoded = decode::body(content_type, body, &expected, FieldValidation::Ignore)?;
    Ok(decoded.object)
}

pub(super) async fn delete(call: &Call) -> Result<ApiResponse, Status> {
    let mut warnings = Vec::new();
    let deleted = delete_warning(call, &mut warnings).await;
    warn(deleted, warnings)
}

async fn delete_warning(call: &Call, warnings: &mut Vec<String>) -> Result<ApiResponse, Status> {
    let options = DeleteOptions::read(call)?;
    let mut of_kind = Vec::new();
    if options.propagation.is_none() {
        of_kind = call.served.kind.rules.delete_warnings();
    }
    let deleted = call
        .delete_admitted(&call.key(), &options, warnings)
        .await?;
    warnings.extend(of_kind);
    let served = Arc::clone(&call.served);
    let answer = match deleted {
        Deleted::Kept(content) => ApiResponse::ok(content),
        Deleted::Gone(last) if call.served.kind.returns_deleted => {
            ApiResponse::ok(Content::Value(Some(served), last))
        }
        Deleted::Gone(last) => {
            let kind = &call.served.kind;
            let mut details = json!({"name": meta_text(&last, "name")});
            if !kind.group.is_empty() {
                details["group"] = json!(kind.group);
            }
            details["kind"] = json!(kind.plural);
            details["uid"] = json!(meta_text(&last, "uid"));
            ApiResponse::success(StatusCode::OK, Some(details))
        }
    };
    Ok(answer)
}

/// The result of a deletion.
pub(super) enum Deleted {
    /// It waits for its grace period or its finalizers.
    Kept(Content),
    Gone(Value),
}

impl Call {
    /// Deletes an object without asking webhooks: an eviction, or the end of a custom kind.
    pub(super) fn delete_object(
        &self,
        key: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        loop {
            let (current, value) = self.deletable(key, options)?;
            match self.delete_once(&current, value, options) {
                Ok(deleted) => return Ok(deleted),
                Err(Conflict) => continue,
            }
        }
    }

    /// Deletes an object if the webhooks allow it.
    async fn delete_admitted(
        &self,
        key: &str,
        options: &DeleteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Deleted, Status> {
        loop {
            let (current, value) = self.deletable(key, options)?;
            let admission = Admission::new(self, AdmissionOperation::Delete, options.sent.clone())
                .name(meta_text(&value, "name"));
            admission.delete(&value, warnings).await?;
            match self.delete_once(&current, value, options) {
                Ok(deleted) => return Ok(deleted),
                Err(Conflict) => continue,
            }
        }
    }

    fn deletable(
        &self,
        key: &str,
        options: &DeleteOptions,
    ) -> Result<(Arc<Object>, Value), Status> {
        let current = self.server.store.get(self.served.table, key);
        let current = current.ok_or_else(|| self.not_found())?;
        let value = self.served.value(&current);
        self.check_preconditions(&value, options)?;
        self.served.kind.rules.admit_delete(&value)?;
        Ok((current, value))
    }

    fn check_preconditions(&self, object: &Value, options: &DeleteOptions) -> Result<(), Status> {
        let checks = [
            ("UID", &options.uid, meta_text(object, "uid")),
            (
                "ResourceVersion",
                &options.resource_version,
                meta_text(object, "resourceVersion"),
            ),
        ];
        for (what, wanted, stored) in checks {
            let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != stored) else {
                continue;
            };
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({stored}). The object might have been {}",
                if what == "UID" {
                    "deleted and then recreated"
                } else {
                    "modified"
                },
            );
            let kind = &self.served.kind;
            let name = meta_text(object, "name");
            return Err(Status::conflict(&kind.group, &kind.kind, name, why));
        }
        Ok(())
    }

    fn delete_once(
        &self,
        current: &Arc<Object>,
        value: Value,
        options: &DeleteOptions,
    ) -> Result<Deleted, Conflict> {
        let served = &self.served;
        let grace = served.kind.rules.grace_seconds(&value, options.grace);
        let mut marked = value.clone();
        mark(served, &mut marked, grace, options);
        let waits = marked["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(0)
            > 0
            || !finalizers(&marked).is_empty()
            || served.kind.rules.holds_back_delete(&marked);
        let unchanged = marked == value;
        if options.dry_run {
            let content = Content::Value(Some(Arc::clone(served)), marked.clone());
            return Ok(if waits {
                Deleted::Kept(content)
            } else {
                Deleted::Gone(marked)
            });
        }
        let store = &self.server.store;
        if waits && unchanged {
            let content = Content::Object(Arc::clone(served), Arc::clone(current));
            return Ok(Deleted::Kept(content));
        }
        if waits {
            let draft = served.draft(Change::Modified, &marked);
            let stored = store.replace(served.table, current, draft)?;
            return Ok(Deleted::Kept(Content::Object(Arc::clone(served), stored)));
        }
        // Watchers see a pod without a grace period as deleting before it is removed.
        if grace.is_some() && !unchanged {
            let draft = served.draft(Change::Modified, &marked);
            let stored = store.replace(served.table, current, draft)?;
            let last = store.remove(served.table, &stored)?;
            return Ok(Deleted::Gone(served.value(&last)));
        }
        let last = store.remove(served.table, current)?;
        Ok(Deleted::Gone(served.value(&last)))
    }
}

/// Sets the fields of a deletion: time, grace period, finalizers of the policy.
fn mark(served: &ServedKind, object: &mut Value, grace: Option<i64>, options: &DeleteOptions) {
    let now = Timestamp::now();
    if is_deleting(object) {
        // Now only an explicit grace period counts.
        if let (Some(_), Some(wish)) = (grace, options.grace) {
            shorten_grace(object, if wish < 0 { 1 } else { wish });
        }
        return mark_propagation(served, object, options);
    }
    let begins = grace.unwrap_or(0).max(0);
    let time = now
        .saturating_add(SignedDuration::from_secs(begins))
        .unwrap_or(now);
    let ends_in_its_own_way = served.kind.rules.holds_back_delete(object);
    let metadata = metadata_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), json!(format_time(time)));
    if !ends_in_its_own_way {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(begins));
        let generation = metadata.get("generation").and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|g| *g > 0) {
            // Some kinds store whatever generation a client made up.
            let next = generation.saturating_add(1);
            metadata.insert("generation".to_owned(), json!(next));
        }
    }
    served.kind.rules.begin_delete(object);
    mark_propagation(served, object, options);
}

/// A repeated deletion can only shorten the grace period.
fn shorten_grace(object: &mut Value, grace: i64) {
    let metadata = metadata_mut(object);
    let old = metadata
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    let old = old.unwrap_or(0);
    let due: Option<Timestamp> = metadata
        .get("deletionTimestamp")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok());
    if grace >= old {
        return;
    }
    let due = due.and_then(|due| due.checked_sub(SignedDuration::from_secs(old - grace)).ok());
    if let Some(due) = due {
        metadata.insert("deletionTimestamp".to_owned(), json!(format_time(due)));
    }
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The finalizers that the garbage collector acts on.
fn mark_propagation(served: &ServedKind, object: &mut Value, options: &DeleteOptions) {
    let rules = &served.kind.rules;
    let policy = match options.propagation {
        None if rules.orphans_by_default() => Some(Propagation::Orphan),
        policy => policy,
    };
    let wanted = match policy {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
    };
    let mut list: Vec<String> = finalizers(object)
        .into_iter()
        .filter(|name| (*name != FOREGROUND && *name != ORPHAN) || Some(*name) == wanted)
        .map(str::to_owned)
        .collect();
    if let Some(wanted) = wanted
        && !list.iter().any(|name| name == wanted)
    {
        list.push(wanted.to_owned());
    }
    let metadata = metadata_mut(object);
    if list.is_empty() {
        metadata.shift_remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(list));
    }
}

/// Deletes every object of a kind with background propagation; returns whether none is left.
pub(crate) fn delete_all(server: &Arc<ServerState>, served: &Arc<ServedKind>) -> bool {
    let call = Call::internal(server, served, "");
    let options = DeleteOptions::default();
    let snapshot = server.store.scan(served.table, "", "");
    let mut left = false;
    for object in &snapshot.objects {
        left |= matches!(
            call.delete_object(&object.key, &options),
            Ok(Deleted::Kept(_))
        );
    }
    !left
}

pub(super) async fn delete_collection(call: &Call) -> Result<ApiResponse, Status> {
    let mut warnings = Vec::new();
    let deleted = delete_selected(call, &mut warnings).await;
    warn(deleted, warnings)
}

async fn delete_selected(call: &Call, warnings: &mut Vec<String>) -> Result<ApiResponse, Status> {
    let options = DeleteOptions::read(call)?;
    let list = ListOptions::parse(&call.request.query)?;
    let selector = Selector::parse(&list.label_selector, &list.field_selector, &call.served)?;
    let snapshot = call
        .server
        .store
        .scan(call.served.table, &read::prefix(call), "");
    let mut objects = snapshot.objects;
    objects.retain(|object| selector.matches(&call.served, object));
    for object in &objects {
        match call.delete_admitted(&object.key, &options, warnings).await {
            Ok(_) => {}
            // Another request deleted it.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(ApiResponse::ok(Content::List(ListPage {
        served: Arc::clone(&call.served),
        revision: call.server.store.revision(),
        continue_token: String::new(),
        remaining: None,
        objects,
    })))
}
