//! Three schedulers of ours and kube-scheduler race for the last places of a cluster with simulated kubelets, with and without the
//! gate, while processes are killed. `TIDEPOOL_FULL` kills them at more moments.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use e2e::{Process, eventually};
use serde_json::{Value, json};

use crate::gate::{Failure, Gated};
use crate::shared_cluster::text;

const PODS: usize = 300;
/// Each has place for two pods.
const NODES: usize = PODS / 2;
const OURS: [&str; 3] = ["one", "two", "three"];
const ALL_PODS: &str = "/api/v1/namespaces/default/pods";
const PATIENCE: Duration = Duration::from_secs(300);

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// How many pods are bound when a process is killed.
fn moments() -> Vec<usize> {
    let percents = match is_full() {
        true => (10..=90).step_by(20).collect(),
        false => vec![50],
    };
    let pods = |percent: usize| PODS * percent / 100;
    percents.into_iter().map(pods).collect()
}

fn signal(process: &Process, name: &str) {
    let sent = Command::new("kill")
        .args([name, &process.id().to_string()])
        .status();
    assert!(sent.unwrap().success(), "{name}");
}

struct Race {
    gated: Gated,
    _nodes: Process,
    schedulers: Vec<Process>,
}

impl Race {
    fn start(failure: Failure, timeout: Option<u32>) -> Self {
        let gated = Gated::start(failure, timeout, "system:masters");
        let control_plane = &gated.control_plane;
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let arguments = [
            "nodes",
            &kubeconfig,
            &format!("--nodes={NODES}"),
            "--cpu=2",
            "--secure-port=0",
        ];
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        let binary = e2e::tidepool::binary().unwrap();
        let nodes = control_plane.run("nodes", &binary, &arguments).unwrap();
        let is_ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        eventually("the nodes are ready", PATIENCE, || {
            let found = gated.api.list("/api/v1/nodes").unwrap();
            match found.iter().filter(is_ready).count() {
                NODES => Ok(()),
                ready => Err(format!("{ready}: {}", nodes.last_words())),
            }
        });
        Self {
            gated,
            _nodes: nodes,
            schedulers: Vec::new(),
        }
    }

    /// One of ours, or kube-scheduler after them.
    fn run_scheduler(&self, index: usize) -> Process {
        let control_plane = &self.gated.control_plane;
        let Some(name) = OURS.get(index) else {
            let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
            return control_plane.kube_scheduler(&config, &[]).unwrap();
        };
        let flag = format!("--scheduler-name={name}");
        let flags = [&flag[..], "--leader-elect=false", "--secure-port=0"];
        let ours = control_plane.tidepool(name, &control_plane.admin(), &flags);
        ours.unwrap()
    }

    /// Kills a scheduler and starts it again.
    fn restart_scheduler(&mut self, index: usize) {
        self.schedulers[index].stop();
        self.schedulers[index] = self.run_scheduler(index);
    }

    fn start_schedulers(&mut self) {
        self.schedulers = (0..=OURS.len())
            .map(|index| self.run_scheduler(index))
            .collect();
        // A pod of each shows that it schedules.
        let names = [&OURS[..], &["default-scheduler"]].concat();
        for name in &names {
            self.create(&format!("first-{name}"), name, "0");
        }
        eventually("all schedule", PATIENCE, || match self.bound() {
            bound if bound == names.len() => Ok(()),
            bound => Err(format!("{bound} bound")),
        });
        self.delete_all();
    }

    fn delete_all(&self) {
        self.gated.api.delete_now(ALL_PODS).unwrap();
        eventually("they are gone", PATIENCE, || match self.pods().len() {
            0 => Ok(()),
            pods => Err(format!("{pods} left")),
        });
    }

    fn create(&self, name: &str, scheduler: &str, cpu: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": cpu}}}]}});
        self.gated.api.create(&pod).unwrap();
    }

    fn create_all(&self, round: usize) {
        for number in 0..PODS {
            let scheduler = match number % 4 {
                3 => "default-scheduler",
                ours => OURS[ours],
            };
            self.create(&format!("p{round}-{number}"), scheduler, "900m");
        }
    }

    fn pods(&self) -> Vec<Value> {
        self.gated.api.list(ALL_PODS).unwrap()
    }

    fn bound(&self) -> usize {
        let pods = self.pods();
        let bound = pods.iter().filter(|it| !it["spec"]["nodeName"].is_null());
        bound.count()
    }

    fn await_bound(&self, want: usize) {
        eventually(&format!("{want} pods are bound"), PATIENCE, || {
            match self.bound() {
                bound if bound >= want => Ok(()),
                bound => Err(format!("{bound} bound")),
            }
        });
    }

    /// Pods that their kubelets refused, once every pod is either running or refused.
    fn refused(&self) -> usize {
        eventually("every kubelet decided", PATIENCE, || {
            let pods = self.pods();
            let phase = |pod: &Value| text(&pod["status"]["phase"]);
            let is_open = |pod: &&Value| !matches!(&*phase(pod), "Running" | "Failed");
            match pods.iter().filter(is_open).count() {
                0 => Ok(pods.iter().filter(|pod| phase(pod) == "Failed").count()),
                open => Err(format!("{open} pods are open")),
            }
        })
    }

    /// No node has more pods than it has places.
    fn check_nodes(&self) {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.pods() {
            *nodes.entry(text(&pod["spec"]["nodeName"])).or_default() += 1;
        }
        let full = nodes.iter().filter(|(_, pods)| **pods > 2);
        assert_eq!(full.count(), 0, "{nodes:?}");
    }

