//! Admission of a write: the rules of its kind, then the webhooks, in the order of kube-apiserver.
//!
//! Mutating webhooks are called one after the other, by the names of their configurations. After a change the rules of
//! the kind run once more, and so do the webhooks with `reinvocationPolicy: IfNeeded` that ran before the change.
//! Validating webhooks are called at the same time. A call ends after the webhook's timeout and keeps no lock.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use super::Call;
use crate::kinds::kind::{Rules, Write};
use crate::objects::decode;
use crate::objects::fields::is_empty;
use crate::objects::patch;
use crate::objects::schema::Schema;
use crate::objects::status::Status;

mod client;
mod endpoint;
mod hook;
mod review;

use hook::{Hook, Matched};
use review::Verdict;

/// The real server's limit for a whole request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionOperation {
    Create,
    Update,
    Delete,
}

impl AdmissionOperation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// The kind of its options.
    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// A write under admission: everything but its objects.
pub(super) struct Admission<'a> {
    call: &'a Call,
    operation: AdmissionOperation,
    subresource: &'a str,
    /// The type of the body: a binding, an eviction and a scale have their own.
    body: BodyType<'a>,
    name: String,
    dry_run: bool,
    options: Value,
    deadline: Instant,
}

#[derive(Clone, Copy)]
pub(super) struct BodyType<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) schema: &'a Schema,
    /// The rules of the kind, unless the body is of another one.
    pub(super) rules: Option<&'a dyn Rules>,
}

impl<'a> Admission<'a> {
    /// A creation or update of an object of the served kind, with the options of the query.
    pub(super) fn write(call: &'a Call, operation: AdmissionOperation) -> Self {
        let query = &call.request.query;
        let mut options = json!({});
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        if !dry_run.is_empty() {
            options["dryRun"] = json!(dry_run);
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = query.find(name).filter(|value| !value.is_empty()) {
                options[name] = json!(value);
            }
        }
        Self::new(call, operation, options)
    }

    pub(super) fn new(call: &'a Call, operation: AdmissionOperation, options: Value) -> Self {
        let kind = &call.served.kind;
        Self {
            call,
            operation,
            subresource: &call.path.subresource,
            body: BodyType {
                api_version: &call.served.api_version,
                kind: &kind.kind,
                schema: &kind.schema,
                rules: Some(&*kind.rules),
            },
            name: call.path.name.clone(),
            dry_run: !is_empty(&options["dryRun"]),
            options,
            deadline: Instant::now() + REQUEST_TIMEOUT,
        }
    }

    pub(super) fn body(mut self, body: BodyType<'a>) -> Self {
        self.body = body;
        self
    }

