//! `tidepool webhook` and `tidepool gate`: what they say about their Secret, their clock, and an API server that is silent.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{CONNECTION, DATE, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{PATIENCE, Up, client, tidepool};

const NAMESPACE: &str = "tidepool-system";
/// The component, and the name of its Secret.
const COMPONENTS: [(&str, &str); 2] = [("webhook", "tidepool-webhook"), ("gate", "tidepool-gate")];

/// A replica, killed when the test ends.
struct Replica {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Replica {
    fn start(component: &str, kubeconfig: &Path, flags: &[&str]) -> Self {
        let mut command = tidepool(&[component, "--webhook-address=127.0.0.1"]);
        command.args([
            "--webhook-port=0",
            "--webhook-host=127.0.0.1",
            "--shutdown-delay=0s",
            "--certificate-check-interval=100ms",
        ]);
        if component == "gate" {
            command.args(["--leader-elect=false", "--advertise-address=192.0.2.7"]);
        }
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log: Arc<Mutex<String>> = Arc::default();
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut lines = lines.lock().unwrap();
                lines.push_str(&line);
                lines.push('\n');
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until its log has these words so many times.
    async fn says(&self, words: &str, times: usize) {
        // A failure that goes on is logged again after a minute.
        let deadline = Instant::now() + 2 * PATIENCE;
        while self.log().matches(words).count() < times {
            assert!(Instant::now() < deadline, "no {words}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until `/readyz` answers so.
    async fn readyz(&self, code: u16, words: &str) {
        self.says("serving on http://", 1).await;
        let log = self.log();
        let (_, address) = log.split_once("serving on http://").unwrap();
        let address = address.lines().next().unwrap().trim();
        let address = address.replace("0.0.0.0", "127.0.0.1");
        let server = format!("http://{address}").parse().unwrap();
        let client = Client::try_from(kube::Config::new(server)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = Request::get("/readyz").body(Body::empty()).unwrap();
            let answer = client.send(request).await.unwrap();
            let found = answer.status().as_u16();
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&text);
            if found == code && text.contains(words) {
                return;
            }
            let log = self.log();
            assert!(
                Instant::now() < deadline,
                "{found} {text} instead of {code} {words}: {log}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Cluster {
    up: Up,
    directory: tempfile::TempDir,
    secrets: Api<Secret>,
}

impl Cluster {
    /// With a Secret without data for each component.
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let up = Up::start(&["--empty", "--kubeconfig-out", path.to_str().unwrap()]);
        let cluster = Self {
            up,
            secrets: Api::namespaced(client(&path).await, NAMESPACE),
            directory,
        };
        for (_, secret) in COMPONENTS {
            cluster.create_secret(secret).await;
        }
        cluster
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        self.directory.path().join("kubeconfig")
    }

    async fn create_secret(&self, name: &str) {
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let deadline = Instant::now() + PATIENCE;
        // `up` creates the namespace when it has started.
        while let Err(error) = self.secrets.create(&PostParams::default(), &secret).await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn revision(&self, name: &str) -> Option<String> {
        let secret = self.secrets.get(name).await.unwrap();
        secret.metadata.resource_version
    }

    /// A kubeconfig for an address where the API server's clock is so many seconds behind.
    async fn with_clock(&self, ahead: &Arc<AtomicI64>) -> std::path::PathBuf {
        let client = client(&self.kubeconfig()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let ahead = ahead.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (client, ahead) = (client.clone(), ahead.clone());
                let service = hyper::service::service_fn(move |request| {
                    forward(client.clone(), ahead.clone(), request)
                });
                let connection = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .into_owned();
                // It fails when the component is killed.
                tokio::spawn(async { drop(connection.await) });
            }
        });
        let path = self.directory.path().join("kubeconfig-with-clock");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

async fn forward(
    client: Client,
    ahead: Arc<AtomicI64>,
    request: Request<Incoming>,
) -> Result<Response<Body>, kube::Error> {
    let (mut head, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|it| kube::Error::Service(it.into()))?;
    // They are about the connection to the component.
    for header in [HOST, CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(header);
    }
    let body = Body::from(body.to_bytes().to_vec());
    let mut response = client.send(Request::from_parts(head, body)).await?;
    let headers = response.headers_mut();
    for header in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(header);
    }
    let now = jiff::Timestamp::now().as_second() - ahead.load(Ordering::Relaxed);
    let now = jiff::Timestamp::from_second(now).unwrap();
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert(DATE, HeaderValue::from_str(&date).unwrap());
    Ok(response)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_secret_is_named_in_log_and_readyz() {
    let cluster = Cluster::start().await;
    for (component, secret) in COMPONENTS {
        let first = Replica::start(component, &cluster.kubeconfig(), &[]);
        first.readyz(200, "ok").await;
        let delete = DeleteParams::default();
        cluster.secrets.delete(secret, &delete).await.unwrap();
        let missing = format!(
            "Secret {NAMESPACE}/{secret} does not exist; restore it with `kubectl create secret generic {secret} -n {NAMESPACE}`"
        );
        first.says(&missing, 1).await;
        // What it serves is good without the Secret; a new replica has nothing to serve.
        first.readyz(200, &missing).await;
        let second = Replica::start(component, &cluster.kubeconfig(), &[]);
        second.readyz(500, &missing).await;
        cluster.create_secret(secret).await;
        for replica in [first, second] {
            replica.says("is kept up to date again", 1).await;
            replica.readyz(200, "ok").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_is_in_log_and_readyz_and_writes_nothing() {
    let cluster = Cluster::start().await;
    let ahead: Arc<AtomicI64> = Arc::default();
    let kubeconfig = cluster.with_clock(&ahead).await;
    for ((component, secret), seconds, says) in [
        (
            COMPONENTS[0],
            400,
            "is 6 minutes ahead of that of the API server",
        ),
        (
            COMPONENTS[1],
            -7230,
            "is 120 minutes behind that of the API server",
        ),
    ] {
        // With the right clock it would write again and again.
        let flags = ["--certificate-renewal=200ms"];
        let replica = Replica::start(component, &kubeconfig, &flags);
        replica.readyz(200, "ok").await;
        ahead.store(seconds, Ordering::Relaxed);
        replica.says(says, 1).await;
        replica.readyz(500, says).await;
        let before = cluster.revision(secret).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(cluster.revision(secret).await, before, "{component}");
        replica.readyz(500, says).await;
        ahead.store(0, Ordering::Relaxed);
        replica.readyz(200, "ok").await;
        let deadline = Instant::now() + PATIENCE;
        while cluster.revision(secret).await == before {
            assert!(Instant::now() < deadline, "{component} writes no more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Its process is stopped: connections stay open, and the kernel accepts new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_api_server_is_in_the_log_of_the_webhook() {
    let cluster = Cluster::start().await;
    let webhook = Replica::start("webhook", &cluster.kubeconfig(), &[]);
    webhook.readyz(200, "ok").await;
    cluster.up.send("-STOP");
    webhook
        .says("cannot keep the certificate up to date", 1)
        .await;
    webhook
        .says("cannot watch; retrying kind=ConfigMap", 1)
        .await;
    // Another reason, when connections fail, is one line more.
    if std::env::var_os("TIDEPOOL_FULL").is_some() {
        webhook
            .says("cannot keep the certificate up to date", 3)
            .await;
        webhook
            .says("cannot watch; retrying kind=ConfigMap", 2)
            .await;
    }
}
