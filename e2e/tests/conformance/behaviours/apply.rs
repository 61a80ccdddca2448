//! S: server-side apply and field ownership.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{config_map, deployment, pod, widget};
use crate::session::{APPLY_PATCH, MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("S1", "apply: create, and apply again", create_and_reapply),
    behaviour("S2", "apply: no field manager", no_field_manager),
    behaviour("S3", "apply: conflicts and force", conflicts_and_force),
    behaviour(
        "S4",
        "apply: the same value by two managers",
        shared_ownership,
    ),
    behaviour(
        "S5",
        "apply: a field that is no longer applied",
        removed_fields,
    ),
];

/// A ConfigMap with its kind, which apply wants, and this data.
fn data(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn create_and_reapply(s: &mut Session) {
    let mut with_more = deployment("d");
    with_more["spec"]["template"]["spec"]["containers"][0] = json!({"name": "c", "image": "i:1",
        "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": {"cpu": "1000m"}, "limits": {"cpu": "2"}}});
    with_more["metadata"]["labels"] = json!({"l": "1"});
    let mut gated = pod("p");
    gated["metadata"]["finalizers"] = json!(["x.io/f"]);
    gated["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    for (path, object) in [
        (s.core("configmaps/a"), config_map("a")),
        (s.group("apps/v1", "deployments/d"), with_more),
        (s.core("pods/p"), gated),
        (s.widgets("/w"), widget("w")),
        (
            "/api/v1/nodes/s1-n".to_owned(),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "s1-n",
            "labels": {"zone": "a"}}, "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}}),
        ),
    ] {
        let created = s.apply(&path, "m1", &object);
        let again = s.apply(&path, "m1", &object);
        s.fact("nothing changed", again.version() == created.version());
        let mut changed = object.clone();
        changed["metadata"]["labels"]["changed"] = json!("yes");
        s.apply(&path, "m1", &changed);
        s.get(&path);
    }
    // YAML, no name in the body, dry run, a given version.
    let yaml = "apiVersion: v1\nkind: ConfigMap\ndata:\n  k: v\n";
    s.send(Request::new("PATCH", s.core("configmaps/y?fieldManager=m1")).body(APPLY_PATCH, yaml));
    s.patch(
        APPLY_PATCH,
        s.core("configmaps/dry?fieldManager=m1&dryRun=All"),
        &config_map("dry"),
    );
    s.get(s.core("configmaps/dry"));
    s.apply(&s.core("configmaps/other"), "m1", &config_map("a"));
    let mut stale = config_map("a");
    stale["metadata"]["resourceVersion"] = json!("1");
    stale["data"]["a"] = json!("new");
    s.apply(&s.core("configmaps/a"), "m1", &stale);
    s.apply(
        "/api/v1/namespaces/s1-nowhere/configmaps/a",
        "m1",
        &config_map("a"),
    );
    s.send(
        Request::new("PATCH", s.core("configmaps/broken?fieldManager=m1"))
            .body(APPLY_PATCH, "a: [1"),
    );
    s.send(Request::new("PATCH", s.core("configmaps/empty?fieldManager=m1")).body(APPLY_PATCH, ""));
}

fn no_field_manager(s: &mut Session) {
    s.patch(APPLY_PATCH, s.core("configmaps/a"), &config_map("a"));
    s.patch(
        APPLY_PATCH,
        s.core("configmaps/a?fieldManager="),
        &config_map("a"),
    );
    s.patch(
        APPLY_PATCH,
        s.core("configmaps/a?force=true"),
        &config_map("a"),
    );
    s.patch(APPLY_PATCH, s.widgets("/a"), &widget("a"));
    s.get(s.core("configmaps/a"));
}

