//! Events: what the parts here tell whoever describes an object.
//!
//! The name of an event follows from what it says about whom, so that a repetition is counted and not added.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::json;

use crate::requests::{Part, Requests, already_exists, brief};

/// Who says it.
const REPORTER: &str = "tidepool-local";
/// The API takes no longer messages, and no longer names.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_NAME: usize = 253;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

pub(crate) struct Events {
    client: Client,
    requests: Requests,
}

#[derive(Deserialize)]
struct Counted {
    metadata: ObjectMeta,
    #[serde(default)]
    count: i32,
}

impl Events {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            requests: Requests::new(client.clone()),
            client,
        }
    }

    /// Nothing depends on it, so a failure is only logged.
    pub(crate) async fn tell(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        if let Err(error) = self.try_tell(about, severity, reason, message).await {
            tracing::debug!(reason, error = %brief(&error), "an event could not be written");
        }
    }

    async fn try_tell(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let message = cut(message, LONGEST_MESSAGE);
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".into());
        let name = name(&about, reason, message);
        let now = Time(Timestamp::now());
        let event = json!({
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": about,
            "type": match severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
            "reason": reason,
            "message": message,
            "source": {"component": REPORTER},
            "reportingComponent": REPORTER,
            "reportingInstance": REPORTER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        match self
            .requests
            .create::<Event>(Some(&namespace), &event)
            .await
        {
            Err(error) if already_exists(&error) => self.count(&namespace, &name).await,
            result => result.map(drop),
        }
    }

    /// It was said before: one more time, and last now.
    async fn count(&self, namespace: &str, name: &str) -> Result<(), kube::Error> {
        let path = Event::url_path(&(), Some(namespace));
        let request = kube::core::Request::new(path).get(name, &Default::default());
        let event: Counted = self
            .client
            .request(request.map_err(kube::Error::BuildRequest)?)
            .await?;
        let fields = json!({
            "count": event.count.saturating_add(1),
            "lastTimestamp": Time(Timestamp::now()),
        });
        self.requests
            .merge::<Event>(&event.metadata, Part::Object, fields)
            .await
            .map(drop)
    }
}

fn name(about: &ObjectReference, reason: &str, message: &str) -> String {
    let uid = about.uid.as_deref().unwrap_or_default();
    let parts = [uid, "\0", reason, "\0", message].concat();
    let suffix = format!(".{:016x}", crate::hash::fnv1a(parts.as_bytes()));
    let object = about.name.as_deref().unwrap_or_default();
    format!("{}{suffix}", cut(object, LONGEST_NAME - suffix.len()))
}

/// At most `length` bytes of the text, in whole characters.
fn cut(text: &str, length: usize) -> &str {
    let end = (0..=length.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_about_the_same_object_are_one_event() {
        let about = |uid: &str| ObjectReference {
            name: Some("p".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let first = name(&about("1"), "Failed", "no room");
        assert!(first.starts_with("p.") && first.len() == 18, "{first}");
        assert_eq!(first, name(&about("1"), "Failed", "no room"));
        for other in [
            name(&about("2"), "Failed", "no room"),
            name(&about("1"), "Refused", "no room"),
            name(&about("1"), "Failed", "no air"),
        ] {
            assert_ne!(first, other);
        }
        let long = ObjectReference {
            name: Some("n".repeat(300)),
            ..ObjectReference::default()
        };
        assert_eq!(name(&long, "", "").len(), LONGEST_NAME);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, length, want) in [
            ("short", 9, "short"),
            ("grün", 3, "gr"),
            ("grün", 4, "grü"),
            ("", 4, ""),
        ] {
            assert_eq!(cut(text, length), want);
        }
    }
}
