//! Pods are scheduled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Uri};
use kube::Client;
use kube::client::Body;
use tower::ServiceExt;

use crate::support::{Fixture, NAMESPACE, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_pods_are_bound_once_each() {
    let mut fixture = Fixture::new().await;
    for node in 0..50 {
        fixture.add_node(&format!("node-{node}"), "4", 110).await;
    }
    // Half of them before the scheduler, half of them under its eyes.
    for pod in 0..250 {
        fixture.add_pod(&format!("pod-{pod}"), "200m").await;
    }
    fixture.schedule();
    for pod in 250..500 {
        fixture.add_pod(&format!("pod-{pod}"), "200m").await;
    }
    let placed = fixture.all_placed(500).await;
    // Equal pods on equal nodes, spread evenly.
    let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
    for node in placed.values() {
        *per_node.entry(node).or_default() += 1;
    }
    assert!(per_node.values().all(|pods| *pods == 10), "{per_node:?}");
    let events = eventually("every pod has its event", || async {
        let events = fixture.events().await;
        if events.len() == 500 {
            Ok(events)
        } else {
            Err(events.len())
        }
    })
    .await;
    for (pod, reason, note) in events {
        let node = &placed[&pod];
        assert_eq!(reason, "Scheduled");
        assert_eq!(
            note,
            format!("Successfully assigned default/{pod} to {node}")
        );
    }
    assert_eq!(fixture.bound(), 500);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_until_there_is_room() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("small", "1", 110).await;
    fixture.schedule();
    fixture.add_pod("first", "800m").await;
    fixture.all_placed(1).await;
    fixture.add_pod("second", "800m").await;
    eventually("the second pod waits", || async {
        let events = fixture.events().await;
        let failed = events
            .iter()
            .any(|(_, reason, _)| reason == "FailedScheduling");
        if failed { Ok(()) } else { Err(events) }
    })
    .await;
    fixture.add_node("large", "8", 110).await;
    assert_eq!(fixture.all_placed(2).await["second"], "large");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_other_schedulers_are_counted_and_left_alone() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "1", 110).await;
    let mut other = crate::support::pod("other", "100m");
    other["spec"]["schedulerName"] = "somebody-else".into();
    fixture.create_pod(other).await;
    let mut bound = crate::support::pod("bound", "800m");
    bound["spec"]["schedulerName"] = "somebody-else".into();
    bound["spec"]["nodeName"] = "node".into();
    fixture.create_pod(bound).await;
    fixture.schedule();
    fixture.add_pod("too-large", "300m").await;
    fixture.add_pod("fits", "200m").await;
    let placed = fixture.all_placed(2).await;
    assert_eq!(placed.keys().collect::<Vec<_>>(), ["bound", "fits"]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_the_server_lacks_is_taken_up_when_it_appears() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "1", 110).await;
    fixture.add_pod("pod", "1").await;
    let shown = Arc::new(AtomicBool::new(false));
    let service = ServiceExt::<Request<Body>>::map_request(fixture.cluster.service(), {
        let shown = shown.clone();
        move |mut request: Request<Body>| {
            if !shown.load(Ordering::Relaxed) && request.uri().path() == "/api/v1/nodes" {
                *request.uri_mut() = Uri::from_static("/api/v1/nowhere");
            }
            request
        }
    });
    fixture.schedule_with(Client::new(service, NAMESPACE));
    eventually("the pod waits for nodes", || async {
        let events = fixture.events().await;
        let told = "no nodes available to schedule pods";
        let waits = events.iter().any(|(_, _, note)| note == told);
        if waits { Ok(()) } else { Err(events) }
    })
    .await;
    shown.store(true, Ordering::Relaxed);
    fixture.all_placed(1).await;
    fixture.stop().await;
}
