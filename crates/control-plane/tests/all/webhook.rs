//! The webhook on the embedded cluster: its certificate, its permissions, and the bodies that it gets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::contracts::COLOCATION;
use apiserver::{ServiceBackend, ServiceHandler};
use control_plane::client::Connect;
use control_plane::serve::TlsFiles;
use control_plane::webhook::bind_permission::BindAuthorization;
use control_plane::webhook::certificates::{
    CertificateKeeper, CertificateOptions, CertificatePeriods, Configuration, ManagedCertificate,
};
use control_plane::webhook::server::{immediate, respond};
use control_plane::webhook::settings;
use control_plane::webhook::{NAME, Webhook, WebhookOptions};
use engine::admission::SystemNamespaces;
use futures::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use kube::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::permissions::{granted, objects, of_kind, recording};
use crate::reclaimed::define;
use crate::support::{Fixture, NAMESPACE, eventually};

const MANIFEST: &str = include_str!("../../../../deploy/webhook.yaml");

fn options(certificates: CertificateOptions) -> WebhookOptions {
    WebhookOptions {
        bind_authorization: BindAuthorization::Audit,
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        certificates,
        namespace: NAMESPACE.to_owned(),
        system_namespaces: SystemNamespaces::default(),
        serve: None,
        shutdown_delay: Duration::ZERO,
    }
}

pub(crate) fn managed(renewal: Option<Duration>) -> CertificateOptions {
    let periods = CertificatePeriods {
        renew_certificate: renewal,
        renew_authority: renewal.map(|renewal| 2 * renewal),
        settle: Duration::from_millis(200),
        check: Duration::from_millis(50),
        ..CertificatePeriods::default()
    };
    CertificateOptions::Managed(ManagedCertificate {
        namespace: NAMESPACE.to_owned(),
        name: NAME.to_owned(),
        configurations: &[
            Configuration::Mutating,
            Configuration::Validating,
            Configuration::Evictions,
        ],
        hosts: vec!["127.0.0.1".to_owned()],
        periods,
    })
}

/// A webhook that runs until the test ends.
struct RunningWebhook {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl RunningWebhook {
    fn start(client: Client, certificates: CertificateOptions) -> Self {
        Self::start_with(client, options(certificates))
    }

    fn start_with(client: Client, options: WebhookOptions) -> Self {
        let webhook = Webhook::new(Connect::Client(client), options).unwrap();
        let address = webhook.address();
        let task = tokio::spawn(async move {
            webhook.run(std::future::pending()).await.unwrap();
        });
        Self { address, task }
    }
}

impl Drop for RunningWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The objects of the manifest that the webhook writes or reads.
pub(crate) async fn install(fixture: &Fixture) {
    define(fixture).await;
    for object in objects(MANIFEST) {
        let plural = match object["kind"].as_str().unwrap() {
            "MutatingWebhookConfiguration" => {
                "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
            }
            "ValidatingWebhookConfiguration" => {
                "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
            }
            "PriorityClass" => "scheduling.k8s.io/v1/priorityclasses",
            _ => continue,
        };
        post(fixture, &format!("/apis/{plural}"), &object).await;
    }
    create_secret(fixture, NAMESPACE, NAME).await;
}

/// Without data, as the manifests have it.
pub(crate) async fn create_secret(fixture: &Fixture, namespace: &str, name: &str) {
    let secret = json!({"metadata": {"name": name}});
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    post(fixture, &path, &secret).await;
}

pub(crate) async fn post(fixture: &Fixture, path: &str, object: &Value) -> Value {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    fixture.client.request(request.unwrap()).await.unwrap()
}

pub(crate) async fn get(fixture: &Fixture, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    fixture.client.request(request).await.unwrap()
}

/// The CAs that the configurations trust.
async fn bundle(fixture: &Fixture) -> Vec<CertificateDer<'static>> {
    let path =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tidepool-webhook";
    let configuration = get(fixture, path).await;
    let bundle = configuration["webhooks"][2]["clientConfig"]["caBundle"].clone();
    let bundle: ByteString = serde_json::from_value(bundle).unwrap_or_default();
    CertificateDer::pem_slice_iter(&bundle.0)
        .flatten()
        .collect()
}

