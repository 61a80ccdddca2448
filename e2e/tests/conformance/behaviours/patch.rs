//! P: patches that are not server-side apply.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{config_map, deployment, node, pod, template, widget};
use crate::session::{JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("P1", "patch: JSON patch", json_patch),
    behaviour("P2", "patch: merge patch", merge_patch),
    behaviour(
        "P3",
        "patch: merge patch with a resource version, a uid or a name",
        merge_patch_with_identity,
    ),
    behaviour(
        "P4",
        "patch: strategic merge of keyed lists",
        strategic_merge_lists,
    ),
    behaviour(
        "P5",
        "patch: strategic merge: $patch delete and replace",
        strategic_merge_delete_and_replace,
    ),
    behaviour(
        "P6",
        "patch: strategic merge: the other directives",
        strategic_merge_directives,
    ),
    behaviour(
        "P9",
        "patch: content types that a kind does not support",
        unsupported_content_types,
    ),
    behaviour("P11", "patch: patches that change nothing", no_op_patches),
];

fn json_patch(s: &mut Session) {
    s.post(s.core("configmaps"), &config_map("a"));
    let path = s.core("configmaps/a");
    for patch in [
        json!([{"op": "add", "path": "/data/b", "value": "2"}, {"op": "test", "path": "/data/b", "value": "2"}]),
        json!([{"op": "replace", "path": "/data/a", "value": "9"}]),
        json!([{"op": "copy", "from": "/data/a", "path": "/data/c"}, {"op": "move", "from": "/data/b", "path": "/data/d"}]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a~b/c": "x"}}]),
        json!([{"op": "replace", "path": "/metadata/labels/a~0b~1c", "value": "y"}]),
        json!([{"op": "remove", "path": "/metadata/labels"}]),
        json!([{"op": "test", "path": "/data/a", "value": "other"}]),
        json!([{"op": "test", "path": "/data/missing", "value": "other"}]),
        json!([{"op": "test", "path": "/data/missing", "value": null}]),
        json!([{"op": "test", "path": "/data/a", "value": null}]),
        json!([{"op": "test", "path": "/metadata/annotations", "value": null}, {"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}]),
        json!([{"op": "test", "path": "/metadata/annotations", "value": null}]),
        json!([{"op": "remove", "path": "/data/missing"}]),
        json!([{"op": "replace", "path": "/data/missing", "value": "made"}]),
        json!([{"op": "replace", "path": "/nowhere/missing", "value": "made"}]),
        json!([{"op": "add", "path": "/nowhere/missing", "value": "made"}]),
        json!([{"op": "jump", "path": "/data/a"}]),
        json!([{"path": "/data/a"}]),
        json!([{"op": "add"}]),
        json!([]),
        json!({"op": "add", "path": "/data/b", "value": "2"}),
        json!("text"),
        json!(null),
        json!([{"op": "replace", "path": "/data", "value": 1}]),
        json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]),
        json!([{"op": "replace", "path": "/kind", "value": "Other"}]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"not a label": "x"}}]),
        // All or nothing.
        json!([{"op": "add", "path": "/data/e", "value": "1"}, {"op": "test", "path": "/data/e", "value": "2"}]),
    ] {
        s.patch(JSON_PATCH, &path, &patch);
    }
    s.send(Request::new("PATCH", &path).body(JSON_PATCH, "{broken"));
    s.send(Request::new("PATCH", &path).body(JSON_PATCH, ""));
    s.get(&path);
    s.patch(
        JSON_PATCH,
        s.core("configmaps/missing"),
        &json!([{"op": "remove", "path": "/data"}]),
    );

    s.post(s.widgets(""), &widget("a"));
    let path = s.widgets("/a");
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "replace", "path": "/spec/color", "value": "blue"}]),
    );
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "remove", "path": "/spec/nope"}]),
    );
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "replace", "path": "/spec/replicas", "value": "many"}]),
    );

    let mut two = pod("p");
    two["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    two["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b"]);
    s.post(s.core("pods"), &two);
    let path = s.core("pods/p");
    s.patch(JSON_PATCH, &path, &json!([{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "b", "operator": "Exists"}}]));
    s.patch(JSON_PATCH, &path, &json!([{"op": "add", "path": "/spec/tolerations/0", "value": {"key": "c", "operator": "Exists"}}]));
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
    );
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "remove", "path": "/metadata/finalizers/7"}]),
    );
}

