//! Which random cases a run compares.

use std::ops::Range;

use clap::Args;

/// The seed of every landing; the counts of what it exercises are known.
pub(crate) const FIRST_SEED: u64 = 1;

/// Below this number a run cannot tell what is exercised too seldom; with another seed than the first, below the larger one.
const ENOUGH_CASES: u64 = 1_000;
const ENOUGH_CASES_OF_ANY_SEED: u64 = 10_000;

#[derive(Args)]
pub(crate) struct Cases {
    /// How many cases to generate of each seed
    #[arg(long, default_value_t = 2000)]
    cases: u64,
    /// Seed of the random cases; the same seed gives the same cases. May be repeated
    #[arg(long = "seed", value_name = "SEED", default_values_t = [FIRST_SEED])]
    seeds: Vec<u64>,
    /// Compare only the case of this number, as a run reports it
    #[arg(long, value_name = "N", conflicts_with = "cases")]
    case: Option<u64>,
}

impl Cases {
    /// Whether `compare` agrees on the cases of every seed; the command is `cargo xtask parity COMMAND`.
    pub(crate) fn all<E>(
        &self,
        command: &str,
        mut compare: impl FnMut(&Sample) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut agree = true;
        for &seed in &self.seeds {
            let sample = Sample {
                command: command.to_owned(),
                seed,
                indices: match self.case {
                    Some(index) => index..index.saturating_add(1),
                    None => 0..self.cases,
                },
            };
            agree &= compare(&sample)?;
        }
        Ok(agree)
    }
}

/// Cases of one seed.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    command: String,
    pub(crate) seed: u64,
    indices: Range<u64>,
}

impl Sample {
    pub(crate) fn indices(&self) -> Range<u64> {
        self.indices.clone()
    }

    pub(crate) fn cases(&self) -> u64 {
        self.indices.end - self.indices.start
    }

    /// Whether only one case was asked for, which is then printed.
    pub(crate) fn is_one_case(&self) -> bool {
        self.cases() == 1
    }

    /// Whether so many cases must have exercised everything. The few cases of a landing with a seed of its own may miss what is rare.
    pub(crate) fn must_exercise_all(&self) -> bool {
        let enough = match self.seed {
            FIRST_SEED => ENOUGH_CASES,
            _ => ENOUGH_CASES_OF_ANY_SEED,
        };
        self.cases() >= enough
    }

    /// Names a case that differs, and the command that repeats it.
    pub(crate) fn differs(&self, index: u64) -> String {
        let Self { command, seed, .. } = self;
        format!(
            "case {index} of seed {seed} differs; `cargo xtask parity {command} --seed {seed} --case {index}` repeats it:"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seed: u64, indices: Range<u64>) -> Sample {
        Sample {
            command: "kube".to_owned(),
            seed,
            indices,
        }
    }

    #[test]
    fn runs_that_are_large_enough_must_exercise_everything() {
        for (seed, cases, want) in [
            (FIRST_SEED, 999, false),
            (FIRST_SEED, 1_000, true),
            (7, 9_999, false),
            (7, 10_000, true),
        ] {
            assert_eq!(
                sample(seed, 0..cases).must_exercise_all(),
                want,
                "{seed} {cases}"
            );
        }
    }

    #[test]
    fn a_different_case_names_the_command_that_repeats_it() {
        assert_eq!(
            sample(7, 0..2000).differs(3),
            "case 3 of seed 7 differs; `cargo xtask parity kube --seed 7 --case 3` repeats it:"
        );
    }
}
