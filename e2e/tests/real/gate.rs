//! The gate as `deploy/gate.yaml` runs it, on the real API server: what it refuses, who may bind, and how it is switched off. A proxy
//! stands in for the Service.

use std::net::SocketAddr;
use std::path::Path;

use e2e::{Api, ControlPlane, Kubeconfig, Kubectl, Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::shared::Shared;
use crate::shared_cluster::{asks, node, pod, pod_path, text};
use crate::webhook_fixture::{Fixture, PATIENCE, Proxy};

pub(crate) const GATE: &str = include_str!("../../../deploy/gate.yaml");
const STRICT: &str = include_str!("../../../deploy/gate-strict.yaml");
pub(crate) const USER: &str = "system:serviceaccount:tidepool-system:tidepool-gate";
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-gate";
pub(crate) const SLICE: &str =
    "/apis/discovery.k8s.io/v1/namespaces/tidepool-system/endpointslices/tidepool-gate";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const POLICIES: &str = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourcepolicies";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/tidepool-gate";
const RECLAIMED: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Failure {
    Ignore,
    Fail,
}

static SHARED: Shared<Gated> = Shared::by(3);

/// Gives the control plane to one test at a time, empty.
fn with_gated(failure: Failure, test: impl FnOnce(&Gated)) {
    let start = || Gated::start(Failure::Ignore, Some(10), "system:serviceaccounts");
    SHARED.with(start, |gated| {
        gated.configure(failure, Some(10));
        test(gated);
        // It is gone if the test has deleted it.
        let _ = gated.api.delete(CONFIGURATION);
        // A gate that was killed does not release it.
        gated.api.delete(LEASE).unwrap();
        let policies = POLICIES.replace("/v1alpha1/", "/v1alpha1/namespaces/default/");
        let pods = "/api/v1/namespaces/default/pods";
        for path in [pods, "/api/v1/nodes", REPORTS, &policies] {
            // All objects of the list.
            gated.api.delete_now(path).unwrap();
        }
    });
}

/// A control plane with the gate's objects and a proxy, but no gate yet.
pub(crate) struct Gated {
    pub(crate) api: Api,
    pub(crate) control_plane: ControlPlane,
    proxy: Proxy,
}

impl Gated {
    /// `timeout` replaces the one of the manifest: a loaded machine may need more.
    pub(crate) fn start(failure: Failure, timeout: Option<u32>, audited: &str) -> Self {
        Self::start_with(failure, timeout, audited, &[])
    }

    /// Starts with more flags for kube-apiserver.
    pub(crate) fn start_with(
        failure: Failure,
        timeout: Option<u32>,
        audited: &str,
        apiserver_flags: &[&str],
    ) -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let control_plane = ControlPlane::start(e2e::Options {
            disable_admission_plugins: names(&["ServiceAccount", "TaintNodesByCondition"]),
            audited_group: Some(audited.to_owned()),
            apiserver_flags: names(apiserver_flags),
            ..e2e::Options::default()
        })
        .unwrap();
        let crds = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds"));
        let file = "node.katalyst.kubewharf.io_customnoderesources.yaml";
        deployed::serve_definition(&control_plane, &crds.join(file), REPORTS);
        let file = "scheduling.sigs.x-k8s.io_resourcepolicies.yaml";
        let api = deployed::serve_definition(&control_plane, &crds.join(file), POLICIES);
        let objects = [deployed::namespace(), deployed::policies()].concat();
        deployed::apply(&control_plane, objects);
        let gated = Self {
            api,
            control_plane,
            proxy: Proxy::start(),
        };
        gated.configure(failure, timeout);
        gated
    }

    /// Applies the manifest, and the strict one on top of it.
    pub(crate) fn configure(&self, failure: Failure, timeout: Option<u32>) {
        self.apply(GATE, timeout);
        if failure == Failure::Fail {
            self.apply(STRICT, timeout);
        }
    }

    fn apply(&self, manifest: &str, timeout: Option<u32>) {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        let all = objects.iter_mut().filter_map(|it| it.get_mut("webhooks"));
        for webhook in all.flat_map(|it| it.as_array_mut().unwrap()) {
            let url = format!("https://{}/validate-binds", self.proxy.address);
            webhook["clientConfig"] = json!({"url": url});
            if let Some(timeout) = timeout {
                webhook["timeoutSeconds"] = json!(timeout);
            }
        }
        deployed::apply(&self.control_plane, objects);
    }

    /// One replica with the permissions of the manifest; it need not lead.
    pub(crate) fn replica(&self, name: &str, flags: &[&str]) -> (Process, SocketAddr) {
        let user = deployed::account(&self.control_plane, NAMESPACE, "tidepool-gate");
        let kubeconfig = self.control_plane.logs().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, user.to_yaml()).unwrap();
        let mut arguments = vec![
            "gate".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let always = [
            "--webhook-address=127.0.0.1",
            "--webhook-port=0",
            "--webhook-host=127.0.0.1",
            "--shutdown-delay=500ms",
            "--certificate-check-interval=200ms",
            "--leader-elect-lease-duration=12s",
            "--leader-elect-renew-deadline=10s",
            "--leader-elect-retry-period=500ms",
        ];
        arguments.extend(always.iter().chain(flags).map(|&flag| flag.to_owned()));
        let binary = e2e::tidepool::binary().unwrap();
        let process = self.control_plane.run(name, &binary, &arguments).unwrap();
        let address = eventually("the gate serves", PATIENCE, || {
            let log = process.log();
            let found = log.rsplit_once("serving reviews on https://");
            let (_, rest) = found.ok_or(log.clone())?;
            let address = rest.lines().next().unwrap_or_default().trim();
            address
                .parse()
                .map_err(|error| format!("{error}: {address}"))
        });
        (process, address)
    }

    /// A leader that the API server asks.
    pub(crate) fn gate(&self, name: &str, flags: &[&str]) -> Process {
        let flags = [flags, &["--advertise-address=192.0.2.7"]].concat();
        let (process, address) = self.replica(name, &flags);
        self.lead(&process, address);
        process
    }

    /// New connections reach this replica, once it leads.
    pub(crate) fn route(&self, process: &Process, address: SocketAddr) {
        eventually("the gate leads", PATIENCE, || match process.log() {
            log if log.contains("answering reviews") => Ok(()),
            log => Err(log),
        });
        self.proxy.forward_to(&[address]);
    }

    pub(crate) fn lead(&self, process: &Process, address: SocketAddr) {
        self.route(process, address);
        eventually("the API server asks the gate", PATIENCE, || {
            match self.bind(&self.api, "nothing", "n", "?dryRun=All") {
                Err(text) if text.contains("there is no such pod") => Ok(()),
                other => Err(format!("{other:?}: {}", process.last_words())),
            }
        });
    }

    /// The API server asks no more.
    pub(crate) fn switch_off(&self) {
        self.api.delete(CONFIGURATION).unwrap();
    }

    pub(crate) fn bind(
        &self,
        api: &Api,
        pod: &str,
        node: &str,
        query: &str,
    ) -> Result<Value, String> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        api.post(&format!("{}/binding{query}", pod_path(pod)), &binding)
            .map_err(|error| format!("{error:#}"))
    }

    pub(crate) fn create(&self, name: &str, resource: &str, amount: &str) {
        let spec = json!({"containers": asks(resource, amount)});
        self.api.create(&pod(name, spec)).unwrap();
    }

    /// A service account that RBAC lets create bindings and pods.
    fn binder(&self, name: &str) -> Kubeconfig {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "default"}});
        self.api.create(&account).unwrap();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods/binding", "bindings", "pods"], "verbs": ["create"]}]});
        self.api.create(&role).unwrap();
        let subject = json!({"name": name, "namespace": "default"});
        deployed::bind(&self.api, name, name, subject);
        deployed::account(&self.control_plane, "default", name)
    }
}

