//! ResourcePolicies on the real API server: how the scheduler fills units, with the permissions of its manifest.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::audit::Request;
use e2e::{Api, ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::shared::Shared;
use crate::shared_cluster::{condition, node, pod, pod_path, text};

const LONG: Duration = Duration::from_secs(120);
const DEFINITION: &str = "deploy/crds/scheduling.sigs.x-k8s.io_resourcepolicies.yaml";
pub(crate) const POLICIES: &str =
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(crate) const MARK: &str = "tidepool.io/policy-unit";
const CONFIGURATION: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: { leaderElect: false }
profiles:
- schedulerName: tidepool
  plugins: { multiPoint: { enabled: [{ name: resourcepolicy }] } }
";

static SHARED: Shared<(Api, ControlPlane)> = Shared::by(2);

/// Gives a control plane that serves the kind to one test at a time. It has no controllers.
pub(crate) fn with_policies(test: impl FnOnce(&Api, &ControlPlane)) {
    SHARED.with(
        || start_with(&[]),
        |(api, control_plane)| {
            test(api, control_plane);
            for path in [POLICIES, PODS, "/api/v1/nodes"] {
                // All objects of the list.
                api.delete_now(path).unwrap();
            }
        },
    );
}

/// A control plane that serves the kind, with these controllers of kube-controller-manager.
pub(crate) fn start_with(controllers: &[&str]) -> (Api, ControlPlane) {
    let control_plane = deployed::start(controllers);
    (serve_policies(&control_plane), control_plane)
}

pub(crate) fn serve_policies(control_plane: &ControlPlane) -> Api {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    deployed::serve_definition(control_plane, &root.join(DEFINITION), POLICIES)
}

/// The flags of a scheduler with this name that has the plugin.
pub(crate) fn configured(control_plane: &ControlPlane, name: &str) -> String {
    let file = control_plane.logs().join(format!("{name}.yaml"));
    let text = CONFIGURATION.replace("schedulerName: tidepool", &format!("schedulerName: {name}"));
    std::fs::write(&file, text).unwrap();
    format!("--config={}", file.display())
}

/// A scheduler with the permissions of the manifest. None of them is to write pods.
pub(crate) fn schedule(control_plane: &ControlPlane) -> Process {
    let flag = configured(control_plane, "tidepool");
    deployed::with_flags(control_plane, "tidepool", &[&flag])
}

pub(crate) fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
        "metadata": {"name": name}, "spec": spec})
}

fn unit(name: &str, priority: u32, max_count: u32) -> Value {
    json!({"name": name, "priority": priority, "maxCount": max_count, "nodeSelector": {"matchLabels": {"kind": name}}})
}

/// Pods with a node, by unit: their marks without the cost.
fn by_unit(api: &Api) -> Vec<(String, usize)> {
    let mut units = std::collections::BTreeMap::new();
    for pod in api.list(PODS).unwrap() {
        if pod["spec"]["nodeName"].is_string() {
            let mark = text(&pod["metadata"]["annotations"][MARK]);
            *units.entry(mark).or_default() += 1;
        }
    }
    units.into_iter().collect()
}

/// Returns once the pod waits with a message that contains these texts.
pub(crate) fn waits(api: &Api, name: &str, texts: &[&str]) {
    eventually(&format!("pod {name} waits"), LONG, || {
        let pod = api.get(&pod_path(name)).unwrap();
        let message = text(&condition(&pod, "PodScheduled")["message"]);
        match texts.iter().all(|text| message.contains(text)) {
            true => Ok(()),
            false => Err(message),
        }
    });
}

fn waiting(api: &Api) -> Vec<String> {
    let pods = api.list(PODS).unwrap();
    let pods = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_null());
    pods.map(|pod| text(&pod["metadata"]["name"])).collect()
}

