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
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let devices =
        json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d.io"}}]}});
    // No other behaviour has objects of this group.
    let admitted = json!({"apiGroups": ["nowhere.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["ghosts"]});
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
        (
            "endpoints",
            json!({"metadata": name("endpoints"), "subsets": [
            {"addresses": [{"ip": "10.1.2.3"}, {"ip": "10.1.2.4"}], "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}]}),
        ),
        (
            "limitranges",
            json!({"metadata": name("limits"), "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "defaultRequest": {"cpu": "0.1"}}]}}),
        ),
        (
            "podtemplates",
            json!({"metadata": name("template"), "template": template("Always")}),
        ),
        (
            "resourcequotas",
            json!({"metadata": name("quota"), "spec": {"hard": {"pods": "1k", "requests.cpu": "4"}}}),
        ),
        (
            "apps/v1/daemonsets",
            json!({"metadata": name("ds"), "spec": {
            "selector": selector, "template": template("Always")}}),
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            json!({"metadata": name("hpa"), "spec": {"scaleTargetRef": target, "maxReplicas": 3}}),
        ),
        (
            "autoscaling/v1/horizontalpodautoscalers",
            json!({"metadata": name("hpa-v1"), "spec": {"scaleTargetRef": target, "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50}}),
        ),
        (
            "batch/v1/cronjobs",
            json!({"metadata": name("cj"), "spec": {"schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": template("Never")}}}}),
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            json!({"metadata": name("slice"), "addressType": "IPv4", "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.1.2.3"]}]}),
        ),
        (
            "networking.k8s.io/v1/ingresses",
            json!({"metadata": name("ing"), "spec": {"ingressClassName": "x", "tls": [{"hosts": ["a.example.com"]}],
            "rules": [{"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix",
            "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}),
        ),
        (
            "networking.k8s.io/v1/networkpolicies",
            json!({"metadata": name("netpol"), "spec": {"podSelector": {"matchLabels": {"app": "x"}},
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}], "egress": [{}]}}),
        ),
        (
            "rbac.authorization.k8s.io/v1/roles",
            json!({"metadata": name("role"), "rules": rules}),
        ),
        (
            "rbac.authorization.k8s.io/v1/rolebindings",
            json!({"metadata": name("binding"), "roleRef": {"kind": "Role", "name": format!("{prefix}-role")},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}, {"kind": "User", "name": "u"}]}),
        ),
        (
            "resource.k8s.io/v1/resourceclaims",
            json!({"metadata": name("claim"), "spec": devices}),
        ),
        (
            "resource.k8s.io/v1/resourceclaimtemplates",
            json!({"metadata": name("claims"), "spec": {"spec": devices}}),
        ),
        (
            "/apis/resource.k8s.io/v1/deviceclasses",
            json!({"metadata": name("devices"), "spec": {"selectors": [{"cel": {"expression": "device.driver == 'd.io'"}}]}}),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            json!({"metadata": name("slice"), "spec": {"driver": "d.io", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d", "capacity": {"memory": {"value": "1024Mi"}}}]}}),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            json!({"metadata": name("class"), "spec": {"controller": "x.io/c",
            "parameters": {"apiGroup": "x.io", "kind": "P", "name": "n"}}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": format!("{prefix}:role")}, "rules": rules}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": format!("{prefix}:binding")}, "roleRef": {"kind": "ClusterRole", "name": format!("{prefix}:role")},
            "subjects": [{"kind": "Group", "name": "g"}]}),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            json!({"metadata": name("level"), "spec": {"type": "Limited",
            "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 32}}}}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            json!({"metadata": name("webhooks"), "webhooks": [{"name": "a.b.io", "rules": [admitted],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({"metadata": name("webhooks"), "webhooks": [{"name": "a.b.io", "rules": [admitted],
            "clientConfig": {"url": "https://x.example.com/"}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
            json!({"metadata": name("policy"), "spec": {"matchConstraints": {"resourceRules": [admitted]}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: \"add\", path: \"/spec/a\", value: \"b\"}]"}}]}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
            json!({"metadata": name("policy"), "spec": {"policyName": "p.example.com"}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            json!({"metadata": name("policy"), "spec": {"policyName": "p.example.com", "validationActions": ["Warn"],
            "paramRef": {"name": "p", "parameterNotFoundAction": "Deny"}, "matchResources": {"resourceRules": [admitted]}}}),
        ),
    ]
}
