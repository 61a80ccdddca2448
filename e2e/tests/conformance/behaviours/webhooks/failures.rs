//! Webhooks that do not answer, or answer nonsense.

use std::time::Duration;

use e2e::{Reply, WebhookAuthority};
use serde_json::{Value, json};

use super::{Phase, configure, path, webhook};
use crate::client::Request;
use crate::objects::pod;
use crate::session::Session;

/// A webhook of its own for each case: a pod chooses it by a label.
struct Cases(Vec<(Phase, String, Value)>);

impl Cases {
    fn add(&mut self, s: &Session, kind: Phase, policy: &str, name: &str, changes: &Value) {
        let case = format!("{name}-{}", policy.to_lowercase());
        let mut hook = webhook(s, name, changes);
        hook["name"] = json!(format!("{case}.example.io"));
        hook["failurePolicy"] = json!(policy);
        hook["objectSelector"] = json!({"matchLabels": {"case": case}});
        self.0.push((kind, case, hook));
    }

    fn run(&self, s: &mut Session) {
        for kind in [Phase::Mutating, Phase::Validating] {
            let of_kind = |(other, ..): &&(Phase, String, Value)| *other == kind;
            let cases: Vec<_> = self.0.iter().filter(of_kind).cloned().collect();
            if cases.is_empty() {
                continue;
            }
            let hooks: Vec<Value> = cases.iter().map(|(_, _, hook)| hook.clone()).collect();
            configure(s, kind, "f", &hooks);
            for (_, case, _) in cases {
                let mut pod = pod(&case);
                pod["metadata"]["labels"] = json!({"case": case});
                s.post(s.core("pods?dryRun=All"), &pod);
            }
            super::remove(s, kind, "f");
        }
    }
}

pub(super) fn answers(s: &mut Session) {
    const JSON: &str = "application/json";
    type Script = fn(&Value) -> Reply;
    let scripts: [(&str, Script); 18] = [
        ("error", |_| {
            Reply::raw(500, "text/plain", "out of \"order\"\n")
        }),
        ("unavailable", |_| Reply::raw(503, "text/plain", "later")),
        ("missing", |_| Reply::raw(404, "text/plain", "nothing here")),
        ("forbidden", |_| Reply::raw(403, "text/plain", "go away")),
        ("teapot", |_| {
            Reply::raw(418, "text/plain", "short and stout")
        }),
        ("status", |_| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "in a status", "code": 500});
            Reply::raw(500, JSON, status.to_string())
        }),
        ("empty", |_| Reply::raw(200, JSON, "")),
        ("broken", |_| Reply::raw(200, JSON, "{\"kind\":")),
        ("kindless", |_| Reply::raw(200, JSON, "{}")),
        ("pod", |_| {
            Reply::raw(200, JSON, r#"{"kind":"Pod","apiVersion":"v1"}"#)
        }),
        ("absent", |review| {
            let review = json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"]});
            Reply::raw(200, JSON, review.to_string())
        }),
        ("older", |review| {
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": response});
            Reply::raw(200, JSON, review.to_string())
        }),
        ("uid", |review| {
            Reply::review(review, json!({"uid": "x", "allowed": true}))
        }),
        ("untyped", |review| {
            Reply::review(review, json!({"allowed": true, "patch": "W10="}))
        }),
        ("unpatched", |review| {
            Reply::review(review, json!({"allowed": true, "patchType": "JSONPatch"}))
        }),
        ("merge", |review| {
            Reply::review(
                review,
                json!({"allowed": true, "patch": "e30=", "patchType": "MergePatch"}),
            )
        }),
        ("odd-type", |review| {
            let patch = "W3sib3AiOiJ0ZXN0IiwicGF0aCI6Ii9raW5kIiwidmFsdWUiOiJQb2QifV0=";
            Reply::review(
                review,
                json!({"allowed": true, "patch": patch, "patchType": "MergePatch"}),
            )
        }),
        ("untyped-review", |review| {
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            Reply::raw(200, JSON, json!({"response": response}).to_string())
        }),
    ];
    let mut cases = Cases(Vec::new());
    for (name, script) in scripts {
        s.webhooks().on(&path(s, name), script);
        cases.add(s, Phase::Mutating, "Fail", name, &json!({}));
        cases.add(s, Phase::Mutating, "Ignore", name, &json!({}));
        cases.add(s, Phase::Validating, "Fail", name, &json!({}));
    }
    cases.run(s);
}

