//! Which zones of a node a pod gets.

use crate::model::{NumaBinding, Pod, Resource, Topology, TopologyPolicy, Zone, ZoneSet};
use crate::scheduling::framework::{NodeZones, ZoneAmounts, ZoneRow, positions};

/// Sets that are looked at before the search is content with what it has. All sets of twelve zones are fewer.
const MOST_SETS: usize = 10_000;

/// What a pod wants of the zones of a node.
#[derive(Debug, Clone)]
pub(super) struct ZoneDemand {
    binding: Binding,
    /// From the same zones; above 0.
    aligned: Vec<(Resource, i64)>,
    /// From any zones, as far as zones have them; above 0.
    others: Vec<(Resource, i64)>,
    /// What is aligned, if it is cpu and memory and these are nowhere else.
    plain: Option<ZoneAmounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    Exclusive,
    Shared,
    /// The kubelet pins the pod.
    Native,
}

/// Why a node has no zones for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortfall {
    NoZones,
    /// Too few zones are idle.
    Idle {
        needed: usize,
        one_socket: bool,
    },
    /// Even if all zones were idle.
    TooLarge,
    /// No single zone.
    NoZoneFits,
    /// Resources that are not aligned.
    OtherResources,
    /// Pods without zones need what would be taken.
    OtherPods,
    /// The kubelet aligns whole pods here.
    Pod,
}

impl ZoneDemand {
    pub(super) fn new(pod: &Pod, binding: NumaBinding, aligned: &[Resource]) -> Self {
        let wanted = pod.requests.wanted.iter();
        let wanted = wanted.filter(|(_, amount)| *amount > 0);
        let wanted = wanted.map(|(resource, amount)| (resource.clone(), amount));
        let (aligned, others): (Vec<_>, Vec<_>) =
            wanted.partition(|(resource, _)| aligned.contains(resource));
        let is_native =
            |(resource, _): &(Resource, i64)| matches!(resource, Resource::Cpu | Resource::Memory);
        let amount = |of: Resource| {
            let mut aligned = aligned.iter();
            let found = aligned.find(|(resource, _)| *resource == of);
            found.map_or(0, |(_, amount)| *amount)
        };
        let plain = ZoneAmounts {
            milli_cpu: amount(Resource::Cpu),
            memory: amount(Resource::Memory),
        };
        let is_plain =
            !aligned.is_empty() && aligned.iter().all(is_native) && !others.iter().any(is_native);
        Self {
            binding: match binding {
                NumaBinding::Exclusive => Binding::Exclusive,
                NumaBinding::Shared => Binding::Shared,
            },
            plain: is_plain.then_some(plain),
            aligned,
            others,
        }
    }

    pub(super) fn native(pod: &Pod) -> Self {
        Self {
            binding: Binding::Native,
            ..Self::new(pod, NumaBinding::Shared, &[])
        }
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.binding == Binding::Exclusive
    }

    pub(super) fn aligned(&self) -> &[(Resource, i64)] {
        &self.aligned
    }

    /// Whether the node has zones for the pod.
    pub(super) fn check(&self, node: Option<&NodeZones>) -> Result<(), Shortfall> {
        if self.wants_nothing() {
            return Ok(());
        }
        match node {
            Some(zones) => self.choose(zones).map(|_| ()),
            None if self.binding == Binding::Native => Ok(()),
            None => Err(Shortfall::NoZones),
        }
    }

    fn wants_nothing(&self) -> bool {
        self.aligned.is_empty() && self.others.is_empty()
    }

