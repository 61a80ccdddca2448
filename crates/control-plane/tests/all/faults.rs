//! With faults of the API server and the network, no pod is lost or bound twice.

use std::collections::BTreeMap;

use apiserver::faults::{Fault, Matching};
use kube::api::ListParams;

use crate::support::{Fixture, eventually};

const PODS: usize = 200;
const NODES: usize = 20;

/// Creates pods under these faults and checks that each comes to a node once, and no node gets too many.
async fn survives(faults: &[(u64, Matching, Fault)]) {
    let mut fixture = Fixture::new().await;
    for node in 0..NODES {
        fixture.add_node(&format!("node-{node}"), "2", 110).await;
    }
    for pod in 0..PODS / 2 {
        fixture.add_pod(&format!("pod-{pod}"), "200m").await;
    }
    for (every, matching, fault) in faults {
        fixture
            .faults
            .every(*every, matching.clone(), fault.clone());
    }
    fixture.schedule();
    for pod in PODS / 2..PODS {
        fixture.add_pod(&format!("pod-{pod}"), "200m").await;
    }
    let placed = fixture.all_placed(PODS).await;
    assert!(fixture.faults.struck() > 0, "the faults never struck");
    // The nodes are exactly full, so one pod counted twice or forgotten would show.
    let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
    for node in placed.values() {
        *per_node.entry(node).or_default() += 1;
    }
    assert!(
        per_node.values().all(|pods| *pods == PODS / NODES),
        "{per_node:?}"
    );

    // What vanished while nobody was watching is noticed: its room can be used.
    fixture.faults.clear();
    let gone = fixture.pods().list(&ListParams::default()).await.unwrap();
    let node = gone.items[0]
        .spec
        .as_ref()
        .unwrap()
        .node_name
        .clone()
        .unwrap();
    fixture
        .kill(gone.items[0].metadata.name.as_ref().unwrap())
        .await;
    fixture.add_pod("late", "200m").await;
    let late = eventually("the last pod is placed", || async {
        fixture.placed().await.remove("late").ok_or("it waits")
    })
    .await;
    assert_eq!(late, node);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binds_that_are_refused() {
    let bind = Matching::new("create", "pods/binding");
    survives(&[
        (7, bind.clone(), Fault::Conflict),
        (
            11,
            bind.clone(),
            Fault::TooManyRequests {
                retry_after_seconds: 1,
            },
        ),
        (13, bind, Fault::InternalError),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binds_without_an_answer() {
    let bind = Matching::new("create", "pods/binding");
    survives(&[
        (5, bind.clone(), Fault::LostAnswer),
        (7, bind, Fault::LostRequest),
        (3, Matching::new("get", "pods"), Fault::InternalError),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_break_and_expire() {
    let watch = |resource| Matching::new("watch", resource);
    survives(&[
        (4, watch("pods"), Fault::TruncateWatch { after_events: 17 }),
        (3, watch("pods"), Fault::Expired { after_events: 5 }),
        (2, watch("pods"), Fault::EndWatch { after_events: 9 }),
        (2, watch("nodes"), Fault::Expired { after_events: 0 }),
        (3, Matching::new("list", ""), Fault::InternalError),
        (
            4,
            Matching::new("list", "pods"),
            Fault::Expired { after_events: 0 },
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_at_once() {
    survives(&[
        (9, Matching::new("", ""), Fault::InternalError),
        (7, Matching::new("create", ""), Fault::LostAnswer),
        (11, Matching::new("create", ""), Fault::LostRequest),
        (5, Matching::new("patch", ""), Fault::LostAnswer),
        (
            2,
            Matching::new("watch", ""),
            Fault::TruncateWatch { after_events: 11 },
        ),
    ])
    .await;
}
