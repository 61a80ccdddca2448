//! The embedded cluster as its users see it: create it, send requests to it, serve it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use tower::Service;

use super::router;
use crate::custom;
use crate::handlers;
use crate::kinds;
use crate::kinds::kind::Kind;
use crate::protocol::auth::User;
use crate::protocol::response::Body;
use crate::resources::backends::ServiceBackend;
use crate::resources::state::ServerState;
use crate::store::Limits;

/// An in-memory Kubernetes API. Cheap to clone; all clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) server: Arc<ServerState>,
}

/// The options of a new cluster.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: Limits,
}

impl Cluster {
    /// A cluster with the objects that every cluster has: namespaces, priority classes, a service.
    pub fn new(options: Options) -> Self {
        let server = Arc::new(ServerState::new(builtin_kinds(), options.limits));
        for object in kinds::initial_objects() {
            handlers::create_at_start(&server, object)
                .expect("objects that exist from the start obey the rules of their kinds");
        }
        Self { server }
    }

    /// Handles requests inside the process, as an administrator:
    /// `kube::Client::new(cluster.service(), "default")`.
    pub fn service(&self) -> ApiService {
        ApiService {
            server: Arc::clone(&self.server),
        }
    }

    /// Sends the requests of webhooks that name this Service to `backend`, whatever the Service object says.
    pub fn route_service(&self, namespace: &str, name: &str, backend: ServiceBackend) {
        self.server.backends.set(namespace, name, backend);
    }

    /// Drops the history, so that older watches and list pages get 410.
    pub fn compact(&self) {
        self.server.store.compact();
    }

    /// The resource version of the last write.
    pub fn revision(&self) -> u64 {
        self.server.store.revision()
    }
}

/// Every kind that is not custom, in the order of discovery.
fn builtin_kinds() -> Vec<Kind> {
    let mut kinds = kinds::builtin();
    kinds.push(custom::definition_kind());
    kinds.extend(kinds::reviews());
    kinds.extend(kinds::metrics::metrics());
    kinds
}

/// A cluster as a tower service.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<ServerState>,
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = Arc::clone(&self.server);
        Box::pin(async move { Ok(router::respond(&server, request, User::in_process()).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kind::Write;
    use serde_json::json;

    #[test]
    fn a_row_has_a_cell_per_column() {
        for kind in builtin_kinds() {
            let cells = kind.rules.cells(&json!({}), jiff::Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), kind.rules.columns().len(), "{}", kind.plural);
        }
    }

    #[test]
    fn rules_accept_bodies_that_are_not_objects() {
        for kind in builtin_kinds() {
            for body in [
                json!(null),
                json!([]),
                json!("x"),
                json!({"metadata": 1, "spec": [], "status": "s"}),
            ] {
                let mut object = body.clone();
                kind.rules.default(&mut object);
                for write in [
                    Write::Create,
                    Write::Update,
                    Write::Subresource("status"),
                    Write::Subresource("resize"),
                ] {
                    let old = (write != Write::Create).then_some(&body);
                    kind.rules.prepare(&mut object, old, write);
                    kind.rules.validate(&object, old, write);
                }
                kind.rules.cells(&object, jiff::Timestamp::UNIX_EPOCH);
            }
        }
    }

    #[test]
    fn defaults_are_the_same_when_repeated() {
        for kind in builtin_kinds() {
            let mut once = json!({"metadata": {"name": "x"}});
            kind.rules.default(&mut once);
            let mut twice = once.clone();
            kind.rules.default(&mut twice);
            assert_eq!(once, twice, "{}", kind.plural);
        }
    }

    #[test]
    fn verbs_and_subresources_come_sorted() {
        for kind in builtin_kinds() {
            let subresources: Vec<_> = kind.subresources.iter().map(|s| &s.name).collect();
            assert!(kind.verbs.is_sorted(), "{}", kind.plural);
            assert!(
                subresources.is_sorted(),
                "{}: {subresources:?}",
                kind.plural
            );
        }
    }
}
