//! Connections for a `kube::Config`, with HTTP/2, which `kube::Client` does not use by default.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Uri, Version};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use tower::{BoxError, Service, ServiceBuilder};

use super::Clients;
use super::causes::of_connection;
use super::exchange::{self, Exchange, Http2, KeepAlive};
use reconcile::backoff::Backoff;

/// For a connection, with its TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// For the first answer of a server, with the connection.
const FIRST_ANSWER: Duration = Duration::from_secs(6);
/// Finds a peer that is gone, where there are no pings.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Pings find a dead connection within 15 s.
const PINGS: Pings = Pings {
    every: Duration::from_secs(10),
    answer: Duration::from_secs(5),
};
/// On the connection for rare requests, the Lease must not be lost meanwhile.
const QUICK_PINGS: Pings = Pings {
    every: Duration::from_secs(3),
    answer: Duration::from_secs(3),
};
/// A watch that catches up should not wait for flow control.
const WATCH_STREAM_WINDOW: u32 = 4 << 20;
const WATCH_CONNECTION_WINDOW: u32 = 16 << 20;
/// Responses to writes are small.
const WRITE_WINDOW: u32 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot set up the connection to {server}")]
    Config {
        server: http::Uri,
        source: Box<kube::Error>,
    },
    #[error("tls-server-name `{0}` is neither a host name nor an IP address")]
    ServerName(String),
    #[error("`{0}` is not a valid server address")]
    NoAddress(http::Uri),
}

/// When HTTP/2 pings are sent to a silent server, and how long they wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pings {
    pub(super) every: Duration,
    pub(super) answer: Duration,
}

#[derive(Clone, Copy)]
struct ConnectionSettings {
    stream_window: u32,
    connection_window: u32,
    pings: Pings,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Protocol {
    /// As TLS negotiates. Requests before the first response may open a connection each.
    Any,
    Http2,
}

const WATCH: ConnectionSettings = ConnectionSettings {
    stream_window: WATCH_STREAM_WINDOW,
    connection_window: WATCH_CONNECTION_WINDOW,
    pings: PINGS,
};
const WRITE: ConnectionSettings = ConnectionSettings {
    stream_window: WRITE_WINDOW,
    connection_window: WRITE_WINDOW,
    pings: PINGS,
};
const RARE: ConnectionSettings = ConnectionSettings {
    pings: QUICK_PINGS,
    ..WRITE
};

pub(super) async fn connect(config: &Config) -> Result<Clients, ConnectError> {
    let protocol = agreed(config).await?;
    tracing::debug!(?protocol, server = %config.cluster_url, "connected");
    let is_http2 = protocol == Protocol::Http2 && config.proxy_url.is_none();
    Ok(Clients {
        watch: client(config, WATCH, protocol)?,
        write: match is_http2 {
            true => exchange(config)?,
            false => exchange::through(client(config, WRITE, protocol)?),
        },
        pings: is_http2,
    })
}

pub(super) fn exchange(config: &Config) -> Result<Exchange, ConnectError> {
    let keep_alive = KeepAlive {
        window: WRITE_WINDOW,
        pings: PINGS,
    };
    let server = &config.cluster_url;
    let service = Http2::new(connector(config, Protocol::Http2)?, server, keep_alive)
        .ok_or_else(|| ConnectError::NoAddress(server.clone()))?;
    let refuse = |source| refuse(config, source);
    let service = ServiceBuilder::new()
        .option_layer(config.auth_layer().map_err(refuse)?)
        .layer(config.extra_headers_layer().map_err(refuse)?)
        .service(service);
    Ok(Exchange::new(service))
}

/// A client that connects when it is used.
pub(super) fn one(config: &Config) -> Result<kube::Client, ConnectError> {
    client(config, RARE, Protocol::Any)
}

/// The protocol of the server. Retries until there is any response.
async fn agreed(config: &Config) -> Result<Protocol, ConnectError> {
    let mut backoff = Backoff::default();
    loop {
        // A new client, because the connection of one that got no answer may be dead.
        let probe = one(config)?;
        let Ok(request) = Request::get("/version").body(Body::empty()) else {
            return Ok(Protocol::Any);
        };
        let why = match tokio::time::timeout(FIRST_ANSWER, probe.send(request)).await {
            Ok(Ok(answer)) if answer.version() == Version::HTTP_2 => return Ok(Protocol::Http2),
            Ok(Ok(_)) => return Ok(Protocol::Any),
            Ok(Err(error)) => of_connection(&error),
            Err(_) => format!("no answer to GET /version after {FIRST_ANSWER:?}"),
        };
        let server = &config.cluster_url;
        tracing::warn!(%server, "cannot reach the API server; retrying: {why}");
        backoff.wait().await;
    }
}

fn client(
    config: &Config,
    settings: ConnectionSettings,
    protocol: Protocol,
) -> Result<kube::Client, ConnectError> {
    let refuse = |source| refuse(config, source);
    if config.proxy_url.is_some() {
        // kube has the proxies; most of them know no HTTP/2.
        let mut config = config.clone();
        config.connect_timeout = Some(connect_timeout(&config));
        return kube::Client::try_from(config).map_err(refuse);
    }
    let service = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(protocol == Protocol::Http2)
        .http2_keep_alive_interval(settings.pings.every)
        .http2_keep_alive_timeout(settings.pings.answer)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(settings.stream_window)
        .http2_initial_connection_window_size(settings.connection_window)
        .build::<_, Body>(connector(config, protocol)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(refuse)?)
        .layer(config.extra_headers_layer().map_err(refuse)?)
        .map_err(BoxError::from)
        .service(service);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

fn connect_timeout(config: &Config) -> Duration {
    config.connect_timeout.map_or(CONNECT, |it| it.min(CONNECT))
}

fn connector(config: &Config, protocol: Protocol) -> Result<TimedConnector, ConnectError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
    let tls = config
        .rustls_client_config()
        .map_err(|source| refuse(config, source))?;
    let mut connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let server_name = name
            .clone()
            .try_into()
            .map_err(|_| ConnectError::ServerName(name.clone()))?;
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(server_name));
    }
    let connector = match protocol {
        Protocol::Any => connector.enable_all_versions().wrap_connector(tcp),
        Protocol::Http2 => connector.enable_http2().wrap_connector(tcp),
    };
    Ok(TimedConnector {
        connector,
        limit: connect_timeout(config),
    })
}

