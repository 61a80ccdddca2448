//! Parity: random cases are evaluated by the plugins of kube-scheduler, Koordinator or Katalyst, and by our engine, and the
//! results compared.
//!
//! A case comes from `generate`, the real plugins answer through `oracle`, the engine through `ours`,
//! `verdicts` has what is compared and `selection` the plugins, `coverage` what was exercised,
//! `known` which differences stay, and `shrink` makes a difference small enough to read. `admission` checks that kubelets admit
//! the pods that we place. `node` compares the figures of the node
//! agent with those of the kubelet, Koordinator's agent and Katalyst's agent, `tiers` the capacity of the tiers with Koordinator's.

mod admission;
mod coverage;
mod generate;
mod intended;
mod known;
mod node;
mod oracle;
mod ours;
mod random;
mod selection;
mod shrink;
mod tiers;
mod verdicts;
mod webhook;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use coverage::{Coverage, Floor};
use generate::Case;
use known::Known;
use ours::Ours;
use selection::Selection;
use verdicts::{Verdicts, differences};

const FIRST_SEED: u64 = 1;

/// Differences that a run shrinks and prints: shrinking takes seconds, and they are often one.
const SHOWN: u64 = 10;

/// An implementation that evaluates cases.
trait Judge {
    /// Fails when the case cannot be evaluated; a pod that fits nowhere is a result.
    fn judge(&mut self, case: &Case) -> Result<Verdicts>;
}

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compare our engine with kube-scheduler on random cases
    Kube {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
        /// Compare this plugin only, in a profile without the others; may be repeated
        #[arg(long = "plugin", value_name = "NAME")]
        plugins: Vec<String>,
    },
    /// Compare the default profile of `tidepool up` with kube-scheduler's, on random cases
    Up {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Compare our QoS-aware plugins and NodeResourceTopology with Katalyst's on random cases
    Katalyst {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Compare our engine with Koordinator's NodeResourcesFitPlus and ScarceResourceAvoidance, and our tier capacity with
    /// its controller of node resources, on random cases
    Koordinator {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Compare the figures of the node agent with those of Koordinator's agent on random cases
    Koordlet {
        /// How many cases to generate for each figure
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Compare our admission of pods with Koordinator's webhook on random pods and profiles
    Webhook {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Check the oracle itself: two runs must agree on every case, and the cases must cover
    /// every message and score
    Oracle {
        /// How many cases to generate
        #[arg(long, default_value_t = 2000)]
        cases: u64,
        /// Seed of the random cases; the same seed gives the same cases
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
    },
    /// Print one case and the oracle's answer, each as a line of JSON, then the differences of our
    /// engine
    Case {
        /// The number of the case, as a run reports it
        index: u64,
        #[arg(long, default_value_t = FIRST_SEED)]
        seed: u64,
        /// As in `parity kube`
        #[arg(long = "plugin", value_name = "NAME")]
        plugins: Vec<String>,
    },
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let agree = match &options.what {
        What::Kube {
            cases,
            seed,
            plugins,
        } => kube(*cases, *seed, Selection::new(plugins.clone())?)?,
        What::Up { cases, seed } => up(*cases, *seed)?,
        What::Katalyst { cases, seed } => katalyst(*cases, *seed)?,
        What::Koordlet { cases, seed } => node::koordlet(*cases, *seed)?,
        What::Koordinator { cases, seed } => koordinator(*cases, *seed)?,
        What::Webhook { cases, seed } => webhook::agrees(*cases, *seed)?,
        What::Oracle { cases, seed } => {
            let (mut one, mut other) = (oracle::KUBE.start()?, oracle::KUBE.start()?);
            let run = Run {
                name: "parity oracle",
                seed: *seed,
                cases: *cases,
                generate: generate::of_kubelets,
                selection: Selection::ALL,
                floor: &coverage::KUBE,
                known: &[],
            };
            run.compare(&mut one, &mut other)?
        }
        What::Case {
            index,
            seed,
            plugins,
        } => one_case(
            &generate::of_kubelets(*seed, *index),
            &Selection::new(plugins.clone())?,
        )?,
    };
    Ok(if agree {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether our QoS-aware plugins, NodeResourceTopology and Katalyst's agree in so many cases.
pub(crate) fn agrees_with_katalyst(cases: u64) -> Result<bool> {
    katalyst(cases, FIRST_SEED)
}

fn katalyst(cases: u64, seed: u64) -> Result<bool> {
    let run = Run {
        name: "parity katalyst",
        seed,
        cases,
        generate: generate::lending,
        selection: Selection::PLUGINS,
        floor: &coverage::KATALYST,
        known: known::KATALYST,
    };
    let mut oracle = oracle::KATALYST.start()?;
    let plugins = run.compare(&mut Ours, &mut oracle)?;
    let zones = Run {
        name: "parity katalyst zones",
        generate: generate::zones,
        floor: &coverage::ZONES,
        known: known::ZONES,
        ..run
    };
    let zones = zones.compare(&mut Ours, &mut oracle)?;
    Ok(node::katalyst(&mut oracle, cases, seed)? && plugins && zones)
}

/// Whether the figures of our node agent and of Koordinator's agree in so many cases.
pub(crate) fn agrees_with_koordlet(cases: u64) -> Result<bool> {
    node::koordlet(cases, FIRST_SEED)
}

/// Whether our engine and kube-scheduler agree on every plugin in so many cases.
pub(crate) fn agrees_with_kube(cases: u64) -> Result<bool> {
    kube(cases, FIRST_SEED, Selection::ALL)
}

fn kube(cases: u64, seed: u64, selection: Selection) -> Result<bool> {
    let missing = ours::not_built(&selection);
    if !missing.is_empty() {
        println!("not implemented: {}", missing.join(", "));
    }
    let run = Run {
        name: "parity kube",
        seed,
        cases,
        generate: generate::of_kubelets,
        selection,
        floor: &coverage::KUBE,
        known: known::KUBE,
    };
    let mut oracle = oracle::KUBE.start()?;
    let plugins = run.compare(&mut Ours, &mut oracle)?;
    // A run of one plugin is about that plugin alone.
    Ok((!run.selection.is_all() || node::kube(&mut oracle, cases, seed)?) && plugins)
}

/// Whether the default profile of `tidepool up` decides as kube-scheduler's in so many cases.
pub(crate) fn up_agrees_with_kube(cases: u64) -> Result<bool> {
    up(cases, FIRST_SEED)
}

fn up(cases: u64, seed: u64) -> Result<bool> {
    let run = Run {
        name: "parity up",
        seed,
        cases,
        generate: ours::case_of_up,
        selection: Selection::ALL,
        floor: &coverage::UP,
        known: known::KUBE,
    };
    run.compare(&mut ours::Up::new()?, &mut oracle::KUBE.start()?)
}

/// Whether our engine and Koordinator's plugins agree in so many cases.
pub(crate) fn agrees_with_koordinator(cases: u64) -> Result<bool> {
    koordinator(cases, FIRST_SEED)
}

/// Whether our admission of pods and Koordinator's agree in so many cases.
pub(crate) fn admission_agrees_with_koordinator(cases: u64) -> Result<bool> {
    webhook::agrees(cases, FIRST_SEED)
}

fn koordinator(cases: u64, seed: u64) -> Result<bool> {
    let run = Run {
        name: "parity koordinator",
        seed,
        cases,
        generate: generate::scored,
        selection: Selection::PLUGINS,
        floor: &coverage::KOORDINATOR,
        known: known::KOORDINATOR,
    };
    let plugins = run.compare(&mut Ours, &mut oracle::KOORDINATOR.start()?)?;
    Ok(tiers::agrees(cases, seed)? && plugins)
}

fn one_case(case: &Case, selection: &Selection) -> Result<bool> {
    let case = selection.narrow(case);
    println!("{}", serde_json::to_string(&case)?);
    let theirs = oracle::KUBE.start()?.judge(&case)?;
    println!("{}", serde_json::to_string(&theirs)?);
    let (ours, theirs) = (selection.strip(Ours.judge(&case)?), selection.strip(theirs));
    let differences = differences(&ours, &theirs);
    differences.iter().for_each(|line| println!("    {line}"));
    Ok(differences.is_empty())
}

/// One comparison of two judges.
struct Run {
    name: &'static str,
    seed: u64,
    cases: u64,
    /// A case from a seed and a number.
    generate: fn(u64, u64) -> Case,
    selection: Selection,
    floor: &'static Floor,
    /// Differences that are expected.
    known: &'static [Known],
}

impl Run {
    /// Evaluates every case with both. The last line is `NAME: N cases, D differences`; succeeds
    /// when D is 0 and, in runs large enough to tell, nothing was exercised too seldom.
    fn compare(&self, ours: &mut dyn Judge, theirs: &mut dyn Judge) -> Result<bool> {
        let started = Instant::now();
        let mut coverage = Coverage::new(self.floor);
        let mut different = self.outdated(ours, theirs)?;
        let mut expected = 0u64;
        for index in 0..self.cases {
            let case = (self.generate)(self.seed, index);
            let found = self
                .differ(ours, theirs, &case, Some(&mut coverage))
                .with_context(|| format!("case {index} of seed {}", self.seed))?;
            if found.is_empty() {
                continue;
            }
            if self.explain(&case, &found).is_some() {
                expected += 1;
                continue;
            }
            different += 1;
            if different <= SHOWN {
                println!("case {index} of seed {} differs:", self.seed);
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
            self.cases as f64 / started.elapsed().as_secs_f64()
        );
        // A run of one plugin does not exercise the others.
        let below = if self.selection.is_all() {
            print!("{coverage}");
            coverage.below_floor()
        } else {
            Vec::new()
        };
        for line in &below {
            println!("below the floor: {line}");
        }
        if expected > 0 {
            println!("{expected} cases differ by known upstream behaviour that we do not copy");
        }
        println!(
            "{}: {} cases, {different} differences",
            self.name, self.cases
        );
        Ok(different == 0 && below.is_empty())
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
