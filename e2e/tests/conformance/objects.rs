//! Small objects of the kinds that behaviours use.

use serde_json::{Value, json};

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

/// A pod that some node has.
pub(crate) fn bound_pod(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("somewhere");
    pod
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}})
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": name}},
        "template": template(name),
    }})
}

/// A pod template labelled `app: name`.
pub(crate) fn template(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

pub(crate) fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2020-01-02T03:04:05.000006Z"}})
}

pub(crate) fn disruption_budget(name: &str, app: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}})
}

pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "conformance.tidepool.io/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"color": "red", "replicas": 1}})
}

/// The kind of [`widget`], with a status and a scale.
pub(crate) fn widget_definition() -> Value {
    definition(
        "conformance.tidepool.io",
        "widgets",
        "Widget",
        json!({
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {
                    "color": {"type": "string"},
                    "replicas": {"type": "integer"},
                }},
                "status": {"type": "object", "properties": {
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                    "note": {"type": "string"},
                }},
            },
        }),
    )
}

/// A namespaced kind with one version, `v1`, whose status and scale are subresources.
pub(crate) fn definition(group: &str, plural: &str, kind: &str, schema: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    })
}

/// The smallest valid object of every other built-in kind: (path after the namespace or the whole
/// path for cluster-wide kinds, object).
pub(crate) fn every_other_kind(prefix: &str) -> Vec<(&'static str, Value)> {
    let name = |rest: &str| json!({"name": format!("{prefix}-{rest}")});
    let template = |policy: &str| {
        let mut template = template("x");
        template["spec"]["restartPolicy"] = json!(policy);
        template
    };
    let selector = json!({"matchLabels": {"app": "x"}});
    vec![
        (
            "secrets",
            json!({"metadata": name("secret"), "stringData": {"k": "v"}}),
        ),
        ("serviceaccounts", json!({"metadata": name("account")})),
        (
            "services",
            json!({"metadata": name("service"), "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}}),
        ),
        (
            "events",
            json!({"metadata": name("event"), "involvedObject": {"kind": "Pod", "name": "p", "namespace": prefix},
            "reason": "Tested", "message": "a test", "type": "Normal"}),
        ),
        (
            "persistentvolumeclaims",
            json!({"metadata": name("claim"), "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}),
        ),
        (
            "replicationcontrollers",
            json!({"metadata": name("rc"), "spec": {
            "selector": {"app": "x"}, "template": template("Always")}}),
        ),
        (
            "apps/v1/replicasets",
            json!({"metadata": name("rs"), "spec": {
            "selector": selector, "template": template("Always")}}),
        ),
        (
            "apps/v1/statefulsets",
            json!({"metadata": name("sts"), "spec": {
            "serviceName": "x", "selector": selector, "template": template("Always")}}),
        ),
        (
            "apps/v1/deployments",
            json!({"metadata": name("deploy"), "spec": {
            "selector": selector, "template": template("Always")}}),
        ),
        (
            "batch/v1/jobs",
            json!({"metadata": name("job"), "spec": {"template": template("Never")}}),
        ),
        (
            "policy/v1/poddisruptionbudgets",
            json!({"metadata": name("pdb"), "spec": {
            "maxUnavailable": "25%", "selector": selector}}),
        ),
        (
            "coordination.k8s.io/v1/leases",
            json!({"metadata": name("lease"), "spec": {"holderIdentity": "me"}}),
        ),
        (
            "events.k8s.io/v1/events",
            json!({"metadata": name("new-event"), "regarding": {"kind": "Pod", "name": "p", "namespace": prefix},
            "reason": "Tested", "note": "a test", "type": "Normal", "action": "Testing", "eventTime": "2020-01-02T03:04:05.000006Z",
            "reportingController": "tidepool.io/test", "reportingInstance": "one"}),
        ),
        (
            "storage.k8s.io/v1/csistoragecapacities",
            json!({"metadata": name("capacity"),
            "storageClassName": "fast", "capacity": "1024Mi"}),
        ),
        (
            "/api/v1/persistentvolumes",
            json!({"metadata": name("pv"), "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            json!({"metadata": name("class"), "value": 7}),
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses",
            json!({"metadata": name("runtime"), "handler": "runc"}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"metadata": name("sc"), "provisioner": "x.io/p"}),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"metadata": name("csinode"), "spec": {"drivers": [
            {"name": "d.io", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 3}}]}}),
        ),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            json!({"metadata": name("driver.io"), "spec": {}}),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            json!({"metadata": name("attachment"), "spec": {
            "attacher": "d.io", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
        ),
    ]
}
