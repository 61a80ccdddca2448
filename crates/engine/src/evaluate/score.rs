//! Comparing the nodes that fit: scores of every plugin, and the best node.

use std::sync::Arc;

use super::Cursor;
use super::scan::Scan;
use crate::framework::arithmetic::MAX_SCORE;
use crate::framework::{BLOCK, Block, Feasible, NodeView, Point, Score};
use crate::model::Pod;

impl Scan<'_> {
    /// The best of several feasible nodes: lowest tier, highest total, first from the cursor on. Totals start from
    /// `extra`, in the order of the nodes, or from 0 if it is empty.
    pub(super) fn best(
        &mut self,
        feasible: &[(u32, u32)],
        extra: &[i64],
        cursor: Cursor,
    ) -> Result<(usize, i64), String> {
        let mut totals = extra.to_vec();
        totals.resize(feasible.len(), 0);
        self.score(feasible, |weight, _, _, normalized| {
            for (total, score) in totals.iter_mut().zip(normalized) {
                // An extender may have begun with any number.
                *total = total.saturating_add(weight * score);
            }
        })?;
        let tiers = self.tiers(feasible);
        let wins = |a: usize, b: usize| {
            let by_tier = tiers
                .iter()
                .map(|column| column[a].cmp(&column[b]))
                .find(|order| order.is_ne());
            let by_total = || totals[b].cmp(&totals[a]);
            let by_slot = || {
                cursor
                    .rotated(feasible[a].0 as usize)
                    .cmp(&cursor.rotated(feasible[b].0 as usize))
            };
            by_tier.unwrap_or_else(by_total).then_with(by_slot).is_lt()
        };
        let best = (1..feasible.len()).fold(
            0,
            |best, index| if wins(index, best) { index } else { best },
        );
        Ok((feasible[best].0 as usize, totals[best]))
    }

    fn tiers(&self, feasible: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let at = Feasible {
            places: &self.places,
            list: feasible,
        };
        self.profile
            .at(Point::Filter)
            .iter()
            .flat_map(|&plugin| &self.plan.plugins[plugin].tiers)
            .map(|tier| {
                let mut column = Vec::with_capacity(feasible.len());
                tier.tiers(at, &mut column);
                column
            })
            .collect()
    }

    /// Scores the feasible nodes by each plugin: calls back with its weight, its index, raw and normalised scores.
    pub(super) fn score(
        &mut self,
        feasible: &[(u32, u32)],
        mut each: impl FnMut(i64, usize, &[i64], &[i64]),
    ) -> Result<(), String> {
        self.pre_score()?;
        let profile = self.profile;
        for &index in profile.at(Point::Score) {
            if !self.plan.plugins[index].scores_run(&self.places.tallies) {
                continue;
            }
            let enabled = &profile.plugins()[index];
            for which in 0..self.plan.plugins[index].scores.len() {
                let mut raw = Vec::with_capacity(feasible.len());
                let scores = match &mut self.plan.plugins[index].scores[which] {
                    Score::Places(check) => {
                        let at = Feasible {
                            places: &self.places,
                            list: feasible,
                        };
                        check.raw(at, &mut raw);
                        let mut scores = raw.clone();
                        check.normalize(at, &mut scores);
                        scores
                    }
                    Score::Rows(_) => {
                        self.score_rows(index, which, feasible, &mut raw);
                        raw.clone()
                    }
                    Score::Nodes(_) => self.score_nodes(index, which, feasible, &mut raw),
                };
                if let Some(wrong) = scores
                    .iter()
                    .find(|score| !(0..=MAX_SCORE).contains(*score))
                {
                    return Err(format!(
                        "applying score defaultWeights on Score plugins: plugin \"{}\" returns an invalid score {wrong}, \
                         it should in the range of [0, 100] after normalizing",
                        enabled.name
                    ));
                }
                each(enabled.weight, index, &raw, &scores);
            }
        }
        Ok(())
    }

    /// What each plugin gives these slots, weights included. Plugins that skip are not in it.
    pub(crate) fn weighted(
        &mut self,
        slots: &[usize],
    ) -> Result<Vec<(&'static str, Vec<i64>)>, String> {
        let places: Vec<(u32, u32)> = slots.iter().map(|slot| (*slot as u32, 1)).collect();
        let mut columns = Vec::new();
        let profile = self.profile;
        self.score(&places, |weight, plugin, _, normalized| {
            let scores = normalized.iter().map(|score| weight * score).collect();
            columns.push((profile.plugins()[plugin].name, scores));
        })?;
        Ok(columns)
    }

    fn score_rows(&self, plugin: usize, which: usize, feasible: &[(u32, u32)], out: &mut Vec<i64>) {
        let Score::Rows(check) = &self.plan.plugins[plugin].scores[which] else {
            return;
        };
        let mut block = Block::default();
        let mut scores = [0; BLOCK];
        let mut current = usize::MAX;
        for &(slot, _) in feasible {
            let (from, lane) = (slot as usize / BLOCK * BLOCK, slot as usize % BLOCK);
            if from != current {
                self.fill(&mut block, from);
                check.score_block(&block, &mut scores);
                current = from;
            }
            out.push(scores[lane]);
        }
    }

    fn score_nodes(
        &self,
        plugin: usize,
        which: usize,
        feasible: &[(u32, u32)],
        out: &mut Vec<i64>,
    ) -> Vec<i64> {
        let Score::Nodes(check) = &self.plan.plugins[plugin].scores[which] else {
            return Vec::new();
        };
        for &(slot, _) in feasible {
            let pods: Vec<&Arc<Pod>> = self
                .cluster
                .pods_on(slot as usize)
                .map(|placed| &placed.pod)
                .collect();
            if let Some(entry) = self.cluster.nodes().get(slot as usize) {
                out.push(check.score(NodeView {
                    spec: &entry.node.spec,
                    pods: &pods,
                    catalog: self.cluster.catalog(),
                }));
            }
        }
        let mut scores = out.clone();
        check.normalize(&mut scores);
        scores
    }
}
