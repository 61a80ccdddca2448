//! Connections to an API server, and the results of requests.
//!
//! Three connections, so that traffic on one does not delay another: watches, writes, and rare requests. HTTP/2 where
//! the server supports it: requests in flight then share reads, TLS records and wake-ups, which is most of their cost.

mod answer;
mod exchange;
mod transport;

pub(crate) use answer::send;
pub use exchange::Exchange;
pub(crate) use exchange::{Largest, through};
pub(crate) use reconcile::client::Refusal;
pub use reconcile::client::causes;
pub use transport::ConnectError;

/// The clients for watches and writes.
pub(crate) struct Clients {
    pub(crate) watch: kube::Client,
    pub(crate) write: Exchange,
    /// Whether pings find a connection that is dead.
    pub(crate) pings: bool,
}

/// How to reach the API server. Connections are made on the thread that uses them.
#[derive(Clone)]
pub enum Connect {
    Config(Box<kube::Config>),
    /// One client for everything, such as that of an embedded cluster in the same process.
    Client(kube::Client),
}

impl Connect {
    /// Waits for a server that does not answer yet; fails only for an invalid configuration.
    pub(crate) async fn clients(&self) -> Result<Clients, ConnectError> {
        match self {
            Self::Config(config) => transport::connect(config).await,
            Self::Client(client) => Ok(Clients {
                watch: client.clone(),
                write: through(client.clone()),
                // There is no connection.
                pings: true,
            }),
        }
    }

    /// A connection for rare requests that must not wait for others: the Lease and reviews of callers.
    pub fn exchange(&self) -> Result<Exchange, ConnectError> {
        self.client().map(through)
    }

    /// A client with a connection of its own.
    pub fn client(&self) -> Result<kube::Client, ConnectError> {
        match self {
            Self::Config(config) => transport::one(config),
            Self::Client(client) => Ok(client.clone()),
        }
    }

    /// The server's address; none for an embedded cluster.
    pub fn server(&self) -> Option<&http::Uri> {
        match self {
            Self::Config(config) => Some(&config.cluster_url),
            Self::Client(_) => None,
        }
    }
}