    /// Every pod was bound once. A pod without a bind would not be bound at all.
    fn check_bound_once(&self) {
        let mut requests = self.gated.control_plane.audit().unwrap();
        requests
            .retain(|it| it.verb == "create" && it.resource == "pods/binding" && it.code == 201);
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for request in &requests {
            *names.entry(&request.name).or_default() += 1;
        }
        let twice: Vec<_> = names.iter().filter(|(_, binds)| **binds > 1).collect();
        assert!(twice.is_empty(), "pods were bound twice: {twice:?}");
    }

    /// No bind waited longer for the gate than its timeout of 2 s and half a second, as the API server measures it.
    fn check_waits(&self) {
        let metrics = self.gated.api.text("/metrics").unwrap();
        let of_gate = |line: &&str| {
            line.starts_with("apiserver_admission_webhook_admission_duration_seconds_bucket")
                && line.contains("name=\"binds.tidepool.io\"")
        };
        let count = |bound: &str| -> u64 {
            let lines = metrics.lines().filter(of_gate);
            let lines = lines.filter(|line| line.contains(bound));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        let (within, all) = (count("le=\"2.5\""), count("le=\"+Inf\""));
        assert!(all > 0, "the API server asked no gate");
        assert_eq!(
            within, all,
            "binds waited for the gate for longer than 2.5 s"
        );
    }
}

#[test]
fn without_the_gate_kubelets_refuse_pods() {
    let mut race = Race::start(Failure::Ignore, None);
    race.gated.switch_off();
    race.start_schedulers();
    race.create_all(0);
    race.await_bound(PODS);
    assert!(race.refused() > 0, "the race proves nothing");
}

/// Also if each scheduler is killed in the middle.
#[test]
fn with_the_gate_no_kubelet_refuses_a_pod() {
    let mut race = Race::start(Failure::Fail, Some(10));
    let gate = race.gated.gate("gate", &["--secure-port=0"]);
    race.start_schedulers();
    race.create_all(0);
    for moment in moments() {
        race.await_bound(moment);
        (0..=OURS.len()).for_each(|index| race.restart_scheduler(index));
    }
    race.await_bound(PODS);
    assert_eq!(race.refused(), 0, "{}", gate.last_words());
    race.check_nodes();
    race.check_bound_once();
    let conflicts = gate.log().matches("refused bind").count();
    assert!(conflicts > 0, "the race proves nothing");
    let known = race.schedulers.iter().map(Process::log);
    let known = known.filter(|log| log.contains("the gate refused the bind"));
    assert!(known.count() > 0, "no scheduler of ours knows a refusal");
}

#[test]
fn a_killed_gate_delays_no_bind_for_long() {
    let mut race = Race::start(Failure::Ignore, None);
    race.start_schedulers();
    // Pods are bound before another gate leads, so each moment has pods of its own.
    for (round, moment) in moments().into_iter().enumerate() {
        let mut gate = race
            .gated
            .gate(&format!("gate-{round}"), &["--secure-port=0"]);
        race.create_all(round);
        race.await_bound(moment);
        gate.stop();
        race.await_bound(PODS);
        race.refused();
        race.check_bound_once();
        race.check_waits();
        race.delete_all();
    }
}

#[test]
fn a_strict_gate_that_is_killed_lets_no_node_overflow() {
    let mut race = Race::start(Failure::Fail, Some(10));
    let mut gate = race.gated.gate("gate", &["--secure-port=0"]);
    race.start_schedulers();
    race.create_all(0);
    for (round, moment) in moments().into_iter().enumerate() {
        race.await_bound(moment);
        gate.stop();
        gate = race
            .gated
            .gate(&format!("gate-{round}"), &["--secure-port=0"]);
    }
    race.await_bound(PODS);
    assert_eq!(race.refused(), 0, "{}", gate.last_words());
    race.check_nodes();
    race.check_bound_once();
}

/// It holds its connections, and answers nothing.
#[test]
fn a_gate_that_hangs_delays_no_bind_for_long() {
    let mut race = Race::start(Failure::Ignore, None);
    race.start_schedulers();
    for (round, moment) in moments().into_iter().enumerate() {
        let mut gate = race
            .gated
            .gate(&format!("gate-{round}"), &["--secure-port=0"]);
        race.create_all(round);
        race.await_bound(moment);
        signal(&gate, "-STOP");
        race.await_bound(PODS);
        race.refused();
        race.check_bound_once();
        race.check_waits();
        race.delete_all();
        gate.stop();
    }
}

/// It wakes when another replica leads, and answers what was asked before that.
#[test]
fn a_strict_gate_that_hangs_lets_no_node_overflow() {
    let mut race = Race::start(Failure::Fail, Some(10));
    let flags = ["--secure-port=0", "--advertise-address=192.0.2.8"];
    let hung = race.gated.gate("hung", &flags[..1]);
    let (next, address) = race.gated.replica("next", &flags);
    race.start_schedulers();
    race.create_all(0);
    race.await_bound(PODS / 2);
    signal(&hung, "-STOP");
    race.gated.route(&next, address);
    // It ends the connections that the API server has, since it cannot answer.
    signal(&hung, "-CONT");
    race.await_bound(PODS);
    assert_eq!(race.refused(), 0, "{}", next.last_words());
    race.check_nodes();
    race.check_bound_once();
}
