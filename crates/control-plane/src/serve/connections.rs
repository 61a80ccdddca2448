//! Accepts connections, with limits on their number, their age, and the time until a request is complete.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// Connections at the same time.
const MAX_CONNECTIONS: usize = 100;
/// For a handshake, and for the head of each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is shut down at this age, and closed [`REQUEST_TIMEOUT`] later.
const MAX_AGE: Duration = Duration::from_secs(300);
const STREAMS: u32 = 32;
/// After a failed accept, which is most likely a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the task is dropped.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Router,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = slots.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, Version::Http1, app).await,
                Some(acceptor) => {
                    let handshake = acceptor.accept(stream);
                    if let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_TIMEOUT, handshake).await {
                        let version = match stream.get_ref().1.alpn_protocol() {
                            Some(b"h2") => Version::Http2,
                            _ => Version::Http1,
                        };
                        serve(stream, version, app).await;
                    }
                }
            }
            drop(permit);
        });
    }
}

/// Known from TLS: detecting it from the first bytes would wait for a silent client without a limit.
enum Version {
    Http1,
    Http2,
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    version: Version,
    app: Router,
) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match version {
        Version::Http1 => builder.http1_only(),
        Version::Http2 => builder.http2_only(),
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Some(REQUEST_TIMEOUT))
        .keep_alive_timeout(REQUEST_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    // Errors of a connection are the client's.
    if tokio::time::timeout(MAX_AGE, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(REQUEST_TIMEOUT, connection).await;
    }
}
