//! The scheduler uses every permission of its manifests in `deploy/` on a real API server. The controllers have a test of their own.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use e2e::audit::Request;
use e2e::{Api, ControlPlane, Proxy, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE, manifests, primary_manifests};
use crate::shared_cluster::{SHORT, asks, node, pod, pod_path, text};
use crate::volumes::{claim, class, user_of, volume};

const LONG: Duration = Duration::from_secs(90);

/// Namespace, group, resource with its subresource, verb. The namespace is empty for all.
type Permission = (String, String, String, String);

/// What the Roles and ClusterRoles among the objects grant to service accounts.
fn granted(objects: &[Value]) -> BTreeSet<Permission> {
    let roles = objects.iter().filter(|it| {
        let kind = &it["kind"];
        kind == "Role" || kind == "ClusterRole"
    });
    let mut permissions = BTreeSet::new();
    for role in roles {
        let namespace = text(&role["metadata"]["namespace"]);
        for rule in role["rules"].as_array().unwrap() {
            let texts = |field: &str| -> Vec<String> {
                let all = rule[field].as_array().into_iter().flatten();
                all.map(text).collect()
            };
            // The gate asks whether the scheduler has it; there is no request of the scheduler.
            let groups = texts("apiGroups").into_iter();
            for group in groups.filter(|group| group != "tidepool.io") {
                for resource in texts("resources") {
                    for verb in texts("verbs") {
                        permissions.insert((
                            namespace.clone(),
                            group.clone(),
                            resource.clone(),
                            verb,
                        ));
                    }
                }
            }
        }
    }
    permissions
}

/// Those of the permissions that the scheduler did not use.
fn unused(control_plane: &ControlPlane, granted: &BTreeSet<Permission>) -> Vec<Permission> {
    let mut requests = deployed::requests(control_plane);
    requests.retain(Request::succeeded);
    let is_used = |(namespace, group, resource, verb): &Permission| {
        requests.iter().any(|it| {
            (namespace.is_empty() || *namespace == it.namespace)
                && (group, resource, verb) == (&it.group, &it.resource, &it.verb)
        })
    };
    let unused = granted.iter().filter(|it| !is_used(it));
    unused.cloned().collect()
}

/// A binding that conflicts, a pod that fails twice, preemption, volumes that exist and that are made, and a user that
/// reads the metrics.
#[test]
fn the_scheduler_uses_every_permission_of_its_manifests() {
    let control_plane = deployed::start(&["persistentvolume-binder-controller"]);
    let crds = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds"));
    for (file, path) in [
        (
            "node.katalyst.kubewharf.io_customnoderesources.yaml",
            "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources",
        ),
        (
            "scheduling.sigs.x-k8s.io_resourcepolicies.yaml",
            "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourcepolicies",
        ),
    ] {
        deployed::serve_definition(&control_plane, &crds.join(file), path);
    }
    let api = Api::new(&control_plane.admin()).unwrap();
    api.create(&node("n0", "a", json!({}))).unwrap();
    let mut flags = deployed::flags(&control_plane, &manifests());
    flags.retain(|flag| !flag.starts_with("--secure-port"));
    // The failure of a pod repeats soon, which makes its event a series.
    flags.push("--pod-max-in-unschedulable-pods-duration=2s".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let user = deployed::scheduler_account(&control_plane);
    let proxy = Proxy::start(&user, |request| {
        request.uri.path().ends_with("/pods/contested/binding")
    })
    .unwrap();
    proxy.hold();
    let mut ours = control_plane
        .tidepool("second", proxy.kubeconfig(), &flags)
        .unwrap();
    // The scheduler reads a pod when the server refuses its binding: another client was first.
    let small = json!({"containers": asks("cpu", "100m")});
    api.create(&pod("contested", small)).unwrap();
    eventually("the binding is held back", LONG, || match proxy.waiting() {
        1 => Ok(()),
        _ => Err(ours.last_words()),
    });
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "contested"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"}});
    api.post(&format!("{}/binding", pod_path("contested")), &binding)
        .unwrap();
    proxy.release();

    let class_of = |name: &str, value: i32| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    api.create(&class_of("greater", 1_000)).unwrap();
    api.create(&node(
        "large",
        "b",
        json!({"status": {"capacity": {"cpu": "64"}}}),
    ))
    .unwrap();
    api.create(&class("local", "kubernetes.io/no-provisioner"))
        .unwrap();
    api.create(&class("made", "example.com/maker")).unwrap();
    api.create(&volume("disk", "local", "large")).unwrap();
    for (name, class) in [("there", "local"), ("made", "made")] {
        api.create(&claim(name, class)).unwrap();
        api.create(&pod(name, user_of(name))).unwrap();
    }
    api.create(&pod("giant", json!({"containers": asks("cpu", "900")})))
        .unwrap();
    let on_large = |name: &str| {
        eventually(&format!("{name} is bound"), SHORT, || {
            let found = api.get(&pod_path(name)).unwrap();
            match text(&found["spec"]["nodeName"]) {
                node if node == "large" => Ok(()),
                _ => Err(found["status"].to_string()),
            }
        });
    };
    on_large("there");
    api.create(&pod("victim", json!({"containers": asks("cpu", "60")})))
        .unwrap();
    on_large("victim");
    let urgent = json!({"containers": asks("cpu", "60"), "priorityClassName": "greater"});
    api.create(&pod("urgent", urgent)).unwrap();
    eventually("the victim goes", SHORT, || {
        match api.get(&pod_path("victim")) {
            Ok(pod) if pod["metadata"]["deletionTimestamp"].is_null() => Err(ours.last_words()),
            _ => Ok(()),
        }
    });
    // Events about pods need the same right.
    deployed::wait_for_leader_event(&api, "tidepool");
    let server = deployed::server(&ours).unwrap();
    let admin = control_plane.admin().token;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}});
    api.create(&account).unwrap();
    let prometheus = deployed::account(&control_plane, "default", "prometheus");
    for (token, want) in [(&admin, 200), (&prometheus.token, 403)] {
        let (code, body) = deployed::ask(&server, "/metrics", Some(token));
        assert_eq!(code, want, "{body}");
    }

    // Watches are in the audit log when they have ended.
    let mut all = granted(&manifests());
    let watches = |it: &Permission| it.3 == "watch";
    eventually("all but watches are used", LONG, || {
        let mut left = unused(&control_plane, &all);
        left.retain(|it| !watches(it));
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    });
    ours.terminate().unwrap();
    deployed::check_permissions(&control_plane);
    deployed::apply(&control_plane, primary_manifests());
    let mut primary = deployed::scheduler_of(&control_plane, "primary", &primary_manifests());
    eventually("it leads", SHORT, || {
        match primary.log().contains("starting to schedule") {
            true => Ok(()),
            false => Err(primary.last_words()),
        }
    });
    all.extend(granted(&primary_manifests()));
    eventually("all but watches are used", SHORT, || {
        let mut left = unused(&control_plane, &all);
        left.retain(|it| !watches(it));
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    });
    primary.terminate().unwrap();
    eventually("every permission is used", SHORT, || {
        let left = unused(&control_plane, &all);
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    });
    assert!(all.iter().any(|it| it.0 == NAMESPACE), "{all:?}");
}
