//! Which own pods to evict, and how fast.
//!
//! Each reason gives an amount to release; pods are taken in a fixed order until they release it. Pods that do not use the resource,
//! online, dedicated, system and static pods are never taken. A pod that is on its way out counts as released.

mod need;

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::advice::EvictionOrder;
use super::settings::{AgentSettings, EvictionLimits};
use super::terms::CpuMemory;
use super::usage::use_of;
use super::{Inputs, LocalPod};
use crate::model::{Name, QosClass, ReclaimedResource, Timestamp};
use ReclaimedResource::{Cpu, Memory};
pub(super) use need::EvictionInputs;
pub use need::{
    EvictionNeed, Releases, Satisfaction, memory_release, satisfaction_release, uses_limit,
};

const MINUTE: Duration = Duration::from_secs(60);
/// A pod that is neither deleted nor refused for this long may be evicted again.
const PENDING: Duration = Duration::from_secs(60);

/// A pod that may be evicted.
#[derive(Debug, Clone)]
pub struct EvictionCandidate<'a> {
    pub pod: &'a LocalPod,
    pub used: CpuMemory,
    pub request: CpuMemory,
}

impl EvictionCandidate<'_> {
    /// Free pods first, Mid+BE pods last.
    fn rank(&self) -> u8 {
        match self.pod.class {
            QosClass::Free => 0,
            QosClass::Lent => 1,
            QosClass::MidLatencySensitive => 2,
            _ => 3,
        }
    }
}

fn of(amounts: CpuMemory, resource: ReclaimedResource) -> i64 {
    match resource {
        Cpu => amounts.milli_cpu,
        Memory => amounts.memory,
    }
}

/// The order in which pods are evicted for a resource: by class, then by use against request, then by use.
pub fn order(
    one: &EvictionCandidate<'_>,
    other: &EvictionCandidate<'_>,
    resource: ReclaimedResource,
) -> Ordering {
    let ratio = |it: &EvictionCandidate<'_>| match of(it.request, resource) {
        0 => f64::INFINITY,
        request => of(it.used, resource) as f64 / request as f64,
    };
    let by_use = |it: &EvictionCandidate<'_>| of(it.used, resource);
    one.rank()
        .cmp(&other.rank())
        .then(ratio(other).total_cmp(&ratio(one)))
        .then(by_use(other).cmp(&by_use(one)))
        .then_with(|| one.pod.uid.cmp(&other.pod.uid))
}

/// The pods that may be evicted at all.
pub fn candidates<'a>(inputs: &Inputs<'a>) -> Vec<EvictionCandidate<'a>> {
    let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
        return Vec::new();
    };
    let own = pods
        .iter()
        .filter(|pod| pod.is_own() && pod.is_active() && !pod.is_static);
    own.filter_map(|pod| {
        let used = sample.pods.get(&pod.group)?;
        Some(EvictionCandidate {
            pod,
            used: use_of(&used.group),
            request: pod.request(),
        })
    })
    .collect()
}

/// What was evicted lately, and whether the node is under pressure.
#[derive(Debug, Default)]
pub struct Evictions {
    sent: VecDeque<Timestamp>,
    last: BTreeMap<ReclaimedKey, Timestamp>,
    /// By uid: sent, and not known to be refused.
    pending: BTreeMap<Name, Timestamp>,
    refused: BTreeMap<Name, Timestamp>,
    /// When a workload of Mid+BE pods lost a pod.
    workloads: BTreeMap<Name, Timestamp>,
    satisfaction: VecDeque<(Timestamp, Satisfaction)>,
    memory_pressure: bool,
    cpu_pressure: bool,
}

/// [`ReclaimedResource`] as the key of a map.
type ReclaimedKey = bool;

impl Evictions {
    pub(super) fn result(&mut self, uid: &Name, is_accepted: bool, now: Timestamp) {
        if !is_accepted && self.pending.remove(uid).is_some() {
            self.refused.insert(uid.clone(), now);
        }
    }

