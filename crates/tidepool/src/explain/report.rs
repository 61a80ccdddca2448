//! A scheduler's report about a pod, as far as it is shown to people.
//!
//! Fields that are not there are empty: a scheduler may be newer or older than this program.

use std::{collections::BTreeMap, fmt::Write as _};

use control_plane::scheduler::observe::score_table::{ScoreRow, ScoreTable};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::{foreign::one_line, output};

/// Nodes that are named for one reason.
const MOST_NAMED: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    namespace: String,
    name: String,
    #[serde(default)]
    scheduler_name: String,
    state: String,
    /// Where it is or goes.
    node: Option<String>,
    until: Option<Timestamp>,
    latest_retry: Option<Timestamp>,
    #[serde(default)]
    rejected_by: Vec<String>,
    by: Option<String>,
    #[serde(default)]
    held_by: Vec<HeldBy>,
    attempts: Option<u32>,
    last_attempt: Option<Attempt>,
    nominated_node: Option<String>,
    verdict: Verdict,
    preemption: Option<Preemption>,
    #[serde(default)]
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct HeldBy {
    plugin: String,
    until: Timestamp,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    at: Timestamp,
    message: String,
    #[serde(default)]
    evicted: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Node(String),
    NoNode(String),
    Error(String),
    Foreign(String),
}

#[derive(Debug, Deserialize)]
struct Preemption {
    #[serde(default)]
    message: String,
    node: Option<String>,
    #[serde(default)]
    candidates: Vec<Candidate>,
}

#[derive(Debug, Deserialize)]
struct Candidate {
    node: String,
    #[serde(default)]
    victims: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Node {
    node: String,
    rejection: Option<Rejection>,
    plugin: Option<String>,
    #[serde(default)]
    scores: Vec<Score>,
    #[serde(default)]
    total: i64,
}

#[derive(Debug, Deserialize)]
struct Rejection {
    #[serde(default)]
    reasons: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Score {
    plugin: String,
    weighted: i64,
}

impl Report {
    /// Where the pod is, what a decision would come to now, and why.
    pub(super) fn summary(&self) -> String {
        self.summary_at(Timestamp::now())
    }

    fn summary_at(&self, now: Timestamp) -> String {
        let mut text = format!(
            "pod        {}/{} (scheduler {})\n",
            self.namespace, self.name, self.scheduler_name
        );
        let _ = writeln!(text, "state      {}", self.state(now));
        if let Some(attempt) = &self.last_attempt {
            let ago = span(now.duration_since(attempt.at));
            let _ = writeln!(text, "last try   {ago} ago: {}", one_line(&attempt.message));
            if !attempt.evicted.is_empty() {
                let _ = writeln!(text, "evicted    {}", attempt.evicted.join(", "));
            }
        }
        if let Some(node) = &self.nominated_node {
            let _ = writeln!(text, "nominated  {node}: room is being made for it there");
        }
        let _ = writeln!(text, "{}", self.verdict());
        text.push_str(&self.reasons());
        if let Some(preemption) = &self.preemption {
            let _ = writeln!(text, "preempt    {}", preemption.words());
        }
        text
    }

    fn state(&self, now: Timestamp) -> String {
        let node = self.node.as_deref().unwrap_or("a node");
        let within = |time: &Option<Timestamp>| match time {
            Some(time) => span(time.duration_since(now)),
            None => "some time".to_owned(),
        };
        let mut text = match &self.state[..] {
            "active" => "waits for its turn".to_owned(),
            "backoff" => format!("was tried, and is tried again in {}", within(&self.until)),
            "unschedulable" => format!(
                "no node takes it; it is tried again when something changes for {}, at the latest in {}",
                self.rejected_by.join(", "),
                within(&self.latest_retry)
            ),
            "gated" => format!(
                "kept out of the queue by {}",
                self.by.as_deref().unwrap_or("a plugin")
            ),
            "askingExtenders" => "extenders are being asked about it".to_owned(),
            "waiting" => {
                let held = self
                    .held_by
                    .iter()
                    .map(|it| format!("{} for {}", it.plugin, span(it.until.duration_since(now))));
                let held: Vec<String> = held.collect();
                format!("goes to {node}, held by {}", held.join(", "))
            }
            "preparing" => format!("goes to {node}, where its volumes are being made ready"),
            "binding" => format!("is being bound to {node}"),
            "placed" => format!("is on {node}"),
            other => other.to_owned(),
        };
        match self.attempts {
            Some(1) => text.push_str(" (1 try so far)"),
            Some(count) if count > 1 => {
                let _ = write!(text, " ({count} tries so far)");
            }
            _ => {}
        }
        text
    }

    fn verdict(&self) -> String {
        let fitting = self.fitting().count();
        let count = format!("{fitting}/{} nodes fit", self.nodes.len());
        match &self.verdict {
            Verdict::Node(node) if Some(node) == self.node.as_ref() => {
                format!("now        {count}, and it would go there again")
            }
            Verdict::Node(node) => format!("now        {count}, and it would go to {node}"),
            Verdict::NoNode(message) if self.nodes.is_empty() => {
                format!("now        {}", one_line(message))
            }
            Verdict::NoNode(_) => format!("now        {count}"),
            Verdict::Error(message) => format!("error      {}", one_line(message)),
            Verdict::Foreign(message) => format!("foreign    {}", one_line(message)),
        }
    }

    fn fitting(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.rejection.is_none())
    }

