//! X: deletion.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::behaviour;
use crate::client::{Answer, Request};
use crate::objects::{bound_pod, config_map, deployment, node, pod, widget};
use crate::session::{JSON_PATCH, MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("X1", "delete: delete, and delete again", delete_twice),
    behaviour(
        "X2",
        "delete: bound, unbound and finished pods",
        pods_by_phase,
    ),
    behaviour(
        "X3",
        "delete: grace periods: shorter, longer, none",
        grace_periods,
    ),
    behaviour("X4", "delete: preconditions", delete_preconditions),
    behaviour("X5", "delete: finalizers", finalizers),
    behaviour(
        "X6",
        "delete: foreground, orphan and background",
        propagation_policies,
    ),
    behaviour(
        "X9",
        "delete: a namespace that holds an object with a finalizer",
        namespace_with_finalizer,
    ),
];

fn delete_twice(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("secrets"), json!({"metadata": {"name": "a"}})),
        (s.group("apps/v1", "deployments"), deployment("a")),
        (s.widgets(""), widget("a")),
        (
            s.group("coordination.k8s.io/v1", "leases"),
            crate::objects::lease("a"),
        ),
    ] {
        let item = format!("{path}/a");
        s.post(&path, &object);
        s.delete(&item);
        s.get(&item);
        s.delete(&item);
    }
    s.post("/api/v1/nodes", &node("x1-n"));
    s.delete("/api/v1/nodes/x1-n");
    s.delete("/api/v1/nodes/x1-n");
    // All the ways to say nothing in particular.
    for (index, body) in [
        "",
        "{}",
        r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#,
        r#"{"propagationPolicy":"Background"}"#,
    ]
    .into_iter()
    .enumerate()
    {
        s.prepare(&Request::post(s.core("configmaps")).json(&config_map(&format!("o{index}"))));
        s.send(
            Request::new("DELETE", s.core(&format!("configmaps/o{index}")))
                .body("application/json", body),
        );
    }
    s.prepare(&Request::post(s.core("configmaps")).json(&config_map("q")));
    s.delete(s.core("configmaps/q?gracePeriodSeconds=10"));
}

/// How many seconds from now a deletion is due, to the nearest ten: the rule, not the clock.
fn due(answer: &Answer) -> Value {
    let time: Option<Timestamp> = answer.text("/metadata/deletionTimestamp").parse().ok();
    time.map_or(Value::Null, |time| {
        let seconds = (time - Timestamp::now())
            .total(jiff::Unit::Second)
            .unwrap_or_default();
        json!((seconds / 10.0).round() as i64 * 10)
    })
}

fn pods_by_phase(s: &mut Session) {
    let mut patient = bound_pod("patient");
    patient["spec"]["terminationGracePeriodSeconds"] = json!(60);
    for (object, phase) in [
        (pod("unbound"), ""),
        (bound_pod("bound"), ""),
        (patient, "Running"),
        (bound_pod("succeeded"), "Succeeded"),
        (bound_pod("failed"), "Failed"),
        (pod("pending"), "Pending"),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let item = s.core(&format!("pods/{name}"));
        s.post(s.core("pods"), &object);
        if !phase.is_empty() {
            s.patch(
                MERGE_PATCH,
                format!("{item}/status"),
                &json!({"status": {"phase": phase}}),
            );
        }
        let deleted = s.delete(&item);
        s.fact("due in about", due(&deleted));
        s.get(&item);
        s.delete(format!("{item}?gracePeriodSeconds=0"));
        s.get(&item);
    }
    let mut negative = bound_pod("negative");
    negative["spec"]["terminationGracePeriodSeconds"] = json!(-5);
    s.post(s.core("pods"), &negative);
    s.delete(s.core("pods/negative"));
}

