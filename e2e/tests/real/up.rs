//! `tidepool up` in a process of its own, used with the real kubectl and our own commands.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use e2e::kubectl::Run;
use e2e::{Binaries, Kubectl};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Up {
    child: Child,
    output: mpsc::Receiver<String>,
    kubectl: Kubectl,
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Up {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let program = e2e::tidepool::binary().unwrap();
        let mut child = Command::new(&program)
            .args(["up", "--port", "0", "--for", "10m"])
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver is gone once the test is over.
                let _ = sender.send(line);
            }
        });
        let line = wait_for(&output, "kubeconfig: ");
        let kubeconfig = line.trim_start_matches("kubeconfig: ");
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let kubectl = Kubectl::with_text(&Binaries::find().unwrap(), &text).unwrap();
        Self {
            child,
            output,
            kubectl,
            program,
            home,
        }
    }

    /// Runs kubectl, whatever its exit code.
    pub(crate) fn run(&self, command: &str) -> Run {
        let arguments: Vec<&str> = command.split(' ').collect();
        self.kubectl.run(&arguments, PATIENCE).unwrap()
    }

    pub(crate) fn kubectl(&self, command: &str) -> String {
        let run = self.run(command);
        assert_eq!(run.code, Some(0), "kubectl {command}: {run:?}");
        run.stdout
    }

    /// A file for kubectl, in the directory where it runs.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.kubectl.directory().join(name), text).unwrap();
    }

    fn apply(&self, object: &Value) {
        self.write("object.json", &object.to_string());
        self.kubectl("apply -f object.json");
    }

    /// Runs another command of our program.
    fn tidepool(&self, command: &str) -> String {
        let output = Command::new(&self.program)
            .args(command.split(' '))
            .env_clear()
            .env("HOME", self.home.path())
            .output()
            .unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "tidepool {command}: {stderr}"
        );
        assert_eq!(stderr, "", "tidepool {command}");
        stdout
    }
}

/// Waits for a line that contains this.
fn wait_for(output: &mpsc::Receiver<String>, part: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    let mut before = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = output.recv_timeout(left);
        let line = line.unwrap_or_else(|_| panic!("it never printed `{part}`, only {before:#?}"));
        if line.contains(part) {
            return line;
        }
        before.push(line);
    }
}

/// Asks until the answer contains this.
fn eventually(part: &str, ask: impl Fn() -> String) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if answer.contains(part) {
            return answer;
        }
        assert!(Instant::now() < deadline, "`{part}` is not in {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_deployment_runs_and_a_pod_that_cannot_is_explained() {
    let up = Up::start(&["--nodes", "3", "--no-demo"]);
    up.kubectl("create deployment web --image=web --replicas=4");
    up.kubectl("rollout status deployment/web --timeout=60s");
    let phases = up.kubectl("get pods -o jsonpath={.items[*].status.phase}");
    assert_eq!(phases, ["Running"; 4].join(" "));
    let placed = wait_for(&up.output, "placed   default/web-");
    let (pod, node) = placed
        .split_once("placed   default/")
        .and_then(|(_, rest)| rest.split_once(" on "))
        .unwrap();
    let message = format!("Successfully assigned default/{pod} to {node}");
    let described = eventually(&message, || up.kubectl(&format!("describe pod {pod}")));
    let event = described
        .lines()
        .find(|line| line.contains(&message))
        .unwrap();
    let event: Vec<&str> = event.split_whitespace().collect();
    assert_eq!((event[0], event[1]), ("Normal", "Scheduled"));
    assert!(event.contains(&"default-scheduler"), "{event:?}");

    up.apply(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "giant"}, "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "64"}}}]}}),
    );
    let message = "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: \
        0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    wait_for(&up.output, &format!("waiting  default/giant: {message}"));
    let events =
        "get events --field-selector reason=FailedScheduling -o jsonpath={.items[*].message}";
    assert_eq!(eventually(message, || up.kubectl(events)), message);

    let explained = up.tidepool("explain pod giant");
    for part in [
        "0/3 nodes fit",
        "Insufficient cpu",
        "NodeResourcesFit",
        "node-001 node-002 node-003",
    ] {
        assert!(explained.contains(part), "{part} is not in:\n{explained}");
    }
    let json = up.tidepool("explain pod default/giant -o json");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["verdict"]["noNode"], message);
    let scores = up.tidepool(&format!("explain pod {pod} --scores"));
    let head = scores.lines().find(|line| line.starts_with("| #")).unwrap();
    assert!(head.contains("NodeResourcesFit"), "{scores}");
    let status = up.tidepool("status");
    for part in [
        "primary, leader, holds kube-system/kube-scheduler",
        "3 nodes, 4 bound pods",
        "1 unschedulable",
    ] {
        assert!(status.contains(part), "{part} is not in:\n{status}");
    }
}

#[test]
fn the_demo_fills_the_cluster_and_services_preempt_batch_pods() {
    let up = Up::start(&[]);
    wait_for(&up.output, "placed   demo/storefront-");
    wait_for(&up.output, "waiting  demo/train-");
    for service in ["storefront", "checkout", "search", "cache"] {
        up.kubectl(&format!(
            "-n demo rollout status deployment/{service} --timeout=60s"
        ));
    }
    up.kubectl("-n demo scale deployment storefront --replicas=18");
    wait_for(&up.output, "evicted  demo/");
    let explained = up.tidepool("explain pod demo/train-gpu");
    let message = "node(s) didn't match Pod's node affinity/selector";
    assert!(explained.contains(message), "{explained}");
}

