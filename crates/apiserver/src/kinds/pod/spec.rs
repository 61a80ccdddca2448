//! Defaults of pod specs, in pods and in the templates of workloads.

use serde_json::{Value, json};

use crate::kinds::quantity;
use crate::objects::fields::{JsonObject, at, each, fill, inside, is_empty, items, open, text};

pub(super) const GRACE_SECONDS: i64 = 30;
/// The default mode of files from the API: 0644.
const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;
/// How many seconds a pod stays on a node that is not ready or not reachable.
const EVICTION_SECONDS: i64 = 300;
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The spec of a pod.
pub(super) fn default_pod(spec: &mut JsonObject) {
    fill(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            request_what_is_limited(container);
        }
    }
    request_for_the_pod(spec);
    default_spec(spec);
}

/// The template of a workload.
pub(in crate::kinds) fn default_template(template: &mut JsonObject) {
    fill(template, "metadata", json!({}));
    default_spec(open(template, "spec"));
}

fn default_spec(spec: &mut JsonObject) {
    fill(spec, "restartPolicy", "Always");
    fill(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "securityContext", json!({}));
    fill(spec, "schedulerName", "default-scheduler");
    let account = ["serviceAccountName", "serviceAccount"]
        .into_iter()
        .find_map(|key| spec.get(key).filter(|name| !is_empty(name)).cloned());
    if let Some(account) = account {
        spec.insert("serviceAccountName".to_owned(), account.clone());
        spec.insert("serviceAccount".to_owned(), account);
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in CONTAINER_LISTS {
        for container in each(spec, list) {
            default_container(container, host_network);
        }
    }
    for volume in each(spec, "volumes") {
        default_volume(volume);
    }
}

fn default_container(container: &mut JsonObject, host_network: bool) {
    let image = container.get("image").and_then(Value::as_str);
    let policy = pull_policy(image.unwrap_or_default());
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    for port in each(container, "ports") {
        fill(port, "protocol", "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            fill(port, "hostPort", number);
        }
    }
    for variable in each(container, "env") {
        if let Some(source) = inside(variable, "valueFrom") {
            default_field_ref(source);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = inside(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = inside(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = inside(lifecycle, hook) {
                default_http_get(hook);
            }
        }
    }
}

/// Images with the tag `latest`, or without tag and digest, are always pulled.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let pinned = name.contains('@');
    match name.split('@').next().and_then(|name| name.split_once(':')) {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        None if pinned || name.is_empty() => "IfNotPresent",
        _ => "Always",
    }
}

fn default_probe(probe: &mut JsonObject) {
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe.get(key).is_none_or(|value| value == 0) {
            probe.insert(key.to_owned(), json!(value));
        }
    }
    default_http_get(probe);
    if let Some(grpc) = inside(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut JsonObject) {
    if let Some(get) = inside(handler, "httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
}

fn default_field_ref(source: &mut JsonObject) {
    if let Some(field) = inside(source, "fieldRef") {
        fill(field, "apiVersion", "v1");
    }
}

fn default_volume(volume: &mut JsonObject) {
    let has_source = volume.keys().any(|key| key != "name");
    if !has_source {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = inside(volume, source) {
            fill(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = inside(volume, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(disk) = inside(volume, "iscsi") {
        fill(disk, "iscsiInterface", "default");
    }
    if let Some(image) = inside(volume, "image") {
        let reference = image.get("reference").and_then(Value::as_str);
        let policy = pull_policy(reference.unwrap_or_default());
        fill(image, "pullPolicy", policy);
    }
    if let Some(downward) = inside(volume, "downwardAPI") {
        each(downward, "items").for_each(default_field_ref);
    }
    if let Some(projected) = inside(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = inside(source, "serviceAccountToken") {
                fill(token, "expirationSeconds", TOKEN_SECONDS);
            }
            if let Some(downward) = inside(source, "downwardAPI") {
                each(downward, "items").for_each(default_field_ref);
            }
        }
    }
    if let Some(ephemeral) = inside(volume, "ephemeral")
        && let Some(template) = inside(ephemeral, "volumeClaimTemplate")
    {
        fill(template, "metadata", json!({}));
        let claim = open(template, "spec");
        fill(claim, "volumeMode", "Filesystem");
        fill(claim, "resources", json!({}));
    }
}

/// The request of a pod-level limit without one: what the containers request, else the limit.
fn request_for_the_pod(spec: &mut JsonObject) {
    let limits: Vec<String> = spec
        .get("resources")
        .and_then(|resources| resources.get("limits"))
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|limits| limits.keys().cloned())
        .collect();
    for resource in limits {
        if let Some(sum) = requested_by_containers(spec, &resource)
            && let Some(resources) = inside(spec, "resources")
        {
            fill(open(resources, "requests"), &resource, sum);
        }
    }
    request_what_is_limited(spec);
}

/// What is needed at the same time: containers and sidecars together, or one init container.
fn requested_by_containers(spec: &JsonObject, resource: &str) -> Option<String> {
    let mut running = 0;
    let mut peak = 0;
    let request =
        |container: &Value| quantity::nanos(text(at(container, "resources.requests"), resource));
    let list = |key: &str| {
        spec.get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    for container in list("initContainers") {
        let amount = request(container).unwrap_or_default();
        if text(container, "restartPolicy") == "Always" {
            running += amount;
            peak = peak.max(running);
        } else {
            peak = peak.max(running + amount);
        }
    }
    running += list("containers").filter_map(request).sum::<i128>();
    Some(peak.max(running))
        .filter(|amount| *amount > 0)
        .map(|amount| quantity::text(amount, resource == "cpu"))
}

/// The request of a limit without one is the limit.
fn request_what_is_limited(container: &mut JsonObject) {
    let Some(resources) = inside(container, "resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let requests = open(resources, "requests");
    for (name, amount) in limits {
        fill(requests, &name, amount);
    }
}

/// Every pod tolerates nodes that are not ready or not reachable for a while.
pub(super) fn tolerate_brief_outages(spec: &mut JsonObject) {
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let tolerated = spec.get("tolerations").is_some_and(|tolerations| {
            tolerations
                .as_array()
                .into_iter()
                .flatten()
                .any(|toleration| {
                    ["", key].contains(&text(toleration, "key"))
                        && ["", "NoExecute"].contains(&text(toleration, "effect"))
                })
        });
        if tolerated {
            continue;
        }
        let toleration = json!({
            "key": key, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": EVICTION_SECONDS,
        });
        match spec.get_mut("tolerations") {
            Some(Value::Array(list)) => list.push(toleration),
            _ => {
                spec.insert("tolerations".to_owned(), json!([toleration]));
            }
        }
    }
}

/// A negative grace period means the shortest one.
pub(super) fn end_at_once_at_the_earliest(pod: &mut Value) {
    let spec = pod.as_object_mut().and_then(|pod| inside(pod, "spec"));
    if let Some(spec) = spec
        && let Some(grace) = spec.get_mut("terminationGracePeriodSeconds")
        && grace.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *grace = json!(1);
    }
}

/// Names of the lists of containers, in the order in which they start.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    CONTAINER_LISTS.into_iter().flat_map(|list| {
        items(spec, list)
            .iter()
            .enumerate()
            .map(move |(i, container)| (list, i, container))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_tag_is_always_pulled() {
        for (image, want) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }

    #[test]
    fn limits_become_requests_where_none_is_given() {
        let mut container = json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}});
        request_what_is_limited(container.as_object_mut().unwrap());
        assert_eq!(
            container["resources"]["requests"],
            json!({"cpu": "1", "memory": "1Gi"})
        );
    }

    #[test]
    fn default_tolerations_are_added_once() {
        let own = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"});
        let all = json!({"operator": "Exists"});
        for (case, given, want) in [
            ("none", json!([]), 2),
            ("one of them", json!([own]), 2),
            ("everything", json!([all]), 1),
            ("another", json!([{"key": "x", "effect": "NoExecute"}]), 3),
        ] {
            let mut spec = json!({"tolerations": given});
            for _ in 0..2 {
                tolerate_brief_outages(spec.as_object_mut().unwrap());
            }
            assert_eq!(
                spec["tolerations"].as_array().unwrap().len(),
                want,
                "{case}"
            );
        }
    }

    #[test]
    fn a_template_gets_fewer_defaults_than_a_pod() {
        let spec = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]});
        let mut template = json!({"spec": spec});
        default_template(template.as_object_mut().unwrap());
        assert_eq!(template["metadata"], json!({}));
        let spec = &template["spec"];
        assert_eq!(spec["restartPolicy"], "Always");
        for only_in_pods in ["enableServiceLinks", "tolerations", "serviceAccountName"] {
            assert_eq!(spec.get(only_in_pods), None, "{only_in_pods}");
        }
        assert_eq!(spec["containers"][0]["resources"].get("requests"), None);
    }
}
