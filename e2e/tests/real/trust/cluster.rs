//! A control plane with everything in `deploy/`, the components with their own tokens, two nodes, and the objects of two namespaces.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use e2e::{Api, ControlPlane, Kubeconfig, Process, User, eventually};
use serde_json::{Value, json};

use super::attempt::Actor;
use crate::deployed::{self, NAMESPACE};
use crate::policy_costs;
use crate::shared_cluster::{SHORT, merge, node, text};
use crate::webhook_fixture::{PATIENCE, Proxy};

/// A Lease in kube-system; its scheduler name in the ConfigMap shows that the controllers have seen everything before it.
pub(super) const BARRIER: &str = "barrier";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
const KINDS: [&str; 4] = [
    REPORTS,
    METRICS,
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourcepolicies",
    "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
];
const LENT: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

pub(super) struct Cluster {
    /// As `admin`.
    pub(super) api: Api,
    pub(super) uid_of_web: String,
    pub(super) uid_of_n1: String,
    actors: BTreeMap<Actor, Api>,
    barriers: std::cell::Cell<usize>,
    // Stopped in this order.
    _components: Vec<Process>,
    _control_plane: ControlPlane,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let user = |name: &str, group: Option<&str>| User {
            name: name.to_owned(),
            groups: group.map(str::to_owned).into_iter().collect(),
        };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let control_plane = ControlPlane::start(e2e::Options {
            users: vec![
                user("editor", None),
                user("viewer", None),
                user("system:node:n1", Some("system:nodes")),
            ],
            disable_admission_plugins: names(&["ServiceAccount", "TaintNodesByCondition"]),
            // The roles `edit` and `view` are sums of others.
            controllers: names(&["clusterrole-aggregation-controller"]),
            apiserver_flags: names(&[
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
            ]),
            ..e2e::Options::default()
        })
        .unwrap();
        let api = Api::new(&control_plane.admin()).unwrap();
        let [webhook, gate] = [Proxy::start(), Proxy::start()];
        apply_manifests(&control_plane, &webhook, &gate);
        create_nodes(&api);
        create_namespaces(&api);

        let mut components = Vec::new();
        for (name, account, proxy, words) in [
            (
                "webhook",
                "tidepool-webhook",
                &webhook,
                "answering reviews on https://",
            ),
            (
                "gate",
                "tidepool-gate",
                &gate,
                "serving reviews on https://",
            ),
        ] {
            let (process, address) = answer(&control_plane, name, account, words);
            proxy.forward_to(&[address]);
            components.push(process);
        }
        let flags = ["--scheduler-not-found-after=1h", "--agent-silent-after=1h"];
        components.push(policy_costs::control(&control_plane, &flags));
        let actors = actors(&control_plane, &api);
        await_admission(&api, &components[1], &actors);
        create_pods(&api, &actors[&Actor::Scheduler]);
        components.push(deployed::scheduler(&control_plane, "tidepool"));
        let cluster = Self {
            uid_of_web: uid(&api, "/api/v1/namespaces/victim/pods/web"),
            uid_of_n1: uid(&api, "/api/v1/nodes/n1"),
            api,
            actors,
            barriers: std::cell::Cell::new(0),
            _components: components,
            _control_plane: control_plane,
        };
        cluster.await_names("default-scheduler,other,tidepool");
        cluster
    }

    pub(super) fn api_of(&self, actor: Actor) -> &Api {
        &self.actors[&actor]
    }

    /// Returns when the controllers have seen what was written before.
    pub(super) fn await_controllers(&self) {
        let number = self.barriers.get() + 1;
        self.barriers.set(number);
        let name = format!("{BARRIER}-{number}");
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{BARRIER}");
        let names = json!({"metadata": {"annotations": {"tidepool.io/scheduler-names": name}}});
        self.api.patch(&path, &names).unwrap();
        self.await_names(&name);
    }

    fn await_names(&self, wanted: &str) {
        eventually(&format!("{wanted} are registered"), PATIENCE, || {
            let path = "/api/v1/namespaces/tidepool-system/configmaps/schedulers";
            let map = self.api.get(path).map_err(|error| format!("{error:#}"))?;
            let found = text(&map["data"]["names"]);
            let found: Vec<&str> = found.split(',').collect();
            match wanted.split(',').all(|name| found.contains(&name)) {
                true => Ok(()),
                false => Err(found.join(",")),
            }
        });
    }
}

