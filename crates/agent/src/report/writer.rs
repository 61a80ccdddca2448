//! Writes one object: only fields that differ, and of a shared list only the agent's items.
//!
//! - An object that is missing is created. A kind that is missing is a [`Failure`] that the caller tries again later.
//! - A shared list is written with the resourceVersion that it was read with: another writer's change is never lost.
//! - A definition may remove a field (pruning). The field is sent again only with a new value.
//! - A definition may refuse a value. Then each field is sent on its own, and a refused one waits before it is sent again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};

use super::json::{at, covers, difference, put};
use super::{Field, Share, Target, Values};
use crate::request::{self, RequestError};

/// A refused field is sent again after this time.
const REFUSAL_TIME: Duration = Duration::from_secs(5 * 60);
/// Attempts when other writers change the object at the same time.
const ATTEMPTS: usize = 3;

/// The path of a field, for maps.
pub type Path = &'static [&'static str];

pub struct ObjectWriter {
    client: Client,
    target: Target,
    name: String,
    /// The object as the server answered last; none before the first answer.
    known: Option<Value>,
    /// What was sent for a field, and what the server made of it.
    sent: BTreeMap<Path, (Value, Value)>,
    /// Fields that the server refused, when, and why.
    refused: BTreeMap<Path, (Instant, String)>,
}

/// Why an object could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the kind {0} does not exist in the cluster; deploy/crds defines it")]
    MissingKind(&'static str),
    #[error("the API server refuses {0}")]
    Refused(String),
    #[error("{0}")]
    Request(String),
}

