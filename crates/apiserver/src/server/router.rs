//! Reads a request, finds its resource and calls the handler.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;

use super::{discovery, openapi};
use crate::handlers::{self, Call};
use crate::objects::status::Status;
use crate::protocol::auth::User;
use crate::protocol::media::{Accept, Offer, Representation};
use crate::protocol::request::{Path, Query, Request};
use crate::protocol::response::{ApiResponse, Body, IncludeObject, error_response, text_response};
use crate::resources::state::ServerState;

/// The real server's limit.
const MAX_BODY: usize = 3 << 20;
/// The real server's limit for a whole request.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the body and handles the request; an error becomes a response too.
pub(crate) async fn respond<B>(
    server: &Arc<ServerState>,
    request: http::Request<B>,
    user: User,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let accept = Accept::for_errors(&parts.headers, &query);
    let body = match tokio::time::timeout(BODY_TIMEOUT, read_body(body)).await {
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
    match route(server, request).await {
        Ok(response) => response,
        Err(status) => error_response(&status, accept),
    }
}

async fn route(server: &Arc<ServerState>, request: Request) -> Result<Response<Body>, Status> {
    let Some(path) = Path::parse(&request.path) else {
        return Ok(page_not_found());
    };
    let path = match path {
        Path::Resource(path) => path,
        Path::Other(segments) => {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            return Ok(route_other(server, &segments, &request));
        }
    };
    let registry = server.registry();
    let Some(served) = registry.find(&path.group, &path.version, &path.plural) else {
        // Groups of custom kinds come and go: what they lack is like a path that never was.
        return if server.has_builtin_group(&path.group) {
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
    let include = match accept.representation {
        Representation::Table => IncludeObject::parse(request.query.text("includeObject"))?,
        _ => IncludeObject::Metadata,
    };
    let call = Call {
        server: Arc::clone(server),
        served,
        path,
        accept,
        include,
        request,
    };
    let answer: ApiResponse = handlers::dispatch(&call).await?;
    if !answer.is_slow(accept) {
        return Ok(answer.into_response(accept, include));
    }
    // On another thread, so that other requests do not wait for it.
    let response = tokio::task::spawn_blocking(move || answer.into_response(accept, include));
    let failed = |_| Status::new(500, "InternalError", "cannot write the list");
    response.await.map_err(failed)
}

fn route_other(server: &ServerState, segments: &[&str], request: &Request) -> Response<Body> {
    let registry = server.registry();
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
            discovery::respond(&registry, segments, request).unwrap_or_else(page_not_found)
        }
        ["openapi", "v2"] => openapi::v2(request),
        ["openapi", "v3", rest @ ..] => {
            openapi::v3(&registry, rest, request).unwrap_or_else(page_not_found)
        }
        _ => page_not_found(),
    }
}

/// The response of the real server's mux to unknown paths.
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
