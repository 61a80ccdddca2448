//! `tidepool completion`: completion scripts for shells.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print the completion script of a shell
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  source <(tidepool completion bash)                                 for the current shell
  tidepool completion bash > /etc/bash_completion.d/tidepool         for all bash sessions
  tidepool completion zsh > \"${fpath[1]}/_tidepool\"                  for all zsh sessions
  tidepool completion fish > ~/.config/fish/completions/tidepool.fish";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let mut script = Vec::new();
    let mut command = crate::Cli::command();
    clap_complete::generate(flags.shell, &mut command, "tidepool", &mut script);
    crate::say(&String::from_utf8(script)?)
}
