//! The control plane of a race, with simulated kubelets, four schedulers and perhaps the gate.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::{Api, Binds, ControlPlane, Process, eventually};
use futures::StreamExt;
use serde_json::{Value, json};

const OURS: [&str; 3] = ["one", "two", "three"];
/// The fourth scheduler.
const THEIRS: &str = "default-scheduler";
/// In its place, if one process has all names.
const FOURTH: &str = "four";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REPORTS: &str = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources";
const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const RECLAIMED: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const GATE: &str = include_str!("../../../deploy/gate.yaml");
const POLICIES: &str =
    "/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/default/resourcepolicies";
/// The label of a node's quarter.
const PART: &str = "example.com/part";
const STARTUP: Duration = Duration::from_secs(300);
/// Pods of the ResourcePolicy in its first unit.
const MAX_COUNT: usize = 20;

/// A kind of pods in the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Racer {
    /// Requests a core.
    Native,
    /// Requests a core that the node lends.
    Reclaimed,
    /// Requests nothing, and belongs to a ResourcePolicy.
    Capped,
}

impl Racer {
    /// A fifth of the pods, less some, is reclaimed, so that 96% of both accounts are in use in the end.
    fn of(number: usize) -> Self {
        match number {
            number if number % 30 == 1 => Self::Capped,
            number if number.is_multiple_of(5) && !number.is_multiple_of(150) => Self::Reclaimed,
            _ => Self::Native,
        }
    }

    /// How many pods of this kind a node has place for.
    fn places(self, pods: usize, nodes: usize) -> usize {
        let of_kind = (0..pods).filter(|number| Self::of(*number) == self);
        of_kind.count().div_ceil(nodes)
    }
}

pub(crate) struct Cluster {
    api: Api,
    gate: Option<(Process, String)>,
    schedulers: Vec<Process>,
    _nodes: Process,
    control_plane: ControlPlane,
    /// For reclaimed pods, per node.
    lent: usize,
    /// The node of the first unit.
    preferred: String,
    fourth: &'static str,
}

/// What became of the pods.
pub(crate) struct Outcome {
    pub(crate) refused: usize,
    /// Nodes with more reclaimed pods than they lend for; no kubelet counts these.
    pub(crate) overcommitted: usize,
    /// Pods in the unit beyond its limit.
    pub(crate) over_limit: usize,
    /// The seconds until the last pod of each scheduler was bound.
    pub(crate) last_binds: BTreeMap<String, i64>,
}

impl Cluster {
    pub(crate) fn start(nodes: usize, pods: usize, gate: bool) -> Result<Self> {
        let control_plane = ControlPlane::start(e2e::Options {
            disable_admission_plugins: vec![
                "ServiceAccount".to_owned(),
                "TaintNodesByCondition".to_owned(),
            ],
            ..e2e::Options::default()
        })?;
        let api = Api::new(&control_plane.admin())?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tidepool-system"}});
        api.create(&namespace)?;
        let kubectl = control_plane.kubectl()?;
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        kubectl.run(&["apply", "-f", &crds.display().to_string()], STARTUP)?;
        eventually("the kinds are served", STARTUP, || {
            api.get(REPORTS).map_err(|error| format!("{error:#}"))
        });
        // A part of a core is reserved.
        let cores = format!("--cpu={}", Racer::Native.places(pods, nodes) + 1);
        let count = format!("--nodes={nodes}");
        let flags = [&count[..], &cores, "--pods=1000", "--secure-port=0"];
        let nodes_process = run(&control_plane, "nodes", &flags)?;
        eventually("the nodes are ready", STARTUP, || {
            let found = api
                .list("/api/v1/nodes")
                .map_err(|error| format!("{error:#}"))?;
            let is_ready = |node: &&Value| {
                let conditions = node["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
            };
            match found.iter().filter(is_ready).count() {
                ready if ready == nodes => Ok(()),
                ready => Err(format!("{ready} are ready")),
            }
        });
        let mut cluster = Self {
            api,
            gate: None,
            schedulers: Vec::new(),
            _nodes: nodes_process,
            control_plane,
            lent: Racer::Reclaimed.places(pods, nodes),
            preferred: String::new(),
            fourth: THEIRS,
        };
        cluster.lend()?;
        cluster.limit()?;
        if gate {
            cluster.start_gate()?;
        }
        Ok(cluster)
    }

    /// Every node lends to as many reclaimed pods as come to it on average.
    fn lend(&self) -> Result<()> {
        let amount = (1000 * self.lent).to_string();
        for node in self.api.list("/api/v1/nodes")? {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let report = json!({"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
                "metadata": {"name": name}});
            self.api.post(REPORTS, &report)?;
            let status = json!({"status": {"resources": {"allocatable": {RECLAIMED: amount}}}});
            self.api
                .patch(&format!("{REPORTS}/{name}/status"), &status)?;
        }
        Ok(())
    }

    /// Pods of a ResourcePolicy prefer one node, and few of them may be there.
    fn limit(&mut self) -> Result<()> {
        let nodes = self.api.list("/api/v1/nodes")?;
        let first = nodes.first().context("there are nodes")?;
        self.preferred = first["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let one = json!({"matchLabels": {"kubernetes.io/hostname": self.preferred}});
        let policy = json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy",
            "metadata": {"name": "capped"}, "spec": {"podSelector": {"matchLabels": {"app": "capped"}}, "strategy": "prefer",
            "units": [{"name": "few", "priority": 2, "maxCount": MAX_COUNT, "nodeSelector": one}]}});
        self.api.post(POLICIES, &policy).map(drop)
    }

