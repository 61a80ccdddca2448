//! L: lists, pages and selectors.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::{Answer, Request};
use crate::objects::{bound_pod, config_map, node, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("L1", "list: pages, with writes between them", pages),
    behaviour(
        "L2",
        "list: a limit at resource version 0",
        limit_at_version_zero,
    ),
    behaviour(
        "L3",
        "list: resourceVersion and resourceVersionMatch",
        resource_version_match,
    ),
    behaviour("L7", "list: label selectors", label_selectors),
    behaviour("L8", "list: field selectors", field_selectors),
    behaviour(
        "L9",
        "list: a namespace that does not exist",
        missing_namespace,
    ),
    behaviour("L10", "list: metadata only", partial_metadata),
];

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn names(answer: &Answer) -> Value {
    let items = answer.at("/items").as_array().cloned().unwrap_or_default();
    items
        .iter()
        .map(|item| item["metadata"]["name"].clone())
        .collect()
}

/// Status, message and names: what a selector is about.
fn record_names(s: &mut Session, path: &str) {
    let answer = s.quietly(&Request::get(path));
    let mut record = answer.record();
    if answer.status == 200 {
        record["body"] = names(&answer);
    }
    s.record(format!("names of GET {path}"), Value::Null, record);
}

fn pages(s: &mut Session) {
    for (path, make) in [
        (s.core("configmaps"), config_map as fn(&str) -> Value),
        (s.widgets(""), widget as fn(&str) -> Value),
    ] {
        for index in 0..7 {
            s.prepare(&Request::post(&path).json(&make(&format!("i{index}"))));
        }
        let first = s.get(format!("{path}?limit=3"));
        // What happens now is not on the later pages, and what goes is.
        s.prepare(&Request::post(&path).json(&make("i35")));
        s.prepare(&Request::new("DELETE", format!("{path}/i4")));
        s.prepare(
            &Request::new("PATCH", format!("{path}/i5"))
                .body(MERGE_PATCH, r#"{"metadata":{"labels":{"l":"1"}}}"#),
        );
        let second = s.get(format!(
            "{path}?limit=3&continue={}",
            first.text("/metadata/continue")
        ));
        let third = s.get(format!(
            "{path}?limit=3&continue={}",
            second.text("/metadata/continue")
        ));
        s.fact(
            "pages have one version",
            first.version() == second.version() && second.version() == third.version(),
        );
        let all = s.get(&path);
        s.fact("a new list is newer", all.version() != first.version());
        let rest = s.quietly(&Request::get(format!(
            "{path}?continue={}",
            first.text("/metadata/continue")
        )));
        s.fact("the rest without a limit", names(&rest));
        record_names(s, &format!("{path}?limit=7"));
        record_names(s, &format!("{path}?limit=100"));
        record_names(s, &format!("{path}?limit=0"));
        record_names(s, &format!("{path}?limit=-1"));
        s.get(format!("{path}?limit=abc"));
        s.get(format!("{path}?limit=2&labelSelector=l%3D1"));
        s.get(format!("{path}?limit=1&labelSelector=l%21%3D1"));
    }
}

fn limit_at_version_zero(s: &mut Session) {
    for name in ["a", "b", "c"] {
        s.prepare(&Request::post(s.core("configmaps")).json(&config_map(name)));
    }
    // A list at version 0 comes from a cache, which may be a moment behind.
    s.get_until(
        &s.core("configmaps?limit=1&resourceVersion=0"),
        "all are there",
        |answer| {
            answer
                .at("/items")
                .as_array()
                .is_some_and(|items| items.len() == 3)
        },
    );
    s.get(s.core("configmaps?limit=1&resourceVersion=0&resourceVersionMatch=NotOlderThan"));
    s.get(s.core("configmaps?resourceVersion=0&labelSelector=x"));
}

fn resource_version_match(s: &mut Session) {
    let first = s.post(s.core("configmaps"), &config_map("a"));
    let second = s.post(s.core("configmaps"), &config_map("b"));
    let (first, second) = (first.version(), second.version());
    for query in [
        format!("resourceVersion={second}"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan&limit=1"),
        format!("resourceVersion={second}&resourceVersionMatch=Exact"),
        format!("resourceVersion={first}&resourceVersionMatch=Exact"),
        format!("resourceVersion={first}&resourceVersionMatch=Exact&limit=1"),
        format!("resourceVersion={first}&resourceVersionMatch=Foo"),
        "resourceVersion=0&resourceVersionMatch=Exact".to_owned(),
        "resourceVersionMatch=Exact".to_owned(),
        "resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersion=&resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersion=abc".to_owned(),
        "resourceVersion=-1".to_owned(),
        "resourceVersion=999999999".to_owned(),
        "resourceVersion=999999999&resourceVersionMatch=Exact".to_owned(),
        "sendInitialEvents=true".to_owned(),
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        "timeoutSeconds=abc".to_owned(),
    ] {
        s.get(s.core(&format!("configmaps?{query}")));
    }
    for query in [
        "resourceVersion=0".to_owned(),
        format!("resourceVersion={second}"),
        "resourceVersion=999999999".to_owned(),
        "resourceVersion=abc".to_owned(),
    ] {
        s.get(s.core(&format!("configmaps/b?{query}")));
    }
}

fn label_selectors(s: &mut Session) {
    for (name, labels) in [
        ("a", json!({"env": "prod", "tier": "web", "n": "1"})),
        ("b", json!({"env": "test", "tier": "web", "n": "5"})),
        ("c", json!({"env": "prod", "tier": "db", "n": "10"})),
        ("d", json!({"x.io/owner": "me", "empty": ""})),
        ("e", json!({})),
    ] {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        s.prepare(&Request::post(s.core("configmaps")).json(&object));
    }
    for selector in [
        "env=prod",
        "env==prod",
        "env!=prod",
        "env in (prod)",
        "env in (prod,test)",
        "env notin (prod)",
        "env in (test, dev),tier=web",
        "env",
        "!env",
        "env,!tier",
        "env=prod,tier!=db",
        "x.io/owner=me",
        "empty=",
        "empty",
        "empty in ()",
        "env in (prod,)",
        "n>4",
        "n<5",
        "n gt 4",
        "",
        ",",
        "env=prod,",
        "a b",
        "env=",
        "=prod",
        "env in",
        "env in (",
        "env in prod",
        "env in prod)",
        "env notin",
        "env==",
        "!",
        "! env",
        "env = prod",
        "-bad=x",
        "env=not ok",
        "env=a/b",
        "a/b/c=d",
        "n>x",
        "env=%",
        "env=prod;tier=web",
        "(env)",
        "env in (a)b",
        "env!prod",
    ] {
        let encoded: String = selector
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let path = s.core(&format!("configmaps?labelSelector={encoded}"));
        let answer = s.quietly(&Request::get(path));
        let mut record = answer.record();
        if answer.status == 200 {
            record["body"] = names(&answer);
        }
        s.record(format!("labels {selector:?}"), Value::Null, record);
    }
    // Keys that no object may have, as labels and as annotations.
    for key in ["a/b/c", "-bad", "a/", "/b", "A_b/c"] {
        let object =
            json!({"metadata": {"name": "x", "labels": {key: "v"}, "annotations": {key: "v"}}});
        s.post(s.core("configmaps"), &object);
    }
}

fn field_selectors(s: &mut Session) {
    s.make_service_account(s.namespace(), "robot");
    let mut gated = pod("gated");
    gated["spec"]["schedulerName"] = json!("other");
    gated["spec"]["restartPolicy"] = json!("Never");
    gated["spec"]["serviceAccountName"] = json!("robot");
    gated["spec"]["hostNetwork"] = json!(true);
    for object in [pod("plain"), bound_pod("bound"), gated] {
        s.prepare(&Request::post(s.core("pods")).json(&object));
    }
    let status = json!({"status": {"phase": "Running", "podIP": "10.7.7.7", "podIPs": [{"ip": "10.7.7.7"}]}});
    s.patch(
        MERGE_PATCH,
        s.core("pods/plain/status"),
        &json!({"status": {"nominatedNodeName": "n"}}),
    );
    s.patch(MERGE_PATCH, s.core("pods/bound/status"), &status);
    for selector in [
        "metadata.name=bound",
        "metadata.name!=bound",
        "metadata.namespace=l8",
        "metadata.namespace=other",
        "spec.nodeName=",
        "spec.nodeName=somewhere",
        "spec.nodeName!=somewhere",
        "spec.schedulerName=other",
        "spec.restartPolicy=Never",
        "spec.serviceAccountName=robot",
        "spec.hostNetwork=true",
        "spec.hostNetwork=false",
        "status.phase=Running",
        "status.phase!=Running",
        "status.podIP=10.7.7.7",
        "status.podIPs=10.7.7.7",
        "status.nominatedNodeName=n",
        "spec.nodeName=,status.phase=Pending",
        "spec.nodeName==somewhere",
        "metadata.uid=x",
        "spec.foo=bar",
        "metadata.labels=x",
        "foo",
        "=x",
        "",
        ",",
        "spec.nodeName",
        "spec.nodeName=a=b",
        "!spec.nodeName",
        "status.phase=Running,",
        "spec.nodeName>a",
    ] {
        record_names(
            s,
            &s.core(&format!(
                "pods?fieldSelector={}",
                selector.replace('!', "%21").replace('>', "%3E")
            )),
        );
    }
    let mut cordoned = node("l8-cordoned");
    cordoned["spec"]["unschedulable"] = json!(true);
    cordoned["metadata"]["labels"] = json!({"suite": "l8"});
    let mut open = node("l8-open");
    open["metadata"]["labels"] = json!({"suite": "l8"});
    for object in [cordoned, open] {
        s.prepare(&Request::post("/api/v1/nodes").json(&object));
    }
    for selector in [
        "spec.unschedulable=true",
        "spec.unschedulable=false",
        "metadata.name=l8-open",
        "metadata.namespace=x",
        "status.phase=x",
    ] {
        record_names(
            s,
            &format!("/api/v1/nodes?labelSelector=suite%3Dl8&fieldSelector={selector}"),
        );
    }
    for (name, kind, reason) in [("e1", "Pod", "Started"), ("e2", "Node", "Ready")] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"kind": kind, "namespace": "l8", "name": "x", "uid": "u-1",
            "apiVersion": "v1", "resourceVersion": "5", "fieldPath": "spec.x"}, "reason": reason, "type": "Normal",
            "source": {"component": "kubelet"}, "reportingComponent": "x.io/c"});
        s.prepare(&Request::post(s.core("events")).json(&event));
    }
    for selector in [
        "involvedObject.kind=Pod",
        "involvedObject.namespace=l8",
        "involvedObject.name=x",
        "involvedObject.uid=u-1",
        "involvedObject.apiVersion=v1",
        "involvedObject.resourceVersion=5",
        "involvedObject.fieldPath=spec.x",
        "reason=Started",
        "reportingComponent=x.io/c",
        "source=kubelet",
        "type=Normal",
        "type!=Normal",
        "message=x",
        "regarding.name=x",
        "involvedObject.name=x,involvedObject.namespace=l8,involvedObject.uid=u-1",
    ] {
        record_names(
            s,
            &s.core(&format!(
                "events?fieldSelector={}",
                selector.replace('!', "%21")
            )),
        );
    }
    for selector in [
        "regarding.kind=Pod",
        "regarding.name=x",
        "reason=Ready",
        "reportingController=x.io/c",
        "type=Normal",
        "involvedObject.kind=Pod",
    ] {
        record_names(
            s,
            &s.group(
                "events.k8s.io/v1",
                &format!("events?fieldSelector={selector}"),
            ),
        );
    }
    s.prepare(
        &Request::post(s.core("secrets"))
            .json(&json!({"metadata": {"name": "a"}, "type": "x.io/t"})),
    );
    s.prepare(&Request::post(s.core("services")).json(
        &json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}),
    ));
    for path in [
        "secrets?fieldSelector=type=x.io/t",
        "secrets?fieldSelector=type=Opaque",
        "services?fieldSelector=spec.clusterIP=None",
        "services?fieldSelector=spec.type=ClusterIP",
        "services?fieldSelector=spec.foo=x",
        "configmaps?fieldSelector=data.a=1",
        "configmaps?fieldSelector=metadata.name=none",
        "replicationcontrollers?fieldSelector=status.replicas=0",
    ] {
        record_names(s, &s.core(path));
    }
    for path in [
        "jobs?fieldSelector=status.successful=0",
        "jobs?fieldSelector=status.failed=0",
    ] {
        record_names(s, &s.group("batch/v1", path));
    }
    s.prepare(&Request::post(s.widgets("")).json(&widget("w")));
    for selector in ["metadata.name=w", "metadata.namespace=l8", "spec.color=red"] {
        record_names(s, &s.widgets(&format!("?fieldSelector={selector}")));
    }
    record_names(
        s,
        "/api/v1/namespaces?fieldSelector=metadata.name=l8,status.phase=Active",
    );
    record_names(s, "/api/v1/namespaces?fieldSelector=metadata.namespace=l8");
}

