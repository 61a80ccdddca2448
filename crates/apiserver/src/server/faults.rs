//! Fault injection for tests: a tower layer that delays, refuses, loses and truncates, by counting rules.
//!
//! Equal rules and equal requests give equal faults: nothing is random.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::{BodyDataStream, BodyExt};
use serde_json::json;
use tower::{Layer, Service};

use crate::objects::status::{Details, Status};
use crate::protocol::media::Accept;
use crate::protocol::request::{Path, Query};
use crate::protocol::response::{Body, BoxError, error_response, stream_response};

/// A fault to inject.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The request waits; the next rules still apply.
    Delay(Duration),
    /// 409, and nothing is written.
    Conflict,
    /// 429 with `Retry-After`.
    TooManyRequests { retry_after_seconds: u32 },
    /// 500, and nothing is written.
    InternalError,
    /// The request is carried out, and the connection breaks instead of answering.
    LostAnswer,
    /// The connection breaks before the request is carried out.
    LostRequest,
    /// The stream of a watch ends cleanly after this many events.
    EndWatch { after_events: usize },
    /// The stream of a watch breaks in the middle of the event after these.
    TruncateWatch { after_events: usize },
    /// A watch sends 410 after this many events, a list at once.
    Expired { after_events: usize },
}

/// The requests that get a fault.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; empty is any.
    pub verb: &'static str,
    /// The plural, with the subresource after a slash (`pods/binding`); empty is any.
    pub resource: &'static str,
}

impl Matching {
    pub fn new(verb: &'static str, resource: &'static str) -> Self {
        Self { verb, resource }
    }
}

#[derive(Debug)]
struct Rule {
    matching: Matching,
    fault: Fault,
    /// Every how many matching requests, starting with the first.
    every: u64,
    /// How many more faults it injects.
    left: u64,
    met: u64,
    struck: u64,
}

/// The rules; all clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    rules: Arc<Mutex<Vec<Rule>>>,
}

impl Faults {
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects the fault into the next `times` matching requests.
    pub fn next(&self, times: u64, matching: Matching, fault: Fault) {
        self.add(matching, fault, 1, times);
    }

    /// Injects the fault into each `n`th matching request, from the first on, until [`Faults::clear`].
    pub fn every(&self, n: u64, matching: Matching, fault: Fault) {
        self.add(matching, fault, n.max(1), u64::MAX);
    }

    fn add(&self, matching: Matching, fault: Fault, every: u64, left: u64) {
        self.lock().push(Rule {
            matching,
            fault,
            every,
            left,
            met: 0,
            struck: 0,
        });
    }

    /// No more faults.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// How many faults the present rules have injected.
    pub fn struck(&self) -> u64 {
        self.lock().iter().map(|rule| rule.struck).sum()
    }

    /// The service with these faults in front of it.
    pub fn wrap<S>(&self, inner: S) -> Faulty<S> {
        Faulty {
            inner,
            faults: self.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The faults for this request: delays, and at most one other fault.
    fn strike(&self, verb: &str, resource: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for rule in self.lock().iter_mut() {
            let wanted = &rule.matching;
            if !(wanted.verb.is_empty() || wanted.verb == verb)
                || !(wanted.resource.is_empty() || wanted.resource == resource)
            {
                continue;
            }
            let due = rule.met % rule.every == 0 && rule.left > 0;
            rule.met += 1;
            if !due {
                continue;
            }
            rule.left -= 1;
            rule.struck += 1;
            faults.push(rule.fault.clone());
            if !matches!(rule.fault, Fault::Delay(_)) {
                break;
            }
        }
        faults
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Self::Service {
        self.wrap(inner)
    }
}

/// A service with faults in front of it.
#[derive(Debug, Clone)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

/// The injected loss of a connection.
#[derive(Debug, thiserror::Error)]
#[error("connection lost (injected fault)")]
pub struct ConnectionLost;

impl<S, B> Service<Request<B>> for Faulty<S>
where
    S: Service<Request<B>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (verb, resource) = names(&request);
        let faults = self.faults.strike(verb, &resource);
        // The clone that was polled ready is the one to call.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let mut cut = None;
            for fault in faults {
                match fault {
                    Fault::Delay(time) => tokio::time::sleep(time).await,
                    Fault::LostRequest => return Err(ConnectionLost.into()),
                    Fault::Conflict | Fault::TooManyRequests { .. } | Fault::InternalError => {
                        return Ok(error_response(&refusal(&fault), Accept::PLAIN));
                    }
                    Fault::Expired { .. } if verb != "watch" => {
                        return Ok(error_response(&expired(), Accept::PLAIN));
                    }
                    fault => cut = Some(fault),
                }
            }
            let response = inner.call(request).await.map_err(Into::into)?;
            match cut {
                None => Ok(response),
                Some(Fault::LostAnswer) => Err(ConnectionLost.into()),
                Some(fault) if verb == "watch" => Ok(cut_watch(response, fault)),
                Some(_) => Ok(response),
            }
        })
    }
}

