//! B: binding pods to nodes.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{bound_pod, pod};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("B1", "binding: bind a pod", bind),
    behaviour("B2", "binding: refused bindings", refused_bindings),
    behaviour("B3", "binding: preconditions", binding_preconditions),
    behaviour(
        "B4",
        "binding: dry run and the legacy path",
        dry_run_and_legacy_path,
    ),
];

fn binding(name: &str, metadata: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "n"}});
    object["metadata"]["name"] = json!(name);
    object
}

fn bind(s: &mut Session) {
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({"keep": "me", "change": "me"});
    labelled["metadata"]["annotations"] = json!({"keep": "me", "change": "me"});
    s.post(s.core("pods"), &labelled);
    s.patch(MERGE_PATCH, s.core("pods/p/status"), &json!({"status": {"nominatedNodeName": "n", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}));
    let before = s.get(s.core("pods"));
    let mut watch = s.watch(s.core(&format!(
        "pods?watch=true&resourceVersion={}",
        before.version()
    )));
    s.post(s.core("pods/p/binding"), &binding("p", json!({"annotations": {"change": "d", "new": "a"}, "labels": {"change": "d", "new": "l"}})));
    s.get(s.core("pods/p"));
    s.events(&mut watch, 1);
    s.post(s.core("pods"), &pod("bare"));
    s.post(
        s.core("pods/bare/binding?fieldManager=binder"),
        &binding("bare", json!({})),
    );
    s.get(s.core("pods/bare"));
    // No kind, and a node in another form.
    s.post(s.core("pods"), &pod("kindless"));
    s.post(
        s.core("pods/kindless/binding"),
        &json!({"metadata": {"name": "kindless"}, "target": {"name": "n"}}),
    );
    s.get(s.core("pods/kindless"));
    s.send(Request::post(s.core("pods/missing/binding")).json(&binding("missing", json!({}))));
}

fn refused_bindings(s: &mut Session) {
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/g"}]);
    let mut leaving = pod("leaving");
    leaving["metadata"]["finalizers"] = json!(["x.io/f"]);
    for object in [pod("p"), gated, leaving, bound_pod("born-bound")] {
        s.post(s.core("pods"), &object);
    }
    s.post(s.core("pods/p/binding"), &binding("p", json!({})));
    s.post(s.core("pods/p/binding"), &binding("p", json!({})));
    let mut elsewhere = binding("p", json!({}));
    elsewhere["target"]["name"] = json!("m");
    s.post(s.core("pods/p/binding"), &elsewhere);
    s.post(
        s.core("pods/born-bound/binding"),
        &binding("born-bound", json!({})),
    );
    s.post(s.core("pods/gated/binding"), &binding("gated", json!({})));
    s.delete(s.core("pods/leaving"));
    s.post(
        s.core("pods/leaving/binding"),
        &binding("leaving", json!({})),
    );
    s.post(
        s.core("pods/missing/binding"),
        &binding("missing", json!({})),
    );
    s.post(s.core("pods"), &pod("q"));
    s.post(s.core("pods/q/binding"), &binding("other", json!({})));
    s.post(
        s.core("pods/q/binding"),
        &json!({"metadata": {}, "target": {"name": "n"}}),
    );
    s.post(
        s.core("pods/q/binding"),
        &json!({"metadata": {"name": "q"}, "target": {"kind": "Node", "name": ""}}),
    );
    s.post(
        s.core("pods/q/binding"),
        &json!({"metadata": {"name": "q"}}),
    );
    s.post(
        s.core("pods/q/binding"),
        &json!({"metadata": {"name": "q"}, "target": {"kind": "Pod", "name": "n"}}),
    );
    s.post(
        s.core("pods/q/binding"),
        &json!({"metadata": {"name": "q", "namespace": "default"}, "target": {"name": "n"}}),
    );
    s.post(
        s.core("pods/q/binding"),
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}}),
    );
    s.send(Request::post(s.core("pods/q/binding")).body("application/json", "{"));
    s.get(s.core("pods/q"));
    s.patch(
        MERGE_PATCH,
        s.core("pods/q"),
        &json!({"spec": {"nodeName": "n"}}),
    );
    s.patch(
        MERGE_PATCH,
        s.core("pods/leaving"),
        &json!({"metadata": {"finalizers": null}}),
    );
}

fn binding_preconditions(s: &mut Session) {
    let created = s.post(s.core("pods"), &pod("p"));
    for metadata in [
        json!({"uid": "11111111-2222-3333-4444-555555555555"}),
        json!({"resourceVersion": "1"}),
        json!({"uid": created.uid(), "resourceVersion": "1"}),
    ] {
        s.post(s.core("pods/p/binding"), &binding("p", metadata));
    }
    s.get(s.core("pods/p"));
    s.post(
        s.core("pods/p/binding"),
        &binding(
            "p",
            json!({"uid": created.uid(), "resourceVersion": created.version()}),
        ),
    );
    s.get(s.core("pods/p"));
}

fn dry_run_and_legacy_path(s: &mut Session) {
    s.post(s.core("pods"), &pod("p"));
    s.post(
        s.core("pods/p/binding?dryRun=All"),
        &binding("p", json!({"labels": {"l": "1"}})),
    );
    s.get(s.core("pods/p"));
    s.post(
        s.core("bindings"),
        &binding("p", json!({"annotations": {"a": "1"}})),
    );
    s.get(s.core("pods/p"));
    s.post(s.core("bindings"), &binding("p", json!({})));
    s.post(s.core("bindings"), &binding("missing", json!({})));
    s.post(s.core("bindings"), &json!({"target": {"name": "n"}}));
    s.get(s.core("bindings"));
}