    /// Nodes that say no, by reason, the most frequent first.
    fn reasons(&self) -> String {
        let mut groups: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
        for node in &self.nodes {
            if let Some(rejection) = &node.rejection {
                let plugin = node.plugin.as_deref().unwrap_or("-");
                let reasons = rejection.reasons.join(", ");
                let key = (one_line(&reasons).into_owned(), plugin);
                groups.entry(key).or_default().push(&node.node);
            }
        }
        if groups.is_empty() {
            return String::new();
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
        let head = ["  NODES", "WHY", "PLUGIN", "WHICH"];
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

    /// The table of the best nodes, as the scheduler's log has it.
    pub(super) fn scores(&self, top: usize) -> String {
        let mut nodes: Vec<&Node> = self.fitting().collect();
        if nodes.is_empty() {
            return "scores     no node fits, so there are none\n".to_owned();
        }
        nodes.sort_by_key(|node| {
            let is_chosen = matches!(&self.verdict, Verdict::Node(chosen) if *chosen == node.node);
            (std::cmp::Reverse(node.total), !is_chosen)
        });
        let plugins: Vec<&str> = nodes[0].scores.iter().map(|it| &it.plugin[..]).collect();
        let rows = nodes.iter().take(top).map(|node| ScoreRow {
            node: &node.node,
            score: node.total,
            scores: node.scores.iter().map(|it| it.weighted).collect(),
        });
        let table = ScoreTable {
            namespace: &self.namespace,
            name: &self.name,
            top,
            feasible_nodes: nodes.len(),
            plugins,
            rows: rows.collect(),
        };
        format!("\n{table}\n")
    }
}

impl Preemption {
    fn words(&self) -> String {
        let Some(node) = &self.node else {
            return match &self.message[..] {
                "" => "helps on no node".to_owned(),
                message => format!("helps on no node: {}", one_line(message)),
            };
        };
        let chosen = self.candidates.iter().find(|it| it.node == *node);
        let victims = chosen.map_or_else(String::new, |it| it.victims.join(", "));
        format!("would make room on {node} by evicting {victims}")
    }
}

/// A time in whole seconds; what is past is none.
fn span(duration: SignedDuration) -> String {
    let seconds = u64::try_from(duration.as_secs()).unwrap_or(0);
    humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(mut fields: serde_json::Value) -> Report {
        let common =
            json!({"namespace": "demo", "name": "web", "schedulerName": "default-scheduler"});
        if let (Some(fields), Some(common)) = (fields.as_object_mut(), common.as_object()) {
            fields.extend(common.clone());
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
state      no node takes it; it is tried again when something changes for NodeResourcesFit, NodeAffinity, at the latest in 4m 50s (3 tries so far)
last try   10s ago: 0/7 nodes\\nstate      is on a
now        0/7 nodes fit
  NODES  WHY                                                PLUGIN            WHICH
      5  Insufficient cpu                                   NodeResourcesFit  a c d e and 1 more
      1  an extender's\\nword                                Extender          g
      1  node(s) didn't match Pod's node affinity/selector  NodeAffinity      b
preempt    helps on no node: not eligible due to preemptionPolicy=Never.
";
        assert_eq!(report.summary_at(now()), want);
        assert_eq!(
            report.scores(3),
            "scores     no node fits, so there are none\n"
        );
    }

    #[test]
    fn why_a_pod_is_where_it_is() {
        let yes = |node: &str, total: i64| {
            json!({"node": node, "rejection": null, "plugin": null, "total": total, "scores": [
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
state      is on b
now        3/3 nodes fit, and it would go there again
";
        assert_eq!(report.summary_at(now()), want);
        let want = "
Top2 scores for Pod: demo/web, feasibleNodes: 3, plugins:[NodeResourcesFit TaintToleration]
| # | Pod | Node | Score | NodeResourcesFit | TaintToleration |
| --- | --- | --- | ---:| ---:| ---:|
| 0 | demo/web | b | 190 | 90 | 100 |
| 1 | demo/web | c | 170 | 70 | 100 |
";
        assert_eq!(report.scores(2), want);
    }

    #[test]
    fn every_state_has_words() {
        for (state, want) in [
            (json!({"state": "active"}), "waits for its turn"),
            (
                json!({"state": "backoff", "until": "2026-01-31T10:00:04Z"}),
                "tried again in 4s",
            ),
            (
                json!({"state": "gated", "by": "SchedulingGates"}),
                "kept out of the queue by SchedulingGates",
            ),
            (
                json!({"state": "waiting", "node": "a", "heldBy": [{"plugin": "Gang", "until": "2026-01-31T10:01:00Z"}]}),
                "goes to a, held by Gang for 1m",
            ),
            (
                json!({"state": "binding", "node": "a"}),
                "is being bound to a",
            ),
            (json!({"state": "somethingNew"}), "somethingNew"),
        ] {
            let mut fields = state.clone();
            fields["verdict"] = json!({"node": "a"});
            let text = report(fields).summary_at(now());
            assert!(text.contains(want), "{state}: {text}");
        }
        let victims = json!({"state": "active", "verdict": {"noNode": "none"}, "preemption": {
            "message": "", "node": "a", "candidates": [{"node": "a", "victims": ["demo/x", "demo/y"]}]}});
        let text = report(victims).summary_at(now());
        assert!(
            text.contains("would make room on a by evicting demo/x, demo/y"),
            "{text}"
        );
    }
}
