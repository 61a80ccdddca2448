//! Pods as users write them, through the real API server and the webhook: class, resources and qosClass of what is stored.

use std::path::Path;
use std::sync::Arc;

use e2e::{Kubectl, eventually};
use serde_json::{Value, json};

use crate::webhook_fixture::{Fixture, PATIENCE, mid, pod, resources};
use crate::webhook_server::{Answer, TlsServer};

const PROFILES: &str = "tidepool.io/profiles";
const CONTROLLERS: [&str; 4] = [
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "resourcequota-controller",
];

/// One control plane for all of them: each takes seconds to start.
#[test]
fn pods_of_tiers_on_the_real_api_server() {
    let fixture = Fixture::start(&CONTROLLERS, Some(30));
    let (_first, one) = fixture.webhook("webhook-1", &[]);
    let (_second, two) = fixture.webhook("webhook-2", &[]);
    fixture.proxy.forward_to(&[one, two]);
    fixture.wait_until_asked();
    check_examples(&fixture.control_plane.kubectl().unwrap());
    limit_ranges(&fixture);
    quotas(&fixture);
    refusals(&fixture);
    updates(&fixture);
    dry_runs(&fixture);
    profiles(&fixture);
    workloads(&fixture);
    other_webhooks(&fixture);
    permissions(&fixture);
}

/// Each row of the panorama, from the files of docs/tiers.
pub(crate) fn check_examples(kubectl: &Kubectl) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let tier = |name: &str, cpu: &str, memory: &str| json!({"cpu": "0", "memory": "0", format!("{name}cpu"): cpu, format!("{name}memory"): memory});
    for (file, qos, priority, requests) in [
        (
            "prod-lse",
            "Guaranteed",
            9000,
            json!({"cpu": "2", "memory": "4Gi"}),
        ),
        (
            "prod-lsr",
            "Guaranteed",
            9000,
            json!({"cpu": "2", "memory": "4Gi"}),
        ),
        (
            "prod-ls-guaranteed",
            "Guaranteed",
            9000,
            json!({"cpu": "500m", "memory": "1Gi"}),
        ),
        (
            "prod-ls-burstable",
            "Burstable",
            9000,
            json!({"cpu": "500m", "memory": "1Gi"}),
        ),
        (
            "mid-ls",
            "Burstable",
            7000,
            tier("kubernetes.io/mid-", "1500", "2Gi"),
        ),
        (
            "mid-be",
            "BestEffort",
            7000,
            tier("kubernetes.io/mid-", "1500", "2Gi"),
        ),
        (
            "batch",
            "BestEffort",
            5000,
            tier("kubernetes.io/batch-", "1k", "1Gi"),
        ),
        (
            "free",
            "Burstable",
            3000,
            json!({"cpu": "100m", "memory": "64Mi"}),
        ),
        (
            "reclaimed",
            "BestEffort",
            0,
            json!({"cpu": "0", "memory": "0", "resource.katalyst.kubewharf.io/reclaimed_millicpu": "1k",
                "resource.katalyst.kubewharf.io/reclaimed_memory": "1Gi"}),
        ),
    ] {
        let path = root
            .join(format!("docs/tiers/{file}.yaml"))
            .display()
            .to_string();
        let run = kubectl.run(&["create", "-f", &path], PATIENCE).unwrap();
        assert_eq!(run.code, Some(0), "{file}: {run:?}");
        let run = kubectl.run(&["get", "pod", file, "-o", "json"], PATIENCE);
        let stored: Value = serde_json::from_str(&run.unwrap().stdout).unwrap();
        assert_eq!(stored["status"]["qosClass"], qos, "{file}");
        assert_eq!(stored["spec"]["priority"], priority, "{file}");
        let found: serde_json::Map<String, Value> =
            resources(&stored)["requests"].as_object().unwrap().clone();
        assert_eq!(Value::from(found), requests, "{file}");
        let limits = &resources(&stored)["limits"];
        match file {
            "mid-ls" => assert_eq!(
                (&limits["cpu"], &limits["memory"]),
                (&json!("2"), &json!("4Gi")),
                "{file}"
            ),
            "mid-be" | "batch" | "reclaimed" => assert!(
                limits["cpu"].is_null() && limits["memory"].is_null(),
                "{file}: {limits}"
            ),
            _ => {}
        }
    }
}

