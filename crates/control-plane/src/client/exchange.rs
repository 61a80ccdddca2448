//! Short requests with their whole responses: binds, events, patches.
//!
//! They are most of what a scheduler sends, so they go to the HTTP/2 connection without the layers of `kube::Client`:
//! no queue, task or channel per request. kube's layers still add the credentials.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{Connection, SendRequest};
use h2::{Ping, RecvStream};
use http::header::CONTENT_LENGTH;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use super::transport::{Pings, TimedConnector};

/// For the body of an error. Its status code is enough.
pub(super) const ERROR_BODY: Duration = Duration::from_secs(2);
/// Bytes of a response, unless the request has a [`Largest`].
const LARGEST: usize = 4 << 20;

/// The extension of a request whose response may have so many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Largest(pub(crate) usize);

impl Largest {
    fn of(extensions: &http::Extensions) -> usize {
        extensions.get::<Self>().map_or(LARGEST, |it| it.0)
    }
}

/// A service that sends a request and returns its whole response.
pub type Exchange = BoxCloneSyncService<Request<Full<Bytes>>, Response<Bytes>, BoxError>;

/// Sends through a client, for a proxy or a server within this process.
pub(crate) fn through(client: kube::Client) -> Exchange {
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let client = client.clone();
        async move {
            let (head, body) = request.into_parts();
            let largest = Largest::of(&head.extensions);
            let request = Request::from_parts(head, Body::from(whole(body).await));
            let answer = client.send(request).await?;
            let (head, body) = answer.into_parts();
            let read = async {
                let read = Limited::new(body, largest).collect().await;
                read.map(http_body_util::Collected::to_bytes)
            };
            let read = match head.status.is_success() {
                true => read.await.map_err(|error| broken_off(&*error))?,
                false => of_error(read).await,
            };
            Ok(Response::from_parts(head, read))
        }
    });
    BoxCloneSyncService::new(service)
}

/// The body of an error; empty if it does not arrive in full and in time.
async fn of_error<E>(read: impl Future<Output = Result<Bytes, E>>) -> Bytes {
    let read = tokio::time::timeout(ERROR_BODY, read).await;
    read.ok().and_then(Result::ok).unwrap_or_default()
}

/// The body has one frame or none.
async fn whole(mut body: Full<Bytes>) -> Bytes {
    match body.frame().await {
        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        Some(Err(never)) => match never {},
        None => Bytes::new(),
    }
}

fn broken_off(error: &dyn std::error::Error) -> BoxError {
    format!("the response is incomplete: {error}").into()
}

/// Flow control and pings of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeepAlive {
    /// Bytes that may arrive before they are read.
    pub(super) window: u32,
    pub(super) pings: Pings,
}

/// One HTTP/2 connection, opened when it is first used and again after it broke.
#[derive(Clone)]
pub(super) struct Http2(Arc<Http2Inner>);

struct Http2Inner {
    connector: TimedConnector,
    server: Uri,
    scheme: Scheme,
    authority: Authority,
    /// The prefix of every path, without a trailing slash.
    prefix: String,
    keep_alive: KeepAlive,
    /// One task connects while the others wait.
    open: Mutex<Option<SendRequest<Bytes>>>,
}

impl Http2 {
    /// `None` if the server has no address.
    pub(super) fn new(
        connector: TimedConnector,
        server: &Uri,
        keep_alive: KeepAlive,
    ) -> Option<Self> {
        let parts = server.clone().into_parts();
        let (scheme, authority) = (parts.scheme?, parts.authority?);
        Some(Self(Arc::new(Http2Inner {
            connector,
            server: server.clone(),
            scheme,
            authority,
            prefix: server.path().trim_end_matches('/').to_owned(),
            keep_alive,
            open: Mutex::new(None),
        })))
    }
}

impl Service<Request<Full<Bytes>>> for Http2 {
    type Response = Response<Bytes>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move { inner.exchange(request).await })
    }
}

