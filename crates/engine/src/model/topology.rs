//! The NUMA zones of a node as its agent reports them, and sets of them.
//!
//! Which pod has which zone is known to the cluster.

use std::collections::BTreeMap;
use std::fmt;

use super::{Amounts, Name, Reclaimed, Resource};

/// The annotation that a Binding carries: the zones that the scheduler chose, such as `0,1`.
pub const NUMA_ZONES: &str = "tidepool.io/numa-zones";

/// Ids are below this, as the kernel's and Katalyst's are.
pub const MOST_ZONES: usize = 64;

/// NUMA zones by id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ZoneSet(u64);

impl ZoneSet {
    pub const EMPTY: Self = Self(0);

    /// `None` for an id that no zone can have.
    pub fn of(id: u8) -> Option<Self> {
        (usize::from(id) < MOST_ZONES).then(|| Self(1 << id))
    }

    /// The id of a zone, in decimal digits without leading zeros.
    pub fn parse_id(text: &str) -> Option<u8> {
        let id = text.parse().ok().filter(|id| Self::of(*id).is_some())?;
        (id.to_string() == text).then_some(id)
    }

    /// The text of [`NUMA_ZONES`]; an empty one is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = Self::EMPTY;
        let parts = text.split(',').filter(|_| !text.trim().is_empty());
        for part in parts {
            let one = Self::parse_id(part.trim()).and_then(Self::of);
            let one = one.ok_or_else(|| {
                format!("`{part}` is not a NUMA zone: use ids from 0 to 63, separated by commas")
            })?;
            all = all.with(one);
        }
        Ok(all)
    }

    /// For sentences: "zone 0" or "zones 0,1".
    pub fn named(self) -> String {
        match self.len() {
            1 => format!("zone {self}"),
            _ => format!("zones {self}"),
        }
    }

    pub fn contains(self, id: u8) -> bool {
        Self::of(id).is_some_and(|one| self.0 & one.0 != 0)
    }

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The zones that the request of a pod can need, among those that it claims: by id, until `suffices` says that they have all
    /// of it together. A scheduler gives a pod no set of which a part suffices, and no second zone that others share, so all of
    /// its zones count; what a user writes beyond that does not.
    #[must_use]
    pub fn needed(self, binding: NumaBinding, suffices: impl Fn(Self) -> bool) -> Self {
        let most = match binding {
            NumaBinding::Exclusive => MOST_ZONES,
            NumaBinding::Shared => 1,
        };
        let mut needed = Self::EMPTY;
        for one in self.iter().filter_map(Self::of).take(most) {
            if suffices(needed) {
                break;
            }
            needed = needed.with(one);
        }
        needed
    }

    /// Ids in their order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..MOST_ZONES as u8).filter(move |id| self.contains(*id))
    }
}

impl fmt::Display for ZoneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, id) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{id}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ZoneSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// How a pod with `numa_binding` uses its zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumaBinding {
    /// Whole zones that no other pod may use.
    Exclusive,
    /// One zone, with others in it.
    Shared,
}

/// The zones that pods have. Pods take theirs one after the other, the oldest first: of two pods that claim a zone, the older one
/// has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenZones {
    /// Zones that some pod has.
    pub busy: ZoneSet,
    /// Those of them that one pod has alone.
    pub exclusive: ZoneSet,
}

impl TakenZones {
    /// Gives a pod what it claims, as far as pods before it leave it.
    pub fn take(&mut self, claim: ZoneSet, binding: Option<NumaBinding>) -> ZoneSet {
        let is_exclusive = binding == Some(NumaBinding::Exclusive);
        let zones = claim.without(if is_exclusive {
            self.busy
        } else {
            self.exclusive
        });
        self.busy = self.busy.with(zones);
        if is_exclusive {
            self.exclusive = self.exclusive.with(zones);
        }
        zones
    }
}

/// The kubelet's topology manager policy, as far as it limits the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TopologyPolicy {
    /// `SingleNUMANodeContainerLevel`.
    SingleContainer,
    /// `SingleNUMANodePodLevel`.
    SinglePod,
    /// All others: a pod may get several zones.
    #[default]
    Several,
}

impl TopologyPolicy {
    pub fn parse(text: &str) -> Self {
        match text {
            "SingleNUMANodeContainerLevel" => Self::SingleContainer,
            "SingleNUMANodePodLevel" => Self::SinglePod,
            _ => Self::Several,
        }
    }

    pub fn is_single(self) -> bool {
        self != Self::Several
    }
}

/// A NUMA zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub id: u8,
    pub socket: Name,
    pub allocatable: Amounts,
    pub capacity: Amounts,
    /// What the zone lends, if it is reported by zone.
    pub reclaimed: Option<Reclaimed>,
    /// To each zone of the node, in the order of their ids. Empty if it is not reported.
    pub distances: Vec<u32>,
    /// `reserved_cpu_list`, as written.
    pub reserved_cpus: Name,
    pub allocations: Vec<Allocation>,
}