    fn start_gate(&mut self) -> Result<()> {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?
            .local_addr()?
            .port();
        let objects: Vec<Value> = serde_saphyr::from_multiple(GATE)?;
        let secret = objects.iter().find(|it| it["kind"] == "Secret");
        self.api
            .create(secret.context("deploy/gate.yaml has a Secret")?)?;
        let configuration = objects
            .into_iter()
            .find(|it| it["kind"] == "ValidatingWebhookConfiguration");
        let mut configuration = configuration.context("deploy/gate.yaml has a configuration")?;
        // Strictly, and with time for a loaded machine: a bind that is not judged would spoil the result.
        let webhook = &mut configuration["webhooks"][0];
        webhook["clientConfig"] =
            json!({"url": format!("https://127.0.0.1:{port}/validate-binds")});
        webhook["failurePolicy"] = json!("Fail");
        webhook["timeoutSeconds"] = json!(10);
        let port = format!("--webhook-port={port}");
        let flags = [
            "--webhook-address=127.0.0.1",
            &port,
            "--webhook-host=127.0.0.1",
            "--certificate-check-interval=200ms",
            "--leader-elect=false",
        ];
        let gate = run(&self.control_plane, "gate", &flags)?;
        let server = eventually("the gate answers", STARTUP, || {
            let log = gate.log();
            let server = log
                .split("serving on ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            match (server, log.contains("answering reviews")) {
                (Some(server), true) => Ok(server.trim().to_owned()),
                _ => Err(log),
            }
        });
        self.api.post(CONFIGURATIONS, &configuration)?;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nothing"}, "target": {"name": "n"}});
        eventually("the API server asks the gate", STARTUP, || {
            let path = format!("{PODS}/nothing/binding?dryRun=All");
            match self.api.post(&path, &binding) {
                Err(error) if format!("{error:#}").contains("no such pod") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        self.gate = Some((gate, server));
        Ok(())
    }

    /// One process that schedules for all names.
    pub(crate) fn start_one_process(&mut self) -> Result<()> {
        self.fourth = FOURTH;
        let names = [&OURS[..], &[FOURTH]].concat();
        self.start_ours("all", &names, 1, None)?;
        self.await_schedulers()
    }

    /// Three of ours and kube-scheduler, each with a quarter of the nodes.
    pub(crate) fn start_split_schedulers(&mut self) -> Result<()> {
        for (number, node) in self.api.list("/api/v1/nodes")?.iter().enumerate() {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let labels = json!({"metadata": {"labels": {PART: (number % 4).to_string()}}});
            self.api.patch(&format!("/api/v1/nodes/{name}"), &labels)?;
        }
        let kube = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"qps": 10_000, "burst": 10_000},
            "profiles": [{"schedulerName": THEIRS, "pluginConfig": part(3)}]});
        self.schedulers
            .push(self.control_plane.kube_scheduler(&kube, &[])?);
        for (number, name) in OURS.iter().enumerate() {
            self.start_ours(name, &[name], 1, Some(number))?;
        }
        self.await_schedulers()
    }

