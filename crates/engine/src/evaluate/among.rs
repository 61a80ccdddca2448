//! The steps of a decision one by one, for when somebody outside has a say in it.

use super::Cursor;
use super::scan::{Diagnosis, Scan};
use crate::framework::{Need, Point};

impl Scan<'_> {
    /// Slots of the nodes that every filter lets pass, in their order. An error if something broke.
    pub fn feasible(&mut self) -> Result<Vec<usize>, String> {
        self.judge();
        match self.judged() {
            None => match self.early_end() {
                Some((_, rejection)) if rejection.is_failure() => Err(rejection.message()),
                _ => Ok(Vec::new()),
            },
            Some(judged) => match &judged.error {
                Some((_, text)) => Err(text.clone()),
                None => Ok(judged
                    .feasible
                    .iter()
                    .map(|(slot, _)| *slot as usize)
                    .collect()),
            },
        }
    }

    /// The nodes to choose from: the one that the pod is nominated to, if it fits, else all that fit.
    pub fn filter(&mut self) -> Result<Vec<usize>, String> {
        self.look();
        match self.nominated_slot() {
            Some(slot) if self.fits(slot).is_ok() => Ok(vec![slot]),
            _ => self.feasible(),
        }
    }

    /// Whether nodes can be compared at all.
    pub fn pre_score(&mut self) -> Result<(), String> {
        self.know(Need::Score);
        for &index in self.profile.at(Point::PreScore) {
            if let Some(text) = &self.plan.plugins[index].score_error {
                let name = self.profile.plugins()[index].name;
                return Err(format!("running PreScore plugin \"{name}\": {text}"));
            }
        }
        Ok(())
    }

    /// The best of some feasible nodes, at least one, with what others add to their totals.
    pub fn choose(
        &mut self,
        among: &[(usize, i64)],
        cursor: Cursor,
    ) -> Result<(usize, i64), String> {
        let places: Vec<(u32, u32)> = among.iter().map(|(slot, _)| (*slot as u32, 1)).collect();
        let extra: Vec<i64> = among.iter().map(|(_, extra)| *extra).collect();
        self.best(&places, &extra, cursor)
    }

    /// Why nodes were rejected. Those that were not have a status without reasons.
    pub fn diagnose(&mut self) -> Diagnosis {
        self.judge();
        self.diagnosis()
    }
}
