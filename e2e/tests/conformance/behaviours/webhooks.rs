//! H: admission webhooks.

use std::time::{Duration, Instant};

use e2e::Reply;
use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::session::Session;
use crate::suite::Behaviour;

mod answers;
mod calls;
mod configurations;
mod failures;

pub(super) const ALL: &[Behaviour] = &[
    behaviour(
        "H1",
        "webhooks: invalid configurations",
        configurations::invalid,
    ),
    behaviour("H2", "webhooks: denials", answers::denials),
    behaviour("H3", "webhooks: patches", answers::patches),
    behaviour("H4", "webhooks: no usable answer", failures::answers),
    behaviour("H5", "webhooks: rules", calls::rules),
    behaviour("H6", "webhooks: selectors", calls::selectors),
    behaviour("H7", "webhooks: other versions of a kind", calls::versions),
    behaviour("H8", "webhooks: the request that they get", calls::requests),
    behaviour("H9", "webhooks: dry runs", calls::dry_runs),
    behaviour("H10", "webhooks: order and reinvocation", answers::order),
    behaviour("H11", "webhooks: warnings", answers::warnings),
    behaviour("H12", "webhooks: behind a Service", failures::services),
    behaviour(
        "H13",
        "webhooks: deletions, evictions, bindings, scales",
        calls::other_writes,
    ),
    behaviour(
        "H14",
        "webhooks: validating ones come last",
        answers::validating,
    ),
    behaviour(
        "H15",
        "webhooks: connections that fail",
        failures::connections,
    ),
    behaviour(
        "H16",
        "webhooks: updates of a configuration",
        configurations::updates,
    ),
];

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
/// A real server reads a configuration some time after it is stored.
const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Phase {
    Mutating,
    Validating,
}

impl Phase {
    fn kind(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    fn path(self) -> String {
        format!("{GROUP}/{}s", self.kind().to_lowercase())
    }
}

/// A webhook `NAME.example.io` for pods that are created in this namespace; the path is its name.
pub(super) fn webhook(s: &Session, name: &str, changes: &Value) -> Value {
    let namespace = s.namespace();
    let mut webhook = json!({
        "name": format!("{name}.example.io"),
        "clientConfig": s.webhooks().client_config(&path(s, name)),
        "rules": [rule(&["CREATE"], "", "v1", &["pods"])],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    webhook
}

pub(super) fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources})
}

/// The path of a webhook, which no other behaviour uses.
pub(super) fn path(s: &Session, name: &str) -> String {
    format!("/{}/{name}", s.namespace())
}

/// Creates a configuration and waits until the server calls its webhooks.
pub(super) fn configure(s: &mut Session, kind: Phase, name: &str, webhooks: &[Value]) {
    let probe = format!("probe-{name}");
    s.webhooks().on(&path(s, &probe), Reply::allow);
    let mut webhooks = webhooks.to_vec();
    webhooks.push(webhook(
        s,
        &probe,
        &json!({
            "rules": [rule(&["CREATE"], "", "v1", &["configmaps"])],
            "objectSelector": {"matchLabels": {"probe": name}},
        }),
    ));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.kind(),
        "metadata": {"name": full_name(s, name)}, "webhooks": webhooks,
    });
    s.prepare(&Request::post(kind.path()).json(&configuration));
    wait(s, name, true);
}

pub(super) fn remove(s: &mut Session, kind: Phase, name: &str) {
    let path = format!("{}/{}", kind.path(), full_name(s, name));
    s.prepare(&Request::new("DELETE", path));
    wait(s, name, false);
}

fn full_name(s: &Session, name: &str) -> String {
    format!("{}-{name}", s.namespace())
}

fn wait(s: &Session, name: &str, called: bool) {
    let object = json!({"metadata": {"name": "probe", "labels": {"probe": name}}});
    let request = Request::post(s.core("configmaps?dryRun=All")).json(&object);
    let path = path(s, &format!("probe-{name}"));
    let deadline = Instant::now() + SOON;
    loop {
        let answer = s.server().client.send(&request);
        if s.webhooks().take_asked(&path).is_empty() != called {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the webhooks of {name} are not in the wanted state: {answer:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A real server deletes a pod in up to three steps and asks before each of them.
fn once_per_deletion(asked: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let mut kept: Vec<(String, Value)> = Vec::new();
    for (path, request) in asked {
        let again = |(other, before): &(String, Value)| {
            *other == path && before["operation"] == "DELETE" && before["name"] == request["name"]
        };
        if request["operation"] != "DELETE" || !kept.iter().any(again) {
            kept.push((path, request));
        }
    }
    kept
}

/// Whether a request is about an object of this behaviour: others run at the same time, and make objects without a namespace.
fn is_own(s: &Session, request: &Value) -> bool {
    let starts_with = |part: &str| {
        let text = request[part].as_str().unwrap_or_default();
        text.starts_with(s.namespace())
    };
    starts_with("namespace") || starts_with("name")
}

/// Which webhooks were called since the last time, as `name operation resource`, in order.
pub(super) fn called(s: &mut Session, what: &str) {
    let mut asked = once_per_deletion(s.webhooks().take_asked(&path(s, "")));
    asked.retain(|(_, request)| is_own(s, request));
    let calls: Vec<String> = asked
        .iter()
        .map(|(path, request)| {
            let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str);
            let name = path.rsplit('/').next().unwrap_or_default();
            let operation = text("/operation").unwrap_or_default();
            let resource = text("/resource/resource").unwrap_or_default();
            let sub = text("/subResource").map_or(String::new(), |sub| format!("/{sub}"));
            format!("{name} {operation} {resource}{sub}")
        })
        .collect();
    s.fact(&format!("called for {what}"), calls);
}