fn uid(api: &Api, path: &str) -> String {
    text(&api.get(path).unwrap()["metadata"]["uid"])
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    files
}

/// All of `deploy/` but its workloads. A strict variant comes after what it replaces.
fn apply_manifests(control_plane: &ControlPlane, webhook: &Proxy, gate: &Proxy) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |path: &PathBuf| -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    };
    let kinds = files(&root.join("crds"));
    let mut definitions = deployed::namespace();
    definitions.extend(kinds.iter().flat_map(read));
    deployed::apply(control_plane, definitions);
    let api = Api::new(&control_plane.admin()).unwrap();
    for path in KINDS {
        eventually("the kind is served", SHORT, || {
            api.get(path).map_err(|error| format!("{error:#}"))
        });
    }
    // One object of each name. This scheduler does not take the place of kube-scheduler.
    let mut objects: BTreeMap<(String, String, String), Value> = BTreeMap::new();
    let files = files(&root);
    let used = files
        .iter()
        .filter(|it| !it.ends_with("scheduler-primary.yaml"));
    for mut object in used.flat_map(read) {
        if object["kind"] == "DaemonSet" {
            continue;
        }
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for one in webhooks.into_iter().flatten() {
            let service = &one["clientConfig"]["service"];
            let proxy = if service["name"] == "tidepool-gate" {
                gate
            } else {
                webhook
            };
            let url = format!("https://{}{}", proxy.address, text(&service["path"]));
            one["clientConfig"] = json!({"url": url});
            // A loaded machine may need more time; `timed/large_pods.rs` has the timeouts of the manifests.
            one["timeoutSeconds"] = json!(10);
        }
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
        objects.insert(key.into(), object);
    }
    deployed::apply(control_plane, objects.into_values().collect());
}

/// A replica that answers reviews, with the permissions of the manifests.
fn answer(
    control_plane: &ControlPlane,
    name: &str,
    account: &str,
    words: &str,
) -> (Process, SocketAddr) {
    let user = deployed::account(control_plane, NAMESPACE, account);
    let kubeconfig = control_plane.logs().join(format!("{name}.kubeconfig"));
    std::fs::write(&kubeconfig, user.to_yaml()).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let flags = [
        "--webhook-address=127.0.0.1",
        "--webhook-port=0",
        "--webhook-host=127.0.0.1",
        "--secure-port=0",
        "--shutdown-delay=0s",
        "--certificate-check-interval=200ms",
        // A refusal says more than a line in a log.
        "--bind-authorization=Enforce",
    ];
    let more: &[&str] = match name {
        "gate" => &["--advertise-address=192.0.2.7"],
        _ => &[],
    };
    let arguments = [name, &kubeconfig]
        .into_iter()
        .chain(flags)
        .chain(more.iter().copied());
    let arguments: Vec<String> = arguments.map(str::to_owned).collect();
    let binary = e2e::tidepool::binary().unwrap();
    let process = control_plane.run(name, &binary, &arguments).unwrap();
    let address = eventually(&format!("{name} answers"), PATIENCE, || {
        let log = process.log();
        let (_, rest) = log.rsplit_once(words).ok_or(log.clone())?;
        let address = rest.lines().next().unwrap_or_default().trim();
        address
            .parse()
            .map_err(|error| format!("{error}: {address}"))
    });
    (process, address)
}

