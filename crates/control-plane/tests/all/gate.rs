//! The gate on the embedded cluster: the bodies that it gets, and the clocks of other replicas.

use std::net::SocketAddr;
use std::time::Duration;

use control_plane::client::Connect;
use control_plane::election::Election;
use control_plane::gate::{Gate, GateOptions, NAME};
use control_plane::webhook::bind_permission::BindAuthorization;
use control_plane::webhook::certificates::{
    CertificateOptions, CertificatePeriods, Configuration, ManagedCertificate,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::permissions::objects;
use crate::reclaimed::define;
use crate::support::{Fixture, NAMESPACE, eventually, object, pod};
use crate::webhook::{call, caller, create_secret, get, post};

const MANIFEST: &str = include_str!("../../../../deploy/gate.yaml");
const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const PATH: &str = "/validate-binds";

/// A gate that runs until the test ends.
struct RunningGate {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for RunningGate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The namespace of the gate itself is another one, so that it judges the pods of the test.
async fn start(fixture: &Fixture, election: Option<Election>) -> RunningGate {
    define(fixture).await;
    let manifest = objects(MANIFEST);
    let mut configurations = manifest.iter();
    let configuration = configurations.find(|it| it["kind"] == "ValidatingWebhookConfiguration");
    post(fixture, CONFIGURATIONS, configuration.unwrap()).await;
    let namespace = json!({"metadata": {"name": "tidepool-system"}});
    post(fixture, "/api/v1/namespaces", &namespace).await;
    create_secret(fixture, "tidepool-system", NAME).await;
    let certificates = CertificateOptions::Managed(ManagedCertificate {
        namespace: "tidepool-system".to_owned(),
        name: NAME.to_owned(),
        configurations: &[Configuration::Validating],
        hosts: vec!["127.0.0.1".to_owned()],
        periods: CertificatePeriods {
            check: Duration::from_millis(50),
            ..CertificatePeriods::default()
        },
    });
    let options = GateOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise_address: None,
        certificates,
        namespace: "tidepool-system".to_owned(),
        name: NAME.to_owned(),
        authorization: BindAuthorization::Audit,
        election,
        serve: None,
        shutdown_delay: Duration::ZERO,
    };
    let gate = Gate::new(Connect::Client(fixture.client.clone()), options).unwrap();
    let address = gate.address();
    let task = tokio::spawn(async move {
        gate.run(std::future::pending()).await.unwrap();
    });
    RunningGate { address, task }
}

/// A client that trusts what the configuration trusts.
async fn client_of(fixture: &Fixture, gate: &RunningGate) -> Client {
    let configuration = get(fixture, &format!("{CONFIGURATIONS}/{NAME}")).await;
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let bundle: ByteString = serde_json::from_value(bundle).unwrap_or_default();
    let roots = CertificateDer::pem_slice_iter(&bundle.0);
    caller(gate.address, &roots.flatten().collect::<Vec<_>>())
}

fn review(binding: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "review", "operation": "CREATE", "namespace": NAMESPACE, "name": "p", "subResource": "binding",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "userInfo": {"username": "them"}, "object": binding}})
}