/// A client that trusts these CAs.
pub(crate) fn caller(address: SocketAddr, roots: &[CertificateDer<'_>]) -> Client {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(roots.iter().map(|it| it.to_vec()).collect());
    Client::try_from(config).unwrap()
}

pub(crate) async fn call(
    client: &Client,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, String), String> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(kube::client::Body::from(body)).unwrap();
    let response = client
        .send(request)
        .await
        .map_err(|error| format!("{error:?}"))?;
    let status = response.status();
    let body = response
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok((
        status,
        String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    ))
}

fn review(pod: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "uid", "operation": "CREATE", "namespace": "shop", "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod}})
}

fn batch_pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"priorityClassName": "koord-batch",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_and_bodies_that_are_none() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let webhook = RunningWebhook::start(fixture.client.clone(), managed(None));
    let client = eventually("the webhook answers with a trusted certificate", || async {
        let client = caller(webhook.address, &bundle(&fixture).await);
        call(
            &client,
            "/mutate-pods",
            review(&batch_pod()).to_string().into_bytes(),
        )
        .await?;
        Ok::<_, String>(client)
    })
    .await;
    let send = async |path: &str, body: Vec<u8>| call(&client, path, body).await.unwrap();
    let (status, text) = send(
        "/mutate-pods",
        review(&batch_pod()).to_string().into_bytes(),
    )
    .await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status.as_u16(), &answer["response"]["allowed"]),
        (200, &json!(true))
    );
    let patch: ByteString = serde_json::from_value(answer["response"]["patch"].clone()).unwrap();
    assert!(
        String::from_utf8_lossy(&patch.0).contains("kubernetes.io~1batch-cpu"),
        "{text}"
    );

    let (_, text) = send(
        "/validate-pods",
        review(&batch_pod()).to_string().into_bytes(),
    )
    .await;
    assert!(
        text.contains("requests.cpu is 1: a pod of class batch or reclaimed"),
        "{text}"
    );
    let mut own = review(&batch_pod());
    own["request"]["namespace"] = json!("kube-system");
    let (_, text) = send("/validate-pods", own.to_string().into_bytes()).await;
    assert!(
        text.contains(r#""allowed":true"#),
        "pods of kube-system pass: {text}"
    );

    // The name of the caller reaches the decision.
    let mirror = json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "h"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]}});
    for (user, want) in [
        ("system:node:n", r#""allowed":true"#),
        ("system:node:m", "belongs to the kubelet of node n"),
        ("alice", "belongs to the kubelet of node n"),
    ] {
        let mut review = review(&mirror);
        review["request"]["userInfo"] = json!({"username": user});
        let (_, text) = send("/validate-pods", review.to_string().into_bytes()).await;
        assert!(text.contains(want), "{user}: {text}");
    }
    // Each key has its owner, and what the author chose stays.
    let kept = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}});
    for (key, value, want) in [
        (
            "tidepool.io/numa-zones",
            "0",
            "belongs to the scheduler, which sets it with the Binding",
        ),
        (
            "tidepool.io/profiles",
            "a",
            "belongs to the admission webhook",
        ),
        (
            "node.koordinator.sh/extended-resource-spec",
            "{}",
            "belongs to the admission webhook",
        ),
        (
            "katalyst.kubewharf.io/qos_level",
            "dedicated_cores",
            "is immutable",
        ),
        (
            "katalyst.kubewharf.io/memory_enhancement",
            r#"{"numa_exclusive":"true"}"#,
            "is immutable",
        ),
    ] {
        let mut review = review(&kept);
        review["request"]["userInfo"] = json!({"username": "alice"});
        review["request"]["operation"] = json!("UPDATE");
        review["request"]["oldObject"] = kept.clone();
        review["request"]["object"]["metadata"]["annotations"][key] = json!(value);
        let (_, text) = send("/validate-pods", review.to_string().into_bytes()).await;
        let is_refused = text.contains(key) && text.contains(want);
        assert!(is_refused, "{key}: {text}");
    }
    // And the name of the controllers, which run in the namespace of the webhook.
    let controllers = format!("system:serviceaccount:{NAMESPACE}:tidepool-controllers");
    for (user, want) in [
        (&*controllers, r#""allowed":true"#),
        ("alice", "the controller of ResourcePolicies"),
    ] {
        let mut review = review(&mirror);
        review["request"]["userInfo"] = json!({"username": user});
        review["request"]["operation"] = json!("UPDATE");
        review["request"]["oldObject"] = mirror.clone();
        review["request"]["object"]["metadata"]["annotations"]["tidepool.io/policy-unit"] =
            json!("p/u=1");
        let (_, text) = send("/validate-pods", review.to_string().into_bytes()).await;
        assert!(text.contains(want), "{user}: {text}");
    }

    let valid = review(&batch_pod()).to_string().into_bytes();
    let mut older = review(&batch_pod());
    older["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let table = json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "rows": []});
    let mut long = batch_pod();
    long["metadata"]["annotations"] = json!({"long": "x".repeat(20 << 20)});
    for (case, body, want, words) in [
        (
            "another version",
            older.to_string().into_bytes(),
            400,
            "not AdmissionReview of admission.k8s.io/v1",
        ),
        ("a table", table.to_string().into_bytes(), 400, "`Table`"),
        ("half of it", valid[..valid.len() / 2].to_vec(), 400, "EOF"),
        ("nothing", Vec::new(), 400, "EOF"),
        (
            "20 MiB",
            review(&long).to_string().into_bytes(),
            200,
            r#""patchType":"JSONPatch""#,
        ),
        (
            "no pod",
            review(&json!({"kind": "Table"})).to_string().into_bytes(),
            200,
            "the object is a Table, not a Pod",
        ),
    ] {
        let (status, text) = send("/mutate-pods", body).await;
        assert_eq!(status.as_u16(), want, "{case}: {text}");
        assert!(text.contains(words), "{case}: {text}");
    }
    let (status, _) = send("/elsewhere", valid).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// Answers as the cluster does, but no user may bind pods.
fn without_binders(fixture: &Fixture) -> Client {
    let inner = fixture.client.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inner = inner.clone();
        async move {
            if !request.uri().path().ends_with("subjectaccessreviews") {
                return inner.send(request).await;
            }
            let answer = json!({"status": {"allowed": false}}).to_string();
            Ok(http::Response::new(kube::client::Body::from(
                answer.into_bytes(),
            )))
        }
    });
    Client::new(service, NAMESPACE)
}

