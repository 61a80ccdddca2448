//! `tidepool explain`: why a pod waits, or why it is where it is.

mod report;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Deserialize;

use self::report::Report;
use crate::{
    ask,
    exit::{Code, error},
    output,
};

/// Say why things are as they are
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pod(PodFlags),
}

/// Say why a pod waits, or why it is where it is
///
/// The running scheduler is asked what a decision about the pod would come to now, on every node. Nothing changes by it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct PodFlags {
    /// The pod; without a namespace it is in `default`
    #[arg(value_name = "NAMESPACE/NAME")]
    pod: String,
    /// Show the scores of the best nodes too, plugin by plugin
    #[arg(long)]
    scores: bool,
    /// How many nodes to show scores of
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "scores")]
    top: usize,
    #[command(flatten)]
    ask: ask::Flags,
}

const EXAMPLES: &str = "\
Examples:
  tidepool explain pod demo/train-large-x2x9f          why it waits
  tidepool explain pod web-5d8f --scores --top 3       the three best nodes for it
  tidepool explain pod web-5d8f -o json | jq .verdict  for programs";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let Command::Pod(flags) = &flags.command;
    let (namespace, name) = parse(&flags.pod)?;
    let path = format!("/apis/v1/pods/{namespace}/{name}/explain");
    let (_, answer) = ask::ask(&flags.ask, &path)?;
    output::print(flags.ask.output, &answer, |answer| {
        let report = Report::deserialize(answer);
        let report = report.context(
            "the scheduler is of another version, and its answer has other fields; use -o json",
        )?;
        let mut text = report.summary();
        if flags.scores {
            text.push_str(&report.scores(flags.top));
        }
        Ok(text)
    })
}

/// Names of Kubernetes only: they need no encoding in a path.
fn parse(pod: &str) -> Result<(&str, &str)> {
    let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c))
    };
    if is_name(namespace) && is_name(name) {
        return Ok((namespace, name));
    }
    Err(error(
        Code::BadInput,
        format_args!("`{pod}` names no pod; give its namespace and name, such as demo/web-1"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;

    #[test]
    fn pods_have_names() {
        for (pod, want) in [
            ("demo/web-1", Some(("demo", "web-1"))),
            ("web.2", Some(("default", "web.2"))),
            ("demo/", None),
            ("/web", None),
            ("a/b/c", None),
            ("demo/../x", None),
            ("demo/Web", None),
            ("demo/web?x=1", None),
            ("", None),
        ] {
            match (parse(pod), want) {
                (Ok(found), Some(want)) => assert_eq!(found, want),
                (Err(why), None) => assert_eq!(code_of(&why), Code::BadInput),
                (found, want) => panic!("{pod}: {found:?}, not {want:?}"),
            }
        }
    }
}
