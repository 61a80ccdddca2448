//! Counts of pods on nodes and in domains, from the cluster state.

use crate::cluster::{Cluster, PodClass};
use crate::scheduling::framework::{BLOCK, Carriers, Need, Places, Plan, Tally, bit_of};

/// What is kept of a count besides its column in [`Places`], to compute the effect of one pod more or less.
#[derive(Clone, Default)]
pub(super) struct CountState {
    /// Smallest count over domains and whose it is, and the smallest of the others.
    smallest: Option<(i64, u32)>,
    second: Option<i64>,
}

const NO_DOMAIN: i64 = i64::MIN;

/// Evaluates, for every slot, the declared facts and counts that are needed by then and are not known yet. Columns of
/// the others are empty.
pub(super) fn evaluate(
    cluster: &Cluster,
    plan: &Plan,
    need: Need,
    places: &mut Places,
    counted: &mut Vec<CountState>,
) {
    let slots = cluster.nodes().slots();
    places.facts.resize(plan.facts.len(), Vec::new());
    let mut unknown: Vec<usize> = (0..plan.facts.len()).collect();
    unknown.retain(|&fact| places.facts[fact].is_empty() && plan.fact_need(fact) <= need);
    for &fact in &unknown {
        places.facts[fact].reserve_exact(slots.len());
    }
    // Some nodes at a time, so that what one fact read of them is at hand for the next.
    for slots in slots.chunks(BLOCK) {
        for &fact in &unknown {
            let Some((source, bit)) = plan.fact_source(fact) else {
                plan.facts[fact].evaluate(slots, &mut places.facts[fact]);
                continue;
            };
            let mut column = std::mem::take(&mut places.facts[fact]);
            let values = &places.facts[source.0][column.len()..][..slots.len()];
            column.extend(values.iter().map(|value| bit_of(*value, bit)));
            places.facts[fact] = column;
        }
    }
    places.counts.resize(plan.counts.len(), Vec::new());
    places.tallies.resize(plan.counts.len(), Tally::default());
    counted.resize(plan.counts.len(), CountState::default());
    for (index, counted) in counted.iter_mut().enumerate() {
        if places.counts[index].is_empty() && plan.count_need(index) <= need {
            *counted = count(cluster, plan, index, places);
        }
    }
}

fn count(cluster: &Cluster, plan: &Plan, index: usize, places: &mut Places) -> CountState {
    let planned = &plan.counts[index];
    let slots = cluster.nodes().slots();
    let mut on_node = vec![0_i64; slots.len()];
    let set = &planned.count.pods;
    let mut add = |class: &PodClass| {
        let times = set.counts(&class.kind);
        if times != 0 {
            for (slot, pods) in &class.on {
                on_node[*slot] += times * i64::from(*pods);
            }
        }
    };
    let (classes, terms) = (cluster.pod_classes(), cluster.catalog().terms());
    let carriers = set.carriers().map(|carriers| match carriers {
        Carriers::Requiring(role, carried) => terms.requiring(role, carried),
        Carriers::Preferring(role, carried) => terms.preferring(role, carried),
    });
    match carriers {
        Some(ids) => ids
            .into_iter()
            .filter_map(|id| classes.get(id))
            .for_each(&mut add),
        None => classes.of(set.namespace()).for_each(&mut add),
    }
    let Some((of, _)) = &planned.domain else {
        let total = on_node.iter().sum();
        places.counts[index] = on_node;
        places.tallies[index] = Tally {
            total,
            first_total: total,
            ..Tally::default()
        };
        return CountState::default();
    };
    let domains = &places.facts[of.0];
    let size = domains
        .iter()
        .copied()
        .max()
        .map_or(0, |max| max as usize + 1);
    let mut per_domain = vec![0_i64; size];
    let mut exists = vec![false; size];
    for (slot, &domain) in domains.iter().enumerate() {
        if domain != 0 && included(plan, index, places, slot) {
            exists[domain as usize] = true;
            per_domain[domain as usize] += on_node[slot];
        }
    }
    let mut tally = Tally::default();
    let (mut smallest, mut second) = (None::<(i64, u32)>, None::<i64>);
    for (domain, pods) in per_domain
        .iter()
        .copied()
        .enumerate()
        .filter(|(domain, _)| exists[*domain])
    {
        tally.domains += 1;
        tally.total += pods;
        match smallest {
            Some((least, _)) if pods >= least => {
                second = Some(second.map_or(pods, |second| second.min(pods)))
            }
            previous => {
                second = previous.map(|(least, _)| least);
                smallest = Some((pods, domain as u32));
            }
        }
    }
    tally.first_total = tally.total;
    tally.minimum = smallest.map_or(0, |(least, _)| least);
    for (pods, &domain) in on_node.iter_mut().zip(domains) {
        *pods = if domain == 0 {
            NO_DOMAIN
        } else {
            per_domain[domain as usize]
        };
    }
    places.counts[index] = on_node;
    places.tallies[index] = tally;
    CountState { smallest, second }
}

fn included(plan: &Plan, index: usize, places: &Places, slot: usize) -> bool {
    let facts = plan.counts[index]
        .domain
        .as_ref()
        .map_or(&[][..], |(_, include)| include);
    facts.iter().all(|fact| places.facts[fact.0][slot] == 0)
}

impl CountState {
    /// The count and tally of one slot, if `delta` more pods of the set were on it.
    pub(super) fn moved(
        &self,
        plan: &Plan,
        index: usize,
        places: &Places,
        slot: usize,
        delta: i64,
    ) -> (i64, Tally) {
        let Some(&(mut count)) = places.counts[index].get(slot) else {
            // Only scores read it, and what-if questions run no scores.
            return (0, Tally::default());
        };
        let mut tally = places.tallies[index];
        if delta == 0 || count == NO_DOMAIN {
            return (count, tally);
        }
        if let Some((of, _)) = &plan.counts[index].domain {
            if !included(plan, index, places, slot) {
                return (count, tally);
            }
            let domain = places.facts[of.0][slot];
            let others = match self.smallest {
                Some((_, whose)) if whose == domain => self.second,
                smallest => smallest.map(|(least, _)| least),
            };
            tally.minimum = others.map_or(count + delta, |others| others.min(count + delta));
        }
        count += delta;
        tally.total += delta;
        (count, tally)
    }
}
