//! The network between one replica of the scheduler and the API server, with faults.
//!
//! It has two layers. This one passes bytes between the replica's socket and a pipe: connections stall, go silent, break or
//! end early here. Behind the pipe a server ends TLS and HTTP; [`exchange`] forwards each request and harms requests and
//! answers, and [`watches`] harms the events of watches.

mod exchange;
mod watches;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::journal::{Incarnation, Journal, Micros};
use crate::plan::FaultKind;
pub(crate) use exchange::RequestRule;
use exchange::Upstream;
use watches::WatchWeather;
pub(crate) use watches::{EventHold, WatchEnd};

/// Bytes that a connection buffers per direction.
const PIPE: usize = 64 << 10;
const CHUNK: usize = 16 << 10;
/// A request that arrives so soon after a stall may have been sent before it.
const AFTER_STALL: Duration = Duration::from_secs(1);

/// What happens to the bytes of all connections.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    gate: Gate,
    /// Counts the times at which all connections break.
    resets: u64,
    /// Counts the times at which all connections end after `bytes_left` more bytes of answers.
    truncations: u64,
    bytes_left: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    /// Bytes wait.
    Stalled,
    /// Bytes vanish, in both directions.
    Silent,
}

/// The network of one replica.
pub(crate) struct Link {
    replica: usize,
    run: AtomicU32,
    journal: Arc<Journal>,
    weather: watch::Sender<Weather>,
    /// The last stall: its begin and end.
    stall: Mutex<Option<(Instant, Option<Instant>)>>,
    rules: Mutex<Vec<RequestRule>>,
    watches: watch::Sender<WatchWeather>,
    upstream: Upstream,
}

impl Link {
    /// The process that connects from now on.
    pub(crate) fn begin_run(&self, run: u32) {
        self.run.store(run, Ordering::Release);
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation {
            replica: self.replica,
            run: self.run.load(Ordering::Acquire),
        }
    }

    pub(crate) fn stall(&self) {
        *self.lock_stall() = Some((Instant::now(), None));
        self.weather.send_modify(|it| it.gate = Gate::Stalled);
    }

    pub(crate) fn go_silent(&self) {
        self.weather.send_modify(|it| it.gate = Gate::Silent);
    }

    /// Ends a stall, or a silence: a connection that lost bytes cannot go on.
    pub(crate) fn open(&self) {
        if let Some((_, end)) = &mut *self.lock_stall() {
            *end = Some(Instant::now());
        }
        self.weather.send_modify(|it| {
            if it.gate == Gate::Silent {
                it.resets += 1;
            }
            it.gate = Gate::Open;
        });
    }

    pub(crate) fn reset(&self) {
        self.weather.send_modify(|it| it.resets += 1);
    }

    pub(crate) fn truncate(&self, bytes_left: usize) {
        self.weather.send_modify(|it| {
            it.truncations += 1;
            it.bytes_left = bytes_left;
        });
    }

