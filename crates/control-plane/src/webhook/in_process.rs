//! The webhook in the process of its API server: the same answers, without TLS, certificates and health checks.

use api::contracts::NAMESPACE;
use std::sync::Arc;

use bytes::Bytes;
use engine::admission::SystemNamespaces;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use reconcile::Watches;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::objects::AdmissionObjects;
use super::pods::{self, PodAdmission};
use super::server::{Reviewer, respond};

/// The embedded cluster has one user, which is every component, too.
const EMBEDDED_USER: &str = "system:admin";

/// Answers reviews until it is dropped.
pub struct InProcessWebhook {
    paths: Vec<(&'static str, Reviewer)>,
    _stop_watches: DropGuard,
}

impl InProcessWebhook {
    /// Returns when it knows the objects that its answers depend on.
    pub async fn start(client: &kube::Client) -> Self {
        let cancel = CancellationToken::new();
        let watches = Watches::default();
        let objects = AdmissionObjects::watch(client, &watches, SystemNamespaces::default());
        watches.start(&TaskTracker::new(), &cancel);
        watches.synced(&cancel).await;
        let controllers = EMBEDDED_USER.to_owned();
        let admission = PodAdmission::new(objects, NAMESPACE.to_owned(), controllers);
        let admission = Arc::new(admission);
        Self {
            paths: pods::paths(&admission),
            _stop_watches: cancel.drop_guard(),
        }
    }

    /// The response to the body of a POST.
    pub async fn respond(&self, path: &str, body: &[u8]) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let Some((_, reviewer)) = self.paths.iter().find(|(served, _)| *served == path) else {
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let (status, kind, body) = respond(reviewer, body).await;
        *response.status_mut() = status;
        *response.body_mut() = body.into();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}