/// What `tidepool explain` prints.
fn explain(control_plane: &ControlPlane, scheduler: &Process, pod: &str) -> String {
    let server = deployed::server(scheduler).unwrap();
    let output = Command::new(e2e::tidepool::binary().unwrap())
        .args(["explain", "pod", pod, "--scores", "--server", &server])
        .env_clear()
        .env(
            "KUBECONFIG",
            control_plane.kubeconfig_file("admin").unwrap(),
        )
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn units_fill_in_order_and_a_raised_cap_binds_the_rest() {
    with_policies(units_fill);
}

fn units_fill(api: &Api, control_plane: &ControlPlane) {
    // The scores favour the other node; the order of units is strict.
    let avoided = json!({"taints": [{"key": "k", "value": "v", "effect": "PreferNoSchedule"}]});
    for (name, kind, spec) in [("r", "reserved", avoided), ("s", "spot", json!({}))] {
        let more = json!({"metadata": {"labels": {"kind": kind}}, "spec": spec});
        api.create(&node(name, "zone", more)).unwrap();
    }
    let spec = |spot: u32| json!({"units": [unit("spot", 1, spot), unit("reserved", 5, 2)]});
    api.post(POLICIES, &policy("web", spec(3))).unwrap();
    let ours = schedule(control_plane);
    let create = |name: &str| api.create(&pod(name, json!({}))).unwrap();
    let reach = |reserved: usize, spot: usize| {
        let spot = (spot > 0).then(|| ("web/spot=2".to_owned(), spot));
        let want = [("web/reserved=6".to_owned(), reserved)].into_iter();
        let want: Vec<_> = want.chain(spot).collect();
        eventually("the units are filled", LONG, || match by_unit(api) {
            found if found == want => Ok(()),
            found => Err(format!("{found:?}")),
        });
    };
    let mut first = pod("web-00", json!({}));
    first["metadata"]["annotations"] = json!({"tidepool.io/debug-scores": "2"});
    api.create(&first).unwrap();
    reach(1, 0);
    let rows = [
        "| # | Pod | Node | Unit |",
        "| 0 | default/web-00 | r | reserved |",
        "| 1 | default/web-00 | s | spot |",
    ];
    let explained = explain(control_plane, &ours, "default/web-00");
    for (place, table) in [("explain", explained), ("the log", ours.log())] {
        for row in rows {
            assert!(table.contains(row), "no `{row}` in {place}:\n{table}");
        }
    }
    (1..12).for_each(|index| drop(create(&format!("web-{index:02}"))));
    reach(2, 3);
    for pod in api.list(PODS).unwrap() {
        if pod["spec"]["nodeName"] == "r" {
            assert_eq!(pod["metadata"]["annotations"][COST], "6");
        }
    }
    let full = |unit: &str, max: u32| {
        format!("ResourcePolicy default/web: unit \"{unit}\" is full (maxCount {max})")
    };
    let (reserved, spot) = (full("reserved", 2), full("spot", 3));
    let names = waiting(api);
    assert_eq!(names.len(), 7);
    for name in &names {
        waits(api, name, &[&reserved, &spot]);
    }
    let explained = explain(control_plane, &ours, &format!("default/{}", names[0]));
    assert!(explained.contains(&spot), "{explained}");

    // All that fit are bound within 2 s. A machine that stands still for as long may spoil an attempt.
    let (mut spot, mut took) = (3, Duration::MAX);
    while took >= Duration::from_secs(2) {
        assert!(spot < 9, "the last pods were bound after {took:?}");
        // Past the backoff of the last attempt, so that only the event is waited for.
        std::thread::sleep(Duration::from_secs(3));
        spot += 2;
        let begun = jiff::Timestamp::now();
        let patch = json!({"spec": spec(spot)});
        api.patch(&format!("{POLICIES}/web"), &patch).unwrap();
        reach(2, spot as usize);
        let bound = bindings(control_plane, begun, 2);
        let last = bound.iter().map(|it| it.received).max().unwrap();
        took = last.duration_since(begun).unsigned_abs();
    }

    // A pod with two policies waits until one is deleted. Without any policy all pods are bound.
    let again = policy("again", json!({"units": [{"nodeSelector": {}}]}));
    api.post(POLICIES, &again).unwrap();
    create("both");
    let multiple = "multiple resourcePolicies match pod: again, web";
    waits(api, "both", &[multiple]);
    api.delete(&format!("{POLICIES}/again")).unwrap();
    waits(api, "both", &[&reserved]);
    api.delete(&format!("{POLICIES}/web")).unwrap();
    eventually("all are bound", LONG, || match &waiting(api)[..] {
        [] => Ok(()),
        names => Err(format!("{names:?} wait")),
    });
    only_binds(control_plane, 13);
}

/// The Bindings that the scheduler created after this time, so many.
fn bindings(control_plane: &ControlPlane, after: jiff::Timestamp, count: usize) -> Vec<Request> {
    eventually(&format!("there are {count} Bindings"), LONG, || {
        let mut requests = deployed::requests(control_plane);
        requests.retain(|it| it.resource == "pods/binding" && it.received > after);
        match requests.len() == count {
            true => Ok(requests),
            false => Err(format!("{requests:#?}")),
        }
    })
}

/// One Binding for each of so many pods, and no other write of a pod than its status: annotations on a Binding need no
/// permission to write pods.
fn only_binds(control_plane: &ControlPlane, pods: usize) {
    bindings(control_plane, jiff::Timestamp::UNIX_EPOCH, pods);
    let mut others = deployed::requests(control_plane);
    others.retain(|it| it.is_write() && it.resource.starts_with("pods"));
    others.retain(|it| it.resource != "pods/binding");
    let is_status = |it: &Request| (&*it.resource, &*it.verb) == ("pods/status", "patch");
    assert!(others.iter().all(is_status), "{others:#?}");
    deployed::check_permissions(control_plane);
}
