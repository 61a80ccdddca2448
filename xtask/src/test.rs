//! `cargo xtask test`: all checks and tests. It runs on a fresh machine; the last line has the counts.
//!
//! The steps are in `steps`, how tests are started and counted in `count`. The first steps are short and run one by one, most others
//! in lanes at the same time, and the last ones alone. `quick` is the short form for the changes of a working copy.

mod count;
mod outcome;
mod quick;
mod steps;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::{guest, parity, process};
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
    let (selected, without_root) = runnable(selected, Machine::this())?;

    let run_lane = |lane: Lane| {
        let steps: Vec<&'static Step> = selected
            .iter()
            .filter(|step| step.lane == lane)
            .copied()
            .collect();
        run_steps(&steps, options.full)
    };
    let mut finished = run_lane(Lane::First);
    // Tests wait for clusters most of their time: another lane has the processors then.
    let lanes = thread::scope(|scope| {
        [Lane::Clusters, Lane::Others, Lane::Waits]
            .map(|lane| scope.spawn(move || run_lane(lane)))
            .map(|lane| lane.join())
    });
    for lane in lanes {
        match lane {
            Ok(outcomes) => finished.extend(outcomes),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    finished.extend(run_lane(Lane::Last));

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

/// What decides which steps can run.
#[derive(Debug, Clone, Copy)]
struct Machine {
    has_go: bool,
    is_root: bool,
    has_valgrind: bool,
    /// The C library of the comparison with Koordinator's agent.
    has_library: bool,
    in_ci: bool,
    /// A directory with the programs of the control plane.
    is_given: bool,
}

impl Machine {
    fn this() -> Self {
        Self {
            has_go: process::find("go").is_some(),
            is_root: guest::is_root(),
            has_valgrind: process::find("valgrind").is_some(),
            has_library: parity::has_libraries("koordlet"),
            in_ci: in_ci(),
            is_given: given_controlplane(),
        }
    }

    fn lacks_go(&self, needs: Needs) -> bool {
        !self.has_go
            && match needs {
                Needs::Nothing | Needs::Valgrind | Needs::Full => false,
                Needs::Go | Needs::GoAndLibrary => true,
                Needs::ControlPlane | Needs::ControlPlaneAndRoot => !self.is_given,
            }
    }

    fn lacks_root(&self, needs: Needs) -> bool {
        !self.is_root
            && match needs {
                Needs::Nothing | Needs::Go | Needs::ControlPlane | Needs::Full => false,
                Needs::ControlPlaneAndRoot => true,
                Needs::Valgrind => !self.has_valgrind,
                Needs::GoAndLibrary => !self.has_library,
            }
    }
}

/// The steps that can run on a machine, and those that need root. Without Go nothing runs: the other steps would only hide what is missing.
fn runnable(
    selected: Vec<&'static Step>,
    machine: Machine,
) -> Result<(Vec<&'static Step>, Vec<&'static Step>)> {
    let lacks_go = |step: &&&Step| machine.lacks_go(step.needs);
    let need_go: Vec<&Step> = selected.iter().filter(lacks_go).copied().collect();
    if !need_go.is_empty() {
        bail!(
            "cannot find `go`: install Go 1.26 or newer, or choose other steps with --only; these need it: {}",
            names(&need_go)
        );
    }
    // On CI a step that cannot run must fail.
    let is_skipped = |step: &&Step| machine.lacks_root(step.needs) && !machine.in_ci;
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
    fn steps_that_need_root_are_left_out_and_without_go_nothing_runs() {
        let all = Machine {
            has_go: true,
            is_root: true,
            has_valgrind: true,
            has_library: true,
            in_ci: false,
            is_given: false,
        };
        let user = Machine {
            is_root: false,
            ..all
        };
        let bare = Machine {
            has_valgrind: false,
            has_library: false,
            ..user
        };
        let without_go = Machine {
            has_go: false,
            ..all
        };
        let given = Machine {
            is_given: true,
            ..without_go
        };
        let in_ci = Machine {
            in_ci: true,
            ..bare
        };
        let root = Machine {
            is_root: true,
            ..bare
        };
        let steps = "format, real, parity-kube, parity-koordlet, instructions, nodes";
        for (case, machine, chosen, want) in [
            ("root", all, steps, Ok("")),
            ("root installs packages", root, steps, Ok("")),
            ("a user", user, steps, Ok("nodes")),
            (
                "a user without packages",
                bare,
                steps,
                Ok("parity-koordlet, instructions, nodes"),
            ),
            ("CI fails instead", in_ci, steps, Ok("")),
            (
                "without Go",
                without_go,
                steps,
                Err("real, parity-kube, parity-koordlet, nodes"),
            ),
            (
                "without Go, with a control plane",
                given,
                steps,
                Err("parity-kube, parity-koordlet"),
            ),
            (
                "nothing that needs Go",
                without_go,
                "format, instructions",
                Ok(""),
            ),
        ] {
            let chosen: Vec<&str> = chosen.split(", ").collect();
            let chosen = super::selected(&options(&chosen, None)).unwrap();
            let all = names(&chosen);
            match (runnable(chosen, machine), want) {
                (Ok((run, skipped)), Ok(want)) => {
                    assert_eq!(names(&skipped), want, "{case}");
                    let mut both = [run, skipped].concat();
                    both.sort_by_key(|step| STEPS.iter().position(|it| it.name == step.name));
                    assert_eq!(names(&both), all, "{case}");
                }
                (Err(error), Err(want)) => {
                    let error = error.to_string();
                    assert!(error.ends_with(&format!(": {want}")), "{case}: {error}");
                }
                (found, _) => panic!("{case}: {:?}", found.map(|(run, _)| names(&run))),
            }
        }
    }

    #[test]
    fn names_of_steps_are_different() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