/// Lets a service account bind pods of a scheduler.
fn grant(api: &Api, account: &str, scheduler: &str) {
    let name = format!("{account}-binds-{scheduler}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": ["tidepool.io"], "resources": ["schedulers"], "resourceNames": [scheduler], "verbs": ["bind"]}]});
    api.create(&role).unwrap();
    let subject = json!({"name": account, "namespace": "default"});
    deployed::bind(api, &name, &name, subject);
}

fn metrics(gate: &Process) -> String {
    deployed::ask(&deployed::server(gate).unwrap(), "/metrics", None).1
}

#[test]
fn binds_are_judged_before_they_are_committed() {
    with_gated(Failure::Ignore, binds_are_judged);
}

fn binds_are_judged(gated: &Gated) {
    let (api, control_plane) = (&gated.api, &gated.control_plane);
    for name in ["n1", "n2"] {
        api.create(&node(name, "zone", json!({}))).unwrap();
    }
    let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
        "metadata": {"name": "n1"}});
    api.post(REPORTS, &report).unwrap();
    let status = json!({"status": {"resources": {"allocatable": {RECLAIMED: "1000"}}}});
    api.patch(&format!("{REPORTS}/n1/status"), &status).unwrap();
    let policy = json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
        "metadata": {"name": "one", "namespace": "default"}, "spec": {"podSelector": {"matchLabels": {"app": "capped"}},
        "units": [{"name": "all", "priority": 1, "maxCount": 0, "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "n2"}}}]}});
    let path = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies";
    api.post(path, &policy).unwrap();
    let gate = gated.gate("gate", &["--secure-port=0"]);
    let refused = |pod: &str, node: &str, query: &str, want: &str| {
        let error = gated.bind(api, pod, node, query).unwrap_err();
        let denied = "admission webhook \"binds.tidepool.io\" denied the request";
        let full = format!("{denied}: node {node}: {want}");
        assert!(error.contains(&full), "{pod}: {error}");
    };
    // The pods are new: the watch may not show them when their binds come.
    for name in ["a", "b"] {
        gated.create(name, "cpu", "5");
    }
    refused("a", "nowhere", "", "there is no such node");
    gated.bind(api, "a", "n1", "?dryRun=All").unwrap();
    gated.bind(api, "a", "n1", "").unwrap();
    let full = "OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 5000, capacity: 8000";
    refused("b", "n1", "", full);
    // The older way to bind.
    let legacy = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "b"}, "target": {"name": "n1"}});
    let bindings = "/api/v1/namespaces/default/bindings";
    let error = format!("{:#}", api.post(bindings, &legacy).unwrap_err());
    assert!(error.contains(full), "{error}");
    let waiting = api.get(&pod_path("b")).unwrap();
    assert_eq!(waiting["spec"]["nodeName"], Value::Null);
    assert_eq!(waiting["status"]["phase"], "Pending");
    gated.bind(api, "b", "n2", "").unwrap();

    for name in ["r1", "r2"] {
        gated.create(name, RECLAIMED, "800");
    }
    gated.bind(api, "r1", "n1", "").unwrap();
    let full = format!(
        "OutOf{RECLAIMED}: Node didn't have enough resource: {RECLAIMED}, requested: 800, used: 800, capacity: 1000"
    );
    refused("r2", "n1", "", &full);
    gated.create("capped", "cpu", "1");
    let full = "ResourcePolicy default/one: unit \"all\" is full (maxCount 0)";
    refused("capped", "n2", "", full);
    gated.bind(api, "capped", "n1", "").unwrap();

    // Nothing is left to judge a bind by after the API server forgot the gate.
    gated.create("c", "cpu", "8");
    refused("c", "n1", "", "OutOfcpu");
    api.delete(CONFIGURATION).unwrap();
    eventually("the gate is switched off", PATIENCE, || {
        gated.bind(api, "c", "n1", "")
    });
    deployed::check_permissions_of(control_plane, USER);
    drop(gate);
}

