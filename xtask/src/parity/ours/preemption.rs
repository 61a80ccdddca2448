//! What PostFilter says, and the search for victims behind it.

use engine::evaluate::{Diagnosis, Scan};
use engine::model::Timestamp;
use engine::preemption::{Search, Wanted, best};
use engine::profile::Profile;
use engine::scheduler;

use super::{World, plugin_status};
use crate::parity::verdicts::{Candidate, Cycle, NodeStatus, Preemption};

/// Later than any pod's start.
const NOW: Timestamp = Timestamp(i64::MAX);

pub(super) fn post_filter(
    profile: &Profile,
    world: &World,
    scan: &Scan,
    diagnosis: &Diagnosis,
    cycle: &mut Cycle,
) {
    let found = scheduler::post_filter(
        &world.cluster,
        scan,
        profile,
        &world.pod,
        diagnosis,
        Wanted::All,
        NOW,
    );
    let search = found.search.as_ref();
    // Preemption that succeeds says nothing.
    let words = match search {
        Some(search) if !search.candidates.is_empty() => String::new(),
        _ => found.words.join(", "),
    };
    cycle.message = Some(diagnosis.message(&words));
    cycle.preemption = search.map(|search| preemption(world, scan, search));
}

fn preemption(world: &World, scan: &Scan, search: &Search) -> Preemption {
    let nodes = world.cluster.nodes();
    let name = |slot: usize| nodes.get(slot).map_or("", |entry| &entry.node.spec.name);
    let mut candidates: Vec<&engine::preemption::Candidate> = search.candidates.iter().collect();
    candidates.sort_by_key(|candidate| world.position(&candidate.node));
    let mut unhelpful: Vec<NodeStatus> = search
        .unhelpful
        .iter()
        .map(|tried| {
            let (plugin, rejection) = tried.words(scan);
            NodeStatus {
                node: name(tried.slot).to_owned(),
                status: plugin_status(plugin, &rejection),
            }
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
