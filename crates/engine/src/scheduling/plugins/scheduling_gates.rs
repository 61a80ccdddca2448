//! Keeps pods with scheduling gates out of the queue.

use crate::model::Pod;
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Configure, Event, EventPattern, Kind, NoArgs, Plan, Plugin, Point,
    Points, Rejection,
};

pub struct SchedulingGates;

impl Configure for SchedulingGates {
    const NAME: &'static str = "SchedulingGates";
    const POINTS: Points = Points::of(&[Point::PreEnqueue]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for SchedulingGates {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}

    fn pre_enqueue(&self, pod: &Pod, _: &Catalog) -> Result<(), Rejection> {
        if pod.scheduling_gates.is_empty() {
            return Ok(());
        }
        let gates = pod.scheduling_gates.join(" ");
        Err(Rejection::unresolvable(format!(
            "waiting for scheduling gates: [{gates}]"
        )))
    }

    fn events(&self) -> Vec<EventPattern> {
        vec![EventPattern::new(Kind::Pod, Actions::POD_GATES_ELIMINATED)]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        event.changed.is_update_of(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, PodBuilder, pod};

    fn gated(name: &str, gates: &[&str]) -> PodBuilder {
        let gates = gates.iter().map(|gate| (*gate).into()).collect();
        pod(name).with(|pod| pod.scheduling_gates = gates)
    }

    #[test]
    fn gates_keep_out() {
        for (gates, want) in [
            (vec![], Ok(())),
            (vec!["a"], Err("waiting for scheduling gates: [a]")),
            (vec!["b", "a"], Err("waiting for scheduling gates: [b a]")),
        ] {
            let pod = gated("p", &gates).build();
            let said = SchedulingGates.pre_enqueue(&pod, &Catalog::default());
            assert_eq!(said, want.map_err(Rejection::unresolvable), "{gates:?}");
        }
    }

    #[test]
    fn hints() {
        let lab = Lab::new(SchedulingGates);
        for (case, old, new, want) in [
            ("opened", gated("p", &["a"]), pod("p"), true),
            (
                "still one",
                gated("p", &["a", "b"]),
                gated("p", &["a"]),
                false,
            ),
            ("another pod's", gated("q", &["a"]), pod("q"), false),
        ] {
            let helps = lab.helps_pod(&gated("p", &["a"]), Some(old), Some(new));
            assert_eq!(helps, want, "{case}");
        }
    }
}
