//! The admission webhook as `deploy/webhook.yaml` runs it, on the real API server: with those configurations and that service
//! account. Only the pods and the Service around it are missing, so a proxy stands in for the Service.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};

/// Nothing waits this long when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const PROFILES: &str = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles";

/// Forwards connections to the replicas in turn, as a Service does.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    backends: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let backends: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let turn = AtomicUsize::new(0);
        std::thread::spawn({
            let backends = backends.clone();
            // The thread ends with the process.
            move || {
                for client in listener.incoming().flatten() {
                    let backends = backends.lock().unwrap().clone();
                    let turn = turn.fetch_add(1, Ordering::Relaxed);
                    let backend = backends.get(turn % backends.len().max(1));
                    let Some(server) = backend.and_then(|it| TcpStream::connect(it).ok()) else {
                        continue;
                    };
                    // As the two ends do: a proxy must not hold small pieces back.
                    for end in [&client, &server] {
                        end.set_nodelay(true).unwrap();
                    }
                    forward(client.try_clone().unwrap(), server.try_clone().unwrap());
                    forward(server, client);
                }
            }
        });
        Self { address, backends }
    }

    /// New connections go to these servers; without any they end at once.
    pub(crate) fn forward_to(&self, backends: &[SocketAddr]) {
        *self.backends.lock().unwrap() = backends.to_vec();
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

/// A control plane with the webhook's objects and a proxy, but no webhook yet.
pub(crate) struct Fixture {
    pub(crate) control_plane: ControlPlane,
    pub(crate) api: Api,
    pub(crate) proxy: Proxy,
    timeout: Option<u32>,
}

/// The objects of the webhook's manifests.
pub(crate) fn manifests() -> Vec<Value> {
    let webhook = include_str!("../../../deploy/webhook.yaml");
    let node_names = include_str!("../../../deploy/webhook-node-names.yaml");
    let evictions = include_str!("../../../deploy/webhook-evictions.yaml");
    let objects = |text| serde_saphyr::from_multiple::<Value>(text).unwrap();
    [webhook, node_names, evictions].map(objects).concat()
}

impl Fixture {
    /// `timeout` replaces those of the manifests: a loaded machine may need more.
    pub(crate) fn start(controllers: &[&str], timeout: Option<u32>) -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let control_plane = ControlPlane::start(e2e::Options {
            disable_admission_plugins: names(&["ServiceAccount", "TaintNodesByCondition"]),
            controllers: names(controllers),
            audited_group: Some("system:serviceaccounts".to_owned()),
            ..e2e::Options::default()
        })
        .unwrap();
        let proxy = Proxy::start();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let definition = "deploy/crds/config.koordinator.sh_clustercolocationprofiles.yaml";
        let api = deployed::serve_definition(&control_plane, &root.join(definition), PROFILES);
        deployed::apply(&control_plane, deployed::namespace());
        let fixture = Self {
            control_plane,
            api,
            proxy,
            timeout,
        };
        fixture.apply(manifests(), &[]);
        fixture
    }

    /// As `kubectl apply` does with these flags; the API server reaches the webhook through the proxy.
    pub(crate) fn apply(&self, mut objects: Vec<Value>, flags: &[&str]) {
        let all = objects.iter_mut().filter_map(|it| it.get_mut("webhooks"));
        for webhook in all.filter_map(Value::as_array_mut).flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
            let url = format!("https://{}{path}", self.proxy.address);
            webhook["clientConfig"] = json!({"url": url});
            if let Some(timeout) = self.timeout {
                webhook["timeoutSeconds"] = json!(timeout);
            }
        }
        deployed::apply_with(&self.control_plane, objects, flags);
    }

    /// One replica with the permissions of the manifests; returns it when it answers.
    pub(crate) fn webhook(&self, name: &str, flags: &[&str]) -> (Process, SocketAddr) {
        let process = self.start_webhook(name, flags);
        let address = eventually("the webhook answers", PATIENCE, || {
            let log = process.log();
            let (_, rest) = log
                .split_once("answering reviews on https://")
                .ok_or(log.clone())?;
            let address = rest.lines().next().unwrap_or_default().trim();
            address
                .parse()
                .map_err(|error| format!("{error}: {address}"))
        });
        (process, address)
    }

    /// One replica with the permissions of the manifests, which may never answer.
    pub(crate) fn start_webhook(&self, name: &str, flags: &[&str]) -> Process {
        let user = deployed::account(&self.control_plane, NAMESPACE, "tidepool-webhook");
        let kubeconfig = self.control_plane.logs().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, user.to_yaml()).unwrap();
        let mut arguments = vec![
            "webhook".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let always = [
            "--webhook-address=127.0.0.1",
            "--webhook-port=0",
            "--webhook-host=127.0.0.1",
            "--shutdown-delay=0s",
            "--certificate-check-interval=200ms",
        ];
        arguments.extend(always.iter().chain(flags).map(|&flag| flag.to_owned()));
        let binary = e2e::tidepool::binary().unwrap();
        self.control_plane.run(name, &binary, &arguments).unwrap()
    }

    /// Waits until the API server asks the webhook: it reads configurations a moment later.
    pub(crate) fn wait_until_asked(&self) {
        let bad = pod(
            "probe",
            json!({"koordinator.sh/qosClass": "LSR"}),
            "koord-mid",
            json!({}),
        );
        eventually("the API server asks the webhook", PATIENCE, || {
            match self.dry_run("default", &bad) {
                Err(text) if text.contains("LSR does not go with") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    pub(crate) fn create(&self, namespace: &str, pod: &Value) -> Result<Value, String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        self.api
            .post(&path, pod)
            .map_err(|error| format!("{error:#}"))
    }

    pub(crate) fn dry_run(&self, namespace: &str, pod: &Value) -> Result<Value, String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
        self.api
            .post(&path, pod)
            .map_err(|error| format!("{error:#}"))
    }

    pub(crate) fn namespace(&self, name: &str, labels: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.api.create(&namespace).unwrap();
    }

    pub(crate) fn create_at(&self, path: &str, object: &Value) {
        self.api.post(path, object).unwrap();
    }
}

/// A pod with one container.
pub(crate) fn pod(name: &str, labels: Value, class: &str, resources: Value) -> Value {
    let mut spec =
        json!({"containers": [{"name": "main", "image": "image", "resources": resources}]});
    if !class.is_empty() {
        spec["priorityClassName"] = json!(class);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// A pod of koord-mid with BE.
pub(crate) fn mid(name: &str) -> Value {
    let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    pod(
        name,
        json!({"koordinator.sh/qosClass": "BE"}),
        "koord-mid",
        resources,
    )
}

pub(crate) fn resources(pod: &Value) -> &Value {
    &pod["spec"]["containers"][0]["resources"]
}
