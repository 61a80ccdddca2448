//! NUMA zones of dedicated pods on their node: who has which, the cpusets that follow, and where cpusets differ from them.
//!
//! The scheduler chooses the zones, and the annotation of the pod is the only record; of the zones in it only those count that the
//! request of the pod can need. A pod with zones may use the CPUs and the
//! memory of these zones only, and all other pods what no pod has alone. When a pod goes, no pod has its zones, and the cpusets of
//! other pods are again as they were.
//!
//! Suppression narrows the CPUs of own pods further; see [`super::suppress`]. So these pods get only the memory nodes here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::advice::PodEvent;
use super::cgroup::pod_values;
use super::health::NUMA_ZONES_DIFFER;
use super::usage::by_group;
use super::{
    AgentCondition, Allowed, ChangedCpuset, CpuMemory, CpuSet, CpusetFile, Group, Inputs,
    LocalContainer, LocalPod, NodeSample, PodUse, Setting, SettingValue, zones,
};
use crate::model::{Name, NumaBinding, TakenZones, Timestamp, ZoneSet};

/// A cpuset that was read sooner than this after it was planned may be from before it was written.
const WRITING_TIME: Duration = Duration::from_secs(3);

/// What the agent does about NUMA zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaMode {
    /// It writes the cpusets of pods.
    Enforce,
    /// It reports cpusets that differ, and writes none.
    Check,
}

impl NumaMode {
    fn of(inputs: &Inputs<'_>) -> Self {
        let is_kubelets = inputs.static_cpu_manager || inputs.static_memory_manager;
        inputs.numa.unwrap_or(match is_kubelets {
            true => Self::Check,
            false => Self::Enforce,
        })
    }
}

/// The pods that have NUMA zones, and those that only claim them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneOwners {
    /// Oldest first.
    owners: Vec<ZoneOwner>,
    taken: TakenZones,
}

/// A pod that has or claims zones.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ZoneOwner {
    group: Name,
    /// Namespace and name.
    name: String,
    zones: ZoneSet,
    /// Claimed, but an older pod has them.
    refused: ZoneSet,
    /// Claimed, but the node does not have them.
    missing: ZoneSet,
    /// Claimed, but the request of the pod does not need them.
    beyond: ZoneSet,
}

impl ZoneOwners {
    pub(super) fn of(inputs: &Inputs<'_>) -> Self {
        let mut all = Self::default();
        let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
            return all;
        };
        let numbers = sample.numa.keys().filter_map(|it| u8::try_from(*it).ok());
        let present = numbers.filter_map(ZoneSet::of);
        let present = present.fold(ZoneSet::EMPTY, ZoneSet::with);
        // A node whose zones are not known refuses none.
        if present.is_empty() {
            return all;
        }
        let is_claim = |pod: &&LocalPod| !pod.zones.is_empty() && pod.is_active();
        let claims = pods.iter().filter(is_claim);
        let claims = claims.filter_map(|pod| Some((pod, pod.numa_binding?)));
        let mut claims: Vec<(&LocalPod, NumaBinding)> = claims.collect();
        claims.sort_by(|(a, _), (b, _)| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        for (pod, binding) in claims {
            let named = pod.zones.both(present);
            // The user of the pod may have written the zones. They take from others no more than the request entitles to.
            let request = pod.request();
            let claim = named.needed(binding, |zones| {
                let nodes = zones.iter().filter_map(|id| sample.numa.get(&id.into()));
                let offered: CpuMemory = nodes.map(|it| zones::allocatable(it, inputs)).sum();
                request.min(offered) == request
            });
            let zones = all.taken.take(claim, Some(binding));
            all.owners.push(ZoneOwner {
                group: pod.group.clone(),
                name: format!("{}/{}", pod.namespace, pod.name),
                zones,
                refused: claim.without(zones),
                missing: pod.zones.without(present),
                beyond: named.without(claim),
            });
        }
        all
    }

    /// Whether no pod has or claims a zone.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The zones of a pod, by its group.
    pub fn zones_of(&self, group: &Name) -> ZoneSet {
        let owner = self.owners.iter().find(|owner| owner.group == *group);
        owner.map_or(ZoneSet::EMPTY, |owner| owner.zones)
    }

