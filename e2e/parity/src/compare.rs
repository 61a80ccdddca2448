//! Evaluates each case with both sides, and prints and counts what differs.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::admission;
use crate::coverage::{Coverage, Floor};
use crate::generate::Case;
use crate::known::Known;
use crate::sample::Sample;
use crate::selection::Selection;
use crate::shrink;
use crate::verdicts::{Verdicts, differences};

/// Differences that a run shrinks and prints: shrinking takes seconds, and they are often one.
pub(crate) const SHOWN: u64 = 10;

/// An implementation that evaluates cases.
pub(crate) trait Judge {
    /// Fails when the case cannot be evaluated; a pod that fits nowhere is a result.
    fn judge(&mut self, case: &Case) -> Result<Verdicts>;
}

/// One comparison of two judges.
#[derive(Clone, Copy)]
pub(crate) struct Comparison<'a> {
    pub(crate) name: &'static str,
    pub(crate) sample: &'a Sample,
    /// A case from a seed and a number.
    pub(crate) generate: fn(u64, u64) -> Case,
    pub(crate) selection: &'a Selection,
    pub(crate) floor: &'static Floor,
    /// Differences that are expected.
    pub(crate) known: &'static [Known],
}

impl Comparison<'_> {
    /// Evaluates every case with both. The last line is `NAME: N cases, D differences`; succeeds
    /// when D is 0 and, in runs large enough to tell, nothing was exercised too seldom.
    pub(crate) fn run(&self, ours: &mut dyn Judge, theirs: &mut dyn Judge) -> Result<bool> {
        let started = Instant::now();
        let mut coverage = Coverage::new(self.floor);
        let mut different = self.outdated(ours, theirs)?;
        let mut expected = 0u64;
        let Sample { seed, .. } = self.sample;
        for index in self.sample.indices() {
            let case = (self.generate)(*seed, index);
            if self.sample.is_one_case() {
                self.print_answers(&case, ours, theirs)?;
            }
            let found = self
                .differ(ours, theirs, &case, Some(&mut coverage))
                .with_context(|| format!("case {index} of seed {seed}"))?;
            if found.is_empty() {
                continue;
            }
            if self.explain(&case, &found).is_some() {
                expected += 1;
                continue;
            }
            different += 1;
            if different <= SHOWN {
                println!("{}", self.sample.differs(index));
                found.iter().for_each(|line| println!("    {line}"));
                println!(
                    "    {}",
                    serde_json::to_string(&self.selection.narrow(&case))?
                );
                println!("  a smaller case:");
                self.show(ours, theirs, &case, &found[0])?;
            }
        }
        eprintln!(
            "{:.0} cases/s",
            self.sample.cases() as f64 / started.elapsed().as_secs_f64()
        );
        // A run of one plugin does not exercise the others.
        let mut below = Vec::new();
        if self.selection.is_all() && self.sample.must_exercise_all() {
            print!("{coverage}");
            below = coverage.below_floor();
        }
        for line in &below {
            println!("below the floor: {line}");
        }
        if expected > 0 {
            println!("{expected} cases differ by known upstream behaviour that we do not copy");
        }
        println!(
            "{} --seed {seed}: {} cases, {different} differences",
            self.name,
            self.sample.cases()
        );
        Ok(different == 0 && below.is_empty())
    }

    /// Prints a case and both answers, each as a line of JSON.
    fn print_answers(
        &self,
        case: &Case,
        ours: &mut dyn Judge,
        theirs: &mut dyn Judge,
    ) -> Result<()> {
        let case = self.selection.narrow(case);
        println!("{}", serde_json::to_string(&case)?);
        for verdicts in [theirs.judge(&case)?, ours.judge(&case)?] {
            let verdicts = self.selection.strip(verdicts);
            println!("{}", serde_json::to_string(&verdicts)?);
        }
        Ok(())
    }

    /// The number of known differences that are gone or have changed.
    fn outdated(&self, ours: &mut dyn Judge, theirs: &mut dyn Judge) -> Result<u64> {
        let mut outdated = 0;
        // A single plugin may not show what takes several.
        for known in self.known.iter().filter(|_| self.selection.is_all()) {
            let case = known.case().with_context(|| known.name)?;
            let found = self.differ(ours, theirs, &case, None)?;
            let by = self.explain(&case, &found);
            if by.is_none_or(|by| by.name != known.name) {
                println!("a known difference has changed: {}", known.name);
                found.iter().for_each(|line| println!("    {line}"));
                outdated += 1;
            }
        }
        Ok(outdated)
    }

    fn explain(&self, case: &Case, differences: &[String]) -> Option<&'static Known> {
        let mut known = self.known.iter();
        known.find(|known| known.explains(case, differences))
    }

    /// Prints the differences of a small case that still differs, and the case.
    fn show(
        &self,
        ours: &mut dyn Judge,
        theirs: &mut dyn Judge,
        case: &Case,
        difference: &str,
    ) -> Result<()> {
        // A case that differs elsewhere may be another fault.
        let place = place(difference);
        let small = shrink::shrink(case, &mut |case| {
            self.differ(ours, theirs, case, None).is_ok_and(|lines| {
                self.explain(case, &lines).is_none()
                    && lines.iter().any(|line| self::place(line) == place)
            })
        });
        for line in self.differ(ours, theirs, &small, None)? {
            println!("    {line}");
        }
        println!(
            "    {}",
            serde_json::to_string(&self.selection.narrow(&small))?
        );
        Ok(())
    }

    fn differ(
        &self,
        ours: &mut dyn Judge,
        theirs: &mut dyn Judge,
        case: &Case,
        coverage: Option<&mut Coverage>,
    ) -> Result<Vec<String>> {
        // Here, and not before: shrinking must not take the plugins away.
        let case = self.selection.narrow(case);
        let (ours, theirs) = (ours.judge(&case)?, theirs.judge(&case)?);
        if let Some(coverage) = coverage {
            coverage.add(&theirs);
        }
        // A profile of one plugin filters less than a kubelet.
        let refused = match self.selection.is_all() {
            true => admission::refusals(&case, &ours, &theirs),
            false => Vec::new(),
        };
        let strip = |verdicts| self.selection.strip(verdicts);
        let mut lines = differences(&strip(ours), &strip(theirs));
        lines.extend(refused);
        Ok(lines)
    }
}

/// Where a difference is, whichever node it is about.
fn place(difference: &str) -> String {
    let path = difference.split(':').next().unwrap_or_default();
    let is_node = |part: &str| {
        part.trim_start_matches('n')
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    path.split(['[', ']'])
        .filter(|part| !is_node(part))
        .collect()
}
