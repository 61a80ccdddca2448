//! O: defaulting and validation of pods.

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{deployment, pod, template};
use crate::session::{JSON_PATCH, MERGE_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[
    behaviour("O1", "pods: defaults", pod_defaults),
    behaviour("O2", "pods: the QoS class", qos_class),
    behaviour("O3", "pods: priority classes", priority_classes),
    behaviour("O4", "pods: scheduling gates", scheduling_gates),
    behaviour("O5", "pods: matchLabelKeys", match_label_keys),
];

fn pod_defaults(s: &mut Session) {
    s.make_service_account(s.namespace(), "robot");
    s.post(s.core("pods"), &pod("small"));
    s.post(s.core("pods"), &json!({"metadata": {"name": "large", "labels": {"app": "x"}}, "spec": {
        "hostNetwork": true,
        "initContainers": [{"name": "i", "image": "busybox"}, {"name": "side", "image": "side:latest", "restartPolicy": "Always"}],
        "containers": [
            {"name": "a", "image": "repo/app:v1", "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
             "resources": {"limits": {"cpu": "2000m", "memory": "1024Mi", "x.io/gpu": "1"}, "requests": {"cpu": "0.5"}},
             "readinessProbe": {"httpGet": {"port": 80}}, "livenessProbe": {"tcpSocket": {"port": 80}}, "startupProbe": {"exec": {"command": ["x"]}},
             "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
             "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
             "volumeMounts": [{"name": "s", "mountPath": "/s"}]},
            {"name": "b", "image": "repo/app@sha256:0123456789012345678901234567890123456789012345678901234567890123"},
        ],
        "volumes": [
            {"name": "s", "secret": {"secretName": "x"}}, {"name": "c", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/x"}},
            {"name": "e", "emptyDir": {}}, {"name": "d", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "x"}}]}},
        ],
        "tolerations": [{"key": "t"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}}]}},
    }}));
    s.post(
        s.core("pods"),
        &json!({"metadata": {"name": "pod-level"}, "spec": {
        "resources": {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "1"}},
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}}),
    );
    s.post(s.core("pods"), &json!({"metadata": {"name": "named"}, "spec": {"nodeName": "n", "serviceAccountName": "robot",
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i:latest"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"}}));
    s.post(
        s.core("pods"),
        &json!({"metadata": {"name": "tolerant"}, "spec": {"tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "i"}]}}),
    );
    // The validation that clients notice.
    for spec in [
        json!({}),
        json!({"containers": []}),
        json!({"containers": [{"name": "c"}]}),
        json!({"containers": [{"image": "i"}]}),
        json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}),
        json!({"containers": [{"name": "Bad Name", "image": "i"}]}),
        json!({"restartPolicy": "Sometimes", "containers": [{"name": "c", "image": "i"}]}),
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"x.io/gpu": "1"}}}]}),
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}),
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]}),
        json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "nope", "mountPath": "/x"}]}]}),
        json!({"nodeName": "n", "schedulingGates": [{"name": "x.io/g"}], "containers": [{"name": "c", "image": "i"}]}),
        json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 0}]}]}),
        json!({"nodeSelector": {"bad key!": "x"}, "containers": [{"name": "c", "image": "i"}]}),
        json!({"tolerations": [{"operator": "Equal", "value": "x"}], "containers": [{"name": "c", "image": "i"}]}),
    ] {
        s.post(
            s.core("pods"),
            &json!({"metadata": {"name": "refused"}, "spec": spec}),
        );
    }
}

