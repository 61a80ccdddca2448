//! Deployments that use the feature of each plugin: kube-controller-manager creates the pods, our scheduler places them.

use std::collections::BTreeMap;

use e2e::eventually;
use serde_json::{Value, json};

use crate::shared_cluster::{
    OURS, SHORT, SharedCluster, asks, condition, merge, node, pod, text, with,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

struct Case {
    name: &'static str,
    replicas: usize,
    spec: Value,
    expect: Expect,
}

/// Where the pods go.
enum Expect {
    /// One of these nodes each.
    On(&'static [&'static str]),
    /// One of these each, and no two on one.
    Apart(&'static [&'static str]),
    /// So many in each zone, the fullest first.
    Zones(&'static [usize]),
    /// So many are scheduled; the others get this message.
    Some(usize, &'static str),
}

#[test]
fn every_plugin_takes_effect() {
    with(|cluster| {
        for object in cluster_objects() {
            cluster.create(&object);
        }
        for case in cases() {
            check(cluster, &case);
        }
    });
}

#[test]
fn a_gated_pod_waits_until_its_gate_is_removed() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        let gates = json!({"schedulingGates": [{"name": "example.com/hold"}]});
        let uid = text(&cluster.create(&pod("gated", gates))["metadata"]["uid"]);
        // A pod that comes later goes first, so the gated one had its chance.
        cluster.create(&pod("free", json!({})));
        assert_eq!(cluster.node_of("free"), "n");
        let held = cluster.pod("gated");
        assert_eq!(held["spec"]["nodeName"], Value::Null);
        assert_eq!(
            condition(&held, "PodScheduled")["reason"],
            "SchedulingGated"
        );
        assert_eq!(cluster.events(&uid), [] as [Value; 0]);
        let lift = json!({"spec": {"schedulingGates": null}});
        let path = "/api/v1/namespaces/default/pods/gated";
        cluster.api.patch(path, &lift).unwrap();
        assert_eq!(cluster.node_of("gated"), "n");
    });
}

#[test]
fn a_pod_waits_for_a_node_that_declares_its_features() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}});
        let spec = json!({"containers": [{"name": "c", "image": "i", "restartPolicy": "Never",
            "restartPolicyRules": [rule]}]});
        cluster.create(&pod("needs", spec));
        cluster.await_refusal(
            "needs",
            "0/1 nodes are available: 1 node(s) didn't match Pod's required features.",
        );
        // Nothing is missing for the others.
        cluster.create(&pod("modest", json!({})));
        assert_eq!(cluster.node_of("modest"), "n");

        // What its kubelet does after an upgrade.
        let declares =
            json!({"status": {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}});
        let made = cluster
            .api
            .patch("/api/v1/nodes/n/status", &declares)
            .unwrap();
        assert_eq!(
            made["status"]["declaredFeatures"], declares["status"]["declaredFeatures"],
            "the API server keeps it"
        );
        assert_eq!(cluster.node_of("needs"), "n");
    });
}

fn cluster_objects() -> Vec<Value> {
    let taint =
        json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}});
    let off = json!({"spec": {"unschedulable": true}});
    let ssd = || json!({"metadata": {"labels": {"disk": "ssd"}}});
    let gpu = json!({"status": {"capacity": {"example.com/gpu": "2"}}});
    let image = json!({"status": {"images": [{"names": ["big:1"], "sizeBytes": 1_000_000_000}]}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    vec![
        node("a0", "a", ssd()),
        node("a1", "a", image),
        node("b0", "b", ssd()),
        node("b1", "b", gpu),
        node("c0", "c", json!({})),
        node("db", "a", taint),
        node("off", "b", off),
        service,
    ]
}

fn cases() -> Vec<Case> {
    const OPEN: &[&str] = &["a0", "a1", "b0", "b1", "c0"];
    let case = |name, replicas, spec, expect| Case {
        name,
        replicas,
        spec,
        expect,
    };
    let cpu = |amount: &str| json!({"containers": asks("cpu", amount)});
    let on = |key: &str, value: &str| json!({"nodeSelector": {key: value}});
    let affinity = |affinity: Value| json!({"affinity": affinity});
    let pods = |app: &str, key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    let spread = |app: &str, key: &str, when: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": app}}}]})
    };
    let port =
        json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
    let zone_b = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]}}});
    let ssd = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}});
    let mut tolerant = on(HOSTNAME, "db");
    merge(
        &mut tolerant,
        json!({"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "db"}]}),
    );
    let not_selected = "0/7 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, \
        5 node(s) didn't match Pod's node affinity/selector.";
    vec![
        case("room", 5, cpu("5"), Expect::Apart(OPEN)),
        case(
            "no-room",
            6,
            cpu("5"),
            Expect::Some(5, "5 Insufficient cpu"),
        ),
        case("spare", 5, cpu("1"), Expect::Apart(OPEN)),
        case("selector", 2, on("disk", "ssd"), Expect::On(&["a0", "b0"])),
        case(
            "untolerated",
            1,
            on(HOSTNAME, "db"),
            Expect::Some(0, not_selected),
        ),
        case("tolerated", 2, tolerant, Expect::On(&["db"])),
        case(
            "unschedulable",
            1,
            on(HOSTNAME, "off"),
            Expect::Some(0, "1 node(s) were unschedulable"),
        ),
        case("required", 3, affinity(zone_b), Expect::On(&["b0", "b1"])),
        case("preferred", 3, affinity(ssd), Expect::On(&["a0", "b0"])),
        case(
            "together",
            4,
            affinity(
                json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [pods("together", ZONE)]}}),
            ),
            Expect::Zones(&[4]),
        ),
        case(
            "apart",
            6,
            affinity(
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [pods("apart", HOSTNAME)]}}),
            ),
            Expect::Some(5, "5 node(s) didn't match pod anti-affinity rules"),
        ),
        case(
            "rather-apart",
            5,
            affinity(
                json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": pods("rather-apart", HOSTNAME)}]}}),
            ),
            Expect::Apart(OPEN),
        ),
        case(
            "even",
            5,
            spread("even", ZONE, "DoNotSchedule"),
            Expect::Zones(&[2, 2, 1]),
        ),
        case(
            "rather-even",
            5,
            spread("rather-even", HOSTNAME, "ScheduleAnyway"),
            Expect::Apart(OPEN),
        ),
        case("web", 3, json!({}), Expect::Zones(&[1, 1, 1])),
        case(
            "ports",
            6,
            json!({"containers": port}),
            Expect::Some(
                5,
                "5 node(s) didn't have free ports for the requested pod ports",
            ),
        ),
        case(
            "gpus",
            3,
            json!({"containers": asks("example.com/gpu", "1")}),
            Expect::Some(2, "5 Insufficient example.com/gpu"),
        ),
        case(
            "image",
            1,
            json!({"containers": [{"name": "c", "image": "big:1"}]}),
            Expect::On(&["a1"]),
        ),
    ]
}

