//! C: creating objects, and bodies that are refused.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{config_map, every_other_kind, lease, node, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("C1", "create: an object of every kind", every_kind),
    behaviour("C2", "create: an object that exists", already_exists),
    behaviour("C3", "create: generateName", generate_name),
    behaviour("C4", "create: no name", no_name),
    behaviour(
        "C7",
        "create: fields that only the server sets",
        server_set_fields,
    ),
    behaviour(
        "C8",
        "create: a missing namespace, another namespace",
        missing_and_other_namespace,
    ),
    behaviour("C9", "create: dry run", dry_run),
    behaviour(
        "C11",
        "create: unknown and duplicate fields",
        unknown_and_duplicate_fields,
    ),
    behaviour("C12", "create: malformed bodies", malformed_bodies),
    behaviour("C13", "create: media types", media_types),
    behaviour("C14", "create: size limits", size_limits),
    behaviour("C15", "create: YAML requests and answers", yaml),
    behaviour("C16", "create: quantities", quantities),
];

/// The path to create at, for an entry of [`every_other_kind`].
fn collection(s: &Session, path: &str) -> String {
    match path.rsplit_once('/') {
        _ if path.starts_with('/') => path.to_owned(),
        Some((group, resource)) => s.group(group, resource),
        None => s.core(path),
    }
}

fn every_kind(s: &mut Session) {
    let path = s.core("configmaps");
    let mut object = config_map("plain");
    object["metadata"]["labels"] = json!({"app": "x", "tier": "back"});
    object["metadata"]["annotations"] = json!({"note": "hello"});
    object["metadata"]["finalizers"] = json!(["tidepool.io/keep"]);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "nowhere.io/v1", "kind": "Ghost", "name": "p", "uid": "8f9a7c53-96e2-4f7c-8f6a-1f2b3c4d5e6f"}]);
    object["binaryData"] = json!({"b": "AQID"});
    s.post(&path, &object);
    s.patch(
        MERGE_PATCH,
        format!("{path}/plain"),
        &json!({"metadata": {"finalizers": null}}),
    );
    s.post(
        format!("{path}?fieldManager=somebody"),
        &config_map("managed"),
    );
    s.post(
        &path,
        &json!({"metadata": {"name": "empty", "annotations": {}, "labels": {}}, "data": {}}),
    );
    s.get(format!("{path}/empty"));
    s.post(
        &path,
        &json!({"metadata": {"name": "fixed"}, "immutable": true}),
    );

    s.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "c1-more"}}),
    );
    s.post("/api/v1/nodes", &json!({"metadata": {"name": "c1-node"}}));
    s.post(s.widgets(""), &widget("one"));
    for (path, object) in every_other_kind("c1") {
        let path = collection(s, path);
        s.post(&path, &object);
        s.get(format!(
            "{path}/{}",
            object["metadata"]["name"].as_str().unwrap_or_default()
        ));
    }
}

fn already_exists(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("twice")),
        (s.core("pods"), pod("twice")),
        (s.widgets(""), widget("twice")),
        (s.group("coordination.k8s.io/v1", "leases"), lease("twice")),
        ("/api/v1/nodes".to_owned(), node("c2-twice")),
        (
            "/api/v1/namespaces".to_owned(),
            json!({"metadata": {"name": "c2-twice"}}),
        ),
    ] {
        s.post(&path, &object);
        s.post(&path, &object);
    }
    s.post(s.core("configmaps?dryRun=All"), &config_map("twice"));
}

fn generate_name(s: &mut Session) {
    for (path, base) in [
        ("configmaps", "short-".to_owned()),
        ("configmaps", "l".repeat(70)),
        ("pods", "pod-".to_owned()),
    ] {
        let mut object = if path == "pods" {
            pod("")
        } else {
            config_map("")
        };
        object["metadata"] = json!({"generateName": base});
        let answer = s.post(s.core(path), &object);
        let name = answer.text("/metadata/name");
        let suffix = name.len().saturating_sub(5);
        s.fact("length of the name", name.len());
        s.fact("its base", &name[..suffix]);
    }
    let path = s.widgets("");
    let mut object = widget("");
    object["metadata"] = json!({"generateName": "w-"});
    s.post(&path, &object);
    // A name wins.
    s.post(
        s.core("configmaps"),
        &json!({"metadata": {"name": "named", "generateName": "other-"}}),
    );
    let first = s.quietly(
        &Request::post(s.core("configmaps")).json(&json!({"metadata": {"generateName": "g-"}})),
    );
    let second = s.quietly(
        &Request::post(s.core("configmaps")).json(&json!({"metadata": {"generateName": "g-"}})),
    );
    s.fact(
        "two names differ",
        first.text("/metadata/name") != second.text("/metadata/name"),
    );
}

