//! The cluster of the races, which their tests share because it takes longer to start than a race runs: simulated kubelets, three
//! schedulers of ours and kube-scheduler.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use e2e::{Process, eventually};
use serde_json::{Value, json};

use super::racers::{self, Excess, HALF, Half, NODES, OURS, THEIRS};
use crate::deployed::NAMESPACE;
use crate::gate::{Failure, Gated};
use crate::shared::Shared;
use crate::shared_cluster::text;

const ALL_PODS: &str = "/api/v1/namespaces/default/pods";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const POLICIES: &str =
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies";
/// The profile of `tidepool up`.
const PROFILE: &str = include_str!("../../../../crates/tidepool/src/up/default-profile.yaml");
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Course {
    // Stopped in this order.
    pub(super) schedulers: Vec<Process>,
    _nodes: Process,
    pub(super) gated: Gated,
    /// The node of the unit.
    preferred: String,
    /// Races and gates so far.
    races: usize,
    gates: usize,
}

static SHARED: Shared<Course> = Shared::by(7);

/// Gives the course to one test at a time: without pods and without a gate, but with the gate's configuration.
pub(super) fn with(failure: Failure, timeout: Option<u32>, test: impl FnOnce(&mut Course)) {
    SHARED.with(Course::start, |course| {
        course.clear(failure, timeout);
        test(course);
    });
}

pub(super) fn signal(process: &Process, name: &str) {
    let sent = Command::new("kill")
        .args([name, &process.id().to_string()])
        .status();
    assert!(sent.unwrap().success(), "{name}");
}

impl Course {
    fn start() -> Self {
        let gated = Gated::start(Failure::Ignore, None, "system:masters");
        let control_plane = &gated.control_plane;
        let kubeconfig = control_plane.kubeconfig_file("admin").unwrap();
        let arguments = [
            "nodes".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--nodes={NODES}"),
            "--cpu=2".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let binary = e2e::tidepool::binary().unwrap();
        let nodes = control_plane.run("nodes", &binary, &arguments).unwrap();
        let mut course = Self {
            schedulers: Vec::new(),
            _nodes: nodes,
            gated,
            preferred: String::new(),
            races: 0,
            gates: 0,
        };
        course.await_nodes();
        course.lend();
        course.gated.switch_off();
        course.start_schedulers();
        course
    }

    fn await_nodes(&self) {
        let is_ready = |node: &&Value| {
            let conditions = node["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
        };
        eventually("the nodes are ready", PATIENCE, || {
            let found = self.gated.api.list("/api/v1/nodes").unwrap();
            match found.iter().filter(is_ready).count() {
                NODES => Ok(()),
                ready => Err(format!("{ready} are ready")),
            }
        });
    }

    /// Reports of agents, batch resources, and the policy.
    fn lend(&mut self) {
        let api = &self.gated.api;
        let nodes = api.list("/api/v1/nodes").unwrap();
        self.preferred = text(&nodes[0]["metadata"]["name"]);
        for (number, node) in nodes.iter().enumerate() {
            let half = Half::of(number);
            let name = text(&node["metadata"]["name"]);
            let path = format!("/api/v1/nodes/{name}");
            let label = json!({"metadata": {"labels": {HALF: half.label()}}});
            api.patch(&path, &label).unwrap();
            let batch = half.batch();
            let status = json!({"status": {"capacity": batch, "allocatable": batch}});
            api.patch(&format!("{path}/status"), &status).unwrap();
            let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
                "metadata": {"name": name}});
            api.post(REPORTS, &report).unwrap();
            let status = json!({"status": {"resources": half.lent()}});
            api.patch(&format!("{REPORTS}/{name}/status"), &status)
                .unwrap();
        }
        api.post(POLICIES, &racers::policy(&self.preferred))
            .unwrap();
    }

    fn start_schedulers(&mut self) {
        let all = 0..=OURS.len();
        self.schedulers = all.map(|index| self.run_scheduler(index)).collect();
        // A pod of each shows that it schedules.
        let names = [&OURS[..], &[THEIRS]].concat();
        for name in &names {
            let pod = racers::small_pod(&format!("first-{name}"), name);
            self.gated.api.create(&pod).unwrap();
        }
        self.await_bound(names.len());
        self.delete_pods();
    }

    /// One of ours, or kube-scheduler after them.
    fn run_scheduler(&self, index: usize) -> Process {
        let control_plane = &self.gated.control_plane;
        let Some(name) = OURS.get(index) else {
            let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"});
            return control_plane.kube_scheduler(&config, &[]).unwrap();
        };
        let own = format!("schedulerName: {name}");
        let profile = PROFILE.replace(&format!("schedulerName: {THEIRS}"), &own);
        let file = control_plane.logs().join(format!("{name}.yaml"));
        let config = format!("{profile}\nleaderElection: {{ leaderElect: false }}\n");
        std::fs::write(&file, config).unwrap();
        let config = format!("--config={}", file.display());
        let flags = [&config[..], "--secure-port=0"];
        let ours = control_plane.tidepool(name, &control_plane.admin(), &flags);
        ours.unwrap()
    }

