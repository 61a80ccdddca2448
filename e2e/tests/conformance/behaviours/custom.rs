//! K: custom resources.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::{Answer, Request};
use crate::objects::definition;
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour(
        "K1",
        "custom resources: a definition, from created to served",
        established,
    ),
    behaviour(
        "K2",
        "custom resources: pruning and defaults",
        pruning_and_defaults,
    ),
    behaviour(
        "K3",
        "custom resources: schema violations",
        schema_violations,
    ),
    behaviour(
        "K5",
        "custom resources: status, scale and generation",
        status_scale_and_generation,
    ),
    behaviour("K6", "custom resources: printer columns", printer_columns),
    behaviour(
        "K7",
        "custom resources: fields of JSON Schema that definitions may not use",
        unsupported_fields,
    ),
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn is_established(answer: &Answer) -> bool {
    let conditions = answer
        .at("/status/conditions")
        .as_array()
        .cloned()
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Creates the definition of `KIND` in the group `ID.tidepool.io` and waits until it is served.
fn define(s: &mut Session, plural: &str, kind: &str, schema: Value) -> String {
    let mut definition = definition(&group(s), plural, kind, schema);
    // What the scale subresource adds is K5's.
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    define_with(s, definition);
    s.group(&format!("{}/v1", group(s)), plural)
}

fn group(s: &Session) -> String {
    format!("{}.tidepool.io", s.namespace())
}

fn define_with(s: &mut Session, definition: Value) {
    s.prepare(&Request::post(DEFINITIONS).json(&definition));
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    s.get_until(
        &format!("{DEFINITIONS}/{name}"),
        "it is established",
        is_established,
    );
    let spec = &definition["spec"];
    let list = format!(
        "/apis/{}/v1/{}",
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default()
    );
    s.get_until(&list, "it is served", |answer| answer.status == 200);
}

fn object(s: &Session, kind: &str, name: &str, content: Value) -> Value {
    let mut object =
        json!({"apiVersion": format!("{}/v1", group(s)), "kind": kind, "metadata": {"name": name}});
    for (key, value) in content.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn established(s: &mut Session) {
    let group = group(s);
    let mut gizmos = definition(
        &group,
        "gizmos",
        "Gizmo",
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    );
    gizmos["spec"]["names"]["shortNames"] = json!(["gz"]);
    gizmos["spec"]["names"]["categories"] = json!(["toys"]);
    s.get(format!("/apis/{group}"));
    s.get(format!("/apis/{group}/v1/gizmos"));
    let created = s.post(DEFINITIONS, &gizmos);
    s.fact(
        "conditions right after",
        created.at("/status/conditions").clone(),
    );
    s.get_until(
        &format!("{DEFINITIONS}/gizmos.{group}"),
        "it is established",
        is_established,
    );
    s.get_until(
        &format!("/apis/{group}/v1/gizmos"),
        "it is served",
        |answer| answer.status == 200,
    );
    s.get_until(&format!("/apis/{group}"), "the group is there", |answer| {
        answer.status == 200
    });
    s.get_until(
        &format!("/apis/{group}/v1"),
        "the version is there",
        |answer| answer.status == 200,
    );
    s.get_until("/openapi/v3", "the document is there", |answer| {
        answer
            .body
            .to_string()
            .contains(&format!("apis/{group}/v1"))
    });
    // The index lists what the server serves besides, and D6 compares how.
    s.keep_of_last(&["/status", "/in time"]);
    let cluster_wide = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": format!("planets.{group}")}, "spec": {"group": group, "scope": "Cluster",
        "names": {"plural": "planets", "singular": "planet", "kind": "Planet", "listKind": "PlanetList"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v1alpha1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v0", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]}});
    define_with(s, cluster_wide);
    s.get_until(
        &format!("/apis/{group}/v1alpha1"),
        "the version is there",
        |answer| answer.status == 200,
    );
    s.get_until(
        &format!("/apis/{group}"),
        "both versions are there",
        |answer| {
            answer
                .at("/versions")
                .as_array()
                .is_some_and(|versions| versions.len() == 2)
        },
    );
    s.post(
        format!("/apis/{group}/v1/planets"),
        &object(s, "Planet", "earth", json!({})),
    );
    s.get(format!("/apis/{group}/v1alpha1/planets/earth"));
    s.get(format!("/apis/{group}/v0/planets/earth"));
    s.get(format!("/apis/{group}/v1/planets"));
    s.get(format!("/apis/{group}/v1/planets/earth/status"));
    s.get(format!("{DEFINITIONS}/planets.{group}/status"));
}

fn pruning_and_defaults(s: &mut Session) {
    let path = define(
        s,
        "things",
        "Thing",
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {"made": "up"}, "properties": {
                "size": {"type": "integer", "default": 3},
                "made": {"type": "string"},
                "nullable": {"type": "string", "nullable": true, "default": "d"},
                "plain": {"type": "string", "nullable": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}},
                "list": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "weight": {"type": "number", "default": 1.5}}}},
                "either": {"x-kubernetes-int-or-string": true},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            }},
        }}),
    );
    for (name, content) in [
        ("empty", json!({})),
        (
            "pruned",
            json!({"spec": {"size": 1, "unknown": {"deep": 1}, "list": [{"name": "a", "extra": 1}], "map": {"k": {"junk": 1}}}, "top": 1}),
        ),
        (
            "nulls",
            json!({"spec": {"size": null, "nullable": null, "plain": null, "made": null}}),
        ),
        (
            "free",
            json!({"spec": {"free": {"anything": {"goes": [1, "2", null]}, "known": {"a": 1, "pruned": 2}}}}),
        ),
        (
            "mixed",
            json!({"spec": {"either": 5, "map": {}, "list": [], "embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "odd": 1}, "data": {"a": "b"}}}}),
        ),
        ("text", json!({"spec": {"either": "50%"}})),
    ] {
        s.post(&path, &object(s, "Thing", name, content));
        s.get(format!("{path}/{name}"));
    }
    s.patch(
        MERGE_PATCH,
        format!("{path}/pruned"),
        &json!({"spec": {"size": null, "junk": 1}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/pruned"),
        &json!({"spec": null}),
    );
    s.get(&path);
    s.post(&path, &object(s, "Thing", "meta", json!({"metadata": {"name": "meta", "junk": 1, "labels": {"a": "b"}, "annotations": null}})));
}

fn schema_violations(s: &mut Session) {
    let path = define(
        s,
        "rules",
        "Rule",
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["color", "items"], "properties": {
                "color": {"type": "string", "enum": ["red", "blue"]},
                "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
                "ratio": {"type": "number", "exclusiveMinimum": true, "minimum": 0, "multipleOf": 0.5},
                "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
                "when": {"type": "string", "format": "date-time"},
                "flag": {"type": "boolean"},
                "items": {"type": "array", "minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "object", "maxProperties": 2, "minProperties": 1, "additionalProperties": {"type": "integer"}},
                "choice": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                "any": {"x-kubernetes-int-or-string": true},
            }},
        }}),
    );
    let good = json!({"color": "red", "items": [{"name": "a"}]});
    s.post(&path, &object(s, "Rule", "good", json!({"spec": good})));
    for (name, change) in [
        ("color", json!("green")),
        ("color", json!(5)),
        ("color", json!(null)),
        ("replicas", json!(11)),
        ("replicas", json!(0)),
        ("replicas", json!("3")),
        ("replicas", json!(1.5)),
        ("ratio", json!(-1.5)),
        ("ratio", json!(0.3)),
        ("name", json!("a")),
        ("name", json!("abcdef")),
        ("name", json!("ABC")),
        ("when", json!("yesterday")),
        ("when", json!("2020-01-01T00:00:00Z")),
        ("flag", json!("true")),
        ("items", json!([])),
        ("items", json!([{"n": 1}])),
        ("items", json!([{"name": "a"}, {"name": "a"}])),
        (
            "items",
            json!([{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]),
        ),
        ("items", json!({"name": "a"})),
        ("items", json!("a")),
        ("set", json!(["x", "x"])),
        ("set", json!(["x", 1])),
        ("map", json!({})),
        ("map", json!({"a": 1, "b": 2, "c": 3})),
        ("map", json!({"a": "x"})),
        ("choice", json!({})),
        ("choice", json!({"a": "1", "b": "2"})),
        ("any", json!(true)),
        ("any", json!({})),
    ] {
        let mut spec = good.clone();
        spec[name] = change;
        s.post(&path, &object(s, "Rule", "bad", json!({"spec": spec})));
    }
    s.post(&path, &object(s, "Rule", "bad", json!({})));
    s.post(&path, &object(s, "Rule", "bad", json!({"spec": {}})));
    s.post(&path, &object(s, "Rule", "bad", json!({"spec": []})));
    // Several errors come in any order.
    let several = object(
        s,
        "Rule",
        "bad",
        json!({"spec": {"color": "green", "replicas": 99, "items": []}}),
    );
    let answer = s.quietly(&Request::post(&path).json(&several));
    let mut causes = answer
        .at("/details/causes")
        .as_array()
        .cloned()
        .unwrap_or_default();
    causes.sort_by_key(Value::to_string);
    s.fact("several errors", causes);
    s.post(&path, &object(s, "Rule", "Bad Name", json!({"spec": good})));
    s.patch(
        MERGE_PATCH,
        format!("{path}/good"),
        &json!({"spec": {"replicas": 99}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/good"),
        &json!({"spec": {"color": null}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/good"),
        &json!({"metadata": {"labels": {"not a label": "x"}}}),
    );
    s.get(format!("{path}/good"));
}

fn status_scale_and_generation(s: &mut Session) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}, "color": {"type": "string"}}},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    define_with(
        s,
        definition(&group(s), "scalables", "Scalable", schema.clone()),
    );
    let path = s.group(&format!("{}/v1", group(s)), "scalables");
    s.post(
        &path,
        &object(
            s,
            "Scalable",
            "a",
            json!({"spec": {"replicas": 2}, "status": {"replicas": 9}}),
        ),
    );
    let item = format!("{path}/a");
    s.get(format!("{item}/scale"));
    s.patch(
        MERGE_PATCH,
        format!("{item}/status"),
        &json!({"status": {"replicas": 2, "selector": "app=x"}, "spec": {"replicas": 50}}),
    );
    let scale = s.get(format!("{item}/scale"));
    let mut wanted = scale.body.clone();
    wanted["spec"]["replicas"] = json!(5);
    s.put(format!("{item}/scale"), &wanted);
    wanted["spec"]["replicas"] = json!(6);
    s.put(format!("{item}/scale"), &wanted);
    s.patch(
        MERGE_PATCH,
        format!("{item}/scale"),
        &json!({"spec": {"replicas": 7}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{item}/scale"),
        &json!({"spec": {"replicas": -1}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{item}/scale"),
        &json!({"spec": {"replicas": 0}}),
    );
    s.get(&item);
    s.get(format!("{path}/missing/scale"));
    // Built-in kinds scale the same way.
    s.post(
        s.group("apps/v1", "deployments"),
        &crate::objects::deployment("d"),
    );
    let deployment = s.group("apps/v1", "deployments/d");
    s.get(format!("{deployment}/scale"));
    s.patch(
        MERGE_PATCH,
        format!("{deployment}/scale"),
        &json!({"spec": {"replicas": 4}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{deployment}/scale"),
        &json!({"spec": {"replicas": -4}}),
    );
    s.get(&deployment);
    // Without the subresource status is content like any other.
    let mut plain = definition(&group(s), "plains", "Plain", schema);
    plain["spec"]["versions"][0]["subresources"] = Value::Null;
    define_with(s, plain);
    let path = s.group(&format!("{}/v1", group(s)), "plains");
    s.post(
        &path,
        &object(
            s,
            "Plain",
            "a",
            json!({"spec": {"color": "red"}, "status": {"replicas": 9}}),
        ),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/a"),
        &json!({"status": {"replicas": 8}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/a"),
        &json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}/a/status"),
        &json!({"status": {"replicas": 7}}),
    );
    s.get(format!("{path}/a/status"));
    s.get(format!("{path}/a/scale"));
}

fn printer_columns(s: &mut Session) {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut columns = definition(&group(s), "columns", "Column", schema.clone());
    columns["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "what it looks like"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
        {"name": "First", "type": "string", "jsonPath": ".spec.list[0].name", "priority": 1},
        {"name": "Cond", "type": "string", "jsonPath": ".spec.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Since", "type": "date", "jsonPath": ".spec.since"},
        {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name"},
        {"name": "Object", "type": "string", "jsonPath": ".spec.object"},
        {"name": "Either", "type": "string", "jsonPath": ".spec['object.x\\.y/z','color','object.a']"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    define_with(s, columns);
    let path = s.group(&format!("{}/v1", group(s)), "columns");
    for (name, spec) in [
        (
            "full",
            json!({"color": "red", "size": 5, "ratio": 1.5, "list": [{"name": "x"}, {"name": "y"}], "since": "2020-01-01T00:00:00Z",
            "conditions": [{"type": "Other", "status": "No"}, {"type": "Ready", "status": "True"}], "object": {"a": 1, "x.y/z": "dotted"}}),
        ),
        ("empty", json!({})),
        (
            "odd",
            json!({"color": 5, "size": "large", "ratio": 2, "since": "never", "list": []}),
        ),
    ] {
        s.prepare(&Request::post(&path).json(&object(s, "Column", name, json!({"spec": spec}))));
    }
    s.send(Request::get(&path).accept(table));
    s.send(Request::get(format!("{path}/full")).accept(table));
    s.send(Request::get(format!("{path}/missing")).accept(table));
    s.send(Request::get(format!("{path}?limit=1")).accept(table));
    s.send(Request::get(format!("{path}/full?includeObject=Object")).accept(table));
    define_with(s, definition(&group(s), "bares", "Bare", schema));
    let path = s.group(&format!("{}/v1", group(s)), "bares");
    s.send(Request::get(&path).accept(table));
    s.prepare(&Request::post(&path).json(&object(s, "Bare", "b", json!({}))));
    s.send(Request::get(&path).accept(table));
}

fn unsupported_fields(s: &mut Session) {
    let reference = || json!({"$ref": "#/definitions/x"});
    let with = |part: Value| json!({"type": "object", "properties": {"a": part}});
    for schema in [
        json!({"type": "object", "$ref": "#/x"}),
        with(reference()),
        with(json!({"type": "string", "$ref": ""})),
        with(json!({"type": "array", "items": reference()})),
        with(json!({"type": "object", "additionalProperties": reference()})),
        with(json!({"type": "string", "allOf": [reference()]})),
        with(json!({"type": "string", "oneOf": [{"minLength": 1}, reference()]})),
        with(json!({"type": "string", "anyOf": [{"not": reference()}]})),
        with(json!({"type": "string", "not": reference()})),
        with(json!({"type": "string", "id": "x"})),
        with(json!({"type": "object", "definitions": {"x": {"type": "string"}}})),
        with(json!({"type": "object", "patternProperties": {"x": {"type": "string"}}})),
        with(json!({"type": "object", "dependencies": {"x": ["y"]}})),
    ] {
        let mut definition = definition(&group(s), "refused", "Refused", schema);
        definition["spec"]["versions"][0]["subresources"] = Value::Null;
        s.post(DEFINITIONS, &definition);
    }
}