/// Any user can write the annotation of a mirror pod: only the kubelet of the pod's node passes the check of spec.nodeName with it.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_kubelet_of_the_node_creates_mirror_pods_there() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let options = WebhookOptions {
        bind_authorization: BindAuthorization::Enforce,
        ..options(managed(None))
    };
    let webhook = RunningWebhook::start_with(without_binders(&fixture), options);
    let judge = async |client: &Client, user: &str, pod: &Value| {
        let mut review = review(pod);
        review["request"]["userInfo"] = json!({"username": user});
        let body = review.to_string().into_bytes();
        call(client, "/validate-node-names", body).await
    };
    let on = |node: &str, annotations: Value| {
        json!({"metadata": {"name": "p", "annotations": annotations},
            "spec": {"nodeName": node, "schedulerName": "s", "containers": [{"name": "c"}]}})
    };
    let mirror = on("n", json!({"kubernetes.io/config.mirror": "h"}));
    let client = eventually("the webhook answers", || async {
        let client = caller(webhook.address, &bundle(&fixture).await);
        judge(&client, "alice", &mirror).await?;
        Ok::<_, String>(client)
    })
    .await;
    let refused = "has no permission to bind pods of scheduler `s`";
    let allowed = r#""allowed":true"#;
    for (case, user, pod, want) in [
        ("of a user", "alice", &mirror, refused),
        ("of another node", "system:node:m", &mirror, refused),
        ("of a node without a name", "system:node:", &mirror, refused),
        ("of its node", "system:node:n", &mirror, allowed),
        (
            "an ordinary pod of the kubelet",
            "system:node:n",
            &on("n", json!({"kubernetes.io/config.hash": "h"})),
            refused,
        ),
        (
            "a pod without a node",
            "alice",
            &on("", json!({"kubernetes.io/config.mirror": "h"})),
            allowed,
        ),
    ] {
        let (_, text) = judge(&client, user, pod).await.unwrap();
        assert!(text.contains(want), "{case}: {text}");
    }
}

