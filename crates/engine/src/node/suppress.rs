//! How many CPUs own best-effort pods may use, and which.
//!
//! The amount is Koordinator's, but at least one CPU instead of two: a small node has no more. It decreases at once. It increases at
//! most every 10 s, and only to what was free during that time, so that it does not follow every oscillation of online pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::numa::ZoneOwners;
use super::settings::{SuppressPolicy, Thresholds};
use super::usage::{ClassUse, by_group};
use super::{CpuSet, Group, Inputs, LocalNode, PodQos, Setting, SettingValue};
use crate::model::Timestamp;

/// Time between a change and the next increase.
const SETTLING_TIME: Duration = Duration::from_secs(10);
/// Microseconds in a quota period.
pub const QUOTA_PERIOD: i64 = 100_000;
/// The smallest quota of the directory `besteffort`, as in Koordinator.
const LEAST_QUOTA: i64 = 2_000;

/// One logical CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Processor {
    pub cpu: u32,
    pub core: u32,
    pub socket: u32,
    pub numa: u32,
}

/// What own best-effort pods may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    pub milli_cpu: i64,
    /// Never empty on a node with CPUs.
    pub cpus: CpuSet,
    /// The agent sets the amount as a quota of `besteffort`, instead of the cpusets.
    pub is_quota: bool,
}

/// The inputs of the amount, in thousandths of cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Demand {
    pub capacity: i64,
    /// Use of pods that are not suppressed, Mid+LS among them.
    pub online: i64,
    /// Use outside of pods, or the reserve for it, whichever is larger.
    pub system: i64,
}

impl Demand {
    pub fn of(node: &LocalNode, used: &ClassUse) -> Self {
        Self {
            capacity: node.capacity.milli_cpu,
            online: used.online.milli_cpu.saturating_add(used.mid_ls.milli_cpu),
            system: used.system.milli_cpu.max(node.system_reserve().milli_cpu),
        }
    }
}

/// What the threshold leaves to best-effort pods; may be negative.
pub fn amount(demand: Demand, threshold: i64, min_percent: Option<i64>) -> i64 {
    let left = demand.capacity * threshold / 100 - demand.online - demand.system;
    match min_percent {
        Some(percent) => left.max(demand.capacity * percent / 100),
        None => left,
    }
}

/// CPUs of the node by what best-effort pods may do with them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Available {
    /// Bound by pods that share them.
    pub shared: Vec<Processor>,
    pub others: Vec<Processor>,
}

impl Available {
    /// All CPUs but those that are reserved, bound exclusively or in exclusive NUMA zones.
    pub(super) fn of(online: &CpuSet, owners: &ZoneOwners, inputs: &Inputs<'_>) -> Self {
        let mut available = Self::default();
        let (mut kept, mut bound): (BTreeSet<u32>, BTreeSet<u32>) = Default::default();
        kept.extend(inputs.node.iter().flat_map(|node| &node.reserved_cpus.0));
        kept.extend(&owners.exclusive_cpus(inputs).0);
        bound.extend(&owners.shared_cpus(inputs).0);
        let pods = inputs.pods.unwrap_or_default().iter();
        for pod in pods.filter(|pod| pod.is_active()) {
            let side = match pod.is_exclusive {
                true => &mut kept,
                false => &mut bound,
            };
            side.extend(&pod.bound_cpus.0);
        }
        for &cpu in online.0.iter().filter(|cpu| !kept.contains(cpu)) {
            let known = inputs.processors.iter().find(|known| known.cpu == cpu);
            let processor = known.copied().unwrap_or(Processor {
                cpu,
                core: cpu,
                socket: 0,
                numa: 0,
            });
            let side = match bound.contains(&cpu) {
                true => &mut available.shared,
                false => &mut available.others,
            };
            side.push(processor);
        }
        available
    }

    /// So many of them. CPUs that other pods are bound to take their share of the load.
    pub fn choose(&self, count: usize) -> Vec<u32> {
        let all = self.shared.len() + self.others.len();
        if all == 0 {
            return Vec::new();
        }
        let count = count.min(all);
        let shared = count * self.shared.len() / all;
        let mut chosen = spread(&self.shared, shared);
        chosen.extend(spread(&self.others, count - shared));
        chosen
    }
}

/// Chooses CPUs: whole cores in turn from each NUMA node, the largest first, then single CPUs. Nothing if there are not so many.
pub fn spread(processors: &[Processor], count: usize) -> Vec<u32> {
    if count == 0 || processors.len() < count {
        return Vec::new();
    }
    let mut buckets: BTreeMap<(u32, u32), Vec<Processor>> = BTreeMap::new();
    for processor in processors {
        let bucket = buckets
            .entry((processor.numa, processor.socket))
            .or_default();
        bucket.push(*processor);
    }
    let mut buckets: Vec<VecDeque<Processor>> = buckets
        .into_values()
        .map(|mut bucket| {
            bucket.sort_by_key(|processor| (processor.core, processor.cpu));
            bucket.into()
        })
        .collect();
    let first = |bucket: &VecDeque<Processor>| bucket.front().map(|it| it.cpu);
    buckets.sort_by_key(|bucket| (std::cmp::Reverse(bucket.len()), first(bucket)));
    let mut chosen = Vec::with_capacity(count);
    // Whole cores first: two best-effort threads on one core disturb fewer online threads than two on different cores.
    let mut next = 0;
    let mut before_round = None;
    while count - chosen.len() >= 2 {
        // A round without a whole core is the last one.
        if next == 0 && before_round.replace(chosen.len()) == Some(chosen.len()) {
            break;
        }
        let bucket = &mut buckets[next];
        let mut cores = 1..bucket.len();
        if let Some(i) = cores.find(|&i| bucket[i - 1].core == bucket[i].core) {
            chosen.extend(bucket.drain(i - 1..=i).map(|it| it.cpu));
        }
        next = (next + 1) % buckets.len();
    }
    while chosen.len() < count {
        chosen.extend(buckets[next].pop_front().map(|it| it.cpu));
        next = (next + 1) % buckets.len();
    }
    chosen
}