fn qos_class(s: &mut Session) {
    let container = |resources: Value| json!({"name": "c", "image": "i", "resources": resources});
    let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    for (case, spec) in [
        ("nothing", json!({"containers": [container(json!({}))]})),
        (
            "limits only",
            json!({"containers": [container(full.clone())]}),
        ),
        (
            "equal requests",
            json!({"containers": [container(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}))]}),
        ),
        (
            "lower requests",
            json!({"containers": [container(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Mi"}}))]}),
        ),
        (
            "requests only",
            json!({"containers": [container(json!({"requests": {"cpu": "1", "memory": "1Gi"}}))]}),
        ),
        (
            "cpu limit only",
            json!({"containers": [container(json!({"limits": {"cpu": "1"}}))]}),
        ),
        (
            "zero quantities",
            json!({"containers": [container(json!({"requests": {"cpu": "0", "memory": "0"}}))]}),
        ),
        (
            "zero limits",
            json!({"containers": [container(json!({"limits": {"cpu": "0", "memory": "0"}}))]}),
        ),
        (
            "one container without",
            json!({"containers": [container(full.clone()), {"name": "d", "image": "i"}]}),
        ),
        (
            "two full containers",
            json!({"containers": [container(full.clone()), {"name": "d", "image": "i", "resources": full.clone()}]}),
        ),
        (
            "init container without",
            json!({"initContainers": [{"name": "i", "image": "i"}], "containers": [container(full.clone())]}),
        ),
        (
            "full init container",
            json!({"initContainers": [{"name": "i", "image": "i", "resources": full.clone()}], "containers": [container(full.clone())]}),
        ),
        (
            "only an init container asks",
            json!({"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "containers": [container(json!({}))]}),
        ),
        (
            "extended resources only",
            json!({"containers": [container(json!({"limits": {"x.io/gpu": "1"}}))]}),
        ),
        (
            "storage only",
            json!({"containers": [container(json!({"requests": {"ephemeral-storage": "1Gi"}}))]}),
        ),
        (
            "huge pages only",
            json!({"containers": [container(json!({"limits": {"hugepages-2Mi": "2Mi"}}))]}),
        ),
        (
            "pod level full",
            json!({"resources": full.clone(), "containers": [container(json!({}))]}),
        ),
        (
            "pod level requests",
            json!({"resources": {"requests": {"cpu": "1"}}, "containers": [container(full.clone())]}),
        ),
    ] {
        let object = json!({"metadata": {"name": case.replace(' ', "-")}, "spec": spec});
        let answer = s.quietly(&Request::post(s.core("pods")).json(&object));
        let resources = answer
            .at("/spec/containers")
            .as_array()
            .cloned()
            .unwrap_or_default();
        let resources: Vec<Value> = resources
            .iter()
            .map(|container| container["resources"].clone())
            .collect();
        s.fact(
            case,
            json!([
                answer.status,
                answer.at("/status/qosClass"),
                resources,
                answer.at("/spec/resources"),
                answer.at("/message")
            ]),
        );
    }
}

fn priority_classes(s: &mut Session) {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    s.post(
        classes,
        &json!({"metadata": {"name": "o3-high"}, "value": 1000, "description": "d"}),
    );
    s.post(
        classes,
        &json!({"metadata": {"name": "o3-polite"}, "value": 500, "preemptionPolicy": "Never"}),
    );
    s.post(
        classes,
        &json!({"metadata": {"name": "o3-too-high"}, "value": 1_000_000_001}),
    );
    s.post(
        classes,
        &json!({"metadata": {"name": "system-mine"}, "value": 5}),
    );
    s.post(
        classes,
        &json!({"metadata": {"name": "o3-odd"}, "value": 5, "preemptionPolicy": "Sometimes"}),
    );
    for (name, spec) in [
        ("none", json!({})),
        ("high", json!({"priorityClassName": "o3-high"})),
        ("polite", json!({"priorityClassName": "o3-polite"})),
        (
            "system",
            json!({"priorityClassName": "system-node-critical"}),
        ),
        ("unknown", json!({"priorityClassName": "o3-nope"})),
        (
            "equal",
            json!({"priorityClassName": "o3-high", "priority": 1000}),
        ),
        (
            "wrong",
            json!({"priorityClassName": "o3-high", "priority": 5}),
        ),
        ("number", json!({"priority": 5})),
        ("zero", json!({"priority": 0})),
        (
            "policy",
            json!({"priorityClassName": "o3-high", "preemptionPolicy": "Never"}),
        ),
        (
            "same-policy",
            json!({"priorityClassName": "o3-polite", "preemptionPolicy": "Never"}),
        ),
    ] {
        let mut object = pod(name);
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        s.post(s.core("pods"), &object);
    }
    s.get(format!("{classes}/system-cluster-critical"));
    s.get(format!("{classes}/system-node-critical"));
    s.patch(
        MERGE_PATCH,
        format!("{classes}/o3-high"),
        &json!({"value": 2000}),
    );
    s.patch(
        MERGE_PATCH,
        format!("{classes}/o3-high"),
        &json!({"description": "other"}),
    );
    s.patch(
        MERGE_PATCH,
        s.core("pods/high"),
        &json!({"spec": {"priorityClassName": "o3-polite"}}),
    );
    s.patch(
        MERGE_PATCH,
        s.core("pods/high"),
        &json!({"spec": {"priority": 7}}),
    );
    s.delete(format!("{classes}/o3-polite"));
}

fn scheduling_gates(s: &mut Session) {
    let mut gated = pod("p");
    gated["spec"]["schedulingGates"] = json!([{"name": "x.io/a"}, {"name": "x.io/b"}]);
    s.post(s.core("pods"), &gated);
    let path = s.core("pods/p");
    s.patch(
        JSON_PATCH,
        &path,
        &json!([{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "x.io/c"}}]),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"schedulingGates": [{"name": "x.io/a"}]}}),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"nodeSelector": {"zone": "a"}}}),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"nodeSelector": {"zone": "b"}}}),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"nodeSelector": {"zone": "a", "disk": "ssd"}}}),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"schedulingGates": null}}),
    );
    s.get(&path);
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"schedulingGates": [{"name": "x.io/late"}]}}),
    );
    s.patch(
        MERGE_PATCH,
        &path,
        &json!({"spec": {"nodeSelector": {"zone": "a", "disk": "ssd", "more": "x"}}}),
    );
    s.get(&path);
    for gates in [
        json!([{"name": "x.io/a"}, {"name": "x.io/a"}]),
        json!([{"name": "no slash"}]),
        json!([{"name": ""}]),
    ] {
        let mut odd = pod("odd");
        odd["spec"]["schedulingGates"] = gates;
        s.post(s.core("pods"), &odd);
    }
}

fn match_label_keys(s: &mut Session) {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}, "matchLabelKeys": ["rev"], "mismatchLabelKeys": ["tenant"]});
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}],
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}}, "matchLabelKeys": ["rev", "absent"]}],
    });
    s.post(s.core("pods"), &json!({"metadata": {"name": "labelled", "labels": {"app": "x", "rev": "7", "tenant": "t"}}, "spec": spec}));
    s.post(
        s.core("pods"),
        &json!({"metadata": {"name": "bare"}, "spec": spec}),
    );
    let mut object = deployment("d");
    object["spec"]["template"] = template("d");
    object["spec"]["template"]["metadata"]["labels"]["rev"] = json!("7");
    object["spec"]["template"]["spec"] = spec.clone();
    s.post(s.group("apps/v1", "deployments"), &object);
    let mut without_selector = spec;
    without_selector["topologySpreadConstraints"][0]["labelSelector"] = Value::Null;
    s.post(s.core("pods"), &json!({"metadata": {"name": "selectorless", "labels": {"rev": "7"}}, "spec": without_selector}));
}
