//! The report about a pod, as text.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use api::http::PodReport;
use control_plane::scheduler::observe::score_table::{ScoreRow, ScoreTable};
use engine::scheduler::{Decision, NodeReport, PodState, PreemptionReport};
use jiff::{SignedDuration, Timestamp};

use crate::{foreign::one_line, output};

/// Nodes that are named for one reason.
const MOST_NAMED: usize = 4;

/// The state of the pod, the decision that the scheduler would make now, and the reasons.
pub(super) fn summary(report: &PodReport, now: Timestamp) -> String {
    let mut text = format!(
        "pod        {}/{} (scheduler {})\n",
        report.namespace, report.name, report.scheduler_name
    );
    let _ = writeln!(text, "state      {}", state(report, now));
    if let Some(attempt) = &report.last_attempt {
        let ago = span(now.duration_since(attempt.at));
        let _ = writeln!(text, "last try   {ago} ago: {}", one_line(&attempt.message));
        if !attempt.evicted.is_empty() {
            let _ = writeln!(text, "evicted    {}", attempt.evicted.join(", "));
        }
    }
    if let Some(node) = &report.nominated_node {
        let _ = writeln!(
            text,
            "nominated  {node}: waits for victims to terminate there"
        );
    }
    let _ = writeln!(text, "{}", verdict(report));
    text.push_str(&reasons(report));
    if let Some(preemption) = &report.preemption {
        let _ = writeln!(text, "preempt    {}", preemption_text(preemption));
    }
    text
}

fn state(report: &PodReport, now: Timestamp) -> String {
    let within = |time: &Timestamp| span(time.duration_since(now));
    let mut text = match &report.state {
        PodState::Active => "in the active queue".to_owned(),
        PodState::Backoff { until } => format!("in backoff, next attempt in {}", within(until)),
        PodState::Unschedulable {
            rejected_by,
            latest_retry,
        } => format!(
            "unschedulable: rejected by {}; next attempt after a cluster event that can help, or in {}",
            rejected_by.join(", "),
            within(latest_retry)
        ),
        PodState::Gated { by, .. } => format!("gated by {by}"),
        PodState::AskingExtenders => "waits for extenders".to_owned(),
        PodState::Waiting { node, held_by } => {
            let held = held_by
                .iter()
                .map(|it| format!("{} for {}", it.plugin, within(&it.until)));
            let held: Vec<String> = held.collect();
            format!("assigned to {node}, waits on permit of {}", held.join(", "))
        }
        PodState::Preparing { node } => format!("assigned to {node}, waits for its volumes"),
        PodState::Binding { node } => format!("being bound to {node}"),
        PodState::Placed { node } => format!("bound to {node}"),
    };
    match report.attempts {
        Some(1) => text.push_str(" (1 attempt so far)"),
        Some(count) if count > 1 => {
            let _ = write!(text, " ({count} attempts so far)");
        }
        _ => {}
    }
    text
}

fn verdict(report: &PodReport) -> String {
    let count = format!(
        "{}/{} nodes fit",
        fitting(report).count(),
        report.nodes.len()
    );
    let is_its_node = |node: &str| {
        let mut nodes = report.nodes.iter();
        nodes.any(|it| it.is_its_node && *it.result.verdict.node == *node)
    };
    match &report.verdict {
        Decision::Node(node) if is_its_node(node) => {
            format!("now        {count}; the scheduler would choose the same node")
        }
        Decision::Node(node) => format!("now        {count}; the scheduler would choose {node}"),
        Decision::NoNode(message) if report.nodes.is_empty() => {
            format!("now        {}", one_line(message))
        }
        Decision::NoNode(_) => format!("now        {count}"),
        Decision::Error(message) => format!("error      {}", one_line(message)),
        Decision::Foreign(message) => format!("foreign    {}", one_line(message)),
    }
}