fn actors(control_plane: &ControlPlane, api: &Api) -> BTreeMap<Actor, Api> {
    let client = |user: &Kubeconfig| Api::new(user).unwrap();
    let account = |name: &str| client(&deployed::account(control_plane, NAMESPACE, name));
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef":
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid(api, "/api/v1/nodes/n1")}}});
    let path = "/api/v1/namespaces/tidepool-system/serviceaccounts/tidepool-agent/token";
    let mut agent = control_plane.admin();
    agent.token = text(&api.post(path, &request).unwrap()["status"]["token"]);
    let user = |name: &str| client(&control_plane.kubeconfig(name));
    let actors = Actor::ALL.map(|actor| {
        let api = match actor {
            Actor::Editor => user("editor"),
            Actor::Viewer => user("viewer"),
            Actor::Kubelet => user("system:node:n1"),
            Actor::Agent => client(&agent),
            Actor::UnboundAgent => account("tidepool-agent"),
            Actor::Scheduler => account("tidepool-scheduler"),
            Actor::Controllers => account("tidepool-controllers"),
            Actor::Webhook => account("tidepool-webhook"),
            Actor::Gate => account("tidepool-gate"),
        };
        (actor, api)
    });
    actors.into_iter().collect()
}

/// Two nodes with four NUMA zones each, what their agents report, and the Leases around them.
fn create_nodes(api: &Api) {
    let lease = |namespace: &str, name: &str, metadata: Value| {
        let mut lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": name.trim_start_matches("agent-"), "leaseDurationSeconds": 3600,
                "renewTime": "2026-01-01T00:00:00.000000Z"}});
        merge(&mut lease["metadata"], metadata);
        api.create(&lease).unwrap();
    };
    for name in ["n1", "n2"] {
        api.create(&node(
            name,
            "zone",
            json!({"status": {"capacity": {"cpu": "16"}}}),
        ))
        .unwrap();
        let grid: api::zone_grid::ZoneGrid = "1x4".parse().unwrap();
        let mut report = grid.report(name, "16", "16Gi").unwrap();
        let lent = json!({LENT: "4000"});
        merge(
            &mut report["status"],
            json!({"resources": {"allocatable": lent, "capacity": lent}}),
        );
        let metric = json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}, "spec": {}});
        api.post(METRICS, &metric).unwrap();
        api.post(REPORTS, &report).unwrap();
        let status = json!({"status": report["status"]});
        api.patch(&format!("{REPORTS}/{name}/status"), &status)
            .unwrap();
        let agent = json!({"labels": {"tidepool.io/agent": "true"}});
        lease(NAMESPACE, &format!("agent-{name}"), agent);
        lease("kube-node-lease", name, json!({}));
    }
    for name in [BARRIER, "other"] {
        let names = json!({"annotations": {"tidepool.io/scheduler-names": name}});
        lease("kube-system", name, names);
    }
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": "victim", "name": "data"}, "hostPath": {"path": "/disk"}}});
    api.create(&volume).unwrap();
}

/// `team`, whose users try; `victim`; and one that refuses pods whose scheduler does not run.
fn create_namespaces(api: &Api) {
    for (name, labels) in [
        ("team", json!({})),
        ("victim", json!({})),
        ("deny", json!({"tidepool.io/scheduler-check": "deny"})),
    ] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        api.create(&namespace).unwrap();
    }
    for (user, role) in [("editor", "edit"), ("viewer", "view")] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": "team"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        api.create(&binding).unwrap();
    }
    let policy = json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
        "metadata": {"name": "web"}, "spec": {"podSelector": {"matchLabels": {"app": "capped"}},
        "units": [{"name": "all", "priority": 1, "maxCount": 2, "nodeSelector": {}}]}});
    let policies = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/victim/resourcepolicies";
    api.post(policies, &policy).unwrap();
}

