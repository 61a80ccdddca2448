//! The controller of ResourcePolicies on the real API server, with the real Deployment and ReplicaSet controllers and
//! simulated kubelets.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use e2e::audit::Request;
use e2e::{Api, ControlPlane, Kubeconfig, Kubectl, Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::policies::{COST, MARK, PODS, POLICIES, policy, schedule, start_with};
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, condition, node, text};

pub(crate) const LONG: Duration = Duration::from_secs(120);
/// The name of the controllers in requests.
pub(crate) const USER: &str = "system:serviceaccount:tidepool-system:tidepool-controllers";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases";
/// A replica that was killed does not release its Lease.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];

/// The objects of deploy/controllers.yaml.
pub(crate) fn manifests() -> Vec<Value> {
    serde_saphyr::from_multiple(include_str!("../../../deploy/controllers.yaml")).unwrap()
}

pub(crate) fn account(control_plane: &ControlPlane) -> Kubeconfig {
    deployed::account(control_plane, deployed::NAMESPACE, "tidepool-controllers")
}

/// The controllers with the permissions of the manifest.
pub(crate) fn control(control_plane: &ControlPlane, flags: &[&str]) -> Process {
    let usual = ["--secure-port=0", "--policy-status-interval=1s"];
    let flags = [&usual, &ELECTION[..], flags].concat();
    control_as(control_plane, &account(control_plane), &flags)
}

/// The controllers with these flags only.
pub(crate) fn control_as(
    control_plane: &ControlPlane,
    user: &Kubeconfig,
    flags: &[&str],
) -> Process {
    let file = control_plane.logs().join("controllers.kubeconfig");
    std::fs::write(&file, user.to_yaml()).unwrap();
    let file = format!("--kubeconfig={}", file.display());
    let arguments: Vec<String> = ["controllers", &file]
        .iter()
        .chain(flags)
        .map(|&flag| flag.to_owned())
        .collect();
    let binary = e2e::tidepool::binary().unwrap();
    let process = control_plane.run("controllers", &binary, &arguments);
    process.unwrap()
}

/// What the controllers wrote to pods, from the audit log.
pub(crate) fn patches(control_plane: &ControlPlane) -> Vec<Request> {
    let mut requests = deployed::requests_of(control_plane, USER);
    requests.retain(|it| it.verb == "patch" && it.resource == "pods");
    requests
}

/// A node whose pods `tidepool nodes` runs.
fn simulated(name: &str) -> Value {
    let labels = json!({"kind": name, "tidepool.io/simulated": "true"});
    node(name, "zone", json!({"metadata": {"labels": labels}}))
}

fn simulate(control_plane: &ControlPlane) -> Process {
    let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
    let arguments = [
        "nodes".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--nodes=0".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    let binary = e2e::tidepool::binary().unwrap();
    control_plane.run("nodes", &binary, &arguments).unwrap()
}

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": {
                "schedulerName": "tidepool",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "web:1"}],
            }},
        },
    })
}

pub(crate) fn units(units: &[(&str, u32, Option<u32>)]) -> Value {
    let unit = |(name, priority, max_count): &(&str, u32, Option<u32>)| json!({"name": name, "priority": priority, "maxCount": max_count, "nodeSelector": {"matchLabels": {"kind": name}}});
    units.iter().map(unit).collect()
}

pub(crate) fn annotation(pod: &Value, key: &str) -> String {
    text(&pod["metadata"]["annotations"][key])
}

/// Pods by cost and mark. Those that are terminating are left out.
fn by_cost(api: &Api) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for pod in api.list(PODS).unwrap() {
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let both = format!("{} {}", annotation(&pod, COST), annotation(&pod, MARK));
            *found.entry(both).or_default() += 1;
        }
    }
    found
}

pub(crate) fn costs_become(api: &Api, controllers: &Process, want: &[(&str, usize)]) {
    let want = want.iter().map(|(cost, pods)| (cost.to_string(), *pods));
    let want: BTreeMap<String, usize> = want.collect();
    eventually("the costs are written", LONG, || match by_cost(api) {
        found if found == want => Ok(()),
        found => Err(format!(
            "{found:?}, not {want:?}: {}",
            controllers.last_words()
        )),
    });
}

pub(crate) fn policy_condition(api: &Api, name: &str, kind: &str, status: &str) -> String {
    eventually(&format!("{kind} is {status}"), LONG, || {
        let policy = api.get(&format!("{POLICIES}/{name}")).unwrap();
        let found = condition(&policy, kind);
        match found["status"] == status {
            true => Ok(text(&found["message"])),
            false => Err(policy["status"].to_string()),
        }
    })
}

fn run(kubectl: &Kubectl, command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').collect();
    let run = kubectl.run(&arguments, LONG).unwrap();
    assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
    run.stdout
}

static SHARED: Shared<Cluster> = Shared::by(2);

/// A cluster whose Deployments become pods that run.
struct Cluster {
    api: Api,
    kubectl: Kubectl,
    // Stopped in this order.
    _scheduler: Process,
    _nodes: Process,
    control_plane: ControlPlane,
}

