//! Which requests webhooks are called for, and with what.

use e2e::Reply;
use serde_json::{Value, json};

use super::{Phase, called, configure, path, rule, webhook};
use crate::client::Request;
use crate::objects::{bound_pod, config_map, deployment, pod, widget};
use crate::session::{APPLY_PATCH, MERGE_PATCH, Session};

const APPS: &str = "apps/v1";

/// Webhooks that allow everything: (name, changes).
fn listeners(s: &mut Session, kind: Phase, hooks: &[(&str, Value)]) {
    for (name, _) in hooks {
        s.webhooks().on(&path(s, name), Reply::allow);
    }
    let hooks: Vec<Value> = hooks
        .iter()
        .map(|(name, changes)| webhook(s, name, changes))
        .collect();
    configure(s, kind, "l", &hooks);
}

pub(super) fn rules(s: &mut Session) {
    let one = |rule: Value| json!({"rules": [rule]});
    let scoped = |scope: &str| {
        let mut rule = rule(&["CREATE"], "*", "*", &["*"]);
        rule["scope"] = json!(scope);
        json!({"rules": [rule], "objectSelector": {"matchLabels": {"h5": "yes"}}})
    };
    let hooks = [
        ("create", one(rule(&["CREATE"], "", "v1", &["pods"]))),
        ("update", one(rule(&["UPDATE"], "", "v1", &["pods"]))),
        ("delete", one(rule(&["DELETE"], "", "v1", &["pods"]))),
        ("any-operation", one(rule(&["*"], "", "*", &["configmaps"]))),
        ("status", one(rule(&["*"], "", "v1", &["pods/status"]))),
        ("all-of-pods", one(rule(&["*"], "", "v1", &["pods/*"]))),
        ("scales", one(rule(&["*"], "*", "*", &["*/scale"]))),
        ("no-subresource", one(rule(&["*"], "*", "*", &["*"]))),
        ("everything", one(rule(&["*"], "*", "*", &["*/*"]))),
        (
            "other-group",
            one(rule(&["*"], "batch", "*", &["deployments"])),
        ),
        (
            "other-version",
            one(rule(&["*"], "apps", "v1beta1", &["deployments"])),
        ),
        (
            "custom",
            one(rule(&["*"], "conformance.tidepool.io", "v1", &["widgets"])),
        ),
        ("namespaced", scoped("Namespaced")),
        ("cluster", scoped("Cluster")),
        ("none", json!({"rules": []})),
    ];
    listeners(s, Phase::Mutating, &hooks);
    s.webhooks().take_asked(&path(s, ""));
    s.post(s.core("pods"), &pod("p"));
    called(s, "a new pod");
    s.patch(
        MERGE_PATCH,
        s.core("pods/p"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    called(s, "a patch");
    s.patch(
        MERGE_PATCH,
        s.core("pods/p/status"),
        &json!({"status": {"message": "x"}}),
    );
    called(s, "a patch of the status");
    s.delete(s.core("pods/p"));
    called(s, "a deletion");
    s.post(s.core("configmaps"), &config_map("c"));
    s.apply(&s.core("configmaps/c"), "me", &config_map("c"));
    s.apply(&s.core("configmaps/d"), "me", &config_map("d"));
    called(s, "applied objects");
    s.post(s.group(APPS, "deployments"), &deployment("d"));
    let scale = s.group(APPS, "deployments/d/scale");
    s.patch(MERGE_PATCH, scale, &json!({"spec": {"replicas": 5}}));
    called(s, "a deployment and its scale");
    s.post(s.widgets(""), &widget("w"));
    s.delete(s.widgets("/w"));
    called(s, "a custom object");
    let mut labelled = config_map("e");
    labelled["metadata"]["labels"] = json!({"h5": "yes"});
    s.post(s.core("configmaps"), &labelled);
    let class = json!({"metadata": {"name": "h5", "labels": {"h5": "yes"}}, "handler": "h"});
    s.post("/apis/node.k8s.io/v1/runtimeclasses", &class);
    // Cluster-wide rules without a selector would also hear other behaviours.
    let asked = s.webhooks().take_asked(&path(s, ""));
    let mut names: Vec<String> = asked
        .into_iter()
        .filter(|(_, request)| request["object"]["metadata"]["labels"]["h5"] == "yes")
        .map(|(path, request)| format!("{path} {}", request["resource"]["resource"]))
        .collect();
    names.sort();
    s.fact("called for objects with and without a namespace", names);
    s.delete("/apis/node.k8s.io/v1/runtimeclasses/h5");
    s.webhooks().take_asked(&path(s, ""));
    let missing = s.core("configmaps/missing");
    s.delete(missing);
    s.delete(s.core("configmaps?labelSelector=h5"));
    called(s, "a collection");
}

pub(super) fn selectors(s: &mut Session) {
    let object = |selector: Value| {
        json!({"objectSelector": selector,
            "rules": [rule(&["*"], "", "v1", &["configmaps"])]})
    };
    let namespace = |selector: Value| {
        json!({"namespaceSelector": selector, "objectSelector": {"matchLabels": {"h6": "yes"}},
            "rules": [rule(&["*"], "", "v1", &["configmaps", "namespaces"])]})
    };
    let expression = |key: &str, operator: &str, values: &[&str]| {
        let mut expression = json!({"key": key, "operator": operator});
        if !values.is_empty() {
            expression["values"] = json!(values);
        }
        json!({"matchExpressions": [expression]})
    };
    let hooks = [
        ("equal", object(json!({"matchLabels": {"a": "b"}}))),
        ("in", object(expression("a", "In", &["b", "c"]))),
        ("not-in", object(expression("a", "NotIn", &["b"]))),
        ("exists", object(expression("a", "Exists", &[]))),
        ("absent", object(expression("a", "DoesNotExist", &[]))),
        (
            "ns-one",
            namespace(json!({"matchLabels": {"h6-one": "yes"}})),
        ),
        (
            "ns-none",
            namespace(expression("h6-one", "DoesNotExist", &[])),
        ),
    ];
    listeners(s, Phase::Mutating, &hooks);
    let note = |s: &mut Session, what: &str| {
        let asked = s.webhooks().take_asked(&path(s, ""));
        let names: Vec<String> = asked.into_iter().map(|(path, _)| path).collect();
        s.fact(what, names);
    };
    let labelled = |name: &str, labels: Value| {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        object
    };
    for (name, labels) in [
        ("none", json!({})),
        ("b", json!({"a": "b"})),
        ("c", json!({"a": "c"})),
        ("h6", json!({"h6": "yes"})),
    ] {
        s.post(s.core("configmaps"), &labelled(name, labels));
        note(s, &format!("called for {name}"));
    }
    // An update matches by the old or by the new labels.
    s.patch(
        MERGE_PATCH,
        s.core("configmaps/b"),
        &json!({"metadata": {"labels": {"a": null}}}),
    );
    note(s, "called for a label that goes");
    s.patch(
        MERGE_PATCH,
        s.core("configmaps/b"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    note(s, "called for a label that comes");
    s.delete(s.core("configmaps/b"));
    note(s, "called for a deletion");
    for (name, labels) in [
        ("h6-with", json!({"h6": "yes", "h6-one": "yes"})),
        ("h6-without", json!({"h6": "yes"})),
    ] {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        s.post("/api/v1/namespaces", &object);
        note(s, &format!("called for the namespace {name}"));
        let path = format!("/api/v1/namespaces/{name}/configmaps");
        // A real server knows a new namespace a moment later.
        s.post(path, &labelled("c", json!({"h6": "yes"})));
        note(s, &format!("called in the namespace {name}"));
    }
}

pub(super) fn versions(s: &mut Session) {
    let rules = |version: &str, policy: &str| json!({"rules": [rule(&["*"], "autoscaling", version, &["horizontalpodautoscalers"])], "matchPolicy": policy});
    let events = |policy: &str| json!({"rules": [rule(&["*"], "events.k8s.io", "v1", &["events"])], "matchPolicy": policy});
    let hooks = [
        ("one-exact", rules("v1", "Exact")),
        ("one", rules("v1", "Equivalent")),
        ("two-exact", rules("v2", "Exact")),
        ("two", rules("v2", "Equivalent")),
        ("both", rules("*", "Equivalent")),
        ("events", events("Equivalent")),
        ("events-exact", events("Exact")),
    ];
    listeners(s, Phase::Mutating, &hooks);
    s.webhooks().on(&path(s, "one"), |review| {
        let kind = json!([review["request"]["kind"], review["request"]["requestKind"]]);
        let spec = &review["request"]["object"]["spec"];
        let note = json!([kind, spec["targetCPUUtilizationPercentage"]]).to_string();
        let mut operations =
            vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"one": note}})];
        if review["request"]["operation"] == "CREATE" {
            operations.push(json!({"op": "replace", "path": "/spec/maxReplicas", "value": 9}));
        }
        Reply::patch(review, &json!(operations))
    });
    let target = json!({"apiVersion": APPS, "kind": "Deployment", "name": "d"});
    let scaler = |name: &str| json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    let mut old = scaler("old");
    old["spec"]["targetCPUUtilizationPercentage"] = json!(70);
    s.quietly(&Request::post(s.group("autoscaling/v1", "horizontalpodautoscalers")).json(&old));
    called(s, "a new object of v1");
    let mut new = scaler("new");
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
    new["spec"]["metrics"] = json!([metric]);
    s.quietly(&Request::post(s.group("autoscaling/v2", "horizontalpodautoscalers")).json(&new));
    called(s, "a new object of v2");
    for name in ["old", "new"] {
        let path = s.group(
            "autoscaling/v2",
            &format!("horizontalpodautoscalers/{name}"),
        );
        s.get(path);
        s.keep_of_last(&["/status", "/body/spec", "/body/metadata/annotations/one"]);
    }
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": s.namespace(), "name": "p"}, "reason": "Tested", "message": "m", "type": "Normal"});
    s.post(s.core("events"), &event);
    called(s, "an event of the core group");
}

