//! `tidepool explain node`: the sums behind what a node lends, and its NUMA zones. The sums of reclaimed resources are as its agent
//! wrote them into the CustomNodeResource, those of the tiers are planned again from the objects.

use anyhow::{Context, Result};
use api::contracts::TERMS;
use engine::node::{Figure, FigureTerm};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::Source;
use crate::exit::{Code, error};
use crate::foreign::one_line;
use crate::output::{self, Format, columns};

use super::tiers::{self, TierSums};
use super::zones::ZoneTable;

const KINDS: [&str; 3] = ["node", "nodes", "no"];
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

/// What a node lends, and its NUMA zones.
#[derive(Debug, Serialize, Deserialize)]
struct LendingReport {
    node: String,
    /// As the agent reported them; none if there is no agent.
    figures: Vec<Figure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tiers: Option<TierSums>,
    /// None if no zones are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    numa: Option<ZoneTable>,
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
    let path = format!("/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources/{name}");
    let what = format!("CustomNodeResource {name} in context {context}");
    let (cnr, pods) = tokio::try_join!(
        tiers::get::<Value>(client, &path, &what),
        tiers::pods(client, name)
    )?;
    let cnr = cnr.unwrap_or_default();
    let failed = |why: String| error(Code::Failed, why);
    let Some(tiers) = tiers::read(client, name, &cnr, &pods).await? else {
        return Err(failed(format!(
            "there is no node {name} in context {context}"
        )));
    };
    let figures = match cnr["metadata"]["annotations"][TERMS].as_str() {
        Some(text) => serde_json::from_str(text).map_err(|why| {
            failed(format!(
                "annotation {TERMS} of CustomNodeResource {name} is not valid: {why}"
            ))
        })?,
        None => Vec::new(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    Ok(LendingReport {
        node: name.to_owned(),
        figures,
        tiers: Some(tiers),
        numa: ZoneTable::new(&cnr, &pods),
        conditions: list(&cnr["status"]["conditions"]),
        taints: list(&cnr["spec"]["taints"]),
    })
}

/// Each figure with its terms, one below the other.
fn table(report: &LendingReport) -> String {
    let mut text = format!("node       {}\n", report.node);
    if report.figures.is_empty() {
        text.push_str(
            "agent      no report from an agent of Tidepool; see docs/run-the-agent.md\n",
        );
    }
    for figure in &report.figures {
        text.push_str(&sum(figure));
    }
    if let Some(tiers) = &report.tiers {
        text.push_str(&table_of_tiers(tiers));
    }
    if let Some(zones) = &report.numa {
        text.push_str(&zones.text());
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
        let [kind, message] = [&condition["type"], &condition["message"]];
        let [kind, message] = [kind, message].map(|it| one_line(it.as_str().unwrap_or_default()));
        text.push_str(&format!("condition  {kind}: {message}\n"));
    }
    text
}

/// A figure and its terms.
fn sum(figure: &Figure) -> String {
    let value = amount(figure.value, &figure.unit);
    let mut text = format!("\n{}  {value}\n", one_line(&figure.name));
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
    text
}

fn table_of_tiers(tiers: &TierSums) -> String {
    let phase = match &*tiers.phase {
        "stale" => "stale: there is no current NodeMetric, so no new pod of a tier fits",
        "disabled" => "disabled in the settings",
        "current" => "from a current NodeMetric",
        other => other,
    };
    let mut text = format!("\ntiers      {phase}\n");
    if let Some(why) = &tiers.settings_error {
        text.push_str(&format!(
            "settings   not valid: {why}; the sums are those of the defaults\n"
        ));
    }
    for tier in &tiers.figures {
        text.push_str(&sum(&tier.figure));
        let published = match tier.published {
            Some(value) if value == tier.figure.value => continue,
            Some(value) => amount(value, &tier.figure.unit),
            None if tier.figure.value == 0 => continue,
            None => "nothing".to_owned(),
        };
        text.push_str(&format!("  the Node publishes {published}\n"));
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
    use crate::explain::tiers::TierSum;

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
            tiers: None,
            numa: None,
            conditions: vec![json!({"type": "Lending", "status": "True", "message": "ok"})],
            taints: vec![json!({"key": "tidepool.io/pressure", "value": "memory"})],
        };
        assert_eq!(
            table(&report),
            "node       n1\n\nreclaimed cpu  1.200 cores\n  CPUs        +2.000 cores\n  online use  -0.300 cores\n  \
             threshold   at most 1.200 cores\n\ntaints     tidepool.io/pressure memory\ncondition  Lending: ok\n"
        );
        report.figures[0].value = 1300;
        assert!(table(&report).contains("add up to 1.200 cores, not to the value"));
        report.figures[0].value = 1200;
        report.tiers = Some(TierSums {
            phase: "current".to_owned(),
            settings_error: None,
            figures: vec![TierSum {
                figure: report.figures[0].clone(),
                published: Some(1000),
            }],
        });
        let table = table(&report);
        assert!(
            table.contains("tiers      from a current NodeMetric\n"),
            "{table}"
        );
        let published = "threshold   at most 1.200 cores\n  the Node publishes 1.000 cores\n";
        assert!(table.contains(published), "{table}");
    }
}