    /// Whether the pod has zones that no other pod may use.
    pub(super) fn is_alone(&self, pod: &LocalPod) -> bool {
        !self
            .zones_of(&pod.group)
            .both(self.taken.exclusive)
            .is_empty()
    }

    /// The CPUs of zones that pods have alone.
    pub(super) fn exclusive_cpus(&self, inputs: &Inputs<'_>) -> CpuSet {
        let sample = inputs.sample;
        sample.map_or_else(CpuSet::default, |sample| {
            cpus_of(self.taken.exclusive, sample)
        })
    }

    /// Whether a pod has this zone alone.
    pub(super) fn is_exclusive(&self, zone: u32) -> bool {
        u8::try_from(zone).is_ok_and(|zone| self.taken.exclusive.contains(zone))
    }

    fn shared(&self) -> ZoneSet {
        self.taken.busy.without(self.taken.exclusive)
    }

    /// The CPUs of zones that pods share.
    pub(super) fn shared_cpus(&self, inputs: &Inputs<'_>) -> CpuSet {
        let sample = inputs.sample;
        sample.map_or_else(CpuSet::default, |sample| cpus_of(self.shared(), sample))
    }
}

/// The CPUs of zones, as far as they are online.
fn cpus_of(zones: ZoneSet, sample: &NodeSample) -> CpuSet {
    let nodes = zones.iter().filter_map(|id| sample.numa.get(&id.into()));
    let cpus = nodes.flat_map(|node| &node.cpus.0).copied();
    let online = &sample.machine.cpus.0;
    CpuSet(cpus.filter(|cpu| online.contains(cpu)).collect())
}

/// The nodes that have memory.
fn memory_nodes(sample: &NodeSample) -> CpuSet {
    let nodes = sample.numa.iter();
    let nodes = nodes.filter(|(_, node)| node.memory_total.is_some_and(|it| it.0 > 0));
    CpuSet(nodes.map(|(number, _)| *number).collect())
}

/// What a group may use. None: whatever it could before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Target {
    cpus: Option<CpuSet>,
    mems: Option<CpuSet>,
}

/// The cpusets of all pods of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumaPlan {
    mode: NumaMode,
    owners: BTreeMap<Name, Target>,
    others: Target,
}

impl NumaPlan {
    pub(super) fn new(owners: &ZoneOwners, inputs: &Inputs<'_>) -> Self {
        let mut plan = Self {
            mode: NumaMode::of(inputs),
            owners: BTreeMap::new(),
            others: Target::default(),
        };
        let Some(sample) = inputs.sample else {
            return plan;
        };
        plan.others = others(owners, inputs, sample);
        let reserved = inputs.node.map(|node| &node.reserved_cpus.0);
        for owner in &owners.owners {
            let mut cpus = cpus_of(owner.zones, sample);
            if let Some(reserved) = reserved {
                cpus.0.retain(|cpu| !reserved.contains(cpu));
            }
            // Zones without CPUs cannot run the pod.
            if cpus.0.is_empty() {
                continue;
            }
            let mut mems = memory_nodes(sample);
            mems.0
                .retain(|node| u8::try_from(*node).is_ok_and(|id| owner.zones.contains(id)));
            // A pod on CPUs without memory uses that of other nodes, but not of pods that are alone there.
            let mems = match mems.0.is_empty() {
                true => plan.others.mems.clone(),
                false => Some(mems),
            };
            let cpus = Some(cpus);
            plan.owners
                .insert(owner.group.clone(), Target { cpus, mems });
        }
        plan
    }

    fn target(&self, group: &Name) -> &Target {
        self.owners.get(group).unwrap_or(&self.others)
    }

