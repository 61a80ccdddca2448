//! Serves a cluster over TLS: certificates, tokens, connections and the kubeconfig.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::cluster::Cluster;
use super::faults::Faults;
use super::router;
use crate::protocol::auth::BearerTokens;
use crate::protocol::media::Accept;
use crate::protocol::request::Query;
use crate::protocol::response::{Body, BoxError, error_response};
use crate::resources::state::ServerState;

/// A client that does not finish its handshake or its headers in this time is dropped.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open requests may take to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Each watch is a stream; clients keep many of them on one connection.
const STREAMS_PER_CONNECTION: u32 = 1000;

/// The address to listen on, and the users.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    pub address: IpAddr,
    /// 0 selects a free port.
    pub port: u16,
    /// Each user gets a token; the first user is the default.
    pub users: Vec<String>,
    pub faults: Option<Faults>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            users: vec!["admin".to_owned()],
            faults: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

/// A cluster that is served. Dropping it stops it at once; [`Serving::shutdown`] waits for open requests.
pub struct Serving {
    address: SocketAddr,
    ca_pem: String,
    users: Vec<(String, String)>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts listening; must be called inside a tokio runtime.
    pub async fn serve(&self, options: ServeOptions) -> Result<Serving, ServeError> {
        let wanted = SocketAddr::new(options.address, options.port);
        let listen_error = |source| ServeError::Listen {
            address: wanted,
            source,
        };
        let listener = TcpListener::bind(wanted).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let (config, ca_pem) = tls_config(options.address)?;
        let (tokens, list) = BearerTokens::generate(options.users.iter().map(String::as_str));
        let reviewed = list.iter().cloned().zip(options.users.iter().cloned());
        self.server.add_tokens(reviewed);
        let stop = CancellationToken::new();
        let front = Frontend {
            server: Arc::clone(&self.server),
            tokens: Arc::new(tokens),
            faults: options.faults,
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(accept_loop(listener, acceptor, front, stop.clone()));
        Ok(Serving {
            address,
            ca_pem,
            users: options.users.into_iter().zip(list).collect(),
            stop,
            task: Some(task),
        })
    }
}

impl Serving {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate authority that signed the server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub fn token(&self, user: &str) -> Option<&str> {
        let (_, token) = self.users.iter().find(|(name, _)| name == user)?;
        Some(token)
    }

    /// A kubeconfig file for one of the users; `None` for an unknown user.
    pub fn kubeconfig(&self, user: &str) -> Option<String> {
        let token = self.token(user)?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {},
            "clusters": [{"name": "tidepool", "cluster": {
                "server": self.url(),
                "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "tidepool", "context": {"cluster": "tidepool", "user": user}}],
            "current-context": "tidepool",
        });
        // JSON is YAML, so the fallback would work too.
        Some(serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string()))
    }

    /// Stops listening and waits up to a second for open requests.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // The task ends by itself; that it panicked is already in the log.
            let _ = task.await;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A certificate authority made for this server, and a certificate signed by it.
fn tls_config(address: IpAddr) -> Result<(ServerConfig, String), ServeError> {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    };
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    ca.distinguished_name
        .push(DnType::CommonName, "tidepool-ca");
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);

    let key = KeyPair::generate()?;
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    if !names.contains(&address.to_string()) {
        names.push(address.to_string());
    }
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name
        .push(DnType::CommonName, "tidepool-apiserver");
    let certificate = leaf.signed_by(&key, &issuer)?;

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, ca_certificate.pem()))
}

async fn accept_loop(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    front: Frontend,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (acceptor, front, stop) = (acceptor.clone(), front.clone(), stop.clone());
                connections.spawn(serve_connection(stream, acceptor, front, stop));
            }
            Err(error) => {
                // Out of file descriptors, most likely: closing connections will free some.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    front: Frontend,
    stop: CancellationToken,
) {
    // Watch events are small and must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let handshake = tokio::time::timeout(CLIENT_TIMEOUT, acceptor.accept(stream));
    let handshake = tokio::select! {
        () = stop.cancelled() => return,
        handshake = handshake => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let service = service_fn(move |request| front.clone().answer(request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // Watches do not end by themselves.
            match tokio::time::timeout(SHUTDOWN_TIMEOUT, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection failed");
    }
}

/// Authenticates a connection's requests and, in tests, injects faults.
#[derive(Clone)]
struct Frontend {
    server: Arc<ServerState>,
    tokens: Arc<BearerTokens>,
    faults: Option<Faults>,
}

impl Frontend {
    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let user = match self.tokens.authenticate(request.headers()) {
            Ok(user) => user,
            Err(status) => {
                let query = Query::parse(request.uri().query());
                let accept = Accept::for_errors(request.headers(), &query);
                return Ok(error_response(&status, accept));
            }
        };
        let server = self.server;
        let serve = tower::service_fn(move |request| {
            let (server, user) = (Arc::clone(&server), user.clone());
            async move { Ok::<_, BoxError>(router::respond(&server, request, user).await) }
        });
        match self.faults {
            None => {
                let mut serve = serve;
                serve.call(request).await
            }
            Some(faults) => faults.wrap(serve).call(request).await,
        }
    }
}
