//! The manifests give the scheduler the permissions that it uses, and no others. Those of the controllers are in
//! `policy_controller.rs`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::client::Connect;
use control_plane::election::Election;
use control_plane::scheduler::{Mode, Running};
use http::Request;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::reclaimed::define;
pub(crate) use crate::rights::{Right, granted, objects, of_kind};
use crate::rights::{right, texts};
use crate::support::{Fixture, NAMESPACE, eventually, object, options};
use crate::volumes::{bind_claim, claim_and_pod, claims, volume, volumes};

const SCHEDULER: &str = include_str!("../../../../deploy/scheduler.yaml");
const PRIMARY: &str = include_str!("../../../../deploy/scheduler-primary.yaml");

const CONTROLLERS: &str = include_str!("../../../../deploy/controllers.yaml");

/// A client that writes down what it is used for.
pub(crate) fn recording(fixture: &Fixture) -> (Client, Arc<Mutex<BTreeSet<Right>>>) {
    let used = Arc::new(Mutex::new(BTreeSet::new()));
    let service = fixture.faults.wrap(fixture.cluster.service());
    let service = ServiceExt::<Request<Body>>::map_request(service, {
        let used = used.clone();
        move |request: Request<Body>| {
            let uri = request.uri();
            let query = uri.query().unwrap_or_default();
            used.lock()
                .unwrap()
                .extend(right(request.method(), uri.path(), query));
            request
        }
    });
    (Client::new(service, NAMESPACE), used)
}

/// Everything that a scheduler ever does: takes the Lease, binds, loses an answer, fails twice, preempts, offers a volume.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_is_what_is_used() {
    let fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    define(&fixture).await;
    let (client, used) = recording(&fixture);
    let mut options = options();
    options.mode = Mode::Primary;
    options.election = Some(Election {
        namespace: NAMESPACE.into(),
        name: "lock".into(),
        identity: "a".into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_millis(200),
        sync_deadline: control_plane::election::SYNC_DEADLINE,
    });
    // The failure of a pod repeats soon, which makes its event a series.
    options.settings.timing.longest_parked = Duration::from_secs(1);
    let bind = Matching::new("create", "pods/binding");
    fixture.faults.next(1, bind, Fault::LostAnswer);
    let running = Running::start(Connect::Client(client), options).unwrap();
    fixture.add_pod("low", "3").await;
    fixture.all_placed(1).await;
    fixture.add_urgent_pod("urgent", "3").await;
    eventually("the victim goes", || async {
        let low = fixture.pods().get("low").await.unwrap();
        low.metadata.deletion_timestamp.ok_or("it stays")
    })
    .await;
    fixture.kill("low").await;
    fixture.all_placed(1).await;
    fixture.add_pod("giant", "100").await;
    let disk = object(volume());
    volumes(&fixture)
        .create(&PostParams::default(), &disk)
        .await
        .unwrap();
    let available = json!({"status": {"phase": "Available"}});
    volumes(&fixture)
        .patch_status("disk", &PatchParams::default(), &Patch::Merge(available))
        .await
        .unwrap();
    claim_and_pod(&fixture, "kubernetes.io/no-provisioner").await;
    eventually("the volume names the claim", || async {
        let volume = volumes(&fixture).get("disk").await.unwrap();
        volume.spec.unwrap().claim_ref.ok_or("no claim")
    })
    .await;
    assert!(claims(&fixture).get("data").await.is_ok());
    bind_claim(&fixture).await;
    fixture.all_placed(2).await;
    let patch_claims = (
        String::new(),
        "persistentvolumeclaims".to_owned(),
        "patch".to_owned(),
    );
    let mut want: BTreeSet<Right> = {
        let (second, primary) = (objects(SCHEDULER), objects(PRIMARY));
        let roles: Vec<&Value> = of_kind(&second, "ClusterRole")
            .chain(of_kind(&second, "Role"))
            .chain(of_kind(&primary, "ClusterRole"))
            .collect();
        granted(&roles)
    };
    // These two belong to the HTTP server, and that one to volumes that are made: they have tests of their own.
    for group in ["authentication.k8s.io", "authorization.k8s.io"] {
        let before = want.len();
        want.retain(|(found, ..)| found != group);
        assert_eq!(want.len(), before - 1, "{group}");
    }
    assert!(want.remove(&patch_claims));
    // The gate asks whether the scheduler has it; no request of the scheduler needs it.
    let bind = ("tidepool.io", "schedulers", "bind");
    let bind = (bind.0.to_owned(), bind.1.to_owned(), bind.2.to_owned());
    assert!(want.remove(&bind));
    eventually("every right has been used", || async {
        let missing: Vec<Right> = want.difference(&used.lock().unwrap()).cloned().collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(missing)
        }
    })
    .await;
    running.stop().await;
    let used = used.lock().unwrap().clone();
    let beyond: Vec<_> = used.difference(&want).collect();
    assert!(beyond.is_empty(), "used without a right: {beyond:?}");
}

