//! Simulated nodes and their pods.

use std::{collections::BTreeSet, time::Duration};

use apiserver::{Cluster, Options};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod, Taint},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use local::Local;
use serde_json::{Value, json};

use crate::support::{
    Fixture, cluster, deployment, eventually, gone, is_ready, object, phase, short, template,
};

fn condition(node: &Node, type_: &str) -> String {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut found = conditions
        .into_iter()
        .flatten()
        .filter(|c| c.type_ == type_);
    found.next().map_or("none".into(), |c| c.status.clone())
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints: Vec<_> = taints
        .into_iter()
        .flatten()
        .map(|t| format!("{}:{}", t.key, t.effect))
        .collect();
    taints.sort();
    taints
}

/// The taint of a cordoned node.
pub(crate) const CORDONED: &str = "node.kubernetes.io/unschedulable:NoSchedule";

/// Returns once the node is in this state: its Ready condition and its taints.
pub(crate) async fn node_is(fixture: &Fixture, name: &str, ready: &str, wanted: &[&str]) -> Node {
    eventually(&format!("{name} is {ready} with {wanted:?}"), || async {
        let node = fixture.nodes().get(name).await.unwrap();
        let state = (condition(&node, "Ready"), taints(&node));
        if state.0 == ready && state.1 == wanted {
            Ok(node)
        } else {
            Err(state)
        }
    })
    .await
}

