//! A memory limit of the directory `besteffort`: pods on borrowed memory cannot take what other pods are about to need, however fast
//! they grow between two samples.
//!
//! It is Katalyst's memory guard, and applies only while every pod in the directory is the agent's own: a pod of another owner must
//! not be killed for the growth of own pods.

use super::suppress::{Written, is_own_directory};
use super::{Bytes, Group, Inputs, PodQos, Setting, SettingValue};

/// Memory that best-effort pods leave free, as in Katalyst, but at most a tenth of the node.
const CRITICAL: u64 = 4 << 30;

/// The last limit: it follows the node in steps, so that the file is not written in every period.
#[derive(Debug, Default)]
pub struct MemoryGuard {
    limit: Option<u64>,
}

/// What best-effort pods may use: their working set and the available memory without the critical amount.
pub fn limit(total: Bytes, available: Bytes, working_set: Bytes) -> u64 {
    let critical = CRITICAL.min(total.0 / 10);
    let free = available.0.saturating_sub(critical);
    working_set.0.saturating_add(free).min(total.0)
}

impl MemoryGuard {
    /// The setting of this period. None if there is nothing to change: without figures the last limit stays.
    pub(super) fn setting(
        &mut self,
        is_enabled: bool,
        written: &mut Written,
        inputs: &Inputs<'_>,
    ) -> Option<Setting> {
        // A limit of `burstable` means that the kubelet limits both directories by itself.
        let applies = is_enabled
            && inputs.burstable_memory_limit.is_none()
            && has_best_effort_pods(inputs)
            && is_own_directory(inputs);
        let limit = match applies {
            true => Some(self.step(inputs)?),
            false => None,
        };
        self.limit = limit;
        written.memory |= limit.is_some();
        written.memory.then(|| Setting {
            group: Group::BestEffort,
            value: SettingValue::MemoryLimit(limit.map(Bytes)),
        })
    }

    /// The next limit, which differs from the last one only by more than a hundredth of the memory.
    fn step(&self, inputs: &Inputs<'_>) -> Option<u64> {
        let sample = inputs.sample?;
        let (machine, used) = (sample.machine.memory?, sample.besteffort.memory.as_ref()?);
        let wanted = limit(machine.total, machine.available, used.working_set);
        let step = machine.total.0 / 100;
        let last = self.limit.filter(|last| last.abs_diff(wanted) <= step);
        // In whole pages, as the kernel keeps it.
        Some(last.unwrap_or(wanted >> 20 << 20))
    }
}

fn has_best_effort_pods(inputs: &Inputs<'_>) -> bool {
    let mut pods = inputs.sample.iter().flat_map(|sample| sample.pods.values());
    pods.any(|pod| pod.qos == PodQos::BestEffort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_effort_pods_leave_the_critical_amount_free() {
        const GIB: u64 = 1 << 30;
        for (case, total, available, working_set, want) in [
            ("an idle node", 64, 60, 0, 56),
            ("used by best-effort pods", 64, 10, 50, 56),
            ("used by others", 64, 10, 0, 6),
            ("less than critical", 64, 3, 20, 20),
            ("a small node keeps a tenth", 10, 10, 0, 9),
        ] {
            let of = |gib: u64| Bytes(gib * GIB);
            let limit = limit(of(total), of(available), of(working_set));
            assert_eq!(limit, want * GIB, "{case}");
        }
    }
}