fn fitting(report: &PodReport) -> impl Iterator<Item = &NodeReport<String>> {
    let nodes = report.nodes.iter();
    nodes.filter(|node| node.result.verdict.rejection.is_none())
}

/// Nodes that do not fit, by reason, the most frequent first.
fn reasons(report: &PodReport) -> String {
    let mut groups: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for node in &report.nodes {
        let verdict = &node.result.verdict;
        if let Some(rejection) = &verdict.rejection {
            let plugin = verdict.plugin.as_deref().unwrap_or("-");
            let key = (one_line(&rejection.message()).into_owned(), plugin);
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
        let mut named = nodes[..nodes.len().min(MOST_NAMED)].join(" ");
        if nodes.len() > MOST_NAMED {
            let _ = write!(named, " and {} more", nodes.len() - MOST_NAMED);
        }
        vec![nodes.len().to_string(), reason, plugin.to_owned(), named]
    }));
    output::columns(&rows)
}

/// The table of the best nodes, as in the scheduler's log.
pub(super) fn scores(report: &PodReport, top: usize) -> String {
    let mut nodes: Vec<_> = fitting(report).map(|node| &node.result).collect();
    if nodes.is_empty() {
        return "scores     none, because no node fits\n".to_owned();
    }
    nodes.sort_by_key(|node| {
        let is_chosen =
            matches!(&report.verdict, Decision::Node(chosen) if *chosen == node.verdict.node);
        (Reverse(node.total), !is_chosen)
    });
    let plugins = nodes[0].scores.iter().map(|it| &it.plugin[..]);
    let rows = nodes.iter().take(top).map(|node| ScoreRow {
        node: &node.verdict.node,
        score: node.total,
        scores: node.scores.iter().map(|it| it.weighted).collect(),
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

fn preemption_text(preemption: &PreemptionReport<String>) -> String {
    let Some(node) = &preemption.node else {
        return match &preemption.message[..] {
            "" => "not possible".to_owned(),
            message => format!("not possible: {}", one_line(message)),
        };
    };
    let chosen = preemption.candidates.iter().find(|it| it.node == *node);
    let victims = chosen.map_or_else(String::new, |it| it.victims.join(", "));
    format!("would evict {victims} from {node}")
}

/// Whole seconds; 0 for the past.
fn span(duration: SignedDuration) -> String {
    let seconds = u64::try_from(duration.as_secs()).unwrap_or(0);
    humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(mut fields: serde_json::Value) -> PodReport {
        let common = json!({"namespace": "demo", "name": "web", "uid": "u", "schedulerName": "default-scheduler",
            "attempts": null, "lastAttempt": null, "nominatedNode": null, "preemption": null, "extenders": [], "nodes": []});
        for (name, value) in common.as_object().unwrap() {
            if fields.get(name).is_none() {
                fields[name] = value.clone();
            }
        }
        serde_json::from_value(fields).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-31T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn why_a_pod_waits() {
        let no = |node: &str, why: &str, plugin: &str| {
            json!({"node": node, "rejection": {"status": "Unschedulable", "reasons": [why]}, "plugin": plugin,
                "scores": [], "total": 0, "isItsNode": false, "isNominated": false})
        };
        let report = report(json!({
            "state": "unschedulable", "rejectedBy": ["NodeResourcesFit", "NodeAffinity"],
            "latestRetry": "2026-01-31T10:04:50Z", "attempts": 3,
            "lastAttempt": {"at": "2026-01-31T09:59:50Z", "reason": "Unschedulable", "message": "0/7 nodes\nstate      is on a", "evicted": []},
            "verdict": {"noNode": "0/6 nodes are available: many."},
            "preemption": {"message": "not eligible due to preemptionPolicy=Never.", "node": null,
                "candidates": [], "unhelpful": []},
            "nodes": [
                no("a", "Insufficient cpu", "NodeResourcesFit"),
                no("b", "node(s) didn't match Pod's node affinity/selector", "NodeAffinity"),
                no("c", "Insufficient cpu", "NodeResourcesFit"), no("d", "Insufficient cpu", "NodeResourcesFit"),
                no("e", "Insufficient cpu", "NodeResourcesFit"), no("f", "Insufficient cpu", "NodeResourcesFit"),
                no("g", "an extender's\nword", "Extender"),
            ],
        }));
        let want = "\
pod        demo/web (scheduler default-scheduler)
state      unschedulable: rejected by NodeResourcesFit, NodeAffinity; next attempt after a cluster event that can help, or in 4m 50s (3 attempts so far)
last try   10s ago: 0/7 nodes\\nstate      is on a
now        0/7 nodes fit
  NODES  REASON                                             PLUGIN            NAMES
      5  Insufficient cpu                                   NodeResourcesFit  a c d e and 1 more
      1  an extender's\\nword                                Extender          g
      1  node(s) didn't match Pod's node affinity/selector  NodeAffinity      b
preempt    not possible: not eligible due to preemptionPolicy=Never.
";
        assert_eq!(summary(&report, now()), want);
        assert_eq!(
            scores(&report, 3),
            "scores     none, because no node fits\n"
        );
    }

    #[test]
    fn why_a_pod_is_where_it_is() {
        let yes = |node: &str, total: i64| {
            json!({"node": node, "rejection": null, "plugin": null, "total": total, "isItsNode": node == "b", "isNominated": false, "scores": [
                {"plugin": "NodeResourcesFit", "raw": 1, "normalized": 1, "weighted": total - 100},
                {"plugin": "TaintToleration", "raw": 0, "normalized": 100, "weighted": 100},
            ]})
        };
        let report = report(json!({
            "state": "placed", "node": "b", "attempts": null, "lastAttempt": null,
            "verdict": {"node": "b"}, "nodes": [yes("a", 150), yes("b", 190), yes("c", 170)],
        }));
        let want = "\
pod        demo/web (scheduler default-scheduler)
state      bound to b
now        3/3 nodes fit; the scheduler would choose the same node
";
        assert_eq!(summary(&report, now()), want);
        let want = "
Top2 scores for Pod: demo/web, feasibleNodes: 3, plugins:[NodeResourcesFit TaintToleration]
| # | Pod | Node | Score | NodeResourcesFit | TaintToleration |
| --- | --- | --- | ---:| ---:| ---:|
| 0 | demo/web | b | 190 | 90 | 100 |
| 1 | demo/web | c | 170 | 70 | 100 |
";
        assert_eq!(scores(&report, 2), want);
    }

    #[test]
    fn every_state_has_a_text() {
        for (state, want) in [
            (json!({"state": "active"}), "in the active queue"),
            (
                json!({"state": "backoff", "until": "2026-01-31T10:00:04Z"}),
                "next attempt in 4s",
            ),
            (
                json!({"state": "gated", "by": "SchedulingGates", "latestRetry": "2026-01-31T10:05:00Z"}),
                "gated by SchedulingGates",
            ),
            (
                json!({"state": "waiting", "node": "a", "heldBy": [{"plugin": "Gang", "until": "2026-01-31T10:01:00Z"}]}),
                "assigned to a, waits on permit of Gang for 1m",
            ),
            (json!({"state": "binding", "node": "a"}), "being bound to a"),
        ] {
            let mut fields = state.clone();
            fields["verdict"] = json!({"node": "a"});
            let text = summary(&report(fields), now());
            assert!(text.contains(want), "{state}: {text}");
        }
        let victims = json!({"state": "active", "verdict": {"noNode": "none"}, "preemption": {
            "message": "", "node": "a", "unhelpful": [], "candidates": [{"node": "a", "victims": ["demo/x", "demo/y"], "budgetViolations": 0}]}});
        let text = summary(&report(victims), now());
        assert!(text.contains("would evict demo/x, demo/y from a"), "{text}");
    }
}