    /// Whether the node has zones for the pod, from the numbers of the zones, mostly without a search; `None` if it takes more
    /// than these.
    pub(super) fn check_row(&self, row: &ZoneRow) -> Option<Result<(), Shortfall>> {
        if self.wants_nothing() {
            return Some(Ok(()));
        }
        let wanted = self.plain?;
        if !row.is_known() || !(self.others.is_empty() || row.is_plain) {
            return None;
        }
        if row.len() == 0 {
            return Some(Err(Shortfall::NoZones));
        }
        if !self.is_exclusive() {
            let fits = row.left().iter().any(|left| left.covers(wanted));
            return Some(fits.then_some(()).ok_or(Shortfall::NoZoneFits));
        }
        let idle = || positions(row.idle).map(|position| row.allocatable()[position]);
        if idle().any(|zone| zone.covers(wanted) && row.others_fit_without(zone)) {
            return Some(Ok(()));
        }
        if row.is_single {
            let mut all = row.allocatable().iter();
            return Some(Err(match all.any(|zone| zone.covers(wanted)) {
                _ if idle().any(|zone| zone.covers(wanted)) => Shortfall::OtherPods,
                true => Shortfall::Idle {
                    needed: 1,
                    one_socket: true,
                },
                false => Shortfall::TooLarge,
            }));
        }
        let large = row
            .sockets()
            .filter(|socket| row.sum(*socket).covers(wanted));
        let one_socket = large.clone().next().is_some();
        let groups = large.chain((!one_socket).then(|| row.all()));
        let mut idle = groups.clone().map(|group| group & row.idle);
        if !idle.clone().any(|group| row.sum(group).covers(wanted)) {
            let sufficing = groups.flat_map(subsets);
            let sufficing = sufficing.filter(|set| row.sum(*set).covers(wanted));
            return Some(Err(match sufficing.map(u8::count_ones).min() {
                None => Shortfall::TooLarge,
                Some(needed) => Shortfall::Idle {
                    needed: needed as usize,
                    one_socket,
                },
            }));
        }
        let fits = |set: u8| {
            let sum = row.sum(set);
            sum.covers(wanted) && row.others_fit_without(sum)
        };
        let fit = row.others_fit_without(row.sum(row.idle)) || idle.any(|it| subsets(it).any(fits));
        Some(fit.then_some(()).ok_or(Shortfall::OtherPods))
    }

    /// The zones that the pod gets; none if it requests nothing that zones have.
    pub(super) fn choose(&self, zones: &NodeZones) -> Result<ZoneSet, Shortfall> {
        let topology = zones.topology();
        if self.binding == Binding::Native {
            return self.native_fits(zones);
        }
        if let Some(known) = self.known_to(topology) {
            return match known.wants_nothing() {
                true => Ok(ZoneSet::EMPTY),
                false => known.choose(zones),
            };
        }
        let mut others = self.others.iter();
        if self.aligned.is_empty() && !others.any(|(it, _)| is_of_zones(topology, it)) {
            return Ok(ZoneSet::EMPTY);
        }
        if topology.policy.is_single() {
            return self.single(zones, true);
        }
        self.others_suffice(zones)?;
        if self.aligned.is_empty() {
            return Ok(ZoneSet::EMPTY);
        }
        if !self.is_exclusive() {
            return self.single(zones, false);
        }
        if let Some(zone) = self.one_zone(zones) {
            return Ok(zone);
        }
        let idle = zones.idle();
        let (groups, one_socket) = self.groups(topology);
        let rank = |set: ZoneSet| {
            if !zones.others_fit_without(set) {
                return None;
            }
            // A socket that is begun is used up before another, so that whole sockets stay idle.
            let begun = topology.sockets().iter();
            let begun = begun.filter(|socket| !socket.both(set).is_empty());
            let left: usize = begun
                .map(|socket| socket.both(idle).without(set).len())
                .sum();
            Some((set.len(), topology.distance(set), left, set))
        };
        let mut idle_groups = groups.iter().map(|group| group.both(idle));
        let sets = idle_groups.clone();
        let sets = sets.filter_map(|group| self.smallest(topology, group, &rank));
        let best = sets.min_by_key(|set| rank(*set));
        best.ok_or_else(
            || match idle_groups.any(|group| self.is_met_by(topology, group)) {
                true => Shortfall::OtherPods,
                false => self.too_few(topology, &groups, one_socket),
            },
        )
    }

