//! What a server makes of the answers of webhooks.

use e2e::Reply;
use serde_json::{Value, json};

use super::{Phase, called, configure, path, remove, rule, webhook};
use crate::client::Request;
use crate::objects::{config_map, pod, widget};
use crate::session::{MERGE_PATCH, Session};

/// The value of an annotation of the object under review.
fn wish(review: &Value, key: &str) -> Value {
    let annotations = &review["request"]["object"]["metadata"]["annotations"];
    let text = annotations[key].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn with_wish(mut object: Value, key: &str, value: &Value) -> Value {
    object["metadata"]["annotations"][key] = json!(value.to_string());
    object
}

pub(super) fn denials(s: &mut Session) {
    s.webhooks().on(&path(s, "deny"), |review| {
        let status = wish(review, "status");
        let response = match status.is_null() {
            true => json!({"allowed": false}),
            false => json!({"allowed": false, "status": status}),
        };
        Reply::review(review, response)
    });
    for kind in [Phase::Mutating, Phase::Validating] {
        configure(s, kind, "d", &[webhook(s, "deny", &json!({}))]);
        for status in [
            json!(null),
            json!({}),
            json!({"message": "no"}),
            json!({"reason": "Because"}),
            json!({"message": "no", "code": 200, "status": "Success"}),
            json!({"message": "no", "reason": "Forbidden", "code": 403}),
            json!({"message": "a\nb \"c\" ü", "code": 409, "reason": "Conflict"}),
            json!({"message": "later", "code": 429, "details": {"retryAfterSeconds": 3, "name": "x", "kind": "pods",
                "causes": [{"reason": "Full", "message": "no room", "field": "spec"}]}}),
            json!({"message": "broken", "code": 500, "unknown": 1}),
        ] {
            s.post(s.core("pods"), &with_wish(pod("p"), "status", &status));
        }
        remove(s, kind, "d");
    }
    s.post(s.core("pods"), &pod("p"));
}

pub(super) fn patches(s: &mut Session) {
    s.webhooks().on(&path(s, "patch"), |review| {
        Reply::patch(review, &wish(review, "patch"))
    });
    let rules = json!({"rules": [
        rule(&["CREATE", "UPDATE"], "", "v1", &["pods", "configmaps"]),
        rule(&["CREATE"], "conformance.tidepool.io", "v1", &["widgets"]),
    ]});
    configure(s, Phase::Mutating, "p", &[webhook(s, "patch", &rules)]);
    let container = "/spec/containers/0";
    for (i, patch) in [
        json!([]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]),
        // A limit without a request: the server sets defaults once more.
        json!([{"op": "add", "path": format!("{container}/resources/limits"), "value": {"cpu": "1000m", "memory": "1024Mi"}}]),
        json!([{"op": "replace", "path": "/spec/priority", "value": 7}]),
        json!([{"op": "add", "path": "/spec/priorityClassName", "value": "nope"}, {"op": "remove", "path": "/spec/priority"}]),
        json!([{"op": "add", "path": "/spec/unknown", "value": 1}]),
        json!([{"op": "replace", "path": "/spec/restartPolicy", "value": "Sometimes"}]),
        json!([{"op": "remove", "path": "/spec/containers"}]),
        json!([{"op": "replace", "path": "/metadata/name", "value": "another"}]),
        json!([{"op": "add", "path": "/status/phase", "value": "Running"}]),
        json!([{"op": "add", "path": "/spec/nope/x", "value": 1}]),
        json!([{"op": "remove", "path": "/spec/nope"}]),
        json!([{"op": "replace", "path": "/spec/nope/x", "value": 1}]),
        json!([{"op": "test", "path": "/spec/restartPolicy", "value": "Never"}]),
        json!([{"op": "add", "path": "/spec/containers/5", "value": {}}]),
    ]
    .into_iter()
    .enumerate()
    {
        let object = with_wish(pod(&format!("p{i}")), "patch", &patch);
        s.post(s.core("pods"), &object);
    }
    // Values of the wrong type: what Go says about them is its own.
    let wrong = json!([{"op": "replace", "path": "/spec/containers", "value": "none"}]);
    let answer =
        s.quietly(&Request::post(s.core("pods")).json(&with_wish(pod("w"), "patch", &wrong)));
    s.fact("a patch with a wrong type", answer.status);

    let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]);
    s.post(
        s.core("configmaps"),
        &with_wish(config_map("c"), "patch", &label),
    );
    let data = json!([{"op": "add", "path": "/data/webhook", "value": "was here"}, {"op": "remove", "path": "/data/a"}]);
    let change =
        json!({"metadata": {"annotations": {"patch": data.to_string()}}, "data": {"b": "2"}});
    s.patch(MERGE_PATCH, s.core("configmaps/c"), &change);
    let undo = json!([{"op": "remove", "path": "/data/new"}]);
    let change =
        json!({"metadata": {"annotations": {"patch": undo.to_string()}}, "data": {"new": "1"}});
    s.patch(MERGE_PATCH, s.core("configmaps/c"), &change);
    let color = json!([{"op": "replace", "path": "/spec/color", "value": "blue"}]);
    s.post(s.widgets(""), &with_wish(widget("w"), "patch", &color));
    let wrong = json!([{"op": "replace", "path": "/spec/color", "value": 5}]);
    s.post(s.widgets(""), &with_wish(widget("x"), "patch", &wrong));
    let applied = with_wish(config_map("applied"), "patch", &label);
    let path = s.core("configmaps/applied");
    s.apply(&path, "me", &applied);
    s.apply(&path, "me", &applied);
}

