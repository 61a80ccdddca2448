//! `tidepool admit`: the examples of docs/tiers.md, and refusals.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::{Up, client, run, tidepool};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tiers")
}

fn admit(file: &Path, profiles: &str) -> crate::Output {
    let file = file.display().to_string();
    run(&mut tidepool(&[
        "admit",
        "-f",
        &file,
        "--profiles",
        profiles,
    ]))
}

#[test]
fn each_example_of_the_panorama() {
    for (file, qos, line) in [
        ("prod-lse", "Guaranteed", "admitted as it is"),
        ("prod-lsr", "Guaranteed", "admitted as it is"),
        ("prod-ls-guaranteed", "Guaranteed", "admitted as it is"),
        ("prod-ls-burstable", "Burstable", "admitted as it is"),
        (
            "mid-ls",
            "Burstable",
            "+ spec.containers[0].resources.requests.kubernetes.io/mid-cpu: 1500",
        ),
        (
            "mid-be",
            "BestEffort",
            "- spec.containers[0].resources.limits.memory: 4Gi",
        ),
        (
            "batch",
            "BestEffort",
            "+ spec.containers[0].resources.requests.kubernetes.io/batch-memory: 1Gi",
        ),
        ("free", "Burstable", "admitted as it is"),
        ("reclaimed", "BestEffort", "reclaimed_millicpu: 1000"),
    ] {
        let output = admit(&examples().join(format!("{file}.yaml")), "/dev/null");
        assert_eq!(output.code, Some(0), "{file}: {}", output.stderr);
        assert!(
            output.stdout.contains(&format!("its QoS class is {qos}")),
            "{file}: {}",
            output.stdout
        );
        assert!(output.stdout.contains(line), "{file}: {}", output.stdout);
    }
}

/// docs/tiers.md shows every file in docs/tiers, and there are no others.
#[test]
fn every_example_is_in_the_page() {
    let page = std::fs::read_to_string(examples().with_extension("md")).unwrap();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            page.contains(&format!("tiers/{name}")),
            "{name} is not in docs/tiers.md"
        );
    }
}

#[test]
fn a_profile_of_a_file() {
    let profiles = examples().join("profile.yaml").display().to_string();
    let output = admit(&examples().join("profiled.yaml"), &profiles);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for line in [
        "+ metadata.annotations.tidepool.io/profiles: data-jobs",
        "+ spec.priority: 5000",
        "+ spec.schedulerName: tidepool",
        "+ spec.containers[0].resources.requests.kubernetes.io/batch-cpu: 500",
        "because colocation profile data-jobs sets: ",
    ] {
        assert!(output.stdout.contains(line), "{line}: {}", output.stdout);
    }
}

#[test]
fn refusals_and_bad_input() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pod.yaml");
    let pod = |class: &str, cpu: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {{koordinator.sh/qosClass: {class}}}}}\n\
             spec: {{priorityClassName: koord-mid, containers: [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}\n"
        )
    };
    for (case, text, code, want) in [
        (
            "a forbidden pair",
            pod("LSR", "1"),
            3,
            "the webhook refuses pod default/p:\n  QoS class LSR does not go with priority class koord-mid",
        ),
        (
            "no limits",
            pod("LS", "1"),
            3,
            "container c has no limits.cpu",
        ),
        (
            "the class system of a user",
            pod("SYSTEM", "1").replace("priorityClassName: koord-mid, ", ""),
            3,
            "pods of class system are allowed in these namespaces only: kube-system; found namespace default",
        ),
        (
            "not a pod",
            "kind: Service\nspec: {}\n".to_owned(),
            2,
            "found `Service`: use a Pod",
        ),
        (
            "two pods",
            format!("{}---\n{}", pod("BE", "1"), pod("BE", "1")),
            2,
            "has 2 objects: pass one pod",
        ),
        ("no YAML", "a: [".to_owned(), 2, "cannot read"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = admit(&file, "/dev/null");
        assert_eq!(
            output.code,
            Some(code),
            "{case}: {}{}",
            output.stdout,
            output.stderr
        );
        assert!(output.stderr.contains(want), "{case}: {}", output.stderr);
    }
    let output = run(&mut tidepool(&["admit", "-f", "pod.yaml"]));
    assert_eq!(output.code, Some(2));
    std::fs::write(&file, pod("BE", "1")).unwrap();
    let output = run(&mut tidepool(&["admit", "-f", &file.display().to_string()]));
    assert!(
        output.stderr.contains("--profiles FILE"),
        "{}",
        output.stderr
    );
}