fn limit_ranges(fixture: &Fixture) {
    let range = |namespace: &str, item: Value| {
        fixture.namespace(namespace, json!({}));
        let mut item = item;
        item["type"] = json!("Container");
        let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"}, "spec": {"limits": [item]}});
        fixture.create_at(
            &format!("/api/v1/namespaces/{namespace}/limitranges"),
            &range,
        );
    };
    range(
        "defaults",
        json!({"default": {"cpu": "2", "memory": "2Gi"}, "defaultRequest": {"cpu": "100m", "memory": "64Mi"}}),
    );
    range("minimum", json!({"min": {"cpu": "10m"}}));
    range("ratio", json!({"maxLimitRequestRatio": {"cpu": "4"}}));
    // The webhook watches LimitRanges.
    let stored = eventually("the webhook sees the LimitRange", PATIENCE, || {
        let pod = fixture.dry_run("defaults", &mid("probe"))?;
        match resources(&pod)["limits"]["cpu"] == "0" {
            true => Ok(pod),
            false => Err(pod.to_string()),
        }
    });
    assert_eq!(stored["status"]["qosClass"], "BestEffort");
    for (case, resources_in, mid_cpu) in [
        (
            "nothing written: the namespace's defaults",
            json!({}),
            "100",
        ),
        (
            "mid resources written",
            json!({"limits": {"kubernetes.io/mid-cpu": "300"}}),
            "300",
        ),
    ] {
        let labels = json!({"koordinator.sh/qosClass": "BE"});
        let stored = fixture
            .dry_run("defaults", &pod("case", labels, "koord-mid", resources_in))
            .unwrap();
        assert_eq!(
            stored["status"]["qosClass"], "BestEffort",
            "{case}: {stored}"
        );
        assert_eq!(
            resources(&stored)["requests"]["kubernetes.io/mid-cpu"],
            mid_cpu,
            "{case}"
        );
        assert_eq!(resources(&stored)["limits"]["cpu"], "0", "{case}");
    }
    let mut latency_sensitive = mid("ls");
    latency_sensitive["metadata"]["labels"]["koordinator.sh/qosClass"] = json!("LS");
    let stored = fixture.dry_run("defaults", &latency_sensitive).unwrap();
    assert_eq!(stored["status"]["qosClass"], "Burstable");
    for (namespace, want) in [
        (
            "minimum",
            "minimum cpu usage per Container is 10m, but request is 0",
        ),
        ("ratio", "cpu max limit to request ratio per Container is 4"),
    ] {
        let refused = fixture.dry_run(namespace, &mid("case")).unwrap_err();
        assert!(refused.contains(want), "{namespace}: {refused}");
    }
}