fn merge_patch(s: &mut Session) {
    s.post(s.core("configmaps"), &json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "data": {"a": "1", "b": "2"}}));
    let path = s.core("configmaps/a");
    for patch in [
        json!({"data": {"a": null, "c": "3"}}),
        json!({"metadata": {"labels": {"x": null}}}),
        json!({"metadata": {"labels": null}}),
        json!({"data": null}),
        json!({"data": {"n": 1}}),
        json!({"data": ["list"]}),
        json!({"metadata": "text"}),
        json!([]),
        json!([{"op": "add", "path": "/data/x", "value": "1"}]),
        json!("text"),
        json!(1),
        json!(null),
        json!({"unknown": {"deep": null}}),
        json!({"immutable": true}),
        json!({"data": {"late": "1"}}),
    ] {
        s.patch(MERGE_PATCH, &path, &patch);
    }
    s.send(Request::new("PATCH", &path).body(MERGE_PATCH, "{broken"));
    s.send(Request::new("PATCH", &path).body(MERGE_PATCH, ""));
    s.post(s.core("configmaps"), &config_map("strict"));
    let path = s.core("configmaps/strict");
    for mode in ["Strict", "Warn", "Ignore"] {
        s.patch(
            MERGE_PATCH,
            format!("{path}?fieldValidation={mode}"),
            &json!({"foo": 1, "metadata": {"bar": 2}}),
        );
    }
    s.get(&path);
    s.patch(
        MERGE_PATCH,
        s.core("configmaps/missing"),
        &json!({"data": {"a": "1"}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}?force=true"),
        &json!({"data": {"a": "1"}}),
    );

    s.post(s.widgets(""), &widget("a"));
    let path = s.widgets("/a");
    for patch in [
        json!({"spec": {"color": "blue", "replicas": null}}),
        json!({"spec": {"unknown": 1}}),
        json!({"spec": {"replicas": "many"}}),
        json!({"spec": null}),
    ] {
        s.patch(MERGE_PATCH, &path, &patch);
    }
    s.patch(
        MERGE_PATCH,
        format!("{path}?fieldValidation=Strict"),
        &json!({"spec": {"unknown": 1}}),
    );
    // Lists are replaced as a whole.
    s.post(s.group("apps/v1", "deployments"), &deployment("d"));
    s.patch(
        MERGE_PATCH,
        s.group("apps/v1", "deployments/d"),
        &json!({"spec": {"template": {"spec": {"containers": [
        {"name": "other", "image": "j"}]}}}}),
    );
}

