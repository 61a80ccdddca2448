//! Pods with claims whose volumes kube-controller-manager binds.

use e2e::eventually;
use serde_json::{Value, json};

use crate::shared_cluster::{SHORT, SharedCluster, node, pod, pod_path, with};

pub(crate) fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

pub(crate) fn volume(name: &str, class: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "storageClassName": class, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

pub(crate) fn user_of(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn nodes(cluster: &SharedCluster) {
    for (name, zone) in [("a0", "a"), ("b0", "b"), ("c0", "c")] {
        cluster.create(&node(name, zone, json!({})));
    }
}

fn claim_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")
}

#[test]
fn a_pod_goes_where_a_volume_matches_its_claim() {
    with(|cluster| {
        nodes(cluster);
        cluster.create(&class("local", "kubernetes.io/no-provisioner"));
        cluster.create(&volume("on-b0", "local", "b0"));
        cluster.create(&claim("data", "local"));
        cluster.create(&claim("more", "local"));
        cluster.create(&pod("first", user_of("data")));
        assert_eq!(cluster.node_of("first"), "b0");
        let data = cluster.api.get(&claim_path("data")).unwrap();
        assert_eq!(
            (&data["spec"]["volumeName"], &data["status"]["phase"]),
            (&json!("on-b0"), &json!("Bound")),
            "a pod is bound after its claim"
        );

        cluster.create(&pod("second", user_of("more")));
        cluster.await_refusal(
            "second",
            "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
        );
        cluster.create(&volume("on-c0", "local", "c0"));
        assert_eq!(cluster.node_of("second"), "c0", "a new volume wakes it up");
    });
}

#[test]
fn a_volume_is_provisioned_where_the_pod_goes() {
    with(|cluster| {
        nodes(cluster);
        cluster.create(&class("made", "example.com/maker"));
        cluster.create(&claim("data", "made"));
        let mut spec = user_of("data");
        spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": "c"});
        cluster.create(&pod("user", spec));
        let selected = eventually("a node was selected for the claim", SHORT, || {
            let claim = cluster.api.get(&claim_path("data")).unwrap();
            let selected = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            selected
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| claim.to_string())
        });
        assert_eq!(selected, "c0");
        assert_eq!(
            cluster.pod("user")["spec"]["nodeName"],
            Value::Null,
            "it waits for its volume"
        );
        let status = &cluster.pod("user")["status"];
        assert_eq!(status["nominatedNodeName"], "c0", "{status}");

        // What the provisioner does: a volume that names the claim.
        let mut made = volume("made", "made", "c0");
        made["spec"]["claimRef"] =
            json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"});
        cluster.create(&made);
        assert_eq!(cluster.node_of("user"), "c0");
    });
}

#[test]
fn a_readwriteoncepod_claim_is_used_by_one_pod_at_a_time() {
    const ONE_POD: &str = "ReadWriteOncePod";
    with(|cluster| {
        nodes(cluster);
        cluster.create(&class("local", "kubernetes.io/no-provisioner"));
        let mut on_b0 = volume("on-b0", "local", "b0");
        on_b0["spec"]["accessModes"] = json!([ONE_POD]);
        cluster.create(&on_b0);
        let mut data = claim("data", "local");
        data["spec"]["accessModes"] = json!([ONE_POD]);
        cluster.create(&data);
        cluster.create(&pod("first", user_of("data")));
        assert_eq!(cluster.node_of("first"), "b0");

        cluster.create(&pod("second", user_of("data")));
        cluster.await_refusal(
            "second",
            "0/3 nodes are available: 3 node(s) unavailable due to PersistentVolumeClaim with \
            ReadWriteOncePod access mode already in-use by another pod.",
        );
        cluster.api.delete_now(&pod_path("first")).unwrap();
        assert_eq!(cluster.node_of("second"), "b0", "the claim is free again");
    });
}

#[test]
fn volume_zones_and_driver_limits_are_respected() {
    with(|cluster| {
        nodes(cluster);
        // One volume of this driver per node.
        for name in ["a0", "b0", "c0"] {
            let uid = cluster.api.get(&format!("/api/v1/nodes/{name}")).unwrap()["metadata"]["uid"]
                .clone();
            let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
            cluster.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name, "ownerReferences": owner},
                "spec": {"drivers": [{"name": "csi.example.com", "nodeID": name, "allocatable": {"count": 1}}]}}));
        }
        for index in 0..3 {
            let name = format!("v{index}");
            cluster.create(&json!({"apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "b"}},
                "spec": {"storageClassName": "", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "csi.example.com", "volumeHandle": name},
                    "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}}}));
            let mut wanted = claim(&name, "");
            wanted["spec"]["volumeName"] = json!(name);
            cluster.create(&wanted);
            eventually("the claim is bound", SHORT, || {
                let claim = cluster.api.get(&claim_path(&name)).unwrap();
                if claim["status"]["phase"] == "Bound" {
                    Ok(())
                } else {
                    Err(claim["status"].to_string())
                }
            });
        }
        cluster.create(&pod("first", user_of("v0")));
        assert_eq!(cluster.node_of("first"), "b0", "the volume's zone");
        cluster.create(&pod("second", user_of("v1")));
        cluster.await_refusal(
            "second",
            "0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) had no available volume zone.",
        );
    });
}
