//! Comparisons whose intended differences are listed: each difference has a name and a condition, and a large run must meet all
//! of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Instant;

use crate::compare::SHOWN;
use crate::sample::Sample;

/// What a condition may look at: the case, the two results, and the difference as `FIELD: ours X, theirs Y`.
pub(super) struct Situation<'a, C, O, T> {
    pub(super) case: &'a C,
    pub(super) ours: &'a O,
    pub(super) theirs: &'a T,
    pub(super) difference: &'a str,
}

/// A difference, and its condition.
pub(super) struct IntendedDifference<C, O, T> {
    pub(super) name: &'static str,
    /// The start of the differences that it explains.
    pub(super) starts: &'static [&'static str],
    pub(super) explains: fn(&Situation<'_, C, O, T>) -> bool,
}

impl<C, O, T> IntendedDifference<C, O, T> {
    fn is(&self, situation: &Situation<'_, C, O, T>) -> bool {
        let mut starts = self.starts.iter();
        let is_its = starts.any(|start| situation.difference.starts_with(start));
        is_its && (self.explains)(situation)
    }
}

/// What the cases of a run have met.
pub(super) struct ComparedCases<C: 'static, O: 'static, T: 'static> {
    name: &'static str,
    sample: Sample,
    outcomes: &'static [&'static str],
    intended: &'static [IntendedDifference<C, O, T>],
    started: Instant,
    counts: BTreeMap<&'static str, u64>,
    different: u64,
}

impl<C, O, T: Debug> ComparedCases<C, O, T> {
    pub(super) fn new(
        name: &'static str,
        sample: &Sample,
        outcomes: &'static [&'static str],
        intended: &'static [IntendedDifference<C, O, T>],
    ) -> Self {
        Self {
            name,
            sample: sample.clone(),
            outcomes,
            intended,
            started: Instant::now(),
            counts: BTreeMap::new(),
            different: 0,
        }
    }

    /// Counts a case with its outcome and differences. `show` prints the case, for differences that are not intended.
    pub(super) fn add(
        &mut self,
        index: u64,
        (case, ours, theirs): (&C, &O, &T),
        outcome: &'static str,
        differences: &[String],
        show: impl Fn(),
    ) {
        *self.counts.entry(outcome).or_default() += 1;
        for difference in differences {
            let situation = Situation {
                case,
                ours,
                theirs,
                difference,
            };
            let intended = self.intended.iter().find(|it| it.is(&situation));
            if let Some(intended) = intended {
                *self.counts.entry(intended.name).or_default() += 1;
                continue;
            }
            self.different += 1;
            if self.different <= SHOWN {
                println!("{} {difference}", self.sample.differs(index));
                show();
                println!("    theirs: {theirs:?}");
            }
        }
    }

    /// Prints the counts, and whether all is as intended. The last line is `NAME: N cases, D differences`.
    pub(super) fn agrees(&self) -> bool {
        let Self { sample, counts, .. } = self;
        let (cases, seed) = (sample.cases(), sample.seed);
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("{:.0} cases/s", cases as f64 / seconds);
        for (name, count) in counts {
            println!("{count:>7} {name}");
        }
        let intended = self.intended.iter().map(|it| it.name);
        let names = self.outcomes.iter().copied().chain(intended);
        let unexercised: Vec<&str> = names
            .filter(|name| sample.must_exercise_all() && !counts.contains_key(name))
            .collect();
        for name in &unexercised {
            println!("never exercised: {name}");
        }
        println!(
            "{} --seed {seed}: {cases} cases, {} differences",
            self.name, self.different
        );
        self.different == 0 && unexercised.is_empty()
    }
}
