//! Reclaimed resources: CustomNodeResources in either layout, once the API has the kind.

use std::time::{Duration, Instant};

use api::config;
use api::http::SchedulerStatus;
use control_plane::scheduler::Options;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::support::{Fixture, NAMESPACE, SCHEDULER, eventually, object};

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

/// The default plugins of Kubernetes and this one.
pub(crate) fn options(plugin: &str) -> Options {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n\
         - schedulerName: {SCHEDULER}\n  plugins: {{multiPoint: {{enabled: [{{name: {plugin}}}]}}}}\n"
    );
    let (configuration, _) = config::load(&text).unwrap();
    let plugins = engine::scheduling::plugins::ALL;
    Options::new(&configuration, plugins, "host").unwrap().0
}

fn dynamic(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(
        client.clone(),
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

/// Returns once the kinds are served.
pub(crate) async fn define(fixture: &Fixture) {
    define_all(fixture, api::crds::all().into_iter().map(|(_, it)| it)).await;
}

pub(crate) async fn define_all(fixture: &Fixture, definitions: impl Iterator<Item = Value>) {
    let crds = dynamic(
        &fixture.client,
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    for definition in definitions {
        let made = crds
            .create(&PostParams::default(), &object(definition))
            .await;
        made.unwrap();
    }
    let reports = reports(fixture);
    eventually("the kind is served", || async {
        reports.list(&ListParams::default()).await
    })
    .await;
}

pub(crate) fn reports(fixture: &Fixture) -> Api<DynamicObject> {
    let group = "node.katalyst.kubewharf.io";
    dynamic(
        &fixture.client,
        group,
        "v1alpha1",
        "CustomNodeResource",
        "customnoderesources",
    )
}

pub(crate) async fn report(fixture: &Fixture, node: &str, status: Value) {
    let reports = reports(fixture);
    if reports.get_opt(node).await.unwrap().is_none() {
        let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
            "metadata": {"name": node}});
        let params = PostParams::default();
        reports.create(&params, &object(report)).await.unwrap();
    }
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams::default();
    reports.patch_status(node, &params, &patch).await.unwrap();
}

pub(crate) fn job(name: &str, amount: &str) -> Value {
    let requests = json!({CPU: amount});
    json!({
        "metadata": {"name": name, "annotations": {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}},
        "spec": {"schedulerName": SCHEDULER, "containers": [
            {"name": "main", "image": "job:1", "resources": {"requests": requests, "limits": requests}},
        ]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_on_what_is_lent_and_no_more() {
    let mut fixture = Fixture::new().await;
    for node in ["today", "design"] {
        fixture.add_node(node, "1", 110).await;
        // Full by requests, with no bearing on what is lent.
        let mut online = crate::support::pod(&format!("online-{node}"), "1");
        online["spec"]["nodeName"] = node.into();
        fixture.create_pod(online).await;
    }
    let client = Client::new(fixture.cluster.service(), NAMESPACE);
    fixture.schedule_by(client, options("QoSAwareNodeResourcesFit"));
    // The API does not know the kind yet: jobs wait, and are told why.
    fixture.create_pod(job("job-0", "2k")).await;
    eventually("the job waits", || async {
        let events = fixture.events().await;
        let waits = events.iter().any(|(_, reason, note)| {
            reason == "FailedScheduling" && note.contains("node not found in the extended cache")
        });
        if waits { Ok(()) } else { Err(events) }
    })
    .await;
    define(&fixture).await;
    let today = json!({"resources": {"allocatable": {CPU: "4k"}}});
    report(&fixture, "today", today).await;
    let design = json!({"resourceAllocatable": {"katalyst.kubewharf.io/reclaimed_millicpu": "2k"}});
    report(&fixture, "design", design).await;
    for name in ["job-1", "job-2", "job-3"] {
        fixture.create_pod(job(name, "2k")).await;
    }
    // Two online pods, and three jobs of 2k on 4k and 2k.
    fixture.all_placed(5).await;
    let more = json!({"resources": {"allocatable": {CPU: "6k"}}});
    report(&fixture, "today", more).await;
    let placed = fixture.all_placed(6).await;
    let jobs_on = |node: &str| {
        let jobs = placed
            .iter()
            .filter(|(pod, on)| pod.starts_with("job") && *on == node);
        jobs.count()
    };
    assert_eq!((jobs_on("today"), jobs_on("design")), (3, 1));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_does_not_exist_is_named_in_an_event() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule();
    let mut pod = crate::support::pod("pod", "1");
    pod["metadata"]["annotations"] = json!({"katalyst.kubewharf.io/qos_level": "reclaimed"});
    fixture.create_pod(pod).await;
    fixture.all_placed(1).await;
    eventually("the pod is told", || async {
        let events = fixture.events().await;
        let told = events.iter().any(|(_, reason, note)| {
            reason == "InvalidSettings"
                && note.contains("`reclaimed` is not a QoS level: use system_cores, dedicated_cores, shared_cores or reclaimed_cores")
        });
        if told { Ok(()) } else { Err(events) }
    })
    .await;
    fixture.stop().await;
}

/// Reports that make no sense count as the nearest that does, and their object is told so; one for no node waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_makes_no_sense_is_named_in_an_event() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    define(&fixture).await;
    let client = Client::new(fixture.cluster.service(), NAMESPACE);
    fixture.schedule_by(client, options("QoSAwareNodeResourcesFit"));
    // The definition refuses what is negative; Katalyst's own does not, and neither do numbers without end.
    report(
        &fixture,
        "node",
        json!({"resources": {"allocatable": {CPU: "8E"}}}),
    )
    .await;
    report(
        &fixture,
        "ghost",
        json!({"resources": {"allocatable": {CPU: "1k"}}}),
    )
    .await;
    eventually("one report waits for its node", || async {
        let cluster = fixture.running().handle().status().cluster;
        match cluster.reports_without_node {
            1 => Ok(()),
            _ => Err(cluster),
        }
    })
    .await;
    let status = fixture.running().handle().whole_status().await;
    assert_eq!(status.first_reports_without_node, ["ghost"]);
    let events: Api<Event> = Api::namespaced(fixture.client.clone(), "default");
    let event = eventually("the report is told", || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let told = events
            .iter()
            .find(|event| event.reason.as_deref() == Some("InvalidReport"));
        told.cloned().ok_or(events)
    })
    .await;
    let regarding = event.regarding.unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("CustomNodeResource"));
    assert_eq!(regarding.name.as_deref(), Some("node"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let note = event.note.unwrap();
    assert!(note.contains("is `8E`: using 1125899906842624"), "{note}");
    fixture.create_pod(job("job", "1k")).await;
    assert_eq!(fixture.all_placed(1).await["job"], "node");
    fixture.stop().await;
}

/// The shortest time from growth to a pod with a node, of five tries: a busy machine may hold up any of them. Each pod waits for
/// what `grow` adds.
async fn fastest_wake<F: Future<Output = ()>>(
    fixture: &mut Fixture,
    options: Options,
    pod: impl Fn(usize) -> Value,
    grow: impl Fn(usize) -> F,
) -> Duration {
    let penalty = options.settings.timing.initial_backoff;
    let client = Client::new(fixture.cluster.service(), NAMESPACE);
    fixture.schedule_by(client, options);
    let mut fastest = Duration::MAX;
    for count in 1..=5 {
        fixture.create_pod(pod(count)).await;
        let waits = |status: &SchedulerStatus| status.queue.unschedulable == 1;
        eventually("the pod waits", || async {
            let status = fixture.running().handle().status();
            if waits(&status) { Ok(()) } else { Err(status) }
        })
        .await;
        // What is waited for is the wake-up, not the end of a penalty.
        tokio::time::sleep(penalty + Duration::from_millis(100)).await;
        let begun = Instant::now();
        grow(count).await;
        while fixture.placed().await.len() < count {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "pod {count} sleeps on"
            );
        }
        fastest = fastest.min(begun.elapsed());
    }
    fixture.stop().await;
    fastest
}

/// No timer is between a report that lends more and the job that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_lends_more_wakes_a_job_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    define(&fixture).await;
    let lends = |amount: String| json!({"resources": {"allocatable": {CPU: amount}}});
    report(&fixture, "node", lends("0".to_owned())).await;
    let reports = reports(&fixture);
    let grow = |count: usize| {
        let status = json!({"status": lends(format!("{count}k"))});
        let reports = reports.clone();
        async move {
            let (none, patch) = (PatchParams::default(), Patch::Merge(status));
            reports.patch_status("node", &none, &patch).await.unwrap();
        }
    };
    let pod = |count: usize| job(&format!("job-{count}"), "1k");
    let options = options("QoSAwareNodeResourcesFit");
    let fastest = fastest_wake(&mut fixture, options, pod, grow).await;
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

/// No timer is between a tier that grows in the status of a Node and the pod that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_grows_wakes_a_pod_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    let nodes = fixture.nodes();
    let grow = |cores: usize| {
        let amounts = json!({"kubernetes.io/batch-cpu": (1000 * cores).to_string(), "kubernetes.io/batch-memory": "64Gi"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        let nodes = nodes.clone();
        async move {
            let (none, patch) = (PatchParams::default(), Patch::Merge(status));
            nodes.patch_status("node", &none, &patch).await.unwrap();
        }
    };
    grow(0).await;
    let pod = |count: usize| {
        let amounts =
            json!({"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"});
        json!({
            "metadata": {"name": format!("batch-{count}"),
                "labels": {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}},
            "spec": {"schedulerName": SCHEDULER, "containers": [
                {"name": "main", "image": "job:1", "resources": {"requests": amounts, "limits": amounts}},
            ]},
        })
    };
    let options = options("TierResourcesFit");
    let fastest = fastest_wake(&mut fixture, options, pod, grow).await;
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}
