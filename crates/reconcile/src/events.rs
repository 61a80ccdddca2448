//! Events about objects, as `kubectl describe` shows them.
//!
//! The name of an event is derived from its object, reason and message, so that a repetition increases the count of the
//! first event.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::json;

use crate::{
    hash::fnv1a,
    requests::{Part, Requests, is_already_exists, message_of},
};

/// The API's limits.
const LONGEST_MESSAGE: usize = 1024;
const LONGEST_NAME: usize = 253;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// Writes the events of one component.
#[derive(Clone)]
pub struct EventRecorder {
    component: &'static str,
    client: Client,
    requests: Requests,
}

#[derive(Deserialize)]
struct Counted {
    metadata: ObjectMeta,
    #[serde(default)]
    count: i32,
}

impl EventRecorder {
    /// `component` is the reporter of the events.
    pub fn new(client: Client, component: &'static str) -> Self {
        Self {
            component,
            requests: Requests::new(client.clone()),
            client,
        }
    }

    /// Nothing depends on an event, so a failure is only logged.
    pub async fn record(
        &self,
        about: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) {
        if let Err(error) = self.try_record(about, event_type, reason, message).await {
            tracing::debug!(reason, error = %message_of(&error), "cannot write event");
        }
    }

    async fn try_record(
        &self,
        about: ObjectReference,
        event_type: EventType,
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
            "type": match event_type { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "reason": reason,
            "message": message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        match self
            .requests
            .create::<Event>(Some(&namespace), &event)
            .await
        {
            Err(error) if is_already_exists(&error) => self.count(&namespace, &name).await,
            result => result.map(drop),
        }
    }

    /// Increases the count of an event that exists already.
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
    let suffix = format!(".{:016x}", fnv1a(parts.as_bytes()));
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
    fn an_equal_message_about_the_same_object_is_one_event() {
        let about = |uid: &str| ObjectReference {
            name: Some("p".into()),
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        let first = name(&about("1"), "Failed", "no capacity");
        assert!(first.starts_with("p.") && first.len() == 18, "{first}");
        assert_eq!(first, name(&about("1"), "Failed", "no capacity"));
        for other in [
            name(&about("2"), "Failed", "no capacity"),
            name(&about("1"), "Refused", "no capacity"),
            name(&about("1"), "Failed", "no address"),
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
