//! The nodes and controllers of the embedded cluster on a real API server: they use nothing that only ours has.

use std::time::{Duration, Instant};

use e2e::{ControlPlane, Kubectl, Options};
use local::Timings;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(120);

fn run(kubectl: &Kubectl, command: &str) -> String {
    let arguments: Vec<&str> = command.split(' ').collect();
    let run = kubectl.run(&arguments, PATIENCE).unwrap();
    assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
    run.stdout
}

/// Our nodes and controllers, without kube-controller-manager, next to the real scheduler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_nodes_and_controllers_carry_a_real_api_server() {
    let mut control_plane = ControlPlane::start(Options {
        scheduler: Some(json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        })),
        ..Options::default()
    })
    .unwrap();
    let config = control_plane.admin().to_client_config().await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let local = local::start(client, "certificate".into(), Timings::default());
    local.synced().await;
    local.nodes().add_demo(3).await.unwrap();
    let kubectl = control_plane.kubectl().unwrap();
    let run = |command: &str| run(&kubectl, command);
    let apply = |object: serde_json::Value| {
        std::fs::write(kubectl.directory().join("object.json"), object.to_string()).unwrap();
        run("apply -f object.json");
    };
    run("wait --for=condition=Ready nodes --all --timeout=60s");
    run("wait --for=create serviceaccount/default --timeout=60s");

    run("create deployment web --image=web:1 --replicas=5");
    run("rollout status deployment/web --timeout=60s");
    run("set image deployment/web web=web:2");
    run("rollout status deployment/web --timeout=60s");
    // Watches break, and history may be gone: everything resumes.
    control_plane.restart_apiserver().unwrap();
    run("rollout undo deployment/web");
    run("rollout status deployment/web --timeout=60s");
    // A rollout is done before the last old pod has ended.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let images = run("get pods -o jsonpath={.items[*].spec.containers[*].image}");
        if images.split(' ').eq(["web:1"; 5]) {
            break;
        }
        assert!(Instant::now() < deadline, "{images}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let template = |run_for: &str, code: &str| {
        json!({
            "metadata": {"annotations": {local::RUN_FOR: run_for, local::EXIT_CODE: code}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
        })
    };
    apply(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "good"}, "spec": {
            "completions": 4, "parallelism": 2, "completionMode": "Indexed", "template": template("1s", "0"),
        }}),
    );
    apply(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"}, "spec": {
            "backoffLimit": 0, "template": template("1s", "3"),
        }}),
    );
    run("wait --for=condition=complete job/good --timeout=60s");
    run("wait --for=condition=failed job/bad --timeout=60s");
    let counts = run("get jobs -o jsonpath={.items[*].status.succeeded}/{.items[*].status.failed}");
    assert_eq!(counts, "4/1");

    run("create poddisruptionbudget web --selector=app=web --min-available=80%");
    run("drain node-001 --timeout=100s");
    run("wait --for=jsonpath={.status.disruptionsAllowed}=1 pdb/web --timeout=60s");
    run("uncordon node-001");

    run("create namespace team");
    run("create deployment there --image=web -n team");
    run("rollout status deployment/there -n team --timeout=60s");
    run("delete namespace team --timeout=60s");
    run("delete deployment web --cascade=foreground --timeout=60s");
    run("delete jobs --all --timeout=60s");
    run("wait --for=delete pods --all --timeout=60s");
    assert_eq!(run("get replicasets,pods -o name"), "");
    local.stop().await;
}
