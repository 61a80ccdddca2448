//! Permissions around ResourcePolicies on the real API server: of users, and of the controllers.

use std::collections::BTreeSet;
use std::path::Path;

use e2e::{Api, ControlPlane, User, eventually};
use serde_json::{Value, json};

use crate::deployed;
use crate::policies::{COST, POLICIES, policy, serve_policies};
use crate::policy_costs::{
    LONG, USER, account, control_as, costs_become, manifests, policy_condition, units,
};
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, node, pod_path, text};

const READS: [&str; 3] = ["get", "list", "watch"];
const WRITES: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
const ROLES: [&str; 3] = ["admin", "edit", "view"];

static SHARED: Shared<(Api, ControlPlane)> = Shared::by(2);

/// With a user for each role and one without any.
fn start() -> (Api, ControlPlane) {
    let users = ROLES.iter().chain(&["none"]).map(|role| User {
        name: user(role),
        groups: Vec::new(),
    });
    // Such an API server does not stream lists, so that the controllers list, too.
    let flags = ["--feature-gates=WatchList=false"];
    let aggregation = ["clusterrole-aggregation-controller"];
    let control_plane = deployed::start_as(users.collect(), &aggregation, &flags);
    let api = serve_policies(&control_plane);
    deployed::apply(&control_plane, manifests());
    (api, control_plane)
}

fn user(role: &str) -> String {
    format!("user-{role}")
}

/// Whether RBAC allows a request of the user.
fn may(api: &Api, user: &str, verb: &str, namespace: &str, subresource: &str) -> bool {
    let attributes = json!({"group": "scheduling.sigs.x-k8s.io", "resource": "resourcepolicies",
        "subresource": subresource, "namespace": namespace, "verb": verb});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    api.post(path, &review).unwrap()["status"]["allowed"] == true
}

/// Users with these roles in the namespace `team`.
#[test]
fn users_with_edit_write_policies_and_users_with_view_read_them() {
    SHARED.with(start, |(api, control_plane)| {
        roles_of_users(api, control_plane);
    });
}

fn roles_of_users(api: &Api, control_plane: &ControlPlane) {
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    api.create(&team).unwrap();
    for role in ROLES {
        api.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": "team"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user(role)}]}))
            .unwrap();
    }
    for role in ["admin", "edit", "view", "none"] {
        let user = user(role);
        for verb in READS.iter().chain(&WRITES) {
            let want = match role {
                "admin" | "edit" => true,
                "view" => READS.contains(verb),
                _ => false,
            };
            eventually(&format!("{user} may {verb}: {want}"), SHORT, || {
                match may(api, &user, verb, "team", "") {
                    found if found == want => Ok(()),
                    found => Err(found.to_string()),
                }
            });
            assert!(!may(api, &user, verb, "default", ""), "{user}: {verb}");
            // The status is the controller's.
            assert!(!may(api, &user, verb, "team", "status"), "{user}: {verb}");
        }
    }
    let as_user = |role: &str| Api::new(&control_plane.kubeconfig(&user(role))).unwrap();
    let (editor, viewer) = (as_user("edit"), as_user("view"));
    let path = POLICIES.replace("/default/", "/team/");
    let web = policy("web", json!({"units": units(&[("spot", 0, None)])}));
    let refused = viewer.post(&path, &web).unwrap_err();
    let words = "User \"user-view\" cannot create resource \"resourcepolicies\" in API group \"scheduling.sigs.x-k8s.io\"";
    assert!(format!("{refused:#}").contains(words), "{refused:#}");
    editor.post(&path, &web).unwrap();
    assert_eq!(viewer.list(&path).unwrap().len(), 1);
    assert!(viewer.delete(&format!("{path}/web")).is_err());
    editor.delete(&format!("{path}/web")).unwrap();
}

/// Group, resource with its subresource, verb.
type Right = (String, String, String);

/// What the roles of the manifest grant to the controllers.
fn granted() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let texts = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect::<Vec<_>>()
    };
    for role in manifests() {
        let is_role = role["kind"] == "ClusterRole" || role["kind"] == "Role";
        if !is_role || role["metadata"]["name"] != "tidepool-controllers" {
            continue;
        }
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let verbs = texts(&rule["verbs"]).into_iter();
                    rights.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
    }
    rights
}

/// The agent of the node `spot`, where a reclaimed pod runs, and the agent of a node that is gone.
fn silence_agents(api: &Api) {
    let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
        "metadata": {"name": "gone"}});
    let reports = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
    api.post(reports, &report).unwrap();
    for node in ["spot", "gone"] {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("agent-{node}"), "labels": {"tidepool.io/agent": "true"}},
            "spec": {"holderIdentity": node, "renewTime": "2026-01-01T00:00:00.000000Z"}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases";
        api.post(leases, &lease).unwrap();
    }
    let annotations = json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    api.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lent", "annotations": annotations},
        "spec": {"nodeName": "spot", "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
}