#[tokio::test]
async fn demo_nodes_are_ready_and_renew_their_leases() {
    let fixture = cluster(3).await;
    for name in ["node-001", "node-002", "node-003"] {
        let node = node_is(&fixture, name, "True", &[]).await;
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.unwrap()["cpu"].0, "15600m");
        assert_eq!(
            node.metadata.labels.unwrap()["kubernetes.io/hostname"],
            name
        );
    }
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), "kube-node-lease");
    let renewed = || async { leases.get_opt("node-002").await.unwrap()?.spec?.renew_time };
    let first = eventually("there is a lease", || async {
        renewed().await.ok_or("none")
    })
    .await;
    eventually("it is renewed", || async {
        let now = renewed().await.unwrap();
        if now > first { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test]
async fn a_node_made_through_the_api_runs_pods() {
    let fixture = cluster(0).await;
    let node: Node = object(
        json!({"metadata": {"name": "mine"}, "status": {"capacity": {"cpu": "2", "example.com/gpu": "1"}}}),
    );
    fixture
        .nodes()
        .create(&PostParams::default(), &node)
        .await
        .unwrap();
    let node = node_is(&fixture, "mine", "True", &[]).await;
    let allocatable = node.status.unwrap().allocatable.unwrap();
    assert_eq!(
        (
            allocatable["cpu"].0.as_str(),
            allocatable["example.com/gpu"].0.as_str()
        ),
        ("2", "1")
    );
    assert!(node.spec.unwrap().pod_cidr.is_some());

    fixture
        .create::<Pod>(
            json!({"metadata": {"name": "p", "labels": {"app": "p"}}, "spec": {
                "initContainers": [{"name": "first", "image": "i"}],
                "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
            }}),
        )
        .await;
    let pod = fixture.ready("p", 1).await.remove(0);
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(
        status
            .container_statuses
            .unwrap()
            .iter()
            .filter(|c| c.ready)
            .count(),
        2
    );
    assert!(status.start_time.is_some() && status.host_ip.is_some());
    let mut types: Vec<_> = status
        .conditions
        .unwrap()
        .into_iter()
        .filter(|c| c.status == "True")
        .map(|c| c.type_)
        .collect();
    types.sort();
    assert_eq!(
        types,
        [
            "ContainersReady",
            "Initialized",
            "PodReadyToStartContainers",
            "PodScheduled",
            "Ready"
        ]
    );
}

#[tokio::test]
async fn pods_get_unique_addresses_and_stop_within_their_grace_period() {
    let fixture = cluster(3).await;
    fixture
        .create::<k8s_openapi::api::apps::v1::Deployment>(deployment("web", 40))
        .await;
    let pods = fixture.ready("web", 40).await;
    let addresses: BTreeSet<_> = pods
        .iter()
        .map(|pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap())
        .collect();
    assert_eq!(addresses.len(), 40);

    let name = pods[0].name_any();
    let answer = fixture
        .api::<Pod>()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    let dying = answer.left().expect("a bound pod is not removed at once");
    assert_eq!(dying.metadata.deletion_grace_period_seconds, Some(1));
    gone(&fixture.api::<Pod>(), &name).await;
    fixture.ready("web", 40).await;
}

#[tokio::test]
async fn annotations_set_how_long_a_pod_runs_and_how_it_ends() {
    let fixture = cluster(1).await;
    for (name, run_for, code, policy) in [
        ("good", "50ms", "0", "Never"),
        ("bad", "50ms", "7", "Never"),
        ("default-policy", "50ms", "0", "Always"),
        ("restarted", "50ms", "1", "OnFailure"),
        ("nonsense", "soon", "-1", "Never"),
    ] {
        fixture.create::<Pod>(json!({
            "metadata": {"name": name, "annotations": {local::RUN_FOR: run_for, local::EXIT_CODE: code}},
            "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "i"}]},
        }))
        .await;
    }
    let state = |name: &'static str| {
        let pods = fixture.api::<Pod>();
        async move {
            let pod = pods.get(name).await.unwrap();
            let container = pod
                .status
                .as_ref()?
                .container_statuses
                .as_ref()?
                .first()?
                .clone();
            let ended = container
                .state
                .as_ref()?
                .terminated
                .clone()
                .map(|t| t.exit_code);
            let waiting = container.state?.waiting.and_then(|w| w.reason);
            Some((phase(&pod).to_owned(), ended, waiting))
        }
    };
    for (name, want) in [
        ("good", ("Succeeded", Some(0), None)),
        ("bad", ("Failed", Some(7), None)),
        ("default-policy", ("Succeeded", Some(0), None)),
        ("restarted", ("Running", None, Some("CrashLoopBackOff"))),
        ("nonsense", ("Running", None, None)),
    ] {
        let want = (want.0.to_owned(), want.1, want.2.map(str::to_owned));
        eventually(&format!("{name} is {want:?}"), || async {
            let now = state(name).await;
            if now.as_ref() == Some(&want) {
                Ok(())
            } else {
                Err(now)
            }
        })
        .await;
    }
    let mut events = eventually("both values are complained about", || async {
        let events = fixture.events_about("nonsense").await;
        if events.len() < 2 {
            Err(events)
        } else {
            Ok(events)
        }
    })
    .await;
    events.sort();
    for ((reason, message), words) in events.iter().zip([["\"-1\"", "255"], ["\"soon\"", "90s"]]) {
        assert_eq!(reason, "InvalidAnnotation");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn a_node_without_heartbeats_loses_its_pods_and_recovers() {
    let fixture = cluster(2).await;
    fixture
        .create::<k8s_openapi::api::apps::v1::Deployment>(deployment("web", 4))
        .await;
    let patient: Pod = object(json!({"metadata": {"name": "patient"}, "spec": {
        "nodeName": "node-001",
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        "containers": [{"name": "main", "image": "i"}],
    }}));
    fixture
        .api::<Pod>()
        .create(&PostParams::default(), &patient)
        .await
        .unwrap();
    fixture.ready("web", 4).await;

    fixture
        .local
        .nodes()
        .stop_heartbeat("node-001")
        .await
        .unwrap();
    let unreachable = [
        "node.kubernetes.io/unreachable:NoExecute",
        "node.kubernetes.io/unreachable:NoSchedule",
    ];
    let node = node_is(&fixture, "node-001", "Unknown", &unreachable).await;
    assert_eq!(condition(&node, "MemoryPressure"), "Unknown");
    eventually("its pods are not ready", || async {
        let pod = fixture.api::<Pod>().get("patient").await.unwrap();
        if is_ready(&pod) { Err("ready") } else { Ok(()) }
    })
    .await;
    // They have five minutes; a taint that they do not tolerate gives them none.
    let nodes = fixture.nodes();
    let before = node.spec.unwrap().taints.unwrap();
    let mut more = before.clone();
    more.push(object(json!({"key": "maintenance", "effect": "NoExecute"})));
    let set_taints = |taints: Vec<Taint>| Patch::Merge(json!({"spec": {"taints": taints}}));
    nodes
        .patch("node-001", &PatchParams::default(), &set_taints(more))
        .await
        .unwrap();
    eventually("replacements run elsewhere", || async {
        let pods = fixture.pods("web").await;
        let there = pods
            .iter()
            .filter(|p| {
                is_ready(p) && p.spec.as_ref().unwrap().node_name.as_deref() == Some("node-002")
            })
            .count();
        if there == 4 { Ok(()) } else { Err(there) }
    })
    .await;
    let stuck = fixture.pods("web").await.len();
    assert!(stuck > 4, "a silent node does not stop its pods");

    nodes
        .patch("node-001", &PatchParams::default(), &set_taints(before))
        .await
        .unwrap();
    fixture
        .local
        .nodes()
        .resume_heartbeat("node-001")
        .await
        .unwrap();
    node_is(&fixture, "node-001", "True", &[]).await;
    fixture.ready("web", 4).await;
    eventually("the tolerant pod is ready again", || async {
        let pod = fixture.api::<Pod>().get("patient").await.unwrap();
        if is_ready(&pod) {
            Ok(())
        } else {
            Err(pod.status)
        }
    })
    .await;
}

#[tokio::test]
async fn cordoned_and_removed_nodes_are_noticed() {
    let fixture = cluster(2).await;
    node_is(&fixture, "node-001", "True", &[]).await;
    fixture.local.nodes().cordon("node-001").await.unwrap();
    node_is(&fixture, "node-001", "True", &[CORDONED]).await;
    fixture.local.nodes().uncordon("node-001").await.unwrap();
    node_is(&fixture, "node-001", "True", &[]).await;

    fixture
        .create::<k8s_openapi::api::apps::v1::Deployment>(deployment("web", 4))
        .await;
    fixture.ready("web", 4).await;
    fixture.local.nodes().remove("node-001").await.unwrap();
    eventually("all pods run on the other node", || async {
        let pods = fixture.pods("web").await;
        let nodes: Vec<_> = pods
            .iter()
            .map(|p| (p.spec.as_ref().unwrap().node_name.clone(), is_ready(p)))
            .collect();
        let moved = nodes.len() == 4
            && nodes
                .iter()
                .all(|(node, ready)| node.as_deref() == Some("node-002") && *ready);
        if moved { Ok(()) } else { Err(nodes) }
    })
    .await;
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), "kube-node-lease");
    gone(&leases, "node-001").await;
}

#[tokio::test]
async fn stopping_stops_everything() {
    let cluster = Cluster::new(Options::default());
    let client = Client::new(cluster.service(), "default");
    let stops = |local: Local| async move {
        tokio::time::timeout(Duration::from_secs(10), local.stop())
            .await
            .expect("it stops")
    };
    stops(local::start(client.clone(), String::new(), short())).await;

    let local = local::start(client, String::new(), short());
    local.synced().await;
    local.nodes().add_demo(10).await.unwrap();
    stops(local).await;
    let revision = cluster.revision();
    tokio::time::sleep(2 * short().lease_renewal).await;
    assert_eq!(cluster.revision(), revision, "nobody writes any more");
}

#[tokio::test]
async fn pods_that_do_not_fit_are_rejected_as_by_a_kubelet() {
    let fixture = cluster(0).await;
    let small = json!({"metadata": {"name": "small"}, "status": {"capacity": {"cpu": "2"}, "allocatable": {"cpu": "2"}}});
    fixture
        .nodes()
        .create(&PostParams::default(), &object(small))
        .await
        .unwrap();
    let bound = |name: &str, requests: Value, priority_class: &str| {
        json!({"metadata": {"name": name, "labels": {"app": "crowd"}}, "spec": {
            "nodeName": "small", "priorityClassName": priority_class, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "i", "resources": {"requests": requests, "limits": requests}}],
        }})
    };
    let half = json!({"cpu": "500m", "example.com/gpu": "1"});
    for at in 0..10 {
        let pod = bound(&format!("crowd-{at}"), half.clone(), "");
        fixture.create::<Pod>(pod).await;
    }
    let phases = |running: usize, failed: usize| {
        let fixture = &fixture;
        eventually("as many run as fit", move || async move {
            let pods = fixture.pods("crowd").await;
            let count = |wanted: &str| pods.iter().filter(|pod| phase(pod) == wanted).count();
            let now = (count("Running"), count("Failed"));
            if now == (running, failed) {
                Ok(pods)
            } else {
                Err(now)
            }
        })
    };
    let pods = phases(4, 6).await;
    let refused = pods.iter().find(|pod| phase(pod) == "Failed").unwrap();
    let status = refused.status.as_ref().unwrap();
    let message =
        "Node didn't have enough resource: cpu, requested: 500, used: 2000, capacity: 2000";
    assert_eq!(
        (status.reason.as_deref(), status.message.as_deref()),
        (
            Some("OutOfcpu"),
            Some(&*format!("Pod was rejected: {message}"))
        )
    );
    let events = fixture.events_about(&refused.name_any()).await;
    assert_eq!(events, [("OutOfcpu".to_owned(), message.to_owned())]);

    // Capacity that becomes free is used again.
    let gone_pod = pods.iter().find(|pod| phase(pod) == "Running").unwrap();
    let api = fixture.api::<Pod>();
    let options = DeleteParams::default().grace_period(0);
    api.delete(&gone_pod.name_any(), &options).await.unwrap();
    fixture.create::<Pod>(bound("next", half.clone(), "")).await;
    phases(4, 6).await;

    // A critical pod preempts another one.
    let vital = bound("vital", half, "system-node-critical");
    fixture.create::<Pod>(vital).await;
    phases(4, 7).await;
    assert_eq!(phase(&api.get("vital").await.unwrap()), "Running");
}

