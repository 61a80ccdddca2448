//! The scheduler as `deploy/` runs it: with that configuration and that service account, so with exactly the permissions of
//! the manifests. Only the pod around it is missing.

use std::path::Path;

use e2e::audit::Request;
use e2e::{Api, ControlPlane, Kubeconfig, Process, eventually};
use serde_json::{Value, json};

use crate::shared_cluster::{SHORT, text};

pub(crate) const NAMESPACE: &str = "tidepool-system";
const ACCOUNT: &str = "tidepool-scheduler";
/// The name of that account in requests.
const USER: &str = "system:serviceaccount:tidepool-system:tidepool-scheduler";
/// A file in the image, from the ConfigMap.
const CONFIG: &str = "/etc/tidepool/config.yaml";

/// The objects of deploy/namespace.yaml.
pub(crate) fn namespace() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("../../../deploy/namespace.yaml")).unwrap()
}

/// The objects of deploy/policies.yaml.
pub(crate) fn policies() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("../../../deploy/policies.yaml")).unwrap()
}

/// The objects of deploy/scheduler.yaml.
pub(crate) fn manifests() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("../../../deploy/scheduler.yaml")).unwrap()
}

pub(crate) fn of_kind(objects: &[Value], kind: &str) -> Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap().clone()
}

/// Those of deploy/scheduler-primary.yaml, which go on top.
pub(crate) fn primary_manifests() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("../../../deploy/scheduler-primary.yaml")).unwrap()
}

/// A control plane with what the manifests have.
pub(crate) fn start(controllers: &[&str]) -> ControlPlane {
    start_with(controllers, &[])
}

/// A control plane with what the manifests have, and more flags for kube-apiserver.
pub(crate) fn start_with(controllers: &[&str], apiserver_flags: &[&str]) -> ControlPlane {
    start_as(Vec::new(), controllers, apiserver_flags)
}

/// A control plane with what the manifests have, more flags for kube-apiserver, and these users.
pub(crate) fn start_as(
    users: Vec<e2e::User>,
    controllers: &[&str],
    apiserver_flags: &[&str],
) -> ControlPlane {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let control_plane = ControlPlane::start(e2e::Options {
        users,
        disable_admission_plugins: names(&["ServiceAccount", "TaintNodesByCondition"]),
        controllers: names(controllers),
        audited_group: Some("system:serviceaccounts".to_owned()),
        apiserver_flags: names(apiserver_flags),
        ..e2e::Options::default()
    })
    .unwrap();
    let objects = [namespace(), policies(), manifests()].concat();
    apply(&control_plane, objects);
    control_plane
}

/// As `kubectl apply` does, except for Deployments: they would be pods for the schedulers under test.
pub(crate) fn apply(control_plane: &ControlPlane, objects: Vec<Value>) {
    apply_with(control_plane, objects, &[]);
}

/// Applies objects as [`apply`] does, with more flags of kubectl.
pub(crate) fn apply_with(control_plane: &ControlPlane, mut objects: Vec<Value>, flags: &[&str]) {
    objects.retain(|object| object["kind"] != "Deployment");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let kubectl = control_plane.kubectl().unwrap();
    std::fs::write(kubectl.directory().join("list.json"), list.to_string()).unwrap();
    let arguments = [&["apply", "-f", "list.json"], flags].concat();
    let applied = kubectl.run(&arguments, SHORT).unwrap();
    assert_eq!(applied.code, Some(0), "{applied:?}");
}

/// Applies the definition in this file and waits until the API server serves its objects at this path.
pub(crate) fn serve_definition(control_plane: &ControlPlane, file: &Path, path: &str) -> Api {
    let kubectl = control_plane.kubectl().unwrap();
    let file = file.display().to_string();
    let run = kubectl.run(&["apply", "-f", &file], SHORT).unwrap();
    assert_eq!(run.code, Some(0), "kubectl apply -f {file}: {run:?}");
    let api = Api::new(&control_plane.admin()).unwrap();
    // Not `kubectl wait`: it fails while the definition has no conditions.
    eventually("the kind is served", SHORT, || {
        api.get(path).map_err(|error| format!("{error:#}"))
    });
    api
}

/// One of ours, on loopback and any port.
pub(crate) fn scheduler(control_plane: &ControlPlane, name: &str) -> Process {
    scheduler_of(control_plane, name, &manifests())
}

