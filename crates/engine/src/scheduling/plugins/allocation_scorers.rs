//! The scorers of v1beta1 configurations. Since v1beta2 they are strategies of NodeResourcesFit.

use serde::{Deserialize, Serialize};

use super::resource_strategy::{
    Fullness, Strategy, UtilizationShapePoint, WeightedResource, check_weights, shape,
};
use crate::model::{Pod, Resource};
use crate::scheduling::framework::{
    ArgsError, Catalog, ConfigRules, ConfigVersion, Configure, EventPattern, Plan, Plugin, Point,
    Points, Successor,
};

const POINTS: Points = Points::of(&[Point::Score]);

/// The strategy of NodeResourcesFit that replaces a plugin, with the arguments that move there.
const fn replaced_by(
    kind: &'static str,
    args: &'static [(&'static str, &'static str)],
) -> ConfigRules {
    ConfigRules {
        removed_in: Some(ConfigVersion::V1beta2),
        successor: Some(Successor {
            plugin: "NodeResourcesFit",
            field: "scoringStrategy",
            kind,
            args,
        }),
        ..ConfigRules::NONE
    }
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourcesArgs {
    /// cpu and memory when not given.
    pub resources: Vec<WeightedResource>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestedToCapacityRatioArgs {
    pub shape: Vec<UtilizationShapePoint>,
    /// cpu and memory when not given.
    pub resources: Vec<WeightedResource>,
}

/// Prefers nodes with the most free capacity.
pub struct NodeResourcesLeastAllocated(Fullness);

/// Prefers nodes with the least free capacity.
pub struct NodeResourcesMostAllocated(Fullness);

/// Prefers nodes by a function of their utilization.
pub struct RequestedToCapacityRatio(Fullness);

impl Configure for NodeResourcesLeastAllocated {
    const NAME: &'static str = "NodeResourcesLeastAllocated";
    const POINTS: Points = POINTS;
    const RULES: ConfigRules = replaced_by("LeastAllocated", &[("resources", "resources")]);
    type Args = ResourcesArgs;

    fn complete(args: &mut ResourcesArgs) {
        WeightedResource::complete(&mut args.resources);
    }

    fn new(args: ResourcesArgs) -> Result<Self, Vec<ArgsError>> {
        fullness(Strategy::LeastAllocated, args.resources, Vec::new()).map(Self)
    }
}

impl Configure for NodeResourcesMostAllocated {
    const NAME: &'static str = "NodeResourcesMostAllocated";
    const POINTS: Points = POINTS;
    const RULES: ConfigRules = replaced_by("MostAllocated", &[("resources", "resources")]);
    type Args = ResourcesArgs;

    fn complete(args: &mut ResourcesArgs) {
        WeightedResource::complete(&mut args.resources);
    }

    fn new(args: ResourcesArgs) -> Result<Self, Vec<ArgsError>> {
        fullness(Strategy::MostAllocated, args.resources, Vec::new()).map(Self)
    }
}

impl Configure for RequestedToCapacityRatio {
    const NAME: &'static str = "RequestedToCapacityRatio";
    const POINTS: Points = POINTS;
    const RULES: ConfigRules = replaced_by(
        "RequestedToCapacityRatio",
        &[
            ("resources", "resources"),
            ("shape", "requestedToCapacityRatio.shape"),
        ],
    );
    type Args = RequestedToCapacityRatioArgs;

    fn complete(args: &mut RequestedToCapacityRatioArgs) {
        WeightedResource::complete(&mut args.resources);
    }

    fn new(args: RequestedToCapacityRatioArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let line = shape("shape", &args.shape, &mut errors);
        fullness(
            Strategy::RequestedToCapacityRatio(line),
            args.resources,
            errors,
        )
        .map(Self)
    }
}

fn fullness(
    strategy: Strategy,
    resources: Vec<WeightedResource>,
    mut errors: Vec<ArgsError>,
) -> Result<Fullness, Vec<ArgsError>> {
    check_weights(&resources, "resources", &mut errors);
    if errors.is_empty() {
        Ok(Fullness::new(strategy, &resources))
    } else {
        Err(errors)
    }
}

macro_rules! scores_fullness {
    ($($plugin:ident),*) => {$(
        impl Plugin for $plugin {
            fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
                self.0.prepare(pod, plan);
            }

            fn scored_resources(&self) -> Vec<Resource> {
                self.0.resources()
            }

            fn events(&self) -> Vec<EventPattern> {
                Vec::new()
            }
        }
    )*};
}
scores_fullness!(
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatio
);

#[cfg(test)]
mod tests {
    use crate::scheduling::plugins;
    use crate::testing::{Lab, node, pod};

    fn score(plugin: &str, args: &str) -> Result<Option<Vec<(i64, i64)>>, String> {
        let entry = plugins::find(plugin).unwrap();
        let mut args = serde_json::Deserializer::from_str(args);
        let args = &mut <dyn erased_serde::Deserializer>::erase(&mut args);
        let lab = Lab::with_args(entry, args)?.node(node("n").allocatable("cpu=4 memory=10000"));
        Ok(lab.scores(&pod("p").container("cpu=3 memory=5000")))
    }

    #[test]
    fn the_scores_of_node_resources_fit() {
        let memory_twice = r#"{"resources":[{"name":"memory","weight":2},{"name":"cpu"}]}"#;
        let falling = r#"{"shape":[{"utilization":0,"score":10},{"utilization":100,"score":0}]}"#;
        for (plugin, args, want) in [
            ("NodeResourcesLeastAllocated", "{}", 37),
            ("NodeResourcesLeastAllocated", memory_twice, 41),
            ("NodeResourcesMostAllocated", "{}", 62),
            ("NodeResourcesMostAllocated", memory_twice, 58),
            ("RequestedToCapacityRatio", falling, 38),
        ] {
            assert_eq!(
                score(plugin, args),
                Ok(Some(vec![(want, want)])),
                "{plugin} {args}"
            );
        }
    }

    #[test]
    fn arguments() {
        let heavy = r#"{"resources":[{"name":"cpu","weight":101}]}"#;
        assert_eq!(
            score("NodeResourcesMostAllocated", heavy),
            Err("resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]".into())
        );
        assert_eq!(
            score("RequestedToCapacityRatio", "{}"),
            Err("shape: Required value: at least one point must be specified".into())
        );
    }
}
