//! Requests: forwarded to the API server, unless a rule refuses, delays or loses them or their answers.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::Link;
use super::watches::{self, Stream};
use crate::journal::{DeliveredReport, Incarnation, SentWrite};
use crate::plan::{Dice, FaultKind};

/// Breaks a stream.
pub(super) type Failure = std::io::Error;
pub(super) type ProxyBody = UnsyncBoxBody<Bytes, Failure>;

/// Nothing is delayed for longer; see [`FaultKind::ALL`].
const LONGEST_DELAY: u64 = 2_500;
const REPORTS: &str = "/customnoderesources";

/// A fault of requests, for a time.
#[derive(Debug, Clone)]
pub(crate) struct RequestRule {
    pub(crate) kind: FaultKind,
    pub(crate) until: Instant,
    pub(crate) dice: Dice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// A watch, and whether it begins with a list.
    Watch(bool),
    List,
    Read,
    /// A write of the Lease.
    Lease,
    Bind,
    Write,
}

impl RequestKind {
    fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        match *method {
            Method::GET if query.contains("watch=1") => {
                Self::Watch(query.contains("sendInitialEvents"))
            }
            // `limit` is in every page of a list.
            Method::GET if query.contains("limit=") => Self::List,
            Method::GET => Self::Read,
            _ if uri.path().contains("/leases") => Self::Lease,
            _ if uri.path().ends_with("/binding") => Self::Bind,
            _ => Self::Write,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Lease | Self::Bind | Self::Write)
    }

    fn lists(self) -> bool {
        matches!(self, Self::Watch(true) | Self::List)
    }
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Refuse(u16),
    /// The API server applies it, and the answer is another.
    AnswerInstead(u16),
    /// The API server applies it, and there is no answer: the stream breaks.
    Break,
    /// The API server applies it, and there is no answer: the stream stays open.
    Silence,
    Late(Duration),
    LateAnswer(Duration),
    ExpiredToken,
    /// The list ends after so many objects, or after half of its bytes.
    Cut(usize),
}

impl RequestRule {
    /// Half of the requests that the rule is about are harmed; all by an expired token, an overloaded server, lists that end
    /// early and refused binds. A list with fewer objects than the cut leaves is whole.
    fn harm(&mut self, kind: RequestKind) -> Option<Harm> {
        let is_short = !matches!(kind, RequestKind::Watch(_));
        let applies = match self.kind {
            FaultKind::LoseAnswers => kind.writes(),
            // The API server has a queue of its own for leader election.
            FaultKind::Answer429 => kind != RequestKind::Lease,
            FaultKind::Delay => is_short,
            FaultKind::CutLists => kind.lists(),
            FaultKind::RefuseBinds => kind == RequestKind::Bind,
            FaultKind::Answer410 => matches!(kind, RequestKind::Watch(_) | RequestKind::List),
            _ => true,
        };
        let always = matches!(
            self.kind,
            FaultKind::ExpiredToken
                | FaultKind::Answer429
                | FaultKind::CutLists
                | FaultKind::RefuseBinds
        );
        if !applies || (!always && self.dice.between(0, 1) == 0) {
            return None;
        }
        let is_applied = kind.writes() && self.dice.between(0, 1) == 0;
        let code = |code| {
            if is_applied {
                Harm::AnswerInstead(code)
            } else {
                Harm::Refuse(code)
            }
        };
        let delay = Duration::from_millis(self.dice.between(50, LONGEST_DELAY));
        Some(match self.kind {
            FaultKind::LoseAnswers => match self.dice.between(0, 2) {
                0 => Harm::Silence,
                1 => Harm::AnswerInstead(504),
                _ => Harm::Break,
            },
            FaultKind::Delay => match self.dice.between(0, 1) {
                0 => Harm::Late(delay),
                _ => Harm::LateAnswer(delay),
            },
            FaultKind::Answer429 => Harm::Refuse(429),
            FaultKind::Answer500 => code(500),
            FaultKind::Answer504 => code(504),
            FaultKind::Answer410 => Harm::Refuse(410),
            FaultKind::RefuseBinds => Harm::Refuse(403),
            FaultKind::ExpiredToken => Harm::ExpiredToken,
            FaultKind::CutLists => {
                Harm::Cut(usize::try_from(self.dice.between(0, 12)).unwrap_or(0))
            }
            _ => return None,
        })
    }
}

/// The connection to the API server.
pub(super) struct Upstream {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authority: Authority,
    expired: HeaderValue,
}

impl Upstream {
    pub(super) fn new(
        server: &str,
        authority_pem: &str,
        expired_token: String,
    ) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http2()
            .build();
        let uri: Uri = server.parse()?;
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .http2_only(true)
                .build(connector),
            authority: uri
                .authority()
                .context("the API server has an address")?
                .clone(),
            expired: HeaderValue::from_str(&format!("Bearer {expired_token}"))?,
        })
    }
}

