//! The annotations of pods that one component writes and others believe, on the real API server with deploy/policies.yaml: who may
//! write them, through the pod and through its subresources.

use e2e::{Api, User, eventually};
use serde_json::{Value, json};

use crate::deployed::{self, NAMESPACE};
use crate::shared_cluster::{SHORT, node, pod, text};

const ZONES: &str = "tidepool.io/numa-zones";
const UNIT: &str = "tidepool.io/policy-unit";
const PROFILES: &str = "tidepool.io/profiles";
const TIERS: &str = "node.koordinator.sh/extended-resource-spec";
const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";
const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const MEMORY: &str = "katalyst.kubewharf.io/memory_enhancement";
const CLASS: &str = "koordinator.sh/qosClass";
const BAND: &str = "koordinator.sh/priority-class";
const SUB_PRIORITY: &str = "koordinator.sh/priority";

const ALICE: &str = "alice";
const KUBELET: &str = "system:node:n1";
const OTHER_KUBELET: &str = "system:node:n2";
const CONTROLLERS: &str = "controllers";
const ADMIN: &str = "admin";

/// What is sent: a new pod, or a change through the pod or one of its subresources.
enum Write {
    New(Value),
    Change(&'static str, Value),
}
use Write::{Change, New};

fn annotated(name: &str, node: &str, annotations: Value) -> Write {
    let mut pod = pod(name, json!({}));
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod["metadata"]["annotations"] = annotations;
    New(pod)
}

fn change(place: &'static str, annotations: Value) -> Write {
    Change(place, json!({"metadata": {"annotations": annotations}}))
}

fn label(place: &'static str, labels: Value) -> Write {
    Change(place, json!({"metadata": {"labels": labels}}))
}

/// With every permission on pods but that to bind them, which is more than `edit` and `admin` give.
fn allow(api: &Api, subjects: Value) {
    let resources = [
        "pods",
        "pods/ephemeralcontainers",
        "pods/resize",
        "pods/status",
    ];
    let verbs = ["create", "delete", "get", "patch", "update"];
    for object in [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "authors"},
            "rules": [{"apiGroups": [""], "resources": resources, "verbs": verbs}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "authors"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "authors"},
            "subjects": subjects}),
    ] {
        api.create(&object).unwrap();
    }
}

const BINDING: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/tidepool-pod-annotations";

