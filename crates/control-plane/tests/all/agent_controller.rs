//! The controller of agents: CustomNodeResources of nodes, taints of silent agents, the brake, and evictions.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use control_plane::client::Connect;
use control_plane::controllers::{
    Controllers, ControllersOptions, Settings, agents, agents::AgentSettings, tiers,
};
use control_plane::serve::{Port, Serve};
use http::Method;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::http::send_to;
use crate::reclaimed::{define, job, reports};
use crate::support::{Fixture, NAMESPACE, eventually, object, pod, without_permission};
use crate::tier_controller::{metric_now, system_namespace};

const SILENT: &str = "tidepool.io/agent-silent";
/// Long enough for a test that renews, on a machine that is busy.
const SETTINGS: AgentSettings = AgentSettings {
    silent_after: Duration::from_secs(4),
    evict_after: None,
    orphaned_after: Duration::from_millis(200),
};

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    system_namespace(&fixture).await;
    fixture
}

struct Running {
    _stop: oneshot::Sender<()>,
    server: SocketAddr,
}

fn run(client: Client, settings: AgentSettings) -> Running {
    let options = ControllersOptions {
        controllers: &[agents::CONTROLLER, tiers::CONTROLLER],
        settings: Settings {
            agents: settings,
            ..Settings::default()
        },
        election: None,
        serve: Some(Serve {
            port: Port::Exactly(0),
            ..Serve::default()
        }),
    };
    let controllers = Controllers::new(Connect::Client(client), options).unwrap();
    let server = controllers.server().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(controllers.run(async {
        let _ = stopped.await;
    }));
    Running {
        _stop: stop,
        server,
    }
}

fn leases(fixture: &Fixture) -> Api<Lease> {
    Api::namespaced(fixture.client.clone(), "tidepool-system")
}

