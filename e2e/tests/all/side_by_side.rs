//! The same cluster and the same pods, one at a time, for kube-scheduler and for us.
//!
//! Each pod is placed by us first and taken away; then kube-scheduler places it, and there it stays for the next ones. So
//! both see the same cluster every time. What they say must be equal to the letter, and our node must be one of those that
//! kube-scheduler's own log gives the highest score.

use e2e::eventually;
use serde_json::{Value, json};

use crate::world::{
    OURS, SHORT, THEIRS, World, asks, condition, merge, node, pod, pod_path, text, with,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What becomes of a pod, as anyone can see it.
#[derive(Debug, PartialEq)]
struct Told {
    is_bound: bool,
    /// Status, reason, message.
    condition: [String; 3],
    /// Type, reason, action, note; a node's name is left out of it.
    event: [String; 4],
}

#[test]
fn kube_scheduler_and_we_choose_and_speak_alike() {
    with(|world| {
        cluster().iter().for_each(|object| {
            world.create(object);
        });
        let mut choices = 0;
        for (name, spec) in pods() {
            let (ours, our_node) = schedule(world, name, &spec, OURS);
            world.api.delete_now(&pod_path(name)).unwrap();
            let (theirs, their_node) = schedule(world, name, &spec, THEIRS);
            assert_eq!(ours, theirs, "pod {name}");
            if theirs.is_bound {
                let best = best_nodes(world, name);
                // Where there is only one node there is nothing to score.
                choices += usize::from(!best.is_empty());
                let best = if best.is_empty() {
                    vec![their_node]
                } else {
                    best
                };
                assert!(
                    best.contains(&our_node),
                    "pod {name} is on {our_node}; the best are {best:?}"
                );
            } else {
                world.api.delete_now(&pod_path(name)).unwrap();
            }
        }
        assert!(choices > 10, "only {choices} pods had a choice");
    });
}

/// Creates the pod and waits until something was said about it.
fn schedule(world: &World, name: &str, spec: &Value, scheduler: &str) -> (Told, String) {
    let mut object = pod(name, spec.clone());
    merge(&mut object, json!({"spec": {"schedulerName": scheduler}}));
    // Pods of a service are told by their label.
    merge(
        &mut object,
        json!({"metadata": {"labels": {"app": name.split('-').next()}}}),
    );
    let uid = text(&world.create(&object)["metadata"]["uid"]);
    eventually(&format!("{scheduler} told of pod {name}"), SHORT, || {
        let pod = world.pod(name);
        let condition = condition(&pod, "PodScheduled");
        let events = world.events(&uid);
        let Some(event) = events.first().filter(|_| condition.is_object()) else {
            return Err(format!("{condition} {events:?}"));
        };
        let node = text(&pod["spec"]["nodeName"]);
        let mut note = text(&event["note"]);
        if !node.is_empty() {
            note = note.replace(&format!(" to {node}"), " to its node");
        }
        let told = Told {
            is_bound: !node.is_empty(),
            condition: ["status", "reason", "message"].map(|key| text(&condition[key])),
            event: [
                text(&event["type"]),
                text(&event["reason"]),
                text(&event["action"]),
                note,
            ],
        };
        Ok((told, node))
    })
}

/// The nodes with the highest score, from kube-scheduler's log.
fn best_nodes(world: &World, pod: &str) -> Vec<String> {
    let log = world.control_plane.logs().join("kube-scheduler.log");
    let log = std::fs::read_to_string(log).unwrap();
    let mut scores: Vec<(i64, String)> = Vec::new();
    for line in log.lines() {
        if !line.contains("final score for pod")
            || !line.contains(&format!("pod=\"default/{pod}\""))
        {
            continue;
        }
        let word = |key: &str| {
            let rest = line.split_once(&format!(" {key}="))?.1;
            rest.split(' ')
                .next()
                .map(|word| word.trim_matches('"').to_owned())
        };
        let (Some(node), Some(score)) = (word("node"), word("score")) else {
            panic!("a score that cannot be read: {line}");
        };
        scores.push((score.parse().unwrap(), node));
    }
    let best = scores.iter().map(|(score, _)| *score).max();
    scores.retain(|(score, _)| Some(*score) == best);
    scores.into_iter().map(|(_, node)| node).collect()
}

fn cluster() -> Vec<Value> {
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "dedicated", "value": "db", "effect": effect}]}});
    let image = json!({"status": {"images": [{"names": ["big:1"], "sizeBytes": 900_000_000}]}});
    let small =
        json!({"status": {"capacity": {"cpu": "2", "memory": "4Gi", "example.com/gpu": "2"}}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    vec![
        node("a0", "a", label("disk", "ssd")),
        node("a1", "a", image),
        node("b0", "b", label("disk", "ssd")),
        node("b1", "b", small),
        node("c0", "c", json!({})),
        node("db", "c", taint("NoSchedule")),
        node("dear", "a", taint("PreferNoSchedule")),
        node("off", "b", json!({"spec": {"unschedulable": true}})),
        service,
    ]
}

/// In this order. The label `app` of a pod is its name up to the first dash.
fn pods() -> Vec<(&'static str, Value)> {
    let cpu = |amount: &str| json!({"containers": asks("cpu", amount)});
    let with = |more: Value| {
        let mut spec = json!({"containers": asks("cpu", "500m")});
        merge(&mut spec, more);
        spec
    };
    let required = |key: &str, values: Value| {
        with(
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}}}),
        )
    };
    let near = |kind: &str, app: &str, key: &str| {
        with(
            json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}),
        )
    };
    let spread = |app: &str, when: &str| {
        with(
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
            "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": app}}}]}),
        )
    };
    let port =
        json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
    let claim = |name: &str| {
        with(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}))
    };
    vec![
        ("plain", with(json!({}))),
        ("empty", json!({})),
        ("large", cpu("6")),
        ("memory", json!({"containers": asks("memory", "10Gi")})),
        ("giant", cpu("100")),
        ("nowhere", with(json!({"nodeSelector": {"disk": "tape"}}))),
        ("ssd", with(json!({"nodeSelector": {"disk": "ssd"}}))),
        ("zoned", required(ZONE, json!(["b"]))),
        (
            "named",
            with(
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c0"]}]}]}}}}),
            ),
        ),
        (
            "likes",
            with(
                json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]}}}),
            ),
        ),
        (
            "tolerant",
            with(json!({"tolerations": [{"key": "dedicated", "operator": "Exists"}]})),
        ),
        ("dbonly", required(HOSTNAME, json!(["db"]))),
        ("offonly", required(HOSTNAME, json!(["off"]))),
        (
            "image",
            json!({"containers": [{"name": "c", "image": "big:1"}]}),
        ),
        ("gpu", json!({"containers": asks("example.com/gpu", "1")})),
        ("gpus", json!({"containers": asks("example.com/gpu", "2")})),
        ("port-0", json!({"containers": port})),
        ("port-1", json!({"containers": port})),
        ("apart-0", near("podAntiAffinity", "apart", HOSTNAME)),
        ("apart-1", near("podAntiAffinity", "apart", HOSTNAME)),
        ("apart-2", near("podAntiAffinity", "apart", ZONE)),
        ("near-0", near("podAffinity", "near", ZONE)),
        ("near-1", near("podAffinity", "near", ZONE)),
        ("lonely", near("podAffinity", "nobody", ZONE)),
        ("even-0", spread("even", "DoNotSchedule")),
        ("even-1", spread("even", "DoNotSchedule")),
        ("even-2", spread("even", "DoNotSchedule")),
        ("even-3", spread("even", "ScheduleAnyway")),
        ("skewed", {
            let mut spec = spread("even", "DoNotSchedule");
            merge(&mut spec, json!({"nodeSelector": {"tier": "none"}}));
            spec
        }),
        ("web-0", with(json!({}))),
        ("web-1", with(json!({}))),
        ("web-2", with(json!({}))),
        ("claimless", claim("missing")),
        (
            "overhead",
            with(json!({"initContainers": [{"name": "i", "image": "i",
            "resources": {"requests": {"cpu": "7"}}}]})),
        ),
    ]
}
