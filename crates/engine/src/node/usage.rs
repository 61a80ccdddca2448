//! Use by class of pods, from samples, and its averages over short windows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::predict::{ModelKey, PredictedClass};
use super::terms::CpuMemory;
use super::{GroupUse, Inputs, LocalPod, NodeSample};
use crate::model::{Name, QosClass, Timestamp};

/// The use of one moment. Use that no pod accounts for is the system's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassUse {
    pub node: CpuMemory,
    pub system: CpuMemory,
    /// Pods that are not the agent's own; pods that the API server does not list among them.
    pub online: CpuMemory,
    pub mid_ls: CpuMemory,
    pub mid_be: CpuMemory,
    /// Batch, reclaimed and free pods.
    pub lent: CpuMemory,
}

/// The use of a group; memory is the working set. Zero for what is not measured, which the system's use then contains.
pub fn use_of(group: &GroupUse) -> CpuMemory {
    let cpu = group.cpu.map_or(0, |cpu| cpu.0 / 1_000_000);
    let memory = group.memory.as_ref().map_or(0, |it| it.working_set.0);
    CpuMemory {
        milli_cpu: i64::try_from(cpu).unwrap_or(i64::MAX),
        memory: i64::try_from(memory).unwrap_or(i64::MAX),
    }
}

/// Pods by the uid in the names of their cgroups.
pub fn by_group(pods: &[LocalPod]) -> BTreeMap<&Name, &LocalPod> {
    pods.iter().map(|pod| (&pod.group, pod)).collect()
}

impl ClassUse {
    /// None if the use of the node is not known.
    pub fn measure(sample: &NodeSample, pods: &[LocalPod]) -> Option<Self> {
        let memory = sample.machine.memory?;
        let cpu = sample.machine.cpu?.0 / 1_000_000;
        let used = memory.total.0.saturating_sub(memory.available.0);
        let mut all = Self {
            node: CpuMemory {
                milli_cpu: i64::try_from(cpu).unwrap_or(i64::MAX),
                memory: i64::try_from(used).unwrap_or(i64::MAX),
            },
            ..Self::default()
        };
        let pods = by_group(pods);
        let mut sum = CpuMemory::ZERO;
        for (uid, pod) in &sample.pods {
            let used = use_of(&pod.group);
            let class = pods.get(uid).map_or(QosClass::Online, |pod| pod.class);
            let side = match class {
                QosClass::System | QosClass::Dedicated | QosClass::Online => &mut all.online,
                QosClass::MidLatencySensitive => &mut all.mid_ls,
                QosClass::MidBestEffort => &mut all.mid_be,
                QosClass::Lent | QosClass::Free => &mut all.lent,
            };
            *side = side.plus(used);
            sum = sum.plus(used);
        }
        all.system = all.node.minus(sum).positive();
        Some(all)
    }

    fn zip(&self, other: &Self, f: impl Fn(CpuMemory, CpuMemory) -> CpuMemory) -> Self {
        Self {
            node: f(self.node, other.node),
            system: f(self.system, other.system),
            online: f(self.online, other.online),
            mid_ls: f(self.mid_ls, other.mid_ls),
            mid_be: f(self.mid_be, other.mid_be),
            lent: f(self.lent, other.lent),
        }
    }
}

/// One sample for each model.
pub(super) fn series(inputs: &Inputs<'_>, used: &ClassUse) -> Vec<(ModelKey, CpuMemory)> {
    let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
        return Vec::new();
    };
    let mut series = vec![(ModelKey::Node, used.node), (ModelKey::System, used.system)];
    let mut classes: BTreeMap<PredictedClass, CpuMemory> = PredictedClass::ALL
        .into_iter()
        .map(|class| (class, CpuMemory::ZERO))
        .collect();
    let pods = by_group(pods);
    for (uid, pod) in &sample.pods {
        // A pod without both figures would train its model with zeros.
        if pod.group.cpu.is_none() || pod.group.memory.is_none() {
            continue;
        }
        let used = use_of(&pod.group);
        let class = pods.get(uid).map_or(QosClass::Online, |pod| pod.class);
        let sum = classes.entry(PredictedClass::of(class)).or_default();
        *sum = sum.plus(used);
        series.push((ModelKey::Pod(uid.clone()), used));
    }
    let classes = classes.into_iter();
    series.extend(classes.map(|(class, used)| (ModelKey::Class(class), used)));
    series
}

/// Samples of the last minutes.
#[derive(Debug, Default)]
pub struct UsageHistory {
    samples: VecDeque<(Timestamp, ClassUse)>,
}

/// More samples than the longest window has at one a second.
const MOST_SAMPLES: usize = 3600;

impl UsageHistory {
    pub(super) fn push(&mut self, at: Timestamp, used: ClassUse, keep: Duration) {
        // A sample may be seen twice, and a clock that went back starts a new history.
        match self.samples.back() {
            Some((last, _)) if *last == at => return,
            Some((last, _)) if *last > at => self.samples.clear(),
            _ => {}
        }
        self.samples.push_back((at, used));
        while self.samples.len() > MOST_SAMPLES
            || self
                .samples
                .front()
                .is_some_and(|(first, _)| first.plus(keep) < at)
        {
            self.samples.pop_front();
        }
    }

    /// The mean of the samples since a time; none without samples.
    pub fn mean(&self, since: Timestamp) -> Option<ClassUse> {
        let samples = self.samples.iter().filter(|(at, _)| *at >= since);
        let count = i64::try_from(samples.clone().count()).ok()?;
        let sum = samples.fold(ClassUse::default(), |sum, (_, used)| {
            sum.zip(used, CpuMemory::plus)
        });
        let divisor = CpuMemory::new(count, count);
        (count > 0).then(|| sum.zip(&sum, |sum, _| sum.zip(divisor, |sum, count| sum / count)))
    }

    /// Whether the samples since a time cover at least a third of it.
    pub fn covers(&self, since: Timestamp, now: Timestamp) -> bool {
        let first = self.samples.iter().find(|(at, _)| *at >= since);
        let Some(((first, _), (last, _))) = first.zip(self.samples.back()) else {
            return false;
        };
        (last.0 - first.0).saturating_mul(3) >= now.0.saturating_sub(since.0)
    }
}