#[test]
fn only_permitted_callers_bind_the_pods_of_a_scheduler() {
    with_gated(Failure::Ignore, only_permitted_callers_bind);
}

fn only_permitted_callers_bind(gated: &Gated) {
    let api = &gated.api;
    api.create(&node("n1", "zone", json!({}))).unwrap();
    let stranger = Api::new(&gated.binder("stranger")).unwrap();
    let permitted = Api::new(&gated.binder("permitted")).unwrap();
    grant(api, "permitted", "tidepool");
    for name in ["a", "b", "c", "d"] {
        gated.create(name, "cpu", "100m");
    }
    let mut audit = gated.gate("audit", &[]);
    gated.bind(&stranger, "a", "n1", "").unwrap();
    let counted = "tidepool_unauthorized_binds_total{mode=\"Audit\"} 1";
    let shown = metrics(&audit);
    assert!(shown.contains(counted), "{shown}");
    let text = "user `system:serviceaccount:default:stranger` has no permission to bind pods of scheduler `tidepool` in namespace `default`";
    assert!(audit.log().contains(text), "{}", audit.log());
    audit.terminate().unwrap();

    let _enforce = gated.gate("enforce", &["--bind-authorization=Enforce"]);
    let error = gated.bind(&stranger, "b", "n1", "").unwrap_err();
    assert!(error.contains(text), "{error}");
    let waiting = api.get(&pod_path("b")).unwrap();
    assert_eq!(waiting["spec"]["nodeName"], Value::Null);
    gated.bind(&permitted, "c", "n1", "").unwrap();
    let mut other = pod("other", json!({}));
    other["spec"]["schedulerName"] = json!("volcano");
    api.create(&other).unwrap();
    let error = gated.bind(&permitted, "other", "n1", "").unwrap_err();
    assert!(error.contains("scheduler `volcano`"), "{error}");

    api.delete(CONFIGURATION).unwrap();
    eventually("everything is as without the gate", PATIENCE, || {
        gated.bind(&stranger, "b", "n1", "")
    });
    gated.bind(&stranger, "d", "n1", "").unwrap();
}

