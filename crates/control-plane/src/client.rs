//! Connections to an API server, and what its answers mean.
//!
//! Three connections, so that a flood on one cannot starve another: watches, writes, and what is rare. HTTP/2 where the
//! server speaks it: many requests in flight then share reads, TLS records and wake-ups, which is most of what a request
//! costs.

mod answer;
mod exchange;
mod transport;

pub(crate) use answer::{Refusal, chunk, is_protobuf, receive, send, stream};
pub use exchange::Exchange;
pub(crate) use exchange::through;
pub use transport::ConnectError;

/// The clients of the work itself.
pub(crate) struct Clients {
    pub(crate) watch: kube::Client,
    pub(crate) write: Exchange,
}

/// Where the API server is. Connections are made on the thread that uses them.
#[derive(Clone)]
pub enum Connect {
    Config(Box<kube::Config>),
    /// One client for everything, such as that of an embedded cluster in the same process.
    Client(kube::Client),
}

impl Connect {
    /// Waits for a server that does not answer yet; fails only for a configuration that can never work.
    pub(crate) async fn clients(&self) -> Result<Clients, ConnectError> {
        match self {
            Self::Config(config) => transport::connect(config).await,
            Self::Client(client) => Ok(Clients {
                watch: client.clone(),
                write: through(client.clone()),
            }),
        }
    }

    /// A connection for rare requests that must not wait for others: the Lease and reviews of callers.
    pub fn exchange(&self) -> Result<Exchange, ConnectError> {
        Ok(through(match self {
            Self::Config(config) => transport::one(config)?,
            Self::Client(client) => client.clone(),
        }))
    }

    /// The server's address, if there is one.
    pub fn server(&self) -> Option<&http::Uri> {
        match self {
            Self::Config(config) => Some(&config.cluster_url),
            Self::Client(_) => None,
        }
    }
}
