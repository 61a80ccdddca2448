//! Clients that occupy connections, flood the server with tokens, or send what never ends: others are served all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control_plane::serve::{Serve, TlsFiles};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http::{any_port, get, parse, ready, send_to, serving};
use crate::support::{Fixture, Reviews, eventually, options};

/// A scheduler that serves TLS on loopback.
struct Secure {
    fixture: Fixture,
    reviews: Reviews,
    certificate: rcgen::Certificate,
    _directory: tempfile::TempDir,
}

impl Secure {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let files = TlsFiles {
            certificate: directory.path().join("tls.crt"),
            key: directory.path().join("tls.key"),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let mut fixture = Fixture::new().await;
        let mut options = options();
        options.serve = Some(Serve {
            tls: Some(files),
            ..any_port()
        });
        let reviews = Reviews::default();
        fixture.schedule_by(reviews.wrap(&fixture), options);
        let server = Self {
            fixture,
            reviews,
            certificate,
            _directory: directory,
        };
        let client = server.client(&[]);
        eventually("it is ready", || async {
            match client.get("/readyz", "").await {
                (200, _) => Ok(()),
                answer => Err(answer),
            }
        })
        .await;
        server
    }

    /// A client that offers these protocols.
    fn client(&self, protocols: &[&str]) -> TlsClient {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        TlsClient {
            connector: TlsConnector::from(Arc::new(config)),
            address: self.fixture.server(),
        }
    }
}

#[derive(Clone)]
struct TlsClient {
    connector: TlsConnector,
    address: std::net::SocketAddr,
}

