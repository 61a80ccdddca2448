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
    /// The namespace of the pod, if its name comes without one
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
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
  tidepool explain pod demo/train-large-x2x9f             why it waits
  tidepool explain pod web-5d8f -n demo --scores --top 3  the three best nodes for it
  tidepool explain pod web-5d8f -o json | jq .verdict     for programs";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let Command::Pod(flags) = &flags.command;
    let (namespace, name) = parse(&flags.pod, flags.namespace.as_deref())?;
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
fn parse<'a>(pod: &'a str, namespace: Option<&'a str>) -> Result<(&'a str, &'a str)> {
    let (namespace, name) = match (pod.split_once('/'), namespace) {
        (Some((in_name, _)), Some(given)) if in_name != given => {
            let text = format!("`{pod}` is not in namespace `{given}`: give one of the two");
            return Err(error(Code::BadInput, text));
        }
        (Some(both), _) => both,
        (None, given) => (given.unwrap_or("default"), pod),
    };
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
        for (pod, namespace, want) in [
            ("demo/web-1", None, Some(("demo", "web-1"))),
            ("web.2", None, Some(("default", "web.2"))),
            ("web.2", Some("demo"), Some(("demo", "web.2"))),
            ("demo/web-1", Some("demo"), Some(("demo", "web-1"))),
            ("demo/web-1", Some("other"), None),
            ("web.2", Some("De mo"), None),
            ("demo/", None, None),
            ("/web", None, None),
            ("a/b/c", None, None),
            ("demo/../x", None, None),
            ("demo/Web", None, None),
            ("demo/web?x=1", None, None),
            ("", None, None),
        ] {
            match (parse(pod, namespace), want) {
                (Ok(found), Some(want)) => assert_eq!(found, want),
                (Err(why), None) => assert_eq!(code_of(&why), Code::BadInput),
                (found, want) => panic!("{pod}: {found:?}, not {want:?}"),
            }
        }
    }
}