impl ObjectWriter {
    pub fn new(client: Client, target: Target, name: &str) -> Self {
        Self {
            client,
            target,
            name: name.to_owned(),
            known: None,
            sent: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The object as the server answered last.
    pub fn known(&self) -> Option<&Value> {
        self.known.as_ref()
    }

    /// Reads the object before the next write, to see what others changed.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// The fields that the server refuses, and why.
    pub fn refused(&self) -> impl Iterator<Item = (String, &str)> {
        let refused = self.refused.iter();
        refused.map(|(path, (_, why))| (path.join("."), &**why))
    }

    pub fn is_refused(&self, path: Path) -> bool {
        self.refused.contains_key(path)
    }

    /// Sends a refused field again at once.
    pub fn accept_again(&mut self, path: Path) {
        self.refused.remove(path);
    }

    /// Whether a value of this field differs from what the server has.
    pub fn is_pending(&self, field: &Field, value: &Value) -> bool {
        match &self.known {
            Some(_) if self.refused.contains_key(field.path) => false,
            Some(known) => self.change(known, field, value).is_some(),
            None => true,
        }
    }

    /// Gives the fields their values. Returns whether something was sent.
    pub async fn write(&mut self, values: &Values) -> Result<bool, Failure> {
        self.refused
            .retain(|_, (since, _)| since.elapsed() < REFUSAL_TIME);
        let mut has_sent = false;
        for _ in 0..ATTEMPTS {
            let result = self.try_write(values, &mut has_sent).await;
            match result {
                Ok(()) => return self.check_refusals(values, has_sent),
                // Another writer was faster, or the object was deleted.
                Err(RequestError::Conflict | RequestError::NotFound) => self.known = None,
                Err(RequestError::Invalid(_)) => {
                    self.write_one_by_one(values, &mut has_sent).await?;
                    return self.check_refusals(values, has_sent);
                }
                Err(error) => return Err(Failure::Request(error.to_string())),
            }
            self.read_or_create().await?;
        }
        Err(Failure::Request(
            "other writers change the object all the time".to_owned(),
        ))
    }

    /// The values that were refused stay a failure as long as they are not sent.
    fn check_refusals(&self, values: &Values, has_sent: bool) -> Result<bool, Failure> {
        let refused = values.iter().find_map(|(field, _)| {
            let (_, why) = self.refused.get(field.path)?;
            Some(format!("{}: {why}", field.path.join(".")))
        });
        refused.map_or(Ok(has_sent), |why| Err(Failure::Refused(why)))
    }

    async fn write_one_by_one(
        &mut self,
        values: &Values,
        has_sent: &mut bool,
    ) -> Result<(), Failure> {
        for entry in values {
            let one = vec![entry.clone()];
            match self.try_write(&one, has_sent).await {
                Ok(()) => {}
                Err(RequestError::Invalid(why)) => {
                    let path = entry.0.path;
                    let field = path.join(".");
                    tracing::warn!(kind = self.target.kind(), field, why, "field is refused");
                    self.refused.insert(path, (Instant::now(), why));
                }
                Err(error) => {
                    self.known = None;
                    return Err(Failure::Request(error.to_string()));
                }
            }
        }
        Ok(())
    }

    async fn try_write(
        &mut self,
        values: &Values,
        has_sent: &mut bool,
    ) -> Result<(), RequestError> {
        for is_status in [false, true] {
            // A write of the other part has changed the resourceVersion.
            let Some(known) = &self.known else {
                return Err(RequestError::Conflict);
            };
            let mut patch = json!({});
            let mut changes = Vec::new();
            for (field, value) in values {
                if (field.path.first() == Some(&"status")) != is_status
                    || self.refused.contains_key(field.path)
                {
                    continue;
                }
                if let Some(wanted) = self.change(known, field, value) {
                    let present = at(known, field.path);
                    put(&mut patch, field.path, difference(present, &wanted));
                    if matches!(field.share, Share::Items(_)) {
                        patch["metadata"]["resourceVersion"] =
                            known["metadata"]["resourceVersion"].clone();
                    }
                    changes.push((field.path, wanted));
                }
            }
            if changes.is_empty() {
                continue;
            }
            let mut url = format!("{}/{}", self.target.collection(), self.name);
            if is_status {
                url.push_str("/status");
            }
            let answer = request::merge(&self.client, &url, &patch).await?;
            *has_sent = true;
            for (path, wanted) in changes {
                let kept = at(&answer, path).clone();
                if !covers(&kept, &wanted) && !self.sent.contains_key(path) {
                    let field = path.join(".");
                    tracing::info!(
                        kind = self.target.kind(),
                        field,
                        "the definition has no such field"
                    );
                }
                self.sent.insert(path, (wanted, kept));
            }
            self.known = Some(answer);
        }
        Ok(())
    }

    /// What the field should become; none if nothing needs to be sent.
    fn change(&self, known: &Value, field: &Field, value: &Value) -> Option<Value> {
        let present = at(known, field.path);
        let wanted = match field.share {
            Share::Whole => value.clone(),
            Share::Items(is_ours) => {
                let items = present.as_array().into_iter().flatten();
                let mut all: Vec<Value> = items.filter(|item| !is_ours(item)).cloned().collect();
                all.extend(value.as_array().into_iter().flatten().cloned());
                if all.is_empty() && present.is_null() {
                    return None;
                }
                Value::Array(all)
            }
        };
        let is_answered = matches!(self.sent.get(field.path), Some((sent, kept)) if *sent == wanted && kept == present);
        (!covers(present, &wanted) || has_more(present, &wanted))
            .then_some(wanted)
            .filter(|_| !is_answered)
    }

    async fn read_or_create(&mut self) -> Result<(), Failure> {
        let collection = self.target.collection();
        let url = format!("{collection}/{}", self.name);
        match request::get(&self.client, &url).await {
            Ok(object) => {
                self.known = Some(object);
                return Ok(());
            }
            Err(RequestError::NotFound) if self.target != Target::Node => {}
            Err(error) => return Err(Failure::Request(error.to_string())),
        }
        let object = json!({
            "apiVersion": self.target.api_version(),
            "kind": self.target.kind(),
            "metadata": {"name": self.name},
            "spec": {},
        });
        match request::create(&self.client, &collection, &object).await {
            Ok(object) => {
                tracing::info!(kind = self.target.kind(), name = self.name, "created");
                self.known = Some(object);
                Ok(())
            }
            Err(RequestError::NotFound) => Err(Failure::MissingKind(self.target.kind())),
            // Another process was faster: the next attempt reads it.
            Err(RequestError::Conflict) => Ok(()),
            Err(error) => Err(Failure::Request(error.to_string())),
        }
    }
}

/// Whether a map has keys that it should not have; defaults inside of lists do not count.
fn has_more(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => {
            let differs = |(key, present): (&String, &Value)| match wanted.get(key) {
                Some(wanted) => has_more(present, wanted),
                None => true,
            };
            present.iter().any(differs)
        }
        (present, Value::Null) => !present.is_null(),
        _ => false,
    }
}