impl Zone {
    pub fn as_set(&self) -> ZoneSet {
        ZoneSet::of(self.id).unwrap_or_default()
    }

    pub(crate) fn has_only_cpu_and_memory(&self) -> bool {
        let mut offered = self.allocatable.iter();
        offered.all(|(resource, _)| matches!(resource, Resource::Cpu | Resource::Memory))
    }
}

/// What the agent saw a pod use of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub uid: Name,
    pub requests: Amounts,
}

/// All zones of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    pub policy: TopologyPolicy,
    /// By id, each once.
    zones: Vec<Zone>,
    /// The zones of each socket.
    sockets: Vec<ZoneSet>,
    /// The zones in which each pod was seen, by uid.
    seen: BTreeMap<Name, ZoneSet>,
}

impl Topology {
    /// Whether a pod may have zones now that it could not have before: zones are other ones, or an allocation is gone. What zones
    /// lend does not matter.
    pub fn has_more_than(&self, before: &Self) -> bool {
        let differs = |(new, old): (&Zone, &Zone)| {
            let is_same = (new.id, &new.socket, &new.allocatable, &new.distances)
                == (old.id, &old.socket, &old.allocatable, &old.distances);
            let is_gone = |it: &Allocation| !new.allocations.contains(it);
            !is_same || old.allocations.iter().any(is_gone)
        };
        self.policy != before.policy
            || self.zones.len() != before.zones.len()
            || self.zones.iter().zip(&before.zones).any(differs)
    }

    /// If several zones have one id, the first counts.
    pub fn new(policy: TopologyPolicy, mut zones: Vec<Zone>) -> Self {
        zones.sort_by_key(|zone| zone.id);
        zones.dedup_by_key(|zone| zone.id);
        let mut sockets: Vec<(Name, ZoneSet)> = Vec::new();
        for zone in &zones {
            match sockets.iter_mut().find(|(name, _)| *name == zone.socket) {
                Some((_, set)) => *set = set.with(zone.as_set()),
                None => sockets.push((zone.socket.clone(), zone.as_set())),
            }
        }
        let mut seen: BTreeMap<Name, ZoneSet> = BTreeMap::new();
        for zone in &zones {
            for allocation in &zone.allocations {
                let of_pod = seen.entry(allocation.uid.clone()).or_default();
                *of_pod = of_pod.with(zone.as_set());
            }
        }
        Self {
            policy,
            zones,
            sockets: sockets.into_iter().map(|(_, set)| set).collect(),
            seen,
        }
    }

    /// The zones in which the agent saw this pod.
    pub fn seen(&self, uid: &str) -> ZoneSet {
        self.seen.get(uid).copied().unwrap_or_default()
    }

    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    pub fn sockets(&self) -> &[ZoneSet] {
        &self.sockets
    }

    pub fn all(&self) -> ZoneSet {
        let sockets = self.sockets.iter();
        sockets.fold(ZoneSet::EMPTY, |all, socket| all.with(*socket))
    }

    pub fn zone(&self, id: u8) -> Option<&Zone> {
        let position = self.zones.binary_search_by_key(&id, |zone| zone.id).ok()?;
        self.zones.get(position)
    }

    /// The sum over some zones.
    pub fn allocatable(&self, zones: ZoneSet, resource: &Resource) -> i64 {
        let zones = self.zones.iter().filter(|zone| zones.contains(zone.id));
        let amounts = zones.map(|zone| zone.allocatable.get(resource));
        amounts.fold(0, i64::saturating_add)
    }

    /// The zones that the request of a pod can need, among those that it claims. Only devices that zones report count; other
    /// devices are in no zone.
    pub fn needed(&self, claim: ZoneSet, binding: NumaBinding, requests: &Amounts) -> ZoneSet {
        let is_known = |resource: &Resource| {
            let mut zones = self.zones.iter();
            matches!(resource, Resource::Cpu | Resource::Memory)
                || zones.any(|zone| zone.allocatable.contains(resource))
        };
        let requests = requests.iter().filter(|(resource, _)| is_known(resource));
        let requests: Vec<(&Resource, i64)> = requests.collect();
        claim.needed(binding, |zones| {
            let mut requests = requests.iter();
            requests.all(|(resource, amount)| self.allocatable(zones, resource) >= *amount)
        })
    }

