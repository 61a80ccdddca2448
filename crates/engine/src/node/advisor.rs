//! The function that the agent calls at every period, and what it keeps between periods.

use std::collections::BTreeMap;
use std::time::Duration;

use super::advice::{Advice, NodeMetricReport, PodMetric, ReclaimedReport};
use super::evict::{EvictionInputs, Evictions};
use super::guard::MemoryGuard;
use super::headroom::LendingInputs;
use super::health::Health;
use super::interference::{Interference, Suffering};
use super::lender::Lender;
use super::numa::{NumaPlan, NumaState, ZoneOwners};
use super::predict::{Checkpoint, CheckpointError, Models};
use super::settings::SatisfactionLimit;
use super::suppress::{Available, Demand, Suppressor};
use super::terms::{CpuMemory, Figure};
use super::usage::{ClassUse, UsageHistory};
use super::{
    AgentSettings, Bytes, ChangedCpuset, GroupConflict, LocalNode, LocalPod, NodeSample, NumaMode,
    Processor, Setting, cgroup, evict, headroom, health, lender, reclaimable, suppress, usage,
    zones,
};
use crate::model::{Name, Timestamp};

/// What the agent knows at one period. Times are of the clock of [`NodeSample::at`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The last sample; none before the first.
    pub sample: Option<&'a NodeSample>,
    /// None until the API server answered once.
    pub node: Option<&'a LocalNode>,
    /// The pods bound to the node, as last listed or watched; none until they were listed once.
    pub pods: Option<&'a [LocalPod]>,
    /// The CPUs in `/sys/devices/system/cpu`; without them CPUs count as cores of one NUMA node.
    pub processors: &'a [Processor],
    /// The distances of each NUMA node to all of them, in the order of their numbers.
    pub distances: Option<&'a BTreeMap<u32, Vec<u32>>>,
    /// The kubelet's CPU manager has the policy `static`: cpusets of containers only.
    pub static_cpu_manager: bool,
    /// The kubelet's memory manager has the policy `Static`.
    pub static_memory_manager: bool,
    /// What to do about NUMA zones; none: check where one of these managers is static, else enforce.
    pub numa: Option<NumaMode>,
    /// A memory limit in the directory `burstable`, if it has one.
    pub burstable_memory_limit: Option<Bytes>,
    /// Files that samples need and that cannot be read, and why.
    pub unreadable: &'a [(String, String)],
    pub writes: WriteProblems<'a>,
    /// Pods that name the cgroups of others, without effect.
    pub group_conflicts: &'a [GroupConflict],
    /// The groups of pods whose cpusets, or those of their containers, the agent has changed.
    pub changed_cpusets: Option<&'a BTreeMap<Name, ChangedCpuset>>,
}

/// What the writer of cgroup files reported after the last period.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteProblems<'a> {
    /// Files or groups, and why they could not be written.
    pub failed: &'a [(String, String)],
    /// Values of single pods that the kernel refuses.
    pub refused: &'a [RefusedValue],
    /// Files that are left to another process.
    pub given_up: &'a [String],
    /// What is wrong with the journal of changed files. Without it nothing is written.
    pub journal: Option<&'a str>,
}

/// A value that follows from what a pod requests, and that the kernel refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedValue {
    /// The group of the pod.
    pub pod: Name,
    pub file: String,
    pub why: String,
}

/// What is kept between periods. It holds no more than the pods of the node need.
#[derive(Debug)]
pub struct Advisor {
    /// The time of day at which the clock of the samples was zero.
    epoch: Timestamp,
    started: Timestamp,
    models: Models,
    usage: UsageHistory,
    lender: Lender,
    suppressor: Suppressor,
    guard: MemoryGuard,
    numa: NumaState,
    evictions: Evictions,
    interference: Interference,
    health: Health,
    /// The settings of the last period with a usable sample.
    last_settings: Vec<Setting>,
    /// What was reported last, and its terms.
    report: ReclaimedReport,
    terms: Vec<Figure>,
    /// The last sample that the models have seen.
    trained: Option<Timestamp>,
}

impl Advisor {
    /// `wall` is the time of day at `now`. Later changes of the time of day have no effect.
    pub fn new(now: Timestamp, wall: Timestamp) -> Self {
        Self {
            epoch: Timestamp(wall.0.saturating_sub(now.0)),
            started: now,
            models: Models::default(),
            usage: UsageHistory::default(),
            lender: Lender::default(),
            suppressor: Suppressor::default(),
            guard: MemoryGuard::default(),
            numa: NumaState::default(),
            evictions: Evictions::default(),
            interference: Interference::default(),
            health: Health::default(),
            last_settings: Vec::new(),
            report: ReclaimedReport::default(),
            terms: Vec::new(),
            trained: None,
        }
    }