/// The cluster with nodes of these kinds, and without anything else.
fn with_nodes(kinds: &[&str], test: impl FnOnce(&Cluster)) {
    SHARED.with(start, |cluster| {
        for kind in kinds {
            cluster.api.create(&simulated(kind)).unwrap();
        }
        test(cluster);
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let sets = "/apis/apps/v1/namespaces/default/replicasets";
        for path in [POLICIES, deployments, sets, PODS, "/api/v1/nodes", LEASES] {
            // All objects of the list.
            cluster.api.delete_now(path).unwrap();
        }
    });
}

fn start() -> Cluster {
    let (api, control_plane) = start_with(&["deployment-controller", "replicaset-controller"]);
    deployed::apply(&control_plane, manifests());
    Cluster {
        api,
        kubectl: control_plane.kubectl().unwrap(),
        _nodes: simulate(&control_plane),
        _scheduler: schedule(&control_plane),
        control_plane,
    }
}

/// The controller is killed in mid-write and starts again; then the ReplicaSet controller scales in.
#[test]
fn the_replicaset_controller_scales_in_from_the_lowest_unit() {
    with_nodes(&["reserved", "spot", "burst"], scales_in);
}

fn scales_in(cluster: &Cluster) {
    let Cluster {
        api, control_plane, ..
    } = cluster;
    let before = patches(control_plane).len();
    let kubectl = |command: &str| run(&cluster.kubectl, command);
    let kinds = |more: u32| {
        units(&[
            ("reserved", 10 + more, Some(4)),
            ("spot", 5 + more, Some(4)),
            ("burst", 1 + more, None),
        ])
    };
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"podSelector": selector, "units": kinds(0)});
    api.post(POLICIES, &policy("web", spec)).unwrap();
    let mut controllers = control(control_plane, &["--policy-writes-per-second=2"]);
    api.create(&deployment("web", 12)).unwrap();
    kubectl("rollout status deployment/web --timeout=120s");
    // The scheduler wrote them with the Bindings.
    let want = [
        ("11 web/reserved=11", 4),
        ("6 web/spot=6", 4),
        ("2 web/burst=2", 4),
    ];
    costs_become(api, &controllers, &want);
    policy_condition(api, "web", "Accepted", "True");
    assert_eq!(
        patches(control_plane)[before..],
        [],
        "there was nothing to write"
    );

    // An edit changes all costs; the process is killed after the first writes.
    api.patch(
        &format!("{POLICIES}/web"),
        &json!({"spec": {"units": kinds(10)}}),
    )
    .unwrap();
    let want = [
        ("21 web/reserved=21", 4),
        ("16 web/spot=16", 4),
        ("12 web/burst=12", 4),
    ];
    let written = || {
        let found = by_cost(api);
        let new = want.iter().filter_map(|(cost, _)| found.get(*cost));
        new.sum::<usize>()
    };
    eventually("a cost is written", LONG, || match written() {
        0 => Err(controllers.last_words()),
        _ => Ok(()),
    });
    controllers.stop();
    assert!(written() < 12, "it was killed too late");
    let controllers = control(control_plane, &[]);
    costs_become(api, &controllers, &want);
    // The audit log has no line of a request whose client was killed.
    eventually("the audit log has them all", SHORT, || {
        match patches(control_plane).len() - before {
            11 | 12 => Ok(()),
            other => Err(format!("{other} patches")),
        }
    });

    // A user keeps a pod of the lowest unit.
    let pods = api.list(PODS).unwrap();
    let kept = pods
        .iter()
        .find(|pod| annotation(pod, COST) == "12")
        .unwrap();
    let kept = text(&kept["metadata"]["name"]);
    kubectl(&format!("annotate pod {kept} --overwrite {COST}=1000"));
    let message = policy_condition(api, "web", "DeletionCostConflict", "True");
    assert!(
        message.starts_with(&format!(
            "1 pod has a deletion cost that another component or a user set, for example pod {kept};"
        )),
        "{message}"
    );
    let events =
        "get events --field-selector reason=DeletionCostConflict -o jsonpath={.items[*].message}";
    eventually("there is one event", SHORT, || match kubectl(events) {
        found if found == message => Ok(()),
        found => Err(found),
    });

    kubectl("scale deployment web --replicas=4");
    costs_become(
        api,
        &controllers,
        &[("21 web/reserved=21", 3), ("1000 web/burst=12", 1)],
    );
    eventually("the status shows it", LONG, || {
        let policy = api.get(&format!("{POLICIES}/web")).unwrap();
        match text(&policy["status"]["summary"]) {
            found if found == "reserved 3/4, spot 0/4, burst 1, outside 0" => Ok(()),
            found => Err(found),
        }
    });

    kubectl("delete resourcepolicy web");
    costs_become(api, &controllers, &[(" ", 3), ("1000 ", 1)]);
    deployed::check_permissions(control_plane);
    deployed::check_permissions_of(control_plane, USER);
}

/// Without pod-template-hash the old pods fill the unit, and the new one waits; with it each revision has its own count.
#[test]
fn a_rolling_update_needs_the_hash_in_a_full_unit() {
    with_nodes(&["reserved"], updates);
}

