//! The controller of ResourcePolicies: costs, their owners, the status, and how often it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apiserver::faults::{Fault, Matching};
use control_plane::client::Connect;
use control_plane::controllers::{
    ALL, Controllers, ControllersOptions, Settings, agents::AgentSettings, resource_policy,
    schedulers::RegistrySettings,
};
use control_plane::election::Election;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::permissions::{granted, objects, of_kind, recording};
use crate::policies::define_loosely;
use crate::reclaimed::define;
use crate::scheduler_registry;
use crate::support::{self, Fixture, NAMESPACE, eventually, object};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MARK: &str = "tidepool.io/policy-unit";
const MANIFEST: &str = include_str!("../../../../deploy/controllers.yaml");

/// A cluster with the nodes `reserved` and `spot`, whose label `kind` is their name.
async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    for kind in ["reserved", "spot"] {
        let node = json!({"metadata": {"name": kind, "labels": {"kind": kind}}});
        let nodes = fixture.nodes();
        let node = nodes.create(&PostParams::default(), &object(node)).await;
        node.unwrap();
    }
    fixture
}

fn policies(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("scheduling.sigs.x-k8s.io", "v1alpha1", "ResourcePolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "resourcepolicies");
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// Two units for the pods with app=web.
async fn add_policy(fixture: &Fixture, name: &str, reserved: u32) {
    let unit = |kind: &str, priority: u32| json!({"name": kind, "priority": priority, "nodeSelector": {"matchLabels": {"kind": kind}}});
    let mut units = [unit("reserved", 10), unit("spot", 0)];
    units[0]["maxCount"] = reserved.into();
    let policy = json!({
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "strategy": "prefer", "units": units},
    });
    let policies = policies(&fixture.client);
    let made = policies
        .create(&PostParams::default(), &object(policy))
        .await;
    made.unwrap();
}

/// A pod on a node.
async fn add_pod(fixture: &Fixture, name: &str, node: &str, annotations: Value) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "app:1"}]},
    });
    fixture.create_pod(pod).await;
}

async fn patch_pod(fixture: &Fixture, name: &str, fields: Value) {
    let pods = fixture.pods();
    let fields = Patch::Merge(fields);
    let patched = pods.patch(name, &PatchParams::default(), &fields).await;
    patched.unwrap();
}

async fn label_node(fixture: &Fixture, name: &str, kind: &str) {
    let nodes: Api<Node> = fixture.nodes();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"kind": kind}}}));
    let patched = nodes.patch(name, &PatchParams::default(), &labels).await;
    patched.unwrap();
}

/// `COST MARK` of each pod, `-` for an annotation that it does not have.
async fn costs(fixture: &Fixture) -> BTreeMap<String, String> {
    let pods = fixture.pods().list(&ListParams::default()).await.unwrap();
    let of = |pod: &Pod| {
        let value = |key| pod.annotations().get(key).map_or("-", String::as_str);
        (pod.name_any(), format!("{} {}", value(COST), value(MARK)))
    };
    pods.iter().map(of).collect()
}