impl Http2Inner {
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, BoxError> {
        let (mut head, body) = request.into_parts();
        let largest = Largest::of(&head.extensions);
        head.uri = self.place(head.uri)?;
        let body = whole(body).await;
        if !body.is_empty() {
            // A gateway may need it before the body.
            head.headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let mut sender = self.sender().await?;
        let request = Request::from_parts(head, ());
        let (answer, mut stream) = sender.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        let (head, body) = answer.await?.into_parts();
        let read = read(body, largest);
        let read = match head.status.is_success() {
            true => read.await.map_err(|error| broken_off(&*error))?,
            false => of_error(read).await,
        };
        Ok(Response::from_parts(head, read))
    }

    fn place(&self, uri: Uri) -> Result<Uri, BoxError> {
        let mut parts = uri.into_parts();
        if !self.prefix.is_empty() {
            let path = parts
                .path_and_query
                .as_ref()
                .map_or("/", |path| path.as_str());
            let path = format!("{}{path}", self.prefix);
            parts.path_and_query = Some(PathAndQuery::try_from(path)?);
        }
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        Ok(Uri::from_parts(parts)?)
    }

    async fn sender(&self) -> Result<SendRequest<Bytes>, BoxError> {
        let mut open = self.open.lock().await;
        if let Some(sender) = &*open {
            // Ready at once: streams above the server's limit wait later.
            if let Ok(ready) = sender.clone().ready().await {
                return Ok(ready);
            }
        }
        *open = None;
        let stream = self.connector.clone().oneshot(self.server.clone()).await?;
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            // Until the server sends its limit; it would refuse more.
            .initial_max_send_streams(100)
            .initial_window_size(self.keep_alive.window)
            .initial_connection_window_size(self.keep_alive.window)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(drive(connection, self.keep_alive));
        *open = Some(sender.clone());
        Ok(sender.ready().await?)
    }
}

/// Runs until the connection ends or a ping has no answer; requests in flight fail then.
async fn drive<T>(mut connection: Connection<T>, keep_alive: KeepAlive)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let pings = connection.ping_pong();
    let silence = async {
        let Some(mut pings) = pings else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(keep_alive.pings.every).await;
            let answer = pings.ping(Ping::opaque());
            if tokio::time::timeout(keep_alive.pings.answer, answer)
                .await
                .is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        ended = connection => match ended {
            Ok(()) => tracing::debug!("API server closed the connection"),
            Err(error) => tracing::debug!("connection to the API server failed: {error}"),
        },
        () = silence => {
            let time = keep_alive.pings.answer;
            tracing::warn!("API server did not answer a ping after {time:?}; reconnecting");
        }
    }
}

