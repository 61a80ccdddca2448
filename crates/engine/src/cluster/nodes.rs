//! Nodes in slots, and one row of numbers for each.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::PodId;
use super::accounts::{Accounts, Part};
use super::domains::Domains;
use super::zone_row::ZoneRow;
use super::zones::NodeZones;
use crate::model::{Name, Node, NodeSpec};

/// Slots are given by first appearance; the lowest free one is given again.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    slots: Vec<Option<NodeEntry>>,
    free: BTreeSet<usize>,
    by_name: HashMap<Name, usize>,
    rows: Vec<i64>,
    width: usize,
    /// By slot; empty as long as no node reported zones.
    zone_rows: Vec<ZoneRow>,
    pub(super) domains: Domains,
}

#[derive(Debug, Clone)]
pub struct NodeEntry {
    pub node: Arc<Node>,
    /// Ids of the labels' values, in the order of the labels.
    domains: Vec<u32>,
    pub pods: Vec<PodId>,
    /// Who has which NUMA zones; `None` if none are reported.
    pub(super) zones: Option<Box<NodeZones>>,
}

impl NodeEntry {
    pub(crate) fn spec(&self) -> &NodeSpec {
        &self.node.spec
    }

    /// The id of the value under the key, 0 if it is missing. `hint` is where the key was on the node before.
    pub(crate) fn domain(&self, key: &str, hint: &mut usize) -> u32 {
        let position = self.node.spec.labels.position_near(key, hint);
        position.map_or(0, |position| self.domains[position])
    }
}

impl Nodes {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// All slots, free ones too.
    pub fn slots(&self) -> &[Option<NodeEntry>] {
        &self.slots
    }

    pub fn get(&self, slot: usize) -> Option<&NodeEntry> {
        self.slots.get(slot)?.as_ref()
    }

    pub fn slot(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn row(&self, slot: usize) -> &[i64] {
        &self.rows[slot * self.width..(slot + 1) * self.width]
    }

    /// The numbers of the node's NUMA zones; `None` as long as no node reported any.
    pub(crate) fn zone_row(&self, slot: usize) -> Option<&ZoneRow> {
        self.zone_rows.get(slot)
    }

    pub(super) fn set_zones(&mut self, slot: usize, zones: Option<NodeZones>) {
        self.zone_rows.resize(self.slots.len(), ZoneRow::NONE);
        self.zone_rows[slot] = ZoneRow::of(zones.as_ref());
        if let Some(entry) = self.entry_mut(slot) {
            entry.zones = zones.map(Box::new);
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn rows(&self) -> &[i64] {
        &self.rows
    }

    pub(super) fn row_mut(&mut self, slot: usize) -> &mut [i64] {
        &mut self.rows[slot * self.width..(slot + 1) * self.width]
    }

    pub(super) fn entry_mut(&mut self, slot: usize) -> Option<&mut NodeEntry> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// A new node in the lowest free slot, with no pods and an empty row.
    pub(super) fn insert(&mut self, node: Arc<Node>) -> usize {
        let domains = self.domains.enter(&node.spec.labels);
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            self.rows.resize(self.slots.len() * self.width, 0);
            if !self.zone_rows.is_empty() {
                self.zone_rows.push(ZoneRow::NONE);
            }
            self.slots.len() - 1
        });
        self.by_name.insert(node.spec.name.clone(), slot);
        self.slots[slot] = Some(NodeEntry {
            node,
            domains,
            pods: Vec::new(),
            zones: None,
        });
        slot
    }

    pub(super) fn replace(&mut self, slot: usize, node: Arc<Node>) {
        let Some(entry) = self.slots[slot].as_mut() else {
            return;
        };
        if entry.node.spec.labels != node.spec.labels {
            // Enter first: a value that stays keeps its id.
            entry.domains = self.domains.enter(&node.spec.labels);
            self.domains.leave(&entry.node.spec.labels);
        }
        entry.node = node;
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<NodeEntry> {
        let entry = self.slots.get_mut(slot)?.take()?;
        self.domains.leave(&entry.node.spec.labels);
        self.by_name.remove(&entry.node.spec.name);
        self.row_mut(slot).fill(0);
        if let Some(row) = self.zone_rows.get_mut(slot) {
            *row = ZoneRow::NONE;
        }
        self.free.insert(slot);
        Some(entry)
    }

    /// Makes rows as long as the accounts need.
    pub(super) fn widen(&mut self, width: usize) {
        if width <= self.width {
            return;
        }
        let mut rows = vec![0; self.slots.len() * width];
        for slot in 0..self.slots.len() {
            rows[slot * width..slot * width + self.width].copy_from_slice(self.row(slot));
        }
        self.rows = rows;
        self.width = width;
    }

    /// Writes what the node offers into its row; what it does not name is 0.
    pub(super) fn write_allocatable(
        &mut self,
        slot: usize,
        node: &Node,
        previous: Option<&Node>,
        accounts: &Accounts,
    ) {
        let row = self.row_mut(slot);
        let old = previous
            .into_iter()
            .flat_map(|node| node.allocatable.iter())
            .map(|(resource, _)| (resource, 0));
        for (resource, amount) in old.chain(node.allocatable.iter()) {
            if let Some(column) = accounts.column(resource, Part::Allocatable) {
                row[column] = amount;
            }
        }
    }

    pub(super) fn clear_account(&mut self, column: usize) {
        for slot in 0..self.slots.len() {
            self.row_mut(slot)[column..column + 2].fill(0);
        }
    }

    pub(super) fn free_slots(&self) -> &BTreeSet<usize> {
        &self.free
    }
}
