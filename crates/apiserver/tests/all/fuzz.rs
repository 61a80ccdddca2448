//! Random requests: never a panic, and no 5xx but those the real server gives too.

use std::time::Duration;

use apiserver::{Cluster, Options};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::client::{Client, configmap, pod};

const REQUESTS: usize = 6_000;

/// A small random generator, so that a failing seed fails on every platform.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn bytes(&mut self, at_most: usize) -> Vec<u8> {
        let length = self.roll(at_most + 1);
        (0..length)
            .map(|_| u8::try_from(self.roll(256)).unwrap())
            .collect()
    }
}

const METHODS: &[&str] = &[
    "GET", "GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS",
];
const SEGMENTS: &[&str] = &[
    "api",
    "apis",
    "v1",
    "apps",
    "namespaces",
    "default",
    "pods",
    "configmaps",
    "nodes",
    "a",
    "p",
    "status",
    "scale",
    "binding",
    "eviction",
    "finalize",
    "bindings",
    "leases",
    "events",
    "watch",
    "coordination.k8s.io",
    "events.k8s.io",
    "deployments",
    "customresourcedefinitions",
    "..",
    "%00",
    "%2e%2e",
    "%ff",
    "x%2Fy",
    "\u{2603}",
    "openapi",
    "v3",
    "version",
    "readyz",
    "policy",
];
const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces/default/pods/p/resize",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces",
    "/api/v1/namespaces/fuzz",
    "/api/v1/namespaces/fuzz/finalize",
    "/api/v1/nodes",
    "/api/v1/nodes/n",
    "/api/v1/nodes/n/status",
    "/api/v1/namespaces/default/events",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/api/v1/namespaces/default/secrets/s",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/d",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
    "/api/v1/namespaces/default/services",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/persistentvolumes",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ws.x.io",
    "/apis/x.io/v1/ws",
    "/apis/x.io/v1/ws/w",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
];
const PARAMETERS: &[&str] = &[
    "watch",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "sendInitialEvents",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "pretty",
    "includeObject",
    "gracePeriodSeconds",
    "propagationPolicy",
];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "5",
    "true",
    "false",
    "All",
    "Strict",
    "Exact",
    "NotOlderThan",
    "a=b",
    "a in (b,",
    "metadata.name=a",
    "spec.nodeName!=",
    "m",
    "%00",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "Foo",
    "Table",
    "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0",
    "Orphan",
    "%F0%9F%98%80",
];
const CONTENT_TYPES: &[&str] = &[
    "application/json",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "text/plain",
    "",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "*/*",
    "",
    "application/yaml",
    "application/foo",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

fn path(dice: &mut Dice) -> String {
    let mut path = if dice.roll(5) > 0 {
        dice.pick(PATHS).to_owned()
    } else {
        let segments = 1 + dice.roll(8);
        (0..segments)
            .map(|_| format!("/{}", dice.pick(SEGMENTS)))
            .collect()
    };
    for at in 0..dice.roll(4) {
        let (name, value) = (dice.pick(PARAMETERS), dice.pick(VALUES));
        let value = value.replace(' ', "+");
        path.push_str(&format!(
            "{}{name}={value}",
            if at == 0 { '?' } else { '&' }
        ));
    }
    path
}

/// JSON that looks like an object of the API, with everything in the wrong place.
fn value(dice: &mut Dice, depth: usize) -> Value {
    const KEYS: &[&str] = &[
        "metadata",
        "spec",
        "status",
        "kind",
        "apiVersion",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "containers",
        "image",
        "resources",
        "requests",
        "cpu",
        "target",
        "template",
        "selector",
        "matchLabels",
        "replicas",
        "conditions",
        "type",
        "op",
        "path",
        "value",
        "$patch",
        "ports",
        "tolerations",
        "managedFields",
        "ownerReferences",
        "generateName",
        "generation",
        "resourceVersion",
        "uid",
        "versions",
        "schema",
        "data",
        "openAPIV3Schema",
        "properties",
        "",
        "a/b",
        "creationTimestamp",
        "deletionTimestamp",
    ];
    const TEXTS: &[&str] = &[
        "",
        "a",
        "p",
        "Pod",
        "v1",
        "ConfigMap",
        "100m",
        "1Gi",
        "add",
        "remove",
        "test",
        "/metadata/labels",
        "/",
        "delete",
        "replace",
        "2026-01-01T00:00:00Z",
        "default",
        "-",
        "\u{0}",
        "99999999999999999999",
        "Node",
    ];
    match dice.roll(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => json!(dice.roll(2) == 0),
        2 => json!(dice.roll(2000) as i64 - 1000),
        3 => match dice.roll(4) {
            0 => json!(1.5e300),
            1 => json!(u64::MAX),
            2 => json!(i64::MAX),
            _ => json!(i64::MIN),
        },
        4 => json!(dice.pick(TEXTS)),
        5 => (0..dice.roll(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => {
            let mut object = json!({});
            for _ in 0..dice.roll(6) {
                let key = dice.pick(KEYS);
                object[key] = value(dice, depth - 1);
            }
            object
        }
    }
}

fn good(dice: &mut Dice) -> Value {
    let definition = json!({
        "metadata": {"name": "ws.x.io"},
        "spec": {
            "group": "x.io", "scope": "Cluster", "names": {"plural": "ws", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    match dice.roll(9) {
        0 => configmap("a"),
        1 => pod("p"),
        2 => json!({"metadata": {"name": "n"}}),
        3 => json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        4 => json!({"metadata": {"name": "fuzz"}}),
        5 => definition,
        6 => {
            json!({"apiVersion": "x.io/v1", "kind": "W", "metadata": {"name": "w"}, "a": {"b": [1]}})
        }
        7 => json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        _ => json!({
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        }),
    }
}

/// A good object with one part replaced by something else.
fn spoiled(dice: &mut Dice) -> Value {
    let mut object = good(dice);
    let mut place = &mut object;
    for _ in 0..dice.roll(5) {
        let inside = match &*place {
            Value::Object(fields) => fields.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if inside == 0 {
            break;
        }
        let at = dice.roll(inside);
        place = match place {
            Value::Object(fields) => fields.values_mut().nth(at).unwrap(),
            other => &mut other[at],
        };
    }
    *place = value(dice, 3);
    object
}

fn body(dice: &mut Dice) -> Vec<u8> {
    match dice.roll(10) {
        0 => Vec::new(),
        1 => dice.bytes(64),
        2 => [b"k8s\0".as_slice(), &dice.bytes(64)].concat(),
        3 => {
            let mut text = good(dice).to_string().into_bytes();
            text.truncate(dice.roll(text.len() + 1));
            text
        }
        4 => b"[".repeat(dice.roll(5000)),
        5 => value(dice, 4).to_string().into_bytes(),
        6 | 7 => good(dice).to_string().into_bytes(),
        _ => spoiled(dice).to_string().into_bytes(),
    }
}

/// Errors that the real server too returns as 500 or 504; the response may be JSON or YAML.
fn is_expected(answer: &str) -> bool {
    const EXPECTED: &[&str] = &[
        "resourceVersion should not be set on objects to be created",
        "strconv.ParseUint",
        "resourceVersion: Invalid value",
        "target.",
        "[target.",
        "unknown patch type",
        "does not contain declared merge key",
        "The order in patch list",
        "doesn't match $setElementOrder",
        "failed to create typed patch object",
        "failed to create manager for existing fields",
        "more than one PodDisruptionBudget",
        "Too large resource version",
        "etcdserver: request is too large",
    ];
    EXPECTED.iter().any(|text| answer.contains(text))
}

#[tokio::test]
async fn random_requests_never_break_the_server() {
    let cluster = Cluster::new(Options::default());
    let client = Client::of(&cluster);
    for seed in 1..=3 {
        let mut dice = Dice(seed);
        for at in 0..REQUESTS / 3 {
            let (method, path, body) = (dice.pick(METHODS), path(&mut dice), body(&mut dice));
            if path.contains("resourceVersion=9") {
                // It waits three seconds for the future.
                continue;
            }
            let mut request = Request::builder().method(method);
            for (name, list) in [("content-type", CONTENT_TYPES), ("accept", ACCEPTS)] {
                match dice.pick(list) {
                    "" => {}
                    text => request = request.header(name, text),
                }
            }
            // Some random paths are no URIs at all: no HTTP library would deliver them.
            let Ok(request) = request
                .uri(&path)
                .body(Full::new(Bytes::from(body.clone())))
            else {
                continue;
            };
            let response = cluster.service().oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            let mut answer = Vec::new();
            let mut frames = response.into_body();
            // A watch does not end: what comes at once is enough.
            while let Ok(Some(frame)) =
                tokio::time::timeout(Duration::from_millis(20), frames.frame()).await
            {
                answer.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
                if answer.len() > 1 << 20 {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&answer);
            assert!(
                code < 500 || is_expected(&text),
                "seed {seed}, request {at}: {method} {path} {:?}: {code} {text}",
                String::from_utf8_lossy(&body),
            );
            assert!(
                code < 400 || !text.is_empty(),
                "an error says what is wrong: {method} {path}"
            );
        }
        client.get("/api/v1/namespaces/default").await.expect(200);
    }
}
