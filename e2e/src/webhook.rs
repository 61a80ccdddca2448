//! An admission webhook for tests: TLS on loopback, a script per path, and a record of what was asked.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// A certificate authority, and a certificate of it for the webhooks.
pub struct WebhookAuthority {
    pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl WebhookAuthority {
    /// `names` are the names and addresses that the certificate is for.
    pub fn new(name: &str, names: &[&str]) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, name);
        let authority_key = KeyPair::generate()?;
        let pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name.push(DnType::CommonName, "webhook");
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?;
        Ok(Self {
            pem,
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// As `clientConfig.caBundle` has it.
    pub fn bundle(&self) -> String {
        BASE64.encode(&self.pem)
    }

    fn acceptor(&self) -> Result<TlsAcceptor> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// What a webhook answers.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    delay: Duration,
    hang_up: bool,
}

impl Reply {
    /// Any answer at all.
    pub fn raw(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type,
            body: body.into(),
            delay: Duration::ZERO,
            hang_up: false,
        }
    }

    /// A response to this review; its uid is filled in.
    pub fn review(review: &Value, mut response: Value) -> Self {
        if response.get("uid").is_none() {
            response["uid"] = review["request"]["uid"].clone();
        }
        let answer = json!({
            "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response,
        });
        Self::raw(200, "application/json", answer.to_string())
    }

    pub fn allow(review: &Value) -> Self {
        Self::review(review, json!({"allowed": true}))
    }

    pub fn deny(review: &Value, message: &str) -> Self {
        Self::review(
            review,
            json!({"allowed": false, "status": {"message": message}}),
        )
    }

    /// Allows with a JSON patch.
    pub fn patch(review: &Value, operations: &Value) -> Self {
        let patch = BASE64.encode(operations.to_string());
        let response = json!({"allowed": true, "patchType": "JSONPatch", "patch": patch});
        Self::review(review, response)
    }

    /// Closes the connection instead of answering.
    pub fn hang_up() -> Self {
        Self {
            hang_up: true,
            ..Self::raw(200, "", Vec::new())
        }
    }

    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Script = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

#[derive(Default)]
struct Scripts {
    by_path: BTreeMap<String, Script>,
    asked: Vec<(String, Value)>,
}

/// A webhook server. Dropping it stops it.
pub struct WebhookServer {
    port: u16,
    bundle: String,
    scripts: Arc<Mutex<Scripts>>,
    // Dropping it ends all connections.
    _runtime: Runtime,
}

impl WebhookServer {
    pub fn start(authority: &WebhookAuthority) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("no runtime for the webhook")?;
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .context("no free port for the webhook")?;
        let port = listener.local_addr()?.port();
        let scripts = Arc::new(Mutex::new(Scripts::default()));
        let acceptor = authority.acceptor()?;
        runtime.spawn(accept(listener, acceptor, Arc::clone(&scripts)));
        Ok(Self {
            port,
            bundle: authority.bundle(),
            scripts,
            _runtime: runtime,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `clientConfig` of a webhook at this path.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.bundle})
    }

    /// Answers reviews at `path` by `script`.
    pub fn on(&self, path: &str, script: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        let script: Script = Arc::new(script);
        self.lock().by_path.insert(path.to_owned(), script);
    }

    /// The requests of all reviews at paths that start so, in order, with their paths; they are then forgotten.
    pub fn take_asked(&self, prefix: &str) -> Vec<(String, Value)> {
        let mut scripts = self.lock();
        let (taken, kept) = std::mem::take(&mut scripts.asked)
            .into_iter()
            .partition(|(path, _)| path.starts_with(prefix));
        scripts.asked = kept;
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Scripts> {
        lock(&self.scripts)
    }
}

fn lock(scripts: &Mutex<Scripts>) -> MutexGuard<'_, Scripts> {
    scripts.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, scripts: Arc<Mutex<Scripts>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&scripts)));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, scripts: Arc<Mutex<Scripts>>) {
    // A client that does not trust the certificate is what some tests are about.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| {
        let scripts = Arc::clone(&scripts);
        async move { answer(request, &scripts).await }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An error closes the connection without an answer.
async fn answer(
    request: http::Request<Incoming>,
    scripts: &Mutex<Scripts>,
) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let script = {
        let mut scripts = lock(scripts);
        scripts
            .asked
            .push((path.clone(), review["request"].clone()));
        scripts.by_path.get(&path).cloned()
    };
    let reply = match script {
        Some(script) => script(&review),
        None => Reply::raw(404, "text/plain", format!("no webhook at {path}")),
    };
    tokio::time::sleep(reply.delay).await;
    if reply.hang_up {
        return Err(std::io::Error::other("this webhook hangs up"));
    }
    let mut response = http::Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() =
        http::StatusCode::from_u16(reply.status).map_err(std::io::Error::other)?;
    let content_type = http::HeaderValue::from_static(reply.content_type);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, content_type);
    Ok(response)
}
