//! Which pod has which NUMA zones of a node, and what is lost to others by it.
//!
//! Zones follow from the pods on the node: a pod has the zones that it was given ([`Pod::zones`]) and those that the agent
//! saw it use. So a pod that goes, or that is not bound after all, leaves nothing behind, and a scheduler that starts knows
//! as much as one that ran all the time. An allocation of a pod that is not on the node does not count.

use std::sync::Arc;

use super::{Cluster, Part};
use crate::model::{
    Amounts, Name, Pod, Reclaimed, ReclaimedResource, Resource, TakenZones, Topology, Zone, ZoneSet,
};

/// The NUMA zones of a node, with the pods that have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeZones {
    topology: Arc<Topology>,
    taken: TakenZones,
    /// Zones that no further pod may use: also where a pod wants to be alone and is not.
    closed: ZoneSet,
    /// What pods use of zones that they share, in the order of the zones; empty if no pod does.
    used: Vec<Amounts>,
    /// Oldest first.
    holders: Vec<ZoneHolder>,
    /// What pods without zones request.
    elsewhere: ZoneAmounts,
}

/// A pod that has zones, or claims them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneHolder {
    pub uid: Name,
    pub namespace: Name,
    pub name: Name,
    pub zones: ZoneSet,
    pub is_exclusive: bool,
    /// Claimed, but an older pod has them.
    pub refused: ZoneSet,
    requests: ZoneAmounts,
}

/// An amount of cpu and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ZoneAmounts {
    pub(crate) milli_cpu: i64,
    pub(crate) memory: i64,
}

impl ZoneAmounts {
    pub(crate) const ZERO: Self = Self {
        milli_cpu: 0,
        memory: 0,
    };

    fn placed(pod: &Pod) -> Self {
        Self {
            milli_cpu: pod.requests.placed.get(&Resource::Cpu),
            memory: pod.requests.placed.get(&Resource::Memory),
        }
    }

    /// What a zone offers.
    pub(super) fn offered(zone: &Zone) -> Self {
        Self {
            milli_cpu: zone.allocatable.get(&Resource::Cpu),
            memory: zone.allocatable.get(&Resource::Memory),
        }
    }

    fn of(topology: &Topology, zones: ZoneSet) -> Self {
        Self {
            milli_cpu: topology.allocatable(zones, &Resource::Cpu),
            memory: topology.allocatable(zones, &Resource::Memory),
        }
    }

    /// Sums wrap, like those of rows: a request may be any number.
    pub(crate) fn plus(self, other: Self, sign: i64) -> Self {
        let add = |a: i64, b: i64| a.wrapping_add(b.wrapping_mul(sign));
        Self {
            milli_cpu: add(self.milli_cpu, other.milli_cpu),
            memory: add(self.memory, other.memory),
        }
    }

    /// Whether this is no more than that; what is not requested always fits.
    pub(super) fn fit(self, into: Self) -> bool {
        (self.milli_cpu <= 0 || self.milli_cpu <= into.milli_cpu)
            && (self.memory <= 0 || self.memory <= into.memory)
    }

    /// Whether both are at least as large.
    pub(crate) fn covers(self, wanted: Self) -> bool {
        self.milli_cpu >= wanted.milli_cpu && self.memory >= wanted.memory
    }

    fn at_least_zero(self) -> Self {
        Self {
            milli_cpu: self.milli_cpu.max(0),
            memory: self.memory.max(0),
        }
    }
}

/// What a pod with zones of its own takes beyond its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lost {
    pub(crate) native: ZoneAmounts,
    pub(crate) reclaimed: Reclaimed,
    /// What is taken from the pool of reclaimed and batch pods beyond `reclaimed`.
    pub(crate) pool: Reclaimed,
}

