//! Names that configurations of older days have and Kubernetes no longer knows.
//!
//! Some live on in another plugin and have no effect here. Some did what nothing does today: a configuration that
//! asks for it is refused, because pods would go where its author did not want them.

use crate::framework::{Entry, Point, Points};

const FILTER: Points = Points::of(&[Point::PreFilter, Point::Filter]);
const CSI_LIMITS: &str = "NodeVolumeLimits counts the volumes of all drivers";

pub const RETIRED: &[Entry] = &[
    Entry::neutral(
        "NodePreferAvoidPods",
        Points::of(&[Point::Score]),
        "nodes are no longer avoided by annotation: use a taint with effect PreferNoSchedule",
    ),
    Entry::neutral(
        "SelectorSpread",
        Points::of(&[Point::PreScore, Point::Score]),
        "PodTopologySpread spreads the pods of services and workloads by default",
    ),
    Entry::neutral("EBSLimits", FILTER, CSI_LIMITS),
    Entry::neutral("GCEPDLimits", FILTER, CSI_LIMITS),
    Entry::neutral("AzureDiskLimits", FILTER, CSI_LIMITS),
    Entry::neutral("CinderLimits", FILTER, CSI_LIMITS),
    Entry::refused(
        "NodeLabel",
        Points::of(&[Point::Filter, Point::Score]),
        "use NodeAffinity with addedAffinity",
    ),
    Entry::refused(
        "ServiceAffinity",
        Points::of(&[Point::PreFilter, Point::Filter, Point::Score]),
        "use pod affinity or topology spread constraints",
    ),
];

#[cfg(test)]
mod tests {
    use crate::plugins;
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
