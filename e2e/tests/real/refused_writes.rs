//! Writes beyond the limits of the permissions and admission policies in `deploy/`: each is tried with the token of a component, and
//! refused. `refused_writes.yaml` has the attempts.

use std::collections::BTreeMap;
use std::path::Path;

use e2e::{Api, ControlPlane, eventually};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::policies::serve_policies;
use crate::shared_cluster::{SHORT, node, text};
use crate::webhook_fixture::manifests as webhook_manifests;

const ATTEMPTS: &str = include_str!("refused_writes.yaml");
const OURS: &str = "/api/v1/namespaces/tidepool-system";
const TEAM: &str = "/api/v1/namespaces/team";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/tidepool-system/leases";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/tidepool-system/events";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/tidepool-system/endpointslices";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    what: String,
    send: String,
    #[serde(default)]
    body: Value,
    refused: Option<String>,
}

impl Attempt {
    fn method(&self) -> Method {
        self.send.split(' ').next().unwrap().parse().unwrap()
    }

    /// The path, and the kind of what it has.
    fn path(&self) -> (String, &'static str, &'static str) {
        let short = self.send.split(' ').nth(1).unwrap();
        let (collection, rest) = match short.split_once('/') {
            Some((collection, rest)) => (collection, format!("/{rest}")),
            None => (short, String::new()),
        };
        let (path, version, kind) = match collection {
            "configmaps" => (format!("{OURS}/configmaps"), "v1", "ConfigMap"),
            "events" => (format!("{TEAM}/events"), "v1", "Event"),
            "new-events" => (EVENTS.to_owned(), "events.k8s.io/v1", "Event"),
            "leases" => (LEASES.to_owned(), "coordination.k8s.io/v1", "Lease"),
            "metrics" => (
                METRICS.to_owned(),
                "slo.koordinator.sh/v1alpha1",
                "NodeMetric",
            ),
            "nodes" => ("/api/v1/nodes".to_owned(), "v1", "Node"),
            "pods" => (format!("{TEAM}/pods"), "v1", "Pod"),
            "reports" => (
                REPORTS.to_owned(),
                "node.katalyst.kubewharf.io/v1alpha1",
                "CustomNodeResource",
            ),
            "secrets" => (format!("{OURS}/secrets"), "v1", "Secret"),
            "slices" => (SLICES.to_owned(), "discovery.k8s.io/v1", "EndpointSlice"),
            other => panic!("{other} has no path"),
        };
        (path + &rest, version, kind)
    }

    /// Why it is refused; none if it is allowed.
    fn make(&self, caller: &Api) -> Option<String> {
        let (path, version, kind) = self.path();
        let mut body = self.body.clone();
        // Leases are updated only with the version that the caller has read.
        if self.method() == Method::PUT
            && let Ok(found) = caller.get(&path)
        {
            body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
        }
        if let (Method::POST | Method::PUT, Some(fields)) = (self.method(), body.as_object_mut()) {
            fields.entry("apiVersion").or_insert(version.into());
            fields.entry("kind").or_insert(kind.into());
            match (kind, version) {
                ("Event", "v1") => {
                    fields["metadata"]["namespace"] = "team".into();
                    let about = json!({"namespace": "team", "name": "p"});
                    fields.insert("involvedObject".to_owned(), about);
                }
                ("Event", _) => {
                    // As leaders write it, without the source that events of the core group have.
                    fields["metadata"]["namespace"] = NAMESPACE.into();
                    let about = json!({"kind": "Lease", "namespace": NAMESPACE, "name": "l"});
                    fields.insert("regarding".to_owned(), about);
                    fields.insert("eventTime".to_owned(), "2026-01-01T00:00:00.000000Z".into());
                    for (key, value) in [("type", "Normal"), ("reportingInstance", "me")] {
                        fields.insert(key.to_owned(), value.into());
                    }
                    for key in ["action", "reason"] {
                        fields.insert(key.to_owned(), "LeaderElection".into());
                    }
                }
                _ => {}
            }
        }
        let answer = caller.send(self.method(), &path, &body);
        answer.err().map(|error| format!("{error:#}"))
    }
}

