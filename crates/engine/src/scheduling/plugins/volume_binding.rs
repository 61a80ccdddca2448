//! Rejects nodes that cannot reach a volume of the pod, or for which no volume can be found or provisioned, and reserves
//! volumes for the pod on its node.

mod search;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::search::{Choice, Delayed};
use super::csi_migration;
use super::pod_claims::{claim_of, not_made_for, uses};
use super::resource_strategy::UtilizationShapePoint;
use crate::model::{Name, NodeMatch, NodeSelector, NodeSpec, Pod, Volume, VolumeSource};
use crate::scheduling::framework::{
    Actions, ArgsError, Catalog, Changed, Configure, Event, EventPattern, Kind, NodeFilter,
    NodeView, Plan, Plugin, Point, Points, Preparation, Reason, Rejection, Status, Step, Storage,
};
use crate::scheduling::framework::{
    BindingMode, Claim, ClaimPhase, PersistentVolume, StorageCapacity, VolumeHandle,
};

/// The default of kube-scheduler.
const BIND_TIMEOUT_SECONDS: i64 = 600;

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct VolumeBindingArgs {
    /// Timeout until volumes are bound.
    pub bind_timeout_seconds: i64,
    /// For scoring by capacity, whose feature gate is off.
    #[serde(skip_serializing)]
    pub shape: Option<Vec<UtilizationShapePoint>>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout_seconds: BIND_TIMEOUT_SECONDS,
            shape: None,
        }
    }
}

pub struct VolumeBinding {
    bind_timeout: Duration,
}

impl Configure for VolumeBinding {
    const NAME: &'static str = "VolumeBinding";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
        Point::Reserve,
        Point::PreBind,
    ]);
    type Args = VolumeBindingArgs;

    fn new(args: VolumeBindingArgs) -> Result<Self, Vec<ArgsError>> {
        let mut errors = Vec::new();
        let seconds = args.bind_timeout_seconds;
        if seconds < 0 {
            let text = format!(
                "Invalid value: {seconds}: invalid BindTimeoutSeconds, should not be a negative value"
            );
            errors.push(ArgsError::new("bindTimeoutSeconds", text));
        }
        if let Some(points) = &args.shape {
            let points = points.iter().map(|point| {
                format!(
                    "{{\"Utilization\":{},\"Score\":{}}}",
                    point.utilization, point.score
                )
            });
            let text = format!(
                "Invalid value: [{}]: unexpected field `shape`, remove it or turn on the feature gate \
                 StorageCapacityScoring",
                points.collect::<Vec<_>>().join(",")
            );
            errors.push(ArgsError::new("shape", text));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            bind_timeout: Duration::from_secs(seconds.unsigned_abs()),
        })
    }
}

impl Plugin for VolumeBinding {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        match Claims::of(pod, catalog.storage()) {
            Ok(claims) if claims.is_empty() => {}
            Ok(claims) => plan.filter_nodes(claims),
            Err(rejection) => plan.reject(rejection),
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let changes = Actions::ADD.and(Actions::UPDATE);
        vec![
            EventPattern::new(Kind::StorageClass, changes),
            EventPattern::new(Kind::PersistentVolumeClaim, changes),
            EventPattern::new(Kind::PersistentVolume, changes),
            EventPattern::new(Kind::Node, Actions::ADD.and(Actions::NODE_LABEL)),
            EventPattern::new(Kind::CsiNode, changes),
            EventPattern::new(Kind::CsiDriver, Actions::UPDATE),
            EventPattern::new(Kind::CsiStorageCapacity, changes),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, _: &Catalog) -> bool {
        match &event.changed {
            Changed::StorageClass(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.allowed_topologies != new.allowed_topologies,
                _ => true,
            },
            Changed::Claim(change) => change.latest().is_some_and(|claim| uses(pod, claim)),
            Changed::CsiNode(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.migrated_plugins != new.migrated_plugins,
                _ => true,
            },
            Changed::CsiDriver(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    let inline = |volume: &Volume| matches!(&volume.source, VolumeSource::Csi { driver } if *driver == new.name);
                    old.storage_capacity && !new.storage_capacity && pod.volumes.iter().any(inline)
                }
                _ => false,
            },
            Changed::StorageCapacity(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => grew(old, new),
                _ => true,
            },
            _ => true,
        }
    }