/// At least one.
fn whole_cpus(milli_cpu: i64) -> i64 {
    milli_cpu.clamp(1, i64::MAX - 999).saturating_add(999) / 1000
}

/// Keeps the amounts of the settling time and the last grant.
#[derive(Debug, Default)]
pub struct Suppressor {
    /// Amounts since the settling time began, with their time.
    amounts: VecDeque<(Timestamp, i64)>,
    granted: Option<(Timestamp, i64)>,
    pub(super) written: Written,
}

/// Values that must be taken back when the settings no longer ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    pub quota: bool,
    pub idle: bool,
    /// The memory limit of `besteffort`.
    pub memory: bool,
}

impl Suppressor {
    /// The amount to grant now, in whole CPUs for cpusets or in milli-cores for a quota.
    fn settle(&mut self, wanted: i64, now: Timestamp) -> i64 {
        self.amounts
            .retain(|(at, _)| at.plus(SETTLING_TIME) > now && *at <= now);
        self.amounts.push_back((now, wanted));
        let granted = match self.granted {
            None => wanted,
            Some((_, last)) if wanted < last => wanted,
            Some((at, last)) if now >= at.plus(SETTLING_TIME) => {
                let least = self.amounts.iter().map(|(_, amount)| *amount).min();
                least.unwrap_or(wanted).max(last)
            }
            Some((_, last)) => last,
        };
        if self.granted.is_none_or(|(_, last)| last != granted) {
            self.granted = Some((now, granted));
        }
        granted
    }

    /// What own best-effort pods may use from now on.
    pub(super) fn grant(
        &mut self,
        wanted: i64,
        available: &Available,
        is_quota: bool,
        now: Timestamp,
    ) -> Grant {
        let all = available.shared.len() + available.others.len();
        // Amounts of a quota and of cpusets have the same unit, so that a change of the policy is no increase.
        let count = whole_cpus(wanted);
        let wanted = match is_quota {
            true => wanted.max(LEAST_QUOTA * 1000 / QUOTA_PERIOD),
            false => count.saturating_mul(1000),
        };
        let milli_cpu = self.settle(wanted, now);
        let count = usize::try_from(whole_cpus(milli_cpu)).unwrap_or(1);
        let chosen = match is_quota {
            true => available.choose(all),
            false => available.choose(count.max(1)),
        };
        let cpus = CpuSet(chosen.into_iter().collect());
        let milli_cpu = match is_quota {
            true => milli_cpu,
            false => milli_cpu.min(1000 * i64::try_from(cpus.0.len()).unwrap_or(0)),
        };
        Grant {
            milli_cpu,
            cpus,
            is_quota,
        }
    }
}

/// Whether suppression is by a quota on the directory `besteffort`.
pub fn may_use_quota(settings: &Thresholds, inputs: &Inputs<'_>) -> bool {
    settings.cpu_suppress_policy == SuppressPolicy::CfsQuota && is_own_directory(inputs)
}

/// Whether a limit on the directory `besteffort` limits own pods only.
pub(super) fn is_own_directory(inputs: &Inputs<'_>) -> bool {
    let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
        return false;
    };
    let pods = by_group(pods);
    let mut in_directory = sample
        .pods
        .iter()
        .filter(|(_, used)| used.qos == PodQos::BestEffort);
    in_directory.all(|(uid, _)| pods.get(uid).is_some_and(|pod| pod.is_suppressed()))
}

/// The settings that carry out a grant: cpusets of suppressed pods and of their containers, and the quota of `besteffort`.
pub(super) fn settings(
    grant: &Grant,
    idle: bool,
    written: &mut Written,
    inputs: &Inputs<'_>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
        return settings;
    };
    written.quota |= grant.is_quota;
    written.idle |= idle;
    if written.quota {
        let quota = u64::try_from(grant.milli_cpu * QUOTA_PERIOD / 1000).unwrap_or(0);
        settings.push(Setting {
            group: Group::BestEffort,
            value: SettingValue::CpuQuota(grant.is_quota.then_some(quota)),
        });
    }
    for pod in pods.iter().filter(|pod| pod.is_suppressed()) {
        let Some(used) = sample.pods.get(&pod.group) else {
            continue;
        };
        if !grant.cpus.0.is_empty() {
            let cpus = || SettingValue::Cpus(grant.cpus.clone());
            // The static CPU manager gives containers their cpusets, so narrow pods would lock them out.
            if !inputs.static_cpu_manager {
                settings.push(Setting {
                    group: Group::Pod {
                        uid: pod.group.clone(),
                    },
                    value: cpus(),
                });
            }
            settings.extend(used.containers.keys().map(|id| Setting {
                group: Group::Container {
                    pod: pod.group.clone(),
                    id: id.clone(),
                },
                value: cpus(),
            }));
        }
        if written.idle && pod.is_lent() {
            settings.push(Setting {
                group: Group::Pod {
                    uid: pod.group.clone(),
                },
                value: SettingValue::CpuIdle(idle),
            });
        }
    }
    settings
}
