//! Services that this process serves itself or knows the address of, for webhooks that name a Service.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

/// Answers requests inside this process.
pub type ServiceHandler =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// Where the requests to a Service go.
#[derive(Clone)]
pub enum ServiceBackend {
    /// Over TLS; the certificate must be for `<service>.<namespace>.svc`.
    Address(SocketAddr),
    /// Without a socket and without TLS.
    InProcess(ServiceHandler),
}

/// Backends by namespace and name; few, so a list will do.
#[derive(Default)]
pub(crate) struct ServiceBackends(RwLock<Vec<(String, String, ServiceBackend)>>);

impl ServiceBackends {
    /// Replaces an earlier backend of the same Service.
    pub(crate) fn set(&self, namespace: &str, name: &str, backend: ServiceBackend) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(ns, n, _)| ns != namespace || n != name);
        known.push((namespace.to_owned(), name.to_owned(), backend));
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<ServiceBackend> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(ns, n, _)| ns == namespace && n == name);
        found.map(|(_, _, backend)| backend.clone())
    }
}
