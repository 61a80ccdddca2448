//! Plugins of other projects that have no counterpart here, so that a configuration with one gets a clear error.

const SCHEDULER_PLUGINS: &str = "scheduler-plugins";
const KOORDINATOR: &str = "Koordinator";
const KATALYST: &str = "Katalyst";

/// Name and project.
const ELSEWHERE: &[(&str, &str)] = &[
    ("CapacityScheduling", SCHEDULER_PLUGINS),
    ("Coscheduling", "scheduler-plugins and Koordinator"),
    ("CrossNodePreemption", SCHEDULER_PLUGINS),
    ("LoadVariationRiskBalancing", SCHEDULER_PLUGINS),
    ("LowRiskOverCommitment", SCHEDULER_PLUGINS),
    ("NetworkOverhead", SCHEDULER_PLUGINS),
    ("NodeResourceTopologyMatch", SCHEDULER_PLUGINS),
    ("NodeResourcesAllocatable", SCHEDULER_PLUGINS),
    ("Peaks", SCHEDULER_PLUGINS),
    ("PodState", SCHEDULER_PLUGINS),
    ("PreemptionToleration", SCHEDULER_PLUGINS),
    ("QOSSort", SCHEDULER_PLUGINS),
    ("SySched", SCHEDULER_PLUGINS),
    ("TargetLoadPacking", SCHEDULER_PLUGINS),
    ("TopologicalSort", SCHEDULER_PLUGINS),
    ("DefaultPreBind", KOORDINATOR),
    ("DeviceShare", KOORDINATOR),
    ("ElasticQuota", KOORDINATOR),
    ("LoadAwareScheduling", KOORDINATOR),
    ("NodeNUMAResource", KOORDINATOR),
    ("Reservation", KOORDINATOR),
    ("SchedulingHint", KOORDINATOR),
    ("NodeOvercommitment", KATALYST),
];

/// The project that has a plugin of this name.
pub fn project(plugin: &str) -> Option<&'static str> {
    let mut all = ELSEWHERE.iter();
    all.find(|(name, _)| *name == plugin)
        .map(|(_, project)| *project)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_that_exist_here_are_not_in_the_list() {
        for (name, _) in ELSEWHERE {
            assert!(crate::scheduling::plugins::find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_plugin_has_a_project() {
        for (plugin, want) in [
            ("QOSSort", Some("scheduler-plugins")),
            ("ElasticQuota", Some("Koordinator")),
            ("NodeOvercommitment", Some("Katalyst")),
            ("NodeName", None),
        ] {
            assert_eq!(project(plugin), want, "{plugin}");
        }
    }
}
