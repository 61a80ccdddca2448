//! An API server, or the network before it, that is silent instead of failing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::http::Role;
use apiserver::{ServeOptions, Serving};
use bytes::Bytes;
use control_plane::client::Connect;
use control_plane::scheduler::{Options, Running};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::{BoxError, ServiceExt};

use crate::election::{becomes, candidate};
use crate::http::{any_port, send_to};
use crate::support::{Fixture, NAMESPACE, eventually, options};

const SECOND: Duration = Duration::from_secs(1);

/// Forwards connections, until told otherwise.
struct Proxy {
    address: SocketAddr,
    /// New connections get no answer.
    silent: Arc<AtomicBool>,
    /// Connections of before are frozen: they stay open, and nothing is forwarded any more.
    freeze: watch::Sender<()>,
}

impl Proxy {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            silent: Arc::default(),
            freeze: watch::Sender::new(()),
        };
        let (silent, freeze) = (proxy.silent.clone(), proxy.freeze.clone());
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (silent, mut frozen) = (silent.load(Ordering::SeqCst), freeze.subscribe());
                tokio::spawn(async move {
                    if silent {
                        return std::future::pending().await;
                    }
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let forward = tokio::io::copy_bidirectional(&mut client, &mut server);
                    tokio::select! {
                        _ = forward => {}
                        _ = frozen.changed() => std::future::pending().await,
                    }
                });
            }
        });
        proxy
    }

    fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    fn freeze(&self) {
        self.freeze.send_replace(());
    }
}

/// A cluster that is served over TLS, behind a proxy.
struct Remote {
    fixture: Fixture,
    proxy: Proxy,
    serving: Serving,
}

impl Remote {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        fixture.add_node("node", "8", 110).await;
        let serving = fixture
            .cluster
            .serve(ServeOptions::default())
            .await
            .unwrap();
        let proxy = Proxy::start(serving.address()).await;
        Self {
            fixture,
            proxy,
            serving,
        }
    }

    async fn start(&self, mut options: Options) -> Running {
        let kubeconfig = self.serving.kubeconfig("admin").unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let all = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &all).await;
        let mut config = config.unwrap();
        config.cluster_url = format!("https://{}", self.proxy.address).parse().unwrap();
        options.serve = Some(any_port());
        Running::start(Connect::Config(Box::new(config)), options).unwrap()
    }
}

/// Returns after how long `/readyz` has this status code.
async fn ready_is(running: &Running, code: u16) -> Duration {
    let begun = Instant::now();
    let address = running.server().unwrap();
    eventually(&format!("/readyz is {code}"), || async {
        match send_to(address, "GET", "/readyz", "").await {
            (found, _) if found == code => Ok(()),
            answer => Err(answer),
        }
    })
    .await;
    begun.elapsed()
}

/// A candidate with the default times, so that the Lease must be renewed every 10 s.
fn default_candidate() -> Options {
    let mut options = candidate("a");
    let election = options.election.as_mut().unwrap();
    election.lease_duration = 15 * SECOND;
    election.renew_deadline = 10 * SECOND;
    election.retry_period = 2 * SECOND;
    options
}

/// All connections freeze, and new ones work.
async fn frozen_connections_are_replaced() {
    let remote = Remote::new().await;
    let running = remote.start(default_candidate()).await;
    becomes(&running, Role::Leader).await;
    remote.fixture.add_pod("before", "1").await;
    remote.fixture.all_placed(1).await;
    remote.proxy.freeze();
    let begun = Instant::now();
    remote.fixture.add_pod("meanwhile", "1").await;
    remote.fixture.all_placed(2).await;
    let took = begun.elapsed();
    assert!(took < 30 * SECOND, "it took {took:?}");
    assert_eq!(running.handle().status().role, Role::Leader);
    running.stop().await;
}

