//! The scores behind a decision, for people who want to see them. Without such people nothing is looked at twice.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::evaluate::Scan;
use crate::model::{Name, Pod, Timestamp};

/// Nobody reads more, and it bounds what is kept of one decision.
const MOST: u16 = 1_000;

/// What is no number of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use a whole number from 0 to {MOST}")]
pub struct ScoreCountError;

/// Of how many nodes somebody wants to see the scores; 0 for none.
pub fn score_count(text: &str) -> Result<u16, ScoreCountError> {
    let count = text.trim().parse().ok();
    count.filter(|count| *count <= MOST).ok_or(ScoreCountError)
}

/// What each plugin gave the best nodes when a pod got its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scores<S = &'static str, T = Timestamp> {
    pub at: T,
    pub namespace: Name,
    pub name: Name,
    /// The node that it got.
    pub node: Name,
    /// How many nodes were wanted.
    pub top: u16,
    /// How many it was chosen from.
    pub feasible_nodes: usize,
    /// Those that had something to say, in the order of the profile.
    pub plugins: Vec<S>,
    /// The best ones, best first; of equal ones the chosen node is the first.
    pub nodes: Vec<NodeScores>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScores {
    pub node: Name,
    /// The sum. What extenders add is not in it.
    pub score: i64,
    /// In the order of the plugins, weights included.
    pub scores: Vec<i64>,
}

impl Scheduler {
    /// From now on the scores of so many nodes are told of each decision, but for pods that say otherwise.
    pub fn show_scores(&mut self, top: u16) {
        self.show_scores = top;
    }

    /// The scores behind the decision that was just made, if somebody wants to see them.
    pub fn take_scores(&mut self) -> Option<Scores> {
        self.scores.take().map(|scores| *scores)
    }

    pub(super) fn wanted_scores(&self, pod: &Pod) -> u16 {
        pod.show_scores.unwrap_or(self.show_scores)
    }

    /// The scores of the nodes that `slot` was chosen from, which may be itself alone. Nothing if nobody wants them, or if
    /// they cannot be told: a lone node is taken without them.
    pub(super) fn scores(
        &self,
        scan: &mut Scan,
        pod: &Pod,
        slot: usize,
        now: Timestamp,
        among: impl FnOnce(&mut Scan) -> Result<Vec<usize>, String>,
    ) -> Option<Box<Scores>> {
        let top = self.wanted_scores(pod);
        if top == 0 {
            return None;
        }
        let slots = among(scan).ok()?;
        let columns = scan.weighted(&slots).ok()?;
        let total = |at: usize| columns.iter().map(|(_, scores)| scores[at]).sum();
        let mut ranked: Vec<(i64, usize)> = (0..slots.len()).map(|at| (total(at), at)).collect();
        ranked.sort_by_key(|&(total, at)| (Reverse(total), slots[at] != slot));
        ranked.truncate(top.into());
        let name = |slot: usize| {
            let entry = self.cluster.nodes().get(slot);
            entry.map_or_else(Name::default, |entry| entry.node.spec.name.clone())
        };
        let row = |&(score, at): &(i64, usize)| NodeScores {
            node: name(slots[at]),
            score,
            scores: columns.iter().map(|(_, scores)| scores[at]).collect(),
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
