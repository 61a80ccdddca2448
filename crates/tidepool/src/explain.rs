//! `tidepool explain`: why a pod is pending, or why it is on its node; how much a node lends, and why; who has its NUMA zones.

mod lending;
mod names;
mod nodes;
mod other;
mod report;
mod tiers;
mod zones;

use anyhow::Result;
use api::http::{PodReport, STATUS, SchedulerStatus, explain_path};
use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use self::{names::PodName, other::OtherPod};
use crate::{
    ask,
    exit::{Code, code_of, error},
    output::{self, Format},
    say,
};

/// Explain why pods are pending or on their nodes, what nodes lend, and which pods have their NUMA zones
///
/// Shows how the scheduler would decide about a pod now, for every node; or the sum behind each amount that a node lends: reclaimed
/// resources as its agent reported them, mid and batch resources as the tier controller plans them now; then the NUMA zones of the
/// node with the pods that have them. It changes nothing.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    /// The kind and the names, as for kubectl: `pod NAME...`, `pod/NAME...` or `node NAME...`; `pod NAMESPACE/NAME` is possible too
    #[arg(value_name = "pod|node NAME", required = true)]
    pods: Vec<String>,
    /// Namespace of names without one [default: that of the kubeconfig's context]
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
  tidepool explain pod/web-5d8f pod/web-7c2a              several pods, as `kubectl get pods -o name` prints them
  tidepool explain po web-5d8f -n demo --scores --top 3   with the scores of the three best nodes
  tidepool explain pod web-5d8f -o json | jq .verdict     for programs
  tidepool explain node worker-1                          what the node lends, term by term, and its NUMA zones";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let Some(nodes) = lending::names(&flags.pods) {
        let source = flags.ask.cluster()?;
        let context = flags.ask.context();
        return runtime.block_on(lending::explain(&source, context, &nodes, flags.ask.output));
    }
    let pods = names::parse(&flags.pods, flags.namespace.as_deref())?;
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    let (found, scheduler) = runtime.block_on(ask_about(flags, &pods))?;
    for answer in found {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(why) => errors.push(why),
        }
    }
    match flags.ask.output {
        Format::Table => print_tables(flags, &answers, &scheduler.place_line())?,
        format => print_values(format, &answers, pods.len(), &scheduler)?,
    }
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let lines: Vec<String> = errors.iter().map(|why| format!("{why:#}")).collect();
    Err(error(code_of(first), lines.join("\n")))
}

/// The answer about one pod.
enum Answer {
    /// The report of the scheduler.
    Report(Value),
    /// What the cluster knows about a pod that the scheduler does not decide about.
    Other(OtherPod),
}

/// The answers about the pods, and the scheduler that gave them.
async fn ask_about(
    flags: &Flags,
    pods: &[PodName],
) -> Result<(Vec<Result<Answer>>, ask::Scheduler)> {
    let scheduler = ask::connect(&flags.ask).await?;
    // Without the permission to read the status, all pods count as the scheduler's.
    let status = scheduler.get(STATUS).await.ok();
    let status = status.and_then(|status| SchedulerStatus::deserialize(status).ok());
    let served = status.unwrap_or_default().schedulers;
    let default = scheduler.default_namespace.clone();
    let mut answers = Vec::new();
    for pod in pods {
        let namespace = pod.namespace.as_deref().unwrap_or(&default);
        answers.push(ask_about_one(&scheduler, &served, namespace, &pod.name).await);
    }
    Ok((answers, scheduler))
}

async fn ask_about_one(
    scheduler: &ask::Scheduler,
    served: &[String],
    namespace: &str,
    name: &str,
) -> Result<Answer> {
    if let Some(cluster) = &scheduler.cluster
        && let Some(place) = scheduler.place()
        && let Some(other) = OtherPod::find(cluster, place, (namespace, name), served).await?
    {
        return Ok(Answer::Other(other));
    }
    let report = scheduler.get(&explain_path(namespace, name)).await?;
    Ok(Answer::Report(report))
}

/// The answer about one pod as it is, the answers about several as `items`.
fn print_values(
    format: Format,
    answers: &[Answer],
    asked: usize,
    scheduler: &ask::Scheduler,
) -> Result<()> {
    let values = answers.iter().map(|answer| match answer {
        Answer::Report(report) => Ok(report.clone()),
        Answer::Other(other) => serde_json::to_value(other),
    });
    let mut values: Vec<Value> = values.collect::<Result<_, _>>()?;
    let mut all = match (asked, values.pop()) {
        (_, None) => return Ok(()),
        (1, Some(value)) => value,
        (_, Some(last)) => {
            values.push(last);
            json!({ "items": values })
        }
    };
    scheduler.name_place(&mut all);
    output::print::<Value>(format, &all, |_| String::new())
}

fn print_tables(flags: &Flags, answers: &[Answer], place: &str) -> Result<()> {
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            say("\n")?;
        }
        match answer {
            Answer::Other(other) => say(&other.text())?,
            Answer::Report(report) => {
                output::print(Format::Table, report, |report: PodReport| {
                    let mut text = report::summary(&report, Timestamp::now());
                    if flags.scores {
                        text.push_str(&nodes::scores(&report, flags.top));
                    }
                    text
                })?;
            }
        }
    }
    match answers {
        [] => Ok(()),
        _ => say(place),
    }
}

/// An error about a pod that does not exist.
fn missing(namespace: &str, name: &str, context: &str) -> anyhow::Error {
    error(
        Code::Failed,
        format_args!(
            "pod {namespace}/{name} does not exist in context {context}; `kubectl get pods -n {namespace}` lists those that do"
        ),
    )
}
