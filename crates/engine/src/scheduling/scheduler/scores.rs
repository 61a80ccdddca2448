//! The score table of a decision. Computed only for pods and schedulers that enable it.

use serde::{Deserialize, Serialize};

use super::{Cycle, Scheduler};
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::evaluate::{FeasibleNodes, Tier, by_tier};

/// Bounds the size of a table.
const MOST: u16 = 1_000;

/// The text is not a valid number of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use a whole number from 0 to {MOST}")]
pub struct ScoreCountError;

/// Parses the number of nodes in a score table; 0 disables it.
pub fn score_count(text: &str) -> Result<u16, ScoreCountError> {
    let count = text.trim().parse().ok();
    count.filter(|count| *count <= MOST).ok_or(ScoreCountError)
}

/// The score of each plugin for the best nodes of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scores<S = &'static str, T = Timestamp> {
    pub at: T,
    pub namespace: Name,
    pub name: Name,
    /// The chosen node.
    pub node: Name,
    /// The size of the table that was requested.
    pub top: u16,
    /// The number of nodes that it was chosen from.
    pub feasible_nodes: usize,
    /// Plugins that scored, in the order of the profile.
    pub plugins: Vec<S>,
    /// The best nodes, best first. Of equal nodes the chosen one is the first.
    pub nodes: Vec<NodeScores>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScores {
    pub node: Name,
    /// The sum, without what extenders add.
    pub score: i64,
    /// Weighted scores, in the order of the plugins.
    pub scores: Vec<i64>,
    /// Compared before the sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

impl Scheduler {
    /// Enables score tables of so many nodes for all pods that do not set their own number; 0 disables them.
    pub fn show_scores(&mut self, top: u16) {
        self.show_scores = top;
    }

    /// The score table of the last decision, if it is enabled.
    pub fn take_scores(&mut self) -> Option<Scores> {
        self.scores.take().map(|scores| *scores)
    }

    /// The score table of the nodes that `slot` was chosen from. `None` if it is not enabled, or if the scores of a single
    /// node, which is chosen without them, fail.
    pub(super) fn score_table(
        &self,
        cycle: &mut Cycle,
        pod: &Pod,
        slot: usize,
        nodes: &FeasibleNodes,
        now: Timestamp,
    ) -> Option<Box<Scores>> {
        let top = pod.show_scores.unwrap_or(self.show_scores);
        if top == 0 {
            return None;
        }
        let (columns, tiers) = cycle.weighted_scores(nodes).ok()?;
        let slots: Vec<usize> = nodes.slots().collect();
        let total = |at: usize| columns.iter().map(|(_, scores)| scores[at]).sum();
        let mut ranked: Vec<(i64, usize)> = (0..slots.len()).map(|at| (total(at), at)).collect();
        let is_other = |at: usize| slots[at] != slot;
        ranked.sort_by(|&(a_total, a), &(b_total, b)| {
            by_tier(&tiers[a], &tiers[b])
                .then(b_total.cmp(&a_total))
                .then(is_other(a).cmp(&is_other(b)))
        });
        ranked.truncate(top.into());
        let name = |slot: usize| {
            let entry = self.cluster.nodes().get(slot);
            entry.map_or_else(Name::default, |entry| entry.node.spec.name.clone())
        };
        let row = |&(score, at): &(i64, usize)| NodeScores {
            node: name(slots[at]),
            score,
            scores: columns.iter().map(|(_, scores)| scores[at]).collect(),
            tiers: tiers[at].clone(),
        };
        Some(Box::new(Scores {
            at: now,
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            node: name(slot),
            top,
            feasible_nodes: slots.len(),
            plugins: columns.iter().map(|(plugin, _)| *plugin).collect(),
            nodes: ranked.iter().map(row).collect(),
        }))
    }
}
