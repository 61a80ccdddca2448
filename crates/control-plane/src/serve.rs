//! The HTTP server of a component: health, metrics, and the paths of its own.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz`, `/readyz` | `ok`, or 500 with every check; `?verbose`, `?exclude=NAME`, `/readyz/NAME` |
//! | `/metrics` | OpenMetrics text |
//! | others | see [`Component::routes`] |
//!
//! On a loopback address it serves plain HTTP to every caller on this machine. On other addresses it serves TLS, with a
//! self-signed certificate if none is given, and the API server authenticates and authorizes each caller; client
//! certificates of the cluster's client CA are accepted, too. Errors are [`api::http::Error`].
//!
//! | module | content |
//! |---|---|
//! | `connections`, `slots` | connections, their deadlines and their number |
//! | `tls`, `client_certificates`, `der` | the certificate of the server, and those of clients |
//! | `auth`, `reviews` | callers and their permissions; the API server reviews them |
//! | `origin` | requests of web pages to a server on loopback |
//! | `routes`, `health`, `queues` | the paths that every component has |

mod auth;
mod client_certificates;
mod connections;
mod der;
mod health;
mod origin;
mod queues;
mod reviews;
mod routes;
mod slots;
mod tls;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::client::Exchange;
pub(crate) use auth::Access;
pub use auth::Caller;
use auth::Guard;
pub(crate) use connections::LastResponse;
pub(crate) use der::Validity;
pub use health::Check;
use origin::LocalNames;
pub use queues::register_queues;
pub(crate) use reviews::Reviews;
use routes::Callers;
pub(crate) use routes::{JSON, TEXT, answer, refuse, to_json};
pub(crate) use tls::provider;
pub use tls::{ServingCertificate, fingerprint};

/// What a long-running component serves besides TLS, authentication and connections.
pub trait Component: Clone + Send + Sync + 'static {
    /// The checks of `/livez`.
    fn live(&self) -> Vec<Check> {
        vec![("ping", Ok(()))]
    }

    /// The checks of `/healthz`.
    fn healthy(&self) -> Vec<Check> {
        self.live()
    }

    /// The checks of `/readyz`.
    fn ready(&self) -> Vec<Check>;

    /// What an administrator should know although the component is ready; the answer of `/readyz` has it, too.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The answer of `/metrics`; see [`encode_metrics`].
    fn metrics(&self) -> String;

    /// Further paths.
    fn routes() -> Router<Self> {
        Router::new()
    }

    /// Whether the path accepts PUT. Browsers do not send PUT to another origin without asking it first, which this
    /// server never answers.
    fn accepts_put(_path: &str) -> bool {
        false
    }
}

/// The metrics of a registry, as OpenMetrics text.
pub fn encode_metrics(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, registry);
    text
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections that wait to be accepted; the kernel may allow fewer.
const BACKLOG: i32 = 4096;

/// kube-scheduler's port.
pub const PORT: u16 = 10259;

/// The health paths; each of their checks has a path below them.
const HEALTH: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// The address to serve on, the certificate, and the paths that need no permission.
#[derive(Debug, Clone)]
pub struct Serve {
    pub address: IpAddr,
    pub port: Port,
    /// Addresses other than loopback get TLS without it, too.
    pub tls: Option<TlsFiles>,
    /// Paths that need no permission; `*` at the end stands for anything.
    pub always_allow: Vec<String>,
    /// The pod of this process, as NAMESPACE/NAME, for clients that cannot reach the address.
    pub pod: Option<String>,
    /// The certificate's files and the client CA of the cluster are read again after this time.
    pub reload: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// This port, or a free one for 0.
    Exactly(u16),
    /// This port, or a free one if it is in use.
    Preferred(u16),
}