#[test]
fn only_its_owner_writes_an_annotation_that_components_believe() {
    let user = |name: &str| User {
        name: name.to_owned(),
        groups: Vec::new(),
    };
    let names = [ALICE, KUBELET, OTHER_KUBELET];
    let control_plane = deployed::start_as(names.map(user).into(), &[], &[]);
    let api = Api::new(&control_plane.admin()).unwrap();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "tidepool-controllers", "namespace": NAMESPACE}});
    api.create(&account).unwrap();
    let mut subjects: Vec<Value> = names
        .map(|name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}))
        .into();
    subjects.push(
        json!({"kind": "ServiceAccount", "name": "tidepool-controllers", "namespace": NAMESPACE}),
    );
    allow(&api, subjects.into());
    let apis: Vec<(&str, Api)> = names
        .map(|name| (name, Api::new(&control_plane.kubeconfig(name)).unwrap()))
        .into_iter()
        .chain([
            (CONTROLLERS, {
                let user = deployed::account(&control_plane, NAMESPACE, "tidepool-controllers");
                Api::new(&user).unwrap()
            }),
            (ADMIN, Api::new(&control_plane.admin()).unwrap()),
        ])
        .collect();
    api.create(&node("n1", "zone", json!({}))).unwrap();
    let send = |user: &str, write: &Write| {
        let (_, api) = apis.iter().find(|(name, _)| *name == user).unwrap();
        let sent = match write {
            New(pod) => api.create(pod),
            Change(place, patch) => {
                api.patch(&format!("/api/v1/namespaces/default/pods/{place}"), patch)
            }
        };
        sent.map(|_| ()).map_err(|error| format!("{error:#}"))
    };
    // From before the policy.
    api.delete(BINDING).unwrap();
    eventually("the policy does not count", SHORT, || {
        send(ALICE, &annotated("old", "", json!({ZONES: "0,1"})))
    });
    deployed::apply(&control_plane, deployed::policies());
    let mut tries = 0;
    eventually("the policy counts", SHORT, || {
        tries += 1;
        let forged = annotated(&format!("try-{tries}"), "", json!({ZONES: "0"}));
        match send(ALICE, &forged) {
            Err(_) => Ok(()),
            Ok(()) => Err("the pod was created".to_owned()),
        }
    });
    for name in ["bound", "waiting"] {
        send(
            ALICE,
            &annotated(name, "", json!({PROFILES: "a", TIERS: "{}"})),
        )
        .unwrap();
    }
    let binding = json!({"apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": "bound", "annotations": {ZONES: "0", UNIT: "p/u=1"}},
        "target": {"kind": "Node", "name": "n1"}});
    api.post("/api/v1/namespaces/default/pods/bound/binding", &binding)
        .unwrap();

    let scheduler = "tidepool.io/numa-zones of pod NAME belongs to the scheduler, which sets it with the Binding: no other user";
    let unit = "tidepool.io/policy-unit of pod NAME belongs to the scheduler and the controller of ResourcePolicies: no other user";
    let profiles =
        "tidepool.io/profiles of pod NAME belongs to the admission webhook: no other user";
    let tiers =
        "extended-resource-spec of pod NAME belongs to the admission webhook: no other user";
    let kubelet =
        "kubernetes.io/config.* of pod NAME belong to the kubelet of node n1: no other user";
    let none =
        "kubernetes.io/config.* of pod NAME belong to the kubelet of a static pod: no other user";
    let mirror = || json!({MIRROR: "h", HASH: "h"});
    let level = format!("annotation {LEVEL} of pod NAME is immutable: create a new pod instead");
    let memory = format!("annotation {MEMORY} of pod NAME is immutable");
    let class = format!("label {CLASS} of pod NAME is immutable");
    let band = format!("label {BAND} of pod NAME is immutable");
    let sub_priority = format!("label {SUB_PRIORITY} of pod NAME is immutable");
    let exclusive = || json!({MEMORY: r#"{"numa_binding": "true", "numa_exclusive": "true"}"#});
    for (case, user, write, name, want) in [
        (
            "zones of a new pod",
            ALICE,
            annotated("a", "", json!({ZONES: "0,1"})),
            "a",
            scheduler,
        ),
        (
            "from an administrator",
            ADMIN,
            annotated("a", "", json!({ZONES: "0,1"})),
            "a",
            scheduler,
        ),
        (
            "of a pod with a node",
            ALICE,
            annotated("a", "n1", json!({ZONES: "0"})),
            "a",
            scheduler,
        ),
        (
            "no zones",
            ALICE,
            annotated("empty", "", json!({ZONES: ""})),
            "empty",
            "",
        ),
        (
            "zones of a pod that waits",
            ALICE,
            change("waiting", json!({ZONES: "0"})),
            "waiting",
            scheduler,
        ),
        (
            "from before the policy, unchanged",
            ALICE,
            change("old", json!({"note": "x"})),
            "old",
            "",
        ),
        (
            "changed",
            ALICE,
            change("old", json!({ZONES: "0"})),
            "old",
            scheduler,
        ),
        (
            "taken off",
            ALICE,
            change("old", json!({ZONES: null})),
            "old",
            "",
        ),
        (
            "more zones of a bound pod",
            ALICE,
            change("bound", json!({ZONES: "0,1"})),
            "bound",
            scheduler,
        ),
        (
            "none",
            ALICE,
            change("bound", json!({ZONES: null})),
            "bound",
            scheduler,
        ),
        (
            "empty ones",
            ALICE,
            change("bound", json!({ZONES: ""})),
            "bound",
            scheduler,
        ),
        (
            "through its status",
            ALICE,
            change("bound/status", json!({ZONES: "0,1"})),
            "bound",
            scheduler,
        ),
        (
            "from a kubelet",
            KUBELET,
            change("bound/status", json!({ZONES: "0,1"})),
            "bound",
            scheduler,
        ),
        (
            "from the controllers",
            CONTROLLERS,
            change("bound", json!({ZONES: "0,1"})),
            "bound",
            scheduler,
        ),
        (
            "from an administrator",
            ADMIN,
            change("bound", json!({ZONES: "0,1"})),
            "bound",
            scheduler,
        ),
        (
            "a unit of a new pod",
            ALICE,
            annotated("a", "", json!({UNIT: "p/u=9"})),
            "a",
            unit,
        ),
        (
            "of a bound pod",
            ALICE,
            change("bound", json!({UNIT: "p/u=9"})),
            "bound",
            unit,
        ),
        (
            "through its status",
            ALICE,
            change("bound/status", json!({UNIT: "p/u=9"})),
            "bound",
            unit,
        ),
        (
            "from the controllers",
            CONTROLLERS,
            change("bound", json!({UNIT: "p/u=2"})),
            "bound",
            "",
        ),
        (
            "other profiles",
            ALICE,
            change("bound", json!({PROFILES: "b"})),
            "bound",
            profiles,
        ),
        (
            "no profiles",
            ALICE,
            change("bound", json!({PROFILES: null})),
            "bound",
            profiles,
        ),
        (
            "through its status",
            ALICE,
            change("bound/status", json!({PROFILES: "b"})),
            "bound",
            profiles,
        ),
        (
            "other tier resources",
            ALICE,
            change("bound", json!({TIERS: "{\"containers\":{}}"})),
            "bound",
            tiers,
        ),
        (
            "a hash of a new pod",
            ALICE,
            annotated("a", "", json!({HASH: "h"})),
            "a",
            none,
        ),
        (
            "a mirror pod of a user",
            ALICE,
            annotated("a", "n1", mirror()),
            "a",
            kubelet,
        ),
        (
            "of another kubelet",
            OTHER_KUBELET,
            annotated("a", "n1", mirror()),
            "a",
            kubelet,
        ),
        (
            "of its kubelet",
            KUBELET,
            annotated("mirror", "n1", mirror()),
            "mirror",
            "",
        ),
        (
            "another hash of it",
            ALICE,
            change("mirror", json!({HASH: "x"})),
            "mirror",
            kubelet,
        ),
        (
            "without a hash",
            ALICE,
            change("mirror", json!({HASH: null})),
            "mirror",
            kubelet,
        ),
        (
            "a hash of a bound pod",
            ALICE,
            change("bound", json!({HASH: "x"})),
            "bound",
            kubelet,
        ),
        (
            "through its status",
            ALICE,
            change("bound/status", json!({HASH: "x"})),
            "bound",
            kubelet,
        ),
        (
            "from the controllers",
            CONTROLLERS,
            change("bound", json!({HASH: "x"})),
            "bound",
            kubelet,
        ),
        (
            "from another kubelet",
            OTHER_KUBELET,
            change("bound", json!({HASH: "x"})),
            "bound",
            kubelet,
        ),
        (
            "a key that begins alike",
            ALICE,
            change("bound", json!({"kubernetes.io/configured": "x"})),
            "bound",
            "",
        ),
        (
            "the class of a new pod",
            ALICE,
            annotated(
                "classed",
                "",
                json!({LEVEL: "dedicated_cores", MEMORY: r#"{"numa_binding": "true"}"#}),
            ),
            "classed",
            "",
        ),
        (
            "a level of a bound pod",
            ALICE,
            change("bound", json!({LEVEL: "dedicated_cores"})),
            "bound",
            &level,
        ),
        (
            "of a pod that waits",
            ALICE,
            change("classed", json!({LEVEL: null})),
            "classed",
            &level,
        ),
        (
            "through its status",
            KUBELET,
            change("bound/status", json!({LEVEL: "reclaimed_cores"})),
            "bound",
            &level,
        ),
        (
            "from an administrator",
            ADMIN,
            change("bound", json!({LEVEL: "dedicated_cores"})),
            "bound",
            &level,
        ),
        (
            "the whole zone",
            ALICE,
            change("bound", exclusive()),
            "bound",
            &memory,
        ),
        (
            "from the controllers",
            CONTROLLERS,
            change("bound", exclusive()),
            "bound",
            &memory,
        ),
        (
            "through its status",
            ALICE,
            change("bound/status", exclusive()),
            "bound",
            &memory,
        ),
        (
            "before the bind",
            ALICE,
            change("classed", exclusive()),
            "classed",
            &memory,
        ),
        (
            "no zone",
            ALICE,
            change("classed", json!({MEMORY: null})),
            "classed",
            &memory,
        ),
        (
            "a class",
            ALICE,
            label("bound", json!({CLASS: "LSE"})),
            "bound",
            &class,
        ),
        (
            "through its status",
            KUBELET,
            label("bound/status", json!({CLASS: "LSE"})),
            "bound",
            &class,
        ),
        (
            "a band",
            ALICE,
            label("bound", json!({BAND: "koord-free"})),
            "bound",
            &band,
        ),
        (
            "a priority in it",
            ALICE,
            label("bound", json!({SUB_PRIORITY: "1"})),
            "bound",
            &sub_priority,
        ),
        (
            "another label",
            ALICE,
            label("bound", json!({"koordinator.sh/other": "x"})),
            "bound",
            "",
        ),
        (
            "another annotation",
            ALICE,
            change(
                "classed",
                json!({"katalyst.kubewharf.io/cpu_enhancement": "{}"}),
            ),
            "classed",
            "",
        ),
        (
            "a status",
            KUBELET,
            Change("bound/status", json!({"status": {"phase": "Running"}})),
            "bound",
            "",
        ),
    ] {
        let found = send(user, &write).err().unwrap_or_default();
        match want {
            "" => assert_eq!(found, "", "{case}"),
            want => {
                let want = want.replace("NAME", name);
                assert!(found.contains(&want), "{case}: {found}");
            }
        }
    }
    // Other subresources take what is theirs of the pod and neither annotations nor labels, whatever they answer.
    for place in ["bound/resize", "bound/ephemeralcontainers"] {
        for annotations in [
            json!({ZONES: "0,1"}),
            json!({UNIT: "p/u=9"}),
            json!({HASH: "x"}),
            json!({LEVEL: "dedicated_cores"}),
            exclusive(),
        ] {
            let _ = send(ALICE, &change(place, annotations));
        }
        let _ = send(ALICE, &label(place, json!({CLASS: "LSE"})));
    }
    let bound = api.get("/api/v1/namespaces/default/pods/bound").unwrap();
    let want = json!({ZONES: "0", UNIT: "p/u=2", PROFILES: "a", TIERS: "{}", "kubernetes.io/configured": "x"});
    assert_eq!(bound["metadata"]["annotations"], want);
    assert_eq!(bound["metadata"]["labels"][CLASS], Value::Null);
    let gone = change("bound", json!({UNIT: null}));
    send(ALICE, &gone).unwrap();
    check_user_roles(&api);
}

/// A Binding may have any annotation, and the webhook is not asked about these subresources, but about pods/resize: no role of
/// Kubernetes gives users the permission to write them.
fn check_user_roles(api: &Api) {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let subresources = [
        "bindings",
        "pods/binding",
        "pods/ephemeralcontainers",
        "pods/resize",
        "pods/status",
    ];
    for role in ["view", "edit", "admin"] {
        let path = format!("{roles}/system:aggregate-to-{role}");
        let role = api.get(&path).unwrap();
        let writes = |resource: &str| {
            let rules = role["rules"].as_array().unwrap().iter();
            let has = |rule: &Value, field: &str, names: &[&str]| {
                let all = rule[field].as_array().into_iter().flatten();
                all.map(text).any(|it| names.contains(&&*it))
            };
            let verbs = ["create", "update", "patch", "*"];
            let mut writing = rules.filter(|rule| has(rule, "verbs", &verbs));
            let all = format!("{}/*", resource.split('/').next().unwrap());
            writing.any(|rule| has(rule, "resources", &[resource, &all, "*", "*/*"]))
        };
        for resource in subresources {
            assert!(!writes(resource), "{path}: {resource}");
        }
        // The role `admin` contains `edit`.
        assert_eq!(writes("pods"), path.ends_with("edit"), "{path}");
    }
}
