//! Restricts a pod with `spec.nodeName` to that node.

use crate::model::{Name, NodeSpec, Pod};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Configure, EventPattern, Fact, Kind, NoArgs, NodeRule, Plan,
    Plugin, Point, Points,
};

pub struct NodeName;

impl Configure for NodeName {
    const NAME: &'static str = "NodeName";
    const POINTS: Points = Points::of(&[Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for NodeName {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if let Some(name) = &pod.node {
            plan.gate(
                Fact::new(IsAnother(name.clone())),
                "node(s) didn't match the requested node name",
            );
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![EventPattern::new(Kind::Node, Actions::ADD)]
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IsAnother(Name);

impl NodeRule for IsAnother {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(node.name != self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod};

    #[test]
    fn only_the_node_it_names() {
        let lab = Lab::new(NodeName).node(node("a")).node(node("b"));
        let another = "UU node(s) didn't match the requested node name";
        assert_eq!(lab.filter(&pod("p")), ["ok", "ok"]);
        assert_eq!(lab.filter(&pod("p").on("b")), [another, "ok"]);
        assert_eq!(lab.filter(&pod("p").on("c")), [another, another]);
    }

    #[test]
    fn a_new_node_helps() {
        let lab = Lab::new(NodeName);
        assert!(lab.helps_node(&pod("p"), None, Some(node("n"))));
        let labelled = node("n").label("a", "b");
        assert!(!lab.helps_node(&pod("p"), Some(node("n")), Some(labelled)));
    }
}
