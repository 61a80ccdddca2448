//! The resources that pods of a tier request instead of cpu and memory.

use super::ReclaimedResource;

/// An account of tier resources. Cpu is in thousandths of a core, memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TierAccount {
    /// `kubernetes.io/mid-*`
    Mid,
    /// `kubernetes.io/batch-*`
    Batch,
    /// `resource.katalyst.kubewharf.io/reclaimed_*`
    Reclaimed,
}

impl TierAccount {
    pub fn cpu(self) -> &'static str {
        match self {
            Self::Mid => "kubernetes.io/mid-cpu",
            Self::Batch => "kubernetes.io/batch-cpu",
            Self::Reclaimed => ReclaimedResource::Cpu.name(),
        }
    }

    pub fn memory(self) -> &'static str {
        match self {
            Self::Mid => "kubernetes.io/mid-memory",
            Self::Batch => "kubernetes.io/batch-memory",
            Self::Reclaimed => ReclaimedResource::Memory.name(),
        }
    }

    /// The account of a resource with this name, in any spelling.
    pub fn of(resource: &str) -> Option<Self> {
        Self::parse(resource).map(|(account, _)| account)
    }

    /// The account of a resource with this name, and whether it is cpu or memory.
    pub fn parse(resource: &str) -> Option<(Self, ReclaimedResource)> {
        use ReclaimedResource::{Cpu, Memory};
        Some(match resource {
            "kubernetes.io/mid-cpu" => (Self::Mid, Cpu),
            "kubernetes.io/mid-memory" => (Self::Mid, Memory),
            "kubernetes.io/batch-cpu" => (Self::Batch, Cpu),
            "kubernetes.io/batch-memory" => (Self::Batch, Memory),
            other => (Self::Reclaimed, ReclaimedResource::parse(other)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_belongs_to_its_account() {
        for account in [TierAccount::Mid, TierAccount::Batch, TierAccount::Reclaimed] {
            for (name, resource) in [
                (account.cpu(), ReclaimedResource::Cpu),
                (account.memory(), ReclaimedResource::Memory),
            ] {
                let parsed = TierAccount::parse(name);
                assert_eq!(parsed, Some((account, resource)), "{name}");
            }
        }
        let older = "katalyst.kubewharf.io/reclaimed_memory";
        assert_eq!(TierAccount::of(older), Some(TierAccount::Reclaimed));
        for other in ["cpu", "kubernetes.io/mid", "example.com/mid-cpu", ""] {
            assert_eq!(TierAccount::of(other), None, "{other}");
        }
    }
}
