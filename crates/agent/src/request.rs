//! Requests to the API server, with a time limit, and the meaning of its answers.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use serde_json::Value;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("it does not exist")]
    NotFound,
    /// It exists already, or it has changed since it was read.
    #[error("another writer was faster")]
    Conflict,
    #[error("the server refuses it: {0}")]
    Invalid(String),
    /// The server asks to come back later; for an eviction a PodDisruptionBudget forbids it.
    #[error("not now: {0}")]
    TooMany(String),
    #[error("forbidden: {0}")]
    Forbidden(String),
    #[error("{0}")]
    Failed(String),
}

pub(crate) async fn get(client: &Client, url: &str) -> Result<Value, RequestError> {
    send(client, http::Request::get(url), Vec::new()).await
}

pub(crate) async fn create(
    client: &Client,
    url: &str,
    object: &Value,
) -> Result<Value, RequestError> {
    let request = http::Request::post(url).header(CONTENT_TYPE, "application/json");
    send(client, request, body(object)?).await
}

pub(crate) async fn delete(client: &Client, url: &str) -> Result<Value, RequestError> {
    send(client, http::Request::delete(url), Vec::new()).await
}

/// A merge patch: objects are merged, lists replaced, null removes.
pub(crate) async fn merge(
    client: &Client,
    url: &str,
    patch: &Value,
) -> Result<Value, RequestError> {
    let request = http::Request::patch(url).header(CONTENT_TYPE, "application/merge-patch+json");
    send(client, request, body(patch)?).await
}

fn body(value: &Value) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(value).map_err(|error| RequestError::Failed(error.to_string()))
}

async fn send(
    client: &Client,
    request: http::request::Builder,
    body: Vec<u8>,
) -> Result<Value, RequestError> {
    let request = request.header(ACCEPT, "application/json").body(body);
    let request = request.map_err(|error| RequestError::Failed(error.to_string()))?;
    match tokio::time::timeout(TIMEOUT, client.request(request)).await {
        Ok(answer) => answer.map_err(|error| meaning(&error)),
        Err(_) => Err(RequestError::Failed(format!(
            "no answer of the API server within {TIMEOUT:?}"
        ))),
    }
}

/// The innermost cause says what happened, such as a refused connection.
fn causes(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!("cannot reach the API server: {innermost}")
}

fn meaning(error: &kube::Error) -> RequestError {
    let kube::Error::Api(status) = error else {
        return RequestError::Failed(causes(error));
    };
    let message = status.message.clone();
    match status.code {
        404 => RequestError::NotFound,
        409 => RequestError::Conflict,
        400 | 422 => RequestError::Invalid(message),
        429 => RequestError::TooMany(message),
        401 | 403 => RequestError::Forbidden(message),
        _ => RequestError::Failed(message),
    }
}
