//! What nodes lend of what their online pods leave idle (Katalyst's reclaimed resources), and what pods take of it.
//!
//! It is an account of its own: what a node lends is in its CustomNodeResource, never in its status, and the two
//! spellings of a resource's name are one resource.

use super::{Amounts, QosLevel, Resource, Taint};

/// Prefixes of resource names: the one of today, and the one of the design. Both mean the same resources.
pub const RECLAIMED_GROUPS: [&str; 2] = ["resource.katalyst.kubewharf.io", "katalyst.kubewharf.io"];

/// More than any machine lends: a pebibyte, or a million million cores. What is reported above it counts as this much,
/// so that no sum over the pods of a node can overflow.
const MOST_LENT: i64 = 1 << 50;
/// A single request above what any node can lend still does not fit, and takes no more than this.
const MOST_WANTED: i64 = MOST_LENT + 1;

/// What can be lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReclaimedResource {
    /// In thousandths of a core.
    Cpu,
    /// In bytes.
    Memory,
}

impl ReclaimedResource {
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// As it is written today.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "resource.katalyst.kubewharf.io/reclaimed_millicpu",
            Self::Memory => "resource.katalyst.kubewharf.io/reclaimed_memory",
        }
    }

    /// The batch resource that can share an idle pool with it.
    pub fn batch(self) -> Resource {
        Resource::Scalar(match self {
            Self::Cpu => "kubernetes.io/batch-cpu".into(),
            Self::Memory => "kubernetes.io/batch-memory".into(),
        })
    }

    /// In either spelling.
    pub fn parse(name: &str) -> Option<Self> {
        let (group, resource) = name.split_once('/')?;
        if !RECLAIMED_GROUPS.contains(&group) {
            return None;
        }
        match resource {
            "reclaimed_millicpu" => Some(Self::Cpu),
            "reclaimed_memory" => Some(Self::Memory),
            _ => None,
        }
    }

    pub fn of(resource: &Resource) -> Option<Self> {
        match resource {
            Resource::Scalar(name) => Self::parse(name),
            _ => None,
        }
    }
}

/// An amount of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Reclaimed {
    pub milli_cpu: i64,
    pub memory: i64,
}

impl Reclaimed {
    pub fn get(self, resource: ReclaimedResource) -> i64 {
        match resource {
            ReclaimedResource::Cpu => self.milli_cpu,
            ReclaimedResource::Memory => self.memory,
        }
    }

    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// What a node lends. Invalid amounts are brought to the nearest valid one.
    pub fn lent(milli_cpu: i64, memory: i64) -> Self {
        Self {
            milli_cpu: milli_cpu.clamp(0, MOST_LENT),
            memory: memory.clamp(0, MOST_LENT),
        }
    }

    /// What a pod takes, from amounts of cpu and memory that mean reclaimed ones.
    pub(super) fn wanted(amounts: &Amounts) -> Self {
        Self {
            milli_cpu: amounts.get(&Resource::Cpu).clamp(0, MOST_WANTED),
            memory: amounts.get(&Resource::Memory).clamp(0, MOST_WANTED),
        }
    }

    /// Whether some of it is more than before.
    pub fn grew_from(self, before: Self) -> bool {
        self.milli_cpu > before.milli_cpu || self.memory > before.memory
    }
}

/// What a pod takes of the account, by the rules of [`super::PodRequests`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimedRequests {
    /// What must be free before the pod may come.
    pub wanted: Reclaimed,
    /// What the pod occupies once it is there.
    pub placed: Reclaimed,
    /// What the pod occupies, with defaults for containers that do not say.
    pub non_zero: Reclaimed,
}

/// A taint that keeps pods of one level away, and no others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QosTaint {
    pub taint: Taint,
    pub level: QosLevel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_resource() {
        use ReclaimedResource::{Cpu, Memory};
        for (name, want) in [
            (
                "resource.katalyst.kubewharf.io/reclaimed_millicpu",
                Some(Cpu),
            ),
            ("katalyst.kubewharf.io/reclaimed_millicpu", Some(Cpu)),
            (
                "resource.katalyst.kubewharf.io/reclaimed_memory",
                Some(Memory),
            ),
            ("katalyst.kubewharf.io/reclaimed_memory", Some(Memory)),
            ("katalyst.kubewharf.io/net_bandwidth", None),
            ("example.com/reclaimed_memory", None),
            ("reclaimed_memory", None),
        ] {
            assert_eq!(ReclaimedResource::parse(name), want, "{name}");
        }
        for resource in ReclaimedResource::ALL {
            assert_eq!(ReclaimedResource::parse(resource.name()), Some(resource));
        }
    }

    #[test]
    fn no_node_can_lend_enough_for_an_absurd_request() {
        let lent = Reclaimed::lent(i64::MAX, i64::MIN);
        let amounts = [(Resource::Cpu, i64::MAX), (Resource::Memory, -1)];
        let wanted = Reclaimed::wanted(&amounts.into_iter().collect());
        assert!(wanted.milli_cpu > lent.milli_cpu);
        assert_eq!((wanted.memory, lent.memory), (0, 0));
    }
}
