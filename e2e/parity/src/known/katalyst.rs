//! What Katalyst's scheduler does and the engine does not.

use serde_json::Value;

use super::{Case, Example, Known, list};

const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const NO_REPORT: &str = "node not found in the extended cache";

pub(crate) const KATALYST: &[Known] = &[
    Known {
        // One node without a report aborts the cycle of every reclaimed pod without requests; ours scores 0 there.
        name: "a node without a report cannot be scored",
        case: Example::Text(include_str!("katalyst-no-report.json")),
        matches: unscored,
    },
    Known {
        // Its cache knows a node once a reclaimed pod is on it, and then says that the node lends nothing.
        name: "the message for a node without a report depends on the pods on it",
        case: Example::Text(include_str!("katalyst-pod-without-report.json")),
        matches: reworded,
    },
    Known {
        // So a pod without the annotation uses lent resources that no account counts.
        name: "a pod that is not reclaimed may request reclaimed resources without limit",
        case: Example::Text(include_str!("katalyst-unannotated.json")),
        matches: unannotated,
    },
    Known {
        // It makes kube-scheduler's scorers with all feature gates off, those of long ago among them.
        name: "the overhead of a pod that is not reclaimed is left out of its scores",
        case: Example::Text(include_str!("katalyst-overhead.json")),
        matches: overhead,
    },
];

fn unscored(case: &Case, differences: &[String]) -> bool {
    let fails =
        |line: &String| line.starts_with("cycle.failure: ours null") && line.contains(NO_REPORT);
    is_reclaimed(&case.0["pod"])
        && differences.iter().any(fails)
        && differences.iter().all(|line| {
            let place = place(line);
            fails(line) || place.starts_with("cycle.scores") || place.starts_with("cycle.totals")
        })
}

fn reworded(case: &Case, differences: &[String]) -> bool {
    let has_report = |node: &Value| {
        let mut reports = list(&case.0, "customNodeResources");
        reports.any(|report| report["metadata"]["name"] == *node)
    };
    let borrowers = || list(&case.0, "pods").filter(|pod| is_reclaimed(pod));
    let mut hosts = borrowers().map(|pod| &pod["spec"]["nodeName"]);
    is_reclaimed(&case.0["pod"])
        && hosts.any(|node| !has_report(node))
        && differences.iter().all(|line| {
            let place = place(line);
            // Only the message differs: a rejected node stays rejected.
            place == "cycle.message"
                || ((place.starts_with("filter[") || place.starts_with("cycle.rejected["))
                    && place.contains("reasons")
                    && line.contains(NO_REPORT))
        })
}

fn unannotated(case: &Case, differences: &[String]) -> bool {
    let pod = &case.0["pod"];
    !is_reclaimed(pod)
        && pod["spec"].to_string().contains("/reclaimed_")
        && differences
            .iter()
            .any(|line| place(line).starts_with("filter["))
}

fn overhead(case: &Case, differences: &[String]) -> bool {
    let pod = &case.0["pod"];
    !is_reclaimed(pod)
        && !pod["spec"]["overhead"].is_null()
        && differences.iter().all(|line| {
            let place = place(line);
            place.starts_with("cycle.scores[QoSAware") || place.starts_with("cycle.totals[")
        })
}

fn is_reclaimed(pod: &Value) -> bool {
    pod["metadata"]["annotations"][LEVEL] == "reclaimed_cores"
}

fn place(difference: &str) -> &str {
    difference.split(": ").next().unwrap_or_default()
}
