//! Checks whether each profile filters at least what a kubelet refuses.
//!
//! A kubelet that refuses a pod fails it for good, and its owner creates another one, which may go to the same node.

use api::config::{self, Warning};
use engine::scheduling::framework::Point;
use engine::scheduling::plugins;
use engine::scheduling::profile::Profile;

/// The filters that refuse what a kubelet refuses, and the reason that it gives.
const FILTERS: [(&str, &str); 4] = [
    ("NodeResourcesFit", "OutOfcpu, OutOfmemory or OutOfpods"),
    ("NodeAffinity", "NodeAffinity"),
    ("NodePorts", "NodePorts"),
    ("TaintToleration", "TaintToleration"),
];

/// A warning for each filter that a profile lacks. None for an invalid configuration.
pub(super) fn unfiltered(configuration: &str) -> Vec<Warning> {
    let Ok((configuration, _)) = config::load(configuration) else {
        return Vec::new();
    };
    let Ok((profiles, _)) = configuration.profiles(plugins::ALL) else {
        return Vec::new();
    };
    profiles.iter().flat_map(of_profile).collect()
}

fn of_profile(profile: &Profile) -> Vec<Warning> {
    let runs = |name: &str| {
        let mut order = profile.at(Point::Filter).iter();
        order.any(|&index| profile.plugins()[index].name == name)
    };
    let missing = FILTERS.iter().filter(|(plugin, _)| !runs(plugin));
    let warning = |(plugin, reason): &(&str, &str)| Warning {
        line: None,
        field: String::new(),
        text: format!(
            "profile `{}` filters less than a kubelet: without the filter {plugin}, pods fail on their nodes with {reason}",
            profile.scheduler_name
        ),
    };
    missing.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn a_profile_without_a_filter_of_the_kubelet_is_warned_about() {
        for (profile, want) in [
            ("{schedulerName: a}", vec![]),
            (
                "{schedulerName: a, plugins: {filter: {disabled: [{name: NodePorts}]}}}",
                vec![
                    "profile `a` filters less than a kubelet: without the filter NodePorts, pods fail on their nodes with NodePorts",
                ],
            ),
        ] {
            let found = unfiltered(&format!("{HEAD}profiles: [{profile}]\n"));
            let texts: Vec<&str> = found.iter().map(|it| &it.text[..]).collect();
            assert_eq!(texts, want, "{profile}");
        }
        let none = "{schedulerName: a, plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}}}";
        let found = unfiltered(&format!("{HEAD}profiles: [{none}]\n"));
        assert_eq!(found.len(), FILTERS.len(), "{found:?}");
        assert!(unfiltered("nonsense").is_empty());
    }

    #[test]
    fn the_filters_exist() {
        for (name, _) in FILTERS {
            assert!(plugins::ALL.iter().any(|it| it.name == name), "{name}");
        }
    }
}