fn no_name(s: &mut Session) {
    s.post(s.core("configmaps"), &json!({"data": {"a": "b"}}));
    s.post(s.core("configmaps"), &json!({"metadata": {}}));
    s.post(
        s.core("pods"),
        &json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
    );
    s.post(s.group("apps/v1", "deployments"), &json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    s.post("/api/v1/nodes", &json!({}));
    s.post("/api/v1/namespaces", &json!({"metadata": {}}));
    let mut object = widget("");
    object["metadata"] = json!({});
    s.post(s.widgets(""), &object);
}

fn server_set_fields(s: &mut Session) {
    let given = json!({
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2002-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 7,
        "selfLink": "/somewhere",
        "generation": 9,
    });
    let with = |mut object: Value| {
        for (key, value) in given.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        object
    };
    s.post(s.core("configmaps"), &with(config_map("a")));
    s.post(s.core("pods"), &with(pod("a")));
    s.post(s.widgets(""), &with(widget("a")));
    s.post("/api/v1/nodes", &with(node("c7-a")));
    s.get(s.core("configmaps/a"));
}

fn missing_and_other_namespace(s: &mut Session) {
    for namespace in ["c8-nowhere", "c8-NOT A NAME"] {
        let namespace = namespace.replace(' ', "%20");
        s.post(
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            &config_map("a"),
        );
        s.post(
            format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            &crate::objects::deployment("a"),
        );
        s.post(
            format!("/apis/conformance.tidepool.io/v1/namespaces/{namespace}/widgets"),
            &widget("a"),
        );
    }
    let mut elsewhere = config_map("a");
    elsewhere["metadata"]["namespace"] = json!("default");
    s.post(s.core("configmaps"), &elsewhere);
    let mut elsewhere = widget("a");
    elsewhere["metadata"]["namespace"] = json!("default");
    s.post(s.widgets(""), &elsewhere);
    let mut here = config_map("here");
    here["metadata"]["namespace"] = json!(s.namespace());
    s.post(s.core("configmaps"), &here);
    // A namespaced kind without a namespace in the path, and a cluster-wide one with.
    s.post("/api/v1/configmaps", &config_map("a"));
    let mut spaced = node("c8-spaced");
    spaced["metadata"]["namespace"] = json!("default");
    s.post("/api/v1/nodes", &spaced);
}

fn dry_run(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("dry")),
        (s.core("pods"), pod("dry")),
        (s.widgets(""), widget("dry")),
    ] {
        s.post(format!("{path}?dryRun=All"), &object);
        s.get(format!("{path}/dry"));
    }
    let created = s.post(s.core("configmaps"), &config_map("wet"));
    let path = s.core("configmaps/wet");
    s.patch(
        MERGE_PATCH,
        format!("{path}?dryRun=All"),
        &json!({"data": {"a": "2"}}),
    );
    let mut changed = created.body.clone();
    changed["data"] = json!({"a": "3"});
    s.put(format!("{path}?dryRun=All"), &changed);
    s.delete(format!("{path}?dryRun=All"));
    s.get(&path);
    s.post(
        s.core("pods?dryRun=All"),
        &json!({"metadata": {"name": "bad"}, "spec": {}}),
    );
}

