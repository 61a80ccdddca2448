//! The part of a kubelet that port-forward needs: the API server connects to it when a client forwards a port of a pod.
//!
//! It speaks the WebSocket protocol `v4.channel.k8s.io` of kubelets: each message begins with its channel, 0 for data and
//! 1 for errors, and the first message of a channel is the port. Pods are processes on this machine, so a port of a pod
//! is a port on loopback.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

const DATA: u8 = 0;
const ERROR: u8 = 1;

/// A running kubelet. Dropping it stops it.
pub struct Kubelet {
    port: u16,
    forwarded: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Kubelet {
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let port = listener.local_addr()?.port();
        let forwarded = Arc::<AtomicUsize>::default();
        runtime.spawn(serve(listener, acceptor()?, forwarded.clone()));
        Ok(Self {
            port,
            forwarded,
            _runtime: runtime,
        })
    }

    /// A Node with this kubelet.
    pub fn node(&self, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }})
    }

    /// How many ports were forwarded.
    pub fn forwarded(&self) -> usize {
        self.forwarded.load(Ordering::Relaxed)
    }
}

/// With a self-signed certificate, which the API server accepts unless it has a CA for kubelets.
fn acceptor() -> Result<TlsAcceptor> {
    let key = rcgen::KeyPair::generate()?;
    let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?;
    let certificate = parameters.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .ok()
        .context("not a key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, forwarded: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, forwarded) = (acceptor.clone(), forwarded.clone());
        tokio::spawn(async move {
            // A client that goes away is no failure of the test, and another one fails on its own side.
            let _ = forward(stream, acceptor, &forwarded).await;
        });
    }
}

async fn forward(stream: TcpStream, acceptor: TlsAcceptor, forwarded: &AtomicUsize) -> Result<()> {
    let stream = acceptor.accept(stream).await?;
    let mut query = String::new();
    let accept = |request: &Request, mut response: Response| {
        query = request.uri().query().unwrap_or_default().to_owned();
        let protocol = HeaderValue::from_static("v4.channel.k8s.io");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    let (mut sink, mut messages) = tokio_tungstenite::accept_hdr_async(stream, accept)
        .await?
        .split();
    let port = query.split('&').find_map(|it| it.strip_prefix("port="));
    let port: u16 = port.context("no port")?.parse()?;
    let [low, high] = port.to_le_bytes();
    for channel in [DATA, ERROR] {
        sink.send(Message::binary(vec![channel, low, high])).await?;
    }
    let pod = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(pod) => pod,
        Err(error) => {
            let text = format!("error forwarding port {port} to pod: {error}");
            let message = [&[ERROR], text.as_bytes()].concat();
            sink.send(Message::binary(message)).await?;
            sink.close().await?;
            // A socket closed with unread data is reset, and the reset can overtake the message.
            while let Some(Ok(_)) = messages.next().await {}
            return Ok(());
        }
    };
    forwarded.fetch_add(1, Ordering::Relaxed);
    let (mut from_pod, mut to_pod) = pod.into_split();
    let up = async {
        while let Some(Ok(message)) = messages.next().await {
            if let Message::Binary(bytes) = message
                && let Some((&DATA, data)) = bytes.split_first()
            {
                to_pod.write_all(data).await?;
            }
        }
        anyhow::Ok(())
    };
    let down = async {
        let mut buffer = vec![0; 32 << 10];
        loop {
            buffer[0] = DATA;
            let count = from_pod.read(&mut buffer[1..]).await?;
            if count == 0 {
                return anyhow::Ok(());
            }
            let message = buffer[..=count].to_vec();
            sink.send(Message::binary(message)).await?;
        }
    };
    tokio::select! {
        result = up => result,
        result = down => result,
    }
}
