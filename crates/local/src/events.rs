//! The events of a controller.

use kube::{Client, Resource};
use reconcile::{EventRecorder, EventType};

/// An event to write about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    event_type: EventType,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Report {
    pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            event_type: EventType::Normal,
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            event_type: EventType::Warning,
            reason,
            message: message.into(),
        }
    }
}

/// Writes the events of one component.
#[derive(Clone)]
pub(crate) struct Events(EventRecorder);

impl Events {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self(EventRecorder::new(client, component))
    }

    pub(crate) async fn record<K>(&self, about: &K, report: &Report)
    where
        K: Resource<DynamicType = ()>,
    {
        let about = about.object_ref(&());
        self.0
            .record(about, report.event_type, report.reason, &report.message)
            .await;
    }

    pub(crate) async fn normal<K>(&self, about: &K, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let about = about.object_ref(&());
        self.0
            .record(about, EventType::Normal, reason, message)
            .await;
    }

    pub(crate) async fn warning<K>(&self, about: &K, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let about = about.object_ref(&());
        self.0
            .record(about, EventType::Warning, reason, message)
            .await;
    }
}
