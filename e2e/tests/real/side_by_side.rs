//! kube-scheduler and our scheduler place equal pods, one at a time, in one cluster.
//!
//! Each pod is placed by us first and taken away; then kube-scheduler places it, and there it stays for the next ones. So
//! both see the same cluster every time. Their messages must be equal to the letter, and our node must be one of those that
//! kube-scheduler's own log gives the highest score.

use e2e::eventually;
use serde_json::{Value, json};

use crate::shared_cluster::{
    GREATER, LESSER, OURS, SHORT, SharedCluster, THEIRS, asks, condition, merge, node, pod,
    pod_path, text, with,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The outcome for a pod, as kubectl shows it.
#[derive(Debug, PartialEq)]
struct Outcome {
    is_bound: bool,
    /// Status, reason, message.
    condition: [String; 3],
    /// Type, reason, action, note; a node's name is left out of it.
    event: [String; 4],
}

#[test]
fn decisions_and_messages_equal_kube_schedulers() {
    with(|cluster| {
        cluster_objects().iter().for_each(|object| {
            cluster.create(object);
        });
        let mut choices = 0;
        for (name, spec) in pods() {
            let (ours, our_node) = schedule(cluster, name, &spec, OURS);
            cluster.api.delete_now(&pod_path(name)).unwrap();
            let (theirs, their_node) = schedule(cluster, name, &spec, THEIRS);
            assert_eq!(ours, theirs, "pod {name}");
            if theirs.is_bound {
                let best = best_nodes(cluster, name);
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
                cluster.api.delete_now(&pod_path(name)).unwrap();
            }
        }
        assert!(choices > 10, "only {choices} pods had a choice");
    });
}

#[test]
fn gated_pods_are_handled_as_by_kube_scheduler() {
    with(|cluster| {
        cluster.create(&node("n", "a", json!({})));
        let [ours, theirs] = [OURS, THEIRS].map(|scheduler| gated(cluster, scheduler));
        assert_eq!(ours, theirs);
    });
}

/// The condition of a gated pod, and its outcome once the gate is removed.
fn gated(cluster: &SharedCluster, scheduler: &str) -> ([String; 3], Outcome) {
    let gates = json!({"schedulingGates": [{"name": "example.com/hold"}]});
    let uid = create(cluster, "gated", &gates, scheduler);
    // A pod that comes later goes first, so the gated one had its chance.
    create(cluster, "free", &json!({}), scheduler);
    cluster.node_of("free");
    let pod = cluster.pod("gated");
    assert_eq!(pod["spec"]["nodeName"], Value::Null);
    assert_eq!(cluster.events(&uid), [] as [Value; 0], "{scheduler}");
    let held = texts(&condition(&pod, "PodScheduled"));
    assert_eq!(held[1], "SchedulingGated");

    let lift = json!({"spec": {"schedulingGates": null}});
    cluster.api.patch(&pod_path("gated"), &lift).unwrap();
    cluster.node_of("gated");
    let (outcome, _) = outcome(cluster, "gated", &uid);
    for name in ["gated", "free"] {
        cluster.api.delete_now(&pod_path(name)).unwrap();
    }
    (held, outcome)
}

/// The course of a preemption, as kubectl shows it.
#[derive(Debug, PartialEq)]
struct Preemption {
    nominated: String,
    victims: Vec<String>,
    /// The preemptor, before its victim is gone.
    waiting: Outcome,
    /// The condition of the victim; the scheduler's name is left out of it.
    disruption: [String; 3],
    /// The event of the victim; the pod's uid is left out of it.
    event: [String; 4],
    /// The pod once the victim has left.
    placed: Outcome,
}

#[test]
fn preemption_equals_kube_schedulers() {
    with(|cluster| {
        for name in ["n0", "n1", "n2"] {
            cluster.create(&node(name, "a", json!({})));
        }
        let [ours, theirs] = [OURS, THEIRS].map(|scheduler| preemption(cluster, scheduler));
        assert_eq!(ours, theirs);
        assert_eq!(
            (&*ours.nominated, &*ours.victims),
            ("n1", &["least".to_owned()][..])
        );
    });
}

fn preemption(cluster: &SharedCluster, scheduler: &str) -> Preemption {
    // Each node is full; one holds the pod that is missed least.
    let pods = [
        ("equal", "n0", GREATER),
        ("least", "n1", LESSER),
        ("plain", "n2", ""),
    ];
    let spec = |class: &str| json!({"containers": asks("cpu", "6"), "priorityClassName": class, "terminationGracePeriodSeconds": 60});
    for (name, node, class) in pods {
        let mut spec = spec(class);
        merge(&mut spec, json!({"nodeName": node}));
        create(cluster, name, &spec, scheduler);
    }
    let uid = create(cluster, "wants", &spec(GREATER), scheduler);
    let (pod, nominated) = eventually("a node is kept for the pod", SHORT, || {
        let pod = cluster.pod("wants");
        let nominated = text(&pod["status"]["nominatedNodeName"]);
        if !nominated.is_empty() && condition(&pod, "PodScheduled").is_object() {
            Ok((pod, nominated))
        } else {
            Err(pod["status"].to_string())
        }
    });
    // The message now: a second attempt may have another one.
    let event = eventually("the pod has an event", SHORT, || {
        let events = cluster.events(&uid);
        events.first().cloned().ok_or("no event".to_owned())
    });
    let (waiting, _) = Outcome::of(&pod, &event);
    let is_leaving = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
    let (victim, event) = eventually("the victim has an event", SHORT, || {
        let victim = cluster.pod("least");
        let events = cluster.events(&text(&victim["metadata"]["uid"]));
        match events.first().filter(|_| is_leaving(&victim)) {
            Some(event) => Ok((victim, texts_of_event(event))),
            None => Err(format!("{} {events:?}", victim["metadata"])),
        }
    });
    let names = pods.iter().map(|(name, ..)| *name);
    let victims = names.filter(|name| is_leaving(&cluster.pod(name)));
    let victims = victims.map(str::to_owned).collect();

    // What its kubelet does when the containers have ended.
    cluster.api.delete_now(&pod_path("least")).unwrap();
    cluster.node_of("wants");
    let scheduled = eventually("the pod has a Scheduled event", SHORT, || {
        let events = cluster.events(&uid);
        let last = events.last().filter(|event| event["reason"] == "Scheduled");
        last.cloned().ok_or_else(|| format!("{events:?}"))
    });
    let (placed, _) = Outcome::of(&cluster.pod("wants"), &scheduled);
    for name in ["wants", "equal", "plain"] {
        cluster.api.delete_now(&pod_path(name)).unwrap();
    }
    Preemption {
        nominated,
        victims,
        waiting,
        disruption: texts(&condition(&victim, "DisruptionTarget"))
            .map(|text| text.replace(scheduler, "its scheduler")),
        event: event.map(|text| text.replace(&uid, "its uid")),
        placed,
    }
}

/// Creates the pod and waits for its outcome.
fn schedule(
    cluster: &SharedCluster,
    name: &str,
    spec: &Value,
    scheduler: &str,
) -> (Outcome, String) {
    let uid = create(cluster, name, spec, scheduler);
    outcome(cluster, name, &uid)
}

/// Returns the uid.
fn create(cluster: &SharedCluster, name: &str, spec: &Value, scheduler: &str) -> String {
    let mut object = pod(name, spec.clone());
    merge(&mut object, json!({"spec": {"schedulerName": scheduler}}));
    // The label marks the pods of a service.
    merge(
        &mut object,
        json!({"metadata": {"labels": {"app": name.split('-').next()}}}),
    );
    text(&cluster.create(&object)["metadata"]["uid"])
}

/// The outcome by the first event, and the node.
fn outcome(cluster: &SharedCluster, name: &str, uid: &str) -> (Outcome, String) {
    eventually(
        &format!("pod {name} has a condition and an event"),
        SHORT,
        || {
            let pod = cluster.pod(name);
            let events = cluster.events(uid);
            let is_said = condition(&pod, "PodScheduled").is_object();
            match events.first().filter(|_| is_said) {
                Some(event) => Ok(Outcome::of(&pod, event)),
                None => Err(format!("{} {events:?}", pod["status"])),
            }
        },
    )
}

impl Outcome {
    /// With the pod's node.
    fn of(pod: &Value, event: &Value) -> (Self, String) {
        let node = text(&pod["spec"]["nodeName"]);
        let mut event = texts_of_event(event);
        if !node.is_empty() {
            event[3] = event[3].replace(&format!(" to {node}"), " to its node");
        }
        let outcome = Self {
            is_bound: !node.is_empty(),
            condition: texts(&condition(pod, "PodScheduled")),
            event,
        };
        (outcome, node)
    }
}

fn texts(condition: &Value) -> [String; 3] {
    ["status", "reason", "message"].map(|key| text(&condition[key]))
}

fn texts_of_event(event: &Value) -> [String; 4] {
    ["type", "reason", "action", "note"].map(|key| text(&event[key]))
}

/// The nodes with the highest score, from kube-scheduler's log.
fn best_nodes(cluster: &SharedCluster, pod: &str) -> Vec<String> {
    let log = cluster.control_plane.logs().join("kube-scheduler.log");
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

fn cluster_objects() -> Vec<Value> {
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
        (
            "restarts",
            json!({"containers": [{"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}]}),
        ),
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
