//! ResourcePolicies: caps, the annotations of Bindings, and policies that cannot be used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::config;
use control_plane::scheduler::Options;
use http::{Method, Request};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::reclaimed::{define, define_all};
use crate::support::{Fixture, NAMESPACE, SCHEDULER, condition, eventually, object, pod};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MARK: &str = "tidepool.io/policy-unit";

fn options() -> Options {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
         - schedulerName: {SCHEDULER}\n  plugins: {{multiPoint: {{enabled: [{{name: resourcepolicy}}]}}}}\n"
    );
    let (configuration, _) = config::load(&text).unwrap();
    let plugins = engine::scheduling::plugins::ALL;
    Options::new(&configuration, plugins, "host").unwrap().0
}

fn policies(fixture: &Fixture) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("scheduling.sigs.x-k8s.io", "v1alpha1", "ResourcePolicy");
    let kind = ApiResource::from_gvk_with_plural(&kind, "resourcepolicies");
    Api::default_namespaced_with(fixture.client.clone(), &kind)
}

async fn set_policy(fixture: &Fixture, name: &str, spec: Value) {
    let policies = policies(fixture);
    let policy = json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
        "metadata": {"name": name}, "spec": spec});
    match policies.get_opt(name).await.unwrap() {
        None => {
            let params = PostParams::default();
            policies.create(&params, &object(policy)).await.unwrap();
        }
        Some(_) => {
            let patch = Patch::Merge(policy);
            let params = PatchParams::default();
            policies.patch(name, &params, &patch).await.unwrap();
        }
    }
}

async fn add_node(fixture: &Fixture, name: &str, kind: &str) {
    fixture.add_node(name, "64", 110).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"kind": kind}}}));
    let params = PatchParams::default();
    let patched = fixture.nodes().patch(name, &params, &labels).await;
    patched.unwrap();
}

fn unit(name: &str, priority: u32, max_count: Option<i64>) -> Value {
    let mut unit = json!({"name": name, "priority": priority, "nodeSelector": {"matchLabels": {"kind": name}}});
    if let Some(max_count) = max_count {
        unit["maxCount"] = max_count.into();
    }
    unit
}

/// Every pod with its node, cost and mark.
async fn marks(fixture: &Fixture) -> BTreeMap<String, (String, String, String)> {
    let pods = fixture.pods().list(&Default::default()).await.unwrap();
    let marks = pods.iter().filter_map(|pod| {
        let node = pod.spec.as_ref()?.node_name.clone()?;
        let annotation = |key| pod.annotations().get(key).cloned().unwrap_or_default();
        Some((pod.name_any(), (node, annotation(COST), annotation(MARK))))
    });
    marks.collect()
}