/// The pods of both namespaces. A scheduler binds them, with the annotations that only it may write.
fn create_pods(api: &Api, scheduler: &Api) {
    let dedicated = json!({"katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true"}"#});
    let sharing = json!({"katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": r#"{"numa_binding": "true", "numa_exclusive": "false"}"#});
    let reclaimed = json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    let zone = json!({"tidepool.io/numa-zones": "0"});
    let unit = json!({"tidepool.io/policy-unit": "web/all=2", "controller.kubernetes.io/pod-deletion-cost": "2"});
    let none = || json!({});
    for (namespace, name, resource, amount, annotations, bound) in [
        ("victim", "web", "cpu", "1", none(), Some(("n1", none()))),
        (
            "victim",
            "zoned",
            "cpu",
            "3",
            dedicated.clone(),
            Some(("n1", zone.clone())),
        ),
        ("victim", "capped", "cpu", "1", none(), Some(("n2", unit))),
        ("victim", "waits-for-cpu", "cpu", "2", none(), None),
        ("victim", "waits-for-zone", "cpu", "3", dedicated, None),
        (
            "victim",
            "waits-for-lent",
            LENT,
            "2k",
            reclaimed.clone(),
            None,
        ),
        ("victim", "far", "cpu", "100m", none(), Some(("n2", none()))),
        ("team", "mine", "cpu", "100m", none(), Some(("n1", none()))),
        ("team", "zoned", "cpu", "3", sharing, Some(("n2", zone))),
        ("team", "loose", "cpu", "100m", none(), None),
    ] {
        // The scheduler may bind pods of its own name only; those that wait must not be bound.
        let by = if bound.is_some() { "tidepool" } else { "held" };
        let amounts = json!({resource: amount});
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "labels": {"app": name}},
            "spec": {"schedulerName": by, "containers": [
                {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]}});
        api.create(&pod).unwrap();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if let Some((node, annotations)) = bound {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": annotations},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            scheduler
                .post(&format!("{path}/binding"), &binding)
                .unwrap();
            let running = json!({"status": {"phase": "Running"}});
            api.patch(&format!("{path}/status"), &running).unwrap();
        }
    }
}

/// Policies and webhook configurations count a moment after they are stored.
fn await_admission(api: &Api, gate: &Process, actors: &BTreeMap<Actor, Api>) {
    let refuses = |what: &str, words: &str, ask: &dyn Fn() -> anyhow::Result<Value>| {
        eventually(what, PATIENCE, || match ask() {
            Err(error) if format!("{error:#}").contains(words) => Ok(()),
            other => Err(format!("{other:?}: {}", gate.last_words())),
        });
    };
    let pods = "/api/v1/namespaces/team/pods";
    let invalid = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "invalid", "labels": {"koordinator.sh/qosClass": "LSR"}},
        "spec": {"priorityClassName": "koord-mid", "containers": [{"name": "c", "image": "i"}]}});
    refuses("the webhook is asked", "LSR does not go with", &|| {
        api.post(&format!("{pods}?dryRun=All"), &invalid)
    });
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nothing"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    refuses("the gate is asked", "there is no such pod", &|| {
        api.post(&format!("{pods}/nothing/binding?dryRun=All"), &binding)
    });
    let other = format!("{REPORTS}/n2?dryRun=All");
    refuses("policies count", "may not write", &|| {
        actors[&Actor::Agent].patch(&other, &json!({"metadata": {"labels": {"a": "b"}}}))
    });
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "probe"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases?dryRun=All";
    for actor in [Actor::Gate, Actor::Scheduler, Actor::Controllers] {
        refuses("policies of components count", "only", &|| {
            actors[&actor].post(leases, &lease)
        });
    }
    let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook?dryRun=All";
    refuses("the policy of the webhook counts", "only", &|| {
        actors[&Actor::Webhook].patch(configuration, &json!({"metadata": {"labels": {"a": "b"}}}))
    });
    eventually("the editor may edit", PATIENCE, || {
        let list = actors[&Actor::Editor].list(pods);
        list.map_err(|error| format!("{error:#}"))
    });
}
