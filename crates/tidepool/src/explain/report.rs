//! The report about a pod, as text.

use std::fmt::Write as _;

use api::http::PodReport;
use engine::scheduling::scheduler::{
    Decision, PodState, PreemptionOutcome, UnhelpfulReport, ZonesReport,
};
use jiff::{SignedDuration, Timestamp};

use super::nodes;
use crate::{foreign::one_line, output};

/// The state of the pod, the decision that the scheduler would make now, and the reasons.
pub(super) fn summary(report: &PodReport, now: Timestamp) -> String {
    let mut text = format!(
        "pod        {}/{} (scheduler {})\n",
        report.namespace, report.name, report.scheduler_name
    );
    let _ = writeln!(text, "state      {}", state(report, now));
    if let Some(attempt) = &report.last_attempt {
        let ago = span(now.duration_since(attempt.at));
        // A scheduler of an older version sends only the whole message.
        let reasons = match &attempt.reasons[..] {
            "" => &attempt.message,
            reasons => reasons,
        };
        let is_same = matches!(&report.verdict, Decision::NoNode(now) if now.starts_with(reasons));
        let result = match is_same {
            true => "the same result as now".into(),
            false => one_line(reasons),
        };
        let _ = writeln!(text, "last try   {ago} ago: {result}");
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
    if let Some(zones) = &report.zones {
        let _ = writeln!(text, "zones      {}", zones_text(report, zones));
    }
    let _ = writeln!(text, "{}", nodes::verdict(report));
    text.push_str(&nodes::reasons(report));
    text.push_str(&nodes::shortages(report));
    if let Some(preemption) = preemption_text(report) {
        let _ = writeln!(text, "preempt    {preemption}");
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

/// The NUMA zones that the pod has or would get, and why fewer do not suffice.
fn zones_text(report: &PodReport, zones: &ZonesReport) -> String {
    let verb = match report.state {
        PodState::Waiting { .. }
        | PodState::Preparing { .. }
        | PodState::Binding { .. }
        | PodState::Placed { .. } => "",
        PodState::Active
        | PodState::Backoff { .. }
        | PodState::Unschedulable { .. }
        | PodState::Gated { .. }
        | PodState::AskingExtenders => "would get ",
    };
    let noun = if zones.zones.contains(',') {
        "zones"
    } else {
        "zone"
    };
    let mut text = match (&zones.zones[..], &zones.node[..]) {
        ("", node) => format!("none of {node}"),
        // A scheduler of an older version sends no node.
        (ids, "") => format!("{verb}NUMA {noun} {ids}"),
        (ids, node) => {
            let how = match zones.is_exclusive {
                true => "exclusive",
                false => "shared",
            };
            format!("{verb}NUMA {noun} {ids} of {node}, {how}")
        }
    };
    if let Some(why) = &zones.why {
        let fewer = zones.zones.split(',').count() - 1;
        let fewer = output::count(fewer, "zone");
        let _ = write!(text, "; not {fewer}: {why}");
    }
    if let Some(refused) = &zones.refused {
        let _ = write!(text, "; an older pod has {refused} of its annotation");
    }
    one_line(&text).into_owned()
}

/// What preemption would do; `None` if no plugin tried it.
fn preemption_text(report: &PodReport) -> Option<String> {
    let preemption = report.preemption.as_ref()?;
    if let Some(node) = &preemption.node {
        let mut candidates = preemption.candidates.iter();
        let chosen = candidates.find(|it| it.node == *node);
        let victims = chosen.map_or_else(String::new, |it| it.victims.join(", "));
        return Some(format!("would evict {victims} from {node}"));
    }
    let why = match preemption.outcome {
        PreemptionOutcome::NotTried => return None,
        PreemptionOutcome::NoCandidate => no_candidate(report, &preemption.unhelpful),
        PreemptionOutcome::PolicyNever => "the preemptionPolicy of the pod is Never".to_owned(),
        PreemptionOutcome::VictimsTerminate => {
            return Some("waits for preempted pods to terminate on the nominated node".to_owned());
        }
        PreemptionOutcome::NoneAllowed => {
            "an extender or the QoS level of the pod forbids every eviction that helps".to_owned()
        }
        PreemptionOutcome::Found | PreemptionOutcome::Failed | PreemptionOutcome::Unknown => {
            one_line(&preemption.message).into_owned()
        }
    };
    Some(match &why[..] {
        "" => "not possible".to_owned(),
        why => format!("not possible: {why}"),
    })
}

/// Why evicting pods helps on no node.
fn no_candidate(report: &PodReport, unhelpful: &[UnhelpfulReport<String>]) -> String {
    let nodes = |number| output::count(number, "node");
    let without_victims = unhelpful.iter().filter(|it| it.plugin.is_none()).count();
    let useless = report.nodes.len().saturating_sub(without_victims);
    let mut texts = Vec::new();
    if without_victims > 0 {
        let nodes = nodes(without_victims);
        texts.push(format!("no pods of lower priority on {nodes}"));
    }
    if useless > 0 {
        let nodes = nodes(useless);
        texts.push(format!("evicting pods does not help on {nodes}"));
    }
    texts.join("; ")
}

/// Whole seconds; 0 for the past.
fn span(duration: SignedDuration) -> String {
    let seconds = u64::try_from(duration.as_secs()).unwrap_or(0);
    humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A report with these fields, and without anything else.
    pub(in crate::explain) fn report(mut fields: serde_json::Value) -> PodReport {
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
        let mut tainted = no("b", "node(s) had untolerated taint(s)", "TaintToleration");
        tainted["explanation"] = "node(s) had untolerated taint(s): gpu=yes:NoSchedule".into();
        let message =
            "0/7 nodes\nstate      is on a. no new claims to deallocate, preemption: many";
        let report = report(json!({
            "state": "unschedulable", "rejectedBy": ["NodeResourcesFit", "TaintToleration"],
            "latestRetry": "2026-01-31T10:04:50Z", "attempts": 3,
            "lastAttempt": {"at": "2026-01-31T09:59:50Z", "reason": "Unschedulable", "message": message,
                "reasons": "0/7 nodes\nstate      is on a.", "evicted": []},
            "verdict": {"noNode": "0/6 nodes are available: many."},
            "shortages": [
                {"resource": "cpu", "requested": "8", "nodes": 5, "canNeverFit": true,
                    "mostFree": {"node": "c", "amount": "3500m"}, "largest": {"node": "a", "amount": "4"}},
                {"resource": "memory", "requested": "4Gi", "nodes": 1, "canNeverFit": false,
                    "mostFree": {"node": "d", "amount": "1Gi"}, "largest": {"node": "b", "amount": "64Gi"}},
                {"resource": "example.com/gpu", "requested": "1", "nodes": 5, "canNeverFit": true,
                    "mostFree": {"node": "a", "amount": "0"}, "largest": {"node": "a", "amount": "0"}},
            ],
            "preemption": {"message": "preemption: many", "outcome": "noCandidate", "node": null, "candidates": [],
                "unhelpful": [{"node": "a", "plugin": null, "rejection": {"status": "Unschedulable", "reasons": []}}]},
            "nodes": [
                no("a", "Insufficient cpu", "NodeResourcesFit"),
                tainted,
                no("c", "Insufficient cpu", "NodeResourcesFit"), no("d", "Insufficient cpu", "NodeResourcesFit"),
                no("e", "Insufficient cpu", "NodeResourcesFit"), no("f", "Insufficient cpu", "NodeResourcesFit"),
                no("g", "an extender's\nword", "Extender"),
            ],
        }));
        let want = "\
pod        demo/web (scheduler default-scheduler)
state      unschedulable: rejected by NodeResourcesFit, TaintToleration; next attempt after a cluster event that can help, or in 4m 50s (3 attempts so far)
last try   10s ago: 0/7 nodes\\nstate      is on a.
now        0/7 nodes fit
  NODES  REASON                                                PLUGIN            NAMES
      5  Insufficient cpu                                      NodeResourcesFit  a c d e and 1 more
      1  an extender's\\nword                                   Extender          g
      1  node(s) had untolerated taint(s): gpu=yes:NoSchedule  TaintToleration   b
  RESOURCE         REQUESTED  TOO LITTLE ON  MOST FREE THERE  LARGEST NODE
  cpu              8          5 nodes        3500m on c       4 on a: can never fit
  memory           4Gi        1 node         1Gi on d         64Gi on b
  example.com/gpu  1          5 nodes        0 on a           no node has it
preempt    not possible: no pods of lower priority on 1 node; evicting pods does not help on 6 nodes
";
        assert_eq!(summary(&report, now()), want);
    }

    #[test]
    fn a_result_is_shown_once() {
        for (now_, want) in [
            (
                "0/1 nodes are available: 1 no. not found",
                "the same result as now",
            ),
            (
                "0/2 nodes are available: 2 no. not found",
                "0/1 nodes are available: 1 no.",
            ),
        ] {
            let report = report(json!({"state": "active", "verdict": {"noNode": now_},
                "lastAttempt": {"at": "2026-01-31T09:59:50Z", "reason": "Unschedulable", "evicted": [],
                    "message": "0/1 nodes are available: 1 no. not found", "reasons": "0/1 nodes are available: 1 no."}}));
            let text = summary(&report, now());
            let want = format!("last try   10s ago: {want}\n");
            assert!(text.contains(&want), "{text}");
        }
    }

    #[test]
    fn the_zones_of_a_pod_are_named() {
        let why = "it requests 6 of cpu, and 1 zone has at most 4";
        let two = json!({"node": "a", "zones": "0,1", "isExclusive": true, "why": why});
        let one = json!({"node": "a", "zones": "3", "isExclusive": false, "why": null});
        let lost =
            json!({"node": "a", "zones": "", "isExclusive": true, "refused": "2", "why": null});
        let older = json!({"zones": "0,1", "why": null});
        let placed = json!({"state": "placed", "node": "a"});
        let active = json!({"state": "active"});
        for (state, zones, want) in [
            (
                &placed,
                &two,
                "NUMA zones 0,1 of a, exclusive; not 1 zone: it requests 6 of cpu, and 1 zone has at most 4",
            ),
            (
                &active,
                &two,
                "would get NUMA zones 0,1 of a, exclusive; not 1 zone: it requests 6 of cpu, and 1 zone has at most 4",
            ),
            (&placed, &one, "NUMA zone 3 of a, shared"),
            (
                &placed,
                &lost,
                "none of a; an older pod has 2 of its annotation",
            ),
            (&placed, &older, "NUMA zones 0,1"),
        ] {
            let mut fields = state.clone();
            fields["verdict"] = json!({"node": "a"});
            fields["zones"] = zones.clone();
            let text = summary(&report(fields), now());
            let want = format!("\nzones      {want}\nnow ");
            assert!(text.contains(&want), "{text}");
        }
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
    }

    /// kube-scheduler's message is shown only where it says something to the reader.
    #[test]
    fn every_outcome_of_preemption_is_plain() {
        let message = "no new claims to deallocate, preemption: 0/1 nodes are available";
        for (outcome, want) in [
            ("notTried", None),
            (
                "noCandidate",
                Some("not possible: evicting pods does not help on 1 node"),
            ),
            (
                "policyNever",
                Some("not possible: the preemptionPolicy of the pod is Never"),
            ),
            (
                "victimsTerminate",
                Some("waits for preempted pods to terminate on the nominated node"),
            ),
            (
                "noneAllowed",
                Some(
                    "not possible: an extender or the QoS level of the pod forbids every eviction that helps",
                ),
            ),
            ("failed", Some(&format!("not possible: {message}")[..])),
            ("of the future", Some(&format!("not possible: {message}"))),
        ] {
            let node = json!({"node": "a", "rejection": {"status": "Unschedulable", "reasons": ["no"]},
                "plugin": "P", "scores": [], "total": 0, "isItsNode": false, "isNominated": false});
            let report = report(
                json!({"state": "active", "verdict": {"noNode": "none"}, "nodes": [node],
                "preemption": {"message": message, "outcome": outcome, "node": null, "unhelpful": [], "candidates": []}}),
            );
            assert_eq!(preemption_text(&report).as_deref(), want, "{outcome}");
        }
        let victims = json!({"state": "active", "verdict": {"noNode": "none"}, "preemption": {
            "message": "", "outcome": "found", "node": "a", "unhelpful": [],
            "candidates": [{"node": "a", "victims": ["demo/x", "demo/y"], "budgetViolations": 0}]}});
        let text = summary(&report(victims), now());
        assert!(text.contains("would evict demo/x, demo/y from a"), "{text}");
    }
}
