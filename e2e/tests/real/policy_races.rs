//! ResourcePolicies when components observe each other late, on the real API server.

use e2e::{Api, ControlPlane, Process, Proxy, eventually};
use http::Method;
use serde_json::{Value, json};

use crate::deployed;
use crate::policies::{
    COST, MARK, PODS, POLICIES, configured, policy, serve_policies, start_with, waits,
};
use crate::policy_costs::{
    LEASES, LONG, USER, account, annotation, control, control_as, costs_become, manifests, patches,
    policy_condition, units,
};
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, node, pod, pod_path};

static SHARED: Shared<ControlPlane> = Shared::by(2);

/// Gives the control plane to one test at a time, with one node, which is the only one of its kind.
fn with_node(kind: &str, test: impl FnOnce(&Api, &ControlPlane)) {
    let start = || {
        let (_, control_plane) = start_with(&[]);
        deployed::apply(&control_plane, manifests());
        control_plane
    };
    SHARED.with(start, |control_plane| {
        // One of the tests deletes the definition.
        let api = serve_policies(control_plane);
        let labels = json!({"metadata": {"labels": {"kind": kind}}});
        api.create(&node(kind, "zone", labels)).unwrap();
        test(&api, control_plane);
        let _ = api.delete_now(POLICIES);
        for path in [PODS, "/api/v1/nodes", LEASES] {
            // All objects of the list.
            api.delete_now(path).unwrap();
        }
    });
}

/// Returns once so many requests wait in the proxy.
fn held(proxy: &Proxy, requests: usize, process: &Process) {
    eventually("the requests are held back", LONG, || {
        match proxy.waiting() {
            found if found == requests => Ok(()),
            found => Err(format!("{found}: {}", process.last_words())),
        }
    });
}

/// Two processes; the second one does not observe the pod that the first one binds.
#[test]
fn the_status_shows_what_two_schedulers_admit_beyond_a_cap() {
    with_node("reserved", two_schedulers_admit);
}

