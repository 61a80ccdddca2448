//! `cargo xtask chaos`: builds the scheduler and `e2e/examples/chaos`, and runs the one against the other.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{controlplane, process};

/// Selects a planted fault, and with it another build of the scheduler.
const PLANTED: &str = "--planted";

/// The names of all planted faults.
pub(crate) const PLANTED_FAULTS: [&str; 5] = [
    "bind-without-uid",
    "no-fence",
    "lost-wake-up",
    "assumed-forever",
    "incomplete-list",
];

/// A new leader must place a pod before it sees the last binds of the old one, which half of the runs of three minutes do not show.
pub(crate) const RARELY_FOUND: &str = "no-fence";

pub(crate) fn run(flags: &[String]) -> Result<ExitCode> {
    let is_planted = flags.iter().any(|flag| flag.starts_with(PLANTED));
    let mut chaos = match is_planted {
        true => command_with_planted_faults()?,
        false => command()?,
    };
    process::hand_over(chaos.args(flags))
}

/// The chaos run with the scheduler that users run.
pub(crate) fn command() -> Result<Command> {
    let directory = process::build(&["--bin", "tidepool", "--example", "chaos"])?;
    let mut chaos = Command::new(directory.join("examples/chaos"));
    chaos.env("TIDEPOOL_CONTROLPLANE", controlplane::directory()?);
    Ok(chaos)
}

/// The chaos run with a scheduler that has every planted fault; `--planted` selects one.
pub(crate) fn command_with_planted_faults() -> Result<Command> {
    let mut chaos = command()?;
    let directory = process::build(&[
        "--features",
        "control-plane/planted-faults",
        "--example",
        "planted-scheduler",
    ])?;
    chaos.arg("--program");
    chaos.arg(directory.join("examples/planted-scheduler"));
    Ok(chaos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_planted_faults_are_those_of_the_scheduler() {
        let source = process::root().join("crates/reconcile/src/planted.rs");
        let source = std::fs::read_to_string(source).unwrap();
        let known: Vec<&str> = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("(Self::")?.split('"').nth(1))
            .collect();
        assert_eq!(known, PLANTED_FAULTS);
    }
}
