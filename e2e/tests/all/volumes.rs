//! Pods with claims, whose volumes are bound by kube-controller-manager's binder.

use e2e::eventually;
use serde_json::{Value, json};

use crate::world::{SHORT, World, node, pod, pod_path, with};

fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
}

fn volume(name: &str, class: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "storageClassName": class, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
}

fn claim(name: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

fn user_of(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn nodes(world: &World) {
    for (name, zone) in [("a0", "a"), ("b0", "b"), ("c0", "c")] {
        world.create(&node(name, zone, json!({})));
    }
}

fn claim_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}")
}

#[test]
fn a_pod_follows_the_volume_that_its_claim_can_have() {
    with(|world| {
        nodes(world);
        world.create(&class("local", "kubernetes.io/no-provisioner"));
        world.create(&volume("on-b0", "local", "b0"));
        world.create(&claim("data", "local"));
        world.create(&claim("more", "local"));
        world.create(&pod("first", user_of("data")));
        assert_eq!(world.node_of("first"), "b0");
        let data = world.api.get(&claim_path("data")).unwrap();
        assert_eq!(
            (&data["spec"]["volumeName"], &data["status"]["phase"]),
            (&json!("on-b0"), &json!("Bound")),
            "a pod is bound after its claim"
        );

        world.create(&pod("second", user_of("more")));
        world.await_refusal(
            "second",
            "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
        );
        world.create(&volume("on-c0", "local", "c0"));
        assert_eq!(world.node_of("second"), "c0", "a new volume wakes it up");
    });
}

#[test]
fn a_volume_is_made_where_the_pod_goes() {
    with(|world| {
        nodes(world);
        world.create(&class("made", "example.com/maker"));
        world.create(&claim("data", "made"));
        let mut spec = user_of("data");
        spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": "c"});
        world.create(&pod("user", spec));
        let selected = eventually("a node was selected for the claim", SHORT, || {
            let claim = world.api.get(&claim_path("data")).unwrap();
            let selected = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
            selected
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| claim.to_string())
        });
        assert_eq!(selected, "c0");
        assert_eq!(
            world.pod("user")["spec"]["nodeName"],
            Value::Null,
            "it waits for its volume"
        );
        let status = &world.pod("user")["status"];
        assert_eq!(status["nominatedNodeName"], "c0", "{status}");

        // What the provisioner does: a volume that names the claim.
        let mut made = volume("made", "made", "c0");
        made["spec"]["claimRef"] =
            json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"});
        world.create(&made);
        assert_eq!(world.node_of("user"), "c0");
    });
}

#[test]
fn a_claim_for_one_pod_is_had_by_one_pod_at_a_time() {
    const ONE_POD: &str = "ReadWriteOncePod";
    with(|world| {
        nodes(world);
        world.create(&class("local", "kubernetes.io/no-provisioner"));
        let mut on_b0 = volume("on-b0", "local", "b0");
        on_b0["spec"]["accessModes"] = json!([ONE_POD]);
        world.create(&on_b0);
        let mut data = claim("data", "local");
        data["spec"]["accessModes"] = json!([ONE_POD]);
        world.create(&data);
        world.create(&pod("first", user_of("data")));
        assert_eq!(world.node_of("first"), "b0");

        world.create(&pod("second", user_of("data")));
        world.await_refusal(
            "second",
            "0/3 nodes are available: 3 node(s) unavailable due to PersistentVolumeClaim with \
            ReadWriteOncePod access mode already in-use by another pod.",
        );
        world.api.delete_now(&pod_path("first")).unwrap();
        assert_eq!(world.node_of("second"), "b0", "the claim is free again");
    });
}

#[test]
fn volumes_keep_to_their_zone_and_drivers_to_their_limit() {
    with(|world| {
        nodes(world);
        // One volume of this driver per node.
        for name in ["a0", "b0", "c0"] {
            let uid =
                world.api.get(&format!("/api/v1/nodes/{name}")).unwrap()["metadata"]["uid"].clone();
            let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
            world.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name, "ownerReferences": owner},
                "spec": {"drivers": [{"name": "csi.example.com", "nodeID": name, "allocatable": {"count": 1}}]}}));
        }
        for index in 0..3 {
            let name = format!("v{index}");
            world.create(&json!({"apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "b"}},
                "spec": {"storageClassName": "", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "csi": {"driver": "csi.example.com", "volumeHandle": name},
                    "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}}}));
            let mut wanted = claim(&name, "");
            wanted["spec"]["volumeName"] = json!(name);
            world.create(&wanted);
            eventually("the claim is bound", SHORT, || {
                let claim = world.api.get(&claim_path(&name)).unwrap();
                if claim["status"]["phase"] == "Bound" {
                    Ok(())
                } else {
                    Err(claim["status"].to_string())
                }
            });
        }
        world.create(&pod("first", user_of("v0")));
        assert_eq!(world.node_of("first"), "b0", "the volume's zone");
        world.create(&pod("second", user_of("v1")));
        world.await_refusal(
            "second",
            "0/3 nodes are available: 1 node(s) exceed max volume count, 2 node(s) had no available volume zone.",
        );
    });
}
