//! T: tables, as `kubectl get` prints them.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{bound_pod, config_map, every_other_kind, node, pod};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("T1", "tables: columns of every kind", columns_of_every_kind),
    behaviour("T2", "tables: pods in every state", pod_states),
    behaviour("T3", "tables: nodes in every state", node_states),
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What kubectl sends.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

fn columns_of_every_kind(s: &mut Session) {
    s.prepare(&Request::post(s.core("configmaps")).json(&config_map("a")));
    s.prepare(&Request::post(s.core("pods")).json(&pod("a")));
    s.prepare(&Request::post("/api/v1/nodes").json(&node("t1-n")));
    for (path, object) in every_other_kind("t1") {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let collection = match path.rsplit_once('/') {
            _ if path.starts_with('/') => path.to_owned(),
            Some((group, resource)) => s.group(group, resource),
            None => s.core(path),
        };
        s.prepare(&Request::post(&collection).json(&object));
        s.send(Request::get(format!("{collection}/{name}")).accept(TABLE));
        if !path.starts_with('/') {
            let list = match path {
                // The real server may write an event about the service of this test,
                // and both groups serve the same events.
                "events" | "events.k8s.io/v1/events" => {
                    format!("{collection}?fieldSelector=metadata.name%3D{name}")
                }
                _ => collection,
            };
            s.send(Request::get(list).accept(KUBECTL));
        }
    }
    for path in [
        "/api/v1/namespaces/t1",
        "/api/v1/nodes/t1-n",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.conformance.tidepool.io",
    ] {
        s.send(Request::get(path).accept(TABLE));
    }
    for path in [
        "configmaps",
        "pods",
        "configmaps?limit=1",
        "configmaps/missing",
        "resourcequotas",
    ] {
        if path != "resourcequotas" {
            s.send(Request::get(s.core(path)).accept(TABLE));
        }
    }
    // Empty tables.
    for path in ["configmaps", "pods", "events", "services"] {
        s.send(Request::get(format!("/api/v1/namespaces/t1-nowhere/{path}")).accept(KUBECTL));
    }
    s.send(
        Request::get("/apis/storage.k8s.io/v1/namespaces/t1-nowhere/csistoragecapacities")
            .accept(KUBECTL),
    );
    s.send(Request::get(s.widgets("")).accept(KUBECTL));
}

fn record_cells(s: &mut Session, what: &str, path: &str) {
    let answer = s.quietly(&Request::get(path).accept(TABLE));
    let row = answer.at("/rows/0").clone();
    // The key must say what it is, so that ages are known as such.
    s.record(
        format!("row of {what}"),
        Value::Null,
        json!({"cells": row["cells"], "conditions": row["conditions"]}),
    );
}

