//! Shares, quotas and memory limits of own pods, from the requests and limits of their tier.
//!
//! They are what the kubelet writes for the same amounts under native names.

use super::pods::{ContainerRole, ResourcePair};
use super::suppress::QUOTA_PERIOD;
use super::terms::CpuMemory;
use super::{Bytes, Group, Inputs, LocalContainer, LocalPod, PodQos, Setting, SettingValue};

const LEAST_SHARES: i64 = 2;
const MOST_SHARES: i64 = 262_144;
/// The kernel refuses less.
const LEAST_QUOTA: i64 = 1000;
/// The kernel refuses more: 44 bits of microseconds.
const MOST_QUOTA: i64 = (1 << 44) - 1;
/// More than any machine has. The kernel takes more for no limit, and does not show it as it was written.
const MOST_MEMORY: i64 = 1 << 60;

/// The values of one cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupValues {
    pub shares: u64,
    /// Microseconds in each period of 100 ms.
    pub quota: Option<u64>,
    pub memory: Option<u64>,
}

pub fn shares(milli_cpu: i64) -> u64 {
    let shares = milli_cpu.saturating_mul(1024) / 1000;
    shares.clamp(LEAST_SHARES, MOST_SHARES).unsigned_abs()
}

/// None: no limit.
fn memory_limit(bytes: i64) -> Option<u64> {
    (bytes > 0).then(|| bytes.min(MOST_MEMORY).unsigned_abs())
}

/// None: no limit.
pub fn quota(milli_cpu: i64) -> Option<u64> {
    let quota = milli_cpu.saturating_mul(QUOTA_PERIOD) / 1000;
    (milli_cpu > 0).then(|| quota.clamp(LEAST_QUOTA, MOST_QUOTA).unsigned_abs())
}

/// What a pod needs of an amount of its containers: of those that run together, or of an init container with the sidecars before it,
/// whichever is larger, and its overhead.
pub fn pod_total(pod: &LocalPod, amount: impl Fn(&LocalContainer) -> CpuMemory) -> CpuMemory {
    total(pod, amount).plus(pod.overhead)
}

fn total(pod: &LocalPod, amount: impl Fn(&LocalContainer) -> CpuMemory) -> CpuMemory {
    let (mut running, mut starting) = (CpuMemory::ZERO, CpuMemory::ZERO);
    let mut sidecars = CpuMemory::ZERO;
    for container in &pod.containers {
        let amount = amount(container);
        match container.role {
            ContainerRole::Regular => running = running.plus(amount),
            ContainerRole::Init => starting = starting.max(sidecars.plus(amount)),
            ContainerRole::Sidecar => {
                sidecars = sidecars.plus(amount);
                starting = starting.max(sidecars);
            }
        }
    }
    running.plus(sidecars).max(starting)
}

/// The values of a pod's group. A limit holds only if every container has one. As with the kubelet, an init container counts together
/// with the sidecars before it.
pub fn pod_values(pod: &LocalPod, pair: impl Fn(&LocalContainer) -> ResourcePair) -> GroupValues {
    let requests = pod_total(pod, |container| pair(container).requests);
    let limits = total(pod, |container| pair(container).limits);
    let all = |of: fn(CpuMemory) -> i64| {
        let mut sidecars = 0_i64;
        pod.containers.iter().all(|container| {
            let limit = of(pair(container).limits);
            match container.role {
                ContainerRole::Regular => limit > 0,
                ContainerRole::Init => sidecars.saturating_add(limit) > 0,
                ContainerRole::Sidecar => {
                    sidecars = sidecars.saturating_add(limit);
                    sidecars > 0
                }
            }
        })
    };
    let cpu = all(|limits| limits.milli_cpu).then_some(limits.milli_cpu);
    let memory = all(|limits| limits.memory).then_some(limits.memory);
    let with_overhead = |limit: Option<i64>, overhead: i64| {
        limit
            .filter(|it| *it > 0)
            .map(|it| it.saturating_add(overhead))
    };
    GroupValues {
        shares: shares(requests.milli_cpu),
        quota: with_overhead(cpu, pod.overhead.milli_cpu).and_then(quota),
        memory: with_overhead(memory, pod.overhead.memory).and_then(memory_limit),
    }
}

pub fn container_values(pair: ResourcePair) -> GroupValues {
    GroupValues {
        shares: shares(pair.requests.milli_cpu),
        quota: quota(pair.limits.milli_cpu),
        memory: memory_limit(pair.limits.memory),
    }
}

/// The values that the kubelet gives own pods and their containers, without an agent.
pub fn kubelet_settings(pods: &[LocalPod]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for pod in pods.iter().filter(|pod| pod.is_own() && pod.is_active()) {
        let mut write = |group: Group, values: GroupValues| {
            let values = [
                // An idle group has no shares.
                SettingValue::CpuIdle(false),
                SettingValue::CpuShares(values.shares),
                SettingValue::CpuQuota(values.quota),
                SettingValue::MemoryLimit(values.memory.map(Bytes)),
            ];
            settings.extend(values.map(|value| Setting {
                group: group.clone(),
                value,
            }));
        };
        let uid = pod.group.clone();
        write(Group::Pod { uid }, pod_values(pod, |it| it.native));
        for container in &pod.containers {
            let Some(id) = container.id.clone() else {
                continue;
            };
            let pod = pod.group.clone();
            write(
                Group::Container { pod, id },
                container_values(container.native),
            );
        }
    }
    settings
}

