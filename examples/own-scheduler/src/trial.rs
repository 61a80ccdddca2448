//! A rewrite: pods with the trial label tolerate the trial taint without a toleration in their spec.

use std::sync::Arc;

use engine::model::{Pod, Toleration, TolerationOperator};
use engine::scheduling::framework::{Point, Points};
use engine::scheduling::hooks::Rewrite;

const TRIAL: &str = "example.com/trial";

pub(crate) struct Trial;

impl Rewrite for Trial {
    fn points(&self) -> Points {
        Points::of(&[Point::PreFilter, Point::Filter])
    }

    fn pod(&self, _: Point, pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        pod.labels().get(TRIAL)?;
        let mut seen = Pod::clone(pod);
        seen.tolerations.push(Toleration {
            key: TRIAL.into(),
            operator: TolerationOperator::Exists,
            value: "".into(),
            effect: None,
        });
        Some(Arc::new(seen))
    }
}