fn grace_periods(s: &mut Session) {
    s.post(s.core("pods"), &bound_pod("p"));
    let item = s.core("pods/p");
    let before = s.get(s.core("pods")).version();
    let mut watch = s.watch(s.core(&format!("pods?watch=true&resourceVersion={before}")));
    for options in [
        json!({"gracePeriodSeconds": 100}),
        json!({"gracePeriodSeconds": 200}),
        json!({"gracePeriodSeconds": 100}),
        json!({"gracePeriodSeconds": 40}),
        json!({}),
        json!({"gracePeriodSeconds": 1}),
    ] {
        let answer = s.delete_with(&item, &options);
        s.fact("due in about", due(&answer));
    }
    s.delete_with(&item, &json!({"gracePeriodSeconds": 0}));
    s.get(&item);
    s.events_until_deleted(&mut watch);
    // The body wins over the query; a negative time is one second.
    s.post(s.core("pods"), &bound_pod("q"));
    let answer = s.delete_with(
        s.core("pods/q?gracePeriodSeconds=300"),
        &json!({"gracePeriodSeconds": 50}),
    );
    s.fact("due in about", due(&answer));
    s.post(s.core("pods"), &bound_pod("r"));
    s.delete_with(s.core("pods/r"), &json!({"gracePeriodSeconds": -3}));
    s.post(s.core("pods"), &bound_pod("t"));
    s.delete(s.core("pods/t?gracePeriodSeconds=70"));
    s.delete(s.core("pods/t?gracePeriodSeconds=abc"));
    s.post(s.core("pods"), &bound_pod("dry"));
    s.delete(s.core("pods/dry?dryRun=All"));
    s.delete(s.core("pods/dry?dryRun=All&gracePeriodSeconds=0"));
    s.get(s.core("pods/dry"));
}

fn delete_preconditions(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.widgets(""), widget("a")),
    ] {
        let item = format!("{path}/a");
        let created = s.post(&path, &object);
        let (uid, version) = (created.uid(), created.version());
        for preconditions in [
            json!({"uid": "11111111-2222-3333-4444-555555555555"}),
            json!({"resourceVersion": "1"}),
            json!({"uid": uid, "resourceVersion": "1"}),
            json!({"uid": "", "resourceVersion": version}),
        ] {
            s.delete_with(&item, &json!({"preconditions": preconditions}));
        }
        s.delete_with(
            &item,
            &json!({"preconditions": {"uid": uid, "resourceVersion": version}}),
        );
        s.get(&item);
    }
    s.delete_with(
        s.core("configmaps/missing"),
        &json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}),
    );
}

fn finalizers(s: &mut Session) {
    for (path, mut object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.widgets(""), widget("a")),
    ] {
        object["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
        let item = format!("{path}/a");
        let created = s.post(&path, &object);
        let mut watch = s.watch(format!(
            "{path}?watch=true&resourceVersion={}",
            created.version()
        ));
        let deleted = s.delete(&item);
        s.delete(&item);
        s.get(&item);
        // It may not gain finalizers now, but it may change otherwise.
        s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"finalizers": ["x.io/a", "x.io/b", "x.io/c"]}}),
        );
        let mut more = deleted.body.clone();
        more["metadata"]["finalizers"] = json!(["x.io/w"]);
        s.put(&item, &more);
        s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"labels": {"l": "1"}, "deletionTimestamp": null}}),
        );
        s.post(&path, &object);
        s.patch(
            JSON_PATCH,
            &item,
            &json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"finalizers": null}}),
        );
        s.get(&item);
        s.events_until_deleted(&mut watch);
    }
    for finalizers in [
        json!(["no-slash"]),
        json!(["x.io/a", "x.io/a"]),
        json!([""]),
        json!(["foregroundDeletion"]),
    ] {
        let object = json!({"metadata": {"name": "odd", "finalizers": finalizers}});
        s.post(s.core("configmaps"), &object);
    }
}

