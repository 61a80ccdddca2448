//! `tidepool agent --restore`, on a directory that looks like the cgroups of a node.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tempfile::TempDir;

use crate::{Output, PATIENCE, Up, client, run, tidepool};

/// Files of a pod that an agent limited, and what the kubelet gave them.
const FILES: [(&str, &str, &str); 3] = [
    ("cpu.weight", "157", "1"),
    ("cpu.max", "50000 100000", "max 100000"),
    ("memory.max", "67108864", "max"),
];

/// Cgroups (v2) with one pod, and the state of an agent. The journal is of the first version, whose records have no checksum; the one
/// of the memory limit is damaged.
struct LimitedPod {
    directory: TempDir,
    group: String,
}

impl LimitedPod {
    fn new(uid: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let group = format!("kubepods/besteffort/pod{uid}");
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cgroup/cgroup.controllers", "cpu cpuset memory\n");
        let mut journal = String::new();
        for (name, limited, original) in FILES {
            write(&format!("cgroup/{group}/{name}"), limited);
            let (controller, _) = name.split_once('.').unwrap();
            let depth = if controller == "memory" { "two" } else { "2" };
            journal.push_str(&format!(
                "{depth}\t{controller}\t{group}\t{name}\t{original}\n"
            ));
        }
        write(&format!("cgroup/{group}/memory.current"), "0");
        write("state/journal", &journal);
        Self { directory, group }
    }

    fn values(&self) -> [String; 3] {
        let directory = self.directory.path().join("cgroup").join(&self.group);
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        FILES.map(|(name, ..)| read(name).trim().to_owned())
    }

    fn restore(&self, more: &[&str]) -> Output {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let mounts = [
            format!("--cgroup-mount={}", path("cgroup")),
            format!("--state-dir={}", path("state")),
            format!("--kubelet-root={}", path("kubelet")),
        ];
        let mut command = tidepool(&["agent", "--restore", "--node-name=limited"]);
        run(command.args(mounts).args(more))
    }
}

#[test]
fn damage_ends_one_restore_with_an_error() {
    let pod = LimitedPod::new("11111111-2222-3333-4444-555555555555");
    let [weight, quota, memory] = FILES;
    let dry = pod.restore(&["--dry-run"]);
    assert_eq!(dry.code, Some(1), "{}", dry.stderr);
    assert_eq!(pod.values(), [weight.1, quota.1, memory.1]);
    let damaged = pod.restore(&[]);
    assert_eq!(damaged.code, Some(1), "{}", damaged.stderr);
    for part in [
        "was damaged: 2 of its records can be read, 1 cannot; the records that can be read are restored",
        "use --kubelet-values",
    ] {
        assert!(damaged.stderr.contains(part), "{part}: {}", damaged.stderr);
    }
    for (name, _, original) in [weight, quota] {
        let line = format!("{}/{name}: {original}\n", pod.group);
        assert!(damaged.stdout.contains(&line), "{line}: {}", damaged.stdout);
    }
    assert_eq!(pod.values(), [weight.2, quota.2, memory.1]);
    let again = pod.restore(&[]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(
        again.stdout.starts_with("nothing to restore"),
        "{}",
        again.stdout
    );
    assert_eq!(pod.values(), [weight.2, quota.2, memory.1]);
}

#[test]
fn a_journal_that_cannot_be_replaced_stays_damaged() {
    let pod = LimitedPod::new("11111111-2222-3333-4444-555555555555");
    let blocked = pod.directory.path().join("state/journal.count.unfinished");
    std::fs::create_dir(&blocked).unwrap();
    for round in 0..2 {
        let failed = pod.restore(&[]);
        assert_eq!(failed.code, Some(1), "{round}: {}", failed.stderr);
        for part in [
            "cannot restore journal: ",
            "is damaged: 2 of its records can be read, 1 cannot",
        ] {
            assert!(
                failed.stderr.contains(part),
                "{round}: {part}: {}",
                failed.stderr
            );
        }
    }
    std::fs::remove_dir(&blocked).unwrap();
    assert_eq!(pod.restore(&[]).code, Some(1));
    assert_eq!(pod.restore(&[]).code, Some(0));
}

#[tokio::test]
async fn after_damage_the_reports_are_withdrawn_and_other_files_get_the_values_of_the_kubelet() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kubeconfig");
    let _up = Up::start(&["--empty", "--kubeconfig-out", path.to_str().unwrap()]);
    let uid = create_pod(&path).await;
    let leases: Api<Lease> = Api::namespaced(client(&path).await, "tidepool-system");
    let parameters = PostParams::default();
    let lease =
        json!({"metadata": {"name": "agent-limited"}, "spec": {"holderIdentity": "limited"}});
    let lease: Lease = serde_json::from_value(lease).unwrap();
    leases.create(&parameters, &lease).await.unwrap();
    let pod = LimitedPod::new(&uid);
    let [weight, quota, memory] = FILES;
    let kubeconfig = format!("--kubeconfig={}", path.display());

    let damaged = pod.restore(&[&kubeconfig]);
    assert_eq!(damaged.code, Some(1), "{}", damaged.stderr);
    assert!(
        damaged.stderr.contains("was damaged: "),
        "{}",
        damaged.stderr
    );
    assert_eq!(pod.values(), [weight.2, quota.2, memory.1]);
    assert!(leases.get_opt("agent-limited").await.unwrap().is_none());

    let others = pod.restore(&[&kubeconfig, "--kubelet-values"]);
    assert_eq!(others.code, Some(0), "{}", others.stderr);
    let line = format!("{}/memory.max: max\n", pod.group);
    assert_eq!(others.stdout, line);
    assert_eq!(pod.values(), [weight.2, quota.2, memory.2]);

    // In one run.
    let both = LimitedPod::new(&uid);
    let output = both.restore(&[&kubeconfig, "--kubelet-values"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let part = "other files have the values that the kubelet gives them";
    assert!(output.stderr.contains(part), "{}", output.stderr);
    assert_eq!(both.values(), [weight.2, quota.2, memory.2]);
}

/// A batch pod on a node that only this test has. Returns its uid.
async fn create_pod(kubeconfig: &Path) -> String {
    let client = client(kubeconfig).await;
    let parameters = PostParams::default();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "limited"}})).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&parameters, &node).await.unwrap();
    let resources = json!({"requests": {"cpu": "500m", "memory": "64Mi"}});
    let pod = json!({
        "metadata": {"name": "limited", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "nodeName": "limited", "priorityClassName": "koord-batch",
            "containers": [{"name": "main", "image": "app:1", "resources": resources}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client);
    let deadline = Instant::now() + PATIENCE;
    // The namespace has its service account, and the webhook its settings, a moment after the start.
    loop {
        match pods.create(&parameters, &pod).await {
            Ok(pod) => return pod.metadata.uid.unwrap(),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