    /// Continues from a checkpoint, or explains why it cannot be used.
    pub fn resume(
        checkpoint: &Checkpoint,
        now: Timestamp,
        wall: Timestamp,
    ) -> Result<Self, CheckpointError> {
        let mut advisor = Self::new(now, wall);
        advisor.models = Models::restore(checkpoint, wall)?;
        advisor.lender.restore(checkpoint, wall, now);
        advisor.suppressor.written = checkpoint.written;
        advisor.numa.restore(&checkpoint.narrowed);
        Ok(advisor)
    }

    /// What a restart continues from.
    pub fn checkpoint(&self, now: Timestamp) -> Checkpoint {
        let mut checkpoint = self.models.checkpoint(self.wall(now));
        checkpoint.reported = Some(self.lender.reported());
        checkpoint.written = self.suppressor.written;
        checkpoint.narrowed = self.numa.narrowed();
        checkpoint
    }

    /// The answer of the Eviction API to an order: whether the pod is being deleted.
    pub fn eviction_result(&mut self, uid: &Name, is_accepted: bool, now: Timestamp) {
        self.evictions.result(uid, is_accepted, now);
    }

    fn wall(&self, now: Timestamp) -> Timestamp {
        Timestamp(self.epoch.0.saturating_add(now.0))
    }
}

/// Decides what the agent does in this period. `now` is of the clock of [`NodeSample::at`].
pub fn advise(
    advisor: &mut Advisor,
    inputs: &Inputs<'_>,
    settings: &AgentSettings,
    now: Timestamp,
) -> Advice {
    let degradation = health::degradation(inputs, now);
    let mut advice = Advice {
        notices: advisor.health.notice(degradation.as_ref(), inputs),
        ..Advice::default()
    };
    let is_usable = health::is_usable(inputs, now);
    let measured = match (is_usable, inputs.sample, inputs.pods) {
        (true, Some(sample), Some(pods)) => ClassUse::measure(sample, pods),
        _ => None,
    };
    let owners = ZoneOwners::of(inputs);
    advice.zones = inputs.sample.map(|_| zones::report(inputs, &owners));
    advice.has_zones = !owners.is_empty();
    let mut is_suffering = None;
    match (measured, inputs.sample, inputs.pods) {
        (Some(used), Some(sample), Some(pods)) => {
            let keep = evict::longest_window(settings);
            advisor.usage.push(sample.at, used.clone(), keep);
            advisor.train(inputs, &used, settings, now);
            let suffering = advisor
                .interference
                .observe(inputs, &settings.interference, now);
            is_suffering = suffering.cloned();
            advisor.protect(
                &mut advice,
                inputs,
                &used,
                settings,
                (&owners, is_suffering.as_ref()),
                now,
            );
            advice.metric = advisor.metric(inputs, (sample, &owners), pods, &used, settings, now);
        }
        // What protected before protects on.
        _ => advice.settings = advisor.last_settings.clone(),
    }
    let is_enabled = settings.reclaim.enable && settings.thresholds.enable;
    if degradation.is_some() || !is_enabled {
        advisor.lender.stop();
        advice.terms = lender::nothing(match &degradation {
            Some(why) => &why.message,
            None => "the settings switch lending or its protection off",
        });
    } else {
        advisor.lend(&mut advice, inputs, &owners, settings, now);
    }
    let pressure = advisor.evictions.pressure();
    let unhealthy = degradation
        .as_ref()
        .filter(|_| now >= advisor.started.plus(health::STALE));
    advice.taints = health::taints(unhealthy, pressure, is_suffering.as_ref());
    advice.conditions = health::conditions(degradation.as_ref(), is_enabled, inputs);
    let differences = advisor.numa.condition(&owners, inputs);
    advice.conditions.push(differences);
    advice
}

impl Advisor {
    fn train(
        &mut self,
        inputs: &Inputs<'_>,
        used: &ClassUse,
        settings: &AgentSettings,
        now: Timestamp,
    ) {
        let at = inputs.sample.map(|sample| sample.at);
        if self.trained == at {
            return;
        }
        self.trained = at;
        let series = usage::series(inputs, used);
        let wall = self.wall(now);
        self.models.observe(series, &settings.prediction, now, wall);
    }

