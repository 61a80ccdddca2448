//! One HTTPS call of a webhook, bounded in time and size. Errors have the words of Go's HTTP client, because users know them.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::endpoint::{Endpoint, Target};
use crate::objects::fields::text;
use crate::resources::state::ServerState;

/// More than any patch of an object of the largest size, in base64.
const MAX_ANSWER: usize = 8 << 20;

/// Sends a review and returns the body of the answer, or why there is none.
pub(super) async fn post(
    server: &ServerState,
    client: &Value,
    body: &Bytes,
    timeout: Duration,
) -> Result<Bytes, String> {
    let endpoint = Endpoint::find(server, client);
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let url = format!("{}?timeout={seconds}s", endpoint.url);
    let tls = tls_config(text(client, "caBundle"))
        .map_err(|why| format!("could not get REST client: {why}"))?;
    let exchange = async {
        let target = endpoint.target.as_ref().map_err(Clone::clone)?;
        let request = request(&url, body)?;
        match target {
            Target::InProcess(handler) => Ok(handler(request).await),
            Target::Host(host, port) => {
                send(resolve(host, *port).await?, &endpoint, tls, request).await
            }
            Target::Address(address) => send(vec![*address], &endpoint, tls, request).await,
        }
    };
    let answer = match tokio::time::timeout(timeout, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".to_owned()),
    };
    let answer = answer.map_err(|why| format!("Post {url:?}: {why}"));
    let body = answer.and_then(|answer| checked(&answer));
    body.map_err(|why| format!("failed to call webhook: {why}"))
}

fn request(url: &str, body: &Bytes) -> Result<Request<Bytes>, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri
        .authority()
        .map_or("", http::uri::Authority::as_str)
        .to_owned();
    let path = uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json, */*")
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, "kube-apiserver-admission")
        .body(body.clone())
        .map_err(|error| error.to_string())
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
    if found.is_empty() {
        return Err(format!("dial tcp: lookup {host}: no such host"));
    }
    Ok(found)
}

async fn send(
    addresses: Vec<SocketAddr>,
    endpoint: &Endpoint,
    tls: ClientConfig,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, String> {
    let stream = dial(&addresses).await?;
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|_| {
        format!(
            "tls: {:?} is not a name that a certificate can have",
            endpoint.host
        )
    })?;
    let connector = TlsConnector::from(Arc::new(tls));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| handshake_error(&error, &endpoint.host))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| exchange_error(&error))?;
    // The connection ends with this call, however it ends.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let answer = sender.send_request(request.map(Full::new)).await;
    let (head, body) = answer.map_err(|error| exchange_error(&error))?.into_parts();
    let body = Limited::new(body, MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| match error.downcast_ref::<hyper::Error>() {
            Some(error) => exchange_error(error),
            None => format!("the answer is larger than {MAX_ANSWER} bytes"),
        })?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut failed = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // A review and its answer are one write each: nothing to collect.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => {
                let why = format!("dial tcp {address}: connect: {}", io_text(&error));
                failed.get_or_insert(why);
            }
        }
    }
    Err(failed.unwrap_or_else(|| "dial tcp: no address".to_owned()))
}

/// An error of the system in its own words: `connection refused`.
fn io_text(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// Only authorities in the bundle are trusted, not those of this machine.
fn tls_config(bundle: &str) -> Result<ClientConfig, String> {
    const BROKEN: &str = "unable to load root certificates: unable to parse bytes as PEM block";
    let mut roots = RootCertStore::empty();
    if !bundle.is_empty() {
        let pem = STANDARD.decode(bundle).map_err(|_| BROKEN.to_owned())?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|_| BROKEN.to_owned())?;
            roots.add(certificate).map_err(|_| BROKEN.to_owned())?;
        }
        if roots.is_empty() {
            return Err(BROKEN.to_owned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn handshake_error(error: &io::Error, host: &str) -> String {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate_text(why, host)
            )
        }
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        Some(error) => format!("tls: {error}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => io_text(error),
    }
}

fn certificate_text(why: &CertificateError, host: &str) -> String {
    match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            // `DnsName("a.b")` and `IpAddress(127.0.0.1)`.
            let name = |text: &String| {
                let (kind, value) = text.split_once('(')?;
                let value = value.trim_end_matches(')').trim_matches('"');
                Some((kind == "DnsName", value.to_owned()))
            };
            let wants_name = host.parse::<std::net::IpAddr>().is_err();
            let names = presented.iter().filter_map(name);
            let names: Vec<String> = names
                .filter(|(is_name, _)| *is_name == wants_name)
                .map(|(_, value)| value)
                .collect();
            match (names.is_empty(), wants_name) {
                (false, _) => format!("certificate is valid for {}, not {host}", names.join(", ")),
                (true, true) => {
                    format!("certificate is not valid for any names, but wanted to match {host}")
                }
                (true, false) => format!(
                    "cannot validate certificate for {host} because it doesn't contain any IP SANs"
                ),
            }
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        other => format!("{other:?}"),
    }
}

fn exchange_error(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "EOF".to_owned();
    }
    let inner = error
        .source()
        .and_then(|inner| inner.downcast_ref::<io::Error>());
    match inner {
        Some(inner) if inner.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        Some(inner) => format!("read: {}", io_text(inner)),
        None => error.to_string(),
    }
}

/// The body of a success; for others what the real server's client makes of the status.
fn checked(answer: &Response<Bytes>) -> Result<Bytes, String> {
    let body = answer.body();
    let code = answer.status();
    if code.is_success() {
        if body.is_empty() {
            let kind = answer.headers().get(CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let code = code.as_u16();
            return Err(format!(
                "0-length response with status code: {code} and content type: {kind}"
            ));
        }
        return Ok(body.clone());
    }
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    if text(&status, "kind") == "Status" && !text(&status, "message").is_empty() {
        return Err(text(&status, "message").to_owned());
    }
    let said = String::from_utf8_lossy(body).trim().to_owned();
    Err(match code {
        StatusCode::CONFLICT => "the server reported a conflict".to_owned(),
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::BAD_REQUEST => {
            "the server rejected our request for an unknown reason".to_owned()
        }
        StatusCode::UNAUTHORIZED => {
            "the server has asked for the client to provide credentials".to_owned()
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource".to_owned()
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            "the server rejected our request due to an error in our request".to_owned()
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        StatusCode::SERVICE_UNAVAILABLE => {
            "the server is currently unable to handle the request".to_owned()
        }
        StatusCode::FORBIDDEN | StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            said
        }
        code if code.is_server_error() => {
            format!("an error on the server ({said:?}) has prevented the request from succeeding")
        }
        code => format!(
            "the server responded with the status code {} but did not return more information",
            code.as_u16()
        ),
    })
}
