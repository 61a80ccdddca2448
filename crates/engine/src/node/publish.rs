//! When a new figure is published: a decrease at once, an increase at most every 10 s and beyond 5%.
//!
//! Other components read what was published, so it is never above what the node can lend now. Small increases are not worth a write
//! to the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CpuMemory, Figure, FigureTerm, ReclaimedReport};
use crate::model::Timestamp;

/// Time between two increases.
const INCREASE_TIME: Duration = Duration::from_secs(10);
/// Smaller increases are not published, in percent of the published value.
const INCREASE_PERCENT: i64 = 5;

/// An amount that was published, and when it increased last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    value: Option<CpuMemory>,
    increased: Option<Timestamp>,
}

impl Published {
    /// What to publish while `wanted` is the present amount. It is never above `wanted`.
    pub fn update(&mut self, wanted: CpuMemory, now: Timestamp) -> CpuMemory {
        let is_due = self
            .increased
            .is_none_or(|at| now >= at.plus(INCREASE_TIME));
        let next = match self.value {
            Some(value) if !is_due || !is_well_above(wanted, value) => value.min(wanted),
            // The first amount is an increase: nothing was published before.
            _ => {
                self.increased = Some(now);
                wanted
            }
        };
        self.value = Some(next);
        next
    }
}

/// A report that was published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedReport {
    capacity: Published,
    allocatable: Published,
    last: ReclaimedReport,
}

impl PublishedReport {
    /// What to publish while `wanted` is the present report.
    pub fn update(&mut self, wanted: &ReclaimedReport, now: Timestamp) -> &ReclaimedReport {
        let capacity = self.capacity.update(wanted.capacity, now);
        let allocatable = self
            .allocatable
            .update(wanted.allocatable, now)
            .min(capacity);
        // What is free moves between NUMA nodes all the time; that alone is not worth a report.
        let fits = |(number, part): (&u32, &CpuMemory)| {
            let wanted = wanted.numa.get(number);
            wanted.is_some_and(|wanted| !is_well_above(*part, *wanted))
        };
        let is_same = allocatable == self.last.allocatable
            && self.last.numa.len() == wanted.numa.len()
            && self.last.numa.iter().all(fits);
        let numa = match is_same {
            true => std::mem::take(&mut self.last.numa),
            false => parts(wanted, allocatable),
        };
        self.last = ReclaimedReport {
            capacity,
            allocatable,
            numa,
        };
        &self.last
    }
}

/// Whether one of the resources is above the other amount by more than a few percent.
fn is_well_above(wanted: CpuMemory, published: CpuMemory) -> bool {
    let above = |wanted: i64, published: i64| {
        let margin = published.saturating_mul(INCREASE_PERCENT) / 100;
        wanted > published.saturating_add(margin)
    };
    above(wanted.milli_cpu, published.milli_cpu) || above(wanted.memory, published.memory)
}

/// The wanted parts in proportion; they add up to the published amount, or to a little less.
fn parts(wanted: &ReclaimedReport, allocatable: CpuMemory) -> BTreeMap<u32, CpuMemory> {
    let scale = |part: i64, whole: i64, published: i64| {
        if whole <= 0 || whole == published {
            return part;
        }
        let part = i128::from(part) * i128::from(published) / i128::from(whole);
        i64::try_from(part).unwrap_or(0)
    };
    let whole = wanted.allocatable;
    let part = |part: &CpuMemory| CpuMemory {
        milli_cpu: scale(part.milli_cpu, whole.milli_cpu, allocatable.milli_cpu),
        memory: scale(part.memory, whole.memory, allocatable.memory),
    };
    let numa = wanted.numa.iter();
    numa.map(|(number, amount)| (*number, part(amount)))
        .collect()
}

/// The figure that explains a published value: where an increase waits, a term shows how much of it.
pub fn explain(mut figure: Figure, published: i64) -> Figure {
    if figure.value != published {
        let amount = published.saturating_sub(figure.value);
        figure.terms.push(FigureTerm {
            name: "increase not published yet".to_owned(),
            amount,
            limit: false,
        });
        figure.value = published;
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decreases_at_once_and_increases_slowly() {
        let mut published = Published::default();
        for (second, wanted, want) in [
            (0, 1000, 1000),
            (1, 900, 900),   // a decrease
            (2, 2000, 900),  // an increase too early
            (9, 850, 850),   // another decrease
            (10, 890, 850),  // less than 5%
            (11, 900, 900),  // more than 5%, and 10 s after the last increase
            (12, 2000, 900), // too early again
            (20, 2000, 900),
            (21, 2000, 2000),
            (22, 0, 0),
            (31, 1, 1), // 5% of nothing is nothing
        ] {
            let wanted = CpuMemory::new(wanted, 0);
            let value = published.update(wanted, Timestamp::from_secs(second));
            assert_eq!(value.milli_cpu, want, "second {second}");
        }
    }

    fn report(parts: &[(i64, i64)]) -> ReclaimedReport {
        let amounts = parts
            .iter()
            .map(|(cpu, memory)| CpuMemory::new(*cpu, *memory));
        let sum = amounts.clone().sum();
        ReclaimedReport {
            capacity: sum,
            allocatable: sum,
            numa: (0..).zip(amounts).collect(),
        }
    }

    #[test]
    fn a_shift_between_numa_nodes_is_published_only_if_it_is_large() {
        let mut published = PublishedReport::default();
        let at = Timestamp::from_secs;
        let first = report(&[(500, 0), (500, 0)]);
        assert_eq!(published.update(&first, at(0)), &first);
        assert_eq!(
            published.update(&report(&[(490, 0), (510, 0)]), at(1)),
            &first
        );
        let shifted = report(&[(300, 0), (700, 0)]);
        assert_eq!(published.update(&shifted, at(2)), &shifted);
        // An increase waits; the parts add up to what is published.
        let value = published.update(&report(&[(300, 0), (2700, 0)]), at(3));
        assert_eq!(value.allocatable.milli_cpu, 1000);
        let smaller = published.update(&report(&[(0, 0), (500, 0)]), at(4));
        assert_eq!(smaller, &report(&[(0, 0), (500, 0)]));
    }

    #[test]
    fn an_increase_that_waits_is_a_term() {
        let mut figure = Figure::new("reclaimed cpu", "milli-cores");
        figure.add("free", 1000);
        let explained = explain(figure.clone(), 900);
        assert_eq!((explained.value, explained.recompute()), (900, 900));
        assert_eq!(explain(figure.clone(), 1000), figure);
    }

    proptest! {
        #[test]
        fn what_is_published_is_never_above_the_figure(
            steps in proptest::collection::vec(
                (proptest::collection::vec((0..5000_i64, 0..5000_i64), 0..3), 0..15_i64),
                1..30,
            ),
        ) {
            let mut published = PublishedReport::default();
            let mut second = 0;
            for (parts, pause) in steps {
                second += pause;
                let wanted = report(&parts);
                let value = published.update(&wanted, Timestamp::from_secs(second));
                prop_assert_eq!(value.allocatable.min(wanted.allocatable), value.allocatable);
                prop_assert_eq!(value.capacity.min(wanted.capacity), value.capacity);
                prop_assert_eq!(value.allocatable.min(value.capacity), value.allocatable);
                let sum: CpuMemory = value.numa.values().copied().sum();
                prop_assert_eq!(sum.min(value.allocatable), sum);
            }
        }
    }
}
