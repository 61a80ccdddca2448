//! Place checks: they read facts and counts, and so depend on other nodes and pods.

use super::plan::{CountId, FactId};
use super::verdict::{Reason, Verdict};
use crate::model::Name;

/// A count, summed up over all its domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The smallest count of a domain that has an included node; 0 if there is none.
    pub minimum: i64,
    /// Domains that have an included node.
    pub domains: u32,
    /// Over all domains.
    pub total: i64,
    /// The total before hypothetical pods were added or removed.
    pub first_total: i64,
}

/// The declared values of many places, by column.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub(crate) facts: Vec<Vec<u32>>,
    /// `i64::MIN` where the place has no domain for the count.
    pub(crate) counts: Vec<Vec<i64>>,
    pub(crate) tallies: Vec<Tally>,
}

pub(crate) const NO_DOMAIN: i64 = i64::MIN;

impl Places {
    pub(crate) fn at(&self, index: usize) -> Place<'_> {
        Place {
            places: self,
            index,
        }
    }
}

/// One place: a node, or nodes that are equal in everything declared.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    places: &'a Places,
    index: usize,
}

impl Place<'_> {
    #[inline]
    pub fn fact(self, fact: FactId) -> u32 {
        self.places.facts[fact.0][self.index]
    }

    /// Pods counted on the node or in its domain; 0 if it has no domain.
    #[inline]
    pub fn count(self, count: CountId) -> i64 {
        match self.places.counts[count.0][self.index] {
            NO_DOMAIN => 0,
            pods => pods,
        }
    }

    /// Whether the place has a domain for this count; always so for counts on the node.
    #[inline]
    pub fn has_domain(self, count: CountId) -> bool {
        self.places.counts[count.0][self.index] != NO_DOMAIN
    }

    #[inline]
    pub fn tally(self, count: CountId) -> Tally {
        self.places.tallies[count.0]
    }
}

/// The places that passed every filter, with the number of nodes each stands for. Never empty.
#[derive(Clone, Copy)]
pub struct Feasible<'a> {
    pub(crate) places: &'a Places,
    pub(crate) list: &'a [(u32, u32)],
}

impl<'a> Feasible<'a> {
    pub fn iter(self) -> impl Iterator<Item = (Place<'a>, u32)> {
        self.list
            .iter()
            .map(move |(index, nodes)| (self.places.at(*index as usize), *nodes))
    }
}

/// Filters by facts and counts.
pub trait PlaceFilter: Send + 'static {
    fn filter(&self, at: Place) -> Verdict;
    /// The message for a code of `filter`.
    fn reason(&self, code: u8) -> Reason;

    /// For explanations: a better text than the message, which must equal that of an upstream plugin.
    fn explain(&self, _code: u8) -> Option<Reason> {
        None
    }
}

/// Scores by facts and counts.
pub trait PlaceScore: Send + 'static {
    /// Runs once over all feasible places before any is scored.
    fn survey(&mut self, _feasible: Feasible) {}
    /// Any number; `normalize` brings it into 0..=100.
    fn score(&self, at: Place) -> i64;
    /// Scales the scores of the feasible places, in their order, to 0..=100. It may use only which values occur.
    fn normalize(&self, _feasible: Feasible, _scores: &mut [i64]) {}
}

/// Compared before any score; the lowest wins.
pub trait PlaceTier: Send + 'static {
    fn tier(&self, at: Place) -> u32;
    /// What it is called in score tables and explanations.
    fn name(&self, at: Place) -> Name;
}

pub(crate) trait ErasedPlaceFilter: Send {
    /// Filters places `from..from + out.len()`.
    fn filter_range(&self, places: &Places, from: usize, out: &mut [Verdict]);
    fn reason(&self, code: u8) -> Reason;
    fn explain(&self, code: u8) -> Option<Reason>;
}

impl<C: PlaceFilter> ErasedPlaceFilter for C {
    fn filter_range(&self, places: &Places, from: usize, out: &mut [Verdict]) {
        for (offset, verdict) in out.iter_mut().enumerate() {
            *verdict = self.filter(places.at(from + offset));
        }
    }
    fn reason(&self, code: u8) -> Reason {
        PlaceFilter::reason(self, code)
    }
    fn explain(&self, code: u8) -> Option<Reason> {
        PlaceFilter::explain(self, code)
    }
}

pub(crate) trait ErasedPlaceScore: Send {
    fn raw(&mut self, feasible: Feasible, out: &mut Vec<i64>);
    fn normalize(&self, feasible: Feasible, scores: &mut [i64]);
}

impl<C: PlaceScore> ErasedPlaceScore for C {
    fn raw(&mut self, feasible: Feasible, out: &mut Vec<i64>) {
        self.survey(feasible);
        out.extend(feasible.iter().map(|(place, _)| self.score(place)));
    }
    fn normalize(&self, feasible: Feasible, scores: &mut [i64]) {
        PlaceScore::normalize(self, feasible, scores);
    }
}

pub(crate) trait ErasedPlaceTier: Send {
    fn tiers(&self, feasible: Feasible, out: &mut Vec<u32>);
    fn name(&self, at: Place) -> Name;
}

impl<C: PlaceTier> ErasedPlaceTier for C {
    fn tiers(&self, feasible: Feasible, out: &mut Vec<u32>) {
        out.extend(feasible.iter().map(|(place, _)| self.tier(place)));
    }
    fn name(&self, at: Place) -> Name {
        PlaceTier::name(self, at)
    }
}
