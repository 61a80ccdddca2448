//! The load of simulated nodes: the use of services follows a tide, and a node can be sampled as its agent would measure it.
//!
//! No containers run, so everything here is computed: a pod uses the cpu of its annotation [`CPU_USE`] at high tide, and pods of a
//! tier use theirs as long as the agent grants it.

use std::{collections::BTreeMap, f64::consts::TAU, time::Duration};

use engine::model::{Quantity, Timestamp};
use engine::node::{
    Bytes, CpuMemory, CpuSet, GroupUse, LocalNode, LocalPod, MachineMemory, MachineUse, MemoryUse,
    NanoCores, NodeSample, PodPhase, PodUse,
};

use crate::demo::CPU_USE;

/// From one low tide to the next by default.
pub const PERIOD: Duration = Duration::from_secs(240);
/// The part of the peak that services use at low tide.
const LOWEST: f64 = 0.2;
/// Parts of a pod's requests, in percent: its use of cpu without the annotation, and its use of memory.
const CPU_PERCENT: i64 = 20;
const MEMORY_PERCENT: i64 = 50;

/// The part of its peak that a service uses, so long after the start. The tide is low at the start and after each period.
pub fn level(since: Duration, period: Duration) -> f64 {
    let phase = since.as_secs_f64() / period.as_secs_f64() * TAU;
    LOWEST + (1.0 - LOWEST) * (1.0 - phase.cos()) / 2.0
}

/// What a pod uses at most: cpu by its annotation, memory by its request.
pub fn peak(pod: &LocalPod, annotations: Option<&BTreeMap<String, String>>) -> CpuMemory {
    let annotated = annotations.and_then(|all| all.get(CPU_USE));
    let annotated = annotated.and_then(|text| Quantity::parse(text).ok());
    let request = pod.request();
    let part = |amount: i64, percent: i64| amount.max(0) / 100 * percent;
    CpuMemory::new(
        annotated.map_or(part(request.milli_cpu, CPU_PERCENT), |it| it.milli().max(0)),
        part(request.memory, MEMORY_PERCENT),
    )
}

/// A sample of a node at this level of the tide. `granted` is what the agent lets suppressed pods use together, in thousandths of
/// a core.
pub fn sample(
    node: &LocalNode,
    pods: &[(LocalPod, CpuMemory)],
    level: f64,
    granted: Option<i64>,
    at: Timestamp,
) -> NodeSample {
    let running = || {
        let is_running = |(pod, _): &&(LocalPod, CpuMemory)| pod.phase == PodPhase::Running;
        pods.iter().filter(is_running)
    };
    let wanted: i64 = running()
        .filter(|(pod, _)| pod.is_suppressed())
        .map(|(_, peak)| peak.milli_cpu)
        .fold(0, i64::saturating_add);
    let granted = match granted {
        Some(granted) if granted < wanted => granted.max(0) as f64 / wanted as f64,
        _ => 1.0,
    };
    let mut used = CpuMemory::ZERO;
    let mut sampled = BTreeMap::new();
    for (pod, peak) in running() {
        let part = match (pod.is_own(), pod.is_suppressed()) {
            (_, true) => granted,
            (true, false) => 1.0,
            (false, false) => level,
        };
        let now = CpuMemory::new((peak.milli_cpu as f64 * part) as i64, peak.memory);
        used = used.plus(now);
        let group = PodUse {
            qos: pod.qos,
            group: group_use(now),
            containers: BTreeMap::new(),
        };
        sampled.insert(pod.group.clone(), group);
    }
    let used = used.min(node.capacity);
    // A node may state any capacity.
    let cpus = (node.capacity.milli_cpu / 1000).clamp(0, CpuSet::LARGEST.into());
    let cpus = u32::try_from(cpus).unwrap_or(0);
    NodeSample {
        at,
        machine: MachineUse {
            cpus: CpuSet((0..cpus).collect()),
            cpu: Some(nano_cores(used)),
            memory: Some(MachineMemory {
                total: bytes(node.capacity.memory),
                available: bytes(node.capacity.memory - used.memory),
            }),
            ..MachineUse::default()
        },
        kubepods: group_use(used),
        pods: sampled,
        ..NodeSample::default()
    }
}