fn pod_states(s: &mut Session) {
    let running = json!({"state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}}, "ready": true, "restartCount": 0});
    let state = |name: &str, state: Value, restarts: u32| json!({"name": name, "image": "i", "imageID": "x", "ready": false, "restartCount": restarts, "state": state});
    let ready = |name: &str| {
        let mut status = running.clone();
        status["name"] = json!(name);
        status["image"] = json!("i");
        status["imageID"] = json!("x");
        status
    };
    let terminated = |reason: &str, code: i32, signal: i32| {
        json!({"terminated": {"reason": reason, "exitCode": code, "signal": signal,
        "startedAt": "2020-01-01T00:00:00Z", "finishedAt": "2020-01-01T00:00:00Z"}})
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let cases: Vec<(&str, Value)> = vec![
        ("pending", json!({"phase": "Pending"})),
        (
            "running",
            json!({"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": [ready("c")], "conditions": [{"type": "Ready", "status": "True"}]}),
        ),
        (
            "creating",
            json!({"phase": "Pending", "containerStatuses": [state("c", waiting("ContainerCreating"), 0)]}),
        ),
        (
            "crash",
            json!({"phase": "Running", "containerStatuses": [state("c", waiting("CrashLoopBackOff"), 3)]}),
        ),
        (
            "restarted",
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "x", "ready": true, "restartCount": 2,
            "state": {"running": {}}, "lastState": terminated("Error", 1, 0)}]}),
        ),
        (
            "completed",
            json!({"phase": "Succeeded", "containerStatuses": [state("c", terminated("Completed", 0, 0), 0)]}),
        ),
        (
            "failed",
            json!({"phase": "Failed", "containerStatuses": [state("c", terminated("Error", 1, 0), 0)]}),
        ),
        (
            "exit-code",
            json!({"phase": "Failed", "containerStatuses": [state("c", terminated("", 7, 0), 0)]}),
        ),
        (
            "signal",
            json!({"phase": "Failed", "containerStatuses": [state("c", terminated("", 137, 9), 0)]}),
        ),
        (
            "evicted",
            json!({"phase": "Failed", "reason": "Evicted", "message": "too much"}),
        ),
        (
            "node-lost",
            json!({"phase": "Running", "reason": "NodeLost"}),
        ),
        (
            "init-first",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", json!({"running": {}}), 0)]}),
        ),
        (
            "init-waiting",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", waiting("PodInitializing"), 0)]}),
        ),
        (
            "init-pull",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", waiting("ImagePullBackOff"), 0)]}),
        ),
        (
            "init-failed",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", terminated("Error", 2, 0), 1)]}),
        ),
        (
            "init-exit",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", terminated("", 2, 0), 1)]}),
        ),
        (
            "init-signal",
            json!({"phase": "Pending", "initContainerStatuses": [state("i", terminated("", 2, 15), 1)]}),
        ),
        (
            "init-done",
            json!({"phase": "Running", "initContainerStatuses": [state("i", terminated("Completed", 0, 0), 0)], "containerStatuses": [ready("c")]}),
        ),
        ("phaseless", json!({"phase": ""})),
        ("unknown", json!({"phase": "Unknown"})),
    ];
    for (name, status) in cases {
        let mut object = bound_pod(name);
        if name.starts_with("init") {
            object["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
        }
        s.prepare(&Request::post(s.core("pods")).json(&object));
        let patch = json!({"status": status}).to_string();
        s.prepare(
            &Request::new("PATCH", s.core(&format!("pods/{name}/status"))).body(MERGE_PATCH, patch),
        );
        let path = s.core(&format!("pods/{name}"));
        record_cells(s, name, &path);
        s.prepare(&Request::new("DELETE", &path));
        record_cells(s, &format!("{name}, leaving"), &path);
    }
    for (name, status) in [
        (
            "completed-and-running",
            json!({"phase": "Running", "containerStatuses": [state("c", terminated("Completed", 0, 0), 0), ready("d")],
            "conditions": [{"type": "Ready", "status": "True"}]}),
        ),
        (
            "completed-not-ready",
            json!({"phase": "Running", "containerStatuses": [state("c", terminated("Completed", 0, 0), 0), ready("d")]}),
        ),
        (
            "error-and-running",
            json!({"phase": "Running", "containerStatuses": [state("c", terminated("Error", 1, 0), 0), ready("d")]}),
        ),
    ] {
        let mut object = bound_pod(name);
        object["spec"]["containers"] =
            json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
        object["spec"]["readinessGates"] =
            json!([{"conditionType": "x.io/a"}, {"conditionType": "x.io/b"}]);
        s.prepare(&Request::post(s.core("pods")).json(&object));
        let patch = json!({"status": status}).to_string();
        s.prepare(
            &Request::new("PATCH", s.core(&format!("pods/{name}/status"))).body(MERGE_PATCH, patch),
        );
        record_cells(s, name, &s.core(&format!("pods/{name}")));
    }
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/g"}]);
    s.prepare(&Request::post(s.core("pods")).json(&gated));
    record_cells(s, "a gated pod", &s.core("pods/gated"));
    s.prepare(
        &Request::new("PATCH", s.core("pods/gated"))
            .body(MERGE_PATCH, r#"{"spec":{"schedulingGates":null}}"#),
    );
    record_cells(s, "an ungated pod", &s.core("pods/gated"));
    let mut sidecar = bound_pod("sidecar");
    sidecar["spec"]["initContainers"] =
        json!([{"name": "i", "image": "i", "restartPolicy": "Always"}]);
    s.prepare(&Request::post(s.core("pods")).json(&sidecar));
    record_cells(s, "a pod with a sidecar", &s.core("pods/sidecar"));
    let started = json!({"status": {"phase": "Running", "containerStatuses": [ready("c")], "initContainerStatuses": [
        {"name": "i", "image": "i", "imageID": "x", "ready": true, "started": true, "restartCount": 1, "state": {"running": {}}}]}});
    s.prepare(
        &Request::new("PATCH", s.core("pods/sidecar/status"))
            .body(MERGE_PATCH, started.to_string()),
    );
    record_cells(s, "a pod with a started sidecar", &s.core("pods/sidecar"));
}

fn node_states(s: &mut Session) {
    let condition = |status: &str| json!([{"type": "Ready", "status": status}]);
    for (name, object) in [
        ("bare", json!({})),
        (
            "ready",
            json!({"status": {"conditions": condition("True"), "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux", "kernelVersion": "6.1",
            "architecture": "amd64", "containerRuntimeVersion": "containerd://2"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "ExternalIP", "address": "1.2.3.4"}]}}),
        ),
        (
            "not-ready",
            json!({"status": {"conditions": condition("False")}}),
        ),
        (
            "unknown",
            json!({"status": {"conditions": condition("Unknown")}}),
        ),
        (
            "cordoned",
            json!({"spec": {"unschedulable": true}, "status": {"conditions": condition("True")}}),
        ),
        ("cordoned-bare", json!({"spec": {"unschedulable": true}})),
        (
            "roles",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "db"}}}),
        ),
        (
            "old-role",
            json!({"metadata": {"labels": {"kubernetes.io/role": "db"}}, "status": {"nodeInfo": {"kernelVersion": "6.1"}}}),
        ),
    ] {
        let mut node = object;
        node["metadata"]["name"] = json!(format!("t3-{name}"));
        s.prepare(&Request::post("/api/v1/nodes").json(&node));
        record_cells(s, name, &format!("/api/v1/nodes/t3-{name}"));
    }
}
