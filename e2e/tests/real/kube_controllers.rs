//! The controllers of the embedded cluster beside kube-controller-manager, each on a real API server with kube-scheduler: the
//! same objects must end in the same state, with the same events.

use std::{collections::BTreeSet, time::Duration};

use e2e::{ControlPlane, Kubectl, Options};
use jiff::{SignedDuration, Timestamp};
use local::Timings;
use regex::Regex;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq)]
enum Controllers {
    Kubernetes,
    Ours,
}

#[test]
fn workloads_end_as_with_kube_controller_manager() {
    let [theirs, ours] = std::thread::scope(|scope| {
        [Controllers::Kubernetes, Controllers::Ours]
            .map(|controllers| scope.spawn(move || facts(controllers)))
            .map(|side| side.join().unwrap())
    });
    let missing: Vec<_> = theirs.difference(&ours).collect();
    let more: Vec<_> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "only kube-controller-manager: {missing:#?}\nonly ours: {more:#?}"
    );
}

/// Applies the objects, waits until they are settled, and returns what can be seen.
fn facts(controllers: Controllers) -> BTreeSet<String> {
    let names = match controllers {
        Controllers::Kubernetes => vec!["*".to_owned()],
        Controllers::Ours => Vec::new(),
    };
    let control_plane = ControlPlane::start(Options {
        controllers: names,
        scheduler: Some(json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        })),
        ..Options::default()
    })
    .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let local = runtime.block_on(async {
        let config = control_plane.admin().to_client_config().await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let local = match controllers {
            Controllers::Kubernetes => local::start_nodes(client, Timings::default()),
            Controllers::Ours => local::start(client, "certificate".into(), Timings::default()),
        };
        local.synced().await;
        local.nodes().add_demo(2).await.unwrap();
        local
    });
    let kubectl = control_plane.kubectl().unwrap();
    settle(&kubectl);
    let facts = observe(&kubectl);
    clean_up(&kubectl);
    runtime.block_on(local.stop());
    facts
}

fn run(kubectl: &Kubectl, command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').collect();
    let run = kubectl.run(&arguments, PATIENCE).unwrap();
    assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
    run.stdout
}

fn template(app: &str, run_for: Option<&str>, code: &str) -> Value {
    let mut template = json!({"metadata": {"labels": {"app": app}}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "app:1"}],
    }});
    if let Some(run_for) = run_for {
        template["metadata"]["annotations"] =
            json!({local::RUN_FOR: run_for, local::EXIT_CODE: code});
        template["spec"]["restartPolicy"] = "Never".into();
    }
    template
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn claim(class: &str) -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}}})
}

fn objects() -> Vec<Value> {
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let volume = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/d"}});
    let data = json!({"metadata": {"name": "data"}, "spec": claim("")});
    let mut large = claim("");
    large["resources"]["requests"]["storage"] = "1Ti".into();
    vec![
        object("v1", "PersistentVolume", "v0", volume.clone()),
        object("v1", "PersistentVolume", "v1", volume),
        object(
            "apps/v1",
            "StatefulSet",
            "db",
            json!({
                "replicas": 2, "serviceName": "db", "selector": selector("db"),
                "template": template("db", None, ""), "volumeClaimTemplates": [data],
            }),
        ),
        object(
            "apps/v1",
            "DaemonSet",
            "agent",
            json!({"selector": selector("agent"), "template": template("agent", None, "")}),
        ),
        object(
            "v1",
            "ReplicationController",
            "web",
            json!({"replicas": 2, "selector": {"app": "web"}, "template": template("web", None, "")}),
        ),
        object(
            "batch/v1",
            "Job",
            "good",
            json!({"completions": 2, "parallelism": 2, "template": template("good", Some("1s"), "0")}),
        ),
        object(
            "batch/v1",
            "Job",
            "bad",
            json!({"backoffLimit": 0, "template": template("bad", Some("1s"), "3")}),
        ),
        object(
            "batch/v1",
            "CronJob",
            "tick",
            json!({
                "schedule": "0 0 * * *", "suspend": true, "timeZone": "Asia/Tokyo", "concurrencyPolicy": "Forbid",
                "jobTemplate": {"spec": {"template": template("tick", Some("1s"), "0")}},
            }),
        ),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
            "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}),
        object("v1", "PersistentVolumeClaim", "waits", claim("late")),
        object("v1", "PersistentVolumeClaim", "odd", claim("gold")),
        // Larger than every volume.
        object("v1", "PersistentVolumeClaim", "large", large),
    ]
}