    fn reserve(&self, pod: &Pod, node: &NodeSpec, catalog: &mut Catalog) -> Result<(), Rejection> {
        let claims = Claims::of(pod, catalog.storage())?;
        let choice = claims
            .choose(node, catalog.storage())
            .map_err(Rejection::unresolvable)?;
        let Choice { volumes, claims } = choice;
        catalog
            .storage_mut()
            .promise_to(pod.uid.clone(), volumes, claims);
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, _: &NodeSpec, catalog: &mut Catalog) {
        catalog.storage_mut().withdraw(&pod.uid);
    }

    fn pre_bind(
        &self,
        pod: &Pod,
        _: &NodeSpec,
        catalog: &Catalog,
    ) -> Result<Option<Preparation>, Rejection> {
        let Some(promise) = catalog.storage().promise(&pod.uid) else {
            return Ok(None);
        };
        let mut steps = Vec::new();
        let mut awaited = Vec::new();
        for bound in &promise.volumes {
            steps.push(Step::BindVolume {
                volume: bound.volume.clone(),
                namespace: bound.namespace.clone(),
                claim: bound.claim.clone(),
            });
            awaited.push((bound.namespace.clone(), bound.claim.clone()));
        }
        for made in &promise.claims {
            steps.push(Step::ProvisionVolume {
                namespace: made.namespace.clone(),
                claim: made.claim.clone(),
                node: made.node.clone(),
            });
            awaited.push((made.namespace.clone(), made.claim.clone()));
        }
        let waits = |(namespace, claim)| Step::AwaitClaim { namespace, claim };
        steps.extend(awaited.into_iter().map(waits));
        Ok(Some(Preparation {
            steps,
            within: self.bind_timeout,
        }))
    }
}

fn grew(old: &StorageCapacity, new: &StorageCapacity) -> bool {
    match (old.limit(), new.limit()) {
        (Some(old), Some(new)) => new > old,
        (None, new) => new.is_some(),
        (Some(_), None) => false,
    }
}

/// The pod's claims, grouped by what a node must have for them.
#[derive(Default)]
struct Claims {
    bound: Vec<Bound>,
    delayed: Vec<Delayed>,
}

enum Bound {
    /// Bound to a volume that does not exist.
    Nowhere,
    To {
        affinity: Option<NodeSelector>,
        /// For a volume of an in-tree plugin.
        migrated: Option<Migrated>,
    },
}

struct Migrated {
    plugin: Name,
    /// The affinity on nodes where a CSI driver serves the plugin, or the error that prevents one.
    affinity: Result<Option<NodeSelector>, String>,
}

impl Claims {
    fn of(pod: &Pod, storage: &Storage) -> Result<Self, Rejection> {
        let mut claims = Vec::new();
        for volume in &pod.volumes {
            claims.extend(usable(pod, volume, storage)?);
        }
        let mut sorted = Self::default();
        let mut is_immediate = false;
        for claim in claims {
            if let Some(volume) = claim.volume.as_ref().filter(|_| claim.bind_completed) {
                sorted.bound.push(Bound::to(storage.volume(volume)));
                continue;
            }
            let class = claim
                .class
                .as_ref()
                .and_then(|name| storage.classes.get(name));
            let Some(class) = class else {
                is_immediate = true;
                continue;
            };
            match class.mode {
                None => {
                    let text = format!(
                        "VolumeBindingMode not set for StorageClass \"{}\"",
                        class.name
                    );
                    return Err(Rejection::error(text));
                }
                Some(BindingMode::WaitForFirstConsumer) if claim.volume.is_none() => {
                    sorted.delayed.push(Delayed {
                        claim,
                        class: class.clone(),
                    });
                }
                Some(_) => is_immediate = true,
            }
        }
        if is_immediate {
            let text = "pod has unbound immediate PersistentVolumeClaims";
            return Err(Rejection::unresolvable(text));
        }
        Ok(sorted)
    }

    fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.delayed.is_empty()
    }

    fn choose(&self, node: &NodeSpec, storage: &Storage) -> Result<Choice, Reason> {
        search::choose(&self.delayed, node, storage)
    }
}

/// The claim of a volume, if it has one that can be used.
fn usable(pod: &Pod, volume: &Volume, storage: &Storage) -> Result<Option<Arc<Claim>>, Rejection> {
    let Some(name) = claim_of(pod, volume) else {
        return Ok(None);
    };
    let Some(claim) = storage.claim(pod.namespace(), &name) else {
        let text = if volume.source == VolumeSource::Ephemeral {
            format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
            )
        } else {
            format!("persistentvolumeclaim \"{name}\" not found")
        };
        return Err(Rejection::unresolvable(text));
    };
    if claim.phase == ClaimPhase::Lost {
        let volume = claim.volume.as_deref().unwrap_or_default();
        let text = format!(
            "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
        );
        return Err(Rejection::unresolvable(text));
    }
    if claim.deleting {
        let text = format!("persistentvolumeclaim \"{name}\" is being deleted");
        return Err(Rejection::unresolvable(text));
    }
    match not_made_for(pod, volume, claim) {
        Some(text) => Err(Rejection::unresolvable(text)),
        None => Ok(Some(claim.clone())),
    }
}

impl Bound {
    fn to(volume: Option<&Arc<PersistentVolume>>) -> Self {
        let Some(volume) = volume else {
            return Self::Nowhere;
        };
        let migrated = match &volume.source {
            VolumeHandle::InTree { plugin, .. } => Some(Migrated {
                plugin: plugin.clone(),
                affinity: csi_migration::reach(volume),
            }),
            VolumeHandle::Csi { .. } | VolumeHandle::Other => None,
        };
        Self::To {
            affinity: volume.node_affinity.clone(),
            migrated,
        }
    }
}

const OUT_OF_REACH: &str = "node(s) didn't match PersistentVolume's node affinity";
const NOWHERE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

impl NodeFilter for Claims {
    fn filter(&self, node: NodeView) -> Result<(), Rejection> {
        let storage = node.catalog.storage();
        let bound = self.check_bound(node.spec, storage)?;
        let chosen = self.choose(node.spec, storage).err();
        // In the order in which Kubernetes names them.
        let (first, last) = match bound {
            Some(NOWHERE) => (None, Some(NOWHERE)),
            other => (other, None),
        };
        let reasons: Vec<Reason> = first
            .map(Reason::from)
            .into_iter()
            .chain(chosen)
            .chain(last.map(Reason::from))
            .collect();
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Rejection {
            status: Status::Unresolvable,
            reasons,
        })
    }
}

impl Claims {
    /// The first bound claim that rejects the node, with its reason.
    fn check_bound(
        &self,
        node: &NodeSpec,
        storage: &Storage,
    ) -> Result<Option<&'static str>, Rejection> {
        for bound in &self.bound {
            let Bound::To { affinity, migrated } = bound else {
                return Ok(Some(NOWHERE));
            };
            let is_served = |migrated: &&Migrated| {
                let csi_node = storage.nodes.get(&node.name);
                csi_node
                    .is_some_and(|csi_node| csi_node.migrated_plugins.contains(&migrated.plugin))
            };
            let affinity = match migrated.as_ref().filter(is_served).map(|m| &m.affinity) {
                None => affinity,
                Some(Ok(affinity)) => affinity,
                Some(Err(text)) => {
                    return Err(Rejection::error(format!("could not translate pv: {text}")));
                }
            };
            let reaches =
                |affinity: &NodeSelector| affinity.matches(NodeMatch::Labels(&node.labels));
            if !affinity.as_ref().is_none_or(reaches) {
                return Ok(Some(OUT_OF_REACH));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
