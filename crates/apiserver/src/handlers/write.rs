//! The common part of all writes: metadata that only the server sets, the rules of the kind in their
//! order, field ownership, and the store.

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Call;
use super::admission::{Admission, AdmissionOperation};
use crate::kinds::kind::Write;
use crate::kinds::metadata;
use crate::objects::managed_fields::{self, Writer};
use crate::objects::names;
use crate::objects::status::{Cause, FieldError, Status};
use crate::protocol::media::header;
use crate::protocol::options::WriteOptions;
use crate::protocol::response::{ApiResponse, Content};
use crate::resources::registry::ServedKind;
use crate::store::Conflict;
use crate::store::object::{Change, Draft, Object};

/// How the field owners change with a write.
pub(super) enum Ownership<'a> {
    /// The writer owns the fields it changed.
    Update(Writer<'a>),
    /// Server-side apply has set them already.
    AlreadySet,
    /// Not at all: a binding, for example.
    Unchanged,
}

/// Retries after a conflict before a write fails; the real server retries without limit.
const MAX_RACES: usize = 1000;

pub(super) fn now() -> String {
    format_time(Timestamp::now())
}

pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metadata` as a map; anything else in its place becomes an empty one.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata
        .as_object_mut()
        .expect("metadata was just made an object")
}

pub(super) fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

impl Call {
    /// The manager of a plain write: as named, else the program that sent it.
    pub(super) fn manager<'a>(&'a self, options: &'a WriteOptions) -> &'a str {
        if !options.field_manager.is_empty() {
            return &options.field_manager;
        }
        let agent = header(&self.request.headers, "user-agent");
        let program = agent.split('/').next().unwrap_or_default();
        if program.is_empty() {
            return "unknown";
        }
        // Managers are at most 128 bytes long; the name is cut at a character.
        let mut end = program.len().min(128);
        while !program.is_char_boundary(end) {
            end -= 1;
        }
        &program[..end]
    }

    pub(super) fn writer<'a>(
        &'a self,
        options: &'a WriteOptions,
        subresource: &'a str,
    ) -> Writer<'a> {
        Writer {
            manager: self.manager(options),
            api_version: &self.served.api_version,
            subresource,
            has_status: self.served.has_status(),
            now: Timestamp::now(),
        }
    }

    pub(super) fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        let kind = &self.served.kind;
        // Errors name the group of the stored kind.
        let group = kind.alias.map_or(&*kind.group, |alias| alias.group);
        Status::invalid(group, &kind.kind, name, errors)
    }

    /// Creates an object that has been decoded.
    pub(super) async fn create(
        &self,
        object: Value,
        options: &WriteOptions,
        ownership: &Ownership<'_>,
    ) -> Result<ApiResponse, Status> {
        let mut warnings = Vec::new();
        let created = self.create_warning(object, options, ownership, &mut warnings);
        warn(created.await, warnings)
    }

    async fn create_warning(
        &self,
        mut object: Value,
        options: &WriteOptions,
        ownership: &Ownership<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<ApiResponse, Status> {
        self.own_new_metadata(&mut object)?;
        let kind = &self.served.kind;
        kind.rules.default(&mut object);
        if let Ownership::Update(writer) = ownership {
            managed_fields::update(&kind.schema, None, &mut object, writer);
        }
        let admission =
            Admission::write(self, AdmissionOperation::Create).name(meta_text(&object, "name"));
        let mutated = admission.mutate(&mut object, None, Write::Create, warnings);
        mutated.await?;
        let base = meta_text(&object, "generateName").to_owned();
        if !meta_text(&object, "name").is_empty() || base.is_empty() {
            return self.create_once(object, options, admission, warnings).await;
        }
        // Five random letters collide now and then; the real server tries this often, too.
        for last_try in [false, false, false, false, false, false, false, true] {
            let mut named = object.clone();
            let name = names::generate(&base);
            metadata_mut(&mut named).insert("name".to_owned(), json!(name));
            kind.rules.default(&mut named);
            let admission = Admission::write(self, AdmissionOperation::Create).name(&name);
            match self.create_once(named, options, admission, warnings).await {
                Err(status) if status.reason == "AlreadyExists" && !last_try => {}
                result => return result,
            }
        }
        Err(self.conflict(MODIFIED))
    }

    /// The part of a creation that follows its changes by admission.
    async fn create_once(
        &self,
        mut object: Value,
        options: &WriteOptions,
        admission: Admission<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<ApiResponse, Status> {
        let rules = &self.served.kind.rules;
        rules.prepare(&mut object, None, Write::Create);
        let name = meta_text(&object, "name").to_owned();
        let mut errors = metadata::check(&object, &**rules);
        errors.extend(rules.validate(&object, None, Write::Create));
        if !errors.is_empty() {
            return Err(self.invalid(&name, &errors));
        }
        warnings.extend(rules.warnings(&object, None));
        rules.admit_valid(&object, Write::Create, &*self.server)?;
        admission.validate(Some(&object), None, warnings).await?;
        let created = |content| ApiResponse::new(StatusCode::CREATED, content);
        let key = self.served.key(&self.path.namespace, &name);
        let taken = || self.already_exists(&key, &name);
        if options.dry_run {
            if self.server.store.get(self.served.table, &key).is_some() {
                return Err(taken());
            }
            let content = Content::Value(Some(Arc::clone(&self.served)), object);
            return Ok(created(content));
        }
        check_depth(&object)?;
        let draft = self.served.draft(Change::Added, &object);
        check_size(&draft)?;
        let stored = self.server.store.create(self.served.table, draft);
        let stored = stored.map_err(|Conflict| taken())?;
        Ok(created(Content::Object(Arc::clone(&self.served), stored)))
    }

    fn already_exists(&self, key: &str, name: &str) -> Status {
        let kind = &self.served.kind;
        let mut status = Status::already_exists(&kind.group, &kind.plural, name);
        let other = self.server.store.get(self.served.table, key);
        if other.is_some_and(|other| is_deleting(&other.parsed())) {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }

    /// Namespace, uid and times of a new object. A generated name follows after admission.
    fn own_new_metadata(&self, object: &mut Value) -> Result<(), Status> {
        let namespaced = self.served.kind.namespaced;
        self.check_namespace(object)?;
        if !matches!(meta_text(object, "resourceVersion"), "" | "0") {
            return Err(Status::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if namespaced {
            self.check_namespace_is_live(object)?;
        }
        let metadata = metadata_mut(object);
        if namespaced {
            metadata.insert("namespace".to_owned(), json!(self.path.namespace));
        } else {
            metadata.shift_remove("namespace");
        }
        for field in [
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.shift_remove(field);
        }
        metadata.insert("uid".to_owned(), json!(Uuid::new_v4().to_string()));
        metadata.insert("creationTimestamp".to_owned(), json!(now()));
        Ok(())
    }

    /// Objects cannot be created in a namespace that does not exist or is being deleted.
    fn check_namespace_is_live(&self, object: &Value) -> Result<(), Status> {
        use crate::kinds::kind::Lookup;
        let name = &self.path.namespace;
        let Some(namespace) = self.server.get("", "namespaces", "", name) else {
            return Err(Status::not_found("", "namespaces", name));
        };
        let phase = namespace["status"]["phase"].as_str();
        if phase != Some("Terminating") && !is_deleting(&namespace) {
            return Ok(());
        }
        let kind = &self.served.kind;
        let why = format!(
            "unable to create new content in namespace {name} because it is being terminated"
        );
        let mut status =
            Status::forbidden(&kind.group, &kind.plural, meta_text(object, "name"), why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(status)
    }

    /// Reads the object, lets `change` make a new one of it, and stores that; repeats when
    /// another writer was faster.
    ///
    /// Without an `admission` no webhook is asked: the server itself writes, or the webhooks have seen another object.
    pub(super) async fn modify(
        &self,
        write: Write<'_>,
        dry_run: bool,
        ownership: &Ownership<'_>,
        admission: Option<&Admission<'_>>,
        mut change: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<ApiResponse, Status> {
        for _ in 0..MAX_RACES {
            let current = self.server.store.get(self.served.table, &self.key());
            let current = current.ok_or_else(|| self.not_found())?;
            let old = self.served.value(&current);
            let mut new = change(&old)?;
            keep_server_metadata(&mut new, &old);
            let mut warnings = Vec::new();
            if !matches!(ownership, Ownership::Unchanged) {
                let admitted =
                    self.admit_update(&mut new, &old, write, ownership, admission, &mut warnings);
                if let Err(status) = admitted.await {
                    return Err(status.with_warnings(warnings));
                }
            }
            match self.replace(&current, &old, new, dry_run)? {
                Ok(answer) => return Ok(answer.with_warnings(warnings)),
                Err(Conflict) => continue,
            }
        }
        Err(self.conflict(MODIFIED))
    }

    async fn admit_update(
        &self,
        new: &mut Value,
        old: &Value,
        write: Write<'_>,
        ownership: &Ownership<'_>,
        admission: Option<&Admission<'_>>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let rules = &self.served.kind.rules;
        self.check_finalizers(new, old)?;
        rules.default(new);
        rules.prepare(new, Some(old), write);
        if let Ownership::Update(writer) = ownership {
            managed_fields::update(&self.served.kind.schema, Some(old), new, writer);
        }
        match admission {
            None => rules.admit(new, Some(old), write, &*self.server)?,
            Some(admission) => {
                if admission.mutate(new, Some(old), write, warnings).await? {
                    keep_server_metadata(new, old);
                    rules.prepare(new, Some(old), write);
                }
            }
        }
        let mut errors = metadata::check(new, &**rules);
        errors.extend(rules.validate(new, Some(old), write));
        if !errors.is_empty() {
            return Err(self.invalid(meta_text(old, "name"), &errors));
        }
        if write == Write::Update {
            warnings.extend(rules.warnings(new, Some(old)));
        }
        rules.admit_valid(new, write, &*self.server)?;
        match admission {
            None => Ok(()),
            Some(admission) => admission.validate(Some(new), Some(old), warnings).await,
        }
    }

    fn replace(
        &self,
        current: &Arc<Object>,
        old: &Value,
        new: Value,
        dry_run: bool,
    ) -> Result<Result<ApiResponse, Conflict>, Status> {
        let served = &self.served;
        if same_but_times(old, &new) {
            let content = Content::Object(Arc::clone(served), Arc::clone(current));
            return Ok(Ok(ApiResponse::ok(content)));
        }
        if dry_run {
            let content = Content::Value(Some(Arc::clone(served)), new);
            return Ok(Ok(ApiResponse::ok(content)));
        }
        if ends_deletion(served, &new) {
            // What the client sees is its update; watchers see the last stored state go.
            let removed = self.server.store.remove(served.table, current);
            return Ok(
                removed.map(|_| ApiResponse::ok(Content::Value(Some(Arc::clone(served)), new)))
            );
        }
        check_depth(&new)?;
        let draft = served.draft(Change::Modified, &new);
        check_size(&draft)?;
        let stored = self.server.store.replace(served.table, current, draft);
        Ok(stored.map(|stored| ApiResponse::ok(Content::Object(Arc::clone(served), stored))))
    }

    /// An object that is being deleted may lose finalizers, not gain them.
    fn check_finalizers(&self, new: &Value, old: &Value) -> Result<(), Status> {
        if !is_deleting(old) {
            return Ok(());
        }
        let known = finalizers(old);
        let added: Vec<String> = finalizers(new)
            .iter()
            .filter(|finalizer| !known.contains(finalizer))
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        if added.is_empty() {
            return Ok(());
        }
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        let error = FieldError::forbidden("metadata.finalizers", &why);
        Err(self.invalid(meta_text(old, "name"), &[error]))
    }
}

pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Adds the warnings about the body to the response, also to an error.
pub(super) fn warn(
    answer: Result<ApiResponse, Status>,
    about_body: Vec<String>,
) -> Result<ApiResponse, Status> {
    match answer {
        Ok(mut answer) => {
            answer.warnings.splice(0..0, about_body);
            Ok(answer)
        }
        Err(status) => Err(status.with_warnings(about_body)),
    }
}

/// What is stored is read again, and the JSON reader follows 128 levels. An object that was read
/// can still be too deep: its managed fields repeat its shape further down.
fn check_depth(object: &Value) -> Result<(), Status> {
    const LIMIT: usize = 120;
    fn fits(value: &Value, levels: usize) -> bool {
        match value {
            Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
            Value::Object(fields) => {
                levels > 0 && fields.values().all(|item| fits(item, levels - 1))
            }
            _ => true,
        }
    }
    if fits(object, LIMIT) {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the object, with its managed fields, nests deeper than {LIMIT} levels"
    )))
}

/// The limit of the real server's store for one request.
fn check_size(draft: &Draft) -> Result<(), Status> {
    const LIMIT: usize = 3 << 19;
    if draft.size() > LIMIT {
        return Err(Status::internal("etcdserver: request is too large"));
    }
    Ok(())
}

/// Restores the fields that only the server writes.
fn keep_server_metadata(new: &mut Value, old: &Value) {
    const KEPT: [&str; 9] = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ];
    let metadata = metadata_mut(new);
    for field in KEPT {
        match old["metadata"].get(field) {
            Some(value) => {
                metadata.insert(field.to_owned(), value.clone());
            }
            None => {
                metadata.shift_remove(field);
            }
        }
    }
}

/// Whether the last thing that kept a deleted object is gone.
fn ends_deletion(served: &ServedKind, new: &Value) -> bool {
    let grace = new["metadata"]["deletionGracePeriodSeconds"].as_i64();
    is_deleting(new)
        && grace.unwrap_or(0) == 0
        && finalizers(new).is_empty()
        && !served.kind.rules.holds_back_delete(new)
}

/// Equal, or different only in when a manager last wrote.
fn same_but_times(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    old.len() == new.len()
        && old.iter().all(|(key, value)| match new.get(key) {
            Some(other) if key == "metadata" => same_metadata(value, other),
            other => other == Some(value),
        })
}

fn same_metadata(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    old.len() == new.len()
        && old.iter().all(|(key, value)| match new.get(key) {
            Some(other) if key == "managedFields" => without_times(value) == without_times(other),
            other => other == Some(value),
        })
}

fn without_times(managed: &Value) -> Value {
    let mut managed = managed.clone();
    for entry in managed.as_array_mut().into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut() {
            entry.shift_remove("time");
        }
    }
    managed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_time_of_a_manager_is_not_a_change() {
        let object = |time: &str, fields: Value| json!({"metadata": {"name": "a", "managedFields": [{"time": time, "fieldsV1": fields}]}});
        let old = object("1", json!({"f:a": {}}));
        assert!(same_but_times(&old, &object("2", json!({"f:a": {}}))));
        assert!(!same_but_times(&old, &object("1", json!({"f:b": {}}))));
        assert!(!same_but_times(&old, &json!({"metadata": {"name": "a"}})));
    }
}
