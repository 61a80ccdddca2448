//! Rejections that are known without an evaluation: a pod of the same shape found no node, and the cluster has not changed
//! since.
//!
//! When an event wakes thousands of equal pods, the first one is evaluated and the others get its answer. Only an answer
//! that depends on nothing else is kept: no extender was asked, no rewrite changes what plugins see, the pod is nominated
//! to no node, and plugins do not read its name.

use hashbrown::HashMap;

use super::Failure;
use crate::model::{Pod, PodShape};
use crate::scheduling::framework::Point;
use crate::scheduling::hooks::Evaluations;
use crate::scheduling::hooks::{Hooks, PointResult};

/// Shapes that are kept. The others are evaluated.
const MOST_SHAPES: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct KnownRejections {
    /// The version of the cluster that the rejections belong to.
    version: u64,
    /// By profile and shape.
    known: HashMap<(usize, PodShape), KnownRejection>,
    /// Decisions that were answered from here.
    answered: u64,
}

/// A rejection without the pod, and what probes saw of it.
#[derive(Debug, Clone)]
pub(super) struct KnownRejection {
    failure: Failure,
    points: Vec<PointTrace>,
}

/// What probes saw at a point.
#[derive(Debug, Clone)]
pub(super) struct PointTrace {
    pub(super) point: Point,
    pub(super) evaluations: Evaluations,
    pub(super) result: PointResult,
}

impl KnownRejections {
    /// Whether the answer for a pod of this shape says something about others of it.
    pub(super) fn concerns(shape: &PodShape) -> bool {
        shape.pod().nominated_node.is_none() && !shape.is_named()
    }

    /// The failure of a pod whose rejection is known. Probes see what they saw for the first pod.
    pub(super) fn find(
        &mut self,
        version: u64,
        profile: usize,
        shape: &PodShape,
        hooks: &Hooks,
    ) -> Option<Failure> {
        self.forget_before(version);
        let known = self.known.get(&(profile, shape.clone()))?;
        self.answered += 1;
        let pod = shape.pod();
        for trace in &known.points {
            trace.repeat(pod, hooks);
        }
        Some(Failure {
            pod: pod.clone(),
            ..known.failure.clone()
        })
    }

    pub(super) fn add(
        &mut self,
        version: u64,
        profile: usize,
        shape: PodShape,
        failure: Failure,
        points: Vec<PointTrace>,
    ) {
        self.forget_before(version);
        if self.known.len() < MOST_SHAPES {
            let rejection = KnownRejection { failure, points };
            self.known.insert((profile, shape), rejection);
        }
    }

    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    fn forget_before(&mut self, version: u64) {
        if self.version != version {
            self.version = version;
            self.known.clear();
        }
    }
}

impl PointTrace {
    fn repeat(&self, pod: &Pod, hooks: &Hooks) {
        hooks.before(self.point, pod);
        hooks.evaluated(self.point, pod, || self.evaluations.clone());
        hooks.after(self.point, pod, || self.result.clone());
    }
}
