//! Table tests of the agent's decisions on one small node.

mod evictions;
mod formulas;
mod lend;
mod numa;
mod protect;
mod simulation;

use std::collections::BTreeMap;
use std::time::Duration;

use super::evict::{EvictionCandidate, Evictions};
use super::pods::ContainerRole;
use super::settings::SuppressPolicy;
use super::suppress::{Available, Demand, Suppressor};
use super::*;
use crate::model::{Name, QosClass, ReclaimedResource, TierAccount, Timestamp};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// The time of day at which the clock of samples is zero.
const EPOCH: i64 = 1_800_000_000;

/// A node with pods that a test changes, and its advisor.
struct Fixture {
    node: LocalNode,
    pods: Vec<LocalPod>,
    sample: NodeSample,
    advisor: Advisor,
    settings: AgentSettings,
    processors: Vec<Processor>,
    now: Timestamp,
    /// Use outside of pods, in thousandths of cores.
    system_cpu: i64,
    system_memory: i64,
}

fn cpus(count: u32) -> CpuSet {
    CpuSet((0..count).collect())
}

fn group_use(milli_cpu: i64, memory: i64) -> GroupUse {
    GroupUse {
        cpu: Some(NanoCores(milli_cpu.unsigned_abs() * 1_000_000)),
        memory: Some(MemoryUse {
            usage: Bytes(memory.unsigned_abs()),
            working_set: Bytes(memory.unsigned_abs()),
            numa: BTreeMap::new(),
        }),
        ..GroupUse::default()
    }
}

impl Fixture {
    /// A node of so many CPUs and GiB.
    fn new(count: u32, gib: i64) -> Self {
        let capacity = CpuMemory::new(i64::from(count) * 1000, gib * GIB);
        let mut sample = NodeSample::default();
        sample.machine.cpus = cpus(count);
        Self {
            node: LocalNode {
                name: "n".into(),
                capacity,
                allocatable: capacity,
                ..LocalNode::default()
            },
            pods: Vec::new(),
            sample,
            advisor: Advisor::new(Timestamp(0), Timestamp::from_secs(EPOCH)),
            settings: AgentSettings::default(),
            processors: Vec::new(),
            now: Timestamp(0),
            system_cpu: 0,
            system_memory: 0,
        }
    }

    /// Adds a pod with one container that requests and may use these amounts, of its tier or natively.
    fn pod(&mut self, name: &str, class: QosClass, request: CpuMemory) -> &mut LocalPod {
        let pair = ResourcePair {
            requests: request,
            limits: request,
        };
        let mut container = LocalContainer {
            name: "c".into(),
            id: Some(format!("{name}-c").into()),
            ..LocalContainer::default()
        };
        match class {
            QosClass::MidLatencySensitive | QosClass::MidBestEffort => {
                container.tiers.insert(TierAccount::Mid, pair);
            }
            QosClass::Lent => drop(container.tiers.insert(TierAccount::Reclaimed, pair)),
            QosClass::Free => {}
            _ => container.native = pair,
        }
        self.pods.push(LocalPod {
            namespace: "default".into(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            group: format!("uid-{name}").into(),
            class,
            qos: match class {
                QosClass::MidBestEffort | QosClass::Lent | QosClass::Free => PodQos::BestEffort,
                _ => PodQos::Burstable,
            },
            containers: vec![container],
            ..LocalPod::default()
        });
        self.uses(name, 0, 0);
        self.pods.last_mut().unwrap()
    }

    /// Sets the use of a pod.
    fn uses(&mut self, name: &str, milli_cpu: i64, memory: i64) {
        let uid: Name = format!("uid-{name}").into();
        let pod = self.pods.iter().find(|pod| pod.group == uid);
        let used = group_use(milli_cpu, memory);
        let pod = PodUse {
            qos: pod.map_or(PodQos::BestEffort, |pod| pod.qos),
            containers: [(format!("{name}-c").into(), used.clone())].into(),
            group: used,
        };
        self.sample.pods.insert(uid, pod);
    }

    fn pressure(&mut self, name: &str, some: f64) {
        let uid: Name = format!("uid-{name}").into();
        let pod = self.sample.pods.get_mut(&uid).unwrap();
        pod.group.pressure.cpu = Some(Stall { some, full: 0.0 });
    }

    /// Makes the sample of the machine fit its pods.
    fn add_up(&mut self) {
        let used = self
            .sample
            .pods
            .values()
            .map(|pod| usage::use_of(&pod.group));
        let used: CpuMemory = used.sum();
        let best_effort = self.sample.pods.values();
        let best_effort = best_effort.filter(|pod| pod.qos == PodQos::BestEffort);
        let best_effort: CpuMemory = best_effort.map(|pod| usage::use_of(&pod.group)).sum();
        self.sample.besteffort = group_use(best_effort.milli_cpu, best_effort.memory);
        let total = self.node.capacity.memory;
        let memory = used.memory + self.system_memory;
        self.sample.machine.cpu = Some(NanoCores(
            (used.milli_cpu + self.system_cpu).unsigned_abs() * 1_000_000,
        ));
        self.sample.machine.memory = Some(MachineMemory {
            total: Bytes(total.unsigned_abs()),
            available: Bytes((total - memory).max(0).unsigned_abs()),
        });
        self.sample.at = self.now;
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            sample: Some(&self.sample),
            node: Some(&self.node),
            pods: Some(&self.pods),
            processors: &self.processors,
            ..Inputs::default()
        }
    }

    /// One period later, with a new sample.
    fn step(&mut self) -> Advice {
        self.step_with(|_| {})
    }

    /// One period later, with a new sample and changed inputs.
    fn step_with(&mut self, change: impl FnOnce(&mut Inputs<'_>)) -> Advice {
        self.now = self.now.plus(Duration::from_secs(1));
        self.add_up();
        self.advise_with(change)
    }

    /// Without a new sample.
    fn advise_with(&mut self, change: impl FnOnce(&mut Inputs<'_>)) -> Advice {
        let mut inputs = Inputs {
            sample: Some(&self.sample),
            node: Some(&self.node),
            pods: Some(&self.pods),
            processors: &self.processors,
            ..Inputs::default()
        };
        change(&mut inputs);
        advise(&mut self.advisor, &inputs, &self.settings, self.now)
    }

    /// The last of so many periods.
    fn steps(&mut self, count: usize) -> Advice {
        (1..count).for_each(|_| drop(self.step()));
        self.step()
    }
}

fn cpuset_of(advice: &Advice, pod: &str) -> Option<String> {
    let group = Group::Pod {
        uid: format!("uid-{pod}").into(),
    };
    advice
        .settings
        .iter()
        .find_map(|setting| match &setting.value {
            SettingValue::Cpus(cpus) if setting.group == group => Some(cpus.to_string()),
            _ => None,
        })
}

fn evicted(advice: &Advice) -> Vec<&str> {
    advice.evictions.iter().map(|order| &*order.name).collect()
}

fn taint(advice: &Advice, key: &str) -> Option<&'static str> {
    advice
        .taints
        .iter()
        .find(|it| it.key == key)
        .map(|it| it.value)
}
