//! The harness itself: what it starts works, and ends with the test.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::{ControlPlane, Kubectl, Options, User};
use serde_json::json;

use crate::shared::Shared;

/// With a user, controllers and the scheduler.
static SHARED: Shared<ControlPlane> = Shared::by(2);

const SHORT: Duration = Duration::from_secs(30);

fn kubectl(kubectl: &Kubectl, arguments: &[&str]) -> String {
    let run = kubectl.run(arguments, SHORT).expect("kubectl runs");
    assert_eq!(run.code, Some(0), "kubectl {arguments:?}: {run:?}");
    run.stdout
}

/// Whether a process is running with this text among its arguments.
fn is_running(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc can be read");
    processes.flatten().any(|process| {
        // The process may end while we look.
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(argument)
    })
}

fn start() -> ControlPlane {
    ControlPlane::start(Options {
        users: vec![User {
            name: "alice".to_owned(),
            groups: vec![],
        }],
        disable_admission_plugins: vec![
            "ServiceAccount".to_owned(),
            "TaintNodesByCondition".to_owned(),
        ],
        controllers: ["deployment-controller", "replicaset-controller"]
            .map(str::to_owned)
            .to_vec(),
        scheduler: Some(json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        })),
        ..Options::default()
    })
    .unwrap()
}

#[test]
fn users_have_their_own_permissions() {
    SHARED.with(start, |control_plane| users_are_limited(control_plane));
}

fn users_are_limited(control_plane: &ControlPlane) {
    let admin = control_plane.kubectl().unwrap();
    assert_eq!(
        kubectl(&admin, &["auth", "can-i", "delete", "nodes"]),
        "yes\n"
    );

    let alice = Kubectl::new(control_plane.binaries(), &control_plane.kubeconfig("alice")).unwrap();
    let refused = alice.run(&["get", "pods"], SHORT).unwrap();
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains(r#"User "alice" cannot list resource "pods""#),
        "{refused:?}"
    );
}

#[test]
fn compaction_and_a_restart_make_old_versions_unavailable() {
    let mut control_plane = ControlPlane::start(Options::default()).unwrap();
    let admin = control_plane.kubectl().unwrap();
    kubectl(&admin, &["create", "configmap", "kept"]);
    control_plane.compact().unwrap();
    control_plane.restart_apiserver().unwrap();
    assert_eq!(
        kubectl(&admin, &["get", "configmap", "kept", "-o", "name"]),
        "configmap/kept\n",
        "a restart keeps the data"
    );
    let watch = "/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=1";
    let answer = kubectl(&admin, &["get", "--raw", watch]);
    assert!(answer.contains(r#""code":410"#), "{answer}");
}

#[test]
fn controllers_and_scheduler_run_when_enabled() {
    SHARED.with(start, |control_plane| pods_are_scheduled(control_plane));
}

fn pods_are_scheduled(control_plane: &ControlPlane) {
    let admin = control_plane.kubectl().unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"}}});
    std::fs::write(admin.directory().join("node.json"), node.to_string()).unwrap();
    kubectl(&admin, &["create", "-f", "node.json"]);
    kubectl(&admin, &["create", "deployment", "web", "--image=web"]);
    // The pod must exist before its condition can be waited for.
    kubectl(
        &admin,
        &[
            "wait",
            "pod",
            "-l",
            "app=web",
            "--for=create",
            "--timeout=20s",
        ],
    );
    kubectl(
        &admin,
        &[
            "wait",
            "pod",
            "-l",
            "app=web",
            "--for=condition=PodScheduled",
            "--timeout=20s",
        ],
    );
}

#[test]
fn a_panic_stops_everything_and_keeps_the_logs() {
    let mut directory = PathBuf::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let control_plane =
            ControlPlane::start(Options::default()).expect("the control plane starts");
        directory = control_plane.logs().to_owned();
        assert!(is_running(&directory.display().to_string()));
        panic!("a test that fails");
    }));
    assert!(panicked.is_err());
    assert!(directory.join("kube-apiserver.log").is_file());
    // The last shell may still be on its way out.
    let deadline = Instant::now() + SHORT;
    while is_running(&directory.display().to_string()) {
        assert!(Instant::now() < deadline, "something outlived the panic");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir_all(directory).expect("the logs can be removed");
}
