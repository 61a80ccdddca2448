//! Proof of exactness: random cases judged by kube-scheduler itself.
//!
//! A case comes from `generate`, the real plugins answer through `oracle`, `verdicts` says what is
//! compared, `coverage` what was exercised, and `shrink` makes a difference small enough to read.

mod coverage;
mod generate;
mod oracle;
mod random;
mod shrink;
mod verdicts;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use coverage::Coverage;
use generate::Case;
use oracle::Oracle;
use verdicts::{Verdicts, differences};

/// Differences that a run shrinks and prints: shrinking takes seconds, and they are often one.
const SHOWN: u64 = 10;

/// Something that answers cases.
trait Judge {
    /// Fails when the case cannot be judged at all; a pod that fits nowhere is an answer.
    fn judge(&mut self, case: &Case) -> Result<Verdicts>;
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check the oracle itself: two of them must agree on every case, and the cases must cover
    /// every message and score
    Oracle {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Where to start; the same seed gives the same cases
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Print one case, as the oracle reads it, and the oracle's answer: two lines of JSON
    Case {
        /// The number of the case, as a run reports it
        index: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match options.what {
        What::Oracle { cases, seed } => {
            let program = oracle::build()?;
            let (mut one, mut other) = (Oracle::start(&program)?, Oracle::start(&program)?);
            compare("parity oracle", &mut one, &mut other, seed, cases)
        }
        What::Case { index, seed } => {
            let case = generate::case(seed, index);
            println!("{}", serde_json::to_string(&case)?);
            let verdicts = Oracle::start(&oracle::build()?)?.judge(&case)?;
            println!("{}", serde_json::to_string(&verdicts)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Asks both judges about every case. The last line is `NAME: N cases, D differences`; succeeds
/// when D is 0 and, in runs large enough to tell, nothing was exercised too seldom.
fn compare(
    name: &str,
    ours: &mut dyn Judge,
    theirs: &mut dyn Judge,
    seed: u64,
    cases: u64,
) -> Result<ExitCode> {
    let started = Instant::now();
    let mut coverage = Coverage::default();
    let mut different = 0u64;
    for index in 0..cases {
        let case = generate::case(seed, index);
        let found = differ(ours, theirs, &case, Some(&mut coverage))
            .with_context(|| format!("case {index} of seed {seed}"))?;
        if found.is_empty() {
            continue;
        }
        different += 1;
        if different > SHOWN {
            continue;
        }
        let small = shrink::shrink(&case, &mut |case| {
            differ(ours, theirs, case, None).is_ok_and(|lines| !lines.is_empty())
        });
        println!("case {index} of seed {seed} differs:");
        for line in differ(ours, theirs, &small, None)? {
            println!("    {line}");
        }
        println!("    {}", serde_json::to_string(&small)?);
    }
    print!("{coverage}");
    let below = coverage.below_floor();
    for line in &below {
        println!("below the floor: {line}");
    }
    eprintln!(
        "{:.0} cases/s",
        cases as f64 / started.elapsed().as_secs_f64()
    );
    println!("{name}: {cases} cases, {different} differences");
    Ok(if different == 0 && below.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn differ(
    ours: &mut dyn Judge,
    theirs: &mut dyn Judge,
    case: &Case,
    coverage: Option<&mut Coverage>,
) -> Result<Vec<String>> {
    let (ours, theirs) = (ours.judge(case)?, theirs.judge(case)?);
    if let Some(coverage) = coverage {
        coverage.add(&theirs);
    }
    Ok(differences(&ours, &theirs))
}