/// What the webhook answers to an Eviction of pod `p` by the agent of a node.
async fn evict(client: &Client, uid: &Value, node: &str) -> Result<Value, String> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "uid", "operation": "CREATE", "namespace": NAMESPACE, "name": "p", "subResource": "eviction",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "agent", "extra": {"authentication.kubernetes.io/node-name": [node]}},
        "object": {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": uid}}}}});
    let body = review.to_string().into_bytes();
    let (status, text) = call(client, "/validate-evictions", body).await?;
    match status.as_u16() {
        200 => serde_json::from_str(&text).map_err(|error| error.to_string()),
        code => Ok(json!({"code": code, "text": text})),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evictions_of_agents_are_judged_by_the_pod_as_it_is() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    fixture.add_node("n", "4", 110).await;
    let mut pod = crate::support::pod("p", "1");
    pod["spec"]["nodeName"] = json!("n");
    // API servers write each of these as six bytes.
    pod["spec"]["containers"][0]["env"] = json!([{"name": "LONG", "value": "<".repeat(600_000)}]);
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let uid = post(&fixture, &pods, &pod).await["metadata"]["uid"].clone();
    let webhook = RunningWebhook::start(fixture.client.clone(), managed(None));
    let client = eventually("the webhook answers", || async {
        let client = caller(webhook.address, &bundle(&fixture).await);
        evict(&client, &uid, "n").await?;
        Ok::<_, String>(client)
    })
    .await;
    for (case, uid, node, want) in [
        ("its own pod", &uid, "n", ""),
        ("of another node", &uid, "m", "this pod is on node n"),
        ("another uid", &json!("other"), "n", "another uid"),
        ("no uid", &Value::Null, "n", "must have the uid"),
    ] {
        let answer = evict(&client, uid, node).await.unwrap();
        let response = &answer["response"];
        assert_eq!(
            response["allowed"],
            json!(want.is_empty()),
            "{case}: {answer}"
        );
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(want), "{case}: {answer}");
    }
}

/// A replica without the Secret says how to restore it, and creates none.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_secret_is_named() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}");
    let delete = async || {
        let request = http::Request::delete(&path).body(Vec::new()).unwrap();
        let _: Value = fixture.client.request(request).await.unwrap();
    };
    delete().await;
    let keeper = |client: Client| CertificateKeeper::new(client, managed(None)).unwrap();
    let keeper = keeper(fixture.client.clone());
    tokio::spawn(keeper.clone().run(CancellationToken::new()));
    let missing = format!(
        "Secret {NAMESPACE}/{NAME} does not exist; restore it with `kubectl create secret generic {NAME} -n {NAMESPACE}`"
    );
    eventually("it is not ready", || async {
        match keeper.check() {
            Err(why) if why.contains(&missing) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(keeper.warning(), None);
    create_secret(&fixture, NAMESPACE, NAME).await;
    let ready = || async { keeper.check() };
    eventually("it is ready", ready).await;
    // What is served is good without the Secret.
    delete().await;
    eventually("it warns", || async {
        keeper
            .warning()
            .filter(|it| it.contains(&missing))
            .ok_or("no warning")
    })
    .await;
    assert_eq!(keeper.check(), Ok(()));
    create_secret(&fixture, NAMESPACE, NAME).await;
    eventually("the warning ends", || async {
        keeper.warning().map_or(Ok(()), Err)
    })
    .await;
}

/// The cluster calls the webhook as deploy/webhook.yaml says.
#[tokio::test(flavor = "multi_thread")]
async fn settings_are_refused_at_the_write() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let reviewer = immediate(settings::validate);
    let handler: ServiceHandler = Arc::new(move |request| {
        assert_eq!(request.uri().path(), settings::VALIDATE_SETTINGS);
        let reviewer = reviewer.clone();
        async move {
            let (status, kind, body) = respond(&reviewer, request.body()).await;
            let response = http::Response::builder().status(status);
            let response = response.header("content-type", kind).body(body.into());
            response.unwrap()
        }
        .boxed()
    });
    let backend = ServiceBackend::InProcess(handler);
    let (namespace, name) = COLOCATION;
    fixture.cluster.route_service(namespace, NAME, backend);
    let object = json!({"metadata": {"name": namespace}});
    post(&fixture, "/api/v1/namespaces", &object).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let settings = |name: &str, percent: u32| {
        let text = format!("{{\n\"midCPUThresholdPercent\": {percent}\n}}");
        json!({"metadata": {"name": name}, "data": {"colocation-config": text}})
    };
    let send = async |method: &str, path: &str, object: Value| -> Result<Value, String> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        let response = fixture.client.request(request).await;
        response.map_err(|error| error.to_string())
    };
    let why = "colocation-config: line 2: midCPUThresholdPercent: 101 is not allowed";
    let refused = send("POST", &path, settings(name, 101)).await.unwrap_err();
    assert!(refused.contains(why), "{refused}");
    send("POST", &path, settings(name, 100)).await.unwrap();
    let one = format!("{path}/{name}");
    let refused = send("PUT", &one, settings(name, 101)).await.unwrap_err();
    assert!(refused.contains(why), "{refused}");
    send("POST", &path, settings("another", 101)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_is_what_is_used() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let (client, used) = recording(&fixture);
    let webhook = RunningWebhook::start(client, managed(Some(Duration::from_millis(300))));
    eventually("the webhook reads the pod of an Eviction", || async {
        let client = caller(webhook.address, &bundle(&fixture).await);
        let answer = evict(&client, &json!("a"), "n").await?;
        match answer["response"]["allowed"] == json!(true) {
            true => Ok(()),
            false => Err(answer.to_string()),
        }
    })
    .await;
    let manifest = objects(MANIFEST);
    let is_ours = |role: &&Value| role["metadata"]["name"] == NAME;
    let roles = of_kind(&manifest, "ClusterRole").chain(of_kind(&manifest, "Role"));
    let mut want = granted(&roles.filter(is_ours).collect::<Vec<_>>());
    // The HTTP server uses them.
    want.retain(|(group, ..)| !group.starts_with("auth"));
    eventually("every permission has been used", || async {
        let missing: BTreeSet<_> = want.difference(&used.lock().unwrap()).cloned().collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(missing),
        }
    })
    .await;
    let used: BTreeSet<_> = used.lock().unwrap().clone();
    let beyond: Vec<_> = used.difference(&want).collect();
    assert!(beyond.is_empty(), "used without permission: {beyond:?}");
}