    /// Kills every scheduler and starts it again.
    pub(super) fn restart_schedulers(&mut self) {
        for index in 0..self.schedulers.len() {
            self.schedulers[index].stop();
            self.schedulers[index] = self.run_scheduler(index);
        }
    }

    /// Takes away what the test before made.
    fn clear(&mut self, failure: Failure, timeout: Option<u32>) {
        self.delete_pods();
        // Its holder was killed.
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        for lease in self.gated.api.list(&path).unwrap() {
            if lease["metadata"]["name"] == "tidepool-gate" {
                let lease = format!("{path}/tidepool-gate");
                self.gated.api.delete(&lease).unwrap();
            }
        }
        self.gated.configure(failure, timeout);
    }

    pub(super) fn delete_pods(&self) {
        eventually("all pods are gone", PATIENCE, || {
            self.gated.api.delete_now(ALL_PODS).unwrap();
            match self.pods().len() {
                0 => Ok(()),
                pods => Err(format!("{pods} left")),
            }
        });
    }

    /// A gate that leads.
    pub(super) fn gate(&mut self) -> Process {
        let name = self.gate_name();
        self.gated.gate(&name, &["--secure-port=0"])
    }

    /// A name that no gate had before, since its log has that name.
    pub(super) fn gate_name(&mut self) -> String {
        self.gates += 1;
        format!("gate-{}", self.gates)
    }

    /// Creates the pods of a race while the schedulers stand still, so that all of them start at once with the same view of the
    /// nodes. Returns the number of pods.
    pub(super) fn begin(&mut self) -> usize {
        self.races += 1;
        let pods = racers::pods(self.races);
        for scheduler in &self.schedulers {
            signal(scheduler, "-STOP");
        }
        for pod in &pods {
            self.gated.api.create(pod).unwrap();
        }
        for scheduler in &self.schedulers {
            signal(scheduler, "-CONT");
        }
        pods.len()
    }

    fn pods(&self) -> Vec<Value> {
        self.gated.api.list(ALL_PODS).unwrap()
    }

    pub(super) fn await_bound(&self, want: usize) {
        eventually(&format!("{want} pods are bound"), PATIENCE, || {
            let pods = self.pods();
            let bound = pods.iter().filter(|it| !it["spec"]["nodeName"].is_null());
            match bound.count() {
                bound if bound >= want => Ok(()),
                bound => Err(format!("{bound} bound")),
            }
        });
    }

    /// Pods that their kubelets refused, once every pod is either running or refused, and what the others exceed.
    pub(super) fn outcome(&self) -> (usize, Excess) {
        eventually("every kubelet decided", PATIENCE, || {
            let pods = self.pods();
            let phase = |pod: &Value| text(&pod["status"]["phase"]);
            let is_open = |pod: &&Value| !matches!(&*phase(pod), "Running" | "Failed");
            let refused = pods.iter().filter(|pod| phase(pod) == "Failed").count();
            match pods.iter().filter(is_open).count() {
                0 => Ok((refused, Excess::of(&pods, &self.preferred))),
                open => Err(format!("{open} pods are open")),
            }
        })
    }

    /// No pod was refused, and no limit is exceeded.
    pub(super) fn check_limits(&self, gate: &Process) {
        let found = self.outcome();
        let want = (0, Excess::default());
        assert_eq!(found, want, "{}", gate.last_words());
    }

    /// Every pod was bound once. A pod without a bind would not be bound at all.
    pub(super) fn check_bound_once(&self) {
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

    /// How often the schedulers of ours wrote that the gate refused a bind.
    pub(super) fn known_refusals(&self) -> usize {
        let logs = self.schedulers.iter().map(Process::log);
        logs.map(|log| log.matches("the gate refused the bind").count())
            .sum()
    }

    pub(super) fn waits(&self) -> Waits {
        Waits::read(&self.gated)
    }
}

/// How binds waited for the gate so far, as the API server counts them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    all: u64,
    /// For 2.5 s at most: half a second longer than the timeout of deploy/gate.yaml.
    short: u64,
    /// Binds that were committed although the call failed.
    pub(super) unjudged: u64,
}

impl Waits {
    fn read(gated: &Gated) -> Self {
        let metrics = gated.api.text("/metrics").unwrap();
        let sum = |metric: &str, label: &str| -> u64 {
            let lines = metrics.lines().filter(|line| {
                line.starts_with(metric)
                    && line.contains("name=\"binds.tidepool.io\"")
                    && line.contains(label)
            });
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum()
        };
        let durations = "apiserver_admission_webhook_admission_duration_seconds_bucket";
        Self {
            all: sum(durations, "le=\"+Inf\""),
            short: sum(durations, "le=\"2.5\""),
            unjudged: sum("apiserver_admission_webhook_fail_open_count", ""),
        }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            short: self.short - before.short,
            unjudged: self.unjudged - before.unjudged,
        }
    }

    /// Whether no bind waited for longer.
    pub(super) fn are_short(self) -> bool {
        assert!(self.all > 0, "the API server asked no gate");
        self.short == self.all
    }
}
