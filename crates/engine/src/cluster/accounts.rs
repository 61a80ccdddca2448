//! The columns of a node's row.
//!
//! Every resource that some node offers has columns of its own: the capacity of the node, and what pods request. Native
//! and reclaimed resources have separate columns. A resource that no node offers has none, so that pods cannot add columns.

use hashbrown::HashMap;

use crate::model::{Name, NonZero, PodRequests, ReclaimedRequests, ReclaimedResource, Resource};

/// A side of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Allocatable,
    Requested,
    /// What pods take, with defaults for containers that do not say; for cpu and memory only.
    NonZeroRequested,
    /// The idle pool that reclaimed and batch pods share, less [`i64::MAX`]: 0 where there is no bound. For reclaimed
    /// resources only.
    Pool,
}

const CPU: usize = 0;
const MEMORY: usize = 3;
const EPHEMERAL_STORAGE: usize = 6;
const PODS: usize = 8;
const SCALARS: usize = 10;
const REQUESTED: usize = 1;
const NON_ZERO: usize = 2;
/// Columns of the reclaimed account: four for cpu, then four for memory.
const RECLAIMED: usize = 8;
const POOL: usize = 3;

/// What a pod takes of the columns that every row has, kept where preemption looks at pod after pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    milli_cpu: i64,
    memory: i64,
    ephemeral_storage: i64,
    non_zero: NonZero,
    /// It takes of other columns, too.
    scalars: bool,
}

impl Share {
    pub(crate) fn of(requests: &PodRequests) -> Self {
        let placed = &requests.placed;
        Self {
            milli_cpu: placed.get(&Resource::Cpu),
            memory: placed.get(&Resource::Memory),
            ephemeral_storage: placed.get(&Resource::EphemeralStorage),
            non_zero: requests.placed_non_zero,
            scalars: placed
                .iter()
                .any(|(resource, _)| matches!(resource, Resource::Scalar(_)))
                || requests.reclaimed.is_some(),
        }
    }

    /// `None` if only the pod's requests can tell.
    pub(crate) fn column(&self, column: usize) -> Option<i64> {
        const CPU_REQUESTED: usize = CPU + REQUESTED;
        const CPU_NON_ZERO: usize = CPU + NON_ZERO;
        const MEMORY_REQUESTED: usize = MEMORY + REQUESTED;
        const MEMORY_NON_ZERO: usize = MEMORY + NON_ZERO;
        const STORAGE_REQUESTED: usize = EPHEMERAL_STORAGE + REQUESTED;
        const PODS_REQUESTED: usize = PODS + REQUESTED;
        Some(match column {
            CPU_REQUESTED => self.milli_cpu,
            CPU_NON_ZERO => self.non_zero.milli_cpu,
            MEMORY_REQUESTED => self.memory,
            MEMORY_NON_ZERO => self.non_zero.memory,
            STORAGE_REQUESTED => self.ephemeral_storage,
            PODS_REQUESTED => 1,
            SCALARS.. if self.scalars => return None,
            _ => 0,
        })
    }
}

/// The columns of rows.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    scalars: HashMap<Name, Account>,
    /// Pairs of columns that were given back.
    free: Vec<usize>,
    /// Pairs of columns ever in use at once.
    pairs: usize,
    /// First column of the reclaimed account, once some node lends or some pod borrows; it stays from then on.
    reclaimed: Option<usize>,
}

#[derive(Debug, Clone)]
struct Account {
    column: usize,
    /// Nodes that offer it.
    nodes: usize,
}

impl Accounts {
    /// `None` when no node offers the resource, or when there is no such side.
    pub fn column(&self, resource: &Resource, part: Part) -> Option<usize> {
        let (first, non_zero) = match resource {
            Resource::Cpu => (CPU, true),
            Resource::Memory => (MEMORY, true),
            Resource::EphemeralStorage => (EPHEMERAL_STORAGE, false),
            Resource::Pods => (PODS, false),
            Resource::Scalar(name) => (self.scalars.get(name)?.column, false),
        };
        match part {
            Part::Allocatable => Some(first),
            Part::Requested => Some(first + REQUESTED),
            Part::NonZeroRequested => non_zero.then_some(first + NON_ZERO),
            Part::Pool => None,
        }
    }