    /// Three of ours and kube-scheduler.
    pub(crate) fn start_schedulers(&mut self, among: usize) -> Result<()> {
        let kube = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"qps": 10_000, "burst": 10_000}});
        self.schedulers
            .push(self.control_plane.kube_scheduler(&kube, &[])?);
        for name in OURS {
            self.start_ours(name, &[name], among, None)?;
        }
        self.await_schedulers()
    }

    fn start_ours(
        &mut self,
        process: &str,
        names: &[&str],
        among: usize,
        only: Option<usize>,
    ) -> Result<()> {
        // Reclaimed pods and units need the plugins that count them.
        let plugins = json!({"multiPoint": {"enabled": [
            {"name": "QoSAwareNodeResourcesFit", "weight": 1}, {"name": "resourcepolicy"}]}});
        let settings = only.map_or(json!([]), part);
        let profiles = names.iter().map(
            |name| json!({"schedulerName": name, "plugins": plugins, "pluginConfig": settings}),
        );
        let config = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false}, "profiles": profiles.collect::<Vec<_>>()});
        let file = self.control_plane.logs().join(format!("{process}.yaml"));
        std::fs::write(&file, config.to_string())?;
        let config = format!("--config={}", file.display());
        let among = format!("--randomize-node-selection={among}");
        let flags = [&config[..], &among, "--secure-port=0"];
        let admin = self.control_plane.admin();
        let ours = self.control_plane.tidepool(process, &admin, &flags)?;
        self.schedulers.push(ours);
        Ok(())
    }

    /// They schedule before the first pod of the race is created.
    fn await_schedulers(&self) -> Result<()> {
        let names = [self.fourth, OURS[0], OURS[1], OURS[2]];
        for name in names {
            self.api
                .post(PODS, &pod(&format!("first-{name}"), name, "cpu", "0"))?;
        }
        eventually("all schedule", STARTUP, || {
            let pods = self.api.list(PODS).map_err(|error| format!("{error:#}"))?;
            let bound = pods.iter().filter(|it| !it["spec"]["nodeName"].is_null());
            match bound.count() {
                4 => Ok(()),
                bound => Err(format!("{bound} do")),
            }
        });
        for name in names {
            self.api.delete_now(&format!("{PODS}/first-{name}"))?;
        }
        Ok(())
    }

    pub(crate) fn watch_binds(&self) -> Result<Binds> {
        Binds::watch(&self.control_plane.admin())
    }

    pub(crate) fn create_pods(&self, count: usize) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let config = self.control_plane.admin().to_client_config().await?;
            let client = kube::Client::try_from(config)?;
            let creations = futures::stream::iter(0..count).map(|number| {
                let name = format!("p{number}");
                // kube-scheduler knows neither reclaimed resources nor policies.
                let pod = match (Racer::of(number), number % 4) {
                    (Racer::Reclaimed, other) => pod(&name, OURS[other % 3], RECLAIMED, "1000"),
                    (Racer::Capped, other) => {
                        let mut pod = pod(&name, OURS[other % 3], "cpu", "0");
                        pod["metadata"]["labels"] = json!({"app": "capped"});
                        pod
                    }
                    (Racer::Native, 3) => pod(&name, self.fourth, "cpu", "1"),
                    (Racer::Native, ours) => pod(&name, OURS[ours], "cpu", "1"),
                };
                let request = http::Request::post(PODS).header("content-type", "application/json");
                let client = client.clone();
                async move {
                    let request = request.body(pod.to_string().into_bytes())?;
                    anyhow::Ok(client.request::<Value>(request).await?)
                }
            });
            let created: Vec<_> = creations.buffer_unordered(16).collect().await;
            created.into_iter().try_for_each(|result| result.map(drop))
        })
    }

    /// Returns when every pod but so many runs or was refused by its kubelet.
    pub(crate) fn await_decided(&self, unbound: usize, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let pods = self.api.list(PODS)?;
            let is_decided = |pod: &Value| {
                let phase = pod["status"]["phase"].as_str();
                matches!(phase, Some("Running" | "Failed"))
            };
            match pods.iter().filter(|pod| !is_decided(pod)).count() {
                open if open <= unbound => return Ok(()),
                open if begun.elapsed() > patience => bail!("{open} pods are not decided"),
                _ => std::thread::sleep(Duration::from_millis(500)),
            }
        }
    }

    /// No pod is deleted, so the last state shows all that ever was on a node.
    pub(crate) fn outcome(&self) -> Result<Outcome> {
        let mut borrowers: BTreeMap<String, usize> = BTreeMap::new();
        let (mut refused, mut in_unit) = (0, 0_usize);
        let pods = self.api.list(PODS)?;
        for pod in &pods {
            refused += usize::from(pod["status"]["phase"] == "Failed");
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
            if !requests[RECLAIMED].is_null() && !node.is_empty() {
                *borrowers.entry(node.to_owned()).or_default() += 1;
            }
            let is_capped = pod["metadata"]["labels"]["app"] == "capped";
            in_unit += usize::from(is_capped && node == self.preferred);
        }
        let overcommitted = borrowers.values().filter(|pods| **pods > self.lent);
        Ok(Outcome {
            last_binds: last_binds(&pods),
            refused,
            overcommitted: overcommitted.count(),
            over_limit: in_unit.saturating_sub(MAX_COUNT),
        })
    }

    fn metrics(&self) -> Result<Option<String>> {
        let Some((_, server)) = &self.gate else {
            return Ok(None);
        };
        let address = server.trim_start_matches("http://");
        let mut stream = std::net::TcpStream::connect(address)?;
        std::io::Write::write_all(
            &mut stream,
            b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n",
        )?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text)?;
        Ok(Some(text))
    }

    /// An upper bound of this quantile of a histogram of the gate: that of its bucket.
    pub(crate) fn quantile(&self, histogram: &str, quantile: f64) -> Result<Option<f64>> {
        let Some(text) = self.metrics()? else {
            return Ok(None);
        };
        let name = format!("{histogram}_bucket");
        let buckets: Vec<(f64, f64)> = text
            .lines()
            .filter(|line| line.starts_with(&name))
            .filter_map(|line| {
                let bound = line.split("le=\"").nth(1)?.split('"').next()?;
                let count = line.rsplit(' ').next()?.parse().ok()?;
                Some((bound.parse().unwrap_or(f64::INFINITY), count))
            })
            .collect();
        let total = buckets.last().map_or(0.0, |(_, count)| *count);
        let found = buckets.iter().find(|(_, count)| *count >= quantile * total);
        Ok(found.map(|(bound, _)| *bound))
    }

    pub(crate) fn refusals(&self) -> Result<usize> {
        let text = self.metrics()?.unwrap_or_default();
        let lines = text.lines();
        let lines = lines.filter(|line| line.starts_with("tidepool_gate_refusals_total"));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        Ok(counts.sum())
    }
}

