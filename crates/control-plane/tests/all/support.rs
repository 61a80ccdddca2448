//! A cluster and a scheduler for one test, and patience.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apiserver::Cluster;
use apiserver::faults::Faults;
use control_plane::client::Connect;
use control_plane::scheduler::{Options, Running, StartError};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const SCHEDULER: &str = "tidepool";

/// Measures time, without that in which a busy machine did not run a thread that was ready: no test may fail by load.
pub(crate) struct Stopwatch {
    begun: Instant,
    /// Microseconds.
    stood_still: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Stopwatch {
    /// How long the thread sleeps. One that is late by less ran at once.
    const STEP: Duration = Duration::from_millis(10);

    pub(crate) fn start() -> Self {
        let watch = Self {
            begun: Instant::now(),
            stood_still: Arc::default(),
            is_over: Arc::default(),
        };
        let (stood_still, is_over) = (watch.stood_still.clone(), watch.is_over.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(Self::STEP);
                let late = begun.elapsed().saturating_sub(Self::STEP);
                if late > Self::STEP {
                    stood_still.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
                }
            }
        });
        watch
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let stood_still = self.stood_still.load(Ordering::Relaxed);
        let all = self.begun.elapsed();
        all.saturating_sub(Duration::from_micros(stood_still))
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    pub(crate) faults: Faults,
    pub(crate) client: Client,
    scheduler: Option<Running>,
}

impl Fixture {
    /// A cluster without nodes; the scheduler is yet to be started.
    pub(crate) async fn new() -> Self {
        let cluster = Cluster::new(apiserver::Options::default());
        let client = Client::new(cluster.service(), NAMESPACE);
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        let account = object(json!({"metadata": {"name": "default"}}));
        accounts
            .create(&PostParams::default(), &account)
            .await
            .unwrap();
        Self {
            cluster,
            faults: Faults::new(),
            client,
            scheduler: None,
        }
    }

    /// Starts the scheduler; its requests meet the faults.
    pub(crate) fn schedule(&mut self) {
        let service = self.faults.wrap(self.cluster.service());
        self.schedule_with(Client::new(service, NAMESPACE));
    }

    pub(crate) fn schedule_with(&mut self, client: Client) {
        self.schedule_by(client, Options::with_defaults(SCHEDULER, "host").unwrap());
    }

    /// Every step of the engine is checked.
    pub(crate) fn schedule_by(&mut self, client: Client, mut options: Options) {
        options.settings.checks_itself = true;
        let running = Running::start(Connect::Client(client), options);
        self.scheduler = Some(running.unwrap());
    }

    /// The fixture's own scheduler.
    pub(crate) fn running(&self) -> &Running {
        self.scheduler.as_ref().unwrap()
    }

    /// Through the faults.
    pub(crate) fn faulty_client(&self) -> Client {
        Client::new(self.faults.wrap(self.cluster.service()), NAMESPACE)
    }

    pub(crate) fn schedule_with_options(&mut self, options: Options) {
        self.scheduler = Some(self.start(options).unwrap());
    }

    /// A scheduler that is not the fixture's own.
    pub(crate) fn start(&self, options: Options) -> Result<Running, StartError> {
        Running::start(Connect::Client(self.faulty_client()), options)
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.scheduler.as_ref().unwrap().server().unwrap()
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.stop().await;
        }
    }

    pub(crate) fn bound(&self) -> u64 {
        let counters = self.scheduler.as_ref().unwrap().counters();
        counters.bound.load(Ordering::Relaxed)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn add_node(&self, name: &str, cpu: &str, pods: u32) {
        let capacity = json!({"cpu": cpu, "memory": "64Gi", "pods": pods.to_string()});
        let node = json!({
            "metadata": {"name": name},
            "status": {"capacity": capacity, "allocatable": capacity},
        });
        self.nodes()
            .create(&PostParams::default(), &object(node))
            .await
            .unwrap();
        // The status of a new node is not taken from its creation everywhere; taints of new nodes are.
        let mut made = self.nodes().get(name).await.unwrap();
        made.spec.get_or_insert_default().taints = None;
        self.nodes()
            .replace(name, &PostParams::default(), &made)
            .await
            .unwrap();
    }

    pub(crate) async fn add_pod(&self, name: &str, cpu: &str) -> Pod {
        self.create_pod(pod(name, cpu)).await
    }

    /// A pod that others must make room for.
    pub(crate) async fn add_urgent_pod(&self, name: &str, cpu: &str) -> Pod {
        let classes: Api<PriorityClass> = Api::all(self.client.clone());
        let high = object(json!({"metadata": {"name": "high"}, "value": 1000}));
        classes.create(&PostParams::default(), &high).await.unwrap();
        let mut urgent = pod(name, cpu);
        urgent["spec"]["priorityClassName"] = "high".into();
        self.create_pod(urgent).await
    }

    pub(crate) async fn create_pod(&self, pod: Value) -> Pod {
        self.pods()
            .create(&PostParams::default(), &object(pod))
            .await
            .unwrap()
    }

    /// Pods by name with their nodes; none of those that wait.
    pub(crate) async fn placed(&self) -> BTreeMap<String, String> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
        let placed = pods
            .iter()
            .filter_map(|pod| Some((pod.name_any(), node(pod)?)));
        placed.collect()
    }

    /// Returns once so many pods have nodes.
    pub(crate) async fn all_placed(&self, count: usize) -> BTreeMap<String, String> {
        eventually(&format!("{count} pods are placed"), || async {
            let placed = self.placed().await;
            if placed.len() == count {
                Ok(placed)
            } else {
                Err(placed.len())
            }
        })
        .await
    }

    /// Events as (pod, reason, note), in order of time.
    pub(crate) async fn events(&self) -> Vec<(String, String, String)> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut events = api.list(&ListParams::default()).await.unwrap().items;
        events.sort_by_key(|event| event.event_time.clone());
        let event = |event: Event| {
            let pod = event.regarding.unwrap_or_default().name.unwrap_or_default();
            (
                pod,
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default(),
            )
        };
        events.into_iter().map(event).collect()
    }

    /// Ends pods that are being deleted, as a kubelet would.
    pub(crate) async fn kill(&self, pod: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &at_once).await.unwrap();
    }
}

