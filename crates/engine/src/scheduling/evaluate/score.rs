//! Scores of every plugin for the nodes that fit, and the best node.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Cursor;
use super::points::FeasibleNodes;
use super::scan::Scan;
use super::tier::Tier;
use crate::model::Pod;
use crate::scheduling::framework::arithmetic::MAX_SCORE;
use crate::scheduling::framework::{
    BLOCK, Block, ErasedPlaceTier, Feasible, NodeView, Point, Score,
};

/// Plugins with their scores of each node.
pub(crate) type WeightedScores = Vec<(&'static str, Vec<i64>)>;

impl Scan<'_> {
    /// The best of several feasible nodes: lowest tier, highest total, first from the cursor on. If the cursor says so, one of
    /// several that are best in this order and have the lowest tier. `extra` is added to the totals, in the order of the nodes,
    /// unless it is empty.
    pub(super) fn best(
        &mut self,
        feasible: &[(u32, u32)],
        extra: &[i64],
        cursor: Cursor,
    ) -> Result<(usize, i64), String> {
        let mut totals = vec![0_i64; feasible.len()];
        self.each_score(feasible, |weight, _, _, normalized| {
            for (total, score) in totals.iter_mut().zip(normalized) {
                *total += weight * score;
            }
        })?;
        for (total, extra) in totals.iter_mut().zip(extra) {
            // An extender may return any number.
            *total = total.saturating_add(*extra);
        }
        let rotated = |index: usize| cursor.rotated(feasible[index].0 as usize);
        let tiers = self.tiers(feasible);
        let tier = |index: usize| tiers.iter().map(move |column| column[index]);
        let best = if cursor.is_random() {
            let nodes = 0..totals.len();
            let lowest = nodes.clone().min_by(|a, b| tier(*a).cmp(tier(*b)));
            let nodes = nodes.filter(|index| lowest.is_some_and(|it| tier(*index).eq(tier(it))));
            let key = |index: &usize| (Reverse(totals[*index]), rotated(*index));
            cursor.pick(nodes.collect(), |a, b| key(a).cmp(&key(b)))
        } else if tiers.is_empty() {
            let highest = totals.iter().copied().max().unwrap_or(0);
            let highest = (0..totals.len()).filter(|index| totals[*index] == highest);
            highest.min_by_key(|index| rotated(*index))
        } else {
            let order = |a: &usize, b: &usize| {
                let by_total = || totals[*b].cmp(&totals[*a]);
                let by_slot = || rotated(*a).cmp(&rotated(*b));
                let by_tier = tier(*a).cmp(tier(*b));
                by_tier.then_with(by_total).then_with(by_slot)
            };
            (0..totals.len()).min_by(order)
        };
        let best = best.ok_or("there is no node to choose")?;
        Ok((feasible[best].0 as usize, totals[best]))
    }

    pub(super) fn tiers(&self, feasible: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let at = Feasible {
            places: &self.places,
            list: feasible,
        };
        self.each_tier()
            .map(|tier| {
                let mut column = Vec::with_capacity(feasible.len());
                tier.tiers(at, &mut column);
                column
            })
            .collect()
    }

    fn each_tier(&self) -> impl Iterator<Item = &dyn ErasedPlaceTier> {
        let plugins = self.profile.at(Point::Score).iter();
        let tiers = plugins.flat_map(|&plugin| &self.plan.plugins[plugin].tiers);
        tiers.map(|tier| &**tier)
    }

    /// The tiers of each of these nodes with their names, in the order in which they are compared. Nodes must have been
    /// scored before.
    pub(crate) fn named_tiers(&self, nodes: &FeasibleNodes) -> Vec<Vec<Tier>> {
        let ranks = self.tiers(&nodes.0);
        let tiers = nodes.slots().enumerate().map(|(index, slot)| {
            let names = self.each_tier().map(|tier| tier.name(self.places.at(slot)));
            let named = ranks.iter().zip(names);
            named
                .map(|(column, name)| Tier {
                    rank: column[index],
                    name,
                })
                .collect()
        });
        tiers.collect()
    }

    /// Scores the feasible nodes by each plugin: calls back with its weight, its index, raw and normalised scores.
    pub(super) fn each_score(
        &mut self,
        feasible: &[(u32, u32)],
        mut each: impl FnMut(i64, usize, &[i64], &[i64]),
    ) -> Result<(), String> {
        self.pre_score()?;
        let profile = self.profile;
        let runs =
            |scan: &Self, index: usize| scan.plan.plugins[index].scores_run(&scan.places.tallies);
        let mut by_rows = self
            .score_rows(feasible, |index| runs(self, index))
            .into_iter();
        let (mut raw, mut scores) = (Vec::new(), Vec::new());
        for &index in profile.at(Point::Score) {
            if !runs(self, index) {
                continue;
            }
            let enabled = &profile.plugins()[index];
            for which in 0..self.plan.plugins[index].scores.len() {
                raw.clear();
                scores.clear();
                let at = Feasible {
                    places: &self.places,
                    list: feasible,
                };
                match &mut self.plan.plugins[index].scores[which] {
                    Score::Places(check) => {
                        check.raw(at, &mut raw);
                        scores.extend_from_slice(&raw);
                        check.normalize(at, &mut scores);
                    }
                    // Row scores are not normalised.
                    Score::Rows(_) => raw = by_rows.next().unwrap_or_default(),
                    Score::Zones(check) => {
                        let slots = feasible.iter().map(|(slot, _)| *slot as usize);
                        raw.extend(slots.map(|slot| {
                            let row = self.cluster.nodes().zone_row(slot);
                            let score = row.and_then(|row| check.score_row(row));
                            score.unwrap_or_else(|| check.score(self.cluster.zones_of(slot)))
                        }));
                        scores.extend_from_slice(&raw);
                    }
                    Score::Nodes(_) => {
                        self.score_nodes(index, which, feasible, &mut raw, &mut scores);
                    }
                }
                let is_row = matches!(self.plan.plugins[index].scores[which], Score::Rows(_));
                let scores = if is_row { &raw } else { &scores };
                let is_wrong = |score: &i64| !(0..=MAX_SCORE).contains(score);
                // Checks all of them, which is faster than stopping at the first.
                if scores
                    .iter()
                    .fold(false, |wrong, score| wrong | is_wrong(score))
                {
                    let wrong = scores.iter().copied().find(is_wrong).unwrap_or_default();
                    return Err(format!(
                        "applying score defaultWeights on Score plugins: plugin \"{}\" returns an invalid score {wrong}, \
                         it should in the range of [0, 100] after normalizing",
                        enabled.name
                    ));
                }
                each(enabled.weight, index, &raw, scores);
            }
        }
        Ok(())
    }

    /// The weighted scores of each plugin for these nodes. Plugins that skip are not in it.
    pub(crate) fn weighted(&mut self, nodes: &FeasibleNodes) -> Result<WeightedScores, String> {
        let mut columns = Vec::new();
        let profile = self.profile;
        self.each_score(&nodes.0, |weight, plugin, _, normalized| {
            let scores = normalized.iter().map(|score| weight * score).collect();
            columns.push((profile.plugins()[plugin].name, scores));
        })?;
        Ok(columns)
    }

    /// The scores of each row check of the plugins that run, in their order. The rows are read once for all of them.
    fn score_rows(&self, feasible: &[(u32, u32)], runs: impl Fn(usize) -> bool) -> Vec<Vec<i64>> {
        let plugins = self.profile.at(Point::Score).iter().copied();
        let checks: Vec<_> = plugins
            .filter(|index| runs(*index))
            .flat_map(|index| &self.plan.plugins[index].scores)
            .filter_map(|score| match score {
                Score::Rows(check) => Some(&**check),
                Score::Places(_) | Score::Zones(_) | Score::Nodes(_) => None,
            })
            .collect();
        let mut all: Vec<Vec<i64>> = checks
            .iter()
            .map(|_| Vec::with_capacity(feasible.len()))
            .collect();
        let mut block = Block::default();
        let mut scores = [0; BLOCK];
        for chunk in feasible.chunk_by(|(a, _), (b, _)| block_of(*a) == block_of(*b)) {
            let from = block_of(chunk[0].0) * BLOCK;
            self.fill(&mut block, from);
            for (check, out) in checks.iter().zip(&mut all) {
                check.score_block(&block, &mut scores);
                out.extend(chunk.iter().map(|(slot, _)| scores[*slot as usize - from]));
            }
        }
        all
    }

    fn score_nodes(
        &self,
        plugin: usize,
        which: usize,
        feasible: &[(u32, u32)],
        raw: &mut Vec<i64>,
        scores: &mut Vec<i64>,
    ) {
        let Score::Nodes(check) = &self.plan.plugins[plugin].scores[which] else {
            return;
        };
        for &(slot, _) in feasible {
            let pods: Vec<&Arc<Pod>> = self
                .cluster
                .pods_on(slot as usize)
                .map(|placed| &placed.pod)
                .collect();
            if let Some(entry) = self.cluster.nodes().get(slot as usize) {
                raw.push(check.score(NodeView {
                    spec: &entry.node.spec,
                    pods: &pods,
                    catalog: self.cluster.catalog(),
                }));
            }
        }
        scores.extend_from_slice(raw);
        check.normalize(scores);
    }
}

fn block_of(slot: u32) -> usize {
    slot as usize / BLOCK
}