fn missing_namespace(s: &mut Session) {
    for path in [
        "/api/v1/namespaces/l9-nowhere/configmaps",
        "/api/v1/namespaces/l9-nowhere/pods?limit=5",
        "/apis/apps/v1/namespaces/l9-nowhere/deployments",
        "/apis/conformance.tidepool.io/v1/namespaces/l9-nowhere/widgets",
        "/api/v1/namespaces/l9-nowhere/configmaps/x",
        "/apis/conformance.tidepool.io/v1/namespaces/l9-nowhere/widgets/x",
        "/api/v1/namespaces/l9-nowhere",
    ] {
        s.get(path);
    }
    s.delete("/api/v1/namespaces/l9-nowhere/configmaps/x");
    s.delete("/api/v1/namespaces/l9-nowhere/configmaps");
    // Empty lists of kinds in a namespace that does exist.
    for path in ["configmaps", "pods", "events", "secrets"] {
        s.get(s.core(path));
    }
    s.get(s.widgets(""));
}

fn partial_metadata(s: &mut Session) {
    s.post(s.core("pods"), &pod("p"));
    s.post(s.widgets(""), &widget("w"));
    for (item, list) in [
        (s.core("pods/p"), s.core("pods")),
        (s.widgets("/w"), s.widgets("")),
    ] {
        s.send(Request::get(&item).accept(PARTIAL));
        s.send(Request::get(&list).accept(PARTIAL_LIST));
        s.send(Request::get(&item).accept(&format!("{PARTIAL},application/json")));
        s.send(Request::get(&item).accept(PARTIAL_LIST));
        s.send(Request::get(&list).accept(PARTIAL));
        s.send(Request::get(format!("{item}x")).accept(PARTIAL));
        s.send(Request::get(format!("{list}?limit=1")).accept(PARTIAL_LIST));
        s.send(
            Request::new("PATCH", &item)
                .body(MERGE_PATCH, r#"{"metadata":{"labels":{"l":"1"}}}"#)
                .accept(PARTIAL),
        );
    }
    s.send(
        Request::post(s.core("configmaps"))
            .json(&config_map("c"))
            .accept(PARTIAL),
    );
}
