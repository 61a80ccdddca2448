//! E: eviction.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{bound_pod, disruption_budget, pod};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("E1", "eviction: no budget", without_budget),
    behaviour(
        "E2",
        "eviction: a budget that allows no disruption",
        exhausted_budget,
    ),
    behaviour(
        "E4",
        "eviction: pending, finished and terminating pods",
        pods_by_phase,
    ),
];

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

/// A pod with this label that runs and is ready.
fn ready_pod(s: &mut Session, name: &str, app: &str) {
    let mut object = bound_pod(name);
    object["metadata"]["labels"] = json!({"app": app});
    s.prepare(&Request::post(s.core("pods")).json(&object));
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    s.prepare(
        &Request::new("PATCH", s.core(&format!("pods/{name}/status")))
            .body(MERGE_PATCH, status.to_string()),
    );
}

/// A budget and what its controller would say about it.
fn budget(s: &mut Session, name: &str, app: &str, status: Value) {
    s.prepare(
        &Request::post(s.group("policy/v1", "poddisruptionbudgets"))
            .json(&disruption_budget(name, app)),
    );
    let path = s.group("policy/v1", &format!("poddisruptionbudgets/{name}/status"));
    s.patch(MERGE_PATCH, path, &json!({"status": status}));
}

fn without_budget(s: &mut Session) {
    ready_pod(s, "a", "free");
    let before = s.get(s.core("pods"));
    let mut watch = s.watch(s.core(&format!(
        "pods?watch=true&resourceVersion={}",
        before.version()
    )));
    s.post(s.core("pods/a/eviction"), &eviction("a"));
    s.get(s.core("pods/a"));
    s.events(&mut watch, 2);
    ready_pod(s, "b", "free");
    let mut patient = eviction("b");
    patient["deleteOptions"] = json!({"gracePeriodSeconds": 5});
    s.post(s.core("pods/b/eviction"), &patient);
    s.get(s.core("pods/b"));
    ready_pod(s, "c", "free");
    let mut at_once = eviction("c");
    at_once["deleteOptions"] = json!({"gracePeriodSeconds": 0});
    s.post(s.core("pods/c/eviction"), &at_once);
    s.get(s.core("pods/c"));
    s.post(s.core("pods/missing/eviction"), &eviction("missing"));
    ready_pod(s, "d", "free");
    s.post(
        s.core("pods/d/eviction"),
        &json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "d"}}),
    );
    ready_pod(s, "e", "free");
    s.post(
        s.core("pods/e/eviction"),
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "e"}}),
    );
    s.send(Request::post(s.core("pods/e/eviction")).body("application/json", "{"));
}

fn exhausted_budget(s: &mut Session) {
    ready_pod(s, "a", "one");
    ready_pod(s, "b", "one");
    budget(
        s,
        "one",
        "one",
        json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}),
    );
    s.post(s.core("pods/a/eviction"), &eviction("a"));
    s.get(s.group("policy/v1", "poddisruptionbudgets/one"));
    s.post(s.core("pods/b/eviction"), &eviction("b"));
    s.get(s.core("pods/b"));
    ready_pod(s, "c", "none");
    budget(
        s,
        "none",
        "none",
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}),
    );
    s.post(s.core("pods/c/eviction"), &eviction("c"));
    ready_pod(s, "d", "many");
    budget(
        s,
        "many",
        "many",
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3}),
    );
    s.post(s.core("pods/d/eviction"), &eviction("d"));
    // The budget of others does not count.
    ready_pod(s, "e", "free");
    s.post(s.core("pods/e/eviction"), &eviction("e"));
}

fn pods_by_phase(s: &mut Session) {
    budget(
        s,
        "none",
        "x",
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}),
    );
    for phase in ["Pending", "Succeeded", "Failed"] {
        let name = phase.to_lowercase();
        let mut object = if phase == "Pending" {
            pod(&name)
        } else {
            bound_pod(&name)
        };
        object["metadata"]["labels"] = json!({"app": "x"});
        s.post(s.core("pods"), &object);
        s.patch(
            MERGE_PATCH,
            s.core(&format!("pods/{name}/status")),
            &json!({"status": {"phase": phase}}),
        );
        s.post(s.core(&format!("pods/{name}/eviction")), &eviction(&name));
        s.get(s.core(&format!("pods/{name}")));
    }
    ready_pod(s, "leaving", "x");
    s.delete(s.core("pods/leaving"));
    s.post(s.core("pods/leaving/eviction"), &eviction("leaving"));
    s.post(s.core("pods/leaving/eviction"), &eviction("leaving"));
    s.get(s.core("pods/leaving"));
    s.get(s.group("policy/v1", "poddisruptionbudgets/none"));
}