/// Connects within a time. The TCP connector's own timeout does not include the TLS handshake.
#[derive(Clone)]
pub(super) struct TimedConnector {
    pub(super) connector: HttpsConnector<HttpConnector>,
    pub(super) limit: Duration,
}

impl Service<Uri> for TimedConnector {
    type Response = <HttpsConnector<HttpConnector> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let (connection, limit) = (self.connector.call(server), self.limit);
        Box::pin(async move {
            match tokio::time::timeout(limit, connection).await {
                Ok(result) => result,
                Err(_) => Err(format!("no connection after {limit:?}").into()),
            }
        })
    }
}

fn refuse(config: &Config, source: kube::Error) -> ConnectError {
    ConnectError::Config {
        server: config.cluster_url.clone(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Log;

    /// What is logged about a server that accepts connections and stays silent.
    async fn logged(scheme: &str) -> Vec<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("{scheme}://{}", listener.local_addr().unwrap());
        let mut config = Config::new(server.parse().unwrap());
        config.accept_invalid_certs = true;
        let log = Log::begin();
        let silent = async {
            let mut held = Vec::new();
            loop {
                held.push(listener.accept().await.unwrap());
            }
        };
        let limit = FIRST_ANSWER + Duration::from_secs(1);
        tokio::select! {
            () = silent => {}
            _ = agreed(&config) => {}
            () = tokio::time::sleep(limit) => {}
        }
        log.lines()
    }

    #[tokio::test]
    async fn the_deadline_that_ran_out_is_logged() {
        let both = tokio::join!(logged("http"), logged("https"));
        let all = [both.0, both.1].concat().join("\n");
        for text in [
            "no answer to GET /version after 6s",
            "no connection after 5s",
        ] {
            let line = format!("cannot reach the API server; retrying: {text}");
            assert!(all.contains(&line), "{text}: {all}");
        }
    }
}