/// A control plane with the kinds and permissions of all components, two nodes and a user's pod.
fn start() -> (ControlPlane, Api) {
    let control_plane = deployed::start(&[]);
    let api = serve_policies(&control_plane);
    let crds = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds"));
    for (file, path) in [
        ("slo.koordinator.sh_nodemetrics.yaml", METRICS),
        (
            "node.katalyst.kubewharf.io_customnoderesources.yaml",
            REPORTS,
        ),
    ] {
        deployed::serve_definition(&control_plane, &crds.join(file), path);
    }
    let files = [
        include_str!("../../../deploy/agent.yaml"),
        include_str!("../../../deploy/agent-node-taints.yaml"),
        include_str!("../../../deploy/controllers.yaml"),
        include_str!("../../../deploy/gate.yaml"),
    ];
    let files = files.map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap());
    let mut objects = [files.concat(), webhook_manifests()].concat();
    // No pods run, and no webhook answers.
    objects.retain(|it| it["kind"] != "DaemonSet" && it.get("webhooks").is_none());
    deployed::apply(&control_plane, objects);
    for name in ["a", "b"] {
        api.create(&node(name, "zone", json!({}))).unwrap();
    }
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    api.create(&team).unwrap();
    for (namespace, name, account) in [
        ("team", "p", "default"),
        (NAMESPACE, "agent-a", "tidepool-agent"),
    ] {
        let annotations = json!({"empty": "", "theirs": "1"});
        api.create(&json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"nodeName": "a", "serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}}))
            .unwrap();
    }
    let waits = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.create(&waits).unwrap();
    for (name, labels) in [
        ("agent-gone", json!({"tidepool.io/agent": "true"})),
        ("agent-unlabelled", json!({})),
        ("tidepool-gate", json!({"tidepool.io/agent": "true"})),
    ] {
        api.create(
            &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels}, "spec": {}}),
        )
        .unwrap();
    }
    let theirs = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "theirs", "namespace": "team"},
        "involvedObject": {"namespace": "team", "name": "p"}, "source": {"component": "them"}});
    api.post(&format!("{TEAM}/events"), &theirs).unwrap();
    (control_plane, api)
}

/// A token of the agent in this pod, so of the agent of the pod's node.
pub(crate) fn bound_token(control_plane: &ControlPlane, api: &Api, pod: &str) -> Api {
    let uid = &api.get(&format!("{OURS}/pods/{pod}")).unwrap()["metadata"]["uid"];
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound}});
    let path = format!("{OURS}/serviceaccounts/tidepool-agent/token");
    let mut user = control_plane.admin();
    user.token = text(&api.post(&path, &request).unwrap()["status"]["token"]);
    Api::new(&user).unwrap()
}

#[test]
fn components_write_only_what_is_theirs() {
    let (control_plane, api) = start();
    let all: BTreeMap<String, Vec<Attempt>> = serde_saphyr::from_str(ATTEMPTS).unwrap();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "probe"}});
    let account = |name: &str| Api::new(&deployed::account(&control_plane, NAMESPACE, name));
    // The API server reads policies a moment after they were created.
    for who in ["agent", "controllers", "gate", "scheduler"] {
        let caller = account(&format!("tidepool-{who}")).unwrap();
        eventually("the policy is in force", SHORT, || {
            let answer = caller.post(&format!("{LEASES}?dryRun=All"), &lease).err();
            match answer.map(|error| format!("{error:#}")) {
                Some(text) if text.contains("ValidatingAdmissionPolicy") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
    let mut wrong = Vec::new();
    for (who, attempts) in &all {
        let caller = match &**who {
            "agent" => bound_token(&control_plane, &api, "agent-a"),
            "unbound-agent" => account("tidepool-agent").unwrap(),
            component => account(&format!("tidepool-{component}")).unwrap(),
        };
        for attempt in attempts {
            let (found, want) = (attempt.make(&caller), &attempt.refused);
            let is_right = match (&found, want) {
                (Some(found), Some(want)) => found.contains(want),
                (found, want) => found.is_none() && want.is_none(),
            };
            if !is_right {
                let what = &attempt.what;
                wrong.push(format!("{who}, {what}: found {found:?}, not {want:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(all.values().map(Vec::len).sum::<usize>() > 80);
}