    pub(crate) fn add_rule(&self, rule: RequestRule) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        rules.retain(|rule| rule.until > now);
        rules.push(rule);
    }

    pub(crate) fn hold_events(&self, hold: EventHold) {
        self.watches.send_modify(|it| {
            // A takeover keeps its late watches.
            if !it.hold.is_some_and(|it| it.is_whole(Instant::now())) {
                it.hold = Some(hold);
            }
        });
    }

    pub(crate) fn drop_events(&self) {
        self.watches.send_modify(|it| it.dropping = true);
    }

    /// Ends all watches.
    pub(crate) fn end_watches(&self, end: WatchEnd) {
        self.watches.send_modify(|it| {
            it.dropping = false;
            it.ends += 1;
            it.end = end;
        });
    }

    /// When a request that arrives now was sent, at the earliest.
    fn sent_at(&self) -> Micros {
        let now = Instant::now();
        let earliest = match *self.lock_stall() {
            Some((begin, None)) => begin,
            Some((begin, Some(end))) if end + AFTER_STALL > now => begin,
            _ => now,
        };
        self.journal.at(earliest)
    }

    fn lock_stall(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Option<Instant>)>> {
        self.stall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server side of all links.
pub(crate) struct ChaosProxy {
    pub(crate) links: [Arc<Link>; 2],
    pub(crate) addresses: [SocketAddr; 2],
    /// The authority that signed the proxy's certificate.
    pub(crate) authority_pem: String,
}

impl ChaosProxy {
    /// Listens once per replica. Must be called inside a runtime.
    pub(crate) async fn start(
        journal: &Arc<Journal>,
        server: &str,
        server_authority_pem: &str,
        expired_tokens: [String; 2],
    ) -> Result<Self> {
        let (authority_pem, acceptor) = serving()?;
        let mut started = Vec::new();
        for (replica, expired_token) in expired_tokens.into_iter().enumerate() {
            let link = Arc::new(Link {
                replica,
                run: AtomicU32::new(0),
                journal: journal.clone(),
                weather: watch::Sender::default(),
                stall: Mutex::default(),
                rules: Mutex::default(),
                watches: watch::Sender::default(),
                upstream: Upstream::new(server, server_authority_pem, expired_token)?,
            });
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            tokio::spawn(accept(listener, link.clone(), acceptor.clone()));
            started.push((link, address));
        }
        let [(first, a), (second, b)]: [_; 2] = started
            .try_into()
            .map_err(|_| anyhow::anyhow!("there are two replicas"))?;
        Ok(Self {
            links: [first, second],
            addresses: [a, b],
            authority_pem,
        })
    }
}

/// A certificate for loopback, and its authority.
fn serving() -> Result<(String, TlsAcceptor)> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    let name = &mut authority.distinguished_name;
    name.push(DnType::CommonName, "tidepool-chaos");
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let chain = vec![CertificateDer::from_pem_slice(leaf.pem().as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("rustls refuses the certificate of the proxy")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((authority_pem, TlsAcceptor::from(Arc::new(config))))
}

async fn accept(listener: TcpListener, link: Arc<Link>, acceptor: TlsAcceptor) {
    loop {
        // A connection that broke before it was accepted is none.
        if let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(connection(socket, link.clone(), acceptor.clone()));
        }
    }
}

/// Passes the bytes of one connection until it ends.
async fn connection(socket: TcpStream, link: Arc<Link>, acceptor: TlsAcceptor) {
    // Latency only.
    let _ = socket.set_nodelay(true);
    let (inner, outer) = tokio::io::duplex(PIPE);
    let server = tokio::spawn(serve(inner, link.clone(), acceptor));
    let begun = *link.weather.borrow();
    let mut weather = link.weather.subscribe();
    let (mut from_client, mut to_client) = socket.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(outer);
    let broken = tokio::select! {
        _ = pump(&mut from_client, &mut to_server, &link, None) => false,
        end = pump(&mut from_server, &mut to_client, &link, Some(begun.truncations)) => {
            matches!(end, Ok(PumpEnd::Truncated))
        }
        _ = weather.wait_for(|it| it.resets != begun.resets) => {
            link.journal.hit(FaultKind::Reset);
            true
        }
    };
    server.abort();
    if broken {
        // The peer gets a reset instead of an orderly end.
        let _ = to_client.as_ref().set_zero_linger();
        to_client.forget();
    }
}

enum PumpEnd {
    Closed,
    Truncated,
}

/// Passes bytes in one direction. `truncations` is given for answers, as it was when the connection began.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    link: &Link,
    truncations: Option<u64>,
) -> std::io::Result<PumpEnd> {
    let mut weather = link.weather.subscribe();
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(PumpEnd::Closed);
        }
        if weather.borrow().gate == Gate::Stalled {
            link.journal.hit(FaultKind::Stall);
        }
        let now = match weather.wait_for(|it| it.gate != Gate::Stalled).await {
            Ok(now) => *now,
            Err(_) => return Ok(PumpEnd::Closed),
        };
        if now.gate == Gate::Silent {
            link.journal.hit(FaultKind::HalfOpen);
            continue;
        }
        if truncations.is_some_and(|before| before != now.truncations) {
            to.write_all(&chunk[..count.min(now.bytes_left)]).await?;
            link.journal.hit(FaultKind::Truncate);
            return Ok(PumpEnd::Truncated);
        }
        to.write_all(&chunk[..count]).await?;
    }
}

/// Ends TLS and HTTP behind the pipe.
async fn serve(pipe: DuplexStream, link: Arc<Link>, acceptor: TlsAcceptor) {
    let Ok(stream) = acceptor.accept(pipe).await else {
        return;
    };
    let by = link.incarnation();
    let service = hyper::service::service_fn(move |request| {
        let link = link.clone();
        async move { exchange::forward(link, by, request).await }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    // A connection that breaks is what this is about.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
