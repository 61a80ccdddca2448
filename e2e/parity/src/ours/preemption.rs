//! The search for victims.

use engine::scheduling::preemption::{Search, best};
use engine::scheduling::scheduler::Cycle;

use super::{NOW, World, plugin_status};
use crate::verdicts::{Candidate, NodeStatus, Preemption};

pub(super) fn found(world: &World, cycle: &mut Cycle, search: &Search) -> Preemption {
    let nodes = world.cluster.nodes();
    let name = |slot: usize| nodes.get(slot).map_or("", |entry| &entry.node.spec.name);
    let mut candidates: Vec<&engine::scheduling::preemption::Candidate> =
        search.candidates.iter().collect();
    candidates.sort_by_key(|candidate| world.position(&candidate.node));
    let unhelpful = cycle.unhelpful(search).into_iter();
    let mut unhelpful: Vec<NodeStatus> = unhelpful
        .map(|(slot, plugin, rejection)| NodeStatus {
            node: name(slot).to_owned(),
            status: plugin_status(plugin, &rejection),
        })
        .collect();
    unhelpful.sort_by_key(|status| world.position(&status.node));
    let best = best(&search.candidates, NOW);
    let mut tied: Vec<String> = best.iter().map(|best| best.node.to_string()).collect();
    tied.sort_by_key(|node| world.position(node));
    Preemption {
        candidates: candidates
            .into_iter()
            .map(|candidate| Candidate {
                node: candidate.node.to_string(),
                victims: candidate
                    .victims
                    .iter()
                    .map(|victim| format!("{}/{}", victim.namespace(), victim.name))
                    .collect(),
                pdb_violations: candidate.violations as i64,
            })
            .collect(),
        unhelpful,
        selected: best.first().map(|best| best.node.to_string()),
        tied,
    }
}