/// The audit log has every permission of the manifest, and no other request.
#[test]
fn the_controllers_use_every_permission_that_they_have() {
    SHARED.with(start, |(api, control_plane)| {
        permissions_of_controllers(api, control_plane);
    });
}

fn permissions_of_controllers(api: &Api, control_plane: &ControlPlane) {
    for (file, path) in [
        (
            "slo.koordinator.sh_nodemetrics.yaml",
            "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
        ),
        (
            "node.katalyst.kubewharf.io_customnoderesources.yaml",
            "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources",
        ),
    ] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        deployed::serve_definition(control_plane, &directory.join(file), path);
    }
    let labels = json!({"metadata": {"labels": {"kind": "spot"}}});
    api.create(&node("spot", "zone", labels)).unwrap();
    api.create(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"nodeName": "spot", "containers": [{"name": "c", "image": "i",
            // The tier controller publishes what a bound pod requests.
            "resources": {"requests": {"kubernetes.io/mid-cpu": "100"}, "limits": {"kubernetes.io/mid-cpu": "100"}}}]}}),
    )
    .unwrap();
    let spec = json!({"units": units(&[("spot", 0, None)])});
    api.post(POLICIES, &policy("web", spec)).unwrap();
    silence_agents(api);
    let user = account(control_plane);
    // As the manifest, on any port and in a hurry.
    let flags = [
        "--agent-silent-after=1s",
        "--evict-from-silent-nodes",
        "--agent-evict-after=2s",
        "--bind-address=0.0.0.0",
        "--leader-elect-retry-period=200ms",
        "--policy-sync-interval=50ms",
        "--policy-status-interval=50ms",
        "--scheduler-not-found-after=1s",
        "--scheduler-namespaces=kube-public",
    ];
    let mut controllers = control_as(control_plane, &user, &flags);
    costs_become(api, &controllers, &[("1 web/spot=1", 1)]);
    deployed::wait_for_leader_event(api, "tidepool-controllers");
    // The registry of schedulers creates its ConfigMap, then patches it; it marks a pod that no scheduler serves.
    let names = |want: &str| {
        let path = "/api/v1/namespaces/tidepool-system/configmaps/schedulers";
        eventually(&format!("the names are {want}"), LONG, || {
            let map = api.get(path).map_err(|error| format!("{error:#}"))?;
            let found = map["data"]["names"].as_str().unwrap_or_default();
            if found == want {
                Ok(())
            } else {
                Err(found.to_owned())
            }
        });
    };
    names("default-scheduler");
    api.create(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "volcano", "namespace": "kube-public", "annotations": {"tidepool.io/scheduler-names": "volcano"}},
        "spec": {"holderIdentity": "them", "leaseDurationSeconds": 300}}))
        .unwrap();
    names("default-scheduler,volcano");
    api.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "misspelt", "namespace": "kube-public"},
        "spec": {"schedulerName": "volcanoo", "containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
    // An event that repeats is patched.
    for (cost, conflicts) in [("5", "True"), ("1", "False"), ("5", "True")] {
        let set = json!({"metadata": {"annotations": {COST: cost}}});
        api.patch(&pod_path("a"), &set).unwrap();
        policy_condition(api, "web", "DeletionCostConflict", conflicts);
    }
    let server = deployed::server(&controllers).unwrap();
    assert!(server.starts_with("https://"), "{server}");
    assert_eq!(deployed::ask(&server, "/metrics", Some(&user.token)).0, 403);

    let granted = granted();
    let used = || -> BTreeSet<Right> {
        let mut requests = deployed::requests_of(control_plane, USER);
        // Such as /version.
        requests.retain(|it| !it.resource.is_empty() && it.succeeded());
        requests
            .into_iter()
            .map(|it| (it.group, it.resource, it.verb))
            .collect()
    };
    // A watch is in the log when it has ended.
    let unfinished = |right: &&Right| right.2 != "watch";
    eventually("every permission was used", LONG, || {
        let missing: Vec<Right> = granted
            .difference(&used())
            .filter(unfinished)
            .cloned()
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{missing:?} are not used: {}",
                controllers.last_words()
            )),
        }
    });
    controllers.stop();
    eventually("the watches are in the log", LONG, || match used() {
        found if found == granted => Ok(()),
        found => Err(format!("{:?}", found.symmetric_difference(&granted))),
    });
    deployed::check_permissions_of(control_plane, USER);
}
