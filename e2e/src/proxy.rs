//! An HTTP proxy between one component and the API server. It holds back the requests that a test chooses, as a slow network
//! would, and forwards all others.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

use anyhow::Result;
use futures::StreamExt;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::Kubeconfig;

/// A running proxy. Dropping it stops it.
pub struct Proxy {
    kubeconfig: Kubeconfig,
    open: watch::Sender<bool>,
    /// Each request that waits holds a reference.
    waiting: Arc<()>,
    _runtime: tokio::runtime::Runtime,
}

impl Proxy {
    /// For the requests of this user. While the proxy holds, those that `is_held` chooses wait: a new one is not forwarded,
    /// and of one that was forwarded no further part of the response is delivered.
    pub fn start(user: &Kubeconfig, is_held: fn(&Parts) -> bool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let config = runtime.block_on(user.to_client_config())?;
        let client = {
            let _inside = runtime.enter();
            Client::try_from(config)?
        };
        let open = watch::Sender::new(true);
        let waiting = Arc::new(());
        let gate = Gate {
            is_held,
            open: open.subscribe(),
            waiting: Arc::downgrade(&waiting),
        };
        runtime.spawn(serve(listener, client, gate));
        Ok(Self {
            kubeconfig: Kubeconfig {
                server: format!("http://127.0.0.1:{port}"),
                ..user.clone()
            },
            open,
            waiting,
            _runtime: runtime,
        })
    }

    /// For the component.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    /// Delivers what waits, and holds nothing more.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// How many requests wait now.
    pub fn waiting(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }
}

#[derive(Clone)]
struct Gate {
    is_held: fn(&Parts) -> bool,
    open: watch::Receiver<bool>,
    waiting: Weak<()>,
}

impl Gate {
    async fn pass(&mut self) {
        if *self.open.borrow() {
            return;
        }
        let _waits = self.waiting.upgrade();
        // An error is a proxy that was dropped.
        let _ = self.open.wait_for(|open| *open).await;
    }
}

async fn serve(listener: TcpListener, client: Client, gate: Gate) {
    while let Ok((stream, _)) = listener.accept().await {
        let (client, gate) = (client.clone(), gate.clone());
        let service = service_fn(move |request| answer(client.clone(), gate.clone(), request));
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        // It fails when the component is killed.
        tokio::spawn(async { drop(connection.await) });
    }
}

type ProxyBody = UnsyncBoxBody<Bytes, kube::Error>;

async fn answer(
    client: Client,
    gate: Gate,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    Ok(match forward(client, gate, request).await {
        Ok(response) => response,
        Err(error) => {
            let text = Full::from(format!("{error:#}")).map_err(|never| match never {});
            let mut response = Response::new(text.boxed_unsync());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    })
}

async fn forward(
    client: Client,
    mut gate: Gate,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let is_held = (gate.is_held)(&parts);
    if is_held {
        gate.pass().await;
    }
    // They are about the connection to the component.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    let mut response = client.send(request).await?;
    for header in [CONNECTION, TRANSFER_ENCODING] {
        response.headers_mut().remove(header);
    }
    if !is_held {
        return Ok(response.map(BodyExt::boxed_unsync));
    }
    Ok(response.map(|body| {
        let chunks = body.into_data_stream().then(move |chunk| {
            let mut gate = gate.clone();
            async move {
                gate.pass().await;
                chunk.map(Frame::data)
            }
        });
        StreamBody::new(chunks).boxed_unsync()
    }))
}
