//! Many schedulers on the real API server: which of them a pod gets, and what happens if that one does not run.

use std::process::Command;

use e2e::{ControlPlane, Process, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::policies::serve_policies;
use crate::policy_costs::{LONG, control, manifests as controllers};
use crate::shared::Shared;
use crate::shared_cluster::{SHORT, condition, node, pod_path, text};
use crate::webhook_fixture::{Fixture, PATIENCE, PROFILES};

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/name";
const SCHEDULERS: &str = "/api/v1/namespaces/tidepool-system/configmaps/schedulers";

/// A pod with one container; the spec and the annotation name schedulers, unless they are empty.
fn pod(name: &str, spec: &str, written: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"foo": "bar"}},
        "spec": {"containers": [{"name": "main", "image": "image"}]}});
    if !spec.is_empty() {
        pod["spec"]["schedulerName"] = spec.into();
    }
    if !written.is_empty() {
        pod["metadata"]["annotations"] = json!({ANNOTATION: written});
    }
    pod
}

static SHARED: Shared<Cluster> = Shared::by(2);

/// The control plane with the webhook, the controllers and one node.
struct Cluster {
    fixture: Fixture,
    _webhook: Process,
    _controllers: Process,
}

impl Cluster {
    fn start() -> Self {
        let fixture = Fixture::start(&[], Some(10));
        let (webhook, address) = fixture.webhook("webhook", &[]);
        fixture.proxy.forward_to(&[address]);
        serve_policies(&fixture.control_plane);
        deployed::apply(&fixture.control_plane, controllers());
        let flags = [
            "--scheduler-not-found-after=5s",
            "--scheduler-namespaces=kube-public",
        ];
        let controllers = control(&fixture.control_plane, &flags);
        fixture.api.create(&node("n1", "zone", json!({}))).unwrap();
        fixture.wait_until_asked();
        Self {
            fixture,
            _webhook: webhook,
            _controllers: controllers,
        }
    }

    fn names_become(&self, want: &str) {
        eventually(&format!("the names are {want}"), LONG, || {
            let map = self.fixture.api.get(SCHEDULERS);
            let map = map.map_err(|error| format!("{error:#}"))?;
            let found = text(&map["data"]["names"]);
            if found == want { Ok(()) } else { Err(found) }
        });
    }

    /// The pod's event of this reason: its reporter and its text.
    fn event(&self, pod: &str, reason: &str) -> (String, String) {
        eventually(&format!("{pod} has the event {reason}"), LONG, || {
            let path = "/apis/events.k8s.io/v1/namespaces/default/events";
            let events = self.fixture.api.list(path).unwrap();
            let is_it =
                |event: &&Value| event["regarding"]["name"] == pod && event["reason"] == reason;
            let event = events.iter().find(is_it);
            let event = event.ok_or(format!("{} others", events.len()))?;
            Ok((text(&event["reportingController"]), text(&event["note"])))
        })
    }

    fn await_bound(&self, name: &str) {
        eventually(&format!("{name} is bound"), LONG, || {
            let pod = self.fixture.api.get(&pod_path(name)).unwrap();
            match pod["spec"]["nodeName"].as_str() {
                Some(_) => Ok(()),
                None => Err(pod["status"].to_string()),
            }
        });
    }
}

