//! The paths that every component has, and the checks before any of them.

use std::sync::Arc;

use api::http::{Error, ErrorCode, PODS};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;

use super::auth::{Access, Guard, is_health};
use super::client_certificates::ClientCertificates;
use super::health::{self, Check, HealthQuery};
use super::origin::LocalNames;
use super::slots::Slot;
use super::{Component, OPEN_METRICS};

pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// Which callers are allowed.
#[derive(Clone)]
pub(super) enum Callers {
    /// All on this machine.
    Local(LocalNames),
    /// Those that the API server authorizes.
    Reviewed(Arc<Guard>),
}

/// All paths of a component.
pub(super) fn routes<C: Component>(component: C, callers: Callers) -> Router {
    let app = C::routes().route(
        "/metrics",
        get(async |State(component): State<C>| {
            answer(StatusCode::OK, OPEN_METRICS, component.metrics())
        }),
    );
    let endpoints = [
        ("livez", C::live as fn(&C) -> Vec<Check>),
        ("healthz", C::healthy),
        ("readyz", C::ready),
    ];
    let app = endpoints.into_iter().fold(app, |app, (name, checks)| {
        let all = async move |State(component): State<C>, RawQuery(query): RawQuery| {
            let query = HealthQuery::new(&query.unwrap_or_default());
            let (code, text) = health::report(name, &checks(&component), &query);
            let warnings = match name {
                "readyz" => component.warnings(),
                _ => Vec::new(),
            };
            answer(code, TEXT, health::with_warnings(text, &warnings))
        };
        let one = async move |State(component): State<C>, Path(check): Path<String>| {
            let (code, text) = health::report_one(&check, &checks(&component));
            answer(code, TEXT, text)
        };
        app.route(&format!("/{name}"), get(all))
            .route(&format!("/{name}/{{check}}"), get(one))
    });
    app.fallback(async || refuse(ErrorCode::NotFound, "there is nothing at this path"))
        .with_state(component)
        .layer(middleware::from_fn_with_state(callers, authorize::<C>))
}

/// Only the component's writable paths accept PUT, and no path accepts another method that writes.
async fn authorize<C: Component>(
    State(callers): State<Callers>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let verb = match *request.method() {
        Method::GET | Method::HEAD => "get",
        Method::PUT if C::accepts_put(path) => "put",
        _ => {
            let allowed = if C::accepts_put(path) {
                "GET, HEAD, PUT"
            } else {
                "GET, HEAD"
            };
            let text = format!("this path accepts {allowed} only");
            let mut response = refuse(ErrorCode::MethodNotAllowed, &text);
            let allow = HeaderValue::from_static(allowed);
            response.headers_mut().insert(ALLOW, allow);
            return response;
        }
    };
    let checked = check(
        &callers,
        request.uri(),
        request.headers(),
        request.extensions(),
        verb,
    );
    if let Err((code, text)) = checked.await {
        let mut response = refuse(code, &text);
        let headers = response.headers_mut();
        match code {
            ErrorCode::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            ErrorCode::TooManyRequests => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        return response;
    }
    let mut response = next.run(request).await;
    let no_guessing = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, no_guessing);
    response
}

/// An error is the response to send.
async fn check(
    callers: &Callers,
    uri: &Uri,
    headers: &HeaderMap,
    extensions: &Extensions,
    verb: &str,
) -> Result<(), (ErrorCode, String)> {
    let path = uri.path();
    let slot = extensions.get::<Slot>();
    match callers {
        Callers::Local(names) => {
            let checked = names.check(uri, headers);
            checked.map_err(|text| (ErrorCode::Forbidden, text))?;
            // All callers have the same permissions, but places for health checks are for health checks.
            if let Some(slot) = slot
                && !is_health(path)
            {
                slot.authenticated();
            }
            Ok(())
        }
        Callers::Reviewed(guard) if guard.is_open(path) => Ok(()),
        Callers::Reviewed(guard) => {
            let certificates = extensions.get::<ClientCertificates>();
            let accesses = accesses(path, verb);
            guard.allow(headers, certificates, slot, &accesses).await
        }
    }
}

/// What a caller must be allowed to do to use this path: the path itself, and to get the pod that it names.
fn accesses(path: &str, verb: &str) -> Vec<Access> {
    let mut accesses = vec![Access::Path {
        path: path.to_owned(),
        verb: verb.to_owned(),
    }];
    let pod = path.strip_prefix(PODS).and_then(|it| it.strip_prefix('/'));
    let parts: Vec<&str> = pod.into_iter().flat_map(|it| it.split('/')).collect();
    if let [namespace, name, ..] = parts[..] {
        // Names of Kubernetes need no encoding; one that has some names no pod.
        accesses.push(Access::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }
    accesses
}

pub(crate) fn to_json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => answer(StatusCode::OK, JSON, text),
        Err(error) => refuse(ErrorCode::Internal, &error.to_string()),
    }
}

pub(crate) fn refuse(code: ErrorCode, message: &str) -> Response {
    let message = message.to_owned();
    let text = serde_json::to_string(&Error { code, message });
    answer(code.status(), JSON, text.unwrap_or_default())
}

pub(crate) fn answer(code: StatusCode, kind: &'static str, text: String) -> Response {
    (code, [(CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explaining_a_pod_needs_permission_to_get_it() {
        assert_eq!(accesses("/metrics", "get").len(), 1);
        let pod = Access::Pod {
            namespace: "a".into(),
            name: "b".into(),
        };
        let path = api::http::explain_path("a", "b");
        assert_eq!(accesses(&path, "get")[1], pod);
    }
}
