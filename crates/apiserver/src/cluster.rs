//! The embedded cluster as its users see it: make one, talk to it, serve it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use tower::Service;

use crate::answer::Body;
use crate::auth::User;
use crate::handlers;
use crate::kinds;
use crate::server::Server;
use crate::store::Limits;

/// An in-memory Kubernetes API. Cheap to clone; all clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) server: Arc<Server>,
}

/// How a cluster is made.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: Limits,
}

impl Cluster {
    /// A cluster with the objects that every cluster has: namespaces, priority classes, a service.
    pub fn new(options: Options) -> Self {
        let mut kinds = kinds::builtin();
        kinds.extend(handlers::review_kinds());
        let server = Arc::new(Server::new(kinds, options.limits));
        for object in kinds::initial_objects() {
            handlers::create_at_start(&server, object)
                .expect("objects that exist from the start obey the rules of their kinds");
        }
        Self { server }
    }

    /// Answers requests inside the process, as an administrator:
    /// `kube::Client::new(cluster.service(), "default")`.
    pub fn service(&self) -> ApiService {
        ApiService {
            server: Arc::clone(&self.server),
        }
    }

    /// Forgets the history, so that older watches and list pages answer 410.
    pub fn compact(&self) {
        self.server.store.compact();
    }

    /// The resource version of the last write.
    pub fn revision(&self) -> u64 {
        self.server.store.revision()
    }
}

/// A cluster as a tower service.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<Server>,
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
        Box::pin(async move { Ok(server.answer(request, User::in_process()).await) })
    }
}
