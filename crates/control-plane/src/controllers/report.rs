//! Events of the controllers: about objects, and about permissions that are missing.

use api::contracts::NAMESPACE;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use reconcile::EventType;

use super::{Context, NAME};

/// For one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Missing permissions that are reported.
const MOST_DENIED: usize = 16;

/// What the server says about each missing permission.
#[derive(Default)]
pub(super) struct Denied(Mutex<HashSet<String>>);

impl Context {
    /// Writes a Warning event.
    pub(super) async fn warn(&self, about: ObjectReference, reason: &str, message: &str) {
        let event = self
            .events
            .record(about, EventType::Warning, reason, message);
        if tokio::time::timeout(TIMEOUT, event).await.is_err() {
            tracing::warn!(reason, "cannot write event: no response within {TIMEOUT:?}");
        }
    }

    /// Each missing permission gets one event.
    pub(super) async fn report_denied(&self, message: &str) {
        let (_, why) = message
            .split_once("is forbidden: ")
            .unwrap_or(("", message));
        let is_new = {
            let denied = self.denied.0.lock();
            let mut denied = denied.unwrap_or_else(PoisonError::into_inner);
            denied.len() < MOST_DENIED && denied.insert(why.to_owned())
        };
        if is_new {
            tracing::warn!(why, "a permission is missing; see deploy/controllers.yaml");
            self.warn(controllers_lease(), "MissingPermission", why)
                .await;
        }
    }
}

/// Events about the controllers themselves are about the Lease of their election.
pub(super) fn controllers_lease() -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        name: Some(NAME.to_owned()),
        ..ObjectReference::default()
    }
}