/// The names of schedulers are those of the registry, in a file or in the cluster.
#[tokio::test]
async fn the_scheduler_of_a_pod() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| -> String {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let pod = |scheduler: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{schedulerName: {scheduler}, containers: [{{name: c}}]}}\n"
        );
        write("pod.yaml", &text)
    };
    let registry = |default: &str, check: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: schedulers, namespace: tidepool-system}}\n\
             data: {{default: {default}, names: 'default-scheduler,tidepool'}}\n---\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {{name: default, labels: {{tidepool.io/scheduler-check: {check}}}}}\n"
        );
        write("registry.yaml", &text)
    };
    let unknown = "no scheduler \"tidepol\" is running; did you mean \"tidepool\"?";
    for (case, scheduler, default, check, code, want) in [
        (
            "the default",
            "default-scheduler",
            "tidepool",
            "warn",
            0,
            "+ spec.schedulerName: tidepool",
        ),
        ("a misspelt name", "tidepol", "tidepool", "warn", 0, unknown),
        (
            "a misspelt name where it is refused",
            "tidepol",
            "tidepool",
            "deny",
            3,
            unknown,
        ),
        (
            "a default that is no name",
            "tidepool",
            "no name",
            "deny",
            0,
            "ignoring key `default`: \"no name\" is not a valid scheduler name",
        ),
    ] {
        let (pod, registry) = (pod(scheduler), registry(default, check));
        let output = admit(Path::new(&pod), &registry);
        let all = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, Some(code), "{case}: {all}");
        assert!(all.contains(want), "{case}: {all}");
    }

    let path = directory.path().join("config");
    let kubeconfig = path.to_str().unwrap();
    let _up = Up::start(&["--empty", "--kubeconfig-out", kubeconfig]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&path).await, "tidepool-system");
    let default = Patch::Merge(json!({"data": {"default": "batch"}}));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // The controllers of `up` create it.
    while let Err(error) = maps
        .patch("schedulers", &PatchParams::default(), &default)
        .await
    {
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let pod = pod("default-scheduler");
    let output = run(&mut tidepool(&[
        "admit",
        "-f",
        &pod,
        "--kubeconfig",
        kubeconfig,
    ]));
    let all = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.code, Some(0), "{all}");
    assert!(all.contains("+ spec.schedulerName: batch"), "{all}");
    assert!(all.contains("no scheduler \"batch\" is running"), "{all}");
}

/// `up` asks the webhook in its own process: it translates pods and refuses pairs that do not go together.
#[tokio::test]
async fn up_admits_pods_of_tiers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let _up = Up::start(&["--empty", "--kubeconfig-out", path.to_str().unwrap()]);
    let pods: Api<Pod> = Api::default_namespaced(client(&path).await);
    let pod = |class: &str| -> Pod {
        let resources = json!({"requests": {"cpu": "500m", "memory": "1Gi"}});
        let pod = json!({"metadata": {"name": "p", "labels": {"koordinator.sh/qosClass": class}},
            "spec": {"priorityClassName": "koord-batch", "containers": [{"name": "c", "image": "i", "resources": resources}]}});
        serde_json::from_value(pod).unwrap()
    };
    let parameters = PostParams::default();
    let refused = pods.create(&parameters, &pod("LSR")).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("QoS class LSR does not go with priority class koord-batch"),
        "{text}"
    );
    let created = pods.create(&parameters, &pod("BE")).await.unwrap();
    let created = serde_json::to_value(&created).unwrap();
    assert_eq!(created["status"]["qosClass"], "BestEffort");
    assert_eq!(created["spec"]["priority"], 5000);
    assert_eq!(
        created["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "0", "memory": "0", "kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"})
    );
}
