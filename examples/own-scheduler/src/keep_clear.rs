//! A plugin: filters nodes that have a label, with any value.

use engine::model::{Name, NodeSpec, Pod};
use engine::scheduling::framework::{
    Actions, ArgsError, Catalog, Configure, EventPattern, Fact, Kind, NodeRule, Plan, Plugin,
    Point, Points,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Args {
    /// Nodes with this label get no pods.
    label: String,
}

pub(crate) struct KeepClear {
    label: Name,
}

impl Configure for KeepClear {
    const NAME: &'static str = "KeepClear";
    const POINTS: Points = Points::of(&[Point::Filter]);
    type Args = Args;

    fn new(args: Args) -> Result<Self, Vec<ArgsError>> {
        if args.label.is_empty() {
            return Err(vec![ArgsError::new("label", "must name a label of nodes")]);
        }
        Ok(Self {
            label: args.label.into(),
        })
    }
}

impl Plugin for KeepClear {
    fn prepare(&self, _: &Pod, _: &Catalog, plan: &mut Plan) {
        plan.gate(
            Fact::new(Has(self.label.clone())),
            "node(s) were kept clear",
        );
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![EventPattern::new(
            Kind::Node,
            Actions::ADD.and(Actions::NODE_LABEL),
        )]
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Has(Name);

impl NodeRule for Has {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(node.labels.get(&self.0).is_some())
    }
}