async fn read(mut body: RecvStream, largest: usize) -> Result<Bytes, BoxError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        // Lets the server send as much again.
        body.flow_control().release_capacity(piece.len())?;
        if all.len() + first.len() + piece.len() > largest {
            return Err(format!("it is larger than {largest} bytes").into());
        }
        // Most responses are one frame.
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use h2::server::SendResponse;
    use hyper_rustls::HttpsConnectorBuilder;
    use hyper_util::client::legacy::connect::HttpConnector;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::client::transport;

    type ServerConnection = h2::server::Connection<TcpStream, Bytes>;

    struct Server(TcpListener);

    impl Server {
        async fn begin() -> Self {
            Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
        }

        fn exchange(&self, ping_every: Duration) -> Exchange {
            let server = format!("http://{}/under/", self.0.local_addr().unwrap());
            let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
                rustls::crypto::ring::default_provider(),
            ))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            let connector = HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
                .enable_http2()
                .wrap_connector(tcp);
            let keep_alive = KeepAlive {
                window: 1 << 16,
                pings: Pings {
                    every: ping_every,
                    answer: ping_every,
                },
            };
            let connector = TimedConnector {
                connector,
                limit: Duration::from_secs(10),
            };
            Exchange::new(Http2::new(connector, &server.parse().unwrap(), keep_alive).unwrap())
        }

        async fn accept(&self) -> ServerConnection {
            let (stream, _) = self.0.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            h2::server::handshake(stream).await.unwrap()
        }
    }

    const NEVER: Duration = Duration::from_secs(600);

    async fn post(exchange: &Exchange, body: &'static str) -> Result<Response<Bytes>, BoxError> {
        let request = Request::post("/a?b=c").body(Full::from(body)).unwrap();
        exchange.clone().oneshot(request).await
    }

    /// Answers the next request with its method, address, length and body, in pieces.
    async fn echo(connection: &mut ServerConnection, status: u16) {
        let (request, respond) = connection.accept().await.unwrap().unwrap();
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.map_or("none", |length| length.to_str().unwrap());
        let said = format!("{} {} {length} ", request.method(), request.uri());
        let answer = async {
            let body = read(request.into_body(), LARGEST).await.unwrap();
            reply(respond, status, [said.into(), body]);
        };
        // The connection must be driven while the body arrives.
        tokio::select! {
            () = answer => {}
            _ = std::future::poll_fn(|context| connection.poll_closed(context)) => unreachable!(),
        }
    }

    fn reply(
        mut respond: SendResponse<Bytes>,
        status: u16,
        pieces: impl IntoIterator<Item = Bytes>,
    ) {
        let head = Response::builder().status(status).body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        for piece in pieces {
            stream.send_data(piece, false).unwrap();
        }
        stream.send_data(Bytes::new(), true).unwrap();
    }

    /// Until its peer closes it.
    async fn serve_out(mut connection: ServerConnection) {
        while connection.accept().await.is_some() {}
    }

    #[tokio::test]
    async fn requests_and_answers_are_whole() {
        let server = Server::begin().await;
        let exchange = server.exchange(NEVER);
        let serve = async {
            let mut connection = server.accept().await;
            for status in [201, 409] {
                echo(&mut connection, status).await;
            }
            serve_out(connection).await;
        };
        let ask = async {
            for (body, length, status) in [("body", "4", 201), ("", "none", 409)] {
                let answer = post(&exchange, body).await.unwrap();
                assert_eq!(answer.status(), status);
                let address = server.0.local_addr().unwrap();
                let want = format!("POST http://{address}/under/a?b=c {length} {body}");
                assert_eq!(answer.body(), want.as_bytes());
            }
        };
        tokio::select! {
            () = serve => panic!("the connection was closed"),
            () = ask => {}
        }
    }

    #[tokio::test]
    async fn who_we_are_is_told_as_the_configuration_says() {
        let server = Server::begin().await;
        let address = server.0.local_addr().unwrap();
        let mut token = tempfile::NamedTempFile::new().unwrap();
        token.write_all(b"secret").unwrap();
        let mut config = kube::Config::new(format!("http://{address}/").parse().unwrap());
        // As in a pod of the cluster.
        config.auth_info.token_file = Some(token.path().display().to_string());
        let exchange = transport::exchange(&config).unwrap();
        let serve = async {
            let mut connection = server.accept().await;
            let (request, respond) = connection.accept().await.unwrap().unwrap();
            let who = request.headers()[http::header::AUTHORIZATION].as_bytes();
            reply(respond, 200, [Bytes::copy_from_slice(who)]);
            serve_out(connection).await;
        };
        let answer = tokio::select! {
            () = serve => panic!("the connection was closed"),
            answer = post(&exchange, "") => answer.unwrap(),
        };
        assert_eq!(answer.body(), "Bearer secret");
    }

    #[tokio::test]
    async fn what_broke_is_made_again() {
        let server = Server::begin().await;
        let exchange = server.exchange(NEVER);
        let serve = async {
            let mut first = server.accept().await;
            echo(&mut first, 200).await;
            // The second request gets no answer.
            let _asked = first.accept().await.unwrap().unwrap();
            drop(first);
            // Another goes away in good order.
            let mut second = server.accept().await;
            echo(&mut second, 200).await;
            second.graceful_shutdown();
            serve_out(second).await;
            let mut third = server.accept().await;
            echo(&mut third, 200).await;
            serve_out(third).await;
        };
        let ask = async {
            assert!(post(&exchange, "1").await.is_ok());
            assert!(post(&exchange, "2").await.is_err());
            assert!(post(&exchange, "3").await.is_ok());
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(post(&exchange, "4").await.is_ok());
        };
        tokio::select! {
            () = serve => panic!("the connection was closed"),
            () = ask => {}
        }
    }

    #[tokio::test]
    async fn a_server_that_falls_silent_is_left() {
        let server = Server::begin().await;
        let exchange = server.exchange(Duration::from_millis(50));
        let begun = Instant::now();
        let serve = async {
            let mut connection = server.accept().await;
            let _asked = connection.accept().await.unwrap().unwrap();
            // No reads or writes from here on; the socket stays open.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serve => unreachable!(),
            answer = post(&exchange, "1") => assert!(answer.is_err()),
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn too_much_is_refused() {
        let server = Server::begin().await;
        let exchange = server.exchange(NEVER);
        let serve = async {
            let mut connection = server.accept().await;
            for _ in 0..2 {
                let (_, respond) = connection.accept().await.unwrap().unwrap();
                reply(respond, 200, [vec![b'x'; LARGEST + 1].into()]);
            }
            serve_out(connection).await;
        };
        let ask = async {
            let error = post(&exchange, "1").await.unwrap_err();
            let mut large = Request::get("/").body(Full::default()).unwrap();
            large.extensions_mut().insert(Largest(LARGEST + 1));
            let answer = exchange.clone().oneshot(large).await.unwrap();
            assert_eq!(answer.body().len(), LARGEST + 1);
            error
        };
        let error = tokio::select! {
            () = serve => panic!("the connection was closed"),
            error = ask => error,
        };
        assert_eq!(
            error.to_string(),
            "the response is incomplete: it is larger than 4194304 bytes"
        );
    }
}
