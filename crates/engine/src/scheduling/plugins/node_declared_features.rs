//! Keeps pods off nodes that do not declare every feature that the pod's spec needs.

use crate::model::{Name, NodeSpec, Pod};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Fact, Kind, NoArgs,
    NodeRule, Plan, Plugin, Point, Points,
};

pub struct NodeDeclaredFeatures;

impl Configure for NodeDeclaredFeatures {
    const NAME: &'static str = "NodeDeclaredFeatures";
    const POINTS: Points = Points::of(&[Point::PreFilter, Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for NodeDeclaredFeatures {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if !pod.needed_features.is_empty() {
            plan.gate(
                Fact::new(LacksFeatures(pod.needed_features.clone())),
                "node(s) didn't match Pod's required features",
            );
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let node = Actions::ADD.and(Actions::NODE_DECLARED_FEATURE);
        vec![
            EventPattern::new(Kind::Node, node),
            EventPattern::new(Kind::Pod, Actions::UPDATE),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Node(change) = &event.changed {
            let old = change.old.as_ref().map(|old| &old.spec.declared_features);
            let new = change.new.as_ref().map(|new| &new.spec.declared_features);
            return old != new;
        }
        let Some((change, _)) = event.changed.pod() else {
            return false;
        };
        match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                new.uid == pod.uid && old.needed_features != new.needed_features
            }
            _ => false,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LacksFeatures(Vec<Name>);

impl NodeRule for LacksFeatures {
    fn of(&self, node: &NodeSpec) -> u32 {
        let has = |feature| node.declared_features.contains(feature);
        u32::from(!self.0.iter().all(has))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, node, pod};

    fn needing(name: &str, features: &[&str]) -> PodBuilder {
        let features = features.iter().map(|feature| (*feature).into()).collect();
        pod(name).with(|pod| pod.needed_features = features)
    }

    #[test]
    fn needed_features() {
        let lab = Lab::new(NodeDeclaredFeatures)
            .node(node("none"))
            .node(node("a").feature("A").feature("unknown"))
            .node(node("both").feature("B").feature("A"));
        let no = "UU node(s) didn't match Pod's required features";
        for (needed, want) in [
            (vec![], ["ok", "ok", "ok"]),
            (vec!["A"], [no, "ok", "ok"]),
            (vec!["A", "B"], [no, no, "ok"]),
        ] {
            assert_eq!(lab.filter(&needing("p", &needed)), want, "{needed:?}");
        }
    }

    #[test]
    fn hints() {
        let lab = Lab::new(NodeDeclaredFeatures);
        let wants = needing("p", &["A"]);
        for (case, old, new, want) in [
            ("a node came", None, node("n"), true),
            (
                "it declares more",
                Some(node("n")),
                node("n").feature("A"),
                true,
            ),
            ("a label", Some(node("n")), node("n").label("a", "b"), false),
        ] {
            assert_eq!(lab.helps_node(&wants, old, Some(new)), want, "{case}");
        }
        for (case, old, new, want) in [
            ("it needs less now", needing("p", &["A"]), pod("p"), true),
            (
                "its labels",
                wants.clone(),
                wants.clone().label("a", "b"),
                false,
            ),
            ("another pod", needing("q", &["A"]), pod("q"), false),
        ] {
            assert_eq!(lab.helps_pod(&wants, Some(old), Some(new)), want, "{case}");
        }
    }
}