/// The server is gone without a word, and comes back.
async fn dead_watches_are_noticed() {
    let remote = Remote::new().await;
    let running = remote.start(options()).await;
    ready_is(&running, 200).await;
    remote.proxy.set_silent(true);
    remote.proxy.freeze();
    remote.fixture.add_pod("meanwhile", "1").await;
    let noticed = ready_is(&running, 500).await;
    assert!(noticed < 30 * SECOND, "/readyz failed after {noticed:?}");
    remote.proxy.set_silent(false);
    let begun = Instant::now();
    let ready = ready_is(&running, 200).await;
    remote.fixture.all_placed(1).await;
    let took = begun.elapsed();
    assert!(
        took < 15 * SECOND,
        "ready after {ready:?}, bound after {took:?}"
    );
    running.stop().await;
}

/// At the start the server accepts connections and stays silent for 12 s.
async fn a_silent_start_is_survived() {
    let remote = Remote::new().await;
    remote.proxy.set_silent(true);
    remote.fixture.add_pod("pod", "1").await;
    let running = remote.start(default_candidate()).await;
    tokio::time::sleep(12 * SECOND).await;
    remote.proxy.set_silent(false);
    let begun = Instant::now();
    remote.fixture.all_placed(1).await;
    ready_is(&running, 200).await;
    let took = begun.elapsed();
    assert!(took < 15 * SECOND, "it took {took:?}");
    running.stop().await;
}

/// Each waits most of the time, so they run at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_network_is_noticed_and_survived() {
    tokio::join!(
        frozen_connections_are_replaced(),
        dead_watches_are_noticed(),
        a_silent_start_is_survived(),
    );
}

/// How a server treats the requests for one kind.
#[derive(Clone, Copy)]
enum Silence {
    /// 404, and a body that never comes.
    NoBody,
    /// The first request gets no answer.
    First,
    All,
}

/// A client whose requests for these kinds get no complete answer.
fn silent_about(fixture: &Fixture, kinds: &'static [(&'static str, Silence)]) -> Client {
    let service = fixture.cluster.service();
    let asked = Arc::new(AtomicBool::new(false));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, asked) = (service.clone(), asked.clone());
        async move {
            let path = request.uri().path();
            let silence = kinds.iter().find(|(kind, _)| path.ends_with(kind));
            match silence.map(|(_, silence)| silence) {
                Some(Silence::NoBody) => {
                    let never = futures::stream::pending::<Result<Frame<Bytes>, BoxError>>();
                    let mut answer = Response::new(StreamBody::new(never).boxed_unsync());
                    *answer.status_mut() = StatusCode::NOT_FOUND;
                    return Ok(answer);
                }
                Some(Silence::First) if !asked.swap(true, Ordering::SeqCst) => {
                    std::future::pending().await
                }
                Some(Silence::All) => std::future::pending().await,
                Some(Silence::First) | None => {}
            }
            let answer = service.oneshot(request).await?;
            let answer = answer.map(|body| body.map_err(BoxError::from).boxed_unsync());
            Ok::<_, BoxError>(answer)
        }
    });
    Client::new(service, NAMESPACE)
}

/// Returns when a pod is bound.
async fn binds_within(silences: &'static [(&'static str, Silence)], most: Duration) -> Running {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    fixture.add_pod("pod", "1").await;
    let client = silent_about(&fixture, silences);
    // The fence asks for each kind, too.
    let running = Running::start(Connect::Client(client), default_candidate()).unwrap();
    let begun = Instant::now();
    fixture.all_placed(1).await;
    assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
    running
}