    /// The resource under pressure, if one is.
    pub fn pressure(&self) -> Option<&'static str> {
        match (self.memory_pressure, self.cpu_pressure) {
            (true, _) => Some("memory"),
            (_, true) => Some("cpu"),
            _ => None,
        }
    }

    /// The pods to evict now, within the limits on the rate.
    pub(super) fn choose(
        &mut self,
        needs: &[EvictionNeed],
        candidates: &[EvictionCandidate<'_>],
        limits: &EvictionLimits,
        now: Timestamp,
    ) -> Vec<EvictionOrder> {
        self.forget(candidates, limits, now);
        let mut orders: Vec<EvictionOrder> = Vec::new();
        for need in needs {
            let is_memory = need.resource == Memory;
            let cooldown = match is_memory {
                true => limits.memory_cooldown,
                false => limits.cpu_cooldown,
            };
            let is_going = |it: &EvictionCandidate<'_>, pending: &BTreeMap<Name, Timestamp>| {
                it.pod.terminating || pending.contains_key(&it.pod.uid)
            };
            let going = candidates.iter().filter(|it| is_going(it, &self.pending));
            let released = going.map(|it| need.released_by(it));
            let mut released = released.fold(0, i64::saturating_add);
            if self
                .last
                .get(&is_memory)
                .is_some_and(|last| now < last.plus(cooldown))
            {
                continue;
            }
            let mut sorted: Vec<&EvictionCandidate<'_>> = candidates.iter().collect();
            sorted.sort_by(|one, other| order(one, other, need.resource));
            for candidate in sorted {
                if released >= need.release || self.sent.len() >= limits.per_minute {
                    break;
                }
                let pod = candidate.pod;
                let uses = of(candidate.used, need.resource) > 0;
                let releases = need.released_by(candidate);
                if is_going(candidate, &self.pending)
                    || !uses
                    || releases <= 0
                    || self.refused.contains_key(&pod.uid)
                {
                    continue;
                }
                if pod.class == QosClass::MidBestEffort {
                    if self.workloads.contains_key(pod.workload()) {
                        continue;
                    }
                    self.workloads.insert(pod.workload().clone(), now);
                }
                released = released.saturating_add(releases);
                self.sent.push_back(now);
                self.last.insert(is_memory, now);
                self.pending.insert(pod.uid.clone(), now);
                orders.push(EvictionOrder {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    uid: pod.uid.clone(),
                    reason: sentence(need, candidate),
                });
            }
        }
        orders
    }

    /// Drops what no longer limits anything.
    fn forget(
        &mut self,
        candidates: &[EvictionCandidate<'_>],
        limits: &EvictionLimits,
        now: Timestamp,
    ) {
        let within = |at: Timestamp, time: Duration| at.plus(time) > now;
        self.sent.retain(|at| within(*at, MINUTE));
        self.workloads
            .retain(|_, at| within(*at, limits.mid_workload_interval));
        self.refused
            .retain(|_, at| within(*at, limits.refused_backoff));
        let is_known = |uid: &Name| candidates.iter().any(|it| it.pod.uid == *uid);
        self.pending
            .retain(|uid, at| is_known(uid) && within(*at, PENDING));
    }

    /// Without thresholds nothing is under pressure.
    pub(super) fn stop(&mut self) {
        (self.memory_pressure, self.cpu_pressure) = (false, false);
        self.satisfaction.clear();
    }
}

fn sentence(need: &EvictionNeed, candidate: &EvictionCandidate<'_>) -> String {
    let (used, request) = (
        of(candidate.used, need.resource),
        of(candidate.request, need.resource),
    );
    match need.resource {
        Cpu => format!(
            "{}; the pod uses {used}m of {request}m requested",
            need.reason
        ),
        Memory => format!(
            "{}; the pod uses {} MiB of {} MiB requested",
            need.reason,
            used >> 20,
            request >> 20
        ),
    }
}

/// The longest window that evictions look at.
pub(super) fn longest_window(settings: &AgentSettings) -> Duration {
    settings.thresholds.cpu_evict_window.max(MINUTE)
}
