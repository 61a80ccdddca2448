//! The results for a case, and the differences between two of them.
//!
//! The field names are those of `e2e/oracle-kube/protocol.go`, which also explains each field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All results of kube-scheduler, or of our engine, for one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Verdicts {
    /// Node names in the order of the snapshot.
    pub nodes: Vec<String>,
    #[serde(default)]
    pub pre_enqueue: Vec<PluginStatus>,
    /// Every PreFilter plugin's own answer, in order.
    pub pre_filter: Vec<PreFilterStatus>,
    /// Per node, each plugin's own rejection, without nominated pods.
    pub filter: Vec<Vec<PluginStatus>>,
    pub cycle: Cycle,
    /// Per node, whether its kubelet would admit the pod.
    pub kubelet: Vec<Admission>,
    /// What may help the pod if it was rejected.
    #[serde(default)]
    pub hints: Vec<Hint>,
}

/// The plugins for which an event may make a difference to the pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hint {
    pub event: String,
    /// Always true; who is not helped is not named.
    pub helps: BTreeMap<String, bool>,
}

/// The scheduling cycle as it really runs, with its early ends and nominated pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Cycle {
    /// The error that aborted the cycle.
    #[serde(default)]
    pub failure: Option<String>,
    #[serde(default)]
    pub pre_filter: Option<PluginStatus>,
    #[serde(default)]
    pub rejected: Vec<NodeStatus>,
    pub feasible: Vec<String>,
    #[serde(default)]
    pub scores: Vec<PluginScores>,
    /// In the order of `feasible`.
    #[serde(default)]
    pub totals: Vec<i64>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub preemption: Option<Preemption>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PluginStatus {
    #[serde(default)]
    pub plugin: String,
    pub code: String,
    #[serde(default)]
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreFilterStatus {
    #[serde(flatten)]
    pub status: PluginStatus,
    /// The nodes that the plugin narrows the search to.
    #[serde(default)]
    pub nodes: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    pub node: String,
    #[serde(flatten)]
    pub status: PluginStatus,
}

/// In the order of `Cycle::feasible`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PluginScores {
    pub plugin: String,
    pub weight: i64,
    pub raw: Vec<i64>,
    pub normalized: Vec<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Preemption {
    pub candidates: Vec<Candidate>,
    #[serde(default)]
    pub unhelpful: Vec<NodeStatus>,
    #[serde(default)]
    pub selected: Option<String>,
    /// The nodes that upstream could as well have selected, `selected` among them.
    #[serde(default)]
    pub tied: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Candidate {
    pub node: String,
    /// `namespace/name`, most important first.
    pub victims: Vec<String>,
    pub pdb_violations: i64,
}

/// The reason and message are those of the first failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admission {
    pub admit: bool,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub failures: Vec<String>,
}

/// Plugins whose hints may be wider than kube-scheduler's, never narrower, because it lets pods sleep that could be helped.
///
/// - InterPodAffinity: pods that others keep away, when a node comes; pods that avoid others for several reasons, when
///   one of them ends; pods with a selector of namespaces, when a pod comes or goes there.
/// - NodeAffinity: pods that only the affinity of the configuration keeps away, when a node's labels change.
const WIDER: [&str; 2] = ["InterPodAffinity", "NodeAffinity"];

/// The message of Katalyst for a pod that gets no NUMA zones.
const CANNOT_ALIGN: &str = "cannot align container";

impl Verdicts {
    /// Why nodes were rejected.
    fn statuses(&self) -> impl Iterator<Item = &PluginStatus> {
        let rejected = self.cycle.rejected.iter().map(|it| &it.status);
        self.filter.iter().flatten().chain(rejected)
    }

    fn statuses_mut(&mut self) -> impl Iterator<Item = &mut PluginStatus> {
        let rejected = self.cycle.rejected.iter_mut().map(|it| &mut it.status);
        self.filter.iter_mut().flatten().chain(rejected)
    }
}

/// One line per value on which the two differ; empty when they agree.
pub(crate) fn differences(ours: &Verdicts, theirs: &Verdicts) -> Vec<String> {
    let mut theirs = theirs.clone();
    // Upstream leaves equal candidates to the order of a map: any of them is right.
    if let (Some(ours), Some(theirs)) = (&ours.cycle.preemption, &mut theirs.cycle.preemption)
        && let Some(selected) = &ours.selected
        && theirs.tied.contains(selected)
    {
        theirs.selected = Some(selected.clone());
    }
    // It looks at several nodes at once, so it may name any of their invalid scores.
    if let (Some(ours), Some(theirs)) = (&ours.cycle.failure, &mut theirs.cycle.failure)
        && let Some(text) = invalid_score(ours)
        && invalid_score(theirs) == Some(text)
    {
        theirs.clone_from(ours);
    }
    // It does not say why; ours does, behind its words.
    for (ours, theirs) in ours.statuses().zip(theirs.statuses_mut()) {
        let agrees = |(ours, theirs): (&String, &String)| {
            theirs == CANNOT_ALIGN && ours.starts_with("cannot align container: ")
        };
        let mut pairs = ours.reasons.iter().zip(&theirs.reasons);
        if ours.reasons.len() == theirs.reasons.len() && pairs.all(agrees) {
            theirs.reasons.clone_from(&ours.reasons);
        }
    }
    for (ours, theirs) in ours.hints.iter().zip(&mut theirs.hints) {
        for plugin in WIDER
            .iter()
            .filter(|plugin| ours.helps.contains_key(**plugin))
        {
            theirs.helps.insert((*plugin).to_owned(), true);
        }
    }
    let mut lines = Vec::new();
    let as_json = |verdicts| serde_json::to_value(verdicts).expect("verdicts are plain data");
    compare("", &as_json(ours), &as_json(&theirs), &mut lines);
    lines
}

/// The text of such a failure before and after the score.
fn invalid_score(failure: &str) -> Option<(&str, &str)> {
    let (before, rest) = failure.split_once(" returns an invalid score ")?;
    let after = rest.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
    Some((before, after))
}

fn compare(path: &str, ours: &Value, theirs: &Value, lines: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                compare(
                    &join(path, key),
                    value,
                    right.get(key).unwrap_or(&Value::Null),
                    lines,
                );
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                compare(&join(path, key), &Value::Null, value, lines);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (position, (left, right)) in left.iter().zip(right).enumerate() {
                let label = label(right).map_or_else(|| position.to_string(), str::to_owned);
                compare(&format!("{path}[{label}]"), left, right, lines);
            }
        }
        // What one side lacks should not hide how the rest compares.
        (Value::Array(left), Value::Array(right))
            if left.iter().chain(right).all(|entry| label(entry).is_some()) =>
        {
            let find = |list: &[Value], entry: &Value| {
                let found = list.iter().find(|other| label(other) == label(entry));
                found.cloned().unwrap_or(Value::Null)
            };
            let only_ours = left.iter().filter(|entry| find(right, entry).is_null());
            for entry in right.iter().chain(only_ours) {
                let path = format!("{path}[{}]", label(entry).unwrap_or_default());
                compare(&path, &find(left, entry), &find(right, entry), lines);
            }
        }
        _ if ours != theirs => lines.push(format!("{path}: ours {ours}, theirs {theirs}")),
        _ => {}
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// An entry is better known by its node, plugin or event than by its position.
fn label(entry: &Value) -> Option<&str> {
    ["node", "plugin", "event"]
        .iter()
        .find_map(|key| entry.get(key)?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdicts() -> Verdicts {
        serde_json::from_value(json!({
            "nodes": ["a", "b"],
            "preFilter": [{"plugin": "NodePorts", "code": "Skip"}],
            "filter": [[], []],
            "kubelet": [{"admit": true}, {"admit": true}],
            "cycle": {
                "feasible": ["a", "b"],
                "scores": [{"plugin": "ImageLocality", "weight": 1, "raw": [3, 4], "normalized": [3, 4]}],
                "totals": [3, 4],
                "preemption": {
                    "candidates": [{"node": "a", "victims": ["x/y"], "pdbViolations": 0}],
                    "selected": "a",
                    "tied": ["a", "b"],
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn equal_verdicts_have_no_differences() {
        assert_eq!(differences(&verdicts(), &verdicts()), [""; 0]);
    }

    #[test]
    fn a_difference_names_its_place_and_both_values() {
        let mut ours = verdicts();
        ours.cycle.scores[0].raw[1] = 5;
        ours.nodes.pop();
        assert_eq!(
            differences(&ours, &verdicts()),
            [
                r#"nodes: ours ["a"], theirs ["a","b"]"#,
                "cycle.scores[ImageLocality].raw[1]: ours 5, theirs 4",
            ]
        );
    }

    #[test]
    fn any_invalid_score_may_be_named_but_no_other_plugin() {
        let failing = |plugin: &str, score: i64| {
            let mut verdicts = verdicts();
            let text = format!("plugin \"{plugin}\" returns an invalid score {score}, it should");
            verdicts.cycle.failure = Some(text);
            verdicts
        };
        let agree = |ours, theirs| differences(&ours, &theirs).is_empty();
        assert!(agree(failing("A", 150), failing("A", -3)));
        assert!(!agree(failing("A", 150), failing("B", 150)));
    }

    #[test]
    fn a_pod_may_be_woken_more_often_by_some_plugins_and_never_less() {
        let hinting = |plugins: &[&str]| {
            let helps = plugins.iter().map(|plugin| ((*plugin).to_owned(), true));
            let mut verdicts = verdicts();
            verdicts.hints.push(Hint {
                event: "NodeAdd a".to_owned(),
                helps: helps.collect(),
            });
            verdicts
        };
        let differ = |ours, theirs| differences(&hinting(ours), &hinting(theirs));
        assert_eq!(differ(&WIDER, &[]), [""; 0]);
        assert_eq!(
            differ(&[], &WIDER[..1]),
            ["hints[NodeAdd a].helps.InterPodAffinity: ours null, theirs true"]
        );
        assert_eq!(
            differ(&["NodePorts"], &[]),
            ["hints[NodeAdd a].helps.NodePorts: ours true, theirs null"]
        );
    }

    #[test]
    fn any_of_the_tied_candidates_may_be_selected_and_no_other() {
        let mut ours = verdicts();
        let mut select = |node: &str| {
            ours.cycle.preemption.as_mut().unwrap().selected = Some(node.to_owned());
            differences(&ours, &verdicts())
        };
        assert_eq!(select("b"), [""; 0]);
        assert_eq!(
            select("c"),
            [r#"cycle.preemption.selected: ours "c", theirs "a""#]
        );
    }
}
