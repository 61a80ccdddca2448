//! The manifests give the scheduler the permissions that it uses, and no others. Those of the controllers are in
//! `policy_controller.rs`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::client::Connect;
use control_plane::election::Election;
use control_plane::scheduler::{Mode, Running};
use http::{Method, Request};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::reclaimed::define;
use crate::support::{Fixture, NAMESPACE, eventually, object, options};
use crate::volumes::{bind_claim, claim_and_pod, claims, volume, volumes};

const SCHEDULER: &str = include_str!("../../../../deploy/scheduler.yaml");
const PRIMARY: &str = include_str!("../../../../deploy/scheduler-primary.yaml");

const CONTROLLERS: &str = include_str!("../../../../deploy/controllers.yaml");

/// Group, resource with its subresource, verb.
pub(crate) type Right = (String, String, String);

pub(crate) fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn granted(roles: &[&Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in roles
        .iter()
        .flat_map(|role| role["rules"].as_array().unwrap())
    {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    rights.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    rights
}

/// What a request needs.
fn right(method: &Method, path: &str, query: &str) -> Option<Right> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match &parts[..] {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        // Open to everybody.
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let named = rest.len() > 1;
    let resource = match rest {
        [resource, _, sub] => format!("{resource}/{sub}"),
        [resource, ..] => (*resource).to_owned(),
        [] => return None,
    };
    let verb = match *method {
        Method::GET if query.contains("watch=1") || query.contains("watch=true") => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    Some((group.to_owned(), resource, verb.to_owned()))
}

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

#[test]
fn nothing_is_granted_wholesale() {
    for object in [SCHEDULER, PRIMARY, CONTROLLERS].map(objects).concat() {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            for word in ["\"*\"", "nodes/proxy", "secrets", "escalate", "impersonate"] {
                assert!(!text.contains(word), "{word} in {text}");
            }
        }
    }
}
