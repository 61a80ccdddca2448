//! Rejects cordoned nodes, unless the pod tolerates the `unschedulable` taint.

use crate::model::{Effect, NodeSpec, Pod, Taint, tolerated};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Fact, Kind, NoArgs,
    NodeRule, Plan, Plugin, Point, Points,
};

pub struct NodeUnschedulable;

impl Configure for NodeUnschedulable {
    const NAME: &'static str = "NodeUnschedulable";
    const POINTS: Points = Points::of(&[Point::Filter]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for NodeUnschedulable {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if !tolerates_cordon(pod) {
            plan.gate(Fact::new(Cordoned), "node(s) were unschedulable");
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_TAINT)),
            EventPattern::new(Kind::Pod, Actions::POD_TOLERATION),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        if let Changed::Node(change) = &event.changed {
            let was_open = change
                .old
                .as_ref()
                .is_some_and(|old| !old.spec.unschedulable);
            let is_open = change
                .new
                .as_ref()
                .is_some_and(|new| !new.spec.unschedulable);
            return is_open && !was_open;
        }
        let changed = event
            .changed
            .pod()
            .and_then(|(change, _)| change.new.as_ref());
        changed.is_some_and(|new| new.uid == pod.uid && tolerates_cordon(new))
    }
}

/// Only the flag counts, as if it were this taint; the node's own taints do not.
fn tolerates_cordon(pod: &Pod) -> bool {
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    tolerated(&cordon, &pod.tolerations)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cordoned;

impl NodeRule for Cordoned {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(node.unschedulable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, node, pod};

    const KEY: &str = "node.kubernetes.io/unschedulable";

    fn tolerant(effect: &str) -> PodBuilder {
        pod("p").tolerates(KEY, "", effect)
    }

    #[test]
    fn cordoned_nodes() {
        let lab = Lab::new(NodeUnschedulable)
            .node(node("open").taint(KEY, "", "NoSchedule"))
            .node(node("cordoned").unschedulable());
        let no = "UU node(s) were unschedulable";
        for (case, pod, want) in [
            ("no toleration", pod("p"), no),
            ("the taint's", tolerant("NoSchedule"), "ok"),
            ("any effect", tolerant(""), "ok"),
            ("another effect", tolerant("NoExecute"), no),
            ("another value", pod("p").tolerates(KEY, "x", ""), no),
        ] {
            assert_eq!(lab.filter(&pod), ["ok", want], "{case}");
        }
    }

    #[test]
    fn hints() {
        let lab = Lab::new(NodeUnschedulable);
        let cordoned = || node("n").unschedulable();
        for (case, old, new, want) in [
            ("an open node came", None, Some(node("n")), true),
            ("a cordoned node came", None, Some(cordoned()), false),
            ("uncordoned", Some(cordoned()), Some(node("n")), true),
            (
                "it was open before",
                Some(node("n")),
                Some(node("n").taint("k", "v", "NoSchedule")),
                false,
            ),
        ] {
            assert_eq!(lab.helps_node(&pod("p"), old, new), want, "{case}");
        }
        for (case, new, want) in [
            ("the pod tolerates it now", tolerant(""), true),
            (
                "it tolerates another",
                pod("p").tolerates("k", "", ""),
                false,
            ),
            ("another pod does", pod("q").tolerates(KEY, "", ""), false),
        ] {
            let helps = lab.helps_pod(&pod("p"), Some(pod("p")), Some(new));
            assert_eq!(helps, want, "{case}");
        }
    }
}
