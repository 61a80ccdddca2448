//! Requests as bytes: paths, bodies and times as the API server wants them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::model::Pod;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::client::{self, Exchange, Refusal};
use crate::election::leadership::Leadership;

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// How long the answer to a request may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Attempts at a write that may be repeated.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// `/api/v1/namespaces/NS/pods/NAME` and what comes after it.
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
}

impl Call {
    pub(crate) fn new(
        method: Method,
        path: String,
        media_type: &'static str,
        body: String,
    ) -> Self {
        Self {
            method,
            path,
            media_type,
            body: body.into(),
        }
    }

    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, JSON, String::new())
    }

    /// Once, if it may be sent at all.
    pub(crate) async fn send(&self, way: &impl Way) -> Result<Bytes, Refusal> {
        let limit = way.time_for(self)?;
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, self.media_type)
            .body(Full::new(self.body.clone()));
        match request {
            Ok(request) => client::send(way.exchange(), request, limit).await,
            Err(error) => Err(Refusal::Refused {
                status: http::StatusCode::BAD_REQUEST,
                message: format!("`{}` is no path: {error}", self.path),
                retry_after: None,
            }),
        }
    }

    /// A few times, as long as it makes sense. Only for writes that may be carried out twice.
    pub(crate) async fn send_repeatedly(&self, way: &impl Way) -> Result<Bytes, Refusal> {
        self.send_until_told(way).await.0
    }

    /// The same; also returns whether an answer was lost on the way, so that it may have been carried out before the
    /// last answer.
    pub(crate) async fn send_until_told(&self, way: &impl Way) -> (Result<Bytes, Refusal>, bool) {
        let (mut wait, mut lost) = (FIRST_WAIT, false);
        for _ in 1..TRIES {
            match self.send(way).await {
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
        (self.send(way).await, lost)
    }
}

/// How requests reach the server.
pub(crate) trait Way: Sync {
    fn exchange(&self) -> &Exchange;

    /// How long the request may take if it is sent now; an error if it must not be sent.
    fn time_for(&self, call: &Call) -> Result<Duration, Refusal>;
}

/// Whoever has nothing else reads.
impl Way for Exchange {
    fn exchange(&self) -> &Exchange {
        self
    }

    fn time_for(&self, call: &Call) -> Result<Duration, Refusal> {
        match call.method {
            Method::GET => Ok(DEADLINE),
            _ => Err(Refusal::NoMandate),
        }
    }
}

/// Writes as long as the leadership lasts, and reads any time.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) exchange: Exchange,
    pub(crate) leadership: Arc<Leadership>,
}

impl Way for Writer {
    fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    fn time_for(&self, call: &Call) -> Result<Duration, Refusal> {
        if call.method == Method::GET {
            return Ok(DEADLINE);
        }
        let left = self.leadership.left().ok_or(Refusal::NoMandate)?;
        Ok(left.min(DEADLINE))
    }
}

/// A writer for work beside the line: its requests wait for turns, of which there are only so many.
#[derive(Clone)]
pub(crate) struct Turns {
    writer: Writer,
    turns: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(writer: Writer, turns: usize) -> Self {
        Self {
            writer,
            turns: Arc::new(Semaphore::new(turns)),
        }
    }

    pub(crate) async fn send(&self, call: &Call) -> Result<Bytes, Refusal> {
        let _turn = self.turns.acquire().await;
        call.send(&self.writer).await
    }

    pub(crate) async fn send_repeatedly(&self, call: &Call) -> Result<Bytes, Refusal> {
        self.send_until_told(call).await.0
    }

    pub(crate) async fn send_until_told(&self, call: &Call) -> (Result<Bytes, Refusal>, bool) {
        let _turn = self.turns.acquire().await;
        call.send_until_told(&self.writer).await
    }
}

/// Text as a JSON string.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if self.0.bytes().all(is_plain) {
            return write!(f, "\"{}\"", self.0);
        }
        let quoted = serde_json::to_string(self.0).map_err(|_| fmt::Error)?;
        f.write_str(&quoted)
    }
}

/// As conditions have it: whole seconds.
pub(crate) fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// As events have it.
pub(crate) fn micros(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        for text in ["plain", "a \"b\"", "back\\slash", "line\nfeed", "Größe", ""] {
            let quoted = Quoted(text).to_string();
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }
    }

    #[test]
    fn times() {
        let time = jiff::Timestamp::new(1_767_323_045, 1_500).unwrap();
        assert_eq!(seconds(time), "2026-01-02T03:04:05Z");
        assert_eq!(micros(time), "2026-01-02T03:04:05.000001Z");
    }
}