fn propagation_policies(s: &mut Session) {
    let owned = |name: &str, owner: &Answer, owner_name: &str, blocks: bool| {
        let mut object = config_map(name);
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner_name,
            "uid": owner.uid(), "blockOwnerDeletion": blocks, "controller": true}]);
        object
    };
    for policy in ["Foreground", "Orphan", "Background"] {
        let low = policy.to_lowercase();
        let (top, middle, bottom) = (
            format!("{low}-top"),
            format!("{low}-middle"),
            format!("{low}-bottom"),
        );
        let owner = s.post(s.core("configmaps"), &config_map(&top));
        let child = s.post(s.core("configmaps"), &owned(&middle, &owner, &top, true));
        s.post(s.core("configmaps"), &owned(&bottom, &child, &middle, true));
        // The collector must know the family before it loses its head.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let deleted = s.delete_with(
            s.core(&format!("configmaps/{top}")),
            &json!({"propagationPolicy": policy}),
        );
        s.fact(
            "finalizers in the answer",
            deleted.at("/metadata/finalizers").clone(),
        );
        s.get_until(
            &s.core(&format!("configmaps/{top}")),
            "it is gone",
            |answer| answer.status == 404,
        );
        if policy == "Orphan" {
            s.get_until(
                &s.core(&format!("configmaps/{middle}")),
                "it has no owner",
                |answer| answer.at("/metadata/ownerReferences").is_null(),
            );
            s.get(s.core(&format!("configmaps/{bottom}")));
        } else {
            for name in [&middle, &bottom] {
                s.get_until(
                    &s.core(&format!("configmaps/{name}")),
                    "it is gone",
                    |answer| answer.status == 404,
                );
            }
        }
    }
    // An object held by a stranger keeps its owner in foreground deletion.
    let owner = s.post(s.core("configmaps"), &config_map("held-top"));
    let mut held = owned("held", &owner, "held-top", true);
    held["metadata"]["finalizers"] = json!(["x.io/f"]);
    s.post(s.core("configmaps"), &held);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    s.delete(s.core("configmaps/held-top?propagationPolicy=Foreground"));
    s.get_until(
        &s.core("configmaps/held"),
        "it is being deleted",
        |answer| !answer.at("/metadata/deletionTimestamp").is_null(),
    );
    s.get(s.core("configmaps/held-top"));
    s.patch(
        MERGE_PATCH,
        s.core("configmaps/held"),
        &json!({"metadata": {"finalizers": null}}),
    );
    s.get_until(&s.core("configmaps/held-top"), "it is gone", |answer| {
        answer.status == 404
    });
    s.post(s.core("configmaps"), &config_map("odd"));
    s.delete(s.core("configmaps/odd?propagationPolicy=Sideways"));
    s.delete_with(
        s.core("configmaps/odd"),
        &json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
    );
}

fn namespace_with_finalizer(s: &mut Session) {
    s.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "x9-doomed"}}),
    );
    let inside = "/api/v1/namespaces/x9-doomed";
    s.make_service_account("x9-doomed", "default");
    let mut stuck = config_map("stuck");
    stuck["metadata"]["finalizers"] = json!(["x.io/f"]);
    s.post(format!("{inside}/configmaps"), &stuck);
    s.post(format!("{inside}/configmaps"), &config_map("loose"));
    s.post(format!("{inside}/pods"), &pod("p"));
    s.delete(inside);
    s.get_until(
        &format!("{inside}/configmaps/loose"),
        "it is gone",
        |answer| answer.status == 404,
    );
    s.get_until(&format!("{inside}/pods/p"), "it is gone", |answer| {
        answer.status == 404
    });
    let held = s.get_until(
        &format!("{inside}/configmaps/stuck"),
        "it is being deleted",
        |answer| !answer.at("/metadata/deletionTimestamp").is_null(),
    );
    s.fact("its finalizers", held.at("/metadata/finalizers").clone());
    // Its controller still writes to it, so its version must not be counted.
    let namespace = s.server().client.send(&Request::get(inside));
    s.fact(
        "the namespace",
        json!([
            namespace.status,
            namespace.at("/status/phase"),
            namespace.at("/spec"),
            namespace.at("/metadata/deletionGracePeriodSeconds")
        ]),
    );
    s.post(format!("{inside}/configmaps"), &config_map("late"));
    s.post(format!("{inside}/pods"), &pod("late"));
    s.post(
        "/apis/conformance.tidepool.io/v1/namespaces/x9-doomed/widgets",
        &widget("late"),
    );
    s.patch(
        MERGE_PATCH,
        format!("{inside}/configmaps/stuck"),
        &json!({"data": {"still": "writable"}}),
    );
    s.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "x9-doomed"}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{inside}/configmaps/stuck"),
        &json!({"metadata": {"finalizers": null}}),
    );
    s.get_until(inside, "it is gone", |answer| answer.status == 404);
    s.post(format!("{inside}/configmaps"), &config_map("late"));
    for name in ["default", "kube-system", "kube-public"] {
        s.delete(format!("/api/v1/namespaces/{name}"));
    }
    s.delete("/api/v1/namespaces/x9-missing");
}