    /// The settings of all groups: first those of pods that leave, lent pods before others, then those of pods with zones.
    /// `is_granted`: suppression writes the CPUs of own pods.
    pub(super) fn settings(&self, is_granted: bool, inputs: &Inputs<'_>) -> Vec<Setting> {
        let mut settings = Vec::new();
        let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
            return settings;
        };
        let known = by_group(pods);
        let is_suppressed = |group: &Name| known.get(group).is_some_and(|it| it.is_suppressed());
        let has_targets = !self.owners.is_empty() || self.others != Target::default();
        let mut changed = inputs.changed_cpusets.into_iter().flatten();
        let is_ours = |(group, changed): (&Name, &ChangedCpuset)| {
            *changed == ChangedCpuset::Mems || !is_suppressed(group)
        };
        // On most nodes suppression alone writes cpusets.
        if !has_targets && !changed.any(is_ours) {
            return settings;
        }
        let mut groups: Vec<(&Name, &PodUse)> = sample.pods.iter().collect();
        groups.sort_by_key(|(group, _)| match self.owners.contains_key(*group) {
            true => 2,
            false => u8::from(!is_suppressed(group)),
        });
        for (group, used) in groups {
            let target = self.target(group);
            let changed = inputs.changed_cpusets;
            let is_changed = changed.is_some_and(|changed| changed.contains_key(group));
            let mut write = |place: Group, is_pod: bool| {
                let is_enforced = self.mode == NumaMode::Enforce
                    // The static CPU manager gives containers their cpusets, so narrow pods would lock them out.
                    && !(is_pod && inputs.static_cpu_manager);
                let cpus = target.cpus.as_ref().filter(|_| is_enforced);
                let mems = target.mems.as_ref().filter(|_| is_enforced);
                let mut push = |value| {
                    let group = place.clone();
                    settings.push(Setting { group, value });
                };
                match cpus {
                    // Suppression writes it.
                    _ if is_suppressed(group) && is_granted => {}
                    Some(cpus) => push(SettingValue::Cpus(cpus.clone())),
                    // Suppression found no CPU: what it wrote before stays.
                    None if is_suppressed(group) || !is_changed => {}
                    None => push(SettingValue::Original(CpusetFile::Cpus)),
                }
                match mems {
                    Some(mems) => push(SettingValue::Mems(mems.clone())),
                    None if is_changed => push(SettingValue::Original(CpusetFile::Mems)),
                    None => {}
                }
                match mems {
                    _ if is_pod => {} // it has no processes of its own
                    Some(_) => push(SettingValue::MigrateMemory(true)),
                    None if is_changed => push(SettingValue::Original(CpusetFile::MigrateMemory)),
                    None => {}
                }
            };
            let uid = group.clone();
            write(Group::Pod { uid }, true);
            for id in used.containers.keys() {
                let (pod, id) = (group.clone(), id.clone());
                write(Group::Container { pod, id }, false);
            }
        }
        settings
    }
}

/// What is left to pods without zones of their own.
fn others(owners: &ZoneOwners, inputs: &Inputs<'_>, sample: &NodeSample) -> Target {
    if owners.taken.exclusive.is_empty() {
        return Target::default();
    }
    let taken = cpus_of(owners.taken.exclusive, sample);
    let rest = |all: &BTreeSet<u32>, taken: &BTreeSet<u32>| -> Option<CpuSet> {
        let rest: BTreeSet<u32> = all - taken;
        let is_narrower = !rest.is_empty() && rest.len() < all.len();
        is_narrower.then_some(CpuSet(rest))
    };
    let online = &sample.machine.cpus.0;
    let reserved = inputs.node.map(|node| &node.reserved_cpus.0 & online);
    let reserved = reserved.filter(|it| !it.is_empty() && it.len() < online.len());
    let cpus = rest(online, &taken.0);
    // A cpuset cannot be empty: on a node whose zones all have an owner other pods share the reserved CPUs, if there are any.
    let cpus = match taken.0.len() < online.len() {
        true => cpus,
        false => reserved.map(CpuSet),
    };
    let mems = memory_nodes(sample);
    let exclusive: BTreeSet<u32> = owners.taken.exclusive.iter().map(u32::from).collect();
    Target {
        cpus,
        mems: rest(&mems.0, &(&mems.0 & &exclusive)),
    }
}

/// What is kept between periods.
#[derive(Debug, Default)]
pub(super) struct NumaState {
    /// The uids of pods that got the event.
    narrowed: BTreeSet<Name>,
    /// What containers should use while some pod has zones, by the pod's group and their id, and since when.
    wanted: BTreeMap<(Name, Name), (Target, Timestamp)>,
}

