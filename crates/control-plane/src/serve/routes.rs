//! Paths and their answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::auth::{Guard, Wish};
use super::dump;
use super::health::{self, Asked, Check};
use super::scores;
use crate::scheduler::{Handle, Unanswered};

const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is looked at, and how it is.
type Checks = fn(&Handle) -> Vec<Check>;

/// Everything that a scheduler answers, to whom the guard lets in.
pub(crate) fn routes(handle: Handle, guard: Option<Guard>) -> Router {
    let app = Router::new()
        .route("/metrics", get(metrics))
        .route("/configz", get(configz))
        .route("/apis/v1/status", get(status))
        .route("/apis/v1/pods/{namespace}/{name}/explain", get(explain))
        .route("/debug/scores", get(scores::show).put(scores::switch))
        .route("/debug/flags/s", get(scores::flag).put(scores::set_flag))
        .route("/debug/cache", get(cache))
        .route("/debug/cache/{node}", get(cached_node));
    let endpoints: [(&'static str, Checks); 3] = [
        ("livez", Handle::alive),
        ("healthz", Handle::healthy),
        ("readyz", Handle::ready),
    ];
    let app = endpoints.into_iter().fold(app, |app, (name, checks)| {
        let all = async move |State(handle): State<Handle>, RawQuery(query): RawQuery| {
            let asked = Asked::new(&query.unwrap_or_default());
            let (code, text) = health::tell(name, &checks(&handle), &asked);
            answer(code, TEXT, text)
        };
        let one = async move |State(handle): State<Handle>, Path(check): Path<String>| {
            let (code, text) = health::tell_one(&check, &checks(&handle));
            answer(code, TEXT, text)
        };
        app.route(&format!("/{name}"), get(all))
            .route(&format!("/{name}/{{check}}"), get(one))
    });
    app.fallback(async || refuse(StatusCode::NOT_FOUND, "there is nothing here"))
        .with_state(handle)
        .layer(middleware::from_fn_with_state(guard.map(Arc::new), let_in))
}

/// Nothing changes but by a switch, and nobody sees or switches what he may not.
async fn let_in(State(guard): State<Option<Arc<Guard>>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let verb = match *request.method() {
        Method::GET | Method::HEAD => "get",
        Method::PUT if is_switch(path) => "put",
        _ => {
            let works = if is_switch(path) {
                "GET, HEAD, PUT"
            } else {
                "GET, HEAD"
            };
            let text = format!("only {works} work here");
            let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, &text);
            let allow = HeaderValue::from_static(works);
            response.headers_mut().insert(ALLOW, allow);
            return response;
        }
    };
    if let Some(guard) = guard
        && !guard.is_open(path)
        && let Err((code, text)) = guard.allow(request.headers(), &wishes(path, verb)).await
    {
        let mut response = refuse(code, &text);
        if code == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
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

/// Whether something can be switched there. Browsers ask before they send a PUT to strangers, and nobody answers them.
fn is_switch(path: &str) -> bool {
    matches!(path, "/debug/scores" | "/debug/flags/s")
}

/// What somebody must be allowed to do who asks for this path.
fn wishes(path: &str, verb: &str) -> Vec<Wish> {
    let mut wishes = vec![Wish::Path {
        path: path.to_owned(),
        verb: verb.to_owned(),
    }];
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if let ["apis", "v1", "pods", namespace, name, ..] = parts[..] {
        // Names of Kubernetes need no encoding; one that has some names no pod.
        wishes.push(Wish::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }
    wishes
}

async fn metrics(State(handle): State<Handle>) -> Response {
    answer(StatusCode::OK, OPEN_METRICS, handle.metrics())
}

async fn configz(State(handle): State<Handle>) -> Response {
    let config = json!({"componentconfig": handle.configuration()});
    answer(StatusCode::OK, JSON, config.to_string())
}

async fn status(State(handle): State<Handle>) -> Response {
    to_json(&handle.whole_status().await)
}

async fn explain(
    State(handle): State<Handle>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    match handle.explain(&namespace, &name).await {
        Ok(Some(report)) => to_json(&report),
        Ok(None) => {
            let text = format!(
                "pod {namespace}/{name} is not known to this scheduler: it does not exist, has ended, or waits for another one"
            );
            refuse(StatusCode::NOT_FOUND, &text)
        }
        Err(why) => unanswered(why),
    }
}

async fn cache(State(handle): State<Handle>) -> Response {
    match handle.nodes().await {
        Ok((dump, permit)) => {
            let body = Body::from_stream(dump::stream(dump, permit, dump::PATIENCE));
            (StatusCode::OK, [(CONTENT_TYPE, JSON)], body).into_response()
        }
        Err(why) => unanswered(why),
    }
}

async fn cached_node(State(handle): State<Handle>, Path(node): Path<String>) -> Response {
    match handle.node(&node).await {
        Ok(Some(dump)) => to_json(&dump::one_node(&dump)),
        Ok(None) => {
            let text = format!("node {node} is not known to this scheduler");
            refuse(StatusCode::NOT_FOUND, &text)
        }
        Err(why) => unanswered(why),
    }
}

fn unanswered(why: Unanswered) -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, &why.to_string())
}

pub(super) fn to_json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => answer(StatusCode::OK, JSON, text),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

pub(super) fn refuse(code: StatusCode, text: &str) -> Response {
    answer(code, JSON, json!({"error": text}).to_string())
}

pub(super) fn answer(code: StatusCode, kind: &'static str, text: String) -> Response {
    (code, [(CONTENT_TYPE, kind)], Body::from(text)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_about_a_pod_must_be_allowed_to_see_it() {
        assert_eq!(wishes("/metrics", "get").len(), 1);
        let pod = Wish::Pod {
            namespace: "a".into(),
            name: "b".into(),
        };
        assert_eq!(wishes("/apis/v1/pods/a/b/explain", "get")[1], pod);
    }
}
