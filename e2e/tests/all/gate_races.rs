//! Three schedulers of ours and kube-scheduler race for the last places of a cluster with simulated kubelets, with and without the
//! gate.

use std::collections::BTreeMap;
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
/// The longest bind while no gate answers: the timeout of 2 s, half a second, and time for a loaded machine.
const LONGEST_BIND: f64 = 2.5 + 5.0;

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

    fn run_schedulers(&mut self) {
        let control_plane = &self.gated.control_plane;
        let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
        let theirs = control_plane.kube_scheduler(&config, &[]).unwrap();
        self.schedulers.push(theirs);
        for name in OURS {
            let flag = format!("--scheduler-name={name}");
            let flags = [&flag[..], "--leader-elect=false", "--secure-port=0"];
            let ours = control_plane.tidepool(name, &control_plane.admin(), &flags);
            self.schedulers.push(ours.unwrap());
        }
    }

    fn start_schedulers(&mut self) {
        self.run_schedulers();
        // A pod of each shows that it schedules.
        let names = [&OURS[..], &["default-scheduler"]].concat();
        for name in &names {
            self.create(&format!("first-{name}"), name, "0");
        }
        eventually("all schedule", PATIENCE, || match self.bound() {
            bound if bound == names.len() => Ok(()),
            bound => Err(format!("{bound} bound")),
        });
        for name in &names {
            let path = format!("{ALL_PODS}/first-{name}");
            self.gated.api.delete_now(&path).unwrap();
        }
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

    fn create_all(&self) {
        for number in 0..PODS {
            let scheduler = match number % 4 {
                3 => "default-scheduler",
                ours => OURS[ours],
            };
            self.create(&format!("p{number}"), scheduler, "900m");
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

    /// How long each bind of a scheduler took, in seconds, and how many pods were bound twice.
    fn binds(&self) -> (Vec<f64>, usize) {
        let mut requests = self.gated.control_plane.audit().unwrap();
        requests.retain(|it| it.verb == "create" && it.resource == "pods/binding");
        let times = requests.iter().map(|it| {
            let micros = it.completed.as_microsecond() - it.received.as_microsecond();
            micros as f64 / 1e6
        });
        let times = times.collect();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for request in requests.iter().filter(|it| it.code == 201) {
            *names.entry(&request.name).or_default() += 1;
        }
        (times, names.values().filter(|binds| **binds > 1).count())
    }
}

#[test]
fn without_the_gate_kubelets_refuse_pods() {
    let mut race = Race::start(Failure::Ignore, None);
    race.gated.switch_off();
    race.start_schedulers();
    race.create_all();
    race.await_bound(PODS);
    assert!(race.refused() > 0, "the race proves nothing");
}

/// Also if every scheduler is killed in the middle.
#[test]
fn with_the_gate_no_kubelet_refuses_a_pod() {
    let mut race = Race::start(Failure::Fail, Some(10));
    let gate = race.gated.gate("gate", &["--secure-port=0"]);
    race.start_schedulers();
    race.create_all();
    race.await_bound(PODS / 2);
    race.schedulers.iter_mut().for_each(Process::stop);
    race.schedulers.clear();
    race.run_schedulers();
    race.await_bound(PODS);
    assert_eq!(race.refused(), 0, "{}", gate.last_words());
    race.check_nodes();
    let conflicts = gate.log().matches("refused bind").count();
    assert!(conflicts > 0, "the race proves nothing");
    assert_eq!(race.binds().1, 0, "pods were bound twice");
    let known = race.schedulers.iter().map(Process::log);
    let known = known.filter(|log| log.contains("the gate refused the bind"));
    assert!(known.count() > 0, "no scheduler of ours knows a refusal");
}

#[test]
fn a_killed_gate_delays_no_bind_for_long() {
    let mut race = Race::start(Failure::Ignore, None);
    let mut gate = race.gated.gate("gate", &["--secure-port=0"]);
    race.start_schedulers();
    race.create_all();
    race.await_bound(PODS / 2);
    gate.stop();
    race.await_bound(PODS);
    race.refused();
    let (times, twice) = race.binds();
    assert_eq!(twice, 0, "pods were bound twice");
    let slowest = times.iter().copied().fold(0.0, f64::max);
    assert!(slowest <= LONGEST_BIND, "a bind took {slowest} s");
}

#[test]
fn a_strict_gate_that_is_killed_lets_no_node_overflow() {
    let mut race = Race::start(Failure::Fail, Some(10));
    let mut gate = race.gated.gate("gate", &["--secure-port=0"]);
    race.start_schedulers();
    race.create_all();
    race.await_bound(PODS / 2);
    gate.stop();
    let next = race.gated.gate("next", &["--secure-port=0"]);
    race.await_bound(PODS);
    assert_eq!(race.refused(), 0, "{}", next.last_words());
    race.check_nodes();
    assert_eq!(race.binds().1, 0, "pods were bound twice");
}
