//! Requests to the API server: paths, bodies, timeouts and retries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::model::Pod;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::client::{self, Exchange, Largest, Refusal};
use crate::election::leadership::Leadership;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Bytes of most bodies.
const BODY: usize = 512;

/// The timeout of a request.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Attempts at a write that may be sent twice.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// `/api/v1/namespaces/NS/pods/NAME`, followed by `rest`.
pub(crate) fn pod_path(pod: &Pod, rest: &str) -> String {
    format!(
        "/api/v1/namespaces/{}/pods/{}{rest}",
        pod.namespace(),
        pod.name
    )
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) media_type: &'static str,
    pub(crate) body: Bytes,
    /// Bytes of the response, if it may be large.
    pub(crate) largest: Option<usize>,
}

impl Call {
    pub(crate) fn new(
        method: Method,
        path: String,
        media_type: &'static str,
        body: &impl Serialize,
    ) -> Self {
        let mut bytes = Vec::with_capacity(BODY);
        // Writing into a vector does not fail.
        let _ = serde_json::to_writer(&mut bytes, body);
        Self {
            method,
            path,
            media_type,
            body: bytes.into(),
            largest: None,
        }
    }

    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            media_type: JSON,
            body: Bytes::new(),
            largest: None,
        }
    }

    /// Sends it once, if it may be sent.
    pub(crate) async fn send(&self, sender: &impl Sender) -> Result<Bytes, Refusal> {
        let limit = sender.timeout(self)?;
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, self.media_type)
            .body(Full::new(self.body.clone()));
        match request {
            Ok(mut request) => {
                if let Some(largest) = self.largest {
                    request.extensions_mut().insert(Largest(largest));
                }
                client::send(sender.exchange(), request, limit).await
            }
            Err(error) => Err(Refusal::Refused {
                status: http::StatusCode::BAD_REQUEST,
                message: format!("`{}` is not a valid path: {error}", self.path),
                reason: String::new(),
                resource: String::new(),
                retry_after: None,
            }),
        }
    }

    /// Sends it up to [`TRIES`] times. Only for writes that may be applied twice.
    pub(crate) async fn send_retrying(&self, sender: &impl Sender) -> Result<Bytes, Refusal> {
        self.send_retrying_tracked(sender).await.0
    }

    /// Sends it up to [`TRIES`] times, and also returns whether a response was lost, so that the request may have been applied
    /// before the last response.
    pub(crate) async fn send_retrying_tracked(
        &self,
        sender: &impl Sender,
    ) -> (Result<Bytes, Refusal>, bool) {
        let (mut wait, mut lost) = (FIRST_WAIT, false);
        for _ in 1..TRIES {
            match self.send(sender).await {
                Err(Refusal::Refused {
                    status: http::StatusCode::TOO_MANY_REQUESTS,
                    retry_after,
                    ..
                }) => wait = retry_after.unwrap_or(wait).max(wait),
                Err(Refusal::Unknown(_)) => lost = true,
                result => return (result, lost),
            }
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
            wait *= 4;
        }
        (self.send(sender).await, lost)
    }
}

/// Sends requests, if it is allowed to.
pub(crate) trait Sender: Sync {
    fn exchange(&self) -> &Exchange;

    /// The timeout of a request that is sent now; an error if it must not be sent.
    fn timeout(&self, call: &Call) -> Result<Duration, Refusal>;
}

/// A bare connection only reads.
impl Sender for Exchange {
    fn exchange(&self) -> &Exchange {
        self
    }

    fn timeout(&self, call: &Call) -> Result<Duration, Refusal> {
        match call.method {
            Method::GET => Ok(DEADLINE),
            _ => Err(Refusal::NotLeader),
        }
    }
}

/// Writes while this process is the leader, and reads any time.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) exchange: Exchange,
    pub(crate) leadership: Arc<Leadership>,
}

impl Sender for Writer {
    fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    fn timeout(&self, call: &Call) -> Result<Duration, Refusal> {
        if call.method == Method::GET {
            return Ok(DEADLINE);
        }
        let left = self.leadership.left().ok_or(Refusal::NotLeader)?;
        Ok(left.min(DEADLINE))
    }
}

/// A writer for work outside of the write queue, with a limit on requests at the same time.
#[derive(Clone)]
pub(crate) struct LimitedWriter {
    writer: Writer,
    permits: Arc<Semaphore>,
}

impl LimitedWriter {
    pub(crate) fn new(writer: Writer, limit: usize) -> Self {
        Self {
            writer,
            permits: Arc::new(Semaphore::new(limit)),
        }
    }

    pub(crate) async fn send(&self, call: &Call) -> Result<Bytes, Refusal> {
        let _permit = self.permits.acquire().await;
        call.send(&self.writer).await
    }

    pub(crate) async fn send_retrying(&self, call: &Call) -> Result<Bytes, Refusal> {
        self.send_retrying_tracked(call).await.0
    }

    pub(crate) async fn send_retrying_tracked(
        &self,
        call: &Call,
    ) -> (Result<Bytes, Refusal>, bool) {
        let _permit = self.permits.acquire().await;
        call.send_retrying_tracked(&self.writer).await
    }
}

/// `metadata` of a body; empty fields are left out.
#[derive(Serialize, Default)]
pub(crate) struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) uid: &'a str,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectReference<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) resource_version: &'a str,
}

/// The time format of conditions: whole seconds.
pub(crate) fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The time format of events.
pub(crate) fn micros(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let time = jiff::Timestamp::new(1_767_323_045, 1_500).unwrap();
        assert_eq!(seconds(time), "2026-01-02T03:04:05Z");
        assert_eq!(micros(time), "2026-01-02T03:04:05.000001Z");
    }
}
