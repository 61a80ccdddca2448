//! The leader is killed while it binds pods, and another replica takes over.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::{Api, Binds, eventually};
use serde_json::json;

use crate::deployed::{NAMESPACE, check_permissions, scheduler, start};
use crate::faults::{check_placements, create_pods};
use crate::shared_cluster::{SHORT, asks, node, text};

const COUNT: usize = 2_000;
/// The Lease runs for 15 s after it was last seen to change, and is looked at every 2 to 4.4 s.
const TAKE_OVER: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_secs(60);

#[test]
fn no_pod_is_lost_when_the_leader_is_killed_while_binding() {
    let control_plane = start(&[]);
    let api = Api::new(&control_plane.admin()).unwrap();
    for index in 0..70 {
        let many = json!({"status": {"capacity": {"pods": "110"}}});
        api.create(&node(&format!("n{index}"), "a", many)).unwrap();
    }
    // 32 of them fill a node, so that one that was counted twice or forgotten would show.
    let spec = json!({"containers": asks("cpu", "250m")});
    create_pods(&control_plane, COUNT, &spec);
    let binds = Binds::watch(&control_plane.admin()).unwrap();
    let mut first = scheduler(&control_plane, "first");
    let lease =
        format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tidepool-scheduler");
    let leader = eventually("there is a leader", SHORT, || {
        let lease = api.get(&lease).map_err(|error| format!("{error:#}"))?;
        Ok(text(&lease["spec"]["holderIdentity"]))
    });
    let second = scheduler(&control_plane, "second");
    eventually("a part is bound", SHORT, || match binds.count() {
        count if count > COUNT / 8 => Ok(()),
        count => Err(count.to_string()),
    });
    first.stop();
    let before = binds.count();
    let part = COUNT / 10..=COUNT * 9 / 10;
    assert!(
        part.contains(&before),
        "{before} pods were bound at the kill"
    );

    let succeeded = eventually("there is another leader", TAKE_OVER, || {
        let lease = &api.get(&lease).unwrap()["spec"];
        let holder = text(&lease["holderIdentity"]);
        if holder == leader {
            Err(holder)
        } else {
            Ok(text(&lease["acquireTime"]))
        }
    });
    let succeeded: jiff::Timestamp = succeeded.parse().unwrap();
    eventually("every pod is bound", REST, || match binds.count() {
        COUNT => Ok(()),
        count => Err(format!("{count}: {}", second.last_words())),
    });
    check_placements(&api, COUNT, 32);

    // The store has every pod with two writes: it was created, and it was bound.
    let mut writes = control_plane.writes("/registry/pods/default/").unwrap();
    assert_eq!(writes.len(), COUNT);
    writes.retain(|_, &mut writes| writes != 2);
    assert!(
        writes.is_empty(),
        "these were not written twice: {writes:?}"
    );

    // The second one knew what the first one had done: it tried nothing that had been done.
    let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
    for request in control_plane.audit().unwrap() {
        if request.resource == "pods/binding" {
            let by_the_second = request.received >= succeeded;
            assert!(!by_the_second || request.code == 201, "{request:?}");
            *accepted.entry(request.name).or_default() += usize::from(request.code == 201);
        }
    }
    assert_eq!(accepted.len(), COUNT);
    accepted.retain(|_, &mut times| times > 1);
    assert!(accepted.is_empty(), "these were bound twice: {accepted:?}");
    check_permissions(&control_plane);
}
