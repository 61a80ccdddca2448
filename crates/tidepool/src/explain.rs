//! `tidepool explain`: why a pod is pending, or why it is on its node.

mod report;

use anyhow::Result;
use api::http::explain_path;
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::{
    ask,
    exit::{Code, error},
    output,
};

/// Explain decisions of a running scheduler
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pod(PodFlags),
}

/// Explain why a pod is pending, or why it is on its node
///
/// Shows how the scheduler would decide about the pod now, for every node. It changes nothing.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct PodFlags {
    /// The pod; the default namespace is `default`
    #[arg(value_name = "NAMESPACE/NAME")]
    pod: String,
    /// Namespace of the pod, if its name has none
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Show the scores of the best nodes, by plugin
    #[arg(long)]
    scores: bool,
    /// Number of nodes to show scores of
    #[arg(long, value_name = "COUNT", default_value_t = 10, requires = "scores")]
    top: usize,
    #[command(flatten)]
    ask: ask::Flags,
}

const EXAMPLES: &str = "\
Examples:
  tidepool explain pod demo/train-large-x2x9f             why it is pending
  tidepool explain pod web-5d8f -n demo --scores --top 3  with the scores of the three best nodes
  tidepool explain pod web-5d8f -o json | jq .verdict     for programs";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let Command::Pod(flags) = &flags.command;
    let (namespace, name) = parse(&flags.pod, flags.namespace.as_deref())?;
    let (_, answer) = ask::ask(&flags.ask, &explain_path(namespace, name))?;
    output::print(flags.ask.output, &answer, |report| {
        let mut text = report::summary(&report, Timestamp::now());
        if flags.scores {
            text.push_str(&report::scores(&report, flags.top));
        }
        text
    })
}

/// Accepts names of Kubernetes only, which need no encoding in a path.
fn parse<'a>(pod: &'a str, namespace: Option<&'a str>) -> Result<(&'a str, &'a str)> {
    let (namespace, name) = match (pod.split_once('/'), namespace) {
        (Some((in_name, _)), Some(given)) if in_name != given => {
            let text = format!(
                "`{pod}` and --namespace {given} have different namespaces: pass one of them"
            );
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
        format_args!("`{pod}` is not a valid pod name; use NAMESPACE/NAME, such as demo/web-1"),
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