#[tokio::test]
async fn an_extended_resource_in_the_capacity_becomes_allocatable() {
    let fixture = cluster(1).await;
    let patch_status = |status: Value| {
        let nodes = fixture.nodes();
        async move {
            let fields = Patch::Strategic(json!({"status": status}));
            nodes
                .patch_status("node-001", &PatchParams::default(), &fields)
                .await
                .unwrap();
        }
    };
    for (case, amount) in [
        ("added", Some("10")),
        ("changed", Some("4")),
        ("removed", None),
    ] {
        patch_status(json!({"capacity": {"example.com/gpu": amount}})).await;
        eventually(case, || async {
            let status = fixture.nodes().get("node-001").await.unwrap().status;
            let allocatable = status.unwrap().allocatable.unwrap();
            let found = allocatable.get("example.com/gpu").map(|it| it.0.clone());
            if found.as_deref() == amount {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_pod_stops_after_its_hook() {
    let fixture = cluster(1).await;
    let mut pod = template("web", "app:1");
    pod["metadata"]["name"] = "slow".into();
    pod["spec"]["terminationGracePeriodSeconds"] = 30.into();
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    fixture.create::<Pod>(pod).await;
    fixture.ready("web", 1).await;
    let deleted = std::time::Instant::now();
    fixture
        .api::<Pod>()
        .delete("slow", &DeleteParams::default())
        .await
        .unwrap();
    gone(&fixture.api::<Pod>(), "slow").await;
    assert!(deleted.elapsed() >= Duration::from_secs(1));
}
