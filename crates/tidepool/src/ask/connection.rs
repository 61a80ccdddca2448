//! One HTTP connection to a scheduler: to its address, or by port-forward to its pod.

use std::{io, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Request, Uri, header::HOST};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    client::{Body, ConfigExt},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Mutex,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::{BoxError, ServiceBuilder};

use super::{ANSWER, CONNECT};
use crate::causes;

/// A port-forward that fails reports the reason at about the time when its stream ends.
const REASON: Duration = Duration::from_millis(500);

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing answers there, or not as a scheduler does.
    Unreachable(String),
    /// The server is not trusted.
    Certificate(rustls::Error),
}

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A stream to a scheduler.
pub(super) struct Stream {
    io: Box<dyn Io>,
    /// The reason why a port-forward failed.
    reason: BoxFuture<'static, Option<String>>,
}

impl Stream {
    /// Connects to the address.
    pub(super) async fn direct(server: &Uri) -> Result<Self, Failure> {
        let connect = TcpStream::connect((host(server), port(server)));
        let stream = match timeout(CONNECT, connect).await {
            Ok(stream) => stream.map_err(|why| Failure::Unreachable(why.to_string()))?,
            Err(_) => {
                let text = format!("no answer after {}", humantime::format_duration(CONNECT));
                return Err(Failure::Unreachable(text));
            }
        };
        Ok(Self {
            io: Box::new(stream),
            reason: std::future::ready(None).boxed(),
        })
    }

    /// Connects to the same port of a pod, through the API server.
    pub(super) async fn forwarded(
        api_server: &Config,
        (namespace, name): &(String, String),
        server: &Uri,
    ) -> Result<Self, kube::Error> {
        let port = port(server);
        let pods: Api<Pod> = Api::namespaced(Client::try_from(api_server.clone())?, namespace);
        let mut forward = pods.portforward(name, &[port]).await?;
        let no_stream = || kube::Error::Service("there is no stream".into());
        let io = forward.take_stream(port).ok_or_else(no_stream)?;
        let reason = forward.take_error(port).ok_or_else(no_stream)?;
        Ok(Self {
            io: Box::new(io),
            reason: reason.boxed(),
        })
    }

    /// A client that sends its requests on this stream, with the credentials of `credentials`.
    pub(super) async fn client(
        self,
        server: &Uri,
        credentials: &Config,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Client, Failure> {
        let Self { io, reason } = self;
        match timeout(ANSWER, handshake(io, server, credentials, tls)).await {
            Ok(Err(Failure::Unreachable(why))) => {
                let reason = timeout(REASON, reason).await.ok().flatten();
                Err(Failure::Unreachable(reason.unwrap_or(why)))
            }
            Ok(result) => result,
            Err(_) => {
                let text = format!("no answer after {}", humantime::format_duration(ANSWER));
                Err(Failure::Unreachable(text))
            }
        }
    }
}

async fn handshake(
    mut io: Box<dyn Io>,
    server: &Uri,
    credentials: &Config,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Client, Failure> {
    let unusable = |why: &dyn std::fmt::Display| Failure::Unreachable(why.to_string());
    if let Some(tls) = tls {
        let name = ServerName::try_from(host(server).to_owned()).map_err(|why| unusable(&why))?;
        let stream = TlsConnector::from(tls).connect(name, io).await;
        io = Box::new(stream.map_err(of_handshake)?);
    }
    let (sender, connection) = http1::handshake(TokioIo::new(io))
        .await
        .map_err(|why| unusable(&why))?;
    // Its errors are those of the requests.
    tokio::spawn(connection);
    let authority = server.authority().map_or("", |it| it.as_str());
    let host = HeaderValue::from_str(authority).map_err(|why| unusable(&why))?;
    let sender = Arc::new(Mutex::new(sender));
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(HOST, host.clone());
        let sender = sender.clone();
        async move {
            let mut sender = sender.lock().await;
            // The connection may still be busy with the end of the last answer.
            sender.ready().await?;
            sender.send_request(request).await
        }
    });
    let service = ServiceBuilder::new()
        .option_layer(credentials.auth_layer().map_err(|why| unusable(&why))?)
        .layer(
            credentials
                .extra_headers_layer()
                .map_err(|why| unusable(&why))?,
        )
        .map_err(BoxError::from)
        .service(service);
    Ok(Client::new(service, "default"))
}

fn of_handshake(error: io::Error) -> Failure {
    match causes::tls(&error) {
        Some(why @ rustls::Error::InvalidCertificate(_)) => Failure::Certificate(why.clone()),
        _ => Failure::Unreachable(causes::of_connection(&error)),
    }
}

/// Without the brackets of an IPv6 address.
fn host(server: &Uri) -> &str {
    server.host().unwrap_or_default().trim_matches(['[', ']'])
}

fn port(server: &Uri) -> u16 {
    let default = if server.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    server.port_u16().unwrap_or(default)
}