fn quotas(fixture: &Fixture) {
    fixture.namespace("quota", json!({}));
    let hard = json!({"requests.cpu": "1", "requests.memory": "1Gi"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": hard}});
    fixture.create_at("/api/v1/namespaces/quota/resourcequotas", &quota);
    eventually("the quota is enforced", PATIENCE, || {
        let quota = fixture
            .api
            .get("/api/v1/namespaces/quota/resourcequotas/quota");
        let quota = quota.map_err(|error| error.to_string())?;
        match quota["status"]["hard"].is_object() {
            true => Ok(()),
            false => Err(quota.to_string()),
        }
    });
    let native = pod("native", json!({}), "", json!({}));
    eventually(
        "the API server enforces the quota",
        PATIENCE,
        || match fixture.dry_run("quota", &native) {
            Err(refused) if refused.contains("must specify requests.cpu") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    let mut large = mid("large");
    large["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "50", "memory": "100Gi"}});
    let stored = fixture.create("quota", &large).unwrap();
    assert_eq!(stored["status"]["qosClass"], "BestEffort");
    let quota = fixture
        .api
        .get("/api/v1/namespaces/quota/resourcequotas/quota")
        .unwrap();
    assert_eq!(quota["status"]["used"]["requests.cpu"], "0");
}

fn refusals(fixture: &Fixture) {
    let labels = |class: &str| json!({"koordinator.sh/qosClass": class});
    let cpu = |quantity: &str| json!({"requests": {"cpu": quantity}});
    for (case, pod, want) in [
        (
            "a forbidden pair",
            pod("p", labels("LSR"), "koord-batch", cpu("2")),
            "QoS class LSR does not go with priority class koord-batch",
        ),
        (
            "both",
            pod(
                "p",
                labels("BE"),
                "koord-mid",
                json!({"requests": {"cpu": "1", "kubernetes.io/mid-cpu": "1"}}),
            ),
            "have both cpu (1) and kubernetes.io/mid-cpu",
        ),
        (
            "a fraction",
            pod(
                "p",
                labels("BE"),
                "koord-mid",
                json!({"requests": {"kubernetes.io/mid-cpu": "1.5"}}),
            ),
            "use a whole number of thousandths of a core",
        ),
        (
            "too much",
            pod("p", labels("BE"), "koord-mid", cpu("10P")),
            "the most is 1000000000000000",
        ),
        (
            "no limits",
            pod("p", labels("LS"), "koord-mid", cpu("1")),
            "has no limits.cpu",
        ),
        (
            "part of a core",
            pod(
                "p",
                labels("LSE"),
                "koord-prod",
                json!({"limits": {"cpu": "1500m", "memory": "1Gi"}}),
            ),
            "must request whole cores, found 1500m",
        ),
        (
            "wrong QoS class",
            pod("p", labels("LSR"), "koord-prod", cpu("1")),
            "is Burstable, but a pod of class dedicated",
        ),
    ] {
        let refused = fixture.dry_run("default", &pod).unwrap_err();
        assert!(
            refused.contains(want) && refused.contains("denied the request"),
            "{case}: {refused}"
        );
    }
    // A pod that the mutating webhook leaves alone: it has 5,000 containers, and one of them is wrong.
    let mut many = mid("many");
    let container = |i: usize| json!({"name": format!("c{i}"), "image": "i", "resources": {"requests": {"cpu": "1m"}}});
    many["spec"]["containers"] = (0..5_000).map(container).collect();
    let stored = fixture.dry_run("default", &many).unwrap();
    assert_eq!(
        stored["spec"]["containers"][4_999]["resources"]["requests"]["kubernetes.io/mid-cpu"],
        "1"
    );
    // Longer than the webhook reads: the failure policy decides.
    let mut long = mid("long");
    long["metadata"]["annotations"] = json!({"long": "x".repeat(200 << 10)});
    assert!(fixture.dry_run("default", &long).is_ok());
}

fn updates(fixture: &Fixture) {
    let path = "/api/v1/namespaces/default/pods/mid-be";
    let patch = |patch: Value| {
        fixture
            .api
            .patch(path, &patch)
            .map_err(|error| format!("{error:#}"))
    };
    let refused =
        patch(json!({"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}})).unwrap_err();
    assert!(
        refused.contains("koordinator.sh/qosClass is immutable: it was `BE`, found `LS`"),
        "{refused}"
    );
    let refused =
        patch(json!({"metadata": {"labels": {"koordinator.sh/priority": "3"}}})).unwrap_err();
    assert!(
        refused.contains("koordinator.sh/priority is immutable"),
        "{refused}"
    );
    patch(json!({"metadata": {"labels": {"app": "x"}}})).unwrap();
    // Also without deploy/policies.yaml, and for an administrator.
    for key in [
        PROFILES,
        "node.koordinator.sh/extended-resource-spec",
        "tidepool.io/numa-zones",
        "tidepool.io/policy-unit",
        "kubernetes.io/config.hash",
    ] {
        let refused = patch(json!({"metadata": {"annotations": {key: "x"}}})).unwrap_err();
        let want = format!("annotation {key} of pod mid-be belongs to ");
        assert!(refused.contains(&want), "{refused}");
    }
}

fn dry_runs(fixture: &Fixture) {
    let kubectl = fixture.control_plane.kubectl().unwrap();
    std::fs::write(kubectl.directory().join("dry.json"), mid("dry").to_string()).unwrap();
    let run = kubectl
        .run(
            &["create", "--dry-run=server", "-o", "json", "-f", "dry.json"],
            PATIENCE,
        )
        .unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        resources(&shown)["requests"]["kubernetes.io/mid-cpu"],
        "500"
    );
    assert!(
        fixture
            .api
            .get("/api/v1/namespaces/default/pods/dry")
            .is_err(),
        "nothing is stored"
    );
}

fn profiles(fixture: &Fixture) {
    let kubectl = fixture.control_plane.kubectl().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let file = |name: &str| root.join("docs/tiers").join(name).display().to_string();
    let run = kubectl
        .run(&["apply", "-f", &file("profile.yaml")], PATIENCE)
        .unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let profiled: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../../docs/tiers/profiled.yaml")).unwrap();
    let stored = eventually("the webhook sees the profile", PATIENCE, || {
        let pod = fixture.dry_run("jobs", &profiled[0])?;
        match pod["metadata"]["annotations"]["tidepool.io/profiles"] == "data-jobs" {
            true => Ok(pod),
            false => Err(pod.to_string()),
        }
    });
    assert_eq!(stored["status"]["qosClass"], "BestEffort");
    assert_eq!(
        (
            &stored["spec"]["priority"],
            &stored["spec"]["schedulerName"]
        ),
        (&json!(5000), &json!("tidepool"))
    );
    assert_eq!(
        resources(&stored)["requests"]["kubernetes.io/batch-cpu"],
        "500"
    );
    // Profiles are judged, too.
    let wrong = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile", "metadata": {"name": "wrong"},
        "spec": {"qosClass": "LSR", "priorityClassName": "koord-batch", "patch": {"spec": {"containers": null}}}});
    let path = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles";
    let refused = format!("{:#}", fixture.api.post(path, &wrong).unwrap_err());
    assert!(
        refused.contains("LSR does not go with")
            && refused.contains("spec.patch makes an invalid pod"),
        "{refused}"
    );
}

fn workloads(fixture: &Fixture) {
    let template = |policy: &str| {
        let mut pod = mid("unused");
        pod["metadata"] = json!({"labels": {"app": policy, "koordinator.sh/qosClass": "BE"}});
        pod["spec"]["restartPolicy"] = json!(policy);
        json!({"metadata": pod["metadata"], "spec": pod["spec"]})
    };
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "Always"}}, "template": template("Always")}});
    fixture.create_at("/apis/apps/v1/namespaces/default/deployments", &deployment);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"completions": 2, "parallelism": 2, "template": template("Never")}});
    fixture.create_at("/apis/batch/v1/namespaces/default/jobs", &job);
    for (label, count) in [("Always", 3), ("Never", 2)] {
        let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{label}");
        let pods = eventually("the controller creates its pods", PATIENCE, || {
            let pods = fixture.api.list(&path).map_err(|error| error.to_string())?;
            match pods.len() == count {
                true => Ok(pods),
                false => Err(format!("{} pods", pods.len())),
            }
        });
        for pod in pods {
            assert_eq!(pod["status"]["qosClass"], "BestEffort", "{pod}");
            assert_eq!(resources(&pod)["requests"]["kubernetes.io/mid-cpu"], "500");
        }
    }
}