fn trouble(running: &Running, kind: &str) -> Option<String> {
    let mut watches = running.handle().status().watches.into_iter();
    watches.find(|watch| watch.kind == kind)?.trouble
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_kinds_without_an_answer_do_not_delay_the_start() {
    const KINDS: &[(&str, Silence)] = &[
        ("customnoderesources", Silence::NoBody),
        ("resourcepolicies", Silence::All),
        ("priorityclasses", Silence::All),
    ];
    let running = binds_within(KINDS, 20 * SECOND).await;
    assert_eq!(trouble(&running, "customnoderesources"), None);
    let text = trouble(&running, "resourcepolicies").unwrap();
    assert_eq!(text, "the first list is not complete after 5s");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_kind_without_an_answer_is_named_and_listed_again() {
    const KINDS: &[(&str, Silence)] = &[("nodes", Silence::First)];
    let fixture = Fixture::new().await;
    let client = silent_about(&fixture, &[("nodes", Silence::All)]);
    let running = Running::start(Connect::Client(client), options()).unwrap();
    let begun = Instant::now();
    eventually("the kind is named", || async {
        let status = running.handle().status();
        match trouble(&running, "nodes") {
            Some(text) if text.contains("not complete after 5s") => Ok(()),
            text => Err((text, status.deciding)),
        }
    })
    .await;
    assert!(begun.elapsed() < 10 * SECOND, "{:?}", begun.elapsed());
    assert!(!running.handle().status().deciding);
    running.stop().await;
    // The first request is given up after 15 s, and the objects are listed in pages.
    binds_within(KINDS, 30 * SECOND).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_watches_gives_the_lease_up() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    let mut options = candidate("a");
    options.election.as_mut().unwrap().sync_deadline = 2 * SECOND;
    let client = silent_about(&fixture, &[("nodes", Silence::All)]);
    let first = Running::start(Connect::Client(client), options).unwrap();
    becomes(&first, Role::CatchingUp).await;
    let second = fixture.start(candidate("b")).unwrap();
    becomes(&second, Role::Leader).await;
    becomes(&first, Role::Standby).await;
    fixture.add_pod("pod", "1").await;
    fixture.all_placed(1).await;
    // It does not take the Lease again: it cannot use it.
    let notes: Vec<String> = fixture.events().await.into_iter().map(|it| it.2).collect();
    let count = |note: &str| notes.iter().filter(|it| *it == note).count();
    let counts = (count("a became leader"), count("a stopped leading"));
    assert_eq!(counts, (1, 1), "{notes:?}");
    first.stop().await;
    second.stop().await;
}

/// An API server behind a proxy that speaks HTTP/1.0: every answer ends with its connection.
async fn old_proxy(fixture: &Fixture) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = fixture.cluster.service();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let mut lines = head.lines();
                let mut wish = lines.next().unwrap().split(' ');
                let mut request = Request::builder();
                request = request
                    .method(wish.next().unwrap())
                    .uri(wish.next().unwrap());
                let mut length = 0;
                for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
                    if name.eq_ignore_ascii_case("content-length") {
                        length = value.parse().unwrap();
                    }
                    request = request.header(name, value);
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).await.unwrap();
                let answer = service.oneshot(request.body(Body::from(body)).unwrap());
                let (head, mut body) = answer.await.unwrap().into_parts();
                let mut text = format!("HTTP/1.0 {}\r\n", head.status);
                for (name, value) in &head.headers {
                    text += &format!("{name}: {}\r\n", value.to_str().unwrap());
                }
                let stream = stream.get_mut();
                let mut sent = stream.write_all(format!("{text}\r\n").as_bytes()).await;
                while sent.is_ok()
                    && let Some(Ok(frame)) = body.frame().await
                {
                    let data = frame.into_data().unwrap_or_default();
                    sent = stream.write_all(&data).await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_speaks_http_1_0_is_enough() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    let server = format!("http://{}", old_proxy(&fixture).await);
    let config = Config::new(server.parse().unwrap());
    let connect = Connect::Config(Box::new(config));
    let running = Running::start(connect, candidate("a")).unwrap();
    becomes(&running, Role::Leader).await;
    for name in ["a", "b", "c"] {
        fixture.add_pod(name, "1").await;
    }
    fixture.all_placed(3).await;
    running.stop().await;
}
