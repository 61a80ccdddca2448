//! The shape of a pod: everything that decisions read of it except its identity.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Pod, VolumeSource};

/// Pods of one shape are equal to every plugin: in the same cluster, each gets the same answer.
#[derive(Debug, Clone)]
pub struct PodShape(Arc<Pod>);

impl PodShape {
    pub fn of(pod: &Arc<Pod>) -> Self {
        Self(pod.clone())
    }

    /// A pod of this shape.
    pub fn pod(&self) -> &Arc<Pod> {
        &self.0
    }

    /// Whether plugins read the pod's name: the claims of ephemeral volumes are named after the pod, and so may resource
    /// claims be.
    pub fn is_named(&self) -> bool {
        let made_for_it = |source: &VolumeSource| *source == VolumeSource::Ephemeral;
        let mut volumes = self.0.volumes.iter();
        !self.0.resource_claims.is_empty() || volumes.any(|volume| made_for_it(&volume.source))
    }
}

impl Hash for PodShape {
    /// The fields in which the pods of different workloads, and of one DaemonSet, mostly differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Pod {
            kind,
            priority,
            requests,
            nodes,
            owner,
            ..
        } = &*self.0;
        kind.hash(state);
        priority.hash(state);
        requests.wanted.hash(state);
        requests.placed.hash(state);
        nodes.hash(state);
        owner.hash(state);
        if self.is_named() {
            self.0.name.hash(state);
        }
    }
}

impl Eq for PodShape {}

impl PartialEq for PodShape {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        // Every field is named, so that a new one must be thought about here.
        let Pod {
            name,
            uid: _,
            created: _,
            started: _,
            has_deletion_cost: _,
            show_scores: _,
            kind,
            node,
            nominated_node,
            scheduler_name,
            priority,
            open_priority,
            preemption_policy,
            requests,
            nodes,
            preferred_nodes,
            tolerations,
            spread,
            scheduling_gates,
            owner,
            images,
            image_volumes,
            volumes,
            resource_claims,
            generated_claims,
            needed_features,
            qos,
            level,
            enhancements,
            pinned_cores,
            zones: _,
            claims: _,
            preempted,
            affinity_errors,
            spread_errors,
            warnings: _,
        } = &*self.0;
        let b = &*other.0;
        (!self.is_named() || *name == b.name)
            && *kind == b.kind
            && *requests == b.requests
            && *node == b.node
            && *nominated_node == b.nominated_node
            && *scheduler_name == b.scheduler_name
            && *priority == b.priority
            && *open_priority == b.open_priority
            && *preemption_policy == b.preemption_policy
            && *nodes == b.nodes
            && *preferred_nodes == b.preferred_nodes
            && *tolerations == b.tolerations
            && *spread == b.spread
            && *scheduling_gates == b.scheduling_gates
            && *owner == b.owner
            && *images == b.images
            && *image_volumes == b.image_volumes
            && *volumes == b.volumes
            && *resource_claims == b.resource_claims
            && *generated_claims == b.generated_claims
            && *needed_features == b.needed_features
            && *qos == b.qos
            && *level == b.level
            && *enhancements == b.enhancements
            && *pinned_cores == b.pinned_cores
            && *preempted == b.preempted
            && *affinity_errors == b.affinity_errors
            && *spread_errors == b.spread_errors
    }
}