fn binding(pod: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_that_are_none() {
    let fixture = Fixture::new().await;
    fixture.add_node("n", "2", 110).await;
    fixture.create_pod(pod("p", "1")).await;
    fixture.create_pod(pod("q", "2")).await;
    let gate = start(&fixture, None).await;
    let bytes = |review: &Value| review.to_string().into_bytes();
    let client = eventually("the gate answers", || async {
        let client = client_of(&fixture, &gate).await;
        let answer = call(&client, PATH, bytes(&review(&binding("none", "n")))).await?;
        match answer.0.as_u16() {
            200 => Ok(client),
            _ => Err(format!("{answer:?}")),
        }
    })
    .await;
    let with = |change: &dyn Fn(&mut Value)| {
        let mut review = review(&binding("p", "n"));
        change(&mut review);
        bytes(&review)
    };
    let valid = bytes(&review(&binding("p", "n")));
    let long = "x".repeat(3 << 20);
    for (case, body, want, words) in [
        ("nothing", Vec::new(), 400, "EOF"),
        ("half of it", valid[..valid.len() / 2].to_vec(), 400, "EOF"),
        ("no text", vec![0xff, 0xfe, 0x00], 400, "expected value"),
        (
            "nested deeply",
            "[".repeat(100_000).into_bytes(),
            400,
            "the body is not a valid AdmissionReview",
        ),
        (
            "another version",
            with(&|it| it["apiVersion"] = json!("admission.k8s.io/v1beta1")),
            400,
            "v1beta1",
        ),
        (
            "another kind",
            with(&|it| it["kind"] = json!("Table")),
            400,
            "`Table`",
        ),
        (
            "no request",
            with(&|it| it["request"] = json!(null)),
            400,
            "no request with a uid",
        ),
        (
            "no uid",
            with(&|it| it["request"]["uid"] = json!("")),
            400,
            "no request with a uid",
        ),
        (
            "a uid that is a number",
            with(&|it| it["request"]["uid"] = json!(7)),
            400,
            "invalid type",
        ),
        (
            "3 MiB, which is not too large",
            with(&|it| {
                it["request"]["object"]["metadata"]["annotations"] = json!({"long": long});
                it["request"]["dryRun"] = json!(true);
            }),
            200,
            "\"allowed\":true",
        ),
        (
            "no object",
            with(&|it| it["request"]["object"] = json!(null)),
            200,
            "the object is no Binding",
        ),
        (
            "no target",
            with(&|it| it["request"]["object"]["target"] = json!({})),
            200,
            "it must be the name of a Node",
        ),
        (
            "a target that is no node",
            with(&|it| it["request"]["object"]["target"] = json!({"kind": "Pod", "name": "p"})),
            200,
            "target is Pod `p`",
        ),
        (
            "a path as the name",
            with(&|it| it["request"]["object"]["metadata"]["name"] = json!("../nodes/n")),
            200,
            "`../nodes/n` is not the name of a pod",
        ),
        (
            "a path as the namespace",
            with(&|it| it["request"]["namespace"] = json!("../../v1")),
            200,
            "is not the name of a pod",
        ),
        (
            "another pod of this name",
            with(&|it| it["request"]["object"]["metadata"]["uid"] = json!("other")),
            200,
            "uid",
        ),
        (
            "zones that are none",
            with(&|it| {
                it["request"]["object"]["metadata"]["annotations"] =
                    json!({"tidepool.io/numa-zones": "x,-1"});
                it["request"]["dryRun"] = json!(true);
            }),
            200,
            "\"allowed\":true",
        ),
        (
            "no bind",
            with(&|it| it["request"]["subResource"] = json!("eviction")),
            200,
            "\"allowed\":true",
        ),
    ] {
        let (status, text) = call(&client, PATH, body).await.unwrap();
        assert_eq!(status.as_u16(), want, "{case}: {text}");
        assert!(text.contains(words), "{case}: {text}");
    }
    // None of them took anything.
    let (_, text) = call(&client, PATH, bytes(&review(&binding("q", "n"))))
        .await
        .unwrap();
    assert!(text.contains("\"allowed\":true"), "{text}");
    let (_, text) = call(&client, PATH, valid).await.unwrap();
    assert!(
        text.contains("OutOfcpu") && text.contains("BindRefused"),
        "{text}"
    );
}

/// A replica that crashed: its clock was an hour off.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_another_replica_does_not_matter() {
    for hours in [-1, 1] {
        let fixture = Fixture::new().await;
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        let time = time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let lease = json!({"metadata": {"name": "gate"}, "spec": {"holderIdentity": "them", "leaseDurationSeconds": 2,
            "acquireTime": time, "renewTime": time, "leaseTransitions": 1}});
        let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), NAMESPACE);
        let made = leases.create(&PostParams::default(), &object(lease)).await;
        made.unwrap();
        let election = Election {
            namespace: NAMESPACE.into(),
            name: "gate".into(),
            identity: "us".into(),
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1500),
            retry_period: Duration::from_millis(100),
            sync_deadline: control_plane::election::SYNC_DEADLINE,
        };
        let begun = std::time::Instant::now();
        let gate = start(&fixture, Some(election)).await;
        let answers = || async {
            let client = client_of(&fixture, &gate).await;
            let body = review(&binding("none", "n")).to_string().into_bytes();
            match call(&client, PATH, body).await? {
                (status, _) if status.is_success() => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        };
        eventually("the gate takes over", answers).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(2), "{hours} h: after {took:?}");
    }
}