    /// The sum of the distances between each two of the zones; a distance that is not reported counts as the kernel's
    /// default for remote zones.
    pub fn distance(&self, zones: ZoneSet) -> u64 {
        const REMOTE: u32 = 20;
        let chosen = || self.zones.iter().filter(|zone| zones.contains(zone.id));
        let mut sum = 0;
        for from in chosen() {
            for to in chosen().filter(|to| to.id > from.id) {
                let position = self.zones.iter().position(|zone| zone.id == to.id);
                let found = position.and_then(|position| from.distances.get(position));
                sum += u64::from(found.copied().unwrap_or(REMOTE));
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_lists_of_ids() {
        for (text, want) in [
            ("0", Ok("0")),
            ("1,0", Ok("0,1")),
            ("63, 2,2", Ok("2,63")),
            ("64", Err("64")),
            ("", Ok("")),
            (" ", Ok("")),
            ("0,", Err("")),
            ("-1", Err("-1")),
            ("+1", Err("+1")),
            ("0,01", Err("01")),
            ("a", Err("a")),
        ] {
            let found = ZoneSet::parse(text).map(|set| set.to_string());
            let want = want.map(ToOwned::to_owned).map_err(|part| {
                format!("`{part}` is not a NUMA zone: use ids from 0 to 63, separated by commas")
            });
            assert_eq!(found, want, "{text}");
        }
    }

    #[test]
    fn no_more_zones_count_than_a_request_can_need() {
        let zone = |id, cpu, memory, gpus: Option<i64>| Zone {
            id,
            socket: "0".into(),
            allocatable: [(Resource::Cpu, cpu), (Resource::Memory, memory)]
                .into_iter()
                .chain(gpus.map(|gpus| (Resource::Scalar("a.b/gpu".into()), gpus)))
                .collect(),
            capacity: Amounts::default(),
            reclaimed: None,
            distances: Vec::new(),
            reserved_cpus: "".into(),
            allocations: Vec::new(),
        };
        let zones = vec![
            zone(0, 4000, 10, None),
            zone(1, 4000, 10, Some(1)),
            zone(2, 2000, 40, Some(1)),
            zone(9, 8000, 10, None),
        ];
        let topology = Topology::new(TopologyPolicy::Several, zones);
        let gpu = |count| (Resource::Scalar("a.b/gpu".into()), count);
        let other = (Resource::Scalar("a.b/nic".into()), 50);
        let cpu = |milli| (Resource::Cpu, milli);
        let memory = |bytes| (Resource::Memory, bytes);
        use NumaBinding::{Exclusive, Shared};
        for (case, claim, binding, requests, want) in [
            (
                "a pod of 1m needs one",
                "0,1,2,9",
                Exclusive,
                vec![cpu(1)],
                "0",
            ),
            (
                "the claim decides which",
                "2,9",
                Exclusive,
                vec![cpu(1)],
                "2",
            ),
            (
                "two have the cpu",
                "0,1,2,9",
                Exclusive,
                vec![cpu(4001)],
                "0,1",
            ),
            (
                "two just have it",
                "0,1,2,9",
                Exclusive,
                vec![cpu(8000)],
                "0,1",
            ),
            (
                "three have the memory",
                "0,1,2,9",
                Exclusive,
                vec![cpu(1), memory(60)],
                "0,1,2",
            ),
            (
                "all do not suffice",
                "0,9",
                Exclusive,
                vec![cpu(99_000)],
                "0,9",
            ),
            (
                "a zone that is not there offers nothing",
                "1,63",
                Exclusive,
                vec![cpu(4000)],
                "1",
            ),
            (
                "it may also come first",
                "5,9",
                Exclusive,
                vec![cpu(4000)],
                "5,9",
            ),
            (
                "a pod that shares has one",
                "0,1",
                Shared,
                vec![cpu(8000)],
                "0",
            ),
            (
                "devices of zones count",
                "0,1,2",
                Exclusive,
                vec![cpu(1), gpu(2)],
                "0,1,2",
            ),
            (
                "others do not",
                "0,1,2",
                Exclusive,
                vec![cpu(1), other],
                "0",
            ),
            (
                "nothing needs no zone",
                "0,1,2",
                Exclusive,
                vec![cpu(0)],
                "",
            ),
            ("nor in a shared zone", "0", Shared, vec![], ""),
        ] {
            let claim = ZoneSet::parse(claim).unwrap();
            let requests: Amounts = requests.into_iter().collect();
            let found = topology.needed(claim, binding, &requests);
            assert_eq!(found.to_string(), want, "{case}");
        }
    }

    #[test]
    fn distances_that_are_missing_are_remote() {
        let zone = |id, distances: &[u32]| Zone {
            id,
            socket: "0".into(),
            allocatable: Amounts::default(),
            capacity: Amounts::default(),
            reclaimed: None,
            distances: distances.to_vec(),
            reserved_cpus: "".into(),
            allocations: Vec::new(),
        };
        let zones = vec![zone(0, &[10, 12, 32]), zone(5, &[12, 10, 11]), zone(9, &[])];
        let topology = Topology::new(TopologyPolicy::Several, zones);
        for (set, want) in [("0", 0), ("0,5", 12), ("5,9", 11), ("0,5,9", 55)] {
            let set = ZoneSet::parse(set).unwrap();
            assert_eq!(topology.distance(set), want, "{set}");
        }
        let zones = vec![zone(1, &[]), zone(2, &[])];
        let topology = Topology::new(TopologyPolicy::Several, zones);
        assert_eq!(topology.distance(topology.all()), 20);
    }
}