/// Nothing is pulled that was built here, and the image runs as whom the manifests name.
#[test]
fn the_manifests_run_the_image_that_the_dockerfile_builds() {
    let dockerfile = include_str!("../../../../Dockerfile");
    for text in [SCHEDULER, PRIMARY, CONTROLLERS] {
        let objects = objects(text);
        let pod = &of_kind(&objects, "Deployment").next().unwrap()["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["command"], Value::Null);
        let image = container["image"].as_str().unwrap();
        assert!(dockerfile.contains(&format!("docker build -t {image} .")));
        let user = &pod["securityContext"]["runAsUser"];
        assert!(dockerfile.contains(&format!("\nUSER {user}:{user}\n")));
    }
}

#[test]
fn the_role_covers_the_lease_that_the_configuration_names() {
    for text in [SCHEDULER, PRIMARY] {
        let objects = objects(text);
        let map = of_kind(&objects, "ConfigMap").next().unwrap();
        let (configuration, warnings) =
            api::config::load(map["data"]["config.yaml"].as_str().unwrap()).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let election = configuration.leader_election;
        let role = of_kind(&objects, "Role").next().unwrap();
        assert_eq!(role["metadata"]["namespace"], election.resource_namespace);
        let rules = role["rules"].as_array().unwrap();
        let named = rules
            .iter()
            .find(|rule| rule["resourceNames"].is_array())
            .unwrap();
        assert_eq!(texts(&named["resourceNames"]), [election.resource_name]);
        let deployment = of_kind(&objects, "Deployment").next().unwrap();
        let args = texts(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
        assert!(
            args.contains(&"--config=/etc/tidepool/config.yaml".to_owned()),
            "{args:?}"
        );
    }
}

/// The files of `deploy/`, by name.
fn manifests() -> Vec<(String, Vec<Value>)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.path().extension().is_some_and(|it| it == "yaml"));
    let mut manifests: Vec<_> = files
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (
                name,
                objects(&std::fs::read_to_string(file.path()).unwrap()),
            )
        })
        .collect();
    manifests.sort_by(|a, b| a.0.cmp(&b.0));
    manifests
}

/// A new manifest, or another ServiceAccount with permissions, needs such a test.
#[test]
fn every_manifest_with_permissions_has_a_test_that_they_are_used() {
    let accounts = |objects: &[Value]| {
        let subjects = objects
            .iter()
            .flat_map(|it| it["subjects"].as_array().into_iter().flatten());
        let ours = subjects.filter(|it| it["kind"] == "ServiceAccount");
        let names: BTreeSet<String> = ours
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect();
        names.into_iter().collect::<Vec<_>>().join(",")
    };
    let found: Vec<(String, String)> = manifests()
        .iter()
        .map(|(file, objects)| (file.clone(), accounts(objects)))
        .filter(|(_, accounts)| !accounts.is_empty())
        .collect();
    let tested = [
        (
            "agent-node-taints.yaml",
            "tidepool-agent",
            include_str!("../../../agent/tests/all/permissions.rs"),
        ),
        (
            "agent.yaml",
            "tidepool-agent",
            include_str!("../../../agent/tests/all/permissions.rs"),
        ),
        (
            "controllers.yaml",
            "tidepool-controllers",
            include_str!("policy_controller.rs"),
        ),
        (
            "gate.yaml",
            "tidepool-gate",
            include_str!("../../../../e2e/tests/real/gate_permissions.rs"),
        ),
        (
            "scheduler-primary.yaml",
            "tidepool-scheduler",
            include_str!("permissions.rs"),
        ),
        (
            "scheduler.yaml",
            "tidepool-scheduler",
            include_str!("permissions.rs"),
        ),
        (
            "webhook.yaml",
            "tidepool-webhook",
            include_str!("webhook.rs"),
        ),
    ];
    let wanted = tested.map(|(file, account, _)| (file.to_owned(), account.to_owned()));
    assert_eq!(found, wanted);
    for (file, _, test) in tested {
        let compares = [
            "what_is_granted_is_what_is_used",
            "uses_every_permission_of_its_manifest",
        ];
        assert!(compares.iter().any(|it| test.contains(it)), "{file}");
    }
}

/// A component may read and change only its own Secret, which the manifest creates.
#[test]
fn nothing_is_granted_wholesale() {
    for (file, objects) in manifests() {
        for rule in objects
            .iter()
            .flat_map(|it| it["rules"].as_array().into_iter().flatten())
        {
            // Rules of webhooks have operations.
            if rule["verbs"].is_null() {
                continue;
            }
            let text = rule.to_string();
            for word in ["\"*\"", "nodes/proxy", "escalate", "impersonate"] {
                assert!(!text.contains(word), "{file}: {word} in {text}");
            }
            if text.contains("secrets") {
                let shipped: Vec<&str> = of_kind(&objects, "Secret")
                    .map(|it| it["metadata"]["name"].as_str().unwrap())
                    .collect();
                assert_eq!(texts(&rule["resourceNames"]), shipped, "{file}");
                assert_eq!(texts(&rule["verbs"]), ["get", "update"], "{file}");
                assert!(of_kind(&objects, "Secret").all(|it| it["data"].is_null()));
            }
        }
    }
}