impl NodeZones {
    /// With these pods on the node.
    pub fn of<'p>(topology: &Arc<Topology>, pods: impl Iterator<Item = &'p Arc<Pod>>) -> Self {
        let mut zones = Self {
            topology: topology.clone(),
            taken: TakenZones::default(),
            closed: ZoneSet::EMPTY,
            used: Vec::new(),
            holders: Vec::new(),
            elsewhere: ZoneAmounts::default(),
        };
        let mut claims: Vec<(&Arc<Pod>, ZoneSet)> = Vec::new();
        for pod in pods {
            match zones.claim(pod) {
                ZoneSet::EMPTY => zones.leave_elsewhere(pod),
                claim => claims.push((pod, claim)),
            }
        }
        // Two pods cannot have one zone: the older one keeps it.
        claims.sort_by(|(a, _), (b, _)| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        for (pod, claim) in claims {
            zones.take(pod, claim);
        }
        zones
    }

    fn claim(&self, pod: &Pod) -> ZoneSet {
        self.given(pod).with(self.topology.seen(&pod.uid))
    }

    /// The zones that the pod was given. Their record is its annotation, so of what it says no more is believed than the pod's
    /// request can need; all that a scheduler gives is needed.
    pub(crate) fn given(&self, pod: &Pod) -> ZoneSet {
        match (pod.zones, pod.numa_binding()) {
            (Some(zones), Some(binding)) => {
                self.topology.needed(zones, binding, &pod.requests.placed)
            }
            _ => ZoneSet::EMPTY,
        }
    }

    fn leave_elsewhere(&mut self, pod: &Pod) {
        self.elsewhere = self.elsewhere.plus(ZoneAmounts::placed(pod), 1);
    }

    /// Gives the pod what it claims, as far as no other pod has it.
    fn take(&mut self, pod: &Pod, claim: ZoneSet) {
        let is_exclusive = pod.takes_whole_zones();
        let zones = self.taken.take(claim, pod.numa_binding());
        if is_exclusive {
            self.closed = self.closed.with(claim);
        } else {
            self.share(pod, zones);
        }
        if !self.has_any(zones) {
            self.leave_elsewhere(pod);
        }
        self.holders.push(ZoneHolder {
            uid: pod.uid.clone(),
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            zones,
            is_exclusive,
            refused: claim.without(zones),
            requests: ZoneAmounts::placed(pod),
        });
    }

    /// Whether the node reports any of these zones.
    fn has_any(&self, zones: ZoneSet) -> bool {
        !zones.both(self.topology.all()).is_empty()
    }

    /// The pod uses as much of each zone as the agent saw, or as it requests.
    fn share(&mut self, pod: &Pod, zones: ZoneSet) {
        self.used
            .resize(self.topology.zones().len(), Amounts::default());
        for (zone, used) in self.topology.zones().iter().zip(&mut self.used) {
            if !zones.contains(zone.id) {
                continue;
            }
            let seen = zone.allocations.iter().find(|seen| seen.uid == pod.uid);
            let amounts = seen.map_or(&pod.requests.placed, |seen| &seen.requests);
            for (resource, amount) in amounts.iter() {
                let sum = used.get(resource).saturating_add(amount);
                used.set(resource.clone(), sum);
            }
        }
    }

    /// With one more pod in these zones.
    pub(crate) fn add(&mut self, pod: &Pod, zones: ZoneSet) {
        match zones {
            ZoneSet::EMPTY => self.leave_elsewhere(pod),
            zones => self.take(pod, zones),
        }
    }

    /// These zones, all idle.
    pub(crate) fn without_pods(&self) -> Self {
        Self::of(&self.topology, std::iter::empty())
    }

    /// These zones without their sockets, all idle.
    pub(crate) fn in_one_socket(&self) -> Self {
        let zones = self.topology.zones().iter();
        let zones = zones.map(|zone| Zone {
            socket: Name::default(),
            ..zone.clone()
        });
        let topology = Topology::new(self.topology.policy, zones.collect());
        Self::of(&Arc::new(topology), std::iter::empty())
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Zones that no pod has.
    pub fn idle(&self) -> ZoneSet {
        self.topology.all().without(self.taken.busy)
    }

    pub fn holders(&self) -> &[ZoneHolder] {
        &self.holders
    }

    /// What is left of a zone: nothing where a pod is alone, or wants to be.
    pub fn left(&self, position: usize, resource: &Resource) -> i64 {
        let Some(zone) = self.topology.zones().get(position) else {
            return 0;
        };
        if self.closed.contains(zone.id) {
            return 0;
        }
        let used = self.used.get(position).map_or(0, |used| used.get(resource));
        zone.allocatable.get(resource).saturating_sub(used).max(0)
    }

    /// What pods use of a zone: all of it where one is alone.
    pub fn used(&self, position: usize, resource: &Resource) -> i64 {
        match self.topology.zones().get(position) {
            Some(zone) if self.taken.exclusive.contains(zone.id) => zone.allocatable.get(resource),
            _ => self.used.get(position).map_or(0, |used| used.get(resource)),
        }
    }

    /// Zones that pods have alone.
    pub fn exclusive(&self) -> ZoneSet {
        self.taken.exclusive
    }

    /// The cpu and memory that pods without zones request.
    pub fn elsewhere(&self) -> Amounts {
        let ZoneAmounts { milli_cpu, memory } = self.elsewhere;
        let amounts = [(Resource::Cpu, milli_cpu), (Resource::Memory, memory)];
        amounts.into_iter().collect()
    }

    pub fn is_idle(&self, zone: &Zone) -> bool {
        !self.taken.busy.contains(zone.id)
    }

    /// What is left of the cpu and memory of a zone.
    pub(super) fn left_of(&self, position: usize) -> ZoneAmounts {
        ZoneAmounts {
            milli_cpu: self.left(position, &Resource::Cpu),
            memory: self.left(position, &Resource::Memory),
        }
    }

    /// The requests of all pods without zones of their own.
    pub(super) fn used_by_others(&self) -> ZoneAmounts {
        let shared = self.holders.iter().filter(|holder| !holder.is_exclusive);
        shared.fold(self.elsewhere, |sum, holder| {
            sum.plus(holder.requests, i64::from(self.has_any(holder.zones)))
        })
    }

    /// What the zones have that no pod has alone.
    pub(super) fn remaining(&self) -> ZoneAmounts {
        self.remaining_without(ZoneSet::EMPTY)
    }

    fn remaining_without(&self, taken: ZoneSet) -> ZoneAmounts {
        let taken = taken.with(self.taken.exclusive);
        ZoneAmounts::of(&self.topology, self.topology.all().without(taken))
    }

    /// Whether the requests of all pods without zones of their own fit the zones that remain if a pod takes these.
    pub fn others_fit_without(&self, taken: ZoneSet) -> bool {
        self.used_by_others().fit(self.remaining_without(taken))
    }

    /// What each pod with zones of its own takes beyond its requests, in the order of the holders. `node` is what the node
    /// offers natively: what it has beyond its zones is in none of them, so nothing of it is left once zones are taken.
    fn lost(
        &self,
        node: ZoneAmounts,
        lent: Reclaimed,
        pool: Option<Reclaimed>,
    ) -> impl Iterator<Item = (&Name, Lost)> {
        let all = self.topology.all();
        let beyond = node.plus(ZoneAmounts::of(&self.topology, all), -1);
        let mut beyond = beyond.at_least_zero();
        let holders = self.holders.iter();
        let alone = holders.filter(|holder| holder.is_exclusive && self.has_any(holder.zones));
        alone.map(move |holder| {
            let own = ZoneAmounts::of(&self.topology, holder.zones);
            let native = own.plus(holder.requests, -1).at_least_zero();
            let native = native.plus(std::mem::take(&mut beyond), 1);
            let reclaimed = self.lent_by(holder.zones, lent);
            let pool = pool.map(|pool| self.lent_by(holder.zones, pool));
            let pool = pool.map_or(Reclaimed::default(), |of_pool| Reclaimed {
                milli_cpu: (of_pool.milli_cpu - reclaimed.milli_cpu).max(0),
                memory: (of_pool.memory - reclaimed.memory).max(0),
            });
            let lost = Lost {
                native,
                reclaimed,
                pool,
            };
            (&holder.uid, lost)
        })
    }

    /// What the node lends from these zones: as reported by zone, else their share of its cores.
    fn lent_by(&self, zones: ZoneSet, lent: Reclaimed) -> Reclaimed {
        let of = |resource: ReclaimedResource| {
            let zones_of = |set: ZoneSet| {
                let zones = self.topology.zones().iter();
                zones.filter(move |zone| set.contains(zone.id))
            };
            if self
                .topology
                .zones()
                .iter()
                .any(|zone| zone.reclaimed.is_some())
            {
                let parts = zones_of(zones).filter_map(|zone| zone.reclaimed);
                let sum: i64 = parts.map(|part| part.get(resource)).sum();
                return sum.min(lent.get(resource));
            }
            let native = match resource {
                ReclaimedResource::Cpu => Resource::Cpu,
                ReclaimedResource::Memory => Resource::Memory,
            };
            let own = i128::from(self.topology.allocatable(zones, &native));
            let all = i128::from(self.topology.allocatable(self.topology.all(), &native));
            let share = i128::from(lent.get(resource)) * own / all.max(1);
            i64::try_from(share).unwrap_or(i64::MAX)
        };
        Reclaimed {
            milli_cpu: of(ReclaimedResource::Cpu),
            memory: of(ReclaimedResource::Memory),
        }
    }
}

impl Cluster {
    /// The NUMA zones of a node; `None` if none are reported.
    pub fn zones_of(&self, slot: usize) -> Option<&NodeZones> {
        self.nodes.get(slot)?.zones.as_deref()
    }

    /// Works out anew which pods of the node have which zones, and writes what is lost to others into the row.
    pub(super) fn settle_zones(&mut self, slot: usize) {
        let Some(entry) = self.nodes.get(slot) else {
            return;
        };
        if entry.node.spec.topology.is_none() && entry.zones.is_none() {
            return;
        }
        let zones = self.zones_from_pods(slot);
        let lost = self.lost_from(slot, zones.as_ref());
        let ids = self
            .nodes
            .get(slot)
            .map_or(Vec::new(), |it| it.pods.clone());
        for id in ids {
            let Some(placed) = self.pods[id.0].as_mut() else {
                continue;
            };
            let found = lost.iter().find(|(uid, _)| *uid == placed.pod.uid);
            let new = found.map_or(Lost::default(), |(_, lost)| *lost);
            let old = std::mem::replace(&mut placed.lost, new);
            if old != new {
                let row = self.nodes.row_mut(slot);
                self.catalog.accounts.charge_lost(row, &old, -1);
                self.catalog.accounts.charge_lost(row, &new, 1);
            }
        }
        self.nodes.set_zones(slot, zones);
    }

    pub(super) fn zones_from_pods(&self, slot: usize) -> Option<NodeZones> {
        let topology = self.nodes.get(slot)?.node.spec.topology.as_ref()?;
        let pods = self.pods_on(slot).map(|placed| &placed.pod);
        Some(NodeZones::of(topology, pods))
    }

    pub(crate) fn lost_from(&self, slot: usize, zones: Option<&NodeZones>) -> Vec<(Name, Lost)> {
        let (Some(zones), Some(entry)) = (zones, self.nodes.get(slot)) else {
            return Vec::new();
        };
        let allocatable = &entry.node.allocatable;
        let node = ZoneAmounts {
            milli_cpu: allocatable.get(&Resource::Cpu),
            memory: allocatable.get(&Resource::Memory),
        };
        let report = self.reports.get(&entry.node.spec.name);
        let lent = report.map_or(Reclaimed::default(), |report| report.allocatable);
        let pool = report.and_then(|report| report.pool_bound());
        let lost = zones.lost(node, lent, pool);
        lost.map(|(uid, lost)| (uid.clone(), lost)).collect()
    }
}

impl super::Accounts {
    /// Adds what a pod takes beyond its requests to a row, or takes it away.
    pub(crate) fn charge_lost(&self, row: &mut [i64], lost: &Lost, sign: i64) {
        if *lost == Lost::default() {
            return;
        }
        let parts = [Part::Requested, Part::NonZeroRequested];
        let native = [
            (Resource::Cpu, lost.native.milli_cpu),
            (Resource::Memory, lost.native.memory),
        ];
        for part in parts {
            let native = native
                .iter()
                .map(|(it, amount)| (self.column(it, part), *amount));
            let reclaimed = ReclaimedResource::ALL.iter().map(|it| {
                let column = self.reclaimed_column(*it, part);
                (column, lost.reclaimed.get(*it))
            });
            for (column, amount) in native.chain(reclaimed) {
                if let Some(column) = column {
                    row[column] = row[column].wrapping_add(amount.wrapping_mul(sign));
                }
            }
        }
        for resource in ReclaimedResource::ALL {
            let amount = lost.pool.get(resource).wrapping_mul(sign);
            if let Some(column) = self.reclaimed_column(resource, Part::Pool) {
                row[column] = row[column].wrapping_sub(amount);
            }
        }
    }
}