/// What a webhook was asked, without what is not the same on both servers.
fn requests_of(s: &mut Session, what: &str) {
    for (path, mut request) in super::once_per_deletion(s.webhooks().take_asked(&path(s, ""))) {
        if let Some(fields) = request.as_object_mut() {
            // The users of the two servers have other groups.
            fields.remove("userInfo");
        }
        for object in ["object", "oldObject"] {
            let Some(fields) = request[object].as_object_mut() else {
                continue;
            };
            // The real server counts a change of the spec, and drops a status, after its mutating webhooks.
            fields.remove("status");
            let is_scale = fields.get("kind").is_some_and(|kind| kind == "Scale");
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("generation");
                if is_scale {
                    // A Scale has them here only as part of its parent.
                    metadata.remove("managedFields");
                }
            }
        }
        s.record(
            format!("{what}: {path}"),
            Value::Null,
            json!({"request": request}),
        );
    }
}

pub(super) fn requests(s: &mut Session) {
    let rules = json!({"rules": [
        rule(&["*"], "", "v1", &["pods", "pods/status", "pods/binding", "pods/eviction", "configmaps"]),
        rule(&["*"], "apps", "v1", &["deployments", "deployments/scale"]),
        rule(&["*"], "conformance.tidepool.io", "v1", &["widgets"]),
    ]});
    listeners(s, Phase::Mutating, &[("first", rules.clone())]);
    listeners(s, Phase::Validating, &[("second", rules)]);
    s.webhooks().take_asked(&path(s, ""));
    let create = s.core("pods?fieldManager=me&fieldValidation=Strict");
    s.post(create, &pod("p"));
    requests_of(s, "a new pod");
    let generated = json!({"metadata": {"generateName": "g-"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    s.post(s.core("pods?dryRun=All"), &generated);
    requests_of(s, "a generated name");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    s.patch(MERGE_PATCH, s.core("pods/p?fieldManager=me"), &label);
    requests_of(s, "a patch");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    s.post(s.core("pods/p/binding"), &binding);
    requests_of(s, "a binding");
    s.post(
        s.core("pods/p/eviction"),
        &json!({"metadata": {"name": "p"}}),
    );
    requests_of(s, "an eviction");
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    s.delete_with(s.core("pods/p"), &options);
    requests_of(s, "a deletion");
    s.post(s.core("configmaps"), &config_map("c"));
    // As clients do it: with the metadata of the stored object. Here a webhook sees it in any case.
    let mut changed = s.get(s.core("configmaps/c")).body;
    changed["data"] = json!({"b": "2"});
    s.webhooks().take_asked(&path(s, ""));
    s.put(s.core("configmaps/c"), &changed);
    requests_of(s, "an update");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2"}});
    let place = s.core("configmaps/a?fieldManager=me&force=true");
    s.patch(APPLY_PATCH, &place, &applied);
    requests_of(s, "an apply");
    s.post(s.group(APPS, "deployments"), &deployment("d"));
    s.webhooks().take_asked(&path(s, ""));
    let scale = s.group(APPS, "deployments/d/scale");
    s.patch(MERGE_PATCH, scale, &json!({"spec": {"replicas": 3}}));
    requests_of(s, "a scale");
    s.post(s.widgets(""), &widget("w"));
    requests_of(s, "a custom object");
}

pub(super) fn dry_runs(s: &mut Session) {
    for name in ["none", "on-dry-run"] {
        s.webhooks().on(&path(s, name), |review| {
            let dry = review["request"]["dryRun"].to_string();
            let path = "/metadata/annotations";
            Reply::patch(
                review,
                &json!([{"op": "add", "path": path, "value": {"dry": dry}}]),
            )
        });
    }
    let rules = |effects: &str| json!({"sideEffects": effects, "rules": [rule(&["*"], "", "v1", &["configmaps"])]});
    let hooks = [
        webhook(s, "none", &rules("None")),
        webhook(s, "on-dry-run", &rules("NoneOnDryRun")),
    ];
    configure(s, Phase::Mutating, "d", &hooks);
    s.post(s.core("configmaps?dryRun=All"), &config_map("a"));
    s.get(s.core("configmaps/a"));
    s.post(s.core("configmaps"), &config_map("a"));
    let place = s.core("configmaps/a?dryRun=All");
    s.patch(MERGE_PATCH, &place, &json!({"data": {"b": "2"}}));
    s.webhooks().take_asked(&path(s, ""));
    s.delete(&place);
    called(s, "a deletion, dry");
    s.get(s.core("configmaps/a"));
}

pub(super) fn other_writes(s: &mut Session) {
    s.webhooks().on(&path(s, "deny"), |review| {
        let request = &review["request"];
        let what = format!("{} of {}", request["operation"], request["kind"]["kind"]);
        Reply::deny(review, &what)
    });
    s.webhooks().on(&path(s, "patch"), |review| {
        Reply::patch(
            review,
            &json!([{"op": "add", "path": "/spec/replicas", "value": 4}]),
        )
    });
    s.prepare(&Request::post(s.core("pods")).json(&pod("p")));
    s.prepare(&Request::post(s.core("pods")).json(&bound_pod("q")));
    s.prepare(&Request::post(s.group(APPS, "deployments")).json(&deployment("d")));
    let scale = s.group(APPS, "deployments/d/scale");
    let only = json!({"rules": [rule(&["UPDATE"], "apps", "v1", &["deployments/scale"])]});
    configure(s, Phase::Mutating, "s", &[webhook(s, "patch", &only)]);
    s.patch(MERGE_PATCH, &scale, &json!({"spec": {"replicas": 7}}));
    super::remove(s, Phase::Mutating, "s");
    let deletes = json!({"rules": [rule(&["DELETE"], "", "v1", &["pods"])]});
    configure(s, Phase::Mutating, "d", &[webhook(s, "patch", &deletes)]);
    s.delete(s.core("pods/p"));
    super::remove(s, Phase::Mutating, "d");
    let rules = json!({"rules": [
        rule(&["DELETE"], "", "v1", &["pods"]),
        rule(&["CREATE"], "", "v1", &["pods/binding", "pods/eviction"]),
        rule(&["*"], "apps", "v1", &["deployments/scale"]),
    ]});
    for kind in [Phase::Mutating, Phase::Validating] {
        configure(s, kind, "o", &[webhook(s, "deny", &rules)]);
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        s.post(s.core("pods/p/binding"), &binding);
        s.post(
            s.core("pods/q/eviction"),
            &json!({"metadata": {"name": "q"}}),
        );
        s.delete(s.core("pods/q"));
        s.delete(s.core("pods"));
        s.patch(MERGE_PATCH, &scale, &json!({"spec": {"replicas": 9}}));
        super::remove(s, kind, "o");
    }
    s.get(s.core("pods/q"));
    s.get(&scale);
}