fn names<B>(request: &Request<B>) -> (&'static str, String) {
    let Some(Path::Resource(path)) = Path::parse(request.uri().path()) else {
        return ("", String::new());
    };
    let collection = path.name.is_empty();
    let query = Query::parse(request.uri().query());
    let watch = path.watch || (collection && query.flag("watch") == Some(true));
    let verb = match *request.method() {
        Method::GET if watch => "watch",
        Method::GET if collection => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    };
    let resource = if path.subresource.is_empty() {
        path.plural
    } else {
        format!("{}/{}", path.plural, path.subresource)
    };
    (verb, resource)
}

fn refusal(fault: &Fault) -> Status {
    match fault {
        Fault::Conflict => Status::new(
            409,
            "Conflict",
            "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again",
        ),
        Fault::TooManyRequests {
            retry_after_seconds,
        } => {
            let message = "Too many requests, please try again later.";
            let mut status = Status::new(429, "TooManyRequests", message);
            status.details = Some(Details {
                retry_after_seconds: Some(*retry_after_seconds),
                ..Details::default()
            });
            status
        }
        _ => Status::new(
            500,
            "InternalError",
            "Internal error occurred: injected fault",
        ),
    }
}

fn expired() -> Status {
    Status::expired("The resourceVersion for the provided list is too old.")
}

/// Passes some events of a watch on, then ends it as the fault requires.
fn cut_watch(response: Response<Body>, fault: Fault) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let (events_left, end) = match fault {
        Fault::EndWatch { after_events } => (after_events, WatchEnd::Clean),
        Fault::Expired { after_events } => (after_events, WatchEnd::Expired),
        Fault::TruncateWatch { after_events } => (after_events, WatchEnd::HalfALine),
        _ => return Response::from_parts(parts, body),
    };
    let cut = CutWatch {
        frames: body.into_data_stream(),
        events_left,
        end,
    };
    let lines = futures::stream::unfold(cut, |mut cut| async move {
        let line = cut.next().await?;
        Some((line, cut))
    });
    let mut response = stream_response(lines);
    *response.headers_mut() = parts.headers;
    response
}

/// A watch that ends after some events; each frame is one event.
struct CutWatch {
    frames: BodyDataStream<Body>,
    events_left: usize,
    end: WatchEnd,
}

enum WatchEnd {
    Clean,
    Expired,
    HalfALine,
    Break,
}

impl CutWatch {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        if self.events_left > 0 {
            self.events_left -= 1;
            return self.frames.next().await;
        }
        match self.end {
            WatchEnd::Clean => None,
            WatchEnd::Expired => {
                self.end = WatchEnd::Clean;
                let status = Status::expired("too old resource version: 1 (2)");
                let event = json!({"type": "ERROR", "object": status.to_json()});
                Some(Ok(Bytes::from(format!("{event}\n"))))
            }
            WatchEnd::HalfALine => {
                self.end = WatchEnd::Break;
                let line = self.frames.next().await?;
                Some(line.map(|line| line.slice(..line.len() / 2)))
            }
            WatchEnd::Break => {
                self.end = WatchEnd::Clean;
                Some(Err(ConnectionLost.into()))
            }
        }
    }
}