    /// The demand without aligned devices that no zone reports: these are not bound to zones. `None` if there are none.
    fn known_to(&self, topology: &Topology) -> Option<Self> {
        let is_known = |(resource, _): &(Resource, i64)| {
            let is_plain = matches!(resource, Resource::Cpu | Resource::Memory);
            is_plain || is_of_zones(topology, resource)
        };
        if self.plain.is_some() || self.aligned.iter().all(is_known) {
            return None;
        }
        let mut known = self.clone();
        known.aligned.retain(is_known);
        Some(known)
    }

    /// The best idle zone that suffices alone and leaves enough to others: one of the socket with the fewest idle zones, so that
    /// whole sockets stay idle.
    fn one_zone(&self, zones: &NodeZones) -> Option<ZoneSet> {
        let suffices = |zone: &&Zone| {
            let mut aligned = self.aligned.iter();
            zones.is_idle(zone)
                && aligned.all(|(resource, amount)| zone.allocatable.get(resource) >= *amount)
                && zones.others_fit_without(zone.as_set())
        };
        let found = zones.topology().zones().iter().filter(suffices);
        let best = found.min_by_key(|zone| (idle_neighbours(zones, zone), zone.id));
        best.filter(|_| !self.aligned.is_empty()).map(Zone::as_set)
    }

    /// Where the zones may be: in one socket if there is one that is large enough. True in that case.
    fn groups(&self, topology: &Topology) -> (Vec<ZoneSet>, bool) {
        let sockets = topology.sockets().iter().copied();
        let large: Vec<ZoneSet> = sockets
            .filter(|socket| self.is_met_by(topology, *socket))
            .collect();
        match large.is_empty() {
            true => (vec![topology.all()], false),
            false => (large, true),
        }
    }

    /// Whether all of these zones together suffice.
    fn is_met_by(&self, topology: &Topology, zones: ZoneSet) -> bool {
        let mut aligned = self.aligned.iter();
        aligned.all(|(resource, amount)| topology.allocatable(zones, resource) >= *amount)
    }

    fn too_few(&self, topology: &Topology, groups: &[ZoneSet], one_socket: bool) -> Shortfall {
        let rank = |set: ZoneSet| Some((set.len(), set));
        let sets = groups
            .iter()
            .filter_map(|group| self.smallest(topology, *group, &rank));
        match sets.map(ZoneSet::len).min() {
            None => Shortfall::TooLarge,
            Some(needed) => Shortfall::Idle { needed, one_socket },
        }
    }

    /// One zone; with all resources of the pod that zones have, if `with_others`.
    fn single(&self, zones: &NodeZones, with_others: bool) -> Result<ZoneSet, Shortfall> {
        let others = self.others.iter().filter(|_| with_others);
        let wanted: Vec<&(Resource, i64)> = self.aligned.iter().chain(others).collect();
        let topology = zones.topology();
        let found = topology.zones().iter().enumerate();
        let found = found.filter(|(position, zone)| {
            let is_free = !self.is_exclusive() || zones.is_idle(zone);
            is_free
                && has(topology, &wanted, |resource| {
                    zones.left(*position, resource)
                })
        });
        let found: Vec<&Zone> = found.map(|(_, zone)| zone).collect();
        if !self.is_exclusive() {
            // It goes where others are already, so that whole zones stay idle.
            let best = found
                .iter()
                .min_by_key(|zone| (zones.is_idle(zone), zone.id));
            return best.map(|zone| zone.as_set()).ok_or(Shortfall::NoZoneFits);
        }
        let others_fit = found.iter();
        let others_fit = others_fit.filter(|zone| zones.others_fit_without(zone.as_set()));
        let best = others_fit.min_by_key(|zone| (idle_neighbours(zones, zone), zone.id));
        if let Some(zone) = best {
            return Ok(zone.as_set());
        }
        let mut all = topology.zones().iter();
        Err(match found.is_empty() {
            false => Shortfall::OtherPods,
            true if all.any(|zone| has(topology, &wanted, |it| zone.allocatable.get(it))) => {
                Shortfall::Idle {
                    needed: 1,
                    one_socket: true,
                }
            }
            true => Shortfall::TooLarge,
        })
    }

