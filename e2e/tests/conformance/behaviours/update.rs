//! U: updates.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Answer;
use crate::objects::{config_map, deployment, disruption_budget, lease, node, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour(
        "U1",
        "update: the current resource version and a stale one",
        stale_version,
    ),
    behaviour("U2", "update: no resource version", no_version),
    behaviour(
        "U3",
        "update: another uid, another name",
        other_uid_and_name,
    ),
    behaviour("U4", "update: no change", no_op_update),
    behaviour(
        "U5",
        "update: an object that does not exist",
        missing_object,
    ),
    behaviour("U6", "update: changes of the generation", generation),
    behaviour(
        "U7",
        "update: fields that a status update changes",
        status_update,
    ),
    behaviour(
        "U8",
        "update: fields that an update ignores",
        status_is_ignored,
    ),
];

/// Everything of every kind that these behaviours look at: (path of the collection, object).
fn kinds(s: &Session, prefix: &str) -> Vec<(String, Value)> {
    vec![
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.group("apps/v1", "deployments"), deployment("a")),
        (s.group("coordination.k8s.io/v1", "leases"), lease("a")),
        (
            s.group("policy/v1", "poddisruptionbudgets"),
            disruption_budget("a", "x"),
        ),
        (s.widgets(""), widget("a")),
        ("/api/v1/nodes".to_owned(), node(&format!("{prefix}-a"))),
    ]
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn labelled(answer: &Answer, value: &str) -> Value {
    let mut object = answer.body.clone();
    object["metadata"]["labels"]["changed"] = json!(value);
    object
}

fn stale_version(s: &mut Session) {
    for (path, object) in kinds(s, "u1") {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        s.put(&item, &labelled(&created, "once"));
        s.put(&item, &labelled(&created, "twice"));
        s.get(&item);
    }
}

fn no_version(s: &mut Session) {
    for (path, object) in kinds(s, "u2") {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        for version in [json!(null), json!(""), json!("0")] {
            let mut changed = labelled(&created, "unconditionally");
            changed["metadata"]["resourceVersion"] = version;
            s.put(&item, &changed);
        }
        s.put(&item, &object);
    }
}

fn other_uid_and_name(s: &mut Session) {
    for (path, object) in kinds(s, "u3") {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        let mut other_uid = created.body.clone();
        other_uid["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
        s.put(&item, &other_uid);
        let mut other_name = created.body.clone();
        other_name["metadata"]["name"] = json!("zz");
        s.put(&item, &other_name);
        let mut no_name = created.body.clone();
        no_name["metadata"]["name"] = json!(null);
        s.put(&item, &no_name);
        let mut other_namespace = created.body.clone();
        other_namespace["metadata"]["namespace"] = json!("default");
        s.put(&item, &other_namespace);
    }
    let created = s.get(s.core("configmaps/a"));
    let mut fixed = created.body.clone();
    fixed["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    fixed["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    fixed["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    fixed["metadata"]["generateName"] = json!("gen-");
    s.put(s.core("configmaps/a"), &fixed);
    s.get(s.core("configmaps/a"));
}

fn no_op_update(s: &mut Session) {
    for (path, object) in kinds(s, "u4") {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        let only = format!("fieldSelector=metadata.name%3D{}", name(&object));
        let mut watch = s.watch(format!(
            "{path}?watch=true&{only}&resourceVersion={}",
            created.version()
        ));
        let again = s.put(&item, &created.body);
        s.fact("the version stays", again.version() == created.version());
        let mut without_managers = created.body.clone();
        without_managers["metadata"]["managedFields"] = json!(null);
        let again = s.put(&item, &without_managers);
        s.fact("without managers too", again.version() == created.version());
        let changed = s.put(&item, &labelled(&created, "really"));
        s.fact("a change is one", changed.version() != created.version());
        // Only the real change is an event.
        s.events(&mut watch, 1);
    }
}

fn missing_object(s: &mut Session) {
    for (path, object) in kinds(s, "u5") {
        let item = format!("{path}/{}", name(&object));
        s.put(&item, &object);
        let mut versioned = object.clone();
        versioned["metadata"]["resourceVersion"] = json!("1");
        s.put(&item, &versioned);
    }
    let service = json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}});
    s.put(s.core("services/svc"), &service);
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": s.namespace(), "name": "x"}});
    s.put(s.core("events/e"), &event);
    s.put(
        s.core("secrets/missing"),
        &json!({"metadata": {"name": "missing"}}),
    );
}