fn updates(cluster: &Cluster) {
    let api = &cluster.api;
    let kubectl = |command: &str| run(&cluster.kubectl, command);
    let selector = json!({"matchLabels": {"app": "web"}});
    let spec = json!({"podSelector": selector, "units": units(&[("reserved", 0, Some(2))])});
    api.post(POLICIES, &policy("web", spec)).unwrap();
    let controllers = control(&cluster.control_plane, &[]);
    api.create(&deployment("web", 2)).unwrap();
    kubectl("rollout status deployment/web --timeout=120s");
    costs_become(api, &controllers, &[("1 web/reserved=1", 2)]);

    kubectl("set image deployment/web c=web:2");
    let full = "ResourcePolicy default/web: unit \"reserved\" is full (maxCount 2)";
    eventually("the new pod waits", LONG, || {
        let pods = api.list(PODS).unwrap();
        let message = |pod: &Value| text(&condition(pod, "PodScheduled")["message"]);
        match pods.iter().any(|pod| message(pod).contains(full)) {
            true => Ok(()),
            false => Err(format!(
                "{:?}",
                pods.iter().map(message).collect::<Vec<_>>()
            )),
        }
    });
    let keys = json!({"spec": {"matchLabelKeys": ["pod-template-hash"]}});
    api.patch(&format!("{POLICIES}/web"), &keys).unwrap();
    kubectl("rollout status deployment/web --timeout=120s");
    let images = kubectl(
        "get pods -l app=web --field-selector=status.phase=Running -o jsonpath={.items[*].spec.containers[*].image}",
    );
    assert!(images.contains("web:2 web:2"), "{images}");
    costs_become(api, &controllers, &[("1 web/reserved=1", 2)]);
    deployed::check_permissions(&cluster.control_plane);
}

/// The peak of the resident memory in MiB.
pub(crate) fn peak_memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

/// Few writes and little memory: an edit changes the costs of a sixth of the pods. `TIDEPOOL_FULL` has 30,000 pods.
#[test]
fn an_edit_writes_each_changed_cost_once() {
    let is_full = std::env::var_os("TIDEPOOL_FULL").is_some();
    let (pods, changed) = if is_full { (30_000, 5_000) } else { (600, 100) };
    let (api, control_plane) = start_with(&[]);
    deployed::apply(&control_plane, manifests());
    for kind in ["reserved", "spot"] {
        api.create(&node(
            kind,
            "zone",
            json!({"metadata": {"labels": {"kind": kind}}}),
        ))
        .unwrap();
    }
    let spec =
        |reserved: u32| json!({"units": units(&[("reserved", reserved, None), ("spot", 1, None)])});
    let on = |index: usize| {
        if index < changed {
            ("reserved", 11)
        } else {
            ("spot", 2)
        }
    };
    let threads = 8;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let api = Api::new(&control_plane.admin()).unwrap();
            scope.spawn(move || {
                for index in (thread..pods).step_by(threads) {
                    let (kind, cost) = on(index);
                    let name = format!("p-{index}");
                    let pod = json!({"apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": name, "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"}},
                        "spec": {"containers": [{"name": "c", "image": "i"}]}});
                    api.create(&pod).unwrap();
                    // As the scheduler does.
                    let annotations =
                        json!({COST: cost.to_string(), MARK: format!("web/{kind}={cost}")});
                    let binding = json!({"apiVersion": "v1", "kind": "Binding",
                        "metadata": {"name": name, "annotations": annotations},
                        "target": {"kind": "Node", "name": kind}});
                    api.post(&format!("{PODS}/{name}/binding"), &binding)
                        .unwrap();
                }
            });
        }
    });
    api.post(POLICIES, &policy("web", spec(10))).unwrap();
    let flags = [
        // A busy machine renews no Lease in two seconds.
        "--leader-elect=false",
        // The memory of one controller.
        "--controllers=resourcepolicy",
        "--policy-writes-per-second=1000",
        "--policy-resync-period=1s",
    ];
    let controllers = control(&control_plane, &flags);
    policy_condition(&api, "web", "Accepted", "True");
    assert_eq!(patches(&control_plane), []);
    api.patch(&format!("{POLICIES}/web"), &json!({"spec": spec(20)}))
        .unwrap();
    let begun = Instant::now();
    let new = "21 web/reserved=21".to_owned();
    eventually("all costs are new", 5 * LONG, || {
        match by_cost(&api).get(&new).copied().unwrap_or_default() {
            all if all == changed => Ok(()),
            some => Err(format!("{some}: {}", controllers.last_words())),
        }
    });
    println!("{changed} costs in {:?}", begun.elapsed());
    // Two resyncs write nothing.
    std::thread::sleep(Duration::from_secs(3));
    let written = patches(&control_plane).len();
    assert!(
        (changed..=changed + changed / 10).contains(&written),
        "{written} patches"
    );
    let memory = peak_memory(&controllers);
    println!("{written} patches, {memory} MiB");
    assert!(memory <= 80, "{memory} MiB");
    deployed::check_permissions_of(&control_plane, USER);
}