impl NumaState {
    pub(super) fn restore(&mut self, narrowed: &[String]) {
        self.narrowed = narrowed.iter().map(|uid| Name::from(&**uid)).collect();
    }

    pub(super) fn narrowed(&self) -> Vec<String> {
        self.narrowed.iter().map(ToString::to_string).collect()
    }

    /// Takes note of what is planned. The events are about pods that may use less than their limit.
    pub(super) fn follow(
        &mut self,
        plan: &NumaPlan,
        owners: &ZoneOwners,
        inputs: &Inputs<'_>,
        now: Timestamp,
    ) -> Vec<PodEvent> {
        let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
            return Vec::new();
        };
        if owners.is_empty() {
            self.wanted.clear();
        } else {
            self.want(plan, sample, now);
        }
        self.narrowed
            .retain(|uid| pods.iter().any(|pod| pod.uid == *uid));
        let Some(cpus) = &plan.others.cpus else {
            return Vec::new();
        };
        if plan.mode == NumaMode::Check {
            return Vec::new();
        }
        let mut events = Vec::new();
        for pod in pods.iter().filter(|pod| pod.is_active()) {
            let is_other = !pod.is_suppressed() && !plan.owners.contains_key(&pod.group);
            let limit = limit(pod);
            let need = limit.unwrap_or_else(|| pod.request().milli_cpu);
            let left = 1000 * i64::try_from(cpus.0.len()).unwrap_or(0);
            if !is_other || need <= left || !self.narrowed.insert(pod.uid.clone()) {
                continue;
            }
            events.push(PodEvent {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: pod.uid.clone(),
                reason: "NumaNarrowed",
                message: format!(
                    "the pod may use CPUs {cpus} only, because other pods have NUMA {}; its {} is {need}m",
                    owners.taken.exclusive.named(),
                    if limit.is_some() { "limit" } else { "request" },
                ),
            });
        }
        events
    }

    fn want(&mut self, plan: &NumaPlan, sample: &NodeSample, now: Timestamp) {
        let mut wanted = BTreeMap::new();
        for (group, used) in &sample.pods {
            let target = plan.target(group);
            for id in used.containers.keys() {
                let key = (group.clone(), id.clone());
                let known = self.wanted.remove(&key);
                let entry = match known {
                    Some(known) if known.0 == *target => known,
                    _ => (target.clone(), now),
                };
                wanted.insert(key, entry);
            }
        }
        self.wanted = wanted;
    }

    /// Whether cpusets differ from the zones, and how.
    pub(super) fn condition(&self, owners: &ZoneOwners, inputs: &Inputs<'_>) -> AgentCondition {
        let condition = |status, reason, message: String| AgentCondition {
            kind: NUMA_ZONES_DIFFER,
            status,
            reason,
            message,
        };
        if owners.is_empty() {
            let message = "no pod on the node has NUMA zones".to_owned();
            return condition(false, "NoZones", message);
        }
        let mode = NumaMode::of(inputs);
        let mut differences = self.differences(owners, inputs, mode);
        differences.sort();
        if let Some(first) = differences.first() {
            let more = match differences.len() {
                1 => String::new(),
                2 => "; 1 more difference".to_owned(),
                count => format!("; {} more differences", count - 1),
            };
            let why = match (mode, inputs.numa) {
                (NumaMode::Enforce, _) => "",
                (_, Some(_)) => "; the agent only checks",
                (_, None) => {
                    "; the agent only checks, because the kubelet's static CPU or memory manager writes cpusets"
                }
            };
            return condition(true, "CpusetsDiffer", format!("{first}{more}{why}"));
        }
        for owner in &owners.owners {
            let (zone, why) = match (owner.refused, owner.missing, owner.beyond) {
                (ZoneSet::EMPTY, ZoneSet::EMPTY, ZoneSet::EMPTY) => continue,
                (ZoneSet::EMPTY, ZoneSet::EMPTY, beyond) => (beyond, "its request does not need"),
                (ZoneSet::EMPTY, missing, _) => (missing, "the node does not have"),
                (refused, ..) => (refused, "an older pod has"),
            };
            let (name, zones) = (&owner.name, zone.named());
            let it = if zone.len() == 1 { "it" } else { "them" };
            let message =
                format!("pod {name} does not get NUMA {zones} of its annotation: {why} {it}");
            return condition(true, "ZonesRefused", message);
        }
        let is_full = inputs.sample.is_some_and(|sample| {
            let taken = cpus_of(owners.taken.exclusive, sample);
            taken.0.len() == sample.machine.cpus.0.len()
        });
        if is_full {
            let message = "pods with NUMA zones have all CPUs, so other pods share some with them";
            return condition(true, "NoCpuLeft", message.to_owned());
        }
        let message = "cpusets follow the NUMA zones of pods".to_owned();
        condition(false, "AsChosen", message)
    }

    /// Containers that may use more than they should, one sentence each.
    fn differences(&self, owners: &ZoneOwners, inputs: &Inputs<'_>, mode: NumaMode) -> Vec<String> {
        let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
            return Vec::new();
        };
        let known = by_group(pods);
        let mut differences = Vec::new();
        for ((group, id), (target, since)) in &self.wanted {
            let used = sample.pods.get(group);
            let used = used.and_then(|used| used.containers.get(id));
            let allowed = used.and_then(|used| used.allowed.as_deref());
            let allowed = allowed.filter(|allowed| allowed.at > since.plus(WRITING_TIME));
            let Some(Allowed { cpus, mems, .. }) = allowed else {
                continue;
            };
            let pod = known.get(group).copied();
            // The kubelet's managers do not bind sandboxes.
            if mode == NumaMode::Check && container_name(pod, id).is_none() {
                continue;
            }
            // The kubelet's CPU manager writes no memory nodes, and its memory manager writes those of Guaranteed pods.
            let is_owner = !owners.zones_of(group).is_empty();
            let mems_count = mode == NumaMode::Enforce
                || match (inputs.static_cpu_manager, inputs.static_memory_manager) {
                    (false, false) => true,
                    (_, true) => is_owner,
                    (true, false) => false,
                };
            let exceeds = |found: &CpuSet, target: &Option<CpuSet>| {
                let target = target.as_ref();
                target.is_some_and(|target| !found.0.is_subset(&target.0))
            };
            let name = || name(pod, group, id);
            if exceeds(cpus, &target.cpus) {
                let target = target.cpus.clone().unwrap_or_default();
                differences.push(format!(
                    "{} may use CPUs {cpus} instead of {target}",
                    name()
                ));
            } else if mems_count && exceeds(mems, &target.mems) {
                let target = target.mems.clone().unwrap_or_default();
                differences.push(format!(
                    "{} may use the memory of NUMA zones {mems} instead of {target}",
                    name()
                ));
            }
        }
        differences
    }
}

/// A container as a message names it.
fn name(pod: Option<&LocalPod>, group: &Name, id: &Name) -> String {
    let container = container_name(pod, id);
    match (pod, container) {
        (None, _) => format!("a container of pod {group}"),
        (Some(pod), None) => format!("the sandbox of pod {}/{}", pod.namespace, pod.name),
        (Some(pod), Some(container)) => {
            let (namespace, name) = (&pod.namespace, &pod.name);
            format!("container {container} of pod {namespace}/{name}")
        }
    }
}

/// None for the sandbox, and for containers that the API server does not know yet.
fn container_name<'a>(pod: Option<&'a LocalPod>, id: &Name) -> Option<&'a Name> {
    let mut containers = pod?.containers.iter();
    let container = containers.find(|it| it.id.as_ref() == Some(id));
    container.map(|it| &it.name)
}

/// The most CPU that the pod may use, in thousandths of cores; none if it has no limit.
fn limit(pod: &LocalPod) -> Option<i64> {
    let pair = |container: &LocalContainer| container.amounts(pod.class);
    let quota = pod_values(pod, pair).quota?;
    // A quota is in microseconds of each 100 ms.
    Some(i64::try_from(quota / 100).unwrap_or(i64::MAX))
}