#[test]
fn a_standby_takes_over_with_its_address() {
    with_gated(Failure::Fail, a_standby_takes_over);
}

fn a_standby_takes_over(gated: &Gated) {
    let (api, control_plane) = (&gated.api, &gated.control_plane);
    api.create(&node("n1", "zone", json!({}))).unwrap();
    let mut first = gated.gate("first", &[]);
    let (mut second, address) = gated.replica("second", &["--advertise-address=192.0.2.8"]);
    let slice_becomes = |want: &str| {
        eventually("the EndpointSlice has the leader", PATIENCE, || {
            let slice = api.get(SLICE).map_err(|error| format!("{error:#}"))?;
            let found = text(&slice["endpoints"][0]["addresses"][0]);
            if found == want { Ok(slice) } else { Err(found) }
        })
    };
    let slice = slice_becomes("192.0.2.7");
    let labels = &slice["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/service-name"], "tidepool-gate");
    assert_eq!(slice["ports"][0]["name"], "https");
    // A standby is ready, but does not answer.
    eventually("the standby is ready", PATIENCE, || {
        let server = deployed::server(&second)?;
        match deployed::ask(&server, "/readyz", None) {
            (200, _) => Ok(()),
            (code, text) => Err(format!("{code}: {text}")),
        }
    });
    assert!(!second.log().contains("answering reviews"));
    gated.create("a", "cpu", "5");
    gated.bind(api, "a", "n1", "").unwrap();
    first.stop();
    let error = gated.bind(api, "a", "n1", "").unwrap_err();
    assert!(error.contains("failed calling webhook"), "{error}");
    gated.lead(&second, address);
    slice_becomes("192.0.2.8");
    gated.create("b", "cpu", "5");
    let error = gated.bind(api, "b", "n1", "").unwrap_err();
    assert!(error.contains("OutOfcpu"), "{error}");
    // It releases the Lease.
    second.terminate().unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases/tidepool-gate";
    let lease = api.get(lease).unwrap();
    assert_eq!(text(&lease["spec"]["holderIdentity"]), "");
    deployed::check_permissions_of(control_plane, USER);
}

