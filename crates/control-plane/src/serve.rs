//! The HTTP server of a component: health, metrics, configuration, and what people ask about pods.
//!
//! | path | answer |
//! |---|---|
//! | `/livez`, `/healthz`, `/readyz` | `ok`, or 500 with every check; `?verbose`, `?exclude=NAME`, `/readyz/NAME` |
//! | `/metrics` | OpenMetrics text |
//! | `/configz` | `{"componentconfig": KubeSchedulerConfiguration}` |
//! | `/apis/v1/status` | [`crate::status::Status`] |
//! | `/apis/v1/pods/{namespace}/{name}/explain` | the engine's report about a pod |
//! | `/debug/scores` | the scores behind the latest decisions; `?output=table`; `PUT ?top=N` records those of N nodes |
//! | `/debug/flags/s` | N alone; `PUT` as Koordinator has it, with N as the body |
//! | `/debug/cache`, `/debug/cache/{node}` | what the engine counts on nodes, at one instant |
//!
//! Plain HTTP on loopback, open to whoever is on this machine. Everywhere else TLS, with a certificate of its own making
//! if none is given, and the API server is asked who the caller is and whether he may. Errors are
//! `{"error": "a sentence"}`. Nothing here changes what is decided.

mod auth;
mod connections;
mod dump;
mod health;
mod routes;
mod scores;
mod tls;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use auth::Guard;
pub(crate) use connections::accept;
pub(crate) use routes::routes;

/// kube-scheduler's port.
pub const PORT: u16 = 10259;

/// What probes look at; each of its checks has a path below it.
const HEALTH: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Where to serve, and to whom.
#[derive(Debug, Clone)]
pub struct Serve {
    pub address: IpAddr,
    pub port: Port,
    /// On any address but loopback there is TLS without it, too.
    pub tls: Option<TlsFiles>,
    /// Paths that need no permission; `*` at the end stands for anything.
    pub always_allow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// This one, or 0 for a free one.
    Exactly(u16),
    /// This one, or a free one if it is taken.
    Rather(u16),
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
            port: Port::Rather(PORT),
            tls: None,
            always_allow: HEALTH.map(String::from).into(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}; --secure-port chooses another port, and 0 none at all")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot read {}", path.display())]
    Pem {
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    #[error("{} has no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("the certificate {} cannot be used with its key", certificate.display())]
    Tls {
        certificate: PathBuf,
        source: rustls::Error,
    },
    #[error("no certificate can be made; give one with --tls-cert-file and --tls-private-key-file")]
    Make(#[from] rcgen::Error),
    #[error("the certificate that was made cannot be used")]
    Made(#[source] rustls::Error),
}

/// A listener with what it needs to answer safely.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    pub(crate) always_allow: Vec<String>,
}

impl Serve {
    pub(crate) fn listen(self) -> Result<Listening, ServeError> {
        let tls = match &self.tls {
            Some(files) => Some(tls::from_files(files)?),
            None if self.address.is_loopback() => None,
            None => Some(tls::self_signed()?),
        };
        let (Port::Exactly(port) | Port::Rather(port)) = self.port;
        let wanted = SocketAddr::new(self.address, port);
        let mut bound = TcpListener::bind(wanted);
        if let (Err(error), Port::Rather(_)) = (&bound, self.port) {
            tracing::warn!("cannot listen on {wanted} ({error}): a free port is taken");
            bound = TcpListener::bind(SocketAddr::new(self.address, 0));
        }
        let refuse = |source| ServeError::Listen {
            address: wanted,
            source,
        };
        let listener = bound.map_err(refuse)?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Listening {
            listener,
            address,
            tls,
            always_allow: self.always_allow,
        })
    }
}

impl Listening {
    /// The address for others, seen from the network that leads to the API server.
    pub(crate) fn url(&self, api_server: Option<&http::Uri>) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified()
            && let Some(ip) = api_server.and_then(own_address)
        {
            address.set_ip(ip);
        }
        format!("{scheme}://{address}")
    }
}

/// Our address on the way there. Nothing is sent.
fn own_address(server: &http::Uri) -> Option<IpAddr> {
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
