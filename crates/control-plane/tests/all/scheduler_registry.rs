//! The registry of schedulers: the ConfigMap with the names of those that run, and pods whose scheduler does not run.

use std::time::Duration;

use control_plane::client::Connect;
use control_plane::controllers::{Controllers, ControllersOptions, Settings, schedulers};
use control_plane::election::Election;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::{Fixture, condition, eventually, object, options, pod};

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let namespace = object(json!({"metadata": {"name": "tidepool-system"}}));
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    fixture
}

/// Runs the controller until the sender is dropped.
fn start(fixture: &Fixture) -> oneshot::Sender<()> {
    let options = ControllersOptions {
        controllers: &[schedulers::CONTROLLER],
        settings: Settings {
            schedulers: schedulers::RegistrySettings {
                patience: Duration::from_secs(5),
                namespaces: &["default"],
            },
            ..Settings::default()
        },
        election: None,
        serve: None,
    };
    let connect = Connect::Client(fixture.client.clone());
    let controllers = Controllers::new(connect, options).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(controllers.run(async {
        let _ = stopped.await;
    }));
    stop
}

fn config_maps(fixture: &Fixture) -> Api<ConfigMap> {
    Api::namespaced(fixture.client.clone(), "tidepool-system")
}

pub(crate) async fn names_become(fixture: &Fixture, want: &str) {
    eventually(&format!("the names are {want}"), || async {
        let map = config_maps(fixture).get_opt("schedulers").await.unwrap();
        let names = map.and_then(|it| it.data?.remove("names"));
        match names.as_deref() == Some(want) {
            true => Ok(()),
            false => Err(names),
        }
    })
    .await;
}

pub(crate) async fn put_lease(fixture: &Fixture, namespace: &str, name: &str, lease: Value) {
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), namespace);
    let mut lease = lease;
    lease["apiVersion"] = "coordination.k8s.io/v1".into();
    lease["kind"] = "Lease".into();
    lease["metadata"]["name"] = name.into();
    let patch = Patch::Apply(lease);
    let force = PatchParams::apply("test").force();
    leases.patch(name, &force, &patch).await.unwrap();
}

/// A Lease that is held, as a foreign scheduler writes it; its clock is an hour slow.
pub(crate) fn held(names: &str) -> Value {
    held_at(names, -1)
}

/// The clock of the scheduler is so many hours fast.
fn held_at(names: &str, hours: i64) -> Value {
    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
    let time = time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    json!({"metadata": {"annotations": {"tidepool.io/scheduler-names": names}},
        "spec": {"holderIdentity": "them", "leaseDurationSeconds": 10, "renewTime": time}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_running_schedulers_are_kept_in_a_config_map() {
    let mut fixture = fixture().await;
    let stop = start(&fixture);
    names_become(&fixture, "default-scheduler").await;
    let mut ours = options();
    ours.election = Some(Election {
        namespace: "default".into(),
        name: "ours".into(),
        identity: "us".into(),
        // Long enough to keep the Lease on a machine that is busy.
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(50),
        retry_period: Duration::from_millis(100),
        sync_deadline: control_plane::election::SYNC_DEADLINE,
    });
    fixture.schedule_with_options(ours);
    names_become(&fixture, "default-scheduler,tidepool").await;
    // Another key is the administrator's; a wrong value of ours is written again.
    let maps = config_maps(&fixture);
    let patch = Patch::Merge(json!({"data": {"default": "tidepool", "names": "wrong"}}));
    let merge = PatchParams::default();
    maps.patch("schedulers", &merge, &patch).await.unwrap();
    names_become(&fixture, "default-scheduler,tidepool").await;
    let data = maps.get("schedulers").await.unwrap().data.unwrap();
    assert_eq!(data["default"], "tidepool");

    // Leases of nodes and agents are not read, invalid names are left out, a Lease that is not renewed ends.
    let mut agent = held("agent");
    agent["metadata"]["labels"] = json!({"tidepool.io/agent": "true"});
    put_lease(&fixture, "default", "agent", agent).await;
    put_lease(&fixture, "kube-node-lease", "node", held("node")).await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let team = object(json!({"metadata": {"name": "team"}}));
    namespaces
        .create(&PostParams::default(), &team)
        .await
        .unwrap();
    // Those of users in other namespaces register nothing, however many they are.
    for lease in 0..17 {
        let names: Vec<String> = (0..64).map(|it| format!("forged-{lease}-{it}")).collect();
        let forged = held(&format!("{},tidepool", names.join(",")));
        put_lease(&fixture, "team", &format!("forged-{lease}"), forged).await;
    }
    put_lease(&fixture, "default", "foreign", held("volcano, no name,,-x")).await;
    names_become(&fixture, "default-scheduler,tidepool,volcano").await;
    names_become(&fixture, "default-scheduler,tidepool").await;
    put_lease(&fixture, "default", "foreign", held_at("kai", 1)).await;
    // Two Leases with one name are two schedulers that compete; the name is registered all the same.
    put_lease(&fixture, "default", "another", held("kai")).await;
    names_become(&fixture, "default-scheduler,kai,tidepool").await;
    // Both end, though the one seems to be renewed in an hour.
    names_become(&fixture, "default-scheduler,tidepool").await;
    // A scheduler that stops releases its Lease.
    fixture.stop().await;
    names_become(&fixture, "default-scheduler").await;
    drop(stop);
}

async fn pod_condition(fixture: &Fixture, name: &str) -> Option<(String, String, String)> {
    let pod: Pod = fixture.pods().get(name).await.unwrap();
    condition(&pod, "PodScheduled")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_scheduler_does_not_run_gets_an_event_and_a_condition() {
    let fixture = fixture().await;
    let named = |name: &str, scheduler: &str| {
        let mut pod = pod(name, "1");
        pod["spec"]["schedulerName"] = scheduler.into();
        pod
    };
    fixture
        .create_pod(named("native", "default-scheduler"))
        .await;
    fixture
        .create_pod(named("misspelt", "default-schedular"))
        .await;
    // Another scheduler that has no Lease has looked at it.
    fixture.create_pod(named("unregistered", "volcano")).await;
    let theirs = json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "theirs"}]}});
    let pods = fixture.pods();
    let (theirs, default) = (Patch::Strategic(theirs), PatchParams::default());
    let patched = pods.patch_status("unregistered", &default, &theirs).await;
    patched.unwrap();
    let mut gated = named("gated", "volcano");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    fixture.create_pod(gated).await;
    let stop = start(&fixture);
    let message =
        "no scheduler \"default-schedular\" is running; did you mean \"default-scheduler\"?";
    let want = ("False", "SchedulerNotFound", message);
    eventually("the pod has the condition", || async {
        let found = pod_condition(&fixture, "misspelt").await;
        let texts = found.as_ref().map(|(a, b, c)| (&a[..], &b[..], &c[..]));
        if texts == Some(want) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    let event = (
        "misspelt".to_owned(),
        "NoSuchScheduler".to_owned(),
        message.to_owned(),
    );
    eventually("the pod has an event", || async {
        let events = fixture.events().await;
        if events.contains(&event) {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
    assert_eq!(fixture.events().await, [event], "no other pod has one");
    assert_eq!(pod_condition(&fixture, "native").await, None);
    assert_eq!(
        pod_condition(&fixture, "unregistered").await.unwrap().2,
        "theirs"
    );
    assert_eq!(
        pod_condition(&fixture, "gated").await.unwrap().1,
        "SchedulingGated"
    );
    drop(stop);
}
