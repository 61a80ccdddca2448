//! Cases for Katalyst's NodeResourceTopology: a machine `n0` with NUMA zones, partly used, a machine `n1` on which every pod fits,
//! so that `n0` is scored wherever it fits, and a dedicated pod of one container.
//!
//! Nearly half of the machines have something about which Katalyst and we disagree; `known` says what.

use serde_json::{Map, Value, json};

use super::Case;
use crate::random::Random;

pub(crate) const GPU: &str = "example.com/gpu";
const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const MEMORY_ENHANCEMENT: &str = "katalyst.kubewharf.io/memory_enhancement";
const NUMA_ZONES: &str = "tidepool.io/numa-zones";
const PLUGIN: &str = "NodeResourceTopology";
const GIB: i64 = 1 << 30;

/// Thousandths of cpu, and units of everything else.
pub(crate) type Quantities = Vec<(&'static str, i64)>;

/// One case, before it is written down.
#[derive(Debug, Clone)]
pub(crate) struct ZonedMachine {
    pub(crate) policy: &'static str,
    pub(crate) zones: Vec<ZoneDraft>,
    /// Pods on the machine.
    pub(crate) pods: Vec<Value>,
    pub(crate) is_reported: bool,
    pub(crate) requests: Quantities,
    pub(crate) is_exclusive: bool,
    pub(crate) aligned: Vec<&'static str>,
    pub(crate) strategy: &'static str,
    pub(crate) weights: [i64; 2],
}

#[derive(Debug, Clone)]
pub(crate) struct ZoneDraft {
    pub(crate) id: usize,
    pub(crate) socket: usize,
    pub(crate) capacity: Quantities,
    pub(crate) allocatable: Quantities,
    /// By the name of the pod, which is its uid too.
    pub(crate) allocations: Vec<(String, Quantities)>,
}

impl ZonedMachine {
    /// So many equal zones in so many sockets, all idle, and an exclusive pod.
    pub(crate) fn new(zones: usize, sockets: usize, each: &[(&'static str, i64)]) -> Self {
        let zone = |id: usize| ZoneDraft {
            id,
            socket: id * sockets / zones,
            capacity: each.to_vec(),
            allocatable: each.to_vec(),
            allocations: Vec::new(),
        };
        Self {
            policy: "NumericContainerLevel",
            zones: (0..zones).map(zone).collect(),
            pods: Vec::new(),
            is_reported: true,
            requests: Vec::new(),
            is_exclusive: true,
            aligned: vec!["cpu", "memory"],
            strategy: "LeastAllocated",
            weights: [1, 1],
        }
    }

    pub(crate) fn requests(mut self, requests: &[(&'static str, i64)]) -> Self {
        self.requests = requests.to_vec();
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A dedicated pod uses some of a zone.
    pub(crate) fn used(mut self, position: usize, is_exclusive: bool, amounts: Quantities) -> Self {
        let zone = &mut self.zones[position];
        let name = format!("used-{}-{}", zone.id, zone.allocations.len());
        self.pods
            .push(on_machine(dedicated(&name, is_exclusive, &amounts)));
        zone.allocations.push((name, amounts));
        self
    }

    /// The scheduler gave a pod this zone, and the agent does not report it yet.
    pub(crate) fn assumed(mut self, position: usize, is_exclusive: bool) -> Self {
        let amounts = [("cpu", 1000), ("memory", GIB)];
        let mut pod = on_machine(dedicated("assumed", is_exclusive, &amounts));
        pod["metadata"]["annotations"][NUMA_ZONES] = json!(self.zones[position].id.to_string());
        self.pods.push(pod);
        self
    }

    /// A pod of this level, or of none, without zones of its own.
    pub(crate) fn online(mut self, name: &str, level: Option<&str>, amounts: &Quantities) -> Self {
        let mut pod = on_machine(pod(name, amounts));
        if let Some(level) = level {
            pod["metadata"]["annotations"] = json!({LEVEL: level});
        }
        self.pods.push(pod);
        self
    }

    pub(crate) fn case(&self) -> Case {
        let large = [("cpu", 64_000), ("memory", 256 * GIB), (GPU, 64)];
        let anchor = Self::new(4, 2, &large);
        let mut reports = vec![anchor.report("n1")];
        if self.is_reported {
            reports.insert(0, self.report("n0"));
        }
        let names = ["cpu", "memory"].iter().zip(self.weights);
        let weights = names.map(|(name, weight)| json!({"name": name, "weight": weight}));
        let args = json!({
            "scoringStrategy": {"type": self.strategy, "resources": weights.collect::<Vec<_>>()},
            "alignedResources": self.aligned,
        });
        let enabled = json!({"enabled": [{"name": PLUGIN, "weight": 1}]});
        let node = |name: &str| {
            let allocatable = json!({"cpu": "1k", "memory": "8Ti", "pods": "110", GPU: "100"});
            json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}})
        };
        Case(json!({
            "profile": {
                "schedulerName": "katalyst-scheduler",
                "plugins": {
                    "multiPoint": {"disabled": [{"name": "*"}]},
                    "filter": enabled,
                    "score": enabled,
                },
                "pluginConfig": [{"name": PLUGIN, "args": args}],
            },
            "nodes": [node("n0"), node("n1")],
            "customNodeResources": reports,
            "pods": self.pods,
            "pod": dedicated("pod", self.is_exclusive, &self.requests),
        }))
    }

    fn report(&self, name: &str) -> Value {
        let last = self.zones.iter().map(|zone| zone.socket + 1).max();
        let sockets = (0..last.unwrap_or(0)).map(|socket| {
            let zones = self.zones.iter().filter(|zone| zone.socket == socket);
            let zones: Vec<Value> = zones.map(ZoneDraft::write).collect();
            json!({"type": "Socket", "name": socket.to_string(), "children": zones})
        });
        json!({
            "metadata": {"name": name},
            "status": {"topologyPolicy": self.policy, "topologyZone": sockets.collect::<Vec<_>>()},
        })
    }
}

impl ZoneDraft {
    fn write(&self) -> Value {
        let allocations = self.allocations.iter().map(|(name, amounts)| {
            json!({"consumer": format!("default/{name}/{name}"), "requests": list(amounts)})
        });
        json!({
            "type": "Numa",
            "name": self.id.to_string(),
            "resources": {"capacity": list(&self.capacity), "allocatable": list(&self.allocatable)},
            "allocations": allocations.collect::<Vec<_>>(),
        })
    }
}

fn list(amounts: &[(&'static str, i64)]) -> Value {
    let entries = amounts.iter().map(|(name, amount)| {
        let text = match *name {
            "cpu" => format!("{amount}m"),
            _ => amount.to_string(),
        };
        ((*name).to_owned(), Value::String(text))
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

fn pod(name: &str, requests: &[(&'static str, i64)]) -> Value {
    let container = json!({"name": "c", "resources": {"requests": list(requests)}});
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container]},
    })
}

fn dedicated(name: &str, is_exclusive: bool, requests: &[(&'static str, i64)]) -> Value {
    let mut pod = pod(name, requests);
    let options = format!(r#"{{"numa_binding":"true","numa_exclusive":"{is_exclusive}"}}"#);
    pod["metadata"]["annotations"] = json!({LEVEL: "dedicated_cores", MEMORY_ENHANCEMENT: options});
    pod
}

fn on_machine(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!("n0");
    pod
}

pub(crate) fn zones(seed: u64, index: u64) -> Case {
    let mut random = Random::for_case(seed, index);
    let mut machine = machine(&mut random);
    machine.policy = random.one(&[
        "SingleNUMANodeContainerLevel",
        "NumericContainerLevel",
        "NumericContainerLevel",
    ]);
    if random.chance(5) {
        machine.policy = random.one(&[
            "None",
            "BestEffortContainerLevel",
            "RestrictedPodLevel",
            "SingleNUMANodePodLevel",
            "NumericPodLevel",
        ]);
    }
    machine.strategy = random.one(&["LeastAllocated", "MostAllocated", "BalancedAllocation"]);
    machine.weights = [random.one(&[0, 1, 2, 10]), random.one(&[0, 1, 3])];
    machine.aligned = match random.below(10) {
        0 => vec!["cpu"],
        1 => vec!["memory"],
        2 => vec!["cpu", "memory", GPU],
        _ => vec!["cpu", "memory"],
    };
    machine.is_exclusive = random.chance(65);
    machine.requests = requests(&mut random);
    machine = with_pods(&mut random, machine);
    match random.below(50) {
        0 => machine.is_reported = false,
        1 => machine.zones.clear(),
        _ => {}
    }
    machine.case()
}

/// Zones that are equal or not, in sockets of the same size or not.
fn machine(random: &mut Random) -> ZonedMachine {
    let each = |random: &mut Random, has_gpu: bool| {
        let mut each = vec![
            ("cpu", random.one(&[2, 4, 8]) * 1000),
            ("memory", random.one(&[4, 8, 16]) * GIB),
        ];
        if has_gpu {
            each.push((GPU, 4));
        }
        each
    };
    let sockets = random.between(1, 4);
    let is_even = random.chance(80);
    let zones = match is_even {
        true => sockets * random.between(1, 8 / sockets),
        false => random.between(sockets, 8),
    };
    let has_gpu = random.chance(30);
    let mut machine = ZonedMachine::new(zones, sockets, &each(random, has_gpu));
    let is_equal = random.chance(70);
    let is_sparse = random.chance(5);
    let mut id = 0;
    for zone in &mut machine.zones {
        if !is_equal {
            zone.capacity = each(random, has_gpu);
            zone.allocatable.clone_from(&zone.capacity);
        }
        if random.chance(4) {
            // The system keeps some of it.
            zone.allocatable[0].1 -= 500;
        }
        if !is_even {
            zone.socket = random.below(sockets);
        }
        id += if is_sparse { random.between(0, 3) } else { 0 };
        zone.id = id;
        id += 1;
    }
    machine
}

fn requests(random: &mut Random) -> Quantities {
    let times = random.one(&[1, 1, 2, 3, 4]);
    let mut requests = Quantities::new();
    let which = random.below(20);
    if which < 18 {
        let cpu = random.one(&[1000, 1500, 2000, 3000, 4000, 6000, 8000]);
        requests.push(("cpu", cpu * times));
    }
    if !(16..19).contains(&which) {
        let memory = random.one(&[1, 2, 4, 6, 8, 12]);
        requests.push(("memory", memory * times * GIB));
    }
    if random.chance(15) {
        requests.push((GPU, random.one(&[1, 4, 6])));
    }
    if random.chance(3) {
        requests.push(("ephemeral-storage", GIB));
    }
    if random.chance(4)
        && let Some((_, amount)) = requests.first_mut()
    {
        *amount = 0;
    }
    requests
}

/// Pods in the zones, and one without zones now and then.
fn with_pods(random: &mut Random, mut machine: ZonedMachine) -> ZonedMachine {
    for position in 0..machine.zones.len() {
        let all = machine.zones[position].allocatable.clone();
        let part = |random: &mut Random| -> Quantities {
            let quarters = random.between(1, 3) as i64;
            all.iter()
                .map(|(name, amount)| (*name, (amount * quarters / 4).max(1)))
                .collect()
        };
        match random.below(100) {
            0..12 => machine = machine.used(position, true, all),
            12..18 => machine = machine.used(position, false, all),
            18..30 => {
                machine = machine.used(position, false, part(random));
                if random.chance(20) {
                    machine = machine.used(position, false, part(random));
                }
            }
            // What the rest is about: see the rules of `known`.
            30 => machine = machine.used(position, true, part(random)),
            31 => {
                let mut some = part(random);
                some.remove(random.below(2));
                machine = machine.used(position, false, some);
            }
            32 => {
                let name = format!("online-{position}");
                let amounts = part(random);
                machine = machine.online(&name, Some("shared_cores"), &amounts);
                machine.zones[position].allocations.push((name, amounts));
            }
            33 if machine
                .pods
                .iter()
                .all(|pod| pod["metadata"]["name"] != "assumed") =>
            {
                machine = machine.assumed(position, random.chance(50));
            }
            _ => {}
        }
    }
    if random.chance(10) {
        let cpu = random.one(&[1000, 4000, 8000]);
        machine = machine.online("plain", None, &vec![("cpu", cpu), ("memory", GIB)]);
    }
    machine
}