#[test]
fn the_demo_has_pods_with_numa_zones_of_their_own() {
    let up = Up::start(&["--numa", "2x2"]);
    for service in ["ranking", "bidding", "storefront"] {
        up.kubectl(&format!(
            "-n demo rollout status deployment/{service} --timeout=60s"
        ));
    }
    let path = r"jsonpath={range.items[*]}{.metadata.name}:{.spec.nodeName}:{.metadata.annotations.tidepool\.io/numa-zones};{end}";
    let pods = up.kubectl(&format!("-n demo get pods -l tier=dedicated -o {path}"));
    let pods: Vec<Vec<&str>> = pods
        .split_terminator(';')
        .map(|pod| pod.split(':').collect())
        .collect();
    assert_eq!(pods.len(), 4, "{pods:?}");
    for pod in &pods {
        let [name, node, zones] = pod[..] else {
            panic!("{pod:?}");
        };
        let explained = up.tidepool(&format!("explain pod demo/{name}"));
        let words = match name.starts_with("bidding") {
            true => format!(
                "zones      NUMA zones {zones} of {node}, exclusive; not 1 zone: it requests 6 of cpu, and 1 zone has at most 3900m\n"
            ),
            false => format!("zones      NUMA zone {zones} of {node}, exclusive\n"),
        };
        assert!(explained.contains(&words), "{explained}");
        let drawn = up.tidepool(&format!("explain node {node}"));
        let lines = drawn
            .lines()
            .filter(|line| line.contains("exclusive") && line.contains(&format!("demo/{name}")));
        assert_eq!(lines.count(), zones.split(',').count(), "{drawn}");
        // The simulated agent reports the pod by its uid.
        let uid = up.kubectl(&format!(
            "-n demo get pod {name} -o jsonpath={{.metadata.uid}}"
        ));
        let consumer = format!("demo/{name}/{uid}");
        eventually(&consumer, || {
            up.kubectl(&format!("get kcnr {node} -o yaml"))
        });
    }
    let refused = Command::new(&up.program)
        .args(["up", "--numa", "4"])
        .output()
        .unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    let words = "`4` is not SOCKETSxZONES, such as 2x2, with at most 64 zones";
    assert!(text.contains(words) && !refused.status.success(), "{text}");
}

/// Without any configuration: the definition, the namespace of our components, and a profile that places reclaimed pods.
#[test]
fn a_new_cluster_takes_reports_and_reclaimed_pods() {
    let up = Up::start(&["--nodes", "2", "--no-demo"]);
    up.kubectl("get namespace tidepool-system");
    for (node, status) in [
        (
            "node-001",
            json!({"resources": {"allocatable": {"resource.katalyst.kubewharf.io/reclaimed_millicpu": "1k"}}}),
        ),
        (
            "node-002",
            json!({"resourceAllocatable": {"katalyst.kubewharf.io/reclaimed_millicpu": "8k"}}),
        ),
    ] {
        // The controllers make one for each node. If they do so between the two requests of kubectl, it fails.
        eventually(node, || up.kubectl("get kcnr --no-headers"));
        up.apply(
            &json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
                "metadata": {"name": node}}),
        );
        let patch = json!({"status": status});
        up.kubectl(&format!(
            "patch kcnr {node} --subresource=status --type=merge -p {patch}"
        ));
    }
    let shown = up.kubectl("get kcnr --no-headers");
    let amounts: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(amounts, ["1k", "8k"], "{shown}");
    let amount = json!({"resource.katalyst.kubewharf.io/reclaimed_millicpu": "4k"});
    up.apply(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job",
            "annotations": {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}}, "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": amount, "limits": amount}}]}}),
    );
    wait_for(&up.output, "placed   default/job on node-002");
}

/// The webhook answers in the process of `up`: pods get the class that they name, and pairs that do not go together are refused.
#[test]
fn a_new_cluster_admits_pods_of_every_tier() {
    let up = Up::start(&["--nodes", "2", "--no-demo"]);
    crate::webhook::check_examples(&up.kubectl);
    let refused = |command: &str| {
        let run = up.run(command);
        assert_eq!(run.code, Some(1), "kubectl {command}: {run:?}");
        run.stderr
    };
    let overrides = json!({"spec": {"priorityClassName": "koord-batch"}});
    let wrong = format!(
        "run wrong --image=web --labels=koordinator.sh/qosClass=LSR --overrides={}",
        overrides.to_string().replace(' ', "")
    );
    let text = refused(&wrong);
    for part in [
        "admission webhook \"mutate.pods.tidepool.io\" denied the request",
        "QoS class LSR does not go with priority class koord-batch",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = refused("label --overwrite pod mid-be koordinator.sh/qosClass=LS");
    let part = "label koordinator.sh/qosClass is immutable: it was `BE`, found `LS`";
    assert!(text.contains(part), "{text}");
    let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "wrong"}, "spec": {"qosClass": "LSR", "priorityClassName": "koord-mid"}});
    up.write("profile.json", &profile.to_string());
    let text = refused("create -f profile.json");
    assert!(
        text.contains("\"validate.profiles.tidepool.io\" denied the request"),
        "{text}"
    );
    // A Deployment that says nothing about its tier, and a profile that does.
    let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "jobs"}, "spec": {"selector": {"matchLabels": {"app": "etl"}}, "priorityClassName": "koord-batch"}});
    up.apply(&profile);
    eventually("jobs", || {
        up.kubectl("run probe --image=etl --labels=app=etl --dry-run=server -o json")
    });
    up.kubectl("create deployment etl --image=etl --replicas=2");
    up.kubectl("rollout status deployment/etl --timeout=60s");
    let priorities = up.kubectl("get pods -l app=etl -o jsonpath={.items[*].spec.priority}");
    assert_eq!(priorities, "5000 5000");
}