    fn native_fits(&self, zones: &NodeZones) -> Result<ZoneSet, Shortfall> {
        let shortfall = match zones.topology().policy {
            TopologyPolicy::SingleContainer => Shortfall::NoZoneFits,
            TopologyPolicy::SinglePod => Shortfall::Pod,
            TopologyPolicy::Several => return Ok(ZoneSet::EMPTY),
        };
        let wanted: Vec<&(Resource, i64)> = self.others.iter().collect();
        let mut positions = 0..zones.topology().zones().len();
        let topology = zones.topology();
        match positions.any(|position| has(topology, &wanted, |it| zones.left(position, it))) {
            true => Ok(ZoneSet::EMPTY),
            false => Err(shortfall),
        }
    }

    /// Resources that are not aligned may come from all zones.
    fn others_suffice(&self, zones: &NodeZones) -> Result<(), Shortfall> {
        let lacks = |(resource, amount): &(Resource, i64)| {
            let positions = 0..zones.topology().zones().len();
            let left: i64 = positions
                .map(|position| zones.left(position, resource))
                .sum();
            is_of_zones(zones.topology(), resource) && left < *amount
        };
        match self.others.iter().any(lacks) {
            true => Err(Shortfall::OtherResources),
            false => Ok(()),
        }
    }

    /// The best of the smallest sets of these zones that suffice together. Sets without a rank do not count.
    fn smallest<R: Ord>(
        &self,
        topology: &Topology,
        zones: ZoneSet,
        rank: &impl Fn(ZoneSet) -> Option<R>,
    ) -> Option<ZoneSet> {
        if !self.is_met_by(topology, zones) {
            return None;
        }
        let zones = topology
            .zones()
            .iter()
            .filter(|zone| zones.contains(zone.id));
        let amounts = |zone: &Zone| {
            let amounts = self.aligned.iter();
            amounts
                .map(|(resource, _)| zone.allocatable.get(resource))
                .collect()
        };
        let zones: Vec<(ZoneSet, Vec<i64>)> =
            zones.map(|zone| (zone.as_set(), amounts(zone))).collect();
        let wanted: Vec<i64> = self.aligned.iter().map(|(_, amount)| *amount).collect();
        let mut search = ZoneSearch {
            zones: &zones,
            rank,
            best: None,
            looked_at: 0,
        };
        for size in least_size(&zones, &wanted)..=zones.len() {
            search.extend(0, size, ZoneSet::EMPTY, &wanted);
            if search.best.is_some() || search.looked_at > MOST_SETS {
                break;
            }
        }
        let best = search.best.map(|(_, set)| set);
        best.or_else(|| {
            // Machines with dozens of unequal zones; and those where no set counts.
            let found = largest_first(&zones, &wanted);
            rank(found).map(|_| found)
        })
    }
}

/// All sets of some zones but the empty one.
fn subsets(zones: u8) -> impl Iterator<Item = u8> {
    let next = move |set: &u8| Some(set.wrapping_sub(1) & zones);
    std::iter::successors(Some(zones), next).take_while(|set| *set != 0)
}

/// A search through the sets of one size.
struct ZoneSearch<'s, R, F> {
    zones: &'s [(ZoneSet, Vec<i64>)],
    rank: &'s F,
    best: Option<(R, ZoneSet)>,
    looked_at: usize,
}

impl<R: Ord, F: Fn(ZoneSet) -> Option<R>> ZoneSearch<'_, R, F> {
    /// Adds so many of the zones from a position on; `missing` is what the set lacks.
    fn extend(&mut self, from: usize, more: usize, set: ZoneSet, missing: &[i64]) {
        if more == 0 {
            if missing.iter().all(|amount| *amount <= 0)
                && let Some(rank) = (self.rank)(set)
                && self.best.as_ref().is_none_or(|(best, _)| rank < *best)
            {
                self.best = Some((rank, set));
            }
            return;
        }
        for position in from..=self.zones.len().saturating_sub(more) {
            self.looked_at += 1;
            if self.looked_at > MOST_SETS {
                return;
            }
            let Some((zone, amounts)) = self.zones.get(position) else {
                return;
            };
            let missing = missing.iter().zip(amounts);
            let missing: Vec<i64> = missing.map(|(missing, has)| missing - has).collect();
            self.extend(position + 1, more - 1, set.with(*zone), &missing);
        }
    }
}