    /// Suppression, cgroup values and evictions.
    fn protect(
        &mut self,
        advice: &mut Advice,
        inputs: &Inputs<'_>,
        used: &ClassUse,
        settings: &AgentSettings,
        (owners, suffering): (&ZoneOwners, Option<&Suffering>),
        now: Timestamp,
    ) {
        let (Some(sample), Some(node)) = (inputs.sample, inputs.node) else {
            advice.settings = self.last_settings.clone();
            return;
        };
        let thresholds = &settings.thresholds;
        let available = Available::of(&sample.machine.cpus, owners, inputs);
        let is_quota = thresholds.enable && suppress::may_use_quota(thresholds, inputs);
        let all = 1000 * i64::try_from(sample.machine.cpus.0.len()).unwrap_or(0);
        let wanted = match thresholds.enable {
            true => {
                let demand = Demand::of(node, used);
                suppress::amount(demand, thresholds.cpu_suppress, thresholds.cpu_suppress_min)
            }
            // Every CPU that is not reserved or bound.
            false => all,
        };
        let grant = self.suppressor.grant(wanted, &available, is_quota, now);
        let idle = thresholds.enable && thresholds.cpu_idle;
        let overrides = cgroup::Overrides {
            no_quota: is_quota,
            idle,
        };
        advice.settings = cgroup::settings(inputs, overrides);
        let written = &mut self.suppressor.written;
        let suppression = suppress::settings(&grant, idle, written, inputs);
        advice.settings.extend(suppression);
        let is_guarded = thresholds.enable && thresholds.memory_guard;
        let guard = self.guard.setting(is_guarded, written, inputs);
        advice.settings.extend(guard);
        let plan = NumaPlan::new(owners, inputs);
        let is_granted = !grant.cpus.0.is_empty();
        advice.settings.extend(plan.settings(is_granted, inputs));
        advice.events = self.numa.follow(&plan, owners, inputs, now);
        self.last_settings.clone_from(&advice.settings);
        if thresholds.enable {
            let candidates = evict::candidates(inputs);
            let since = Timestamp(now.0.saturating_sub(nanos(thresholds.cpu_evict_window)));
            let mean = self.usage.mean(since);
            let mean = mean.filter(|_| self.usage.covers(since, now));
            let mean = mean.map(|mean| {
                let demand = Demand::of(node, &mean);
                let (threshold, least) = (thresholds.cpu_suppress, thresholds.cpu_suppress_min);
                let left = suppress::amount(demand, threshold, least);
                (mean, left)
            });
            let memory = sample.machine.memory.map_or(0, |memory| memory.total.0);
            let limit = match thresholds.cpu_evict_policy {
                SatisfactionLimit::RealLimit => grant.milli_cpu,
                SatisfactionLimit::Allocatable => self.lender.reported().milli_cpu,
            };
            let figures = EvictionInputs {
                candidates: &candidates,
                used,
                mean: mean.as_ref(),
                capacity: CpuMemory::new(all, i64::try_from(memory).unwrap_or(i64::MAX)),
                limit,
                suffering,
            };
            let needs = self.evictions.needs(&figures, thresholds, now);
            advice.evictions = self
                .evictions
                .choose(&needs, &candidates, &settings.limits, now);
        } else {
            self.evictions.stop();
        }
        advice.suppression = Some(grant);
    }

    fn metric(
        &self,
        inputs: &Inputs<'_>,
        (sample, owners): (&NodeSample, &ZoneOwners),
        pods: &[LocalPod],
        used: &ClassUse,
        settings: &AgentSettings,
        now: Timestamp,
    ) -> NodeMetricReport {
        let mut metrics: Vec<PodMetric> = pods
            .iter()
            .filter_map(|pod| {
                let measured = sample.pods.get(&pod.group)?;
                Some(PodMetric {
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    uid: pod.uid.clone(),
                    class: pod.class,
                    usage: usage::use_of(&measured.group),
                })
            })
            .collect();
        metrics.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let wall = self.wall(now);
        let reclaimable = inputs.node.and_then(|node| {
            let prediction = &settings.prediction;
            reclaimable::reclaimable(node, (pods, owners), sample, &self.models, prediction, wall)
        });
        NodeMetricReport {
            node_usage: Some(used.node),
            system_usage: Some(used.system),
            pods: metrics,
            prod_reclaimable: reclaimable.map(|it| it.reclaimable),
            prod_peak: reclaimable.map(|it| it.peak),
        }
    }

    fn lend(
        &mut self,
        advice: &mut Advice,
        inputs: &Inputs<'_>,
        owners: &ZoneOwners,
        settings: &AgentSettings,
        now: Timestamp,
    ) {
        let since = Timestamp(now.0.saturating_sub(nanos(headroom::AVERAGED)));
        let (Some(sample), Some(node), Some(pods)) = (inputs.sample, inputs.node, inputs.pods)
        else {
            return;
        };
        let Some(used) = self.usage.mean(since) else {
            // The last sample is older than the average, but not stale: what was reported holds.
            advice.reclaimed = self.report.clone();
            advice.terms.clone_from(&self.terms);
            return;
        };
        let quota = advice.suppression.as_ref().filter(|grant| grant.is_quota);
        let figures = LendingInputs {
            node,
            pods,
            sample,
            used: &used,
            withheld: zones::withheld(sample, owners),
            quota: quota.map(|grant| grant.milli_cpu),
            last: self.lender.reported(),
        };
        let formula = headroom::formula(&figures, settings);
        let pool = self.lender.report(formula.value(), &settings.reclaim, now);
        (advice.reclaimed, advice.terms) =
            lender::publish(formula, pool, (sample, owners), pods, settings);
        self.report = advice.reclaimed.clone();
        self.terms.clone_from(&advice.terms);
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