/// A pod that is created on a node passes every scheduler: its creator needs the same permission.
#[test]
fn pods_that_are_created_on_a_node_need_the_permission() {
    let fixture = Fixture::start(&[], Some(10));
    let (_webhook, address) = fixture.webhook("webhook", &["--bind-authorization=Enforce"]);
    fixture.proxy.forward_to(&[address]);
    fixture.wait_until_asked();
    let api = &fixture.api;
    api.create(&node("n1", "zone", json!({}))).unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "stranger", "namespace": "default"}});
    api.create(&account).unwrap();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "stranger"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]});
    api.create(&role).unwrap();
    let subject = json!({"name": "stranger", "namespace": "default"});
    deployed::bind(api, "stranger", "stranger", subject);
    let user = deployed::account(&fixture.control_plane, "default", "stranger");
    let stranger = Api::new(&user).unwrap();
    let on_node = |name: &str| pod(name, json!({"nodeName": "n1"}));
    let error = format!("{:#}", stranger.create(&on_node("a")).unwrap_err());
    assert!(
        error.contains("no permission to bind pods of scheduler `tidepool`"),
        "{error}"
    );
    stranger.create(&pod("ordinary", json!({}))).unwrap();
    let mut mirror = on_node("mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    // The other path of the webhook refuses it, too: without that, and without deploy/policies.yaml, only this check is left.
    let validating =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook";
    api.delete(validating).unwrap();
    let mut hashed = pod("hashed", json!({}));
    hashed["metadata"]["annotations"] = json!({"kubernetes.io/config.hash": "x"});
    eventually("annotations are not judged", PATIENCE, || {
        let created = stranger.create(&hashed);
        created.map_err(|error| format!("{error:#}"))
    });
    let error = format!("{:#}", stranger.create(&mirror).unwrap_err());
    assert!(
        error.contains("no permission to bind pods of scheduler `tidepool`"),
        "{error}"
    );
    // The kubelet of the node may create it, and no other pod.
    let subjects = ["n1", "n2"].map(|node| {
        let name = format!("system:node:{node}");
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
    });
    let kubelets = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubelets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "stranger"},
        "subjects": subjects});
    api.create(&kubelets).unwrap();
    for (node, object, is_refused) in [
        ("n2", &mirror, true),
        ("n1", &mirror, false),
        ("n1", &on_node("pretender"), true),
    ] {
        let user = format!("system:node:{node}");
        let control_plane = &fixture.control_plane;
        let kubelet = control_plane.certificate_kubeconfig(&user, "system:nodes");
        let kubelet = Kubectl::with_text(control_plane.binaries(), &kubelet.unwrap()).unwrap();
        let file = kubelet.directory().join("pod.json");
        std::fs::write(file, object.to_string()).unwrap();
        let run = kubelet
            .run(&["create", "-f", "pod.json"], PATIENCE)
            .unwrap();
        assert_eq!(
            run.stderr.contains("no permission to bind"),
            is_refused,
            "{run:?}"
        );
        assert_eq!(run.code == Some(0), !is_refused, "{run:?}");
    }
    grant(api, "stranger", "tidepool");
    // Decisions are remembered for some seconds.
    eventually("the permission counts", PATIENCE, || {
        stranger
            .create(&on_node("a"))
            .map_err(|error| format!("{error:#}"))
    });
}
