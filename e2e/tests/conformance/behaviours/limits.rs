//! J: LimitRanges.

use e2e::Reply;
use serde_json::{Value, json};

use super::behaviour;
use super::webhooks::{Phase, configure, path, webhook};
use crate::client::Request;
use crate::objects::{deployment, pod};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("J1", "limits: invalid ones, and their defaults", invalid),
    behaviour("J2", "limits: defaults of pods", defaults),
    behaviour("J3", "limits: containers out of bounds", containers),
    behaviour(
        "J4",
        "limits: pods and claims out of bounds",
        pods_and_claims,
    ),
    behaviour("J5", "limits: after a webhook", after_webhooks),
];

fn limit_range(name: &str, limits: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "spec": {"limits": limits}})
}

fn invalid(s: &mut Session) {
    let container = |limits: Value| {
        let mut limits = limits;
        limits["type"] = json!("Container");
        limits
    };
    for limits in [
        vec![json!({"type": "Thing"})],
        vec![json!({"type": "example.io/thing", "max": {"cpu": "1"}})],
        vec![container(json!({})), container(json!({}))],
        vec![container(json!({"min": {"cpu": "2"}, "max": {"cpu": "1"}}))],
        vec![container(
            json!({"min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}),
        )],
        vec![container(
            json!({"max": {"cpu": "2"}, "default": {"cpu": "3"}}),
        )],
        vec![container(
            json!({"max": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}}),
        )],
        vec![container(
            json!({"default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}}),
        )],
        vec![container(
            json!({"min": {"cpu": "2"}, "default": {"cpu": "1"}}),
        )],
        vec![container(json!({"maxLimitRequestRatio": {"cpu": "500m"}}))],
        vec![container(
            json!({"min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}),
        )],
        vec![json!({"type": "Pod", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}})],
        vec![json!({"type": "PersistentVolumeClaim"})],
        vec![json!({"type": "PersistentVolumeClaim", "max": {"storage": "1024Mi"}})],
        vec![container(
            json!({"max": {"cpu": "2"}, "min": {"cpu": "500m", "memory": "1Mi"}}),
        )],
        vec![container(json!({"default": {"memory": "1Gi"}}))],
    ] {
        s.post(s.core("limitranges?dryRun=All"), &limit_range("l", &limits));
    }
}

fn resources(requests: Value, limits: Value) -> Value {
    let mut resources = json!({});
    if !requests.is_null() {
        resources["requests"] = requests;
    }
    if !limits.is_null() {
        resources["limits"] = limits;
    }
    resources
}

fn pod_with(name: &str, resources: &Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources.clone();
    pod
}

/// A real server reads a LimitRange some time after it is stored; `probe` is refused or changed then.
fn create(s: &mut Session, range: &Value, probe: &Value, works: impl Fn(&Value) -> bool) {
    s.prepare(&Request::post(s.core("limitranges")).json(range));
    let request = Request::post(s.core("pods?dryRun=All")).json(probe);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !works(&s.server().client.send(&request).body) {
        assert!(
            std::time::Instant::now() < deadline,
            "the limits have no effect"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn has_note(body: &Value) -> bool {
    body["metadata"]["annotations"]["kubernetes.io/limit-ranger"].is_string()
}

fn is_refused(body: &Value) -> bool {
    body["code"] == 403
}

fn defaults(s: &mut Session) {
    let limits = json!({"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}});
    create(s, &limit_range("l", &[limits]), &pod("probe"), has_note);
    let cpu = |amount: &str| json!({"cpu": amount});
    for (i, resources) in [
        json!({}),
        resources(cpu("1"), json!(null)),
        resources(json!(null), cpu("1")),
        resources(cpu("0"), cpu("0")),
        resources(cpu("3"), json!(null)),
        resources(
            json!({"cpu": "1", "memory": "1Gi"}),
            json!({"cpu": "1", "memory": "1Gi"}),
        ),
        resources(
            json!({"example.io/device": "1"}),
            json!({"example.io/device": "1"}),
        ),
    ]
    .iter()
    .enumerate()
    {
        s.post(s.core("pods"), &pod_with(&format!("p{i}"), resources));
    }
    let mut several = pod("several");
    several["spec"]["containers"] =
        json!([{"name": "a", "image": "i:1"}, {"name": "b", "image": "i:1"}]);
    several["spec"]["initContainers"] = json!([
        {"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1", "restartPolicy": "Always"}]);
    several["metadata"]["annotations"] = json!({"mine": "kept"});
    s.post(s.core("pods"), &several);
    s.post(s.group("apps/v1", "deployments"), &deployment("d"));
    s.patch(
        MERGE_PATCH,
        s.core("pods/p0"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
}

fn containers(s: &mut Session) {
    let limits = json!({"type": "Container", "min": {"memory": "1Mi"}, "defaultRequest": {"memory": "10Mi"}});
    create(s, &limit_range("min", &[limits]), &pod("probe"), has_note);
    let memory = |amount: &str| json!({"memory": amount});
    let cpu = |amount: &str| json!({"cpu": amount});
    for resources in [
        json!({}),
        resources(memory("1Mi"), json!(null)),
        resources(memory("1023Ki"), json!(null)),
        resources(memory("0"), memory("1Mi")),
        resources(json!(null), memory("1k")),
    ] {
        s.post(s.core("pods?dryRun=All"), &pod_with("p", &resources));
    }
    let two = json!({"spec": {"containers": [
        {"name": "a", "image": "i:1", "resources": {"requests": {"memory": "1"}}},
        {"name": "b", "image": "i:1", "resources": {"requests": {"memory": "2"}}},
        {"name": "c", "image": "i:1", "resources": {"requests": {"memory": "2"}}}]}, "metadata": {"name": "p"}});
    s.post(s.core("pods?dryRun=All"), &two);
    let mut generated = pod_with("p", &resources(memory("1k"), json!(null)));
    generated["metadata"] = json!({"generateName": "g-"});
    // The message names the pod by its new name.
    let answer = s.quietly(&Request::post(s.core("pods?dryRun=All")).json(&generated));
    s.fact("status for a generated name", answer.status);
    // An object that is invalid besides is refused for that.
    let mut both = pod_with("p", &resources(memory("1k"), json!(null)));
    both["spec"]["restartPolicy"] = json!("Sometimes");
    s.post(s.core("pods?dryRun=All"), &both);
    s.prepare(&Request::new("DELETE", s.core("limitranges/min")));

    let limits =
        json!({"type": "Container", "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}});
    let probe = pod_with("probe", &resources(json!(null), cpu("9")));
    create(s, &limit_range("max", &[limits]), &probe, |body| {
        is_refused(body)
            && !body["message"]
                .as_str()
                .unwrap_or_default()
                .contains("memory")
    });
    for resources in [
        json!({}),
        resources(cpu("1"), cpu("2")),
        resources(cpu("999m"), cpu("2")),
        resources(cpu("500m"), cpu("1500m")),
        resources(cpu("0"), cpu("1")),
        resources(cpu("1"), cpu("2001m")),
        resources(cpu("3"), json!(null)),
    ] {
        s.post(s.core("pods?dryRun=All"), &pod_with("p", &resources));
    }
}

fn pods_and_claims(s: &mut Session) {
    let limits = json!({"type": "Pod", "max": {"cpu": "2"}});
    create(
        s,
        &limit_range("pods", &[limits]),
        &pod("probe"),
        is_refused,
    );
    let container = |name: &str, amount: &str| json!({"name": name, "image": "i:1", "resources": {"limits": {"cpu": amount}}});
    let object = |containers: Value, first: Value| {
        let mut pod = pod("p");
        pod["spec"]["containers"] = containers;
        if !first.is_null() {
            pod["spec"]["initContainers"] = first;
        }
        pod
    };
    let sidecar = {
        let mut sidecar = container("s", "1500m");
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    for object in [
        pod("p"),
        object(
            json!([container("a", "1"), container("b", "1")]),
            json!(null),
        ),
        object(
            json!([container("a", "1"), container("b", "1001m")]),
            json!(null),
        ),
        object(json!([container("a", "1")]), json!([container("i", "3")])),
        object(json!([container("a", "1")]), json!([sidecar])),
    ] {
        s.post(s.core("pods?dryRun=All"), &object);
    }
    s.prepare(&Request::new("DELETE", s.core("limitranges/pods")));
    let limits = [
        json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}),
        json!({"type": "Container", "default": {"cpu": "1"}}),
    ];
    create(s, &limit_range("claims", &limits), &pod("probe"), has_note);
    for amount in ["512Mi", "1Gi", "2048Mi", "3Gi"] {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": amount}}}});
        s.post(s.core("persistentvolumeclaims?dryRun=All"), &claim);
    }
}

fn after_webhooks(s: &mut Session) {
    let limits = json!({"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "4"}});
    create(s, &limit_range("l", &[limits]), &pod("probe"), has_note);
    let resources = "/spec/containers/0/resources";
    let scripts = [
        (
            "strip",
            json!([{"op": "replace", "path": resources, "value": {}}]),
        ),
        (
            "zero",
            json!([{"op": "replace", "path": resources, "value": {"requests": {"cpu": "0"}, "limits": {"cpu": "0"}}}]),
        ),
        (
            "large",
            json!([{"op": "replace", "path": format!("{resources}/limits"), "value": {"cpu": "8"}}]),
        ),
        (
            "untold",
            json!([{"op": "remove", "path": "/metadata/annotations"}]),
        ),
    ];
    let mut hooks = Vec::new();
    for (name, patch) in scripts {
        s.webhooks()
            .on(&path(s, name), move |review| Reply::patch(review, &patch));
        let selector = json!({"objectSelector": {"matchLabels": {"case": name}}});
        hooks.push(webhook(s, name, &selector));
    }
    configure(s, Phase::Mutating, "m", &hooks);
    for name in ["none", "strip", "zero", "large", "untold"] {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = json!({"case": name});
        s.post(s.core("pods"), &pod);
    }
}
