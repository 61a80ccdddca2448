//! The NUMA zones of a node as plain numbers in one place, for checks that run on every node.

use super::zones::{NodeZones, ZoneAmounts};

/// A node with more zones has no numbers here.
const MOST: usize = 8;

/// Larger amounts are no real ones, and sums of them could overflow.
const LARGEST: i64 = 1 << 50;

/// What most checks need of the zones of a node. Zones are known by their position in the topology, and sets of them are masks
/// of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneRow {
    /// False if the zones do not fit: all else is 0 then.
    is_known: bool,
    count: u8,
    /// A pod gets one zone at most.
    pub(crate) is_single: bool,
    /// No zone has resources other than cpu and memory.
    pub(crate) is_plain: bool,
    /// Zones that no pod has.
    pub(crate) idle: u8,
    /// The zones of each socket; 0 behind the last.
    sockets: [u8; MOST],
    /// What pods without zones of their own request.
    pub(crate) others: ZoneAmounts,
    /// What the zones have that no pod has alone.
    pub(crate) remaining: ZoneAmounts,
    allocatable: [ZoneAmounts; MOST],
    /// See [`NodeZones::left`].
    left: [ZoneAmounts; MOST],
}

impl ZoneRow {
    /// The row of a node that reports no zones.
    pub(crate) const NONE: Self = Self {
        is_known: true,
        count: 0,
        is_single: false,
        is_plain: true,
        idle: 0,
        sockets: [0; MOST],
        others: ZoneAmounts::ZERO,
        remaining: ZoneAmounts::ZERO,
        allocatable: [ZoneAmounts::ZERO; MOST],
        left: [ZoneAmounts::ZERO; MOST],
    };

    const UNKNOWN: Self = Self {
        is_known: false,
        ..Self::NONE
    };

    pub(crate) fn of(zones: Option<&NodeZones>) -> Self {
        let Some(zones) = zones else {
            return Self::NONE;
        };
        let topology = zones.topology();
        let all = topology.zones();
        let is_real = |amounts: &ZoneAmounts| {
            (0..=LARGEST).contains(&amounts.milli_cpu) && (0..=LARGEST).contains(&amounts.memory)
        };
        let amounts = all.iter().map(ZoneAmounts::offered);
        if all.len() > MOST || !amounts.clone().all(|it| is_real(&it)) {
            return Self::UNKNOWN;
        }
        let mut row = Self {
            count: all.len() as u8,
            is_single: topology.policy.is_single(),
            is_plain: all.iter().all(|zone| zone.has_only_cpu_and_memory()),
            others: zones.used_by_others(),
            remaining: zones.remaining(),
            ..Self::NONE
        };
        for (position, offered) in amounts.enumerate() {
            row.allocatable[position] = offered;
            row.left[position] = zones.left_of(position);
            row.idle |= u8::from(zones.is_idle(&all[position])) << position;
        }
        for (found, socket) in row.sockets.iter_mut().zip(topology.sockets()) {
            let of_socket = all.iter().map(|zone| socket.contains(zone.id));
            *found = (0..).zip(of_socket).fold(0, |set, (position, is_in)| {
                set | (u8::from(is_in) << position)
            });
        }
        row
    }

    /// Whether the numbers are there.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// What each zone offers.
    pub(crate) fn allocatable(&self) -> &[ZoneAmounts] {
        &self.allocatable[..self.len()]
    }

    /// What is left of each zone.
    pub(crate) fn left(&self) -> &[ZoneAmounts] {
        &self.left[..self.len()]
    }

    /// All zones.
    pub(crate) fn all(&self) -> u8 {
        self.sockets.iter().fold(0, |all, socket| all | socket)
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = u8> + Clone {
        self.sockets.into_iter().take_while(|socket| *socket != 0)
    }

    /// What some zones offer together.
    pub(crate) fn sum(&self, zones: u8) -> ZoneAmounts {
        positions(zones).fold(ZoneAmounts::ZERO, |sum, position| {
            sum.plus(self.allocatable[position], 1)
        })
    }

    /// See [`NodeZones::others_fit_without`].
    pub(crate) fn others_fit_without(&self, taken: ZoneAmounts) -> bool {
        self.others.fit(self.remaining.plus(taken, -1))
    }
}

/// The positions in a mask.
pub(crate) fn positions(mut zones: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (zones != 0).then(|| {
            let position = zones.trailing_zeros() as usize;
            zones &= zones - 1;
            position
        })
    })
}