fn two_schedulers_admit(api: &Api, control_plane: &ControlPlane) {
    let spec = json!({"units": units(&[("reserved", 0, Some(1))])});
    api.post(POLICIES, &policy("web", spec)).unwrap();
    let controllers = control(control_plane, &[]);
    let user = deployed::scheduler_account(control_plane);
    let proxy = Proxy::start(&user, |request| {
        let query = request.uri.query().unwrap_or_default();
        request.uri.path() == "/api/v1/pods" && query.contains("watch=1")
    })
    .unwrap();
    let schedulers = [("first", &user), ("second", proxy.kubeconfig())].map(|(name, user)| {
        let flag = configured(control_plane, name);
        let flags = ["--secure-port=0", &flag];
        control_plane.tidepool(name, user, &flags).unwrap()
    });
    let create = |name: &str, scheduler: &str, more: Value| {
        let mut spec = json!({"schedulerName": scheduler});
        spec["nodeSelector"] = more;
        api.create(&pod(name, spec)).unwrap();
    };
    create("late", "second", json!({"open": "yes"}));
    waits(api, "late", &["didn't match Pod's node affinity/selector"]);

    proxy.hold();
    create("early", "first", json!({}));
    eventually("the first scheduler binds its pod", LONG, || {
        let pod = api.get(&pod_path("early")).unwrap();
        match pod["spec"]["nodeName"] == "reserved" {
            true => Ok(()),
            false => Err(schedulers[0].last_words()),
        }
    });
    held(&proxy, 1, &schedulers[1]);
    // The watch of nodes is not held back, so the second scheduler tries its pod now.
    let open = json!({"metadata": {"labels": {"open": "yes"}}});
    api.patch("/api/v1/nodes/reserved", &open).unwrap();
    let want = [("1 web/reserved=1", 1), ("-1001 web/reserved=-1001", 1)];
    costs_become(api, &controllers, &want);
    eventually("the status shows both", LONG, || {
        let status = api.get(&format!("{POLICIES}/web")).unwrap()["status"].take();
        let unit = json!({"name": "reserved", "nodes": 1, "pods": 2, "overLimit": 1});
        match status["summary"] == "reserved 2/1, outside 0" && status["units"] == json!([unit]) {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    });

    // It is the watch: once it is up to date, the second scheduler keeps to the limit.
    proxy.release();
    create("third", "second", json!({}));
    let full = "ResourcePolicy default/web: unit \"reserved\" is full (maxCount 1)";
    waits(api, "third", &[full]);
    deployed::check_permissions(control_plane);
}

/// The controller's writes are on their way when a user sets a cost: such a write fails as a whole, whether the pod had
/// annotations before or not.
#[test]
fn a_cost_that_a_user_sets_during_a_write_stays() {
    with_node("spot", a_user_sets_a_cost);
}

fn a_user_sets_a_cost(api: &Api, control_plane: &ControlPlane) {
    let before = patches(control_plane).len();
    // The API server accepts numbers only.
    let bound = |name: &str, annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": "spot", "containers": [{"name": "c", "image": "i"}]}})
    };
    let refused = api.create(&bound("worthless", json!({COST: "cheap"})));
    let refused = format!("{:#}", refused.unwrap_err());
    let words = "Invalid value: \"cheap\": must be a 32bit integer";
    assert!(refused.contains(words), "{refused}");

    let note = json!({"note": "x"});
    for (name, annotations) in [
        ("bare", Value::Null),
        ("bare-taken", Value::Null),
        ("noted", note.clone()),
        ("noted-taken", note),
    ] {
        let pod = api.create(&bound(name, annotations)).unwrap();
        let is_bare = pod["metadata"]["annotations"].is_null();
        assert_eq!(is_bare, name.starts_with("bare"), "{name}");
    }
    let proxy = Proxy::start(&account(control_plane), |request| {
        request.method == Method::PATCH && request.uri.path().contains("/pods/")
    })
    .unwrap();
    proxy.hold();
    let flags = ["--secure-port=0", "--policy-status-interval=1s"];
    let controllers = control_as(control_plane, proxy.kubeconfig(), &flags);
    let spec = json!({"units": units(&[("spot", 0, None)])});
    api.post(POLICIES, &policy("web", spec)).unwrap();
    held(&proxy, 4, &controllers);
    let taken = json!({"metadata": {"annotations": {COST: "1000"}}});
    for name in ["bare-taken", "noted-taken"] {
        api.patch(&pod_path(name), &taken).unwrap();
    }
    proxy.release();
    let want = [("1 web/spot=1", 2), ("1000 ", 2)];
    costs_become(api, &controllers, &want);
    let message = policy_condition(api, "web", "DeletionCostConflict", "True");
    let words = "2 pods have a deletion cost that another component or a user set, for example pod bare-taken; the controller \
                 does not change it";
    assert_eq!(message, words);
    let want = [
        ("bare", 200),
        ("bare-taken", 422),
        ("noted", 200),
        ("noted-taken", 422),
    ];
    let want: Vec<_> = want
        .iter()
        .map(|(name, code)| (name.to_string(), *code))
        .collect();
    eventually("the API server refuses two writes", SHORT, || {
        let answers = patches(control_plane).into_iter().skip(before);
        let mut answers: Vec<(String, u64)> = answers.map(|it| (it.name, it.code)).collect();
        answers.sort();
        match answers == want {
            true => Ok(()),
            false => Err(format!("{answers:?}")),
        }
    });

    // Without the kind there are no policies: both annotations go, and all others stay.
    let kubectl = control_plane.kubectl().unwrap();
    let delete = ["delete", "crd", "resourcepolicies.scheduling.sigs.x-k8s.io"];
    let run = kubectl.run(&delete, LONG).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    costs_become(api, &controllers, &[(" ", 2), ("1000 ", 2)]);
    let noted = api.get(&pod_path("noted")).unwrap();
    assert_eq!(annotation(&noted, "note"), "x");
    assert_eq!(annotation(&noted, MARK), "");
    deployed::check_permissions_of(control_plane, USER);
}
