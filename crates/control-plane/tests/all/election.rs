//! Leader election: one of several schedulers works, and the next leader continues its work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::http::Role;
use apiserver::faults::{Fault, Matching};
use control_plane::client::Connect;
use control_plane::election::{Election, LeaseError};
use control_plane::scheduler::{Ended, Mode, Options, Running};
use control_plane::serve::{Port, Serve};
use http::{Method, Request, Uri};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tower::ServiceExt;

use crate::support::{Fixture, NAMESPACE, Stopwatch, condition, eventually, options};
use crate::volumes::claim_and_pod;

pub(crate) const LOCK: &str = "lock";

pub(crate) fn candidate(identity: &str) -> Options {
    let mut options = options();
    options.election = Some(Election {
        namespace: NAMESPACE.into(),
        name: LOCK.into(),
        identity: identity.into(),
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(200),
        sync_deadline: control_plane::election::SYNC_DEADLINE,
    });
    options
}

fn leases(fixture: &Fixture) -> Api<Lease> {
    Api::default_namespaced(fixture.client.clone())
}

async fn holder(fixture: &Fixture) -> Option<String> {
    let lease = leases(fixture).get_opt(LOCK).await.unwrap()?;
    lease.spec?.holder_identity.filter(|name| !name.is_empty())
}