/// Forwards one request. An error breaks its stream.
pub(super) async fn forward(
    link: Arc<Link>,
    by: Incarnation,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Failure> {
    let sent = link.sent_at();
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(Failure::other)?.to_bytes();
    let kind = RequestKind::of(&head.method, &head.uri);
    let harm = harm(&link, kind);
    match harm {
        Some(Harm::Refuse(code)) => return refuse(code),
        Some(Harm::Late(delay)) => tokio::time::sleep(delay).await,
        Some(Harm::ExpiredToken) => {
            let expired = link.upstream.expired.clone();
            head.headers.insert(AUTHORIZATION, expired);
        }
        _ => {}
    }
    let path = head.uri.path().to_owned();
    let id = link.journal.next_request();
    if is_journaled(&head.method, &path) {
        link.journal.sent(SentWrite {
            id,
            by,
            sent,
            forwarded: link.journal.now(),
            answered: None,
            path: path.clone(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        });
    }
    let is_lease = path.contains("/leases") && head.method != Method::GET;
    head.uri = Uri::builder()
        .scheme("https")
        .authority(link.upstream.authority.clone())
        .path_and_query(head.uri.path_and_query().map_or("/", |it| it.as_str()))
        .build()
        .map_err(Failure::other)?;
    head.version = Version::HTTP_11;
    head.headers.remove(HOST);
    // The audit log has it.
    head.headers.insert(USER_AGENT, agent(id)?);
    let answer = link
        .upstream
        .client
        .request(Request::from_parts(head, Full::new(body)))
        .await
        .map_err(Failure::other)?;
    let leads = (is_lease && answer.status().is_success()).then_some(by.replica);
    let (mut head, body) = answer.into_parts();
    let mut answer = Response::builder().status(head.status);
    head.headers.remove(CONTENT_LENGTH);
    if let Some(headers) = answer.headers_mut() {
        *headers = head.headers.clone();
    }
    let is_report = path.ends_with(REPORTS);
    if let RequestKind::Watch(_) = kind
        && head.status.is_success()
    {
        let stream = Stream {
            to: by,
            is_protobuf: is_protobuf(head.headers.get(CONTENT_TYPE)),
            is_report,
            is_pods: path.ends_with("/pods"),
            cut_after: match harm {
                Some(Harm::Cut(after)) => Some(after),
                _ => None,
            },
        };
        let body = watches::relay(link, body, stream);
        return answer.body(body).map_err(Failure::other);
    }
    let mut bytes = body.collect().await.map_err(Failure::other)?.to_bytes();
    link.journal.answered(id, leads);
    match harm {
        Some(Harm::AnswerInstead(code)) => return refuse(code),
        Some(Harm::Break) => return Err(Failure::other("the proxy lost the answer")),
        Some(Harm::Silence) => std::future::pending().await,
        Some(Harm::LateAnswer(delay)) => tokio::time::sleep(delay).await,
        Some(Harm::Cut(_)) => bytes.truncate(bytes.len() / 2),
        _ => {}
    }
    if is_report {
        note_reports(&link, by, &bytes);
    }
    answer.body(whole(bytes)).map_err(Failure::other)
}

/// The first rule that harms the request.
fn harm(link: &Link, kind: RequestKind) -> Option<Harm> {
    let mut rules = link.rules.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let active = rules.iter_mut().filter(|rule| rule.until > now);
    let (fault, harm) = active
        .filter_map(|rule| Some((rule.kind, rule.harm(kind)?)))
        .next()?;
    link.journal.hit(fault);
    Some(harm)
}

/// Whether the checker needs it: the Lease, binds, patches and deletions.
fn is_journaled(method: &Method, path: &str) -> bool {
    *method != Method::GET && (path.contains("/leases") || path.contains("/pods/"))
}

fn agent(id: u64) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(&format!("chaos/{id}")).map_err(Failure::other)
}

fn is_protobuf(content_type: Option<&HeaderValue>) -> bool {
    let found = content_type.and_then(|it| it.to_str().ok());
    found.is_some_and(|it| it.starts_with("application/vnd.kubernetes.protobuf"))
}

/// A page of a list of reports was delivered.
fn note_reports(link: &Link, to: Incarnation, page: &[u8]) {
    let page: Value = serde_json::from_slice(page).unwrap_or_default();
    for item in page["items"].as_array().into_iter().flatten() {
        note_report(link, to, item);
    }
}

pub(super) fn note_report(link: &Link, to: Incarnation, report: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    link.journal.delivered(DeliveredReport {
        to,
        at: link.journal.now(),
        node: text(&report["metadata"]["name"]),
        revision: text(&report["metadata"]["resourceVersion"])
            .parse()
            .unwrap_or(0),
    });
}

fn refuse(code: u16) -> Result<Response<ProxyBody>, Failure> {
    let reason = match code {
        403 => "Forbidden",
        410 => "Expired",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": format!("the proxy answers {code}")});
    let mut answer = Response::builder()
        .status(StatusCode::from_u16(code).map_err(Failure::other)?)
        .header(CONTENT_TYPE, "application/json");
    if code == 429 {
        answer = answer.header(RETRY_AFTER, "1");
    }
    let body = whole(status.to_string().into());
    answer.body(body).map_err(Failure::other)
}

fn whole(bytes: Bytes) -> ProxyBody {
    let never = |never: std::convert::Infallible| match never {};
    UnsyncBoxBody::new(Full::new(bytes).map_err(never))
}