async fn waits(fixture: &Fixture, name: &str, text: &str) {
    eventually(&format!("{name} waits: {text}"), || async {
        let pod = fixture.pods().get(name).await.unwrap();
        let message = condition(&pod, "PodScheduled").map(|(.., message)| message);
        match message {
            Some(message) if message.contains(text) => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// Counts writes of pods, by bindings and by anything else.
fn counting(fixture: &Fixture) -> (Client, Arc<[AtomicUsize; 2]>) {
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let service = fixture.faults.wrap(fixture.cluster.service());
    let service = ServiceExt::<Request<Body>>::map_request(service, {
        let counts = counts.clone();
        move |request: Request<Body>| {
            let path = request.uri().path();
            if *request.method() != Method::GET && path.contains("/pods/") {
                let is_other = usize::from(!path.ends_with("/binding"));
                counts[is_other].fetch_add(1, Ordering::Relaxed);
            }
            request
        }
    });
    (Client::new(service, NAMESPACE), counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn units_fill_to_their_caps_and_bindings_carry_the_cost() {
    let mut fixture = Fixture::new().await;
    define(&fixture).await;
    add_node(&fixture, "r", "reserved").await;
    add_node(&fixture, "s", "spot").await;
    let spec = |spot: i64| {
        json!({"podSelector": {"matchLabels": {"app": "web"}},
            "units": [unit("reserved", 9, Some(1)), unit("spot", 0, Some(spot))]})
    };
    set_policy(&fixture, "web", spec(2)).await;
    let (client, writes) = counting(&fixture);
    fixture.schedule_by(client, options());
    for index in 0..3 {
        let mut web = pod(&format!("web-{index}"), "100m");
        web["metadata"]["labels"] = json!({"app": "web"});
        if index == 1 {
            web["metadata"]["annotations"] = json!({COST: "77"});
        }
        fixture.create_pod(web).await;
        fixture.all_placed(index + 1).await;
    }
    let of =
        |node: &str, cost: &str, mark: &str| (node.to_owned(), cost.to_owned(), mark.to_owned());
    let want = [
        ("web-0".to_owned(), of("r", "10", "web/reserved=10")),
        // It brought a cost of its own.
        ("web-1".to_owned(), of("s", "77", "")),
        ("web-2".to_owned(), of("s", "1", "web/spot=1")),
    ];
    assert_eq!(marks(&fixture).await, want.into_iter().collect());
    let [bindings, others] = &*writes;
    let counts = (
        bindings.load(Ordering::Relaxed),
        others.load(Ordering::Relaxed),
    );
    assert_eq!(counts, (3, 0), "one request per pod");
    for index in 3..8 {
        let mut web = pod(&format!("web-{index}"), "100m");
        web["metadata"]["labels"] = json!({"app": "web"});
        fixture.create_pod(web).await;
    }
    for index in 3..8 {
        let text = "1 ResourcePolicy default/web: unit \"reserved\" is full (maxCount 1), 1 ResourcePolicy default/web: \
                    unit \"spot\" is full (maxCount 2)";
        waits(&fixture, &format!("web-{index}"), text).await;
    }
    set_policy(&fixture, "web", spec(6)).await;
    fixture.all_placed(7).await;
    // The policy is deleted while a pod waits.
    let params = DeleteParams::default();
    policies(&fixture).delete("web", &params).await.unwrap();
    fixture.all_placed(8).await;
    fixture.stop().await;
}

/// The kind without bounds and rules, as another definition of it may be.
pub(crate) async fn define_loosely(fixture: &Fixture) {
    let definitions = api::crds::all().into_iter().map(|(_, mut definition)| {
        if definition["spec"]["names"]["kind"] == "ResourcePolicy" {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        }
        definition
    });
    define_all(fixture, definitions).await;
}

/// None of them has effect, not even the part that could be read, and what was valid before does not go on.
#[tokio::test(flavor = "multi_thread")]
async fn policies_that_cannot_be_used_have_no_effect() {
    let mut fixture = Fixture::new().await;
    define_loosely(&fixture).await;
    add_node(&fixture, "s", "spot").await;
    let client = Client::new(fixture.cluster.service(), NAMESPACE);
    fixture.schedule_by(client, options());
    let closed = || json!({"units": [unit("spot", 0, Some(0))]});
    for (index, (case, spec)) in [
        ("a negative count", json!({"units": [unit("spot", 0, Some(-1))]})),
        ("33 units", json!({"units": vec![json!({"maxCount": 0, "nodeSelector": {}}); 33]})),
        ("two units of one name", json!({"units": [unit("spot", 0, Some(0)), unit("spot", 1, Some(0))]})),
        ("a value of another type", json!({"units": "none"})),
        (
            "a selector without values",
            json!({"units": [{"maxCount": 0, "nodeSelector": {"matchExpressions": [{"key": "kind", "operator": "In"}]}}]}),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        set_policy(&fixture, "web", closed()).await;
        let name = format!("web-{index}");
        fixture.create_pod(pod(&name, "100m")).await;
        waits(&fixture, &name, "unit \"spot\" is full (maxCount 0)").await;
        set_policy(&fixture, "web", spec).await;
        eventually(case, || async {
            let placed = fixture.placed().await;
            if placed.len() == index + 1 { Ok(()) } else { Err(placed) }
        })
        .await;
    }
    fixture.stop().await;
}