async fn costs_become(fixture: &Fixture, want: &[(&str, &str)]) {
    let want = want
        .iter()
        .map(|(pod, cost)| (pod.to_string(), cost.to_string()));
    let want: BTreeMap<String, String> = want.collect();
    eventually(&format!("costs are {want:?}"), || async {
        let found = costs(fixture).await;
        if found == want { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn status_becomes(fixture: &Fixture, policy: &str, summary: &str) -> Value {
    let policies = policies(&fixture.client);
    eventually(&format!("the summary is {summary}"), || async {
        let status = policies.get(policy).await.unwrap().data["status"].clone();
        if status["summary"] == summary {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await
}

/// Returns once the condition has this status, with its message.
async fn condition(fixture: &Fixture, policy: &str, kind: &str, holds: bool) -> String {
    let policies = policies(&fixture.client);
    eventually(&format!("{kind} of {policy} is {holds}"), || async {
        let status = policies.get(policy).await.unwrap().data["status"].clone();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|it| it["type"] == kind);
        let found = conditions.next().ok_or(status.clone())?;
        let want = if holds { "True" } else { "False" };
        match found["status"] == want {
            true => Ok(found["message"].as_str().unwrap().to_owned()),
            false => Err(status),
        }
    })
    .await
}

fn quick() -> resource_policy::PolicySettings {
    resource_policy::PolicySettings {
        sync_interval: Duration::from_millis(50),
        status_interval: Duration::from_millis(100),
        resync_period: Duration::from_secs(600),
        writes_per_second: 1000,
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(client: Client, settings: resource_policy::PolicySettings) -> Self {
        let settings = Settings {
            resource_policy: settings,
            ..Settings::default()
        };
        Self::elected(client, settings, None)
    }

    fn elected(client: Client, settings: Settings, election: Option<Election>) -> Self {
        let options = ControllersOptions {
            controllers: ALL,
            settings,
            election,
            serve: None,
        };
        let controllers = Controllers::new(Connect::Client(client), options).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async {
            let stopped = async {
                let _ = stopped.await;
            };
            controllers.run(stopped).await.unwrap();
        });
        Self { stop, task }
    }

    async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

/// A client through the faults that counts patches of objects of this kind, and of their status.
fn counting(fixture: &Fixture, plural: &str) -> (Client, Arc<AtomicUsize>) {
    let part = format!("/{plural}/");
    let patches = Arc::new(AtomicUsize::new(0));
    let counter = patches.clone();
    let service = fixture.faults.wrap(fixture.cluster.service());
    let service =
        ServiceExt::<Request<Body>>::map_request(service, move |request: Request<Body>| {
            if request.method() == Method::PATCH && request.uri().path().contains(&part) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            request
        });
    (Client::new(service, NAMESPACE), patches)
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_and_status_follow_policies_nodes_and_pods() {
    let fixture = fixture().await;
    let running = Running::start(fixture.client.clone(), quick());
    add_pod(&fixture, "a", "reserved", json!({"other": "x"})).await;
    // Ages are compared in seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    add_pod(&fixture, "b", "spot", json!({})).await;
    add_pod(&fixture, "mine", "spot", json!({COST: "7"})).await;
    add_policy(&fixture, "web", 1).await;
    costs_become(
        &fixture,
        &[
            ("a", "11 web/reserved=11"),
            ("b", "1 web/spot=1"),
            ("mine", "7 -"),
        ],
    )
    .await;
    let status = status_becomes(&fixture, "web", "reserved 1/1, spot 2, outside 0").await;
    assert_eq!(
        (
            &status["observedGeneration"],
            &status["matchedPods"],
            &status["outsidePods"]
        ),
        (&json!(1), &json!(3), &json!(0))
    );
    let unit = json!({"name": "reserved", "nodes": 1, "pods": 1, "overLimit": 0});
    assert_eq!(status["units"][0], unit);
    let text = condition(&fixture, "web", "DeletionCostConflict", true).await;
    assert!(
        text.starts_with("1 pod has a deletion cost that another component or a user set"),
        "{text}"
    );

    // A node moves to another unit, and its pods with it: one of three is now above the cap.
    label_node(&fixture, "spot", "reserved").await;
    status_becomes(&fixture, "web", "reserved 3/1, spot 0, outside 0").await;
    costs_become(
        &fixture,
        &[
            ("a", "11 web/reserved=11"),
            ("b", "-991 web/reserved=-991"),
            ("mine", "7 -"),
        ],
    )
    .await;
    label_node(&fixture, "spot", "none").await;
    costs_become(
        &fixture,
        &[
            ("a", "11 web/reserved=11"),
            ("b", "0 web/-=0"),
            ("mine", "7 -"),
        ],
    )
    .await;

    // Another writer takes a cost over; a pod stops to match.
    patch_pod(
        &fixture,
        "b",
        json!({"metadata": {"annotations": {COST: "5"}}}),
    )
    .await;
    patch_pod(
        &fixture,
        "a",
        json!({"metadata": {"labels": {"app": "db"}}}),
    )
    .await;
    costs_become(
        &fixture,
        &[("a", "- -"), ("b", "5 web/-=0"), ("mine", "7 -")],
    )
    .await;
    let status = status_becomes(&fixture, "web", "reserved 0/1, spot 0, outside 2").await;
    let text = status["conditions"][3]["message"].as_str().unwrap();
    assert!(
        text.starts_with(
            "2 pods have a deletion cost that another component or a user set, for example pod b"
        ),
        "{text}"
    );
    let events: Api<Event> = Api::default_namespaced(fixture.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap();
    let ours = events
        .iter()
        .filter(|it| it.reason.as_deref() == Some("DeletionCostConflict"));
    assert_eq!(ours.count(), 1, "the first one, and no other");

    policies(&fixture.client)
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    costs_become(&fixture, &[("a", "- -"), ("b", "5 -"), ("mine", "7 -")]).await;
    assert!(
        fixture
            .pods()
            .get("a")
            .await
            .unwrap()
            .annotations()
            .contains_key("other")
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_are_invalid_or_conflict_say_so() {
    let fixture = fixture().await;
    add_pod(&fixture, "a", "spot", json!({})).await;
    let running = Running::start(fixture.client.clone(), quick());
    add_policy(&fixture, "web", 1).await;
    costs_become(&fixture, &[("a", "1 web/spot=1")]).await;
    add_policy(&fixture, "again", 1).await;
    let text = condition(&fixture, "web", "Conflicting", true).await;
    assert!(
        text.starts_with("1 pod also matches ResourcePolicy again, for example pod a;"),
        "{text}"
    );
    condition(&fixture, "again", "Conflicting", true).await;
    // The embedded server evaluates no rules in CEL.
    let unit = json!({"name": "u", "nodeSelector": {}});
    let invalid = Patch::Merge(json!({"spec": {"units": [unit, unit]}}));
    let policies = policies(&fixture.client);
    policies
        .patch("again", &PatchParams::default(), &invalid)
        .await
        .unwrap();
    let text = condition(&fixture, "again", "Accepted", false).await;
    assert!(
        text.starts_with("spec.units[1].name is `u`: use a name"),
        "{text}"
    );
    assert!(text.ends_with("; the policy has no effect"), "{text}");
    condition(&fixture, "web", "Conflicting", false).await;
    let all = Patch::Merge(json!({"spec": {"podSelector": null}}));
    policies
        .patch("web", &PatchParams::default(), &all)
        .await
        .unwrap();
    eventually("the namespace is named", || async {
        let text = condition(&fixture, "web", "Accepted", true).await;
        match text.contains("every pod of namespace default") {
            true => Ok(()),
            false => Err(text),
        }
    })
    .await;
    running.stop().await;
}

/// A server without the bounds of the schema: the status names the value and what is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_does_not_refuse_is_not_accepted() {
    let fixture = Fixture::new().await;
    define_loosely(&fixture).await;
    let running = Running::start(fixture.client.clone(), quick());
    let unit = json!({"name": "u", "nodeSelector": {}});
    let selector = json!({"matchExpressions": [{"key": "k", "operator": "In"}]});
    for (name, spec, words) in [
        (
            "count",
            json!({"units": [{"maxCount": -1, "nodeSelector": {}}]}),
            "spec.units[0].maxCount is -1: use 0 to 100000",
        ),
        (
            "units",
            json!({"units": vec![json!({"nodeSelector": {}}); 33]}),
            "spec.units has 33 units: use at most 32",
        ),
        (
            "names",
            json!({"units": [unit, unit]}),
            "spec.units[1].name is `u`: use a name that no other unit has; a unit without a name has its index as name",
        ),
        (
            "pods",
            json!({"podSelector": selector, "units": [unit]}),
            "spec.podSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            "nodes",
            json!({"units": [{"nodeSelector": selector}]}),
            "spec.units[0].nodeSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
    ] {
        let policy = json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
            "metadata": {"name": name}, "spec": spec});
        let policies = policies(&fixture.client);
        let (params, policy) = (PostParams::default(), object(policy));
        policies.create(&params, &policy).await.unwrap();
        let text = condition(&fixture, name, "Accepted", false).await;
        assert_eq!(text, format!("{words}; the policy has no effect"), "{name}");
    }
    running.stop().await;
}

/// It is written on change only, however often there is one.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_written_once_in_an_interval() {
    let fixture = fixture().await;
    let (interval, pods) = (Duration::from_millis(500), 30);
    let settings = resource_policy::PolicySettings {
        status_interval: interval,
        resync_period: Duration::from_millis(100),
        ..quick()
    };
    let (client, writes) = counting(&fixture, "resourcepolicies");
    let begun = Instant::now();
    let running = Running::start(client, settings);
    add_policy(&fixture, "web", 1).await;
    for pod in 0..pods {
        add_pod(&fixture, &format!("p{pod:02}"), "spot", json!({})).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let summary = format!("reserved 0/1, spot {pods}, outside 0");
    status_becomes(&fixture, "web", &summary).await;
    let intervals = begun.elapsed().as_millis() / interval.as_millis();
    let written = writes.load(Ordering::Relaxed);
    assert!(written > 1, "it follows");
    assert!(
        written as u128 <= intervals + 1,
        "{written} in {intervals} intervals"
    );
    tokio::time::sleep(2 * interval).await;
    assert_eq!(writes.load(Ordering::Relaxed), written, "ten resyncs");
    running.stop().await;
}

/// Answers are lost and requests fail; the process ends and begins again. Each cost is written once.
#[tokio::test(flavor = "multi_thread")]
async fn faults_and_restarts_repeat_no_write() {
    let fixture = fixture().await;
    let pods = 12;
    for pod in 0..pods {
        add_pod(&fixture, &format!("p{pod:02}"), "spot", json!({})).await;
    }
    let dead = json!({COST: "1", MARK: "dead/spot=1"});
    add_pod(&fixture, "dead", "spot", dead).await;
    patch_pod(
        &fixture,
        "dead",
        json!({"metadata": {"labels": {"app": "db"}}}),
    )
    .await;
    add_policy(&fixture, "web", 1).await;
    let (client, patches) = counting(&fixture, "pods");
    let patch = || Matching::new("patch", "pods");
    fixture.faults.next(2, patch(), Fault::LostAnswer);
    fixture.faults.next(2, patch(), Fault::InternalError);
    let running = Running::start(client.clone(), quick());
    eventually("some are written", || async {
        match patches.load(Ordering::Relaxed) {
            few if few < 4 => Err(few),
            _ => Ok(()),
        }
    })
    .await;
    running.stop().await;
    let settings = resource_policy::PolicySettings {
        resync_period: Duration::from_millis(200),
        ..quick()
    };
    let running = Running::start(client, settings);
    let names: Vec<String> = (0..pods).map(|pod| format!("p{pod:02}")).collect();
    let mut want: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1 web/spot=1")).collect();
    want.push(("dead", "- -"));
    costs_become(&fixture, &want).await;
    let written = patches.load(Ordering::Relaxed);
    // Two lost answers may cost a second attempt each; so may what was on its way at the stop.
    assert!((pods + 3..=pods + 13).contains(&written), "{written}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(patches.load(Ordering::Relaxed), written, "five resyncs");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_limited_and_others_take_turns() {
    let fixture = fixture().await;
    let settings = resource_policy::PolicySettings {
        writes_per_second: 20,
        ..quick()
    };
    add_policy(&fixture, "web", 1).await;
    for pod in 0..40 {
        add_pod(&fixture, &format!("p{pod:02}"), "spot", json!({})).await;
    }
    let (client, patches) = counting(&fixture, "pods");
    let begun = Instant::now();
    let running = Running::start(client, settings);
    eventually("all are written", || async {
        let costs = costs(&fixture).await;
        let missing = costs.values().filter(|it| **it == "- -").count();
        if missing == 0 { Ok(()) } else { Err(missing) }
    })
    .await;
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1900), "{took:?}");
    assert_eq!(patches.load(Ordering::Relaxed), 40);
    running.stop().await;
}

fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// Everything that the controllers ever do. The event is written twice, which needs more than to create it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_is_what_is_used() {
    let fixture = fixture().await;
    crate::tier_controller::system_namespace(&fixture).await;
    let (client, used) = recording(&fixture);
    // A list is read in pages when the stream fails.
    for kind in [
        "nodes",
        "pods",
        "resourcepolicies",
        "nodemetrics",
        "customnoderesources",
        "configmaps",
        "leases",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "replicationcontrollers",
        "services",
        "replicasets",
        "statefulsets",
        "csidrivers",
        "csinodes",
        "csistoragecapacities",
        "storageclasses",
        "volumeattachments",
    ] {
        let watch = Matching::new("watch", kind);
        fixture.faults.next(1, watch, Fault::InternalError);
    }
    let election = Election {
        namespace: NAMESPACE.into(),
        name: "lock".into(),
        identity: "a".into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_millis(200),
        sync_deadline: control_plane::election::SYNC_DEADLINE,
    };
    let settings = Settings {
        agents: AgentSettings {
            silent_after: Duration::from_secs(1),
            evict_after: Some(Duration::from_secs(1)),
            orphaned_after: Duration::from_millis(200),
        },
        resource_policy: quick(),
        schedulers: RegistrySettings {
            patience: Duration::from_secs(1),
            namespaces: &["default"],
        },
        ..Settings::default()
    };
    let running = Running::elected(client, settings, Some(election));
    add_pod(&fixture, "a", "spot", json!({})).await;
    add_policy(&fixture, "web", 1).await;
    costs_become(&fixture, &[("a", "1 web/spot=1")]).await;
    // The tier controller publishes what a bound pod requests.
    let amounts = json!({"kubernetes.io/mid-cpu": "100"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let mid = json!({"metadata": {"name": "mid"}, "spec": {"nodeName": "spot",
        "containers": [{"name": "main", "image": "app:1", "resources": resources}]}});
    fixture.create_pod(mid).await;
    for cost in ["5", "1", "5"] {
        patch_pod(
            &fixture,
            "a",
            json!({"metadata": {"annotations": {COST: cost}}}),
        )
        .await;
        condition(&fixture, "web", "DeletionCostConflict", cost == "5").await;
    }
    // A scheduler registers, and a pod waits for one that does not run.
    scheduler_registry::names_become(&fixture, "default-scheduler").await;
    let lease = scheduler_registry::held("volcano");
    scheduler_registry::put_lease(&fixture, "default", "foreign", lease).await;
    let mut lost = support::pod("lost", "1");
    lost["spec"]["schedulerName"] = "nowhere".into();
    fixture.create_pod(lost).await;
    // An agent is silent, and the Node of another is gone.
    let lent = crate::reclaimed::job("lent", "1");
    fixture.create_pod(on("spot", lent)).await;
    for node in ["spot", "reserved"] {
        crate::agent_controller::renew(&fixture, node, jiff::Timestamp::now()).await;
    }
    let (nodes, now) = (fixture.nodes(), DeleteParams::default());
    nodes.delete("reserved", &now).await.unwrap();
    let manifest = objects(MANIFEST);
    let is_ours = |role: &&Value| role["metadata"]["name"] == "tidepool-controllers";
    let roles = of_kind(&manifest, "ClusterRole").chain(of_kind(&manifest, "Role"));
    let mut want = granted(&roles.filter(is_ours).collect::<Vec<_>>());
    // The HTTP server uses them.
    want.retain(|(group, ..)| !group.starts_with("auth"));
    eventually("every permission has been used", || async {
        let missing: BTreeSet<_> = want.difference(&used.lock().unwrap()).cloned().collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    })
    .await;
    running.stop().await;
    let used: BTreeSet<_> = Mutex::lock(&used).unwrap().clone();
    let beyond: Vec<_> = used.difference(&want).collect();
    assert!(beyond.is_empty(), "used without permission: {beyond:?}");
}
