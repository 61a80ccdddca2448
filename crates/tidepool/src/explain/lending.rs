//! `tidepool explain node`: the sums behind what a node lends, as its agent wrote them into the CustomNodeResource.

use anyhow::{Context, Result};
use engine::node::{Figure, FigureTerm};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::Source;
use crate::exit::{Code, error};
use crate::foreign::one_line;
use crate::output::{self, Format, columns};

const KINDS: [&str; 3] = ["node", "nodes", "no"];
/// The annotation of the CustomNodeResource.
const TERMS: &str = "tidepool.io/terms";

/// The names of nodes in `node NAME...` or `node/NAME...`; none if this is about another kind.
pub(super) fn names(words: &[String]) -> Option<Vec<String>> {
    let (first, rest) = words.split_first()?;
    if KINDS.contains(&&**first) {
        return Some(rest.to_vec());
    }
    let of_kind = |word: &String| {
        let (kind, name) = word.split_once('/')?;
        KINDS.contains(&kind).then(|| name.to_owned())
    };
    words.iter().map(of_kind).collect()
}

/// What the agent reported about a node.
#[derive(Debug, Serialize, Deserialize)]
struct LendingReport {
    node: String,
    figures: Vec<Figure>,
    #[serde(default)]
    conditions: Vec<Value>,
    #[serde(default)]
    taints: Vec<Value>,
}

pub(super) async fn explain(
    source: &Source,
    context: Option<&str>,
    names: &[String],
    format: Format,
) -> Result<()> {
    if names.is_empty() {
        let text = "`node` needs the name of a node, such as `explain node worker-1`";
        return Err(error(Code::BadInput, text));
    }
    let (config, place) = source.read(context).await?;
    let client = Client::try_from(config).context("cannot connect to the cluster")?;
    let mut reports = Vec::new();
    for name in names {
        let name = name.strip_prefix("node/").unwrap_or(name);
        if !crate::component::is_name(name) {
            let text = format!("`{}` is not a valid node name", one_line(name));
            return Err(error(Code::BadInput, text));
        }
        reports.push(read(&client, name, &place.context).await?);
    }
    for report in &reports {
        match format {
            Format::Table => crate::say(&table(report))?,
            _ if reports.len() == 1 => {
                output::print::<Value>(format, &serde_json::to_value(report)?, |_| String::new())?;
            }
            _ => {}
        }
    }
    if format != Format::Table && reports.len() > 1 {
        let all = json!({"items": reports});
        output::print::<Value>(format, &all, |_| String::new())?;
    }
    Ok(())
}

async fn read(client: &Client, name: &str, context: &str) -> Result<LendingReport> {
    let url = format!("/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/{name}");
    let request = http::Request::get(url).body(Vec::new())?;
    let failed = |why: String| error(Code::Failed, why);
    let cnr: Value = match client.request(request).await {
        Ok(cnr) => cnr,
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            return Err(failed(format!(
                "node {name} has no CustomNodeResource in context {context}: no agent reported about it; see docs/run-the-agent.md"
            )));
        }
        Err(why) => {
            let why = why.to_string();
            let why = one_line(&why);
            return Err(failed(format!(
                "cannot read CustomNodeResource {name} in context {context}: {why}"
            )));
        }
    };
    let Some(text) = cnr["metadata"]["annotations"][TERMS].as_str() else {
        return Err(failed(format!(
            "CustomNodeResource {name} has no annotation {TERMS}: another agent reports about this node"
        )));
    };
    let figures = serde_json::from_str(text).map_err(|why| {
        failed(format!(
            "annotation {TERMS} of CustomNodeResource {name} is not valid: {why}"
        ))
    })?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Ok(LendingReport {
        node: name.to_owned(),
        figures,
        conditions: list(&cnr["status"]["conditions"]),
        taints: list(&cnr["spec"]["taints"]),
    })
}

/// Each figure with its terms, one below the other.
fn table(report: &LendingReport) -> String {
    let mut text = format!("node       {}\n", report.node);
    for figure in &report.figures {
        let value = amount(figure.value, &figure.unit);
        text.push_str(&format!("\n{}  {value}\n", one_line(&figure.name)));
        let rows: Vec<Vec<String>> = figure
            .terms
            .iter()
            .map(|term| {
                let name = format!("  {}", one_line(&term.name));
                vec![name, term_amount(term, &figure.unit)]
            })
            .collect();
        text.push_str(&columns(&rows));
        // A report that was changed by hand must not pass for the agent's.
        if figure.recompute() != figure.value {
            let sum = amount(figure.recompute(), &figure.unit);
            text.push_str(&format!("  the terms add up to {sum}, not to the value\n"));
        }
    }
    let texts = |value: &Value, keys: [&str; 2]| {
        let part = |key| one_line(value[key].as_str().unwrap_or_default());
        format!("{} {}", part(keys[0]), part(keys[1]))
            .trim()
            .to_owned()
    };
    let taints: Vec<String> = report
        .taints
        .iter()
        .map(|it| texts(it, ["key", "value"]))
        .collect();
    if !taints.is_empty() {
        text.push_str(&format!("\ntaints     {}\n", taints.join(", ")));
    }
    let is_true = |it: &&Value| it["status"] == "True";
    for condition in report.conditions.iter().filter(is_true) {
        let condition = texts(condition, ["type", "message"]);
        text.push_str(&format!("condition  {condition}\n"));
    }
    text
}

fn term_amount(term: &FigureTerm, unit: &str) -> String {
    match term.limit {
        true => format!("at most {}", amount(term.amount, unit)),
        false if term.amount > 0 => format!("+{}", amount(term.amount, unit)),
        false => amount(term.amount, unit),
    }
}

fn amount(amount: i64, unit: &str) -> String {
    let large = amount as f64;
    match unit {
        "milli-cores" => format!("{:.3} cores", large / 1000.0),
        "bytes" => format!("{:.1} MiB", large / f64::from(1 << 20)),
        other => format!("{amount} {}", one_line(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_for_kubectl() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        for (text, want) in [
            ("node a b", Some(vec!["a", "b"])),
            ("nodes a", Some(vec!["a"])),
            ("node/a node/b", Some(vec!["a", "b"])),
            ("node", Some(vec![])),
            ("pod a", None),
            ("pod/a", None),
        ] {
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names(&words(text)), want, "{text}");
        }
    }

    #[test]
    fn a_table_has_the_sum_of_each_figure() {
        let term = |name: &str, amount, limit| FigureTerm {
            name: name.to_owned(),
            amount,
            limit,
        };
        let mut report = LendingReport {
            node: "n1".to_owned(),
            figures: vec![Figure {
                name: "reclaimed cpu".to_owned(),
                unit: "milli-cores".to_owned(),
                value: 1200,
                terms: vec![
                    term("CPUs", 2000, false),
                    term("online use", -300, false),
                    term("threshold", 1200, true),
                ],
            }],
            conditions: vec![json!({"type": "Lending", "status": "True", "message": "ok"})],
            taints: vec![json!({"key": "tidepool.io/pressure", "value": "memory"})],
        };
        assert_eq!(
            table(&report),
            "node       n1\n\nreclaimed cpu  1.200 cores\n  CPUs        +2.000 cores\n  online use  -0.300 cores\n  \
             threshold   at most 1.200 cores\n\ntaints     tidepool.io/pressure memory\ncondition  Lending ok\n"
        );
        report.figures[0].value = 1300;
        assert!(table(&report).contains("add up to 1.200 cores, not to the value"));
    }
}