/// Another webhook adds a sidecar with cpu and memory; names decide the order of webhooks.
fn other_webhooks(fixture: &Fixture) {
    let sidecar = json!({"name": "sidecar", "image": "i", "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}});
    let server = TlsServer::start(Arc::new(move |review: &Value| {
        let containers = review["request"]["object"]["spec"]["containers"]
            .as_array()
            .unwrap();
        let has_it = containers
            .iter()
            .any(|container| container["name"] == "sidecar");
        let patch = match has_it {
            true => json!([]),
            false => json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]),
        };
        Answer::Patch(patch)
    }));
    for name in ["a-before.example.com", "z-after.example.com"] {
        let configuration = server.configuration(name, "MutatingWebhookConfiguration");
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        fixture.create_at(path, &configuration);
        let stored = eventually("the other webhook is asked", PATIENCE, || {
            let pod = fixture.dry_run("default", &mid("case"))?;
            match pod["spec"]["containers"][1]["name"] == "sidecar" {
                true => Ok(pod),
                false => Err(pod.to_string()),
            }
        });
        let requests = &stored["spec"]["containers"][1]["resources"]["requests"];
        assert_eq!(requests["kubernetes.io/mid-cpu"], "50", "{name}: {stored}");
        forged_profiles(fixture, name);
        assert_eq!(stored["status"]["qosClass"], "BestEffort", "{name}");
        fixture.api.delete(&format!("{path}/{name}")).unwrap();
        eventually("the other webhook is gone", PATIENCE, || {
            let pod = fixture.dry_run("default", &mid("case"))?;
            match pod["spec"]["containers"][1].is_null() {
                true => Ok(()),
                false => Err(pod.to_string()),
            }
        });
    }
}

/// The webhook, which may be called again after the other one, distinguishes its own decision from what the author wrote.
fn forged_profiles(fixture: &Fixture, case: &str) {
    let path = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles";
    let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "suffix"},
        "spec": {"selector": {"matchLabels": {"forged": "yes"}}, "labelSuffixes": {"team": "-x"}}});
    fixture.create_at(path, &profile);
    for (written, want) in [
        (json!({}), "suffix"),
        (json!({PROFILES: "-suffix"}), "suffix"),
    ] {
        let mut pod = mid("forged");
        for (key, value) in [("forged", "yes"), ("team", "a")] {
            pod["metadata"]["labels"][key] = json!(value);
        }
        pod["metadata"]["annotations"] = written;
        eventually("the profile is applied once", PATIENCE, || {
            let pod = fixture.dry_run("default", &pod)?;
            let metadata = &pod["metadata"];
            let found = (
                &metadata["annotations"][PROFILES],
                &metadata["labels"]["team"],
            );
            match found == (&json!(want), &json!("a-x")) {
                true => Ok(()),
                false => Err(format!("{case}: {pod}")),
            }
        });
    }
    fixture.api.delete(&format!("{path}/suffix")).unwrap();
}

/// The replicas did all of this with the permissions of the manifests.
fn permissions(fixture: &Fixture) {
    let mut requests = fixture.control_plane.audit().unwrap();
    requests
        .retain(|request| request.user == "system:serviceaccount:tidepool-system:tidepool-webhook");
    assert!(
        !requests.is_empty(),
        "the audit log has nothing of the webhook"
    );
    requests.retain(e2e::audit::Request::is_denied);
    assert!(
        requests.is_empty(),
        "permissions are missing: {requests:#?}"
    );
}