fn unknown_and_duplicate_fields(s: &mut Session) {
    let unknown = r#"{"metadata":{"name":"NAME","bar":1},"foo":{"x":1},"data":{"a":"1"}}"#;
    let duplicate =
        r#"{"metadata":{"name":"NAME","labels":{"l":"1","l":"2"}},"data":{"a":"1","a":"2"}}"#;
    let nested = r#"{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i","imagee":"j","ports":[{"containerPort":1,"hostport":2}]}],"restartpolicy":"Never"}}"#;
    let custom = r#"{"apiVersion":"conformance.tidepool.io/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"color":"red","size":1,"deep":{"er":2}},"zoo":1}"#;
    let custom_duplicate = r#"{"apiVersion":"conformance.tidepool.io/v1","kind":"Widget","metadata":{"name":"NAME"},"spec":{"color":"red","color":"blue"}}"#;
    for (index, mode) in ["Strict", "Warn", "Ignore", ""].into_iter().enumerate() {
        for (body, path) in [
            (unknown, s.core("configmaps")),
            (duplicate, s.core("configmaps")),
            (nested, s.core("pods")),
            (custom, s.widgets("")),
            (custom_duplicate, s.widgets("")),
        ] {
            let name = format!(
                "n{index}-{}",
                if body.contains("\"1\",\"") {
                    "duplicate"
                } else {
                    "unknown"
                }
            );
            let name = if body == custom_duplicate {
                format!("n{index}-twice")
            } else {
                name
            };
            let query = if mode.is_empty() {
                String::new()
            } else {
                format!("?fieldValidation={mode}")
            };
            s.send(
                Request::post(format!("{path}{query}"))
                    .body("application/json", body.replace("NAME", &name)),
            );
        }
    }
    let created = s.quietly(&Request::post(s.core("configmaps")).json(&config_map("updated")));
    let mut changed = created.body;
    changed["extra"] = json!(1);
    for mode in ["Strict", "Warn"] {
        s.put(
            s.core(&format!("configmaps/updated?fieldValidation={mode}")),
            &changed,
        );
    }
    let yaml = "metadata:\n  name: yaml\nfoo: 1\ndata:\n  a: '1'\n  a: '2'\n";
    s.send(
        Request::post(s.core("configmaps?fieldValidation=Strict")).body("application/yaml", yaml),
    );
}

fn malformed_bodies(s: &mut Session) {
    let path = s.core("configmaps");
    for body in [
        "",
        " ",
        "{",
        "{\"a\":",
        "[]",
        "[{}]",
        "null",
        "1",
        "\"text\"",
        "nonsense",
        "{} {}",
        "{\"metadata\":1}",
        "{\"metadata\":{\"name\":1}}",
        "{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":1}}",
        "{\"metadata\":{\"name\":\"x\"},\"data\":[]}",
        "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\"}}",
        "{\"kind\":\"Nope\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\"}}",
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v9\",\"metadata\":{\"name\":\"x\"}}",
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"apps/v1\",\"metadata\":{\"name\":\"x\"}}",
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"a/b/c\",\"metadata\":{\"name\":\"x\"}}",
        "{\"kind\":1}",
    ] {
        s.send(Request::post(&path).body("application/json", body));
    }
    for body in [
        r#"{"metadata":{"name":"x"},"spec":{"containers":"c"}}"#,
        r#"{"metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":"80"}]}]}}"#,
        r#"{"metadata":{"name":"x","creationTimestamp":"yesterday"},"spec":{"containers":[]}}"#,
    ] {
        s.send(Request::post(s.core("pods")).body("application/json", body));
    }
    for body in [
        "",
        "[]",
        "{",
        "{}",
        r#"{"apiVersion":"conformance.tidepool.io/v1","metadata":{"name":"x"}}"#,
        r#"{"kind":"Widget","metadata":{"name":"x"}}"#,
        r#"{"apiVersion":"conformance.tidepool.io/v2","kind":"Widget","metadata":{"name":"x"}}"#,
        r#"{"apiVersion":"conformance.tidepool.io/v1","kind":"Gadget","metadata":{"name":"x"}}"#,
    ] {
        s.send(Request::post(s.widgets("")).body("application/json", body));
    }
    s.send(Request::post(&path).body("application/yaml", "a: [1"));
    s.send(Request::new("PUT", format!("{path}/x")).body("application/json", "{"));
    s.get(&path);
}

fn media_types(s: &mut Session) {
    let path = s.core("configmaps");
    for (name, content_type) in [
        ("a", "text/plain"),
        ("b", "application/foo"),
        ("c", "application/x-www-form-urlencoded"),
        ("d", "application/json; charset=utf-8"),
        ("e", "application/json;charset=utf-8"),
        ("f", "not a type"),
        ("g", ""),
        ("h", "application/merge-patch+json"),
    ] {
        let body = config_map(name).to_string();
        s.send(Request::post(&path).body(content_type, body));
    }
    let mut bare = Request::post(&path).json(&config_map("bare"));
    bare.headers.retain(|(name, _)| *name != "content-type");
    s.send(bare);
    s.send(Request::post(s.widgets("")).body("text/plain", widget("a").to_string()));
    for accept in [
        "application/foo",
        "text/html",
        "text/html, application/json",
        "application/json;q=0.5, text/plain",
        "*/*",
        "application/*",
        "",
        "application/json;as=Nope;g=meta.k8s.io;v=v1",
        "application/json;as=Table;g=meta.k8s.io;v=v9",
        "application/json;as=Table;g=meta.k8s.io;v=v9,application/json",
    ] {
        s.send(Request::get(format!("{path}/d")).accept(accept));
    }
    s.send(Request::get(s.widgets("")).accept("application/foo"));
    s.send(Request::get("/api/v1").accept("application/foo"));
}