pub(super) fn connections(s: &mut Session) {
    let (slow, second) = (Duration::from_secs(3), json!({"timeoutSeconds": 1}));
    s.webhooks().on(&path(s, "slow"), move |review| {
        Reply::allow(review).after(slow)
    });
    s.webhooks().on(&path(s, "hang-up"), |_| Reply::hang_up());
    s.webhooks().on(&path(s, "good"), Reply::allow);
    let good = s.webhooks().client_config(&path(s, "good"));
    let bundle = good["caBundle"].clone();
    let other = WebhookAuthority::new("other", &["127.0.0.1"]).expect("an authority");
    let by_name = format!("https://localhost:{}/x", s.webhooks().port());
    let mut cases = Cases(Vec::new());
    for policy in ["Fail", "Ignore"] {
        for (name, changes) in [
            ("slow", second.clone()),
            ("hang-up", json!({})),
            (
                "refused",
                json!({"clientConfig": {"url": "https://127.0.0.1:1/x", "caBundle": bundle}}),
            ),
            (
                "no-path",
                json!({"clientConfig": {"url": "https://127.0.0.1:1", "caBundle": bundle}}),
            ),
            (
                "other-authority",
                json!({"clientConfig": {"url": good["url"], "caBundle": other.bundle()}}),
            ),
            (
                "no-authority",
                json!({"clientConfig": {"url": good["url"]}}),
            ),
            (
                "no-certificate",
                json!({"clientConfig": {"url": good["url"], "caBundle": "bm90IGEgY2VydGlmaWNhdGU="}}),
            ),
            (
                "other-name",
                json!({"clientConfig": {"url": by_name, "caBundle": bundle}}),
            ),
        ] {
            cases.add(s, Phase::Mutating, policy, name, &changes);
        }
    }
    cases.add(s, Phase::Validating, "Fail", "slow", &second);
    cases.add(s, Phase::Validating, "Ignore", "slow", &second);
    cases.run(s);
}

pub(super) fn services(s: &mut Session) {
    s.webhooks()
        .on(&path(s, "deny"), |review| Reply::deny(review, "found you"));
    let bundle = s.webhooks().client_config("/")["caBundle"].clone();
    let port = s.webhooks().port();
    let namespace = s.namespace().to_owned();
    let services = s.core("services");
    // The certificate is for this name, and the way leads to loopback.
    let external = json!({"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    s.prepare(&Request::post(&services).json(&external));
    let headless = json!({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 443}]}});
    s.prepare(&Request::post(&services).json(&headless));
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"ports": [{"port": 8443}]}});
    s.prepare(&Request::post(&services).json(&plain));
    let service = |name: &str, port: u16, path: Option<&str>| json!({"clientConfig": {"caBundle": bundle, "service": {"name": name, "namespace": namespace, "port": port, "path": path}}});
    let deny = path(s, "deny");
    let mut cases = Cases(Vec::new());
    cases.add(
        s,
        Phase::Mutating,
        "Ignore",
        "gone",
        &service("gone", 443, None),
    );
    cases.add(
        s,
        Phase::Mutating,
        "Fail",
        "gone",
        &service("gone", 443, Some("/a/b")),
    );
    cases.add(
        s,
        Phase::Mutating,
        "Fail",
        "headless",
        &service("headless", 443, None),
    );
    cases.add(
        s,
        Phase::Mutating,
        "Fail",
        "no-port",
        &service("plain", 443, None),
    );
    let external = service("hook", port, Some(&deny));
    cases.add(s, Phase::Mutating, "Fail", "external", &external);
    cases.add(s, Phase::Validating, "Fail", "external", &external);
    cases.run(s);
}
