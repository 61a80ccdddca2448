//! Connections for a `kube::Config`, with HTTP/2, which `kube::Client` does not use by default.

use std::time::Duration;

use http::{Request, Version};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use tower::ServiceBuilder;

use super::Clients;
use super::exchange::{self, Exchange, Http2, KeepAlive};
use crate::backoff::Backoff;

const CONNECT: Duration = Duration::from_secs(10);
/// Pings detect dead connections; client-go uses the same times.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);
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

#[derive(Clone, Copy)]
struct Windows {
    stream: u32,
    connection: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Protocol {
    /// As TLS negotiates. Requests before the first response may open a connection each.
    Any,
    Http2,
}

const WATCH: Windows = Windows {
    stream: WATCH_STREAM_WINDOW,
    connection: WATCH_CONNECTION_WINDOW,
};
const WRITE: Windows = Windows {
    stream: WRITE_WINDOW,
    connection: WRITE_WINDOW,
};

pub(super) async fn connect(config: &Config) -> Result<Clients, ConnectError> {
    let protocol = agreed(config, one(config)?).await;
    tracing::debug!(?protocol, server = %config.cluster_url, "connected");
    Ok(Clients {
        watch: client(config, WATCH, protocol)?,
        write: match protocol {
            Protocol::Http2 if config.proxy_url.is_none() => exchange(config)?,
            _ => exchange::through(client(config, WRITE, protocol)?),
        },
    })
}

pub(super) fn exchange(config: &Config) -> Result<Exchange, ConnectError> {
    let keep_alive = KeepAlive {
        window: WRITE_WINDOW,
        ping_every: PING_EVERY,
        ping_answer: PING_ANSWER,
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
    client(config, WRITE, Protocol::Any)
}

/// The protocol of the server. Retries until there is any response.
async fn agreed(config: &Config, probe: kube::Client) -> Protocol {
    let mut backoff = Backoff::default();
    loop {
        let request = Request::get("/version").body(Body::empty());
        let Ok(request) = request else {
            return Protocol::Any;
        };
        match probe.send(request).await {
            Ok(answer) if answer.version() == Version::HTTP_2 => return Protocol::Http2,
            Ok(_) => return Protocol::Any,
            Err(error) => {
                let server = &config.cluster_url;
                tracing::warn!(%server, "cannot reach the API server; retrying: {error}");
                backoff.wait().await;
            }
        }
    }
}

fn client(
    config: &Config,
    windows: Windows,
    protocol: Protocol,
) -> Result<kube::Client, ConnectError> {
    let refuse = |source| refuse(config, source);
    if config.proxy_url.is_some() {
        // Proxies are kube's own affair; most of them know no HTTP/2.
        return kube::Client::try_from(config.clone()).map_err(refuse);
    }
    let service = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_only(protocol == Protocol::Http2)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_ANSWER)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(windows.stream)
        .http2_initial_connection_window_size(windows.connection)
        .build::<_, Body>(connector(config, protocol)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(refuse)?)
        .layer(config.extra_headers_layer().map_err(refuse)?)
        .map_err(tower::BoxError::from)
        .service(service);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

fn connector(
    config: &Config,
    protocol: Protocol,
) -> Result<HttpsConnector<HttpConnector>, ConnectError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(config.connect_timeout.unwrap_or(CONNECT)));
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
    Ok(match protocol {
        Protocol::Any => connector.enable_all_versions().wrap_connector(tcp),
        Protocol::Http2 => connector.enable_http2().wrap_connector(tcp),
    })
}

fn refuse(config: &Config, source: kube::Error) -> ConnectError {
    ConnectError::Config {
        server: config.cluster_url.clone(),
        source: Box::new(source),
    }
}