    pub(super) fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Applies the rules of the kind and the mutating webhooks; returns whether a webhook changed the object.
    pub(super) async fn mutate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        write: Write<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        self.apply_rules(object, old, write)?;
        let hooks = hook::mutating(self.call);
        let mut changed = false;
        // Positions of webhooks that ran since the last change, and of those that must run again.
        let (mut ran, mut due): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for second_round in [false, true] {
            for (at, hook) in hooks.iter().enumerate() {
                let Some(matched) = hook.matches(self, Some(object), old)? else {
                    continue;
                };
                if second_round && !due.contains(&at) {
                    continue;
                }
                let answer = self
                    .ask(hook, &matched, Some(object), old, warnings)
                    .await?;
                let patched = answer.map(|patch| self.patched(&matched, object, hook, &patch));
                if let Some(patched) = patched.transpose()?.flatten()
                    && patched != *object
                {
                    *object = patched;
                    changed = true;
                    due.append(&mut ran);
                }
                if hook.is_reinvocable() {
                    ran.push(at);
                }
            }
            if !changed {
                break;
            }
            if !second_round {
                let before = object.clone();
                self.apply_rules(object, old, write)?;
                if before != *object {
                    due.append(&mut ran);
                }
            }
        }
        Ok(changed)
    }

    /// Asks the webhooks about a deletion; none of them may change anything.
    pub(super) async fn delete(
        &self,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        for hook in &hook::mutating(self.call) {
            let Some(matched) = hook.matches(self, None, Some(old))? else {
                continue;
            };
            let patch = self.ask(hook, &matched, None, Some(old), warnings).await?;
            let operations = patch.map(|patch| patch::webhook(&Value::Null, &patch));
            if !matches!(operations, None | Some(Ok(None))) {
                return Err(Status::internal_error(format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    hook.name()
                )));
            }
        }
        self.validate(None, Some(old), warnings).await
    }

    /// Asks all validating webhooks at once.
    pub(super) async fn validate(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let hooks = hook::validating(self.call);
        let mut calls = Vec::new();
        for hook in &hooks {
            if let Some(matched) = hook.matches(self, object, old)? {
                calls.push(async move {
                    let mut said = Vec::new();
                    let answer = self.ask(hook, &matched, object, old, &mut said).await;
                    (answer, said)
                });
            }
        }
        let mut result = Ok(());
        for (answer, said) in join_all(calls).await {
            warnings.extend(said);
            result = result.and(answer.map(drop));
        }
        result
    }

    fn apply_rules(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        write: Write<'_>,
    ) -> Result<(), Status> {
        match self.body.rules {
            Some(rules) => rules.admit(object, old, write, &*self.call.server),
            None => Ok(()),
        }
    }

    /// The patch of a webhook that allows the request, if it sent one. A webhook that fails is passed over if its
    /// configuration says so.
    async fn ask(
        &self,
        hook: &Hook,
        matched: &Matched,
        object: Option<&Value>,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Vec<u8>>, Status> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = "Timeout: request did not complete within requested timeout";
            return Err(Status::new(504, "Timeout", message));
        }
        let timeout = hook.timeout().min(left);
        let request = review::request(self, hook, matched, object, old);
        let answer = client::post(&self.call.server, hook.client(), &request.body, timeout).await;
        let verdict = answer.and_then(|answer| request.read(hook, &answer));
        match verdict {
            Ok(Verdict {
                allowed,
                patch,
                warnings: said,
            }) => {
                warnings.extend(said);
                allowed.map(|()| patch)
            }
            Err(why) => {
                let why = format!("failed calling webhook {:?}: {why}", hook.name());
                if hook.ignores_failures() {
                    tracing::warn!(
                        "{why}; the request goes on, as the webhook's failurePolicy says"
                    );
                    return Ok(None);
                }
                Err(Status::internal_error(why))
            }
        }
    }

    /// The object after the patch, in the form of the request's kind.
    fn patched(
        &self,
        matched: &Matched,
        object: &Value,
        hook: &Hook,
        patch: &[u8],
    ) -> Result<Option<Value>, Status> {
        if patch.is_empty() {
            return Ok(None);
        }
        let sent = matched.view(self, object);
        let patched = patch::webhook(&self.without_hidden(sent), patch);
        let Some(mut patched) = patched.map_err(Status::internal_error)? else {
            return Ok(None);
        };
        let schema = matched.schema(self);
        decode::try_normalize(schema, &mut patched).map_err(Status::internal_error)?;
        let mut patched = matched.original(self, patched);
        for field in ["apiVersion", "kind"] {
            if patched[field] != object[field] {
                let why = format!(
                    "admission webhook {:?} changed {field} from {} to {}",
                    hook.name(),
                    object[field],
                    patched[field]
                );
                return Err(Status::internal_error(why));
            }
        }
        self.restore_hidden(&mut patched, object);
        if let Some(rules) = self.body.rules {
            rules.default(&mut patched);
        }
        Ok(Some(patched))
    }

    /// A mutating webhook does not see what the server sets only after it.
    fn hides(&self) -> &'static [&'static str] {
        match (self.operation, self.subresource) {
            (AdmissionOperation::Create, "") => &["uid", "creationTimestamp"],
            _ => &[],
        }
    }

    fn without_hidden(&self, mut object: Value) -> Value {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in self.hides() {
                metadata.shift_remove(*field);
            }
        }
        object
    }

    fn restore_hidden(&self, patched: &mut Value, object: &Value) {
        let metadata = super::write::metadata_mut(patched);
        for field in self.hides() {
            match object["metadata"].get(field) {
                Some(value) => metadata.insert((*field).to_owned(), value.clone()),
                None => metadata.shift_remove(*field),
            };
        }
    }
}
