//! Requests and their results: success, refused, or unknown.

pub mod causes;

use std::time::Duration;

use api::wire::envelope::{self, RequestStatus};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use prost::Message;

use causes::of_request;

/// For the body of an error: without it, the status code is enough.
pub const ERROR_BODY: Duration = Duration::from_secs(2);
/// Bytes of an error.
const SMALL: usize = 4 << 20;
/// Bytes of a page of a list: etcd allows 1.5 MB per object, but no cluster has 500 objects of that size.
const PAGE: usize = 512 << 20;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server refused it, so it had no effect.
    #[error("{message}")]
    Refused {
        status: StatusCode,
        message: String,
        /// The reason of the status, such as `Conflict`; may be empty.
        reason: String,
        /// The resource that the refusal is about, such as `namespaces`; may be empty.
        resource: String,
        /// How long to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// No response, or one that leaves open whether it had an effect.
    #[error("{0}")]
    Unknown(String),
    /// It was not sent, because another replica may be the leader.
    #[error("this process may not be the leader any more")]
    NotLeader,
}

impl Refusal {
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unknown(_) | Self::NotLeader => None,
        }
    }
}

/// Sends a request for a page of a list, and reads it within `limit`; the result says whether it is protobuf. The head of the
/// response and each piece arrive within `silence`.
pub async fn receive(
    client: &kube::Client,
    request: Request<Body>,
    silence: Duration,
    limit: Duration,
) -> Result<(Bytes, bool), Refusal> {
    let exchange = async {
        let answer = stream(client, request, silence).await?;
        let protobuf = is_protobuf(answer.headers());
        Ok((body(answer, PAGE, silence).await?, protobuf))
    };
    match tokio::time::timeout(limit, exchange).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::Unknown(format!(
            "the response is incomplete after {limit:?}"
        ))),
    }
}

/// Sends a request, and waits so long for the head of the response; its body is the caller's to read if the server agreed.
pub async fn stream(
    client: &kube::Client,
    request: Request<Body>,
    limit: Duration,
) -> Result<Response<Body>, Refusal> {
    let answer = tokio::time::timeout(limit, client.send(request)).await;
    let answer = answer
        .map_err(|_| Refusal::Unknown(format!("no answer after {limit:?}")))?
        .map_err(|error| Refusal::Unknown(of_request(&error)))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let (code, headers) = (answer.status(), answer.headers().clone());
    // Without a complete body the status code is enough.
    let bytes = tokio::time::timeout(ERROR_BODY, body(answer, SMALL, ERROR_BODY)).await;
    let bytes = bytes.ok().and_then(Result::ok).unwrap_or_default();
    Err(refusal(code, &headers, &bytes))
}

pub fn is_protobuf(headers: &HeaderMap) -> bool {
    let found = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    found.is_some_and(|found| found.starts_with("application/vnd.kubernetes.protobuf"))
}

/// Reads so many bytes at most, and waits so long for each piece.
async fn body(answer: Response<Body>, largest: usize, silence: Duration) -> Result<Bytes, Refusal> {
    let incomplete = |why: String| Refusal::Unknown(format!("the response is incomplete: {why}"));
    let mut pieces = answer.into_body().into_data_stream();
    let mut read = BytesMut::new();
    loop {
        let piece = tokio::time::timeout(silence, chunk(&mut pieces)).await;
        let piece = piece.map_err(|_| incomplete(format!("no data for {silence:?}")))?;
        let Some(piece) = piece.map_err(incomplete)? else {
            return Ok(read.freeze());
        };
        if read.len() + piece.len() > largest {
            return Err(incomplete(format!("it is larger than {largest} bytes")));
        }
        read.extend_from_slice(&piece);
    }
}

pub fn refusal(code: StatusCode, headers: &HeaderMap, bytes: &Bytes) -> Refusal {
    let status = read_status(headers, bytes);
    let message = match status.message {
        message if message.is_empty() => format!("the API server answered {code}"),
        message => message,
    };
    // The store may have committed before the failure.
    if code.is_server_error() {
        return Refusal::Unknown(message);
    }
    let seconds = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    Refusal::Refused {
        status: code,
        message,
        reason: status.reason,
        resource: status.details.unwrap_or_default().kind,
        retry_after: seconds.map(Duration::from_secs),
    }
}

fn read_status(headers: &HeaderMap, bytes: &Bytes) -> RequestStatus {
    let read = if is_protobuf(headers) {
        envelope::open(bytes)
            .ok()
            .and_then(|message| RequestStatus::decode(message).ok())
    } else {
        serde_json::from_slice(bytes).ok()
    };
    read.unwrap_or_default()
}

/// The next piece of a body; `None` at its end.
pub async fn chunk(
    body: &mut http_body_util::BodyDataStream<Body>,
) -> Result<Option<Bytes>, String> {
    body.try_next().await.map_err(|error| of_request(&error))
}
