//! `cargo xtask test`: all checks and tests. It runs on a fresh machine; the last line has the counts.
//!
//! The steps are in `steps`, how tests are started and counted in `count`. The first steps are short and run one by one, most others
//! in two lanes at the same time, and the last ones alone. `quick` is the short form for the changes of a working copy.

mod count;
mod outcome;
mod quick;
mod steps;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::{guest, process};
use outcome::{Outcome, WIDTH};
pub(crate) use quick::{QuickOptions, quick};
use steps::{Lane, Needs, STEPS, Step, Suite};

#[derive(Args)]
pub(crate) struct Options {
    /// Run the large sizes: more cases, larger clusters
    #[arg(long)]
    full: bool,
    /// Print the names of the steps, and run nothing
    #[arg(long)]
    list: bool,
    /// Run only these steps
    #[arg(
        long,
        value_name = "STEP",
        value_delimiter = ',',
        conflicts_with = "from"
    )]
    only: Vec<String>,
    /// Run this step and the following ones
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let started = Instant::now();
    let selected = selected(options)?;
    if options.list {
        for step in selected {
            println!("{:<WIDTH$}  {}", step.name, step.shows);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (selected, without_root) = runnable(selected)?;

    let (first, lanes): (Vec<&Step>, Vec<&Step>) = selected
        .into_iter()
        .partition(|step| step.lane == Lane::First);
    let (last, lanes): (Vec<&Step>, Vec<&Step>) =
        lanes.into_iter().partition(|step| step.lane == Lane::Last);
    let mut finished = run_steps(&first, options.full);
    // Tests wait for clusters most of their time: the other lane has the processors then.
    let (clusters, others): (Vec<&Step>, Vec<&Step>) = lanes
        .into_iter()
        .partition(|step| step.lane == Lane::Clusters);
    let (clusters, others) = thread::scope(|scope| {
        let others = scope.spawn(|| run_steps(&others, options.full));
        (run_steps(&clusters, options.full), others.join())
    });
    finished.extend(clusters);
    match others {
        Ok(others) => finished.extend(others),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    finished.extend(run_steps(&last, options.full));

    let result = outcome::print(&finished);
    if !without_root.is_empty() {
        println!("not run without root: {}", names(&without_root));
    }
    outcome::print_total(started, result)
}

/// Runs all of them, also after one has failed.
fn run_steps(steps: &[&'static Step], full: bool) -> Vec<Outcome> {
    let run = |step: &&'static Step| {
        Outcome::of(step.name, step.shows, |failures| {
            (step.run)(&mut Suite::new(step.name, full, failures))
        })
    };
    steps.iter().map(run).collect()
}

fn selected(options: &Options) -> Result<Vec<&'static Step>> {
    let position = |name: &String| match STEPS.iter().position(|step| step.name == name) {
        Some(position) => Ok(position),
        None => bail!(
            "there is no step `{name}`; the steps are {}",
            names(&STEPS.iter().collect::<Vec<_>>())
        ),
    };
    if !options.only.is_empty() {
        let mut positions: Vec<usize> = options.only.iter().map(position).collect::<Result<_>>()?;
        positions.sort_unstable();
        positions.dedup();
        return Ok(positions.into_iter().map(|it| &STEPS[it]).collect());
    }
    let first = options.from.as_ref().map_or(Ok(0), position)?;
    let is_wanted = |step: &&Step| step.needs != Needs::Full || options.full || options.list;
    Ok(STEPS[first..].iter().filter(is_wanted).collect())
}

/// The steps that can run here, and those that need root. Without Go nothing runs: the other steps would only hide what is missing.
fn runnable(selected: Vec<&'static Step>) -> Result<(Vec<&'static Step>, Vec<&'static Step>)> {
    let with_go = |step: &&&Step| match step.needs {
        Needs::Nothing | Needs::Full => false,
        Needs::Go => true,
        Needs::ControlPlane | Needs::ControlPlaneAndRoot => !given_controlplane(),
    };
    let need_go: Vec<&Step> = selected.iter().filter(with_go).copied().collect();
    if process::find("go").is_none() && !need_go.is_empty() {
        bail!(
            "cannot find `go`: install Go 1.26 or newer, or choose other steps with --only; these need it: {}",
            names(&need_go)
        );
    }
    // On CI a step that cannot run must fail.
    let needs_root = |step: &&Step| step.needs == Needs::ControlPlaneAndRoot;
    let is_skipped = |step: &&Step| needs_root(step) && !guest::is_root() && !in_ci();
    let (skipped, runnable) = selected.into_iter().partition(is_skipped);
    Ok((runnable, skipped))
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

fn given_controlplane() -> bool {
    ["TIDEPOOL_CONTROLPLANE", "KUBEBUILDER_ASSETS"]
        .iter()
        .any(|variable| std::env::var_os(variable).is_some())
}

fn names(steps: &[&Step]) -> String {
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(only: &[&str], from: Option<&str>) -> Options {
        Options {
            full: false,
            list: false,
            only: only.iter().map(|&it| it.to_owned()).collect(),
            from: from.map(str::to_owned),
        }
    }

    #[test]
    fn steps_are_selected_by_name_in_the_order_of_the_suite() {
        let selected = |only: &[&str], from| names(&super::selected(&options(only, from)).unwrap());
        assert_eq!(
            selected(&["unit", "format", "unit"], None),
            "format, unit",
            "--only"
        );
        let all = selected(&[], None);
        assert!(
            all.ends_with(&selected(&[], Some("chaos"))),
            "--from: {all}"
        );
        assert!(selected(&[], Some("chaos")).starts_with("chaos"), "--from");
        assert!(!all.contains("mutants"), "without --full: {all}");
        assert_eq!(selected(&["mutants"], None), "mutants", "--only");
        let full = super::selected(&Options {
            full: true,
            ..options(&[], None)
        });
        assert!(names(&full.unwrap()).contains("mutants"), "--full");
        let error = super::selected(&options(&["unitt"], None)).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("no step `unitt`"), "{error}");
        assert!(error.contains("unit, "), "{error}");
    }

    #[test]
    fn names_of_steps_are_different() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