/// A set that suffices, if all zones do.
fn largest_first(zones: &[(ZoneSet, Vec<i64>)], wanted: &[i64]) -> ZoneSet {
    let share = |amounts: &[i64]| {
        let shares = amounts.iter().zip(wanted);
        shares
            .map(|(has, wanted)| i128::from(*has) * 1000 / i128::from(*wanted))
            .sum::<i128>()
    };
    let mut zones: Vec<&(ZoneSet, Vec<i64>)> = zones.iter().collect();
    zones.sort_by_key(|(_, amounts)| -share(amounts));
    let mut missing = wanted.to_vec();
    let mut set = ZoneSet::EMPTY;
    for (zone, amounts) in &zones {
        if missing.iter().all(|amount| *amount <= 0) {
            break;
        }
        set = set.with(*zone);
        let missing = missing.iter_mut().zip(amounts);
        missing.for_each(|(missing, has)| *missing -= has);
    }
    // With the later ones an earlier one may be needed no more; see `ZoneSet::needed`.
    for (zone, amounts) in zones {
        let without = missing.iter().zip(amounts);
        let without: Vec<i64> = without.map(|(missing, has)| missing + has).collect();
        if !set.both(*zone).is_empty() && without.iter().all(|amount| *amount <= 0) {
            set = set.without(*zone);
            missing = without;
        }
    }
    set
}

/// No set with fewer zones can suffice: for each resource, the zones with most of it are counted.
fn least_size(zones: &[(ZoneSet, Vec<i64>)], wanted: &[i64]) -> usize {
    let of_resource = |(resource, wanted): (usize, &i64)| {
        let mut amounts: Vec<i64> = zones.iter().map(|(_, amounts)| amounts[resource]).collect();
        amounts.sort_unstable_by(|a, b| b.cmp(a));
        count_to(&amounts, *wanted)
    };
    wanted
        .iter()
        .enumerate()
        .map(of_resource)
        .max()
        .unwrap_or(0)
}

/// How many of the amounts, from the first on, reach a sum; all of them if they do not.
pub(super) fn count_to(amounts: &[i64], wanted: i64) -> usize {
    let mut sum = 0;
    let reached = amounts.iter().position(|amount| {
        sum += amount;
        sum >= wanted
    });
    reached.map_or(amounts.len(), |position| position + 1)
}

fn is_of_zones(topology: &Topology, resource: &Resource) -> bool {
    let mut zones = topology.zones().iter();
    zones.any(|zone| zone.allocatable.contains(resource))
}

/// Whether one zone, which has these amounts, has enough. Resources that no zone has are not asked of it, but for cpu and memory.
fn has(
    topology: &Topology,
    wanted: &[&(Resource, i64)],
    amount: impl Fn(&Resource) -> i64,
) -> bool {
    wanted.iter().all(|(resource, wanted)| {
        let is_asked =
            matches!(resource, Resource::Cpu | Resource::Memory) || is_of_zones(topology, resource);
        !is_asked || amount(resource) >= *wanted
    })
}

/// Idle zones in the socket of a zone.
fn idle_neighbours(zones: &NodeZones, zone: &Zone) -> usize {
    let mut sockets = zones.topology().sockets().iter();
    let socket = sockets.find(|socket| socket.contains(zone.id));
    socket.map_or(0, |socket| socket.both(zones.idle()).len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zone_is_taken_that_others_make_needless() {
        let zone = |id, amounts: [i64; 2]| (ZoneSet::of(id).unwrap(), amounts.to_vec());
        let zones = [zone(0, [6, 6]), zone(1, [10, 0]), zone(2, [0, 10])];
        for (wanted, want) in [
            ([10, 10], "1,2"),
            ([12, 12], "0,1,2"),
            ([5, 5], "0"),
            ([16, 6], "0,1"),
        ] {
            let found = largest_first(&zones, &wanted).to_string();
            assert_eq!(found, want, "{wanted:?}");
        }
    }
}