/// Renews as an agent does whose clock shows this time; the Lease is made if it is missing.
pub(crate) async fn renew(fixture: &Fixture, node: &str, time: jiff::Timestamp) {
    let lease = json!({
        "metadata": {"name": format!("agent-{node}"), "labels": {"tidepool.io/agent": "true"}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": format!("{time:.6}")},
    });
    let (leases, name) = (leases(fixture), format!("agent-{node}"));
    let patch = Patch::Merge(lease.clone());
    if leases
        .patch(&name, &PatchParams::default(), &patch)
        .await
        .is_err()
    {
        let params = PostParams::default();
        leases.create(&params, &object(lease)).await.unwrap();
    }
}

/// An agent whose clock is off by so much, until it is aborted.
fn keep_renewing(
    fixture: &Arc<Fixture>,
    node: &'static str,
    off: SignedDuration,
) -> JoinHandle<()> {
    let fixture = fixture.clone();
    tokio::spawn(async move {
        loop {
            renew(&fixture, node, jiff::Timestamp::now() + off).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

async fn taints(fixture: &Fixture, node: &str) -> Vec<String> {
    let report = reports(fixture).get_opt(node).await.unwrap();
    let report = report.map(|it| it.data).unwrap_or_default();
    let taints = report["spec"]["taints"].as_array().cloned();
    let keys = taints.unwrap_or_default();
    keys.iter()
        .map(|it| it["key"].as_str().unwrap().to_owned())
        .collect()
}

async fn taints_become(fixture: &Fixture, case: &str, node: &str, want: &[&str]) {
    eventually(case, || async {
        let found = taints(fixture, node).await;
        if found == want { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn metric(running: &Running, name: &str) -> i64 {
    let (_, text) = send_to(running.server, "GET", "/metrics", "").await;
    let prefix = format!("{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&*prefix));
    line.and_then(|it| it.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Messages of events with this reason.
pub(crate) async fn events(fixture: &Fixture, namespace: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), namespace);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let events = events
        .into_iter()
        .filter(|it| it.reason.as_deref() == Some(reason));
    events.filter_map(|it| it.message).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_and_leases_come_and_go_with_their_nodes() {
    let fixture = fixture().await;
    fixture.add_node("n1", "4", 110).await;
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"zone": "a"}}}));
    let (nodes, none) = (fixture.nodes(), PatchParams::default());
    nodes.patch("n1", &none, &labelled).await.unwrap();
    let _running = run(fixture.client.clone(), SETTINGS);
    let reports = reports(&fixture);
    let made = eventually("the report is made", || async {
        reports.get_opt("n1").await.unwrap().ok_or(())
    })
    .await;
    let node: Node = nodes.get("n1").await.unwrap();
    let owner = &made.owner_references()[0];
    assert_eq!((&*owner.kind, owner.controller), ("Node", Some(true)));
    assert_eq!(Some(&owner.uid), node.uid().as_ref());
    assert_eq!(made.labels()["zone"], "a");

    // Labels of others stay, those of the Node are merged.
    let own = Patch::Merge(json!({"metadata": {"labels": {"own": "x"}}}));
    reports.patch("n1", &none, &own).await.unwrap();
    let moved = Patch::Merge(json!({"metadata": {"labels": {"zone": "b"}}}));
    nodes.patch("n1", &none, &moved).await.unwrap();
    let has = async |key: &str, value: &str| {
        let report: DynamicObject = reports.get("n1").await.unwrap();
        let found = report.labels().get(key).cloned();
        if found.as_deref() == Some(value) {
            Ok(())
        } else {
            Err(found)
        }
    };
    eventually("the label follows", || has("zone", "b")).await;
    has("own", "x").await.unwrap();

    // A report that was deleted by mistake is made again.
    let now = DeleteParams::default();
    reports.delete("n1", &now).await.unwrap();
    eventually("it is made again", || async {
        reports.get_opt("n1").await.unwrap().ok_or(())
    })
    .await;

    renew(&fixture, "n1", jiff::Timestamp::now()).await;
    nodes.delete("n1", &now).await.unwrap();
    eventually("both are gone", || async {
        let report = reports.get_opt("n1").await.unwrap();
        let lease = leases(&fixture).get_opt("agent-n1").await.unwrap();
        match (report, lease) {
            (None, None) => Ok(()),
            left => Err(left),
        }
    })
    .await;
}

/// The clock of the node is an hour off, and two controllers believe that they lead.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_taints_its_node_until_it_is_back() {
    let fixture = Arc::new(fixture().await);
    fixture.add_node("n1", "10", 110).await;
    fixture.add_node("unwatched", "10", 110).await;
    let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
        "metadata": {"name": "n1"}, "spec": {"taints": [{"key": "other", "effect": "NoScheduleForReclaimedTasks"}]}});
    let params = PostParams::default();
    reports(&fixture)
        .create(&params, &object(report))
        .await
        .unwrap();
    metric_now(&fixture, "n1").await;
    let hour = SignedDuration::from_hours(1);
    let ahead = keep_renewing(&fixture, "n1", hour);
    let first = run(fixture.client.clone(), SETTINGS);
    let _second = run(fixture.client.clone(), SETTINGS);
    let mid = async || {
        let node: Node = fixture.nodes().get("n1").await.unwrap();
        let amounts = node.status.unwrap_or_default().allocatable;
        let mid = amounts.unwrap_or_default().remove("kubernetes.io/mid-cpu");
        mid.map(|it| it.0)
    };
    let mid_is = async |case: &str, want: &str| {
        eventually(case, || async {
            match mid().await {
                Some(found) if found == want => Ok(()),
                found => Err(found),
            }
        })
        .await;
    };
    mid_is("the tiers are published", "10k").await;
    ahead.abort();
    let both = ["other", SILENT];
    taints_become(&fixture, "the node is tainted", "n1", &both).await;
    mid_is("nothing new fits", "0").await;
    assert_eq!(metric(&first, "tidepool_silent_agents_brake").await, 0);
    assert_eq!(metric(&first, "tidepool_agents").await, 1);
    let event = "the agent has not renewed its Lease for 4s: reclaimed, batch, free and Mid+BE pods are kept away";
    eventually("an event says so", || async {
        let found = events(&fixture, NAMESPACE, "AgentSilent").await;
        if found.contains(&event.to_owned()) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;

    // It renews at times before the last one, because its clock was set.
    let behind = keep_renewing(&fixture, "n1", -hour);
    taints_become(&fixture, "the taint is removed", "n1", &["other"]).await;
    metric_now(&fixture, "n1").await;
    mid_is("the tiers are back", "10k").await;
    behind.abort();
    taints_become(&fixture, "it is silent again", "n1", &both).await;

    // As `tidepool agent --restore` does.
    let (leases, now) = (leases(&fixture), DeleteParams::default());
    leases.delete("agent-n1", &now).await.unwrap();
    taints_become(&fixture, "without a Lease", "n1", &["other"]).await;
    assert_eq!(taints(&fixture, "unwatched").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_silent_agents_of_a_hundred_pull_the_brake() {
    let fixture = Arc::new(fixture().await);
    let name = |index: usize| format!("n{index:02}");
    let now = jiff::Timestamp::now();
    for index in 0..100 {
        fixture.add_node(&name(index), "4", 110).await;
        renew(&fixture, &name(index), now).await;
    }
    let settings = AgentSettings {
        silent_after: Duration::from_secs(16),
        evict_after: Some(Duration::from_secs(16)),
        ..SETTINGS
    };
    let silent = Arc::new(AtomicUsize::new(30));
    let running = run(fixture.client.clone(), settings);
    let mut lent = job("job", "1");
    lent["spec"]["nodeName"] = name(0).into();
    fixture.create_pod(lent).await;
    let (all, count) = (fixture.clone(), silent.clone());
    tokio::spawn(async move {
        loop {
            for index in count.load(Ordering::Relaxed)..100 {
                renew(&all, &format!("n{index:02}"), jiff::Timestamp::now()).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let tainted = async || -> BTreeSet<String> {
        let reports = reports(&fixture)
            .list(&ListParams::default())
            .await
            .unwrap();
        let tainted = reports
            .iter()
            .filter(|it| it.data["spec"]["taints"].to_string().contains(SILENT));
        tainted.map(|it| it.name_any()).collect()
    };
    let reason = "TooManySilentAgents";
    eventually("an event says so", || async {
        let found = events(&fixture, "tidepool-system", reason).await;
        if found.is_empty() { Err(()) } else { Ok(()) }
    })
    .await;
    eventually("thirty are silent", || async {
        match metric(&running, "tidepool_silent_agents").await {
            count if count >= 30 => Ok(()),
            count => Err(count),
        }
    })
    .await;
    // Time in which a controller without a brake taints.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(tainted().await, BTreeSet::new());
    assert_eq!(metric(&running, "tidepool_silent_agents_brake").await, 1);
    assert!(
        fixture
            .pods()
            .get("job")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
    );

    // Twenty come back: ten are a tenth.
    silent.store(10, Ordering::Relaxed);
    let want: BTreeSet<String> = (0..10).map(name).collect();
    eventually("those that stay silent are tainted", || async {
        let found = tainted().await;
        if found == want { Ok(()) } else { Err(found) }
    })
    .await;
    assert_eq!(metric(&running, "tidepool_silent_agents_brake").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reclaimed_pods_leave_a_node_whose_agent_stays_silent() {
    let fixture = fixture().await;
    fixture.add_node("n1", "10", 110).await;
    renew(&fixture, "n1", jiff::Timestamp::now()).await;
    let settings = AgentSettings {
        silent_after: Duration::from_secs(1),
        evict_after: Some(Duration::from_secs(2)),
        ..SETTINGS
    };
    let lent = job("job", "1");
    let service = pod("web", "1");
    let mut kept = job("kept", "1");
    kept["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}]);
    for mut pod in [lent, service, kept] {
        pod["spec"]["nodeName"] = "n1".into();
        fixture.create_pod(pod).await;
    }
    let _running = run(fixture.client.clone(), settings);
    let is_ending = async |name: &str| {
        let pod = fixture.pods().get_opt(name).await.unwrap();
        pod.is_none_or(|it| it.metadata.deletion_timestamp.is_some())
    };
    eventually("the job is evicted", || async {
        if is_ending("job").await {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    eventually("an event says why", || async {
        let found = events(&fixture, NAMESPACE, "Evicted").await;
        let want = "the agent of node n1 is silent".to_owned();
        if found == [want] { Ok(()) } else { Err(found) }
    })
    .await;
    assert!(!is_ending("web").await && !is_ending("kept").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named() {
    let fixture = fixture().await;
    fixture.add_node("n1", "10", 110).await;
    let client = without_permission(
        &fixture,
        Method::POST,
        "/customnoderesources",
        "customnoderesources.node.katalyst.kubewharf.io is forbidden: User \"c\" cannot create resource \"customnoderesources\"",
    );
    let _running = run(client, SETTINGS);
    let want = "User \"c\" cannot create resource \"customnoderesources\"".to_owned();
    eventually("an event names it", || async {
        let found = events(&fixture, "tidepool-system", "MissingPermission").await;
        if found == [want.clone()] {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}