fn check(cluster: &SharedCluster, case: &Case) {
    let Case { name, replicas, .. } = case;
    let mut spec = json!({"schedulerName": OURS, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}]});
    merge(&mut spec, case.spec.clone());
    cluster.create(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}}),
    );
    let (want, words) = match case.expect {
        Expect::Some(want, words) => (want, words),
        _ => (*replicas, ""),
    };
    let placed = eventually(&format!("{name} is scheduled"), SHORT, || {
        let pods = pods_of(cluster, name);
        let (waiting, placed): (Vec<_>, Vec<_>) = pods
            .iter()
            .partition(|pod| pod["spec"]["nodeName"].is_null());
        let told = |pod: &&Value| text(&condition(pod, "PodScheduled")["message"]).contains(words);
        let done = placed.len() == want && placed.len() + waiting.len() == *replicas;
        if done && waiting.iter().all(told) {
            Ok(placed
                .iter()
                .map(|pod| text(&pod["spec"]["nodeName"]))
                .collect::<Vec<_>>())
        } else {
            let words = waiting.iter().map(|pod| condition(pod, "PodScheduled"));
            Err(format!(
                "{} placed, {:?}",
                placed.len(),
                words.collect::<Vec<_>>()
            ))
        }
    });
    let among = |allowed: &[&str]| placed.iter().all(|node| allowed.contains(&&node[..]));
    let holds = match case.expect {
        Expect::On(allowed) => among(allowed),
        Expect::Apart(allowed) => among(allowed) && by(&placed, 2).len() == placed.len(),
        Expect::Zones(want) => {
            let mut counts: Vec<usize> = by(&placed, 1).into_values().collect();
            counts.sort_unstable();
            counts.reverse();
            counts == want
        }
        Expect::Some(..) => true,
    };
    assert!(holds, "{name}: the pods are on {placed:?}");

    let base = "/apis/apps/v1/namespaces/default";
    cluster
        .api
        .delete(&format!("{base}/deployments/{name}"))
        .unwrap();
    for set in cluster.api.list(&format!("{base}/replicasets")).unwrap() {
        let set = text(&set["metadata"]["name"]);
        cluster
            .api
            .delete(&format!("{base}/replicasets/{set}"))
            .unwrap();
    }
    eventually(&format!("{name} is gone"), SHORT, || {
        let pods = pods_of(cluster, name);
        for pod in &pods {
            let pod = text(&pod["metadata"]["name"]);
            // It may be gone by now; the next look tells.
            let _ = cluster
                .api
                .delete_now(&crate::shared_cluster::pod_path(&pod));
        }
        if pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{} pods", pods.len()))
        }
    });
}

fn pods_of(cluster: &SharedCluster, app: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}");
    cluster.api.list(&path).unwrap()
}

/// How many nodes begin with the same letters; the first letter of a node's name is its zone.
fn by(nodes: &[String], letters: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes {
        *counts
            .entry(node.chars().take(letters).collect())
            .or_default() += 1;
    }
    counts
}