/// The settings of a scheduler that places pods on a quarter of the nodes.
fn part(number: usize) -> Value {
    let one = json!({"key": PART, "operator": "In", "values": [number.to_string()]});
    json!([{"name": "NodeAffinity", "args": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}}}])
}

/// By scheduler, in whole seconds since the first pod was created.
fn last_binds(pods: &[Value]) -> BTreeMap<String, i64> {
    let seconds = |value: &Value| {
        let time = value.as_str()?.parse::<jiff::Timestamp>().ok()?;
        Some(time.as_second())
    };
    let created = pods.iter().map(|pod| &pod["metadata"]["creationTimestamp"]);
    let first = created.filter_map(seconds).min().unwrap_or_default();
    let mut last = BTreeMap::new();
    for pod in pods {
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let bound = conditions.find(|it| it["type"] == "PodScheduled" && it["status"] == "True");
        let bound = bound.and_then(|it| seconds(&it["lastTransitionTime"]));
        let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or_default();
        let latest = last.entry(scheduler.to_owned()).or_insert(0);
        *latest = bound.map_or(0, |at| at - first).max(*latest);
    }
    last
}

fn run(control_plane: &ControlPlane, command: &str, flags: &[&str]) -> Result<Process> {
    let kubeconfig = control_plane.kubeconfig_file("admin")?;
    let mut arguments = vec![
        command.to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    control_plane.run(command, &e2e::tidepool::binary()?, &arguments)
}

fn pod(name: &str, scheduler: &str, resource: &str, amount: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i",
            "resources": {"requests": {resource: amount}, "limits": {resource: amount}}}]}});
    if resource == RECLAIMED {
        pod["metadata"]["annotations"] =
            json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    }
    pod
}