/// PEM files, as kube-scheduler's `--tls-cert-file` and `--tls-private-key-file` name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            address: IpAddr::from([127, 0, 0, 1]),
            port: Port::Preferred(PORT),
            tls: None,
            always_allow: HEALTH.map(String::from).into(),
            pod: None,
            reload: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "cannot listen on {address}; --secure-port sets another port, and 0 disables the server"
    )]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot read {}", path.display())]
    Pem {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{} contains no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("cannot use the certificate {} with its key", certificate.display())]
    Tls {
        certificate: PathBuf,
        source: rustls::Error,
    },
    #[error(
        "cannot make a self-signed certificate; pass one with --tls-cert-file and --tls-private-key-file"
    )]
    Make(#[from] rcgen::Error),
    #[error("cannot use the self-signed certificate")]
    Made(#[source] rustls::Error),
}

/// A bound address that does not serve yet.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Option<Arc<ServingCertificate>>,
    always_allow: Vec<String>,
    pod: Option<String>,
    reload: Duration,
}

impl Serve {
    pub fn listen(self) -> Result<Listening, ServeError> {
        let certificate = match &self.tls {
            Some(files) => Some(ServingCertificate::from_files(files)?),
            None if self.address.is_loopback() => None,
            None => Some(ServingCertificate::self_signed()?),
        };
        let (Port::Exactly(port) | Port::Preferred(port)) = self.port;
        let wanted = SocketAddr::new(self.address, port);
        let mut bound = TcpListener::bind(wanted);
        if let (Err(error), Port::Preferred(_)) = (&bound, self.port)
            && error.kind() == std::io::ErrorKind::AddrInUse
        {
            tracing::warn!(address = %wanted, %error, "cannot listen on the default port for health checks and metrics; using a free port");
            bound = TcpListener::bind(SocketAddr::new(self.address, 0));
        }
        let refuse = |source| ServeError::Listen {
            address: wanted,
            source,
        };
        let listener = bound.map_err(refuse)?;
        // The standard library's queue is so short that a burst of connections would delay others by a second.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| refuse(error.into()))?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Listening {
            listener,
            address,
            certificate: certificate.map(Arc::new),
            always_allow: self.always_allow,
            pod: self.pod,
            reload: self.reload,
        })
    }
}

impl Listening {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to serve the component, on the runtime of the caller. The API server at `api` reviews the callers.
    pub fn serve(self, api: Exchange, component: impl Component) -> std::io::Result<()> {
        tracing::info!("serving on {}://{}", self.scheme(), self.address);
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let (callers, tls) = match self.certificate {
            None => {
                let address = self.address.ip();
                (Callers::Local(LocalNames { address }), None)
            }
            Some(certificate) => {
                tokio::spawn(certificate.clone().reload(self.reload));
                let config = tls::config(certificate).map_err(std::io::Error::other)?;
                let guard = Guard::new(api, self.always_allow, self.reload);
                (Callers::Reviewed(Arc::new(guard)), Some(config))
            }
        };
        let app = routes::routes(component, callers);
        tokio::spawn(connections::accept(listener, tls, app));
        Ok(())
    }

    /// The URL for other machines: an unspecified address becomes the one that leads to the API server.
    pub fn url(&self, api_server: Option<&http::Uri>) -> String {
        let scheme = self.scheme();
        let mut address = self.address;
        if address.ip().is_unspecified()
            && let Some(ip) = api_server.and_then(own_address)
        {
            address.set_ip(ip);
        }
        format!("{scheme}://{address}")
    }

    pub(crate) fn certificate(&self) -> Option<Arc<ServingCertificate>> {
        self.certificate.clone()
    }

    pub(crate) fn pod(&self) -> Option<&str> {
        self.pod.as_deref()
    }

    fn scheme(&self) -> &'static str {
        match self.certificate {
            Some(_) => "https",
            None => "http",
        }
    }
}

/// The local address of the route to a server. Nothing is sent.
pub(crate) fn own_address(server: &http::Uri) -> Option<IpAddr> {
    let host = server.host()?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let remote = std::net::ToSocketAddrs::to_socket_addrs(&(host, port))
        .ok()?
        .next()?;
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Serves an app over TLS, without any check of its callers, until the future is dropped.
pub(crate) async fn accept_tls(
    listener: tokio::net::TcpListener,
    certificate: Arc<ServingCertificate>,
    app: Router,
) -> Result<(), rustls::Error> {
    let config = tls::config(certificate)?;
    connections::accept(listener, Some(config), app).await;
    Ok(())
}
