//! Connections: so many and no more, none of them for ever, none without saying what it wants in time.

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

/// More than all who look after a cluster keep open.
const MOST: usize = 100;
/// For a handshake, and for the head of each request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Then a connection is asked to end, and made to after [`PATIENCE`].
const LONGEST: Duration = Duration::from_secs(300);
const STREAMS: u32 = 32;
/// When accepting fails, most likely because no file can be opened.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts for ever.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Router,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("a connection was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(async move {
            match acceptor {
                None => serve(stream, Protocol::Http1, app).await,
                Some(acceptor) => {
                    let handshake = acceptor.accept(stream);
                    if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, handshake).await {
                        let protocol = match stream.get_ref().1.alpn_protocol() {
                            Some(b"h2") => Protocol::Http2,
                            _ => Protocol::Http1,
                        };
                        serve(stream, protocol, app).await;
                    }
                }
            }
            drop(permit);
        });
    }
}

/// Known beforehand: who would have to be heard first could keep us waiting for ever.
enum Protocol {
    Http1,
    Http2,
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    protocol: Protocol,
    app: Router,
) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Some(PATIENCE))
        .keep_alive_timeout(PATIENCE);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is its client's affair.
    if tokio::time::timeout(LONGEST, connection.as_mut())
        .await
        .is_err()
    {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(PATIENCE, connection).await;
    }
}
