//! Small ids for the values of node labels, so that domains can be compared and counted by number.

use hashbrown::HashMap;

use crate::model::{Labels, Name};

/// Ids per key, starting at 1 for the empty value; 0 is "no such label". Values that no node has give their id back.
#[derive(Debug, Clone, Default)]
pub(super) struct Domains {
    keys: HashMap<Name, Values>,
}

#[derive(Debug, Clone, Default)]
struct Values {
    ids: HashMap<Name, Value>,
    free: Vec<u32>,
    /// Ids ever in use at once, the empty value's apart.
    used: u32,
}

#[derive(Debug, Clone)]
struct Value {
    id: u32,
    nodes: u32,
}

const EMPTY: u32 = 1;

impl Domains {
    /// One id per label, in the order of the labels.
    pub(super) fn enter(&mut self, labels: &Labels) -> Vec<u32> {
        labels
            .iter()
            .map(|(key, value)| self.keys.entry(key.clone()).or_default().enter(value))
            .collect()
    }

    pub(super) fn leave(&mut self, labels: &Labels) {
        for (key, value) in labels.iter() {
            if let Some(values) = self.keys.get_mut(key) {
                values.leave(value);
                if values.ids.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
    }

    /// Gives labels the texts that those of other nodes have, so that comparing them touches the same memory.
    pub(super) fn share(&self, labels: &mut Labels) {
        labels.share(|(key, value)| {
            if let Some((known, values)) = self.keys.get_key_value(key) {
                *key = known.clone();
                if let Some((known, _)) = values.ids.get_key_value(value) {
                    *value = known.clone();
                }
            }
        });
    }

    pub(super) fn uses(&self) -> usize {
        self.keys
            .values()
            .flat_map(|values| values.ids.values())
            .map(|value| value.nodes as usize)
            .sum()
    }
}

impl Values {
    fn enter(&mut self, value: &Name) -> u32 {
        if let Some(known) = self.ids.get_mut(value) {
            known.nodes += 1;
            return known.id;
        }
        let id = if value.is_empty() {
            EMPTY
        } else {
            self.free.pop().unwrap_or_else(|| {
                self.used += 1;
                self.used + EMPTY
            })
        };
        self.ids.insert(value.clone(), Value { id, nodes: 1 });
        id
    }

    fn leave(&mut self, value: &Name) {
        let Some(known) = self.ids.get_mut(value) else {
            return;
        };
        known.nodes -= 1;
        if known.nodes == 0 {
            if known.id != EMPTY {
                self.free.push(known.id);
            }
            self.ids.remove(value);
        }
    }
}