fn size_limits(s: &mut Session) {
    let path = s.core("configmaps");
    let with_data = |name: &str, bytes: usize| json!({"metadata": {"name": name}, "data": {"d": "x".repeat(bytes)}});
    let mut record = |path: &str, object: Value| {
        let answer = s.quietly(&Request::post(path).json(&object));
        let mut record = answer.record();
        // A stored object of a mebibyte would drown the report.
        if answer.status == 201 {
            record["body"] = json!("stored");
        }
        s.record(
            format!("POST {path} of {} bytes", object.to_string().len()),
            Value::Null,
            record,
        );
    };
    const MEBIBYTE: usize = 1 << 20;
    record(&path, with_data("body", 3 * MEBIBYTE + 1));
    record(&path, with_data("data", MEBIBYTE));
    record(&path, with_data("just", MEBIBYTE - 1));
    record(
        &path,
        json!({"metadata": {"name": "noted", "annotations": {"a": "x".repeat(256 << 10)}}}),
    );
    record(
        &path,
        json!({"metadata": {"name": "fits", "annotations": {"a": "x".repeat((256 << 10) - 1)}}}),
    );
    let secrets = path.replace("configmaps", "secrets");
    record(
        &secrets,
        json!({"metadata": {"name": "data"}, "stringData": {"d": "x".repeat(MEBIBYTE + 1)}}),
    );
}

fn yaml(s: &mut Session) {
    let yaml = "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\n  labels: {on: \"yes\"}\ndata:\n  text: |\n    two\n    lines\n  number: \"1\"\n";
    let path = s.core("configmaps");
    s.send(Request::post(&path).body("application/yaml", yaml));
    s.get(format!("{path}/yaml"));
    s.send(Request::get(format!("{path}/yaml")).accept("application/yaml"));
    s.send(Request::get(&path).accept("application/yaml"));
    s.send(Request::get(format!("{path}/missing")).accept("application/yaml"));
    s.send(Request::post(s.core("pods")).accept("application/yaml").body(
        "application/yaml",
        "metadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n    resources: {requests: {cpu: 0.5, memory: 1Gi}}\n",
    ));
    s.send(Request::post(s.widgets("")).accept("application/yaml").body(
        "application/yaml",
        "apiVersion: conformance.tidepool.io/v1\nkind: Widget\nmetadata: {name: w}\nspec: {color: red, replicas: 2}\n",
    ));
}

fn quantities(s: &mut Session) {
    let texts = [
        "1000",
        "0.1",
        "1024Mi",
        "2000",
        "1500M",
        "1073741824",
        "1e3",
        "1E3",
        "100m",
        "0",
        "0.5",
        "1.5Gi",
        "1Ki",
        "1024Ki",
        "12e6",
        "5000m",
        "+1",
        "0.0001",
        "1000000000",
        "1.x",
        "",
        "1 Gi",
        "-1",
        "1GiB",
        "abc",
        "9223372036854775808",
        "1000Ei",
        "1Pi",
        "1u",
        "1n",
    ];
    for (index, text) in texts.into_iter().enumerate() {
        let object = json!({"metadata": {"name": format!("q{index}")}, "spec": {"containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": "1m", "memory": text}}}]}});
        let answer = s.quietly(&Request::post(s.core("pods?dryRun=All")).json(&object));
        let mut record = answer.record();
        if answer.status == 201 {
            record["body"] = answer.at("/spec/containers/0/resources").clone();
        }
        s.record(format!("memory {text:?}"), object, record);
    }
    for number in ["1", "0.5", "1000", "1.25", "-1", "true", "null", "{}"] {
        let body = format!(
            r#"{{"metadata":{{"name":"c16-number"}},"status":{{"capacity":{{"memory":{number},"x.io/gpu":"4"}}}}}}"#
        );
        let answer = s.quietly(
            &Request::post("/api/v1/nodes?dryRun=All").body("application/json", body.clone()),
        );
        let mut record = answer.record();
        if answer.status == 201 {
            record["body"] = answer.at("/status").clone();
        }
        s.record(format!("capacity {number}"), Value::from(body), record);
    }
}