/// Notes in an annotation that it was here.
fn mark(review: &Value, name: &str) -> Reply {
    let metadata = &review["request"]["object"]["metadata"];
    let before = metadata["annotations"]["order"]
        .as_str()
        .unwrap_or_default();
    let order = format!("{before}{name}");
    let operation = json!({"op": "add", "path": "/metadata/annotations/order", "value": order});
    Reply::patch(review, &json!([operation]))
}

fn marked_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = json!({"order": ""});
    pod
}

pub(super) fn order(s: &mut Session) {
    for name in ["a", "b", "c"] {
        s.webhooks()
            .on(&path(s, name), move |review| mark(review, name));
    }
    s.webhooks().on(&path(s, "same"), Reply::allow);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let rounds: [(&str, [Value; 4]); 5] = [
        ("never", [json!({}), json!({}), json!({}), json!({})]),
        (
            "the first again",
            [again.clone(), json!({}), json!({}), json!({})],
        ),
        (
            "all again",
            [again.clone(), again.clone(), again.clone(), again.clone()],
        ),
        (
            "the last again",
            [json!({}), json!({}), again.clone(), json!({})],
        ),
        ("without a change", [json!({}), json!({}), json!({}), again]),
    ];
    for (i, (what, changes)) in rounds.iter().enumerate() {
        // Configurations are called in the order of their names, not of their creation.
        let last = [
            webhook(s, "c", &changes[2]),
            webhook(s, "same", &changes[3]),
        ];
        configure(s, Phase::Mutating, "z", &last);
        let first = [webhook(s, "a", &changes[0]), webhook(s, "b", &changes[1])];
        configure(s, Phase::Mutating, "y", &first);
        let name = format!("p{i}");
        s.post(s.core("pods"), &marked_pod(&name));
        called(s, what);
        remove(s, Phase::Mutating, "y");
        remove(s, Phase::Mutating, "z");
    }
}

pub(super) fn warnings(s: &mut Session) {
    s.webhooks().on(&path(s, "warn"), |review| {
        let object = &review["request"]["object"]["metadata"];
        let allowed = object["labels"]["denied"].is_null();
        let texts = json!(["one", "two \"quoted\"", "one"]);
        Reply::review(review, json!({"allowed": allowed, "warnings": texts}))
    });
    s.webhooks().on(&path(s, "late"), |review| {
        Reply::review(review, json!({"allowed": true, "warnings": ["last"]}))
    });
    let rules = json!({"rules": [rule(&["*"], "", "v1", &["pods", "configmaps"])]});
    configure(s, Phase::Mutating, "w", &[webhook(s, "warn", &rules)]);
    configure(s, Phase::Validating, "w", &[webhook(s, "late", &rules)]);
    let mut object = pod("p");
    s.post(s.core("pods"), &object);
    object["metadata"] = json!({"name": "q", "labels": {"denied": "yes"}});
    s.post(s.core("pods"), &object);
    let mut unknown = config_map("c");
    unknown["nope"] = json!(1);
    s.post(s.core("configmaps"), &unknown);
    s.patch(
        MERGE_PATCH,
        s.core("configmaps/c"),
        &json!({"data": {"b": "2"}}),
    );
    s.delete(s.core("configmaps/c"));
}

pub(super) fn validating(s: &mut Session) {
    s.webhooks().on(&path(s, "patch"), |review| {
        Reply::patch(review, &wish(review, "patch"))
    });
    s.webhooks().on(&path(s, "look"), |review| {
        let object = &review["request"]["object"];
        let seen = json!([
            object["metadata"]["uid"].is_string(),
            object["metadata"]["creationTimestamp"].is_string(),
            object["metadata"]["name"].is_string(),
            object["metadata"]["labels"],
            object["spec"]["priority"],
            object["status"]["qosClass"],
        ]);
        Reply::deny(review, &seen.to_string())
    });
    s.webhooks().on(&path(s, "change"), |review| {
        Reply::patch(
            review,
            &json!([{"op": "add", "path": "/metadata/labels", "value": {}}]),
        )
    });
    configure(s, Phase::Mutating, "m", &[webhook(s, "patch", &json!({}))]);
    let look = webhook(s, "look", &json!({}));
    configure(s, Phase::Validating, "v", &[look]);
    let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]);
    s.post(s.core("pods"), &with_wish(pod("p"), "patch", &label));
    let mut generated = with_wish(pod("p"), "patch", &json!([]));
    generated["metadata"]["name"] = json!(null);
    generated["metadata"]["generateName"] = json!("g-");
    s.post(s.core("pods"), &generated);
    // An invalid object is refused before a validating webhook sees it.
    let invalid = json!([{"op": "replace", "path": "/spec/containers/0/name", "value": "A B"}]);
    s.post(s.core("pods"), &with_wish(pod("q"), "patch", &invalid));
    called(s, "valid and invalid pods");
    remove(s, Phase::Validating, "v");
    configure(
        s,
        Phase::Validating,
        "w",
        &[webhook(s, "change", &json!({}))],
    );
    s.post(s.core("pods"), &with_wish(pod("r"), "patch", &json!([])));
}