/// The class that Kubernetes gives the pod by its native requests and limits.
pub fn pod_qos(pod: &LocalPod) -> PodQos {
    let sum = |side: fn(&ResourcePair) -> CpuMemory| -> CpuMemory {
        pod.containers.iter().map(|it| side(&it.native)).sum()
    };
    let (requests, limits) = (sum(|it| it.requests), sum(|it| it.limits));
    let has_both = |limits: CpuMemory| limits.milli_cpu > 0 && limits.memory > 0;
    if requests == CpuMemory::ZERO && limits == CpuMemory::ZERO {
        PodQos::BestEffort
    } else if requests == limits && pod.containers.iter().all(|it| has_both(it.native.limits)) {
        PodQos::Guaranteed
    } else {
        PodQos::Burstable
    }
}

/// How the values of all pods are changed by suppression.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Overrides {
    /// `besteffort` has a quota; the kernel refuses a larger one of a child.
    pub no_quota: bool,
    /// Lent pods are idle groups, which have no shares.
    pub idle: bool,
}

/// The settings of all own pods that name resources of their tier.
pub(super) fn settings(inputs: &Inputs<'_>, overrides: Overrides) -> Vec<Setting> {
    let mut settings = Vec::new();
    let (Some(sample), Some(pods)) = (inputs.sample, inputs.pods) else {
        return settings;
    };
    for pod in pods.iter().filter(|pod| pod.is_own() && pod.is_active()) {
        let Some(used) = sample.pods.get(&pod.group) else {
            continue;
        };
        let pair = |container: &LocalContainer| container.amounts(pod.class);
        if pod
            .containers
            .iter()
            .all(|it| pair(it) == ResourcePair::default())
        {
            continue;
        }
        let mut write = |group: Group, values: GroupValues, memory: Option<u64>, is_idle: bool| {
            let mut push = |value| {
                let group = group.clone();
                settings.push(Setting { group, value });
            };
            if !is_idle {
                push(SettingValue::CpuShares(values.shares));
            }
            let no_quota = overrides.no_quota && pod.is_suppressed();
            push(SettingValue::CpuQuota(values.quota.filter(|_| !no_quota)));
            match (values.memory, memory) {
                // Never below the present use: the kernel would kill a process.
                (Some(limit), Some(used)) => {
                    push(SettingValue::MemoryLimit(Some(Bytes(limit.max(used)))));
                }
                (Some(_), None) => {} // the use is not known
                (None, _) => push(SettingValue::MemoryLimit(None)),
            }
        };
        let usage = |group: &super::GroupUse| group.memory.as_ref().map(|it| it.usage.0);
        let values = pod_values(pod, pair);
        let group = Group::Pod {
            uid: pod.group.clone(),
        };
        let is_idle = overrides.idle && pod.is_lent();
        write(group, values, usage(&used.group), is_idle);
        for container in &pod.containers {
            let Some(id) = &container.id else { continue };
            let Some(used) = used.containers.get(id) else {
                continue;
            };
            let group = Group::Container {
                pod: pod.group.clone(),
                id: id.clone(),
            };
            write(group, container_values(pair(container)), usage(used), false);
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quotas() {
        for (milli, want_shares, want_quota) in [
            (-5, 2, None),
            (0, 2, None),
            (1, 2, Some(1000)),
            (5, 5, Some(1000)),
            (500, 512, Some(50_000)),
            (1000, 1024, Some(100_000)),
            (4000, 4096, Some(400_000)),
            (1_000_000, 262_144, Some(100_000_000)),
        ] {
            assert_eq!(shares(milli), want_shares, "{milli}");
            assert_eq!(quota(milli), want_quota, "{milli}");
        }
    }

    fn container(role: ContainerRole, requests: i64, limits: i64) -> LocalContainer {
        LocalContainer {
            role,
            native: ResourcePair {
                requests: CpuMemory::new(requests, requests << 20),
                limits: CpuMemory::new(limits, limits << 20),
            },
            ..LocalContainer::default()
        }
    }

    #[test]
    fn sums_of_a_pod() {
        use ContainerRole::{Init, Regular, Sidecar};
        let values = |containers: Vec<LocalContainer>, overhead: i64| {
            let pod = LocalPod {
                containers,
                overhead: CpuMemory::new(overhead, 0),
                ..LocalPod::default()
            };
            let values = pod_values(&pod, |container| container.native);
            (values.shares, values.quota)
        };
        let one = container(Regular, 500, 1000);
        assert_eq!(values(vec![one.clone()], 0), (512, Some(100_000)));
        let two = vec![one.clone(), container(Regular, 500, 500)];
        assert_eq!(values(two.clone(), 0), (1024, Some(150_000)));
        assert_eq!(values(two, 250), (1280, Some(175_000)));
        let without = vec![one.clone(), container(Regular, 500, 0)];
        assert_eq!(values(without, 0), (1024, None));
        let init = vec![container(Init, 3000, 3000), one.clone()];
        assert_eq!(values(init, 0), (3072, Some(300_000)));
        let sidecar = vec![
            container(Sidecar, 1000, 1000),
            container(Init, 1000, 1000),
            one,
        ];
        assert_eq!(values(sidecar, 0), (2048, Some(200_000)));
    }
}