fn settle(kubectl: &Kubectl) {
    let run = |command: &str| run(kubectl, command);
    run("wait --for=condition=Ready nodes --all --timeout=60s");
    run("wait --for=create serviceaccount/default --timeout=60s");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects()});
    std::fs::write(kubectl.directory().join("objects.json"), list.to_string()).unwrap();
    run("apply -f objects.json");
    run("rollout status statefulset/db --timeout=60s");
    run("rollout status daemonset/agent --timeout=60s");
    run("wait --for=jsonpath={.status.readyReplicas}=2 rc/web --timeout=60s");
    run("wait --for=condition=complete job/good --timeout=60s");
    run("wait --for=condition=failed job/bad --timeout=60s");
    // A Job is due at once if the last one was long ago. The next one is due at midnight: not while the first one runs, however slow
    // the machine is.
    let last = Timestamp::now() - SignedDuration::from_hours(25);
    let status = json!({"status": {"lastScheduleTime": format!("{last:.0}")}});
    run(&format!(
        "patch cronjob tick --subresource=status --type=merge --patch={status}"
    ));
    run("patch cronjob tick --type=merge --patch={\"spec\":{\"suspend\":false}}");
    run("wait --for=jsonpath={.status.lastSuccessfulTime} cronjob/tick --timeout=60s");
    run("patch cronjob tick --type=merge --patch={\"spec\":{\"suspend\":true}}");
    // A rollout and its way back, for the revisions.
    for change in [
        "set image statefulset/db main=app:2",
        "rollout undo statefulset/db",
    ] {
        run(change);
        run("rollout status statefulset/db --timeout=60s");
    }
    run("set image daemonset/agent main=app:2");
    run("rollout status daemonset/agent --timeout=60s");
    run("scale statefulset/db --replicas=1");
    run("wait --for=delete pod/db-1 --timeout=60s");
    run("wait --for=jsonpath={.status.replicas}=1 statefulset/db --timeout=60s");
}

/// What is compared: kinds, and the places in their objects.
const PLACES: [(&str, &[&str]); 8] = [
    ("statefulsets", &["/status"]),
    ("daemonsets", &["/status"]),
    ("replicationcontrollers", &["/status"]),
    (
        "jobs",
        &[
            "/status",
            "/metadata/annotations",
            "/metadata/ownerReferences",
        ],
    ),
    ("cronjobs", &["/status"]),
    (
        "controllerrevisions",
        &[
            "/metadata/labels",
            "/metadata/ownerReferences",
            "/data",
            "/revision",
        ],
    ),
    (
        "persistentvolumeclaims",
        &[
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
            "/status",
        ],
    ),
    (
        "pods",
        &[
            "/metadata/labels",
            "/metadata/ownerReferences",
            "/metadata/generateName",
            "/spec/hostname",
            "/spec/subdomain",
            "/spec/affinity",
            "/spec/tolerations",
        ],
    ),
];

/// The controllers whose events are compared.
const REPORTERS: [&str; 5] = [
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "persistentvolume-controller",
];

fn observe(kubectl: &Kubectl) -> BTreeSet<String> {
    let get = |kind: &str| {
        let text = run(kubectl, &format!("get {kind} -o json"));
        let list: Value = serde_json::from_str(&text).unwrap();
        list["items"].as_array().cloned().unwrap()
    };
    let mut facts = BTreeSet::new();
    for (kind, places) in PLACES {
        for item in get(kind) {
            let name = settled_text(item["metadata"]["name"].as_str().unwrap());
            for place in places {
                if let Some(value) = item.pointer(place).and_then(settled) {
                    facts.insert(format!("{kind}/{name}{place}: {value}"));
                }
            }
        }
    }
    for event in get("events") {
        let reporter = event["source"]["component"].as_str().unwrap_or_default();
        if REPORTERS.contains(&reporter) {
            let text = |value: &Value| settled_text(value.as_str().unwrap_or_default());
            let about = &event["involvedObject"];
            facts.insert(format!(
                "event of {reporter} about {} {}: {} {} {}",
                text(&about["kind"]),
                text(&about["name"]),
                text(&event["type"]),
                text(&event["reason"]),
                text(&event["message"]),
            ));
        }
    }
    facts
}

/// The value without what differs between two equal clusters, and without what says nothing.
fn settled(value: &Value) -> Option<Value> {
    const CHOSEN: [&str; 6] = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
        // A label of the node, which is the choice of the scheduler.
        "topology.kubernetes.io/zone",
    ];
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Number(number) if number.as_i64() == Some(0) => None,
        Value::String(text) => Some(settled_text(text).into()).filter(|text| *text != ""),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(settled).collect();
            (!items.is_empty()).then(|| items.into())
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(key, _)| !CHOSEN.contains(&key.as_str()));
            let fields = fields.filter_map(|(key, value)| Some((key.clone(), settled(value)?)));
            let fields: serde_json::Map<_, _> = fields.collect();
            (!fields.is_empty()).then(|| fields.into())
        }
        other => Some(other.clone()),
    }
}

/// Generated names, hashes and times become a star.
fn settled_text(text: &str) -> String {
    let chosen = [
        r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)",
        r"\b[bcdfghjklmnpqrstvwxz2456789]{8,10}\b",
        r"\b[bcdfghjklmnpqrstvwxz2456789]{5}\b",
        r"\b\d{8}\b",
        r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
    ];
    chosen.iter().fold(text.to_owned(), |text, pattern| {
        let pattern = Regex::new(pattern).unwrap();
        pattern.replace_all(&text, "*").into_owned()
    })
}

/// Everything can be deleted.
fn clean_up(kubectl: &Kubectl) {
    for kinds in [
        "statefulsets,daemonsets,replicationcontrollers,jobs,cronjobs",
        "pods,persistentvolumeclaims",
        "persistentvolumes",
    ] {
        run(kubectl, &format!("delete {kinds} --all --timeout=60s"));
    }
    let left = run(
        kubectl,
        "get controllerrevisions,pods,persistentvolumeclaims,persistentvolumes -o name",
    );
    assert_eq!(left, "");
}
