//! Plugins of older configurations that Kubernetes no longer has.
//!
//! Plugins whose work another plugin does are accepted without effect. A configuration with one whose work no plugin does
//! is refused, because pods would run where its author did not want them.

use crate::scheduling::framework::ConfigVersion::{V1, V1beta2};
use crate::scheduling::framework::{Entry, Point, Points};

const FILTER: Points = Points::of(&[Point::PreFilter, Point::Filter]);
const CSI_LIMITS: &str = "NodeVolumeLimits counts the volumes of all drivers";

pub const RETIRED: &[Entry] = &[
    Entry::neutral(
        "NodePreferAvoidPods",
        Points::of(&[Point::Score]),
        V1beta2,
        "nodes are no longer avoided by annotation: use a taint with effect PreferNoSchedule",
    ),
    Entry::neutral(
        "SelectorSpread",
        Points::of(&[Point::PreScore, Point::Score]),
        V1,
        "PodTopologySpread spreads the pods of services and workloads by default",
    ),
    Entry::neutral("EBSLimits", FILTER, V1, CSI_LIMITS),
    Entry::neutral("GCEPDLimits", FILTER, V1, CSI_LIMITS),
    Entry::neutral("AzureDiskLimits", FILTER, V1, CSI_LIMITS),
    Entry::neutral("CinderLimits", FILTER, V1, CSI_LIMITS),
    Entry::refused(
        "NodeLabel",
        Points::of(&[Point::Filter, Point::Score]),
        V1beta2,
        "use NodeAffinity with addedAffinity",
    ),
    Entry::refused(
        "ServiceAffinity",
        Points::of(&[Point::PreFilter, Point::Filter, Point::Score]),
        V1beta2,
        "use pod affinity or topology spread constraints",
    ),
];

#[cfg(test)]
mod tests {
    use crate::scheduling::plugins;
    use crate::testing::{Lab, node, pod};

    #[test]
    fn without_effect_and_with_a_warning() {
        let entry = plugins::find("SelectorSpread").unwrap();
        assert_eq!(
            entry.warning().as_deref(),
            Some(
                "plugin SelectorSpread has no effect: \
                 PodTopologySpread spreads the pods of services and workloads by default"
            )
        );
        let lab = Lab::of(entry).node(node("n"));
        assert_eq!(lab.filter(&pod("p")), ["ok"]);
        assert_eq!(lab.scores(&pod("p")), None);
        let active = plugins::find("NodeName").unwrap();
        assert_eq!(active.warning(), None);
    }

    #[test]
    fn refused_by_name() {
        let entry = plugins::find("NodeLabel").unwrap();
        assert_eq!(
            entry
                .build()
                .err()
                .map(|error| error.to_string())
                .as_deref(),
            Some("plugin NodeLabel is not supported: use NodeAffinity with addedAffinity")
        );
    }
}