fn merge_patch_with_identity(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.widgets(""), widget("a")),
    ] {
        let item = format!("{path}/a");
        let created = s.post(&path, &object);
        let with = |metadata: Value| json!({"metadata": metadata});
        let labels = json!({"l": "1"});
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"resourceVersion": created.version(), "labels": labels})),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"resourceVersion": created.version(), "labels": {"l": "2"}})),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"resourceVersion": "1", "labels": {"l": "3"}})),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"resourceVersion": null, "labels": {"l": "4"}})),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"uid": "11111111-2222-3333-4444-555555555555"})),
        );
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"uid": created.uid(), "labels": {"l": "5"}})),
        );
        s.patch(MERGE_PATCH, &item, &with(json!({"name": "b"})));
        s.patch(MERGE_PATCH, &item, &with(json!({"namespace": "default"})));
        s.patch(
            MERGE_PATCH,
            &item,
            &with(json!({"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"l": "6"}})),
        );
        s.patch(MERGE_PATCH, &item, &json!({"kind": "Other"}));
        s.patch(MERGE_PATCH, &item, &json!({"apiVersion": "v9"}));
        s.get(&item);
    }
}

/// A deployment with something in every list that merges by key.
fn rich(name: &str) -> Value {
    let mut object = deployment(name);
    object["spec"]["template"]["spec"] = json!({
        "containers": [
            {"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
             "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 443, "name": "https"}],
             "volumeMounts": [{"name": "v", "mountPath": "/v"}], "args": ["one", "two"]},
            {"name": "b", "image": "i:2"},
        ],
        "initContainers": [{"name": "i", "image": "i:3"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "cm"}}],
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
        "imagePullSecrets": [{"name": "s"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    });
    object
}

fn template_patch(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn strategic_merge_lists(s: &mut Session) {
    s.post(s.group("apps/v1", "deployments"), &rich("d"));
    let path = s.group("apps/v1", "deployments/d");
    for patch in [
        json!({"containers": [{"name": "a", "image": "i:9"}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "9"}, {"name": "Z", "value": "3"}]}]}),
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 8080}]}]}),
        json!({"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/v", "name": "w"}, {"mountPath": "/u", "name": "v"}]}]}),
        json!({"containers": [{"name": "a", "args": ["three"]}]}),
        json!({"containers": [{"name": "c", "image": "i:4"}]}),
        json!({"initContainers": [{"name": "i", "command": ["run"]}]}),
        json!({"volumes": [{"name": "w", "configMap": {"name": "other"}}, {"name": "x", "emptyDir": {}}]}),
        json!({"tolerations": [{"key": "u", "operator": "Exists"}]}),
        json!({"nodeSelector": {"zone": "a"}}),
        json!({"nodeSelector": {"disk": null}}),
        json!({"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["g"]}, {"ip": "10.0.0.2", "hostnames": ["k"]}]}),
        json!({"imagePullSecrets": [{"name": "s2"}]}),
        json!({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 2}]}),
        json!({"containers": [{"name": "b", "resources": {"limits": {"cpu": "2"}}}]}),
        json!({"containers": null, "initContainers": null}),
    ] {
        s.patch(STRATEGIC_PATCH, &path, &template_patch(patch));
    }
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"labels": {"l": "1"}, "finalizers": ["x.io/a"]}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"labels": {"l": null}, "finalizers": ["x.io/b"]}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"finalizers": null}}),
    );
    s.get(&path);

    s.post("/api/v1/nodes", &node("p4"));
    for patch in [
        json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}}),
        json!({"status": {"conditions": [{"type": "Disk", "status": "True", "reason": "Full"}]}}),
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "h"}]}}),
        json!({"status": {"addresses": [{"type": "Hostname", "address": "g"}]}}),
        json!({"status": {"capacity": {"x.io/gpu": "2"}, "images": [{"names": ["i"], "sizeBytes": 5}]}}),
    ] {
        s.patch(STRATEGIC_PATCH, "/api/v1/nodes/p4/status", &patch);
    }
    s.patch(
        STRATEGIC_PATCH,
        "/api/v1/nodes/p4",
        &json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        "/api/v1/nodes/p4",
        &json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}),
    );

    s.post(
        s.core("services"),
        &json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"name": "a", "port": 80}]}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        s.core("services/svc"),
        &json!({"spec": {"ports": [{"name": "b", "port": 81}]}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        s.core("services/svc"),
        &json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
    );
    s.post(s.core("serviceaccounts"), &json!({"metadata": {"name": "sa"}, "secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "p"}]}));
    s.patch(
        STRATEGIC_PATCH,
        s.core("serviceaccounts/sa"),
        &json!({"secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "q"}]}),
    );
    s.send(Request::new("PATCH", s.core("serviceaccounts/sa")).body(STRATEGIC_PATCH, "{broken"));
    // The message is what the server's JSON reader says.
    s.keep_of_last(&["/status", "/body/reason", "/body/details"]);
    s.patch(
        STRATEGIC_PATCH,
        s.core("serviceaccounts/missing"),
        &json!({}),
    );
}

fn strategic_merge_delete_and_replace(s: &mut Session) {
    s.post(s.group("apps/v1", "deployments"), &rich("d"));
    let path = s.group("apps/v1", "deployments/d");
    for patch in [
        json!({"containers": [{"name": "b", "$patch": "delete"}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}, {"name": "N", "value": "n"}]}]}),
        json!({"containers": [{"name": "nobody", "$patch": "delete"}]}),
        json!({"nodeSelector": {"$patch": "replace", "only": "this"}}),
        json!({"nodeSelector": {"$patch": "delete"}}),
        json!({"volumes": [{"$patch": "replace"}, {"name": "z", "emptyDir": {}}]}),
        json!({"containers": [{"$patch": "replace"}, {"name": "new", "image": "i:5"}]}),
        json!({"hostAliases": [{"ip": "10.0.0.1", "$patch": "delete"}]}),
    ] {
        s.patch(STRATEGIC_PATCH, &path, &template_patch(patch));
    }
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"metadata": {"annotations": {"$patch": "delete"}}}),
    );
    s.get(&path);
    s.post(s.core("configmaps"), &config_map("a"));
    s.patch(
        STRATEGIC_PATCH,
        s.core("configmaps/a"),
        &json!({"data": {"$patch": "replace", "z": "26"}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        s.core("configmaps/a"),
        &json!({"data": {"$patch": "delete"}}),
    );
    s.patch(
        STRATEGIC_PATCH,
        s.core("configmaps/a"),
        &json!({"$patch": "delete"}),
    );
    s.get(s.core("configmaps/a"));
}

fn strategic_merge_directives(s: &mut Session) {
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["x.io/a", "x.io/b", "x.io/c"]);
    s.post(s.core("configmaps"), &object);
    let path = s.core("configmaps/a");
    for patch in [
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/nobody"]}}),
        json!({"metadata": {"finalizers": ["x.io/d"]}}),
        json!({"metadata": {"$setElementOrder/finalizers": ["x.io/d", "x.io/a", "x.io/c"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a", "x.io/c", "x.io/d"]}}),
    ] {
        s.patch(STRATEGIC_PATCH, &path, &patch);
    }
    s.post(s.group("apps/v1", "deployments"), &rich("d"));
    let path = s.group("apps/v1", "deployments/d");
    for patch in [
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
        json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
            "containers": [{"name": "c", "image": "i:7"}, {"name": "a", "image": "i:8"}]}),
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}],
            "containers": [{"name": "c", "image": "i:9"}]}),
        json!({"containers": [{"name": "a", "$setElementOrder/env": [{"name": "Y"}, {"name": "X"}]}]}),
        json!({"$setElementOrder/volumes": [{"name": "w"}, {"name": "v"}],
            "volumes": [{"name": "w", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}),
        json!({"volumes": [{"name": "w", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}),
    ] {
        s.patch(STRATEGIC_PATCH, &path, &template_patch(patch));
    }
    s.patch(
        STRATEGIC_PATCH,
        &path,
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    );
    s.patch(STRATEGIC_PATCH, &path, &json!({"spec": {"strategy": {"$retainKeys": ["type", "rollingUpdate"], "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1}}}}));
    s.get(&path);
}

fn unsupported_content_types(s: &mut Session) {
    s.post(s.core("configmaps"), &config_map("a"));
    s.post(s.widgets(""), &widget("a"));
    for path in [s.core("configmaps/a"), s.widgets("/a")] {
        for content_type in [
            STRATEGIC_PATCH,
            "application/json",
            "text/plain",
            "application/yaml",
            "application/merge-patch+yaml",
            "application/json-patch+json; charset=utf-8",
            "application/merge-patch+json; charset=utf-8",
            "",
        ] {
            s.patch(
                content_type,
                &path,
                &json!({"metadata": {"labels": {"l": "1"}}}),
            );
        }
        let mut bare = Request::new("PATCH", &path).json(&json!({}));
        bare.headers.retain(|(name, _)| *name != "content-type");
        s.send(bare);
    }
    s.patch(
        STRATEGIC_PATCH,
        s.widgets("/a/status"),
        &json!({"status": {"note": "n"}}),
    );
    s.patch(STRATEGIC_PATCH, s.widgets("/missing"), &json!({}));
}

fn no_op_patches(s: &mut Session) {
    let mut rs =
        json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}});
    rs["spec"]["template"] = template("x");
    for (path, object, same) in [
        (
            s.core("configmaps"),
            config_map("a"),
            json!({"data": {"a": "1"}}),
        ),
        (
            s.core("pods"),
            pod("a"),
            json!({"spec": {"schedulerName": "default-scheduler"}}),
        ),
        (
            s.group("apps/v1", "replicasets"),
            rs,
            json!({"spec": {"replicas": 1}}),
        ),
        (
            s.widgets(""),
            widget("a"),
            json!({"spec": {"color": "red"}}),
        ),
    ] {
        let item = format!("{path}/a");
        let created = s.post(&path, &object);
        let mut watch = s.watch(format!(
            "{path}?watch=true&resourceVersion={}",
            created.version()
        ));
        let mut patches = vec![(MERGE_PATCH, same.clone()), (MERGE_PATCH, json!({}))];
        patches.push((
            MERGE_PATCH,
            json!({"metadata": {"labels": {"nobody": null}}}),
        ));
        patches.push((
            JSON_PATCH,
            json!([{"op": "test", "path": "/metadata/name", "value": "a"}]),
        ));
        if !path.contains("widgets") {
            patches.push((STRATEGIC_PATCH, same));
        }
        for (content_type, patch) in patches {
            let answer = s.patch(content_type, format!("{item}?fieldManager=other"), &patch);
            s.fact("the version stays", answer.version() == created.version());
        }
        let changed = s.patch(
            MERGE_PATCH,
            &item,
            &json!({"metadata": {"labels": {"l": "1"}}}),
        );
        s.fact("a change is one", changed.version() != created.version());
        s.events(&mut watch, 1);
    }
}