fn group_use(used: CpuMemory) -> GroupUse {
    GroupUse {
        cpu: Some(nano_cores(used)),
        memory: Some(MemoryUse {
            usage: bytes(used.memory),
            working_set: bytes(used.memory),
            ..MemoryUse::default()
        }),
        ..GroupUse::default()
    }
}

fn nano_cores(used: CpuMemory) -> NanoCores {
    NanoCores(
        used.milli_cpu
            .max(0)
            .unsigned_abs()
            .saturating_mul(1_000_000),
    )
}

fn bytes(amount: i64) -> Bytes {
    Bytes(amount.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use engine::model::QosClass;
    use engine::node::{LocalContainer, ResourcePair};

    use super::*;

    #[test]
    fn the_tide_is_low_at_the_start_and_high_half_a_period_later() {
        let level = |quarters: u32| level(PERIOD / 4 * quarters, PERIOD);
        assert!((level(0) - LOWEST).abs() < 1e-9);
        assert!((level(2) - 1.0).abs() < 1e-9);
        assert!((level(4) - LOWEST).abs() < 1e-9);
        let quarter = level(1);
        assert!((0.5..0.7).contains(&quarter), "{quarter}");
    }

    fn pod(name: &str, class: QosClass, phase: PodPhase) -> LocalPod {
        let requests = CpuMemory::new(4000, 1 << 30);
        let native = ResourcePair {
            requests,
            limits: requests,
        };
        LocalPod {
            name: name.into(),
            group: name.into(),
            class,
            phase,
            containers: vec![LocalContainer {
                native,
                ..LocalContainer::default()
            }],
            ..LocalPod::default()
        }
    }

    #[test]
    fn services_follow_the_tide_and_suppressed_pods_use_what_is_granted() {
        let node = LocalNode {
            capacity: CpuMemory::new(8000, 8 << 30),
            ..LocalNode::default()
        };
        let service = pod("web", QosClass::Online, PodPhase::Running);
        let annotations = [(CPU_USE.to_owned(), "2".to_owned())].into();
        let annotated = peak(&service, Some(&annotations));
        assert_eq!(annotated.milli_cpu, 2000);
        assert_eq!(peak(&service, None).milli_cpu, 800);
        let job = pod("job", QosClass::Lent, PodPhase::Running);
        let pending = pod("new", QosClass::Online, PodPhase::Pending);
        let pods = [
            (service, annotated),
            (job, CpuMemory::new(3000, 1 << 20)),
            (pending, annotated),
        ];
        for (level, granted, web, job) in [
            (1.0, None, 2000, 3000),
            (0.5, Some(9000), 1000, 3000),
            (0.5, Some(1500), 1000, 1500),
            (0.5, Some(-5), 1000, 0),
        ] {
            let sample = sample(&node, &pods, level, granted, Timestamp::from_secs(5));
            let cpu = |name: &str| sample.pods[name].group.cpu.unwrap().0 / 1_000_000;
            assert_eq!((cpu("web"), cpu("job")), (web, job), "{level} {granted:?}");
            assert_eq!(sample.pods.len(), 2);
            assert_eq!(sample.machine.cpu, Some(NanoCores((web + job) * 1_000_000)));
            assert_eq!(sample.machine.cpus.0.len(), 8);
        }
    }

    #[test]
    fn any_amount_is_sampled() {
        let node = LocalNode {
            capacity: CpuMemory::new(i64::MAX, i64::MAX),
            ..LocalNode::default()
        };
        let most = CpuMemory::new(i64::MAX, i64::MAX);
        let job = |name: &str| (pod(name, QosClass::Lent, PodPhase::Running), most);
        let at = Timestamp::from_secs(5);
        let sample = sample(&node, &[job("a"), job("b")], 1.0, Some(1), at);
        assert_eq!(sample.pods.len(), 2);
        assert_eq!(sample.machine.cpus.0.len(), 8191);
    }
}
