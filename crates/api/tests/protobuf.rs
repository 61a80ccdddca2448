//! Field numbers: what our messages write, the embedded server reads by the table that comes from Kubernetes' own types.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

use std::fmt::Debug;

use api::wire::core::{Node, Pod};
use api::wire::envelope;
use apiserver::objects::decode::{self, Expected, FieldValidation};
use apiserver::objects::schema::Schema;
use bytes::Bytes;
use prost::Message;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads JSON, writes protobuf, has it read by the table, and compares.
fn proved<T>(kind: &str, json: Value)
where
    T: Message + Default + DeserializeOwned + PartialEq + Debug,
{
    let object: T = serde_json::from_value(json).unwrap();
    let text = format!("{object:?}");
    for default in ["None", "\"\"", "[]", ": {}", ": 0,", "false"] {
        // Whether an ephemeral volume is there is all that is read of it.
        let text = text
            .replace("Some(Anything)", "")
            .replace("Anything {}", "");
        assert!(
            !text.contains(default),
            "{default} in {text}: give every field a value, or its number is not proved"
        );
    }
    let bytes = envelope::wrap("v1", kind, &object);
    let schema = Schema::builtin("v1", kind).unwrap();
    let expected = Expected {
        api_version: "v1",
        kind,
        schema: &schema,
        custom: false,
    };
    let media_type = Some("application/vnd.kubernetes.protobuf");
    let decoded = decode::body(media_type, &bytes, &expected, FieldValidation::Strict).unwrap();
    let read: T = serde_json::from_value(decoded.object).unwrap();
    assert_eq!(read, object);
    let opened = envelope::open(&Bytes::from(bytes)).unwrap();
    assert_eq!(T::decode(opened).unwrap(), object);
}

fn meta() -> Value {
    json!({
        "name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3,
        "labels": {"a": "b"}, "annotations": {"c": "d"},
        "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "ou", "controller": true}],
    })
}

#[test]
fn nodes() {
    proved::<Node>(
        "Node",
        json!({
            "metadata": meta(),
            "spec": {"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["i:1"], "sizeBytes": 5}],
                "declaredFeatures": ["F"],
            },
        }),
    );
}

#[test]
fn pods() {
    let requirement = json!({"key": "k", "operator": "In", "values": ["v"]});
    let term = json!({"matchExpressions": [requirement], "matchFields": [requirement]});
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [requirement]});
    let pod_term = json!({
        "labelSelector": selector, "namespaces": ["n"], "namespaceSelector": selector, "topologyKey": "t",
    });
    let pod_affinity = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [pod_term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2, "podAffinityTerm": pod_term}],
    });
    let requests = json!({"requests": {"cpu": "1"}});
    let container = json!({
        "name": "c", "image": "i", "resources": requests, "restartPolicy": "Always",
        "ports": [{"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}],
        "restartPolicyRules": [{"action": "Restart"}],
    });
    let status = json!({"name": "c", "resources": requests, "allocatedResources": {"cpu": "1"}});
    let source = json!({
        "persistentVolumeClaim": {"claimName": "c"}, "ephemeral": {}, "csi": {"driver": "d"},
        "image": {"reference": "r"}, "gcePersistentDisk": {"pdName": "p", "readOnly": true},
        "awsElasticBlockStore": {"volumeID": "v"},
        "rbd": {"monitors": ["m"], "pool": "p", "image": "i", "readOnly": true},
        "iscsi": {"iqn": "q", "readOnly": true}, "azureDisk": {"diskURI": "u"},
        "cinder": {"volumeID": "v"}, "portworxVolume": {"volumeID": "w"},
        "azureFile": {"secretName": "s", "shareName": "s"}, "vsphereVolume": {"volumePath": "p"},
    });
    let mut volume = source;
    volume["name"] = json!("v");
    proved::<Pod>(
        "Pod",
        json!({
            "metadata": meta(),
            "spec": {
                "nodeName": "n", "schedulerName": "s", "priority": 1, "priorityClassName": "p",
                "preemptionPolicy": "Never", "containers": [container], "initContainers": [container],
                "resources": requests, "overhead": {"cpu": "1"}, "nodeSelector": {"a": "b"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2, "preference": term}],
                    },
                    "podAffinity": pod_affinity, "podAntiAffinity": pod_affinity,
                },
                "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector, "minDomains": 2, "matchLabelKeys": ["m"],
                    "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore",
                }],
                "schedulingGates": [{"name": "g"}], "volumes": [volume],
                "resourceClaims": [{"name": "r"}], "hostNetwork": true, "hostUsers": true,
            },
            "status": {
                "phase": "Pending", "nominatedNodeName": "n", "qosClass": "Burstable",
                "startTime": "2026-01-02T03:04:05Z",
                "conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }],
                "containerStatuses": [status], "initContainerStatuses": [status],
                "resources": requests, "allocatedResources": {"cpu": "1"},
                "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "x-r"}],
            },
        }),
    );
}