impl TlsClient {
    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = "localhost".try_into().unwrap();
        self.connector.connect(name, stream).await
    }

    /// On a connection of its own, as a probe of the kubelet.
    async fn get(&self, path: &str, token: &str) -> (u16, String) {
        self.head(&format!(
            "GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        ))
        .await
    }

    /// The answer to this head; (0, "") if the server closes the connection.
    async fn head(&self, head: &str) -> (u16, String) {
        let mut answer = Vec::new();
        if let Ok(stream) = self.connect().await {
            let (mut read, mut write) = tokio::io::split(stream);
            // The server may answer before it has read everything, and closes without a goodbye.
            let _ = tokio::join!(
                write.write_all(head.as_bytes()),
                read.read_to_end(&mut answer)
            );
        }
        match &*String::from_utf8(answer).unwrap() {
            "" => (0, String::new()),
            answer => parse(answer),
        }
    }

    /// Keeps a connection busy with a health check every 3 s, and connects again if it is closed.
    async fn keep_alive(self) {
        loop {
            if let Ok(mut stream) = self.connect().await {
                let request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
                let mut answer = [0; 1_000];
                while stream.write_all(request).await.is_ok()
                    && stream.read(&mut answer).await.is_ok_and(|read| read > 0)
                {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Sends nothing.
    async fn silent(self) {
        if let Ok(mut stream) = TcpStream::connect(self.address).await {
            let _ = stream.read(&mut [0]).await;
        }
    }

    /// Begins the head of an HTTP/2 request and does not end it.
    async fn half_request(self, turns: Arc<Semaphore>) {
        // So many clients do not share two processors with their server.
        let turn = turns.acquire_owned().await;
        let Ok(mut stream) = self.connect().await else {
            return;
        };
        drop(turn);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        // One header of stream 1, and more to come.
        let headers = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82];
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
        let begin = [preface, &settings, &headers].concat();
        if stream.write_all(&begin).await.is_ok() {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}

/// How much too late a thread wakes up at worst, because the machine is busy with other programs.
struct Lag(Arc<(AtomicBool, AtomicU64)>);

impl Lag {
    fn measure() -> Self {
        let shared = Arc::<(AtomicBool, AtomicU64)>::default();
        let measured = shared.clone();
        std::thread::spawn(move || {
            let pause = Duration::from_millis(5);
            while !measured.0.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(pause);
                let late = begun.elapsed().saturating_sub(pause).as_micros() as u64;
                measured.1.fetch_max(late, Ordering::Relaxed);
            }
        });
        Self(shared)
    }

    fn worst(&self) -> Duration {
        Duration::from_micros(self.0.1.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A request and its handshake wait for other threads so often.
const HANDOVERS: u32 = 10;

/// While these run, every check is answered within a second of the machine's time for us.
async fn is_served(server: &Secure, attack: &str, attackers: &mut JoinSet<()>) {
    let client = server.client(&[]);
    let lag = Lag::measure();
    let end = Instant::now() + Duration::from_secs(4);
    let mut slowest = Duration::ZERO;
    while Instant::now() < end {
        for (path, token) in [("/livez", ""), ("/readyz", ""), ("/metrics", "reader")] {
            let begun = Instant::now();
            let (code, body) = client.get(path, token).await;
            assert_eq!(code, 200, "{attack}: {path}: {body}");
            slowest = slowest.max(begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (second, lag) = (Duration::from_secs(1), lag.worst());
    let text = format!("{attack}: {slowest:?}, threads lag {lag:?}");
    assert!(slowest < second + HANDOVERS * lag, "{text}");
    attackers.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_checks_and_metrics_survive_attacks() {
    let mut server = Secure::start().await;
    let client = server.client(&[]);
    let mut attackers = JoinSet::new();
    for _ in 0..100 {
        attackers.spawn(client.clone().keep_alive());
    }
    is_served(&server, "idle connections", &mut attackers).await;

    for _ in 0..2_000 {
        attackers.spawn(client.clone().silent());
    }
    is_served(&server, "silent connections", &mut attackers).await;

    let client = server.client(&["h2"]);
    let turns = Arc::new(Semaphore::new(16));
    for _ in 0..1_000 {
        attackers.spawn(client.clone().half_request(turns.clone()));
    }
    is_served(&server, "half requests", &mut attackers).await;
    server.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_authentication_are_closed_when_idle() {
    let mut server = Secure::start().await;
    let client = server.client(&[]);
    let silent = TcpStream::connect(client.address).await.unwrap();
    let (mut idle, mut known) = (
        client.connect().await.unwrap(),
        client.connect().await.unwrap(),
    );
    let mut answer = [0; 10_000];
    for (stream, request) in [
        (&mut idle, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"),
        (
            &mut known,
            "GET /debug/scores HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n",
        ),
    ] {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(stream.read(&mut answer).await.unwrap() > 0);
    }
    let mut streams = (silent, idle);
    let begun = Instant::now();
    let ends = async {
        let mut byte = [0];
        let _ = streams.0.read(&mut byte).await;
        let _ = streams.1.read(&mut byte).await;
    };
    tokio::time::timeout(Duration::from_secs(20), ends)
        .await
        .unwrap();
    assert!(begun.elapsed() > Duration::from_secs(4));
    let request = b"GET /debug/scores HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n";
    known.write_all(request).await.unwrap();
    let read = known.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    server.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_reviews_are_cached_and_limited() {
    let mut server = Secure::start().await;
    let client = server.client(&[]);
    assert_eq!(client.get("/metrics", "reader").await.0, 200);
    let before = server.reviews.counts().0;
    for _ in 0..20 {
        assert_eq!(client.get("/metrics", "stranger").await.0, 401);
    }
    assert_eq!(server.reviews.counts().0, before + 1);

    let (begun, before) = (Instant::now(), server.reviews.counts().0);
    let mut requests = JoinSet::new();
    for number in 0..400 {
        let client = client.clone();
        requests.spawn(async move { client.get("/metrics", &format!("x{number}")).await });
    }
    let mut refused = 0;
    while let Some(answer) = requests.join_next().await {
        let (code, body) = answer.unwrap();
        // Some connections are closed: there are too many.
        assert!([0, 401, 429].contains(&code), "{code} {body}");
        if code == 429 {
            refused += 1;
            assert!(body.contains("\"tooManyRequests\""), "{body}");
        }
    }
    let (reviews, seconds) = (
        server.reviews.counts().0 - before,
        begun.elapsed().as_secs(),
    );
    assert!(refused > 0);
    assert!(
        reviews as u64 <= 20 * (seconds + 1),
        "{reviews} in {seconds} s"
    );
    // A caller that is known is not affected.
    assert_eq!(client.get("/metrics", "reader").await.0, 200);
    server.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_long_are_refused() {
    let mut server = Secure::start().await;
    let long = "x".repeat(1 << 20);
    let tokens = [("a token", 17 << 10, 401), ("a long token", 1 << 20, 431)];
    for protocols in [&[][..], &["http/1.1"]] {
        let client = server.client(protocols);
        for (case, length, want) in tokens {
            let (code, body) = client.get("/metrics", &long[..length]).await;
            // The server may close the connection before the client has read the answer.
            assert!(
                code == want || (code, want) == (0, 431),
                "{case}: {code} {body}"
            );
        }
        let head = format!("GET /livez HTTP/1.1\r\nX: {long}\r\nConnection: close\r\n\r\n");
        let (code, body) = client.head(&head).await;
        assert!([0, 431].contains(&code), "{code} {body}");
    }
    assert_eq!(server.client(&[]).get("/metrics", "reader").await.0, 200);
    server.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_without_end_are_cut_off() {
    let mut fixture = serving().await;
    ready(&fixture).await;
    // Sends a piece every so often, and returns the answer and when the server closed the connection.
    let address = fixture.server();
    let send = async |wish: &str, piece: &[u8], pause: Duration| {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let head =
            format!("{wish} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
        write.write_all(head.as_bytes()).await.unwrap();
        let piece = piece.to_vec();
        let writes = async move {
            while write.write_all(&piece).await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        };
        let mut answer = Vec::new();
        let reads = async {
            let _ = read.read_to_end(&mut answer).await;
        };
        let ends = async {
            tokio::select! {
                () = writes => {}
                () = reads => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ends)
            .await
            .unwrap();
        String::from_utf8(answer).unwrap()
    };
    let second = Duration::from_secs(1);
    let large = [b"100\r\n".as_slice(), &[b'1'; 256], b"\r\n"].concat();
    let (fast, slow, get) = tokio::join!(
        send("PUT /debug/flags/s", &large, second / 100),
        send("PUT /debug/flags/s", b"1\r\n1\r\n", second),
        send("GET /livez", b"1\r\n1\r\n", second / 10),
    );
    assert!(
        fast.starts_with("HTTP/1.1 400") && fast.contains("too long"),
        "{fast}"
    );
    assert!(
        slow.starts_with("HTTP/1.1 400") && slow.contains("incomplete"),
        "{slow}"
    );
    assert!(get.starts_with("HTTP/1.1 200"), "{get}");
    assert_eq!(get_code(&fixture, "/livez").await, 200);
    fixture.stop().await;
}

async fn get_code(fixture: &Fixture, path: &str) -> u16 {
    get(fixture, path).await.0
}

/// As a browser sends them for a page of another site whose name leads to this machine.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_sites_are_refused_on_loopback() {
    let mut fixture = serving().await;
    ready(&fixture).await;
    let address = fixture.server();
    let port = address.port();
    let send = async |wish: &str, headers: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{wish} HTTP/1.0\r\n{headers}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        parse(&answer)
    };
    let wishes = [
        "GET /metrics",
        "GET /configz",
        "GET /debug/cache",
        "PUT /debug/scores?top=3",
        "GET /tidepool/v1/status",
        "GET /livez",
    ];
    for wish in wishes {
        for headers in [
            "Host: evil.example.com".to_owned(),
            format!("Host: evil.example.com:{port}"),
            format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example.com"),
            "Host: localhost\r\nOrigin: null".to_owned(),
        ] {
            let (code, body) = send(wish, &headers).await;
            assert_eq!(code, 403, "{wish} {headers}: {body}");
            assert!(body.contains("is not allowed: use localhost"), "{body}");
        }
        for headers in [
            format!("Host: 127.0.0.1:{port}"),
            "Host: localhost".to_owned(),
            "Host: [::1]:1".to_owned(),
            format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}"),
            // HTTP/1.0 has none.
            "Accept: */*".to_owned(),
        ] {
            let (code, body) = send(wish, &headers).await;
            assert_eq!(code, 200, "{wish} {headers}: {body}");
        }
    }
    assert_eq!(send_to(address, "GET", "/livez", "").await.0, 200);
    fixture.stop().await;
}
