//! Whether kubelets admit the pods that our scheduler places: the kubelet's own code judges every node that our filters leave.

use serde_json::Value;

use super::generate::Case;
use super::verdicts::Verdicts;

/// Reasons of checks that kube-scheduler lacks, too: the operating system of a pod by its label and by `spec.os`, and
/// `supplementalGroupsPolicy`.
const LACKING: [&str; 3] = [
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "SupplementalGroupsPolicyNotSupported",
];

/// The filters that check what kubelets check.
const FILTERS: [&str; 5] = [
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeResourcesFit",
    "TaintToleration",
];

/// One line per node that our scheduler could choose and whose kubelet would refuse the pod.
pub(crate) fn refusals(case: &Case, ours: &Verdicts, theirs: &Verdicts) -> Vec<String> {
    if !filters_as_kubelets(&case.0["profile"]) {
        return Vec::new();
    }
    let nodes = theirs.nodes.iter().zip(&theirs.kubelet);
    let refused = nodes.filter(|(node, answer)| {
        ours.cycle.feasible.contains(node) && !answer.admit && !LACKING.contains(&&*answer.reason)
    });
    let line = |(node, answer): (&String, &super::verdicts::Admission)| {
        format!(
            "admission[{node}]: feasible for us, its kubelet refuses: {}",
            answer.message
        )
    };
    refused.map(line).collect()
}

/// Whether a node that fits the pod is refused for this reason.
pub(crate) fn is_refused_for(verdicts: &Verdicts, reason: &str) -> bool {
    let mut nodes = verdicts.nodes.iter().zip(&verdicts.kubelet);
    nodes.any(|(node, answer)| verdicts.cycle.feasible.contains(node) && answer.reason == reason)
}

/// `tidepool config check` warns about profiles that do not.
fn filters_as_kubelets(profile: &Value) -> bool {
    let plugins = &profile["plugins"];
    let disabled = ["multiPoint", "filter"].map(|point| names(&plugins[point]["disabled"]));
    let args = profile["pluginConfig"].as_array().into_iter().flatten();
    let ignores = args.map(|it| &it["args"]).any(|args| {
        let fields = ["ignoredResources", "ignoredResourceGroups"];
        fields.iter().any(|field| !args[*field].is_null())
    });
    let mut disabled = disabled.into_iter().flatten();
    !ignores && !disabled.any(|name| name == "*" || FILTERS.contains(&name))
}

fn names(plugins: &Value) -> Vec<&str> {
    let plugins = plugins.as_array().into_iter().flatten();
    plugins.filter_map(|it| it["name"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refused_node_is_a_difference_unless_the_check_or_the_filter_is_lacking() {
        let verdicts = |feasible: &[&str], reason: &str| -> Verdicts {
            serde_json::from_value(json!({
                "nodes": ["a", "b"], "preFilter": [], "filter": [[], []], "cycle": {"feasible": feasible},
                "kubelet": [{"admit": reason.is_empty(), "reason": reason, "message": "m"}, {"admit": true}],
            }))
            .unwrap()
        };
        let disabled = json!({"plugins": {"filter": {"disabled": [{"name": "NodePorts"}]}}});
        let ignored = json!({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["x"]}}]});
        for (name, profile, feasible, reason, want) in [
            ("admitted", json!(null), vec!["a", "b"], "", 0),
            ("refused", json!(null), vec!["a", "b"], "OutOfcpu", 1),
            ("not chosen", json!(null), vec!["b"], "OutOfcpu", 0),
            ("lacking", json!(null), vec!["a"], "PodOSNotSupported", 0),
            ("disabled", disabled, vec!["a"], "NodePorts", 0),
            ("ignored", ignored, vec!["a"], "OutOfx", 0),
        ] {
            let case = Case(json!({"profile": profile}));
            let verdicts = verdicts(&feasible, reason);
            let found = refusals(&case, &verdicts, &verdicts);
            assert_eq!(found.len(), want, "{name}: {found:?}");
        }
    }
}
