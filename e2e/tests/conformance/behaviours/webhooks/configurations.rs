//! Configurations: which are refused, and what an update of one does.

use e2e::Reply;
use serde_json::{Value, json};

use super::{Phase, configure, path, rule, webhook};
use crate::client::Request;
use crate::objects::pod;
use crate::session::{MERGE_PATCH, Session};

pub(super) fn invalid(s: &mut Session) {
    let url = |url: &str| json!({"clientConfig": {"url": url}});
    let service = |service: Value| json!({"clientConfig": {"service": service}});
    let rules = |change: Value| {
        let mut rule = rule(&["CREATE"], "", "v1", &["pods"]);
        for (key, value) in change.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        json!({"rules": [rule]})
    };
    let changes = [
        json!({}),
        json!({"name": ""}),
        json!({"name": "pods"}),
        json!({"name": "Pods.example.io"}),
        json!({"sideEffects": null}),
        json!({"sideEffects": "Some"}),
        json!({"sideEffects": "NoneOnDryRun"}),
        json!({"admissionReviewVersions": []}),
        json!({"admissionReviewVersions": ["v2"]}),
        json!({"admissionReviewVersions": ["v1", "v1", "V3"]}),
        json!({"timeoutSeconds": 0}),
        json!({"timeoutSeconds": 31}),
        json!({"failurePolicy": "Maybe", "matchPolicy": "Nearly"}),
        json!({"clientConfig": {}}),
        json!({"clientConfig": {"url": "https://a.b", "service": {"name": "a", "namespace": "b"}}}),
        json!({"clientConfig": {"url": "https://127.0.0.1/x", "caBundle": "bm90IGEgY2VydGlmaWNhdGU="}}),
        url("http://a.b/c"),
        url("https:///c"),
        url("a.b/c"),
        url("https://user@a.b/c"),
        url("https://a.b/c?d=e"),
        url("https://a.b/c#d"),
        service(json!({"name": "", "namespace": ""})),
        service(json!({"name": "a", "namespace": "b", "port": 70000})),
        service(json!({"name": "a", "namespace": "b", "path": "c"})),
        service(json!({"name": "a", "namespace": "b", "path": "/c//D/"})),
        service(json!({"name": "a", "namespace": "b", "path": "//"})),
        service(json!({"name": "a", "namespace": "b", "path": "/c/d"})),
        rules(json!({"operations": []})),
        rules(json!({"operations": ["*", "CREATE"]})),
        rules(json!({"operations": ["GET"]})),
        rules(json!({"apiGroups": []})),
        rules(json!({"apiGroups": ["*", "apps"]})),
        rules(json!({"apiVersions": []})),
        rules(json!({"apiVersions": ["*", ""]})),
        rules(json!({"resources": []})),
        rules(json!({"resources": ["", "pods"]})),
        rules(json!({"resources": ["*", "pods", "pods/status"]})),
        rules(json!({"resources": ["*/*", "pods"]})),
        rules(json!({"resources": ["pods/*", "pods/status", "*/scale", "deployments/scale"]})),
        rules(json!({"scope": "World"})),
        json!({"namespaceSelector": {"matchLabels": {"a b": "c"}}}),
        json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
    ];
    for kind in [Phase::Mutating, Phase::Validating] {
        for change in &changes {
            try_to_create(s, kind, &[webhook(s, "h1", change)]);
        }
        let twice = [webhook(s, "h1", &json!({})), webhook(s, "h1", &json!({}))];
        try_to_create(s, kind, &twice);
    }
    let policy = json!({"reinvocationPolicy": "Always"});
    try_to_create(s, Phase::Mutating, &[webhook(s, "h1", &policy)]);
    try_to_create(s, Phase::Validating, &[webhook(s, "h1", &policy)]);
}

fn try_to_create(s: &mut Session, kind: Phase, webhooks: &[Value]) {
    let configuration = json!({"metadata": {"name": "h1"}, "webhooks": webhooks});
    s.post(format!("{}?dryRun=All", kind.path()), &configuration);
}

pub(super) fn updates(s: &mut Session) {
    for name in ["allow", "deny"] {
        let allowed = name == "allow";
        s.webhooks()
            .on(&path(s, name), move |review| match allowed {
                true => Reply::allow(review),
                false => Reply::deny(review, "not this way"),
            });
    }
    configure(
        s,
        Phase::Validating,
        "c",
        &[webhook(s, "allow", &json!({}))],
    );
    s.post(s.core("pods"), &pod("a"));
    let configuration = format!("{}/h16-c", Phase::Validating.path());
    let wrong = json!({"webhooks": [{"name": "x"}]});
    s.patch(MERGE_PATCH, &configuration, &wrong);
    // A webhook whose client would be refused cannot keep its own configuration from being changed.
    let everything = webhook(
        s,
        "deny",
        &json!({"rules": [rule(&["*"], "*", "*", &["*/*"])]}),
    );
    let changed = json!({"webhooks": [everything]});
    s.quietly(&Request::new("PATCH", &configuration).body(MERGE_PATCH, changed.to_string()));
    let denied = |answer: &crate::client::Answer| answer.status == 400;
    let deadline = std::time::Instant::now() + super::SOON;
    while !denied(&s.quietly(&Request::post(s.core("pods?dryRun=All")).json(&pod("b")))) {
        assert!(
            std::time::Instant::now() < deadline,
            "the change had no effect"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    s.post(s.core("pods"), &pod("c"));
    s.post(s.core("configmaps"), &json!({"metadata": {"name": "c"}}));
    s.patch(
        MERGE_PATCH,
        s.core("pods/a/status"),
        &json!({"status": {"message": "x"}}),
    );
    s.delete(s.core("pods/a"));
    s.prepare(&Request::new("DELETE", &configuration));
}