fn conflicts_and_force(s: &mut Session) {
    let path = s.core("configmaps/a");
    s.apply(
        &path,
        "m1",
        &data("a", json!({"a": "1", "b": "1", "c": "1"})),
    );
    s.apply(&path, "m2", &data("a", json!({"a": "2"})));
    s.apply(&path, "m2", &data("a", json!({"a": "2", "b": "2"})));
    // A second owner of `a`, then a third that disagrees with both.
    s.apply(&path, "m3", &data("a", json!({"a": "1", "d": "3"})));
    s.apply(
        &path,
        "m4",
        &data("a", json!({"a": "4", "b": "4", "d": "4"})),
    );
    s.patch(
        APPLY_PATCH,
        format!("{path}?fieldManager=m2&force=true"),
        &data("a", json!({"a": "2", "e": "2"})),
    );
    s.get(&path);
    // The loser may not take it back without force.
    s.apply(
        &path,
        "m1",
        &data("a", json!({"a": "1", "b": "1", "c": "1"})),
    );
    s.patch(
        APPLY_PATCH,
        format!("{path}?fieldManager=m1&force=maybe"),
        &data("a", json!({"a": "1"})),
    );

    let path = s.group("apps/v1", "deployments/d");
    s.apply(&path, "m1", &deployment("d"));
    let mut other = deployment("d");
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("i:2");
    other["spec"]["replicas"] = json!(5);
    s.apply(&path, "m2", &other);
    s.patch(
        APPLY_PATCH,
        format!("{path}?fieldManager=m2&force=true"),
        &other,
    );

    let path = s.widgets("/w");
    s.apply(&path, "m1", &widget("w"));
    let mut other = widget("w");
    other["spec"]["color"] = json!("blue");
    s.apply(&path, "m2", &other);
    s.patch(
        APPLY_PATCH,
        format!("{path}?fieldManager=m2&force=true"),
        &other,
    );
}

fn shared_ownership(s: &mut Session) {
    let path = s.core("configmaps/a");
    s.apply(&path, "m1", &data("a", json!({"a": "1", "b": "1"})));
    s.apply(&path, "m2", &data("a", json!({"a": "1"})));
    s.get(&path);
    // Neither may change it alone.
    s.apply(&path, "m1", &data("a", json!({"a": "9", "b": "1"})));
    // A plain update to an equal value takes nothing, to another value it takes all.
    s.patch(
        MERGE_PATCH,
        format!("{path}?fieldManager=m3"),
        &json!({"data": {"a": "1"}}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{path}?fieldManager=m3"),
        &json!({"data": {"a": "3"}}),
    );

    let path = s.group("apps/v1", "deployments/d");
    s.apply(&path, "m1", &deployment("d"));
    s.apply(&path, "m2", &deployment("d"));
    let path = s.widgets("/w");
    s.apply(&path, "m1", &widget("w"));
    s.apply(&path, "m2", &widget("w"));
}

fn removed_fields(s: &mut Session) {
    let path = s.core("configmaps/a");
    s.apply(
        &path,
        "m1",
        &data("a", json!({"mine": "1", "ours": "1", "theirs": "1"})),
    );
    s.apply(&path, "m2", &data("a", json!({"ours": "1"})));
    s.apply(&path, "m1", &data("a", json!({"theirs": "1"})));
    s.apply(
        &path,
        "m2",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    );
    s.apply(
        &path,
        "m1",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    );
    s.get(&path);

    let path = s.group("apps/v1", "deployments/d");
    let mut two = deployment("d");
    two["spec"]["template"]["spec"]["containers"] = json!([
        {"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "side", "image": "i:2", "ports": [{"containerPort": 80}]},
    ]);
    s.apply(&path, "m1", &two);
    s.apply(&path, "m2", &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "template": {"spec": {"containers": [{"name": "side", "env": [{"name": "X", "value": "x"}]}]}}}}));
    // The sidecar stays because somebody else has a field in it; its other fields go.
    s.apply(&path, "m1", &deployment("d"));
    let mut without_replicas = deployment("d");
    without_replicas["spec"]["replicas"] = json!(null);
    s.apply(&path, "m1", &without_replicas);
    s.get(&path);

    let path = s.widgets("/w");
    s.apply(&path, "m1", &widget("w"));
    s.apply(
        &path,
        "m1",
        &json!({"apiVersion": "conformance.tidepool.io/v1", "kind": "Widget",
        "metadata": {"name": "w", "labels": {"l": "1"}}, "spec": {"replicas": 1}}),
    );
}