/// Two replicas renew at the same time: one wins, and both serve what it wrote.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_agree_on_one_certificate() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let renewal = Some(Duration::from_millis(500));
    let webhooks =
        [(); 2].map(|()| RunningWebhook::start(fixture.client.clone(), managed(renewal)));
    let mut seen = BTreeSet::new();
    eventually(
        "several certificates were served, and each was trusted",
        || async {
            let roots = bundle(&fixture).await;
            for webhook in &webhooks {
                let client = caller(webhook.address, &roots);
                call(
                    &client,
                    "/mutate-pods",
                    review(&batch_pod()).to_string().into_bytes(),
                )
                .await?;
            }
            Ok::<_, String>(())
        },
    )
    .await;
    for _ in 0..20 {
        // Trust is read before the call, as an API server does it.
        let roots = bundle(&fixture).await;
        for webhook in &webhooks {
            let client = caller(webhook.address, &roots);
            call(
                &client,
                "/mutate-pods",
                review(&batch_pod()).to_string().into_bytes(),
            )
            .await
            .unwrap();
        }
        let secret = get(
            &fixture,
            &format!("/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"),
        )
        .await;
        seen.insert(secret["data"]["tls.crt"].to_string());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(seen.len() > 1, "no renewal in two seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_from_files() {
    let fixture = Fixture::new().await;
    install(&fixture).await;
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let made = made.self_signed(&key).unwrap();
    std::fs::write(&files.certificate, made.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let reload = Duration::from_millis(50);
    let webhook = RunningWebhook::start(
        fixture.client.clone(),
        CertificateOptions::Files { files, reload },
    );
    eventually("the webhook serves the files", || async {
        let client = caller(webhook.address, &[made.der().clone()]);
        call(
            &client,
            "/mutate-pods",
            review(&batch_pod()).to_string().into_bytes(),
        )
        .await
    })
    .await;
    assert!(
        bundle(&fixture).await.is_empty(),
        "the configurations are not touched"
    );
}

#[test]
fn the_strict_configuration_differs_only_in_what_a_missing_answer_means() {
    let mut plain = objects(include_str!("../../../../deploy/webhook-node-names.yaml"));
    let strict = objects(include_str!(
        "../../../../deploy/webhook-node-names-strict.yaml"
    ));
    assert_eq!(plain[0]["webhooks"][0]["failurePolicy"], "Ignore");
    plain[0]["webhooks"][0]["failurePolicy"] = json!("Fail");
    plain[0]["webhooks"][0]["timeoutSeconds"] = json!(5);
    assert_eq!(plain, strict);
}