    /// Resources beyond cpu, memory, storage and pods that some node offers, in no order.
    pub(super) fn scalars(&self) -> impl Iterator<Item = &Name> {
        self.scalars.keys()
    }

    /// `None` while no node lends and no pod borrows.
    pub fn reclaimed_column(&self, resource: ReclaimedResource, part: Part) -> Option<usize> {
        let first = self.reclaimed?;
        let resource = match resource {
            ReclaimedResource::Cpu => 0,
            ReclaimedResource::Memory => RECLAIMED / 2,
        };
        let part = match part {
            Part::Allocatable => 0,
            Part::Requested => REQUESTED,
            Part::NonZeroRequested => NON_ZERO,
            Part::Pool => POOL,
        };
        Some(first + resource + part)
    }

    /// Numbers per row.
    pub(super) fn width(&self) -> usize {
        let reclaimed = if self.reclaimed.is_some() {
            RECLAIMED
        } else {
            0
        };
        SCALARS + 2 * self.pairs + reclaimed
    }

    /// Adds the columns of reclaimed resources; true on the first call.
    pub(super) fn open_reclaimed(&mut self) -> bool {
        if self.reclaimed.is_some() {
            return false;
        }
        self.reclaimed = Some(self.width());
        true
    }

    /// A node offers this; the column is returned if the account is new.
    pub(super) fn open(&mut self, name: &Name) -> Option<usize> {
        if let Some(account) = self.scalars.get_mut(name) {
            account.nodes += 1;
            return None;
        }
        let column = self.free.pop().unwrap_or_else(|| {
            self.pairs += 1;
            self.width() - 2
        });
        self.scalars
            .insert(name.clone(), Account { column, nodes: 1 });
        Some(column)
    }

    /// A node no longer offers this; the column is returned if no node does.
    pub(super) fn close(&mut self, name: &Name) -> Option<usize> {
        let account = self.scalars.get_mut(name)?;
        account.nodes -= 1;
        if account.nodes > 0 {
            return None;
        }
        let column = account.column;
        self.scalars.remove(name);
        self.free.push(column);
        Some(column)
    }

    /// Adds a pod to a row, or takes it away. Sums wrap, so that every addition can be undone exactly.
    pub(crate) fn charge(&self, row: &mut [i64], requests: &PodRequests, sign: i64) {
        for (resource, amount) in requests.placed.iter() {
            if *resource != Resource::Pods
                && let Some(column) = self.column(resource, Part::Requested)
            {
                row[column] = row[column].wrapping_add(amount.wrapping_mul(sign));
            }
        }
        let non_zero = requests.placed_non_zero;
        for (column, amount) in [
            (CPU + NON_ZERO, non_zero.milli_cpu),
            (MEMORY + NON_ZERO, non_zero.memory),
            (PODS + REQUESTED, 1),
        ] {
            row[column] = row[column].wrapping_add(amount.wrapping_mul(sign));
        }
        if let Some(borrowed) = &requests.reclaimed {
            self.charge_reclaimed(row, borrowed, sign);
        }
    }

    fn charge_reclaimed(&self, row: &mut [i64], borrowed: &ReclaimedRequests, sign: i64) {
        for resource in ReclaimedResource::ALL {
            for (part, amount) in [
                (Part::Requested, borrowed.placed.get(resource)),
                (Part::NonZeroRequested, borrowed.non_zero.get(resource)),
            ] {
                if let Some(column) = self.reclaimed_column(resource, part) {
                    row[column] = row[column].wrapping_add(amount.wrapping_mul(sign));
                }
            }
        }
    }

    pub(super) fn offers(&self) -> usize {
        self.scalars.values().map(|account| account.nodes).sum()
    }
}
