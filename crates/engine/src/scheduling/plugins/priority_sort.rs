//! Orders the queue: higher priorities first, then pods that have waited longer.

use crate::model::{Pod, Timestamp};
use crate::scheduling::framework::{
    ArgsError, Catalog, Configure, EventPattern, NoArgs, Plan, Plugin, Point, Points,
};

pub struct PrioritySort;

impl Configure for PrioritySort {
    const NAME: &'static str = "PrioritySort";
    const POINTS: Points = Points::of(&[Point::QueueSort]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for PrioritySort {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }

    fn goes_before(&self, a: (&Pod, Timestamp), b: (&Pod, Timestamp)) -> bool {
        a.0.priority > b.0.priority || (a.0.priority == b.0.priority && a.1 < b.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn order() {
        for (case, a, b, want) in [
            ("a higher priority", (10, 1), (5, 0), true),
            ("a lower priority", (5, 0), (10, 1), false),
            ("earlier", (5, 0), (5, 1), true),
            ("later", (5, 1), (5, 0), false),
            ("at the same time", (5, 1), (5, 1), false),
            ("negative", (0, 1), (-5, 0), true),
        ] {
            let queued = |(priority, time)| (pod("p").priority(priority).build(), Timestamp(time));
            let (a, b) = (queued(a), queued(b));
            let before = PrioritySort.goes_before((&a.0, a.1), (&b.0, b.1));
            assert_eq!(before, want, "{case}");
        }
    }
}
