//! One cluster's state, and the way from an HTTP request to the handler that answers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::answer::{Answer, Body, Include, error_response, text_response};
use crate::auth::User;
use crate::handlers::{self, Call};
use crate::kind::{Kind, Lookup};
use crate::media::{Accept, Offer, Shape};
use crate::registry::Registry;
use crate::request::{Path, Query};
use crate::status::Status;
use crate::store::{Limits, Store};
use crate::{discovery, openapi};

/// The real server's limit.
const MAX_BODY: usize = 3 << 20;
/// The real server's limit for a whole request.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) store: Store,
    builtin: Vec<Kind>,
    registry: RwLock<Arc<Registry>>,
    /// Group and plural of custom kinds whose definition is being deleted.
    closing: RwLock<Vec<(String, String)>>,
    definitions: Mutex<()>,
}

/// A request whose body has been read.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: User,
}

impl Server {
    pub(crate) fn new(builtin: Vec<Kind>, limits: Limits) -> Self {
        let store = Store::new(limits);
        let registry = Registry::new(builtin.clone(), &store);
        Self {
            store,
            builtin,
            registry: RwLock::new(Arc::new(registry)),
            closing: RwLock::default(),
            definitions: Mutex::default(),
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&registry)
    }

    /// Serves these custom kinds besides the built-in ones.
    pub(crate) fn set_custom_kinds(&self, custom: Vec<Kind>) {
        let kinds = self.builtin.iter().cloned().chain(custom).collect();
        let registry = Arc::new(Registry::new(kinds, &self.store));
        *self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner) = registry;
    }

    /// Held while the custom kinds are worked out anew.
    pub(crate) fn lock_definitions(&self) -> MutexGuard<'_, ()> {
        self.definitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_closing(&self, kinds: Vec<(String, String)>) {
        *self.closing.write().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    pub(crate) fn is_closing(&self, group: &str, plural: &str) -> bool {
        let closing = self.closing.read().unwrap_or_else(PoisonError::into_inner);
        closing.iter().any(|(g, p)| g == group && p == plural)
    }

    /// Reads the body and answers; what goes wrong is an answer too.
    pub(crate) async fn answer<B>(
        self: &Arc<Self>,
        request: http::Request<B>,
        user: User,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
    {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let accept = Accept::for_errors(&parts.headers, &query);
        let body = match tokio::time::timeout(BODY_PATIENCE, read_body(body)).await {
            Ok(Ok(body)) => body,
            Ok(Err(status)) => return error_response(&status, accept),
            Err(_) => {
                let message = "the body of the request did not arrive in time";
                return error_response(&Status::new(504, "Timeout", message), accept);
            }
        };
        let Parts {
            method,
            uri,
            headers,
            ..
        } = parts;
        let request = Request {
            method,
            path: uri.path().to_owned(),
            query,
            headers,
            body,
            user,
        };
        match self.route(request).await {
            Ok(response) => response,
            Err(status) => error_response(&status, accept),
        }
    }

    async fn route(self: &Arc<Self>, request: Request) -> Result<Response<Body>, Status> {
        let Some(path) = Path::parse(&request.path) else {
            return Ok(page_not_found());
        };
        let path = match path {
            Path::Resource(path) => path,
            Path::Other(segments) => {
                let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
                return Ok(self.route_other(&segments, &request));
            }
        };
        let registry = self.registry();
        let Some(served) = registry.find(&path.group, &path.version, &path.plural) else {
            // Groups of custom kinds come and go: what they lack is like a path that never was.
            let known = |kind: &Kind| kind.group == path.group;
            return if self.builtin.iter().any(known) {
                Err(Status::no_such_resource())
            } else {
                Ok(page_not_found())
            };
        };
        let writes_everywhere = path.namespace.is_empty() && request.method != Method::GET;
        if served.custom && served.kind.namespaced && writes_everywhere {
            return Ok(page_not_found());
        }
        let served = Arc::clone(served);
        let offer = match served.custom {
            true => Offer::Custom,
            false => Offer::Builtin {
                streams: path.name.is_empty() && request.method == Method::GET,
            },
        };
        let accept = Accept::negotiate(&request.headers, &request.query, offer)?;
        let include = match accept.shape {
            Shape::Table => Include::parse(request.query.text("includeObject"))?,
            _ => Include::Metadata,
        };
        let call = Call {
            server: Arc::clone(self),
            served,
            path,
            accept,
            include,
            request,
        };
        let answer: Answer = handlers::dispatch(&call).await?;
        Ok(answer.into_response(accept, include))
    }

    fn route_other(&self, segments: &[&str], request: &Request) -> Response<Body> {
        let registry = self.registry();
        // The real server looks at the method only here.
        let only_get = matches!(segments, ["version"] | ["api", ..] | ["apis", _, _, ..]);
        if only_get && request.method != Method::GET {
            return error_response(&Status::method_not_allowed(), Accept::PLAIN);
        }
        match segments {
            [] => discovery::root(&registry),
            ["version"] => discovery::version(request),
            ["healthz" | "livez" | "readyz", ..] => discovery::health(segments, request),
            ["api" | "apis", ..] => {
                discovery::answer(&registry, segments, request).unwrap_or_else(page_not_found)
            }
            ["openapi", "v2"] => openapi::v2(request),
            ["openapi", "v3", rest @ ..] => {
                openapi::v3(&registry, rest, request).unwrap_or_else(page_not_found)
            }
            _ => page_not_found(),
        }
    }
}

/// What the real server's mux says about paths it does not know.
fn page_not_found() -> Response<Body> {
    text_response(StatusCode::NOT_FOUND, "404 page not found\n")
}

async fn read_body<B: http_body::Body<Data = Bytes>>(body: B) -> Result<Bytes, Status> {
    let mut body = std::pin::pin!(body);
    let mut whole: Option<Bytes> = None;
    let mut pieces: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| Status::bad_request("the body of the request ended early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        // Most bodies are one piece, which is then not copied.
        match whole.take() {
            None if pieces.is_empty() => whole = Some(data),
            first => {
                pieces.extend_from_slice(&first.unwrap_or_default());
                pieces.extend_from_slice(&data);
            }
        }
        if pieces.len() > MAX_BODY || whole.as_ref().is_some_and(|w| w.len() > MAX_BODY) {
            return Err(Status::too_large());
        }
    }
    Ok(whole.unwrap_or_else(|| Bytes::from(pieces)))
}

impl Lookup for Server {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let registry = self.registry();
        let served = registry.find_resource(group, plural)?;
        let object = self.store.get(served.table, &served.key(namespace, name))?;
        Some(object.parsed())
    }

    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        let registry = self.registry();
        let Some(served) = registry.find_resource(group, plural) else {
            return Vec::new();
        };
        let prefix = if namespace.is_empty() {
            String::new()
        } else {
            served.key(namespace, "")
        };
        let snapshot = self.store.scan(served.table, &prefix, "");
        snapshot.objects.iter().map(|o| o.parsed()).collect()
    }
}
