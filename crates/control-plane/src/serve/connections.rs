//! Accepts connections, with limits on their number, their age, and the time of each step.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::http::ErrorCode;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::client_certificates::ClientCertificates;
use super::routes::refuse;
use super::slots::{AUTHENTICATED_IDLE_TIMEOUT, OpenRequest, Slot, Slots};

/// From the head of a request to the head of its response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often HTTP/2 sends a ping to a client that is silent.
const PING_EVERY: Duration = Duration::from_secs(10);
/// A connection is shut down at this age, and closed [`SHUTDOWN`] later.
const MAX_AGE: Duration = Duration::from_secs(300);
const SHUTDOWN: Duration = Duration::from_secs(10);
const STREAMS: u32 = 32;
/// Bytes of a body that arrive before it is read, so many for each stream: bodies that wait must not stop others.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = (STREAMS + 1) * STREAM_WINDOW;
/// Bytes of the head of a request: twice the longest token.
const LONGEST_HEAD: usize = 32 << 10;
/// After a failed accept, which is most likely a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How often overdue connections are closed.
const SWEEP: Duration = Duration::from_millis(250);

/// In the extensions of a response: the connection takes no more requests. The client connects again, perhaps to another replica.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastResponse;

/// Accepts connections until the task is dropped.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    app: Router,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Slots::default();
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = sweep.tick(), if !slots.is_empty() => {
                slots.expire();
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let (acceptor, app) = (acceptor.clone(), app.clone());
                let slot = slots.take(peer.ip());
                tokio::spawn(async move {
                    slot.hold(connection(stream, acceptor, app, &slot)).await;
                });
                // Those that were accepted come first: a new connection may take the place of one of them.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::debug!("cannot accept a connection: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One connection to its end. The slot limits the time of the handshake and the time without requests.
async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, app: Router, slot: &Slot) {
    // A large body in HTTP/2 needs a window update for each 64 KiB. Held back until the client confirms the last one, each would take
    // 40 ms. Errors of a connection are the client's.
    if stream.set_nodelay(true).is_err() || stream.readable().await.is_err() {
        return;
    }
    let Some(acceptor) = acceptor else {
        slot.awaits_request();
        return serve(stream, Version::Http1, None, app, slot).await;
    };
    slot.begins_handshake();
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    slot.awaits_request();
    let session = stream.get_ref().1;
    let version = match session.alpn_protocol() {
        Some(b"h2") => Version::Http2,
        _ => Version::Http1,
    };
    let certificates = session.peer_certificates();
    let certificates = certificates.map(|it| ClientCertificates(it.into()));
    serve(stream, version, certificates, app, slot).await;
}

/// Known from TLS: detecting it from the first bytes would wait for a silent client.
enum Version {
    Http1,
    Http2,
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    version: Version,
    certificates: Option<ClientCertificates>,
    app: Router,
    slot: &Slot,
) {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match version {
        Version::Http1 => builder.http1_only(),
        Version::Http2 => builder.http2_only(),
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(LONGEST_HEAD)
        .header_read_timeout(AUTHENTICATED_IDLE_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(LONGEST_HEAD as u32)
        .keep_alive_interval(Some(PING_EVERY))
        .keep_alive_timeout(PING_EVERY);
    let last = Arc::new(Notify::new());
    let service = service_fn({
        let (slot, last) = (slot.clone(), last.clone());
        move |mut request: Request<Incoming>| {
            let open = slot.begin_request();
            let extensions = request.extensions_mut();
            extensions.insert(slot.clone());
            if let Some(certificates) = &certificates {
                extensions.insert(certificates.clone());
            }
            respond(app.clone(), request, open, last.clone())
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // An error is the client's.
        _ = connection.as_mut() => return,
        () = last.notified() => {}
        () = tokio::time::sleep(MAX_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(SHUTDOWN, connection).await;
}

async fn respond(
    app: Router,
    request: Request<Incoming>,
    open: OpenRequest,
    last: Arc<Notify>,
) -> Result<Response, Infallible> {
    let answer = app.oneshot(request.map(Body::new));
    let response = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
        Ok(response) => response?,
        Err(_) => {
            let text = format!("the request was not answered within {RESPONSE_TIMEOUT:?}");
            refuse(ErrorCode::Unavailable, &text)
        }
    };
    if response.extensions().get::<LastResponse>().is_some() {
        last.notify_one();
    }
    Ok(response.map(|body| Body::new(OpenBody { body, _open: open })))
}

/// The body of a response; the request is open until it was sent.
struct OpenBody {
    body: Body,
    _open: OpenRequest,
}

impl hyper::body::Body for OpenBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