/// A scheduler as `--print-manifests` describes it, with those permissions.
fn launch(control_plane: &ControlPlane, name: &str) -> (Process, Vec<Value>) {
    let binary = e2e::tidepool::binary().unwrap();
    let flag = format!("--scheduler-name={name}");
    let printed = Command::new(binary)
        .args(["scheduler", "--print-manifests", &flag])
        .output();
    let printed = printed.unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    deployed::apply(control_plane, objects.clone());
    let account = format!("{name}-tidepool-scheduler");
    let user = deployed::account(control_plane, NAMESPACE, &account);
    let mut flags = deployed::flags(control_plane, &objects);
    flags.retain(|flag| !flag.starts_with("--bind-address") && !flag.starts_with("--secure-port"));
    flags.push("--secure-port=0".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let process = control_plane.tidepool(name, &user, &flags).unwrap();
    (process, objects)
}

#[test]
fn a_pod_waits_for_its_scheduler_and_says_so() {
    SHARED.with(Cluster::start, |cluster| a_pod_waits(cluster));
}

fn a_pod_waits(cluster: &Cluster) {
    let (api, control_plane) = (&cluster.fixture.api, &cluster.fixture.control_plane);
    let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
    let _theirs = control_plane.kube_scheduler(&config, &[]).unwrap();
    cluster.names_become("default-scheduler");
    let abc = cluster
        .fixture
        .create("default", &pod("pod-abc", "", "my-scheduler"))
        .unwrap();
    assert_eq!(abc["spec"]["schedulerName"], "my-scheduler");
    let old = cluster
        .fixture
        .create("default", &pod("old", "", "kube-scheduler"))
        .unwrap();
    assert_eq!(old["spec"]["schedulerName"], "default-scheduler");
    let message = "no scheduler \"my-scheduler\" is running; running: default-scheduler";
    let told = ("tidepool-controllers".to_owned(), message.to_owned());
    assert_eq!(cluster.event("pod-abc", "NoSuchScheduler"), told);
    let waiting = api.get(&pod_path("pod-abc")).unwrap();
    let found = condition(&waiting, "PodScheduled");
    assert_eq!(
        (&found["status"], &found["reason"], &found["message"]),
        (
            &json!("False"),
            &json!("SchedulerNotFound"),
            &json!(message)
        )
    );
    assert_eq!(waiting["spec"]["nodeName"], Value::Null);
    // kube-scheduler runs, and leaves the pod alone.
    cluster.await_bound("old");
    assert_eq!(cluster.event("old", "Scheduled").0, "default-scheduler");

    let (mut ours, objects) = launch(control_plane, "my-scheduler");
    cluster.names_become("default-scheduler,my-scheduler");
    cluster.await_bound("pod-abc");
    assert_eq!(cluster.event("pod-abc", "Scheduled").0, "my-scheduler");
    let bound = api.get(&pod_path("pod-abc")).unwrap();
    assert_eq!(condition(&bound, "PodScheduled")["status"], "True");
    let user = "system:serviceaccount:tidepool-system:my-scheduler-tidepool-scheduler";
    deployed::check_permissions_of(control_plane, user);
    let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
    let listed = Command::new(e2e::tidepool::binary().unwrap())
        .args(["schedulers", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    let table = String::from_utf8(listed.stdout).unwrap();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[1],
        ["default-scheduler", "yes", "-", "-", "0"],
        "{table}"
    );
    let lease = "tidepool-system/my-scheduler-tidepool-scheduler";
    assert_eq!(lines[2][..3], ["my-scheduler", "yes", lease], "{table}");

    // It stops, its objects are deleted, and the name is gone.
    ours.terminate().unwrap();
    let kubectl = control_plane.kubectl().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(kubectl.directory().join("list.json"), list.to_string()).unwrap();
    let delete = ["delete", "--ignore-not-found", "-f", "list.json"];
    let deleted = kubectl.run(&delete, SHORT).unwrap();
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    cluster.names_become("default-scheduler");
    api.get(&format!("/api/v1/namespaces/{NAMESPACE}")).unwrap();
}

#[test]
fn admission_sets_and_checks_the_name_of_the_scheduler() {
    SHARED.with(Cluster::start, |cluster| {
        sets_and_checks_the_name(cluster);
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-public/leases";
        for path in [leases, PROFILES] {
            // All objects of the list.
            cluster.fixture.api.delete_now(path).unwrap();
        }
        let none = json!({"data": {"default": null}});
        cluster.fixture.api.patch(SCHEDULERS, &none).unwrap();
    });
}

fn sets_and_checks_the_name(cluster: &Cluster) {
    let fixture = &cluster.fixture;
    fixture.api.create(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "volcano", "namespace": "kube-public", "annotations": {"tidepool.io/scheduler-names": "volcano,no name"}},
        "spec": {"holderIdentity": "them", "leaseDurationSeconds": 300}}))
        .unwrap();
    cluster.names_become("default-scheduler,volcano");
    fixture.namespace("team", json!({"tidepool.io/scheduler": "volcano"}));
    fixture.namespace("strict", json!({"tidepool.io/scheduler-check": "deny"}));
    // Leases of a user, with more names than are registered in all: none of them counts.
    for lease in 0..17 {
        let names: Vec<String> = (0..64).map(|it| format!("forged-{lease}-{it}")).collect();
        let annotations = json!({"tidepool.io/scheduler-names": names.join(",")});
        fixture.api.create(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("a-{lease}"), "namespace": "team", "annotations": annotations},
            "spec": {"holderIdentity": "them", "leaseDurationSeconds": 300}}))
            .unwrap();
    }
    let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "profile"}, "spec": {"selector": {"matchLabels": {"profile": "yes"}}, "schedulerName": "of-profile"}});
    fixture.create_at(PROFILES, &profile);
    let with = |pod: Value, labels: Value| {
        let mut pod = pod;
        pod["metadata"]["labels"] = labels;
        pod
    };
    let becomes = |namespace: &str, pod: &Value, want: &str| {
        // The webhook sees labels, profiles and the ConfigMap a moment later.
        eventually(
            &format!("{} in {namespace} gets {want}", pod["metadata"]),
            PATIENCE,
            || {
                let made = fixture.dry_run(namespace, pod)?;
                let found = text(&made["spec"]["schedulerName"]);
                if found == want { Ok(()) } else { Err(found) }
            },
        );
    };
    becomes("default", &pod("p", "", ""), "default-scheduler");
    becomes("default", &pod("p", "own", "volcano"), "own");
    becomes("team", &pod("p", "", "other"), "other");
    becomes(
        "team",
        &with(pod("p", "", ""), json!({"profile": "yes"})),
        "of-profile",
    );
    becomes(
        "team",
        &with(pod("p", "", "volcano"), json!({"profile": "yes"})),
        "volcano",
    );
    becomes("team", &pod("p", "", ""), "volcano");
    becomes(
        "team",
        &with(
            pod("p", "", "other"),
            json!({"tidepool.io/keep-scheduler": "true"}),
        ),
        "default-scheduler",
    );
    fixture
        .api
        .patch(SCHEDULERS, &json!({"data": {"default": "cluster"}}))
        .unwrap();
    becomes("default", &pod("p", "", ""), "cluster");
    becomes("team", &pod("p", "", ""), "volcano");
    fixture
        .api
        .patch(SCHEDULERS, &json!({"data": {"default": "no name"}}))
        .unwrap();
    becomes("default", &pod("p", "", ""), "default-scheduler");
    cluster.names_become("default-scheduler,volcano");

    // Warnings reach the user, and are refusals where the namespace says so.
    let kubectl = fixture.control_plane.kubectl().unwrap();
    let deployment = |name: &str, template: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"foo": "bar"}}, "template": template}})
    };
    let mut template = pod("t", "", "volcanoo");
    for field in ["apiVersion", "kind"] {
        template.as_object_mut().unwrap().remove(field);
    }
    template["metadata"].as_object_mut().unwrap().remove("name");
    let unknown = "no scheduler \"volcanoo\" is running; did you mean \"volcano\"?";
    let disagree = "annotation scheduler.alpha.kubernetes.io/name is \"other\", but spec.schedulerName is \"volcano\", which counts";
    for (object, want) in [
        (pod("warned", "volcanoo", ""), unknown),
        (pod("disagrees", "volcano", "other"), disagree),
        (deployment("web", template), unknown),
    ] {
        std::fs::write(kubectl.directory().join("object.json"), object.to_string()).unwrap();
        let create = |namespace: &str| {
            let create = [
                "create",
                "-n",
                namespace,
                "--dry-run=server",
                "-f",
                "object.json",
            ];
            kubectl.run(&create, SHORT).unwrap()
        };
        let warned = create("default");
        assert!(
            warned.stderr.contains(&format!("Warning: {want}")),
            "{warned:?}"
        );
        assert_eq!(warned.code, Some(0), "{warned:?}");
        let refused = create("strict");
        assert!(refused.stderr.contains(want), "{refused:?}");
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
    assert!(
        fixture
            .dry_run("strict", &pod("fine", "volcano", ""))
            .is_ok()
    );
}
