//! The nodes in the report about a pod, as text: the decision, the reasons, the amounts and the scores.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use api::http::PodReport;
use control_plane::scheduler::observe::score_table::{ScoreRow, ScoreTable};
use engine::model::Name;
use engine::scheduling::evaluate::by_tier;
use engine::scheduling::scheduler::{Decision, NodeReport, Shortage};

use crate::{
    foreign::one_line,
    output::{self, count},
};

/// Nodes that are named at one place.
const MOST_NAMED: usize = 4;

type Node = NodeReport<String>;

/// The decision that the scheduler would make now.
pub(super) fn verdict(report: &PodReport) -> String {
    let count = format!(
        "{}/{} nodes fit",
        fitting(report).count(),
        report.nodes.len()
    );
    match &report.verdict {
        Decision::Node(chosen) => {
            format!("now        {count}; {}", choice(report, chosen))
        }
        Decision::NoNode(message) if report.nodes.is_empty() => {
            format!("now        {}", one_line(message))
        }
        Decision::NoNode(_) => format!("now        {count}"),
        Decision::Error(message) => format!("error      {}", one_line(message)),
        Decision::Foreign(message) => format!("foreign    {}", one_line(message)),
    }
}

/// Which node the scheduler would choose, and why that one. Nodes with equal scores take turns, so none of them is better.
fn choice(report: &PodReport, chosen: &str) -> String {
    let best = report.nodes.iter().find(|node| name(node) == chosen);
    let own = report.nodes.iter().find(|node| node.is_its_node);
    let Some(best) = best else {
        return format!("the scheduler would choose {chosen}");
    };
    if best.is_nominated {
        return format!("the scheduler would choose {chosen}, the nominated node");
    }
    let score = best.result.total;
    let is_as_good = |node: &Node| {
        node.result.total == score && by_tier(&node.result.tiers, &best.result.tiers).is_eq()
    };
    let tie = fitting(report).filter(|node| is_as_good(node));
    let fits = |node: &&Node| node.result.verdict.rejection.is_none();
    match own {
        Some(own) if fits(&own) && is_as_good(own) => {
            let others: Vec<&str> = tie.map(name).filter(|it| *it != name(own)).collect();
            match others.is_empty() {
                true => "the scheduler would choose the same node".to_owned(),
                false => format!(
                    "its node and {} have the same best score, {score}",
                    named(&others, ", ")
                ),
            }
        }
        Some(own) if fits(&own) && by_tier(&own.result.tiers, &best.result.tiers).is_ne() => {
            format!(
                "the scheduler would choose {chosen} of unit {}; its node is of unit {}",
                tiers(best),
                tiers(own)
            )
        }
        Some(own) if fits(&own) => format!(
            "the scheduler would choose {chosen} with score {score}; its node has {}",
            own.result.total
        ),
        Some(_) => {
            format!("the scheduler would choose {chosen}; its node does not fit now")
        }
        None => {
            let tied: Vec<&str> = tie.map(name).collect();
            match tied.len() {
                0 | 1 => format!("the scheduler would choose {chosen}"),
                _ => format!(
                    "{} have the same best score, {score}; the scheduler would choose {chosen} now",
                    named(&tied, ", ")
                ),
            }
        }
    }
}

fn tiers(node: &Node) -> String {
    let names: Vec<&str> = node.result.tiers.iter().map(|tier| &*tier.name).collect();
    names.join(" ")
}

fn name(node: &Node) -> &str {
    &node.result.verdict.node
}

/// The first names, and the number of the others.
fn named(nodes: &[&str], separator: &str) -> String {
    let mut text = nodes[..nodes.len().min(MOST_NAMED)].join(separator);
    if nodes.len() > MOST_NAMED {
        let _ = write!(text, " and {} more", nodes.len() - MOST_NAMED);
    }
    text
}

fn fitting(report: &PodReport) -> impl Iterator<Item = &Node> {
    let nodes = report.nodes.iter();
    nodes.filter(|node| node.result.verdict.rejection.is_none())
}

/// Nodes that do not fit, by reason, the most frequent first.
pub(super) fn reasons(report: &PodReport) -> String {
    let mut groups: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for node in &report.nodes {
        let verdict = &node.result.verdict;
        if let Some(rejection) = &verdict.rejection {
            let plugin = verdict.plugin.as_deref().unwrap_or("-");
            let reason = match &node.result.explanation {
                Some(text) => text.clone(),
                None => rejection.message(),
            };
            let key = (one_line(&reason).into_owned(), plugin);
            groups.entry(key).or_default().push(&verdict.node);
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, nodes)| Reverse(nodes.len()));
    let head = ["  NODES", "REASON", "PLUGIN", "NAMES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(groups.into_iter().map(|((reason, plugin), nodes)| {
        let named = named(&nodes, " ");
        vec![nodes.len().to_string(), reason, plugin.to_owned(), named]
    }));
    output::columns(&rows)
}

