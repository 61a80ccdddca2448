//! Preemption: evicts pods of lower priority for a pod that fits on no node; see [`PostFilter::Preempt`].

use serde::{Deserialize, Serialize};

use crate::model::Pod;
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, ConfigRules, Configure, Event, EventPattern, Kind, Plan, Plugin,
    Point, Points, PostFilter, Rejection,
};

const EVERY_NODE: &str = "has no effect: preemption considers every node";

/// Accepted and checked, without effect: preemption considers every node, not a sample.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DefaultPreemptionArgs {
    pub min_candidate_nodes_percentage: i32,
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

pub struct DefaultPreemption;

impl Configure for DefaultPreemption {
    const NAME: &'static str = "DefaultPreemption";
    const POINTS: Points = Points::of(&[Point::PreEnqueue, Point::PostFilter]);
    const RULES: ConfigRules = ConfigRules {
        ignored_args: &[
            ("minCandidateNodesPercentage", EVERY_NODE),
            ("minCandidateNodesAbsolute", EVERY_NODE),
        ],
        ..ConfigRules::NONE
    };
    type Args = DefaultPreemptionArgs;

    fn new(args: DefaultPreemptionArgs) -> Result<Self, Vec<ArgsError>> {
        let DefaultPreemptionArgs {
            min_candidate_nodes_percentage: percentage,
            min_candidate_nodes_absolute: absolute,
        } = args;
        let mut errors = Vec::new();
        if !(0..=100).contains(&percentage) {
            let text = format!("Invalid value: {percentage}: not in valid range [0, 100]");
            errors.push(ArgsError::new("minCandidateNodesPercentage", text));
        }
        if absolute < 0 {
            let text = format!("Invalid value: {absolute}: not in valid range [0, inf)");
            errors.push(ArgsError::new("minCandidateNodesAbsolute", text));
        }
        if percentage == 0 && absolute == 0 {
            let fields = ["minCandidateNodesPercentage", "minCandidateNodesAbsolute"];
            for (field, other) in [(fields[0], fields[1]), (fields[1], fields[0])] {
                let text = format!("Invalid value: 0: cannot be zero at the same time as {other}");
                errors.push(ArgsError::new(field, text));
            }
        }
        if errors.is_empty() {
            Ok(Self)
        } else {
            Err(errors)
        }
    }
}

impl Plugin for DefaultPreemption {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}

    fn pre_enqueue(&self, pod: &Pod, catalog: &Catalog) -> Result<(), Rejection> {
        if catalog.is_preempting(&pod.uid) {
            return Err(Rejection::unresolvable(
                "waiting for the preemption for this pod to be finished",
            ));
        }
        Ok(())
    }

    fn post_filter(&self, _: &Pod, _: &Catalog, _: bool) -> PostFilter {
        PostFilter::Preempt
    }

    /// A pod that waits for its victims is tried again when pods are deleted.
    fn events(&self) -> Vec<EventPattern> {
        vec![EventPattern::new(Kind::Pod, Actions::DELETE)]
    }

    /// The hints of the plugins that rejected the pod decide.
    fn helps(&self, _: &Pod, _: &Event, _: &Catalog) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        for (percentage, absolute, want) in [
            (10, 100, vec![]),
            (0, 1, vec![]),
            (100, 0, vec![]),
            (
                101,
                -1,
                vec!["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
            ),
            (
                0,
                0,
                vec!["minCandidateNodesPercentage", "minCandidateNodesAbsolute"],
            ),
        ] {
            let args = DefaultPreemptionArgs {
                min_candidate_nodes_percentage: percentage,
                min_candidate_nodes_absolute: absolute,
            };
            let errors = DefaultPreemption::new(args).err().unwrap_or_default();
            let fields: Vec<&str> = errors.iter().map(|error| &*error.field).collect();
            assert_eq!(fields, want, "{percentage} {absolute}");
        }
        let zero = DefaultPreemptionArgs {
            min_candidate_nodes_percentage: 0,
            min_candidate_nodes_absolute: 0,
        };
        let text = "Invalid value: 0: cannot be zero at the same time as";
        let both = ["minCandidateNodesAbsolute", "minCandidateNodesPercentage"];
        let texts = both.map(|other| format!("{text} {other}"));
        let errors = DefaultPreemption::new(zero).err().unwrap();
        let found: Vec<&str> = errors.iter().map(|error| &*error.text).collect();
        assert_eq!(found, texts);
        let args = DefaultPreemptionArgs::default();
        let given = (
            args.min_candidate_nodes_percentage,
            args.min_candidate_nodes_absolute,
        );
        assert_eq!(given, (10, 100), "the values of Kubernetes");
    }

    #[test]
    fn waits_for_its_own_preemption_only() {
        let mut catalog = Catalog::default();
        catalog.set_preempting("p".into(), true);
        let gated = |name| {
            let pod = crate::testing::pod(name).build();
            DefaultPreemption.pre_enqueue(&pod, &catalog).is_err()
        };
        assert_eq!((gated("p"), gated("q")), (true, false));
    }
}