pub(crate) fn options() -> Options {
    Options::with_defaults(SCHEDULER, "host").unwrap()
}

/// Answers reviews of callers, and counts them: `reader` may see `/metrics` and pods outside `secret`, `master` is in
/// system:masters.
#[derive(Clone, Default)]
pub(crate) struct Reviews(Arc<(AtomicUsize, AtomicUsize)>);

impl Reviews {
    /// (TokenReviews, SubjectAccessReviews) so far.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let get = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (get(&self.0.0), get(&self.0.1))
    }

    pub(crate) fn wrap(&self, fixture: &Fixture) -> Client {
        let (inner, this) = (fixture.client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, this) = (inner.clone(), this.clone());
            async move {
                let path = request.uri().path().to_owned();
                if !path.ends_with("reviews") {
                    return inner.send(request).await;
                }
                let body = request.into_body().collect().await?.to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let answer = json!({"status": this.answer(&path, &review["spec"])});
                Ok(http::Response::new(Body::from(
                    answer.to_string().into_bytes(),
                )))
            }
        });
        Client::new(service, NAMESPACE)
    }

    fn answer(&self, path: &str, spec: &Value) -> Value {
        if path.ends_with("tokenreviews") {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            return match spec["token"].as_str().unwrap() {
                "reader" => {
                    json!({"authenticated": true, "user": {"username": "reader", "groups": ["g"]}})
                }
                "master" => {
                    json!({"authenticated": true, "user": {"username": "m", "groups": ["system:masters"]}})
                }
                _ => json!({"authenticated": false}),
            };
        }
        self.0.1.fetch_add(1, Ordering::Relaxed);
        assert_eq!(spec["user"], "reader");
        // The groups of a token, or of a client certificate.
        let groups = [json!(["g"]), json!(["g", "system:authenticated"])];
        assert!(groups.contains(&spec["groups"]), "{spec}");
        let (path, verb) = (
            &spec["nonResourceAttributes"]["path"],
            &spec["nonResourceAttributes"]["verb"],
        );
        let pod = &spec["resourceAttributes"];
        let allowed = *path == "/metrics"
            || (*path == "/debug/scores" && *verb == "get")
            || path
                .as_str()
                .is_some_and(|path| path.starts_with("/tidepool/v1/pods/"))
            || (pod["resource"] == "pods" && pod["verb"] == "get" && pod["namespace"] == "default");
        json!({"allowed": allowed})
    }
}

pub(crate) fn pod(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "schedulerName": SCHEDULER,
        "containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}],
    }})
}

pub(crate) fn object<K: DeserializeOwned + Serialize>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A condition of a pod: status, reason, message.
pub(crate) fn condition(pod: &Pod, kind: &str) -> Option<(String, String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some((
        found.status.clone(),
        text(&found.reason),
        text(&found.message),
    ))
}

/// Tries until it gets an `Ok`, and fails with the last `Err` when that takes too long.
/// A client without this permission: requests with the method for a path that ends so are forbidden, with this message.
pub(crate) fn without_permission(
    fixture: &Fixture,
    method: Method,
    path: &'static str,
    message: &'static str,
) -> Client {
    let inner = fixture.client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, method) = (inner.clone(), method.clone());
        async move {
            if request.method() != method || !request.uri().path().ends_with(path) {
                return inner.send(request).await;
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                "message": message, "code": 403});
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(403).body(body);
            Ok(response.unwrap())
        }
    });
    Client::new(service, NAMESPACE)
}

pub(crate) async fn eventually<T, E: Debug, F>(what: &str, attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    within(Duration::from_secs(120), what, attempt).await
}

/// Repeats the attempt until it succeeds, with a time limit for what takes longer.
pub(crate) async fn within<T, E: Debug, F>(
    limit: Duration,
    what: &str,
    attempt: impl Fn() -> F,
) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let start = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(last) if start.elapsed() > limit => {
                panic!("waited in vain until {what}: {last:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