fn generation(s: &mut Session) {
    let generation = |s: &mut Session, what: &str, answer: &Answer| {
        s.fact(what, answer.at("/metadata/generation").clone());
    };
    let cases: [(String, Value, Vec<Value>); 8] = [
        (
            s.core("pods"),
            pod("a"),
            vec![json!({"spec": {"containers": [{"name": "c", "image": "i:2"}]}})],
        ),
        (
            s.group("apps/v1", "deployments"),
            deployment("a"),
            vec![json!({"spec": {"replicas": 3}})],
        ),
        (
            s.group("apps/v1", "replicasets"),
            json!({"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "x"}},
                "template": crate::objects::template("x")}}),
            vec![json!({"spec": {"replicas": 1}})],
        ),
        (
            s.group("policy/v1", "poddisruptionbudgets"),
            disruption_budget("a", "x"),
            vec![json!({"spec": {"minAvailable": 2}})],
        ),
        (
            s.widgets(""),
            widget("a"),
            vec![
                json!({"spec": {"color": "blue"}}),
                json!({"spec": {"unknown": 1}}),
            ],
        ),
        (
            "/api/v1/nodes".to_owned(),
            node("u6-a"),
            vec![json!({"spec": {"unschedulable": true}})],
        ),
        (
            s.core("configmaps"),
            config_map("a"),
            vec![json!({"data": {"a": "2"}})],
        ),
        (
            s.core("services"),
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
            vec![json!({"spec": {"ports": [{"port": 81}]}})],
        ),
    ];
    for (path, object, changes) in cases {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        generation(s, "created", &created);
        for change in changes {
            let changed = s.patch(MERGE_PATCH, &item, &change);
            generation(s, "spec changed", &changed);
        }
        for (what, change) in [
            ("label changed", json!({"metadata": {"labels": {"l": "1"}}})),
            (
                "annotation changed",
                json!({"metadata": {"annotations": {"a": "1"}}}),
            ),
            (
                "status sent to the main path",
                json!({"status": {"phase": "Running"}}),
            ),
            (
                "finalizer added",
                json!({"metadata": {"finalizers": ["x.io/f"]}}),
            ),
        ] {
            let changed = s.patch(MERGE_PATCH, &item, &change);
            generation(s, what, &changed);
        }
        let changed = s.patch(
            MERGE_PATCH,
            format!("{item}/status"),
            &json!({"status": {"replicas": 1}}),
        );
        generation(s, "status changed", &changed);
        let deleted = s.delete(&item);
        generation(s, "deletion asked for", &deleted);
        s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"finalizers": null}}),
        );
    }
}

fn status_update(s: &mut Session) {
    let cases: [(String, Value, Value); 6] = [
        (
            s.core("pods"),
            pod("a"),
            json!({
            "spec": {"containers": [{"name": "c", "image": "changed"}], "schedulerName": "changed"},
            "status": {"phase": "Running", "podIP": "10.9.8.7", "nominatedNodeName": "n",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}),
        ),
        (
            "/api/v1/nodes".to_owned(),
            node("u7-a"),
            json!({
            "spec": {"unschedulable": true, "podCIDR": "10.1.0.0/24"},
            "status": {"capacity": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        (
            s.group("apps/v1", "deployments"),
            deployment("a"),
            json!({
            "spec": {"replicas": 9}, "status": {"replicas": 3, "readyReplicas": 2, "observedGeneration": 1}}),
        ),
        (
            s.group("policy/v1", "poddisruptionbudgets"),
            disruption_budget("a", "x"),
            json!({
            "spec": {"minAvailable": 9},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}}),
        ),
        (
            s.widgets(""),
            widget("a"),
            json!({
            "spec": {"color": "changed"}, "status": {"replicas": 3, "note": "hi", "unknown": 1}}),
        ),
        (
            s.core("persistentvolumeclaims"),
            json!({"metadata": {"name": "a"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}),
        ),
    ];
    for (path, object, change) in cases {
        let item = format!("{path}/{}", name(&object));
        let created = s.post(&path, &object);
        let mut body = created.body.clone();
        body["metadata"]["labels"]["from"] = json!("status");
        body["metadata"]["annotations"]["from"] = json!("status");
        body["metadata"]["finalizers"] = json!(["x.io/f"]);
        body["metadata"]["ownerReferences"] = json!([{"apiVersion": "nowhere.io/v1", "kind": "Ghost", "name": "p",
            "uid": "8f9a7c53-96e2-4f7c-8f6a-1f2b3c4d5e6f"}]);
        body["spec"] = change["spec"].clone();
        body["status"] = change["status"].clone();
        s.put(format!("{item}/status"), &body);
        s.get(format!("{item}/status"));
        s.put(format!("{item}/status"), &body);
        s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"finalizers": null}}),
        );
        s.patch(
            MERGE_PATCH,
            format!("{item}/status?fieldManager=m"),
            &json!({"metadata": {"labels": {"by": "patch"}},
            "status": change["status"], "spec": change["spec"]}),
        );
    }
    s.get(s.core("pods/missing/status"));
    s.put(s.core("pods/missing/status"), &pod("missing"));
    s.get(s.core("configmaps/missing/status"));
}

fn status_is_ignored(s: &mut Session) {
    let cases: [(String, Value, Value); 6] = [
        (
            s.core("pods"),
            pod("a"),
            json!({"phase": "Running", "podIP": "10.9.8.7"}),
        ),
        (
            "/api/v1/nodes".to_owned(),
            node("u8-a"),
            json!({"capacity": {"cpu": "64"}}),
        ),
        (
            s.group("apps/v1", "deployments"),
            deployment("a"),
            json!({"replicas": 5}),
        ),
        (
            s.group("policy/v1", "poddisruptionbudgets"),
            disruption_budget("a", "x"),
            json!({"disruptionsAllowed": 5}),
        ),
        (
            s.widgets(""),
            widget("a"),
            json!({"replicas": 5, "note": "hi"}),
        ),
        (
            "/api/v1/namespaces".to_owned(),
            json!({"metadata": {"name": "u8-more"}}),
            json!({"phase": "Terminating"}),
        ),
    ];
    for (path, object, status) in cases {
        let item = format!("{path}/{}", name(&object));
        let mut with_status = object.clone();
        with_status["status"] = status.clone();
        let created = s.post(&path, &with_status);
        let mut body = created.body.clone();
        body["status"] = status.clone();
        body["metadata"]["labels"]["l"] = json!("1");
        s.put(&item, &body);
        s.patch(MERGE_PATCH, &item, &json!({"status": status}));
        s.get(&item);
    }
}