/// Resources that nodes have too little of: what the pod requests, what is free, and the largest node.
pub(super) fn shortages(report: &PodReport) -> String {
    if report.shortages.is_empty() {
        return String::new();
    }
    let head = [
        "  RESOURCE",
        "REQUESTED",
        "TOO LITTLE ON",
        "MOST FREE THERE",
        "LARGEST NODE",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(report.shortages.iter().map(|short| {
        let Shortage {
            resource,
            requested,
            most_free,
            largest,
            ..
        } = short;
        let largest = match (&largest.amount[..], short.can_never_fit) {
            ("0", _) => "no node has it".to_owned(),
            (amount, true) => format!("{amount} on {}: can never fit", largest.node),
            (amount, false) => format!("{amount} on {}", largest.node),
        };
        let free = format!("{} on {}", most_free.amount, most_free.node);
        let nodes = count(short.nodes, "node");
        let cells = [
            format!("  {resource}"),
            requested.clone(),
            nodes,
            free,
            largest,
        ];
        cells.map(|cell| one_line(&cell).into_owned()).to_vec()
    }));
    output::columns(&rows)
}

/// The table of the best nodes, as in the scheduler's log.
pub(super) fn scores(report: &PodReport, top: usize) -> String {
    let mut nodes: Vec<_> = fitting(report).map(|node| &node.result).collect();
    if nodes.is_empty() {
        let why = match &report.verdict {
            Decision::Foreign(_) => "another scheduler decides about this pod",
            Decision::Error(_) => "the scheduling cycle fails",
            Decision::Node(_) | Decision::NoNode(_) => "no node fits",
        };
        return format!("scores     none, because {why}\n");
    }
    let is_chosen = |node: &Name| matches!(&report.verdict, Decision::Node(it) if it == node);
    nodes.sort_by(|a, b| {
        by_tier(&a.tiers, &b.tiers)
            .then(b.total.cmp(&a.total))
            .then(is_chosen(&b.verdict.node).cmp(&is_chosen(&a.verdict.node)))
    });
    let plugins = nodes[0].scores.iter().map(|it| &it.plugin[..]);
    let rows = nodes.iter().take(top).map(|node| ScoreRow {
        node: &node.verdict.node,
        score: node.total,
        scores: node.scores.iter().map(|it| it.weighted).collect(),
        tiers: &node.tiers,
    });
    let table = ScoreTable {
        namespace: &report.namespace,
        name: &report.name,
        top,
        feasible_nodes: nodes.len(),
        plugins: plugins.collect(),
        rows: rows.collect(),
    };
    format!("\n{table}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::explain::report::tests::report;

    fn yes(node: &str, total: i64) -> Value {
        json!({"node": node, "rejection": null, "plugin": null, "total": total, "isItsNode": false, "isNominated": false, "scores": [
            {"plugin": "NodeResourcesFit", "raw": 1, "normalized": 1, "weighted": total - 100},
            {"plugin": "TaintToleration", "raw": 0, "normalized": 100, "weighted": 100},
        ]})
    }

    fn with(mut node: Value, field: &str, value: Value) -> Value {
        node[field] = value;
        node
    }

    #[test]
    fn equal_scores_are_a_tie() {
        let own = |node: Value| with(node, "isItsNode", true.into());
        let no = json!({"status": "Unschedulable", "reasons": ["no"]});
        let tier = |name: &str| json!([{"rank": name.len(), "name": name}]);
        for (case, nodes, chosen, want) in [
            (
                "the best",
                vec![yes("a", 150), yes("b", 190)],
                "b",
                "2/2 nodes fit; the scheduler would choose b",
            ),
            (
                "two are equal",
                vec![yes("a", 190), yes("b", 190), yes("c", 150)],
                "b",
                "3/3 nodes fit; a, b have the same best score, 190; the scheduler would choose b now",
            ),
            (
                "another tier is no tie",
                vec![
                    with(yes("a", 190), "tiers", tier("spot")),
                    with(yes("b", 190), "tiers", tier("reserved")),
                ],
                "b",
                "2/2 nodes fit; the scheduler would choose b",
            ),
            (
                "its node is the best",
                vec![yes("a", 150), own(yes("b", 190))],
                "b",
                "2/2 nodes fit; the scheduler would choose the same node",
            ),
            (
                "its node is as good as the next in turn",
                vec![yes("a", 190), own(yes("b", 190)), yes("c", 190)],
                "a",
                "3/3 nodes fit; its node and a, c have the same best score, 190",
            ),
            (
                "another node is better by now",
                vec![yes("a", 190), own(yes("b", 170))],
                "a",
                "2/2 nodes fit; the scheduler would choose a with score 190; its node has 170",
            ),
            (
                "of units with the same priority the score decides",
                vec![
                    with(yes("a", 190), "tiers", json!([{"rank": 5, "name": "x"}])),
                    with(
                        own(yes("b", 170)),
                        "tiers",
                        json!([{"rank": 5, "name": "y"}]),
                    ),
                ],
                "a",
                "2/2 nodes fit; the scheduler would choose a with score 190; its node has 170",
            ),
            (
                "another tier is better by now",
                vec![
                    with(yes("a", 150), "tiers", tier("reserved")),
                    with(own(yes("b", 190)), "tiers", tier("spot")),
                ],
                "a",
                "2/2 nodes fit; the scheduler would choose a of unit reserved; its node is of unit spot",
            ),
            (
                "its node does not fit by now",
                vec![yes("a", 190), with(own(yes("b", 0)), "rejection", no)],
                "a",
                "1/2 nodes fit; the scheduler would choose a; its node does not fit now",
            ),
            (
                "nominated",
                vec![
                    yes("a", 190),
                    with(yes("b", 150), "isNominated", true.into()),
                ],
                "b",
                "2/2 nodes fit; the scheduler would choose b, the nominated node",
            ),
        ] {
            let fields = json!({"state": "active", "verdict": {"node": chosen}, "nodes": nodes});
            assert_eq!(
                verdict(&report(fields)),
                format!("now        {want}"),
                "{case}"
            );
        }
    }

    #[test]
    fn scores_of_the_best_nodes() {
        let nodes = [yes("a", 150), yes("b", 190), yes("c", 170)];
        let fields = json!({"state": "active", "verdict": {"node": "b"}, "nodes": nodes});
        let want = "
Top2 scores for Pod: demo/web, feasibleNodes: 3, plugins:[NodeResourcesFit TaintToleration]
| # | Pod | Node | Score | NodeResourcesFit | TaintToleration |
| --- | --- | --- | ---:| ---:| ---:|
| 0 | demo/web | b | 190 | 90 | 100 |
| 1 | demo/web | c | 170 | 70 | 100 |
";
        assert_eq!(scores(&report(fields), 2), want);
    }

    #[test]
    fn scores_are_listed_by_tier_first() {
        let yes = |node: &str, rank: u32, tier: &str, total: i64| {
            json!({"node": node, "rejection": null, "plugin": null, "total": total, "isItsNode": false, "isNominated": false,
                "scores": [{"plugin": "resourcepolicy", "raw": 1, "normalized": 1, "weighted": total}],
                "tiers": [{"rank": rank, "name": tier}]})
        };
        let report = report(json!({
            "state": "active", "verdict": {"node": "c"},
            "nodes": [yes("a", 1001, "-", 300), yes("b", 5, "spot", 200), yes("c", 5, "other", 200), yes("d", 0, "reserved", 100)],
        }));
        let want = "
Top4 scores for Pod: demo/web, feasibleNodes: 4, plugins:[resourcepolicy]
| # | Pod | Node | Unit | Score | resourcepolicy |
| --- | --- | --- | --- | ---:| ---:|
| 0 | demo/web | d | reserved | 100 | 100 |
| 1 | demo/web | c | other | 200 | 200 |
| 2 | demo/web | b | spot | 200 | 200 |
| 3 | demo/web | a | - | 300 | 300 |
";
        assert_eq!(scores(&report, 4), want);
    }

    #[test]
    fn without_scores_there_is_a_reason() {
        for (verdict, want) in [
            (json!({"noNode": "0/1 nodes"}), "no node fits"),
            (
                json!({"foreign": "scheduler `x` decides"}),
                "another scheduler decides about this pod",
            ),
            (json!({"error": "no"}), "the scheduling cycle fails"),
        ] {
            let fields = json!({"state": "placed", "node": "a", "verdict": verdict});
            let want = format!("scores     none, because {want}\n");
            assert_eq!(scores(&report(fields), 3), want);
        }
    }
}