/// One that these manifests run.
pub(crate) fn scheduler_of(control_plane: &ControlPlane, name: &str, objects: &[Value]) -> Process {
    let mut flags = flags(control_plane, objects);
    flags.retain(|flag| !flag.starts_with("--bind-address") && !flag.starts_with("--secure-port"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    with_flags(control_plane, name, &flags)
}

/// One with the test's own flags, and the permissions of the manifests.
pub(crate) fn with_flags(control_plane: &ControlPlane, name: &str, flags: &[&str]) -> Process {
    let user = scheduler_account(control_plane);
    control_plane.tidepool(name, &user, flags).unwrap()
}

/// The service account of the manifests.
pub(crate) fn scheduler_account(control_plane: &ControlPlane) -> Kubeconfig {
    account(control_plane, NAMESPACE, ACCOUNT)
}

/// The flags that a Deployment gives it, with the configuration where we can read it.
pub(crate) fn flags(control_plane: &ControlPlane, objects: &[Value]) -> Vec<String> {
    let config = of_kind(objects, "ConfigMap");
    let file = control_plane.logs().join("tidepool.yaml");
    std::fs::write(&file, text(&config["data"]["config.yaml"])).unwrap();
    let container = container(objects);
    let arguments = container["args"].as_array().unwrap();
    assert_eq!(arguments[0], "scheduler");
    arguments[1..]
        .iter()
        .map(|flag| text(flag).replace(CONFIG, &file.display().to_string()))
        .collect()
}

pub(crate) fn container(objects: &[Value]) -> Value {
    of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
}

/// A service account with a token that the API server made, as a pod would have it.
pub(crate) fn account(control_plane: &ControlPlane, namespace: &str, name: &str) -> Kubeconfig {
    let admin = control_plane.admin();
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3600}});
    let answer = Api::new(&admin).unwrap().post(&path, &request).unwrap();
    Kubeconfig {
        user: name.to_owned(),
        token: text(&answer["status"]["token"]),
        ..admin
    }
}

/// It sent requests, and neither RBAC nor a policy refused one. Not for API servers that were restarted: one that begins
/// denies everything until it has read its roles.
pub(crate) fn check_permissions(control_plane: &ControlPlane) {
    check_permissions_of(control_plane, USER);
}

/// The user sent requests, and none that was forbidden. Not for API servers that were restarted.
pub(crate) fn check_permissions_of(control_plane: &ControlPlane, user: &str) {
    let mut requests = requests_of(control_plane, user);
    assert!(!requests.is_empty(), "the audit log has nothing of {user}");
    requests.retain(Request::is_denied);
    assert!(
        requests.is_empty(),
        "permissions are missing: {requests:#?}"
    );
}

/// Waits until the event about a new leader of this component is there.
pub(crate) fn wait_for_leader_event(api: &Api, component: &str) {
    let path = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
    eventually("the event about the leader", SHORT, || {
        let mut events = api.list(&path).map_err(|error| format!("{error:#}"))?;
        events.retain(|it| it["reason"] == "LeaderElection");
        let is_there = events.iter().any(|it| {
            let is_new = text(&it["note"]).ends_with("became leader");
            is_new && it["reportingController"] == component
        });
        is_there.then_some(()).ok_or(format!("{events:?}"))
    });
}

/// What the scheduler sent, oldest first.
pub(crate) fn requests(control_plane: &ControlPlane) -> Vec<Request> {
    requests_of(control_plane, USER)
}

/// What this user sent, oldest first.
pub(crate) fn requests_of(control_plane: &ControlPlane, user: &str) -> Vec<Request> {
    let mut requests = control_plane.audit().unwrap();
    requests.retain(|request| request.user == user);
    requests
}

/// What a scheduler answers at the address that its log names.
pub(crate) fn get(scheduler: &Process, path: &str) -> Result<Value, String> {
    let answer = ask(&server(scheduler)?, path, None);
    serde_json::from_str(&answer.1).map_err(|error| format!("{error}: {answer:?}"))
}

/// The address that the log of a component names. One that listens on all addresses is asked on loopback.
pub(crate) fn server(process: &Process) -> Result<String, String> {
    let log = process.log();
    let (_, rest) = log.split_once("serving on ").ok_or(&log[..])?;
    let address = rest.lines().next().unwrap_or_default().trim();
    Ok(address.replace("0.0.0.0", "127.0.0.1"))
}

/// A request to a scheduler with a self-signed certificate, as the kubelet's probes send it.
pub(crate) fn ask(server: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut config = kube::Config::new(server.parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = kube::Client::try_from(config).unwrap();
        let request = http::Request::get(path)
            .body(kube::client::Body::empty())
            .unwrap();
        let answer = client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body())
            .await
            .unwrap();
        (code, String::from_utf8_lossy(&body.to_bytes()).into_owned())
    })
}

/// Grants the permissions of a ClusterRole to a service account.
pub(crate) fn bind(api: &Api, name: &str, role: &str, mut subject: Value) {
    subject["kind"] = json!("ServiceAccount");
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    api.create(
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name}, "roleRef": role, "subjects": [subject]}),
    )
    .unwrap();
}
