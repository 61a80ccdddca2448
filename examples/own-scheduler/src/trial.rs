//! A rewrite: pods with the trial label tolerate the trial taint without a toleration in their spec.

use std::sync::Arc;

use engine::framework::{Point, Points};
use engine::hooks::Rewrite;
use engine::model::{Pod, Toleration, TolerationOperator};

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