pub(crate) async fn becomes(running: &Running, role: Role) {
    eventually(&format!("it is {role:?}"), || async {
        let found = running.handle().status().role;
        if found == role { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_hands_over_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    let mut serving = candidate("a");
    serving.serve = Some(Serve {
        port: Port::Exactly(0),
        ..Serve::default()
    });
    let first = fixture.start(serving).unwrap();
    becomes(&first, Role::Leader).await;
    let second = fixture.start(candidate("b")).unwrap();
    becomes(&second, Role::Standby).await;
    fixture.add_pod("one", "1").await;
    fixture.all_placed(1).await;

    let lease = leases(&fixture).get(LOCK).await.unwrap();
    let server = format!("http://{}", first.server().unwrap());
    assert_eq!(
        lease.metadata.annotations.unwrap()["tidepool.io/server"],
        server
    );
    let spec = lease.spec.unwrap();
    assert_eq!(spec.lease_duration_seconds, Some(3));
    assert_eq!(spec.lease_transitions, Some(0));
    let seen = second.handle().status();
    assert_eq!(seen.lease.as_deref(), Some("default/lock"));
    let leader = seen.leader.unwrap();
    assert_eq!((&*leader.identity, leader.server), ("a", Some(server)));
    assert_eq!(seen.since_start.bound, 0);

    let watch = Stopwatch::start();
    first.stop().await;
    becomes(&second, Role::Leader).await;
    // Long before the Lease would have run out.
    let took = watch.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    fixture.add_pod("two", "1").await;
    fixture.all_placed(2).await;
    assert_eq!(second.handle().status().since_start.bound, 1);
    let spec = leases(&fixture).get(LOCK).await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(1));
    second.stop().await;
    assert_eq!(holder(&fixture).await, None);
    let told = fixture.events().await;
    for note in ["a became leader", "a stopped leading", "b became leader"] {
        assert!(
            told.iter().any(|(_, _, found)| found == note),
            "{note}: {told:?}"
        );
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_vanishes_is_replaced_when_its_lease_runs_out() {
    let fixture = Fixture::new().await;
    let mut first = fixture.start(candidate("a")).unwrap();
    becomes(&first, Role::Leader).await;
    let second = fixture.start(candidate("b")).unwrap();
    becomes(&second, Role::Standby).await;
    // Whatever time of day it claims: ours counts.
    let update = Matching::new("update", "leases");
    fixture.faults.next(u64::MAX, update, Fault::LostRequest);
    let (begun, watch) = (Instant::now(), Stopwatch::start());
    let why = first.ended().await;
    let (all, took) = (begun.elapsed(), watch.elapsed());
    assert!(
        matches!(why, Ended::Lease(LeaseError::NotRenewed { .. })),
        "{why}"
    );
    assert!(
        all > Duration::from_millis(1_500) && took < Duration::from_secs(6),
        "{all:?}, without what the machine took {took:?}"
    );
    assert_eq!(first.handle().status().role, Role::Former);
    drop(first);
    fixture.faults.clear();
    becomes(&second, Role::Leader).await;
    assert_eq!(holder(&fixture).await.as_deref(), Some("b"));
    second.stop().await;
}

/// A candidate whose mandate is over 1.6 s before it gives up.
fn patient(identity: &str) -> Options {
    let mut options = candidate(identity);
    let election = options.election.as_mut().unwrap();
    election.lease_duration = Duration::from_secs(10);
    election.renew_deadline = Duration::from_secs(8);
    options
}

/// The mandate ends at the latest so long after renewals began to fail.
const MANDATE: Duration = Duration::from_millis(6_500);

/// A claim to patch, a pod to bind, a pod to tell why it waits, and one that others must make room for.
async fn work_of_every_kind(fixture: &Fixture) {
    claim_and_pod(fixture, "example.com/disks").await;
    fixture.add_pod("late", "1").await;
    fixture.add_pod("giant", "100").await;
    fixture.add_urgent_pod("urgent", "8").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_once_the_lease_may_be_anothers() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    let (watched, writes) = (
        Arc::new(AtomicBool::new(false)),
        Arc::<Mutex<Vec<_>>>::default(),
    );
    let service = fixture.faults.wrap(fixture.cluster.service());
    let service = ServiceExt::<Request<Body>>::map_request(service, {
        let (watched, writes) = (watched.clone(), writes.clone());
        move |request: Request<Body>| {
            let is_write = request.method() != Method::GET;
            if is_write
                && watched.load(Ordering::SeqCst)
                && !request.uri().path().contains("leases")
            {
                let write = format!("{} {}", request.method(), request.uri());
                writes.lock().unwrap().push(write);
            }
            request
        }
    });
    let client = Client::new(service, NAMESPACE);
    let mut running = Running::start(Connect::Client(client), patient("a")).unwrap();
    becomes(&running, Role::Leader).await;
    fixture.add_pod("early", "1").await;
    fixture.all_placed(1).await;
    // Renewals get no answer for longer than the Lease lasts.
    let update = Matching::new("update", "leases");
    let long = Fault::Delay(Duration::from_secs(60));
    fixture.faults.next(u64::MAX, update, long);
    tokio::time::sleep(MANDATE).await;
    // The mandate is over, although nobody has told the leader anything yet.
    watched.store(true, Ordering::SeqCst);
    work_of_every_kind(&fixture).await;
    let why = running.ended().await;
    assert!(
        matches!(why, Ended::Lease(LeaseError::NotRenewed { .. })),
        "{why}"
    );
    assert_eq!(*writes.lock().unwrap(), Vec::<String>::new());
    assert_eq!(fixture.placed().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_renews_late_continues_without_an_event() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "8", 110).await;
    let running = fixture.start(patient("a")).unwrap();
    becomes(&running, Role::Leader).await;
    let update = Matching::new("update", "leases");
    fixture.faults.next(u64::MAX, update, Fault::LostRequest);
    tokio::time::sleep(MANDATE).await;
    for pod in ["late", "later"] {
        fixture.add_pod(pod, "1").await;
    }
    eventually("both binds have failed", || async {
        match running.handle().status().since_start.bind_failures {
            2.. => Ok(()),
            count => Err(count),
        }
    })
    .await;
    fixture.faults.clear();
    fixture.all_placed(2).await;
    assert_eq!(running.handle().status().role, Role::Leader);
    running.stop().await;
    let mut told = fixture.events().await;
    told.retain(|(_, reason, _)| reason == "FailedScheduling");
    assert_eq!(told, []);
    for pod in ["late", "later"] {
        let pod = fixture.pods().get(pod).await.unwrap();
        let said = condition(&pod, "PodScheduled");
        assert!(said.is_none_or(|(status, ..)| status != "False"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_gives_up_at_its_deadline_whatever_it_waits_for() {
    let fixture = Fixture::new().await;
    let mut options = candidate("a");
    let election = options.election.as_mut().unwrap();
    (election.lease_duration, election.renew_deadline) =
        (Duration::from_secs(5), Duration::from_secs(4));
    election.retry_period = Duration::from_millis(1_500);
    let mut running = fixture.start(options).unwrap();
    becomes(&running, Role::Leader).await;
    let any = Matching::new("", "leases");
    let frozen = Fault::Delay(Duration::from_secs(60));
    fixture.faults.next(u64::MAX, any, frozen);
    let watch = Stopwatch::start();
    let why = running.ended().await;
    let took = watch.elapsed();
    assert!(
        matches!(why, Ended::Lease(LeaseError::NotRenewed { .. })),
        "{why}"
    );
    // The attempts alone could take 1.5 s and 2 s, twice.
    assert!(took < Duration::from_millis(4_900), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_was_taken_stops() {
    let fixture = Fixture::new().await;
    let mut running = fixture.start(candidate("a")).unwrap();
    becomes(&running, Role::Leader).await;
    let theft =
        json!({"spec": {"holderIdentity": "thief", "renewTime": "2030-01-01T00:00:00.000000Z"}});
    let merge = Patch::Merge(theft);
    leases(&fixture)
        .patch(LOCK, &PatchParams::default(), &merge)
        .await
        .unwrap();
    let why = running.ended().await;
    let Ended::Lease(LeaseError::Taken { holder, .. }) = why else {
        panic!("{why}");
    };
    assert_eq!(holder, "thief");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_not_there_is_named_with_the_command_that_makes_it() {
    let fixture = Fixture::new().await;
    let mut options = candidate("a");
    options.election.as_mut().unwrap().namespace = "absent".into();
    let mut running = fixture.start(options).unwrap();
    let why = running.ended().await.to_string();
    assert!(why.contains("kubectl create namespace absent"), "{why}");
}

/// The second scheduler's watch of pods tells nothing, so it believes what it listed in the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_knows_what_the_last_one_did() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "5", 110).await;
    for pod in 0..10 {
        fixture.add_pod(&format!("pod-{pod}"), "1").await;
    }
    let first = fixture.start(candidate("a")).unwrap();
    becomes(&first, Role::Leader).await;
    let service = ServiceExt::<Request<Body>>::map_request(fixture.cluster.service(), {
        move |mut request: Request<Body>| {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default();
            let (path, streams) = (uri.path(), query.contains("sendInitialEvents"));
            if path == "/api/v1/pods" && streams {
                // As if it were too old to stream lists.
                let query = query.replace("NotOlderThan", "Exact");
                *request.uri_mut() = format!("{path}?{query}").parse::<Uri>().unwrap();
            } else if path == "/api/v1/pods" && query.contains("watch=1") {
                let empty = format!("/api/v1/namespaces/empty/pods?{query}");
                *request.uri_mut() = empty.parse::<Uri>().unwrap();
            }
            request
        }
    });
    let client = Client::new(service, NAMESPACE);
    let second = Running::start(Connect::Client(client), candidate("b")).unwrap();
    becomes(&second, Role::Standby).await;
    fixture.all_placed(5).await;
    first.stop().await;
    becomes(&second, Role::Leader).await;
    // It has decided about what is left by now: no room, and no attempt to use what it does not have.
    eventually("five pods wait", || async {
        let status = second.handle().status();
        let waits = status.queue.unschedulable;
        if waits == 5 { Ok(()) } else { Err(status) }
    })
    .await;
    let status = second.handle().status();
    assert_eq!(
        (status.since_start.bound, status.since_start.bind_failures),
        (0, 0)
    );
    assert_eq!(fixture.placed().await.len(), 5);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_decides_and_writes_nothing() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "2", 110).await;
    fixture.add_pod("fits", "1").await;
    fixture.add_pod("giant", "9").await;
    let writes = Arc::new(AtomicUsize::new(0));
    let service = ServiceExt::<Request<Body>>::map_request(fixture.cluster.service(), {
        let writes = writes.clone();
        move |request: Request<Body>| {
            if request.method() != Method::GET {
                writes.fetch_add(1, Ordering::Relaxed);
            }
            request
        }
    });
    let mut options = options();
    options.mode = Mode::Observe;
    let running =
        Running::start(Connect::Client(Client::new(service, NAMESPACE)), options).unwrap();
    let status = eventually("it has decided", || async {
        let status = running.handle().status();
        let decided = status.queue.unschedulable == 1 && status.cluster.assumed_pods == 1;
        if decided { Ok(status) } else { Err(status) }
    })
    .await;
    assert_eq!(status.role, Role::Observer);
    running.stop().await;
    assert_eq!(writes.load(Ordering::Relaxed), 0);
    assert_eq!(
        leases(&fixture)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        0
    );
    assert!(fixture.placed().await.is_empty());
}
