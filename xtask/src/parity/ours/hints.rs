//! What may help the pod: the events of `e2e/oracle-kube/hints.go`, in its order, made by the engine's own cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use api::parse;
use api::wire::meta::ObjectMeta;
use api::wire::{core, storage};
use engine::cluster::{Cluster, Update, pod_actions};
use engine::framework::{Change, Changed, Event, Point};
use engine::model::{Name, Pod};
use engine::profile::Profile;
use engine::queue::Cause;

use super::world::World;
use crate::parity::verdicts::Hint;

pub(super) fn hints(profile: &Profile, quiet: &Cluster, world: &World) -> Result<Vec<Hint>> {
    let hint = |(event, object): (Event, String)| Hint {
        event: format!("{} {object}", Cause::from(&event)),
        helps: helped(profile, quiet, &world.pod, &event),
    };
    Ok(happenings(quiet, world)?.into_iter().map(hint).collect())
}

/// Plugins that can reject a pod and for which the event may make a difference.
fn helped(profile: &Profile, quiet: &Cluster, pod: &Pod, event: &Event) -> BTreeMap<String, bool> {
    use Point::{Filter, Permit, PreEnqueue, PreFilter, Reserve};
    let rejects = |index: usize| {
        [PreEnqueue, PreFilter, Filter, Reserve, Permit]
            .into_iter()
            .any(|point| profile.at(point).contains(&index))
    };
    let mut helped = BTreeMap::new();
    for (index, enabled) in profile.plugins().iter().enumerate() {
        let plugin = &enabled.plugin;
        let hears = plugin.events().iter().any(|pattern| pattern.matches(event));
        if rejects(index) && hears && plugin.helps(pod, event, quiet.catalog()) {
            helped.insert(enabled.name.to_owned(), true);
        }
    }
    helped
}

fn happenings(quiet: &Cluster, world: &World) -> Result<Vec<(Event, String)>> {
    let objects = &world.objects;
    let mut all = Vec::new();
    let quiet = &mut quiet.clone();
    come_and_go(quiet, &objects.nodes, &mut all)?;
    come_and_go(quiet, &objects.pods, &mut all)?;
    come_and_go(quiet, &objects.persistent_volumes, &mut all)?;
    come_and_go(quiet, &objects.persistent_volume_claims, &mut all)?;
    come_and_go(quiet, &objects.storage_classes, &mut all)?;
    come_and_go(quiet, &objects.csi_nodes, &mut all)?;
    come_and_go(quiet, &objects.csi_drivers, &mut all)?;
    come_and_go(quiet, &objects.csi_storage_capacities, &mut all)?;
    come_and_go(quiet, &objects.volume_attachments, &mut all)?;
    for other in &objects.pods {
        let mut changed = other.in_place_of(&objects.pod);
        changed.spec.node_name.clear();
        let (old, new) = (world.pod.clone(), Arc::new(parse::pod(&changed)?));
        let events = pod_actions(&old, &new).into_iter().map(|actions| Event {
            actions,
            changed: Changed::WaitingPod(Change {
                old: Some(old.clone()),
                new: Some(new.clone()),
            }),
        });
        all.extend(events.map(|event| (event, world.pod.name.to_string())));
    }
    Ok(all)
}

/// Every object comes, turns into the next of its kind, and goes.
fn come_and_go<T: Object>(
    cluster: &mut Cluster,
    objects: &[T],
    all: &mut Vec<(Event, String)>,
) -> Result<()> {
    for (i, object) in objects.iter().enumerate() {
        let changed = objects[(i + 1) % objects.len()].in_place_of(object);
        let mut events = Vec::new();
        cluster.apply(object.gone())?;
        events.extend(cluster.apply(object.seen()?)?);
        events.extend(cluster.apply(changed.seen()?)?);
        cluster.apply(object.seen()?)?;
        events.extend(cluster.apply(object.gone())?);
        cluster.apply(object.seen()?)?;
        let named = |event| (event, object.name().to_owned());
        all.extend(events.into_iter().map(named));
    }
    Ok(())
}

/// Something that is seen and goes.
trait Object: Clone {
    fn name(&self) -> &str;
    fn seen(&self) -> Result<Update>;
    fn gone(&self) -> Update;
    /// This object under the name of another.
    fn in_place_of(&self, other: &Self) -> Self;
}

fn rename(meta: &mut ObjectMeta, other: &ObjectMeta) {
    meta.name.clone_from(&other.name);
    meta.namespace.clone_from(&other.namespace);
    meta.uid.clone_from(&other.uid);
}

macro_rules! objects {
    ($($type:ty: $object:ident => $seen:expr, $namespace:ident $name:ident => $gone:expr;)*) => {$(
        impl Object for $type {
            fn name(&self) -> &str {
                &self.metadata.name
            }
            fn seen(&self) -> Result<Update> {
                let $object = self;
                Ok($seen)
            }
            fn gone(&self) -> Update {
                let meta = &self.metadata;
                let ($namespace, $name): (Name, Name) = ((*meta.namespace).into(), (*meta.name).into());
                $gone
            }
            fn in_place_of(&self, other: &Self) -> Self {
                let mut changed = self.clone();
                rename(&mut changed.metadata, &other.metadata);
                changed
            }
        }
    )*};
}

objects! {
    core::Node: node => Update::Node(parse::node(node)?), _n name => Update::NodeGone(name);
    storage::PersistentVolume: volume => Update::Volume(parse::volume(volume)?), _n name => Update::VolumeGone(name);
    storage::PersistentVolumeClaim: claim => Update::Claim(parse::claim(claim)?),
        namespace name => Update::ClaimGone { namespace, name };
    storage::StorageClass: class => Update::StorageClass(parse::storage_class(class)),
        _n name => Update::StorageClassGone(name);
    storage::CsiNode: node => Update::CsiNode(parse::csi_limits(node)), _n name => Update::CsiNodeGone(name);
    storage::CsiDriver: driver => Update::CsiDriver(parse::csi_driver(driver)),
        _n name => Update::CsiDriverGone(name);
    storage::CsiStorageCapacity: capacity => Update::StorageCapacity(parse::storage_capacity(capacity)?),
        namespace name => Update::StorageCapacityGone { namespace, name };
    storage::VolumeAttachment: attachment => Update::VolumeAttachment(parse::volume_attachment(attachment)),
        _n name => Update::VolumeAttachmentGone(name);
}

impl Object for core::Pod {
    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn seen(&self) -> Result<Update> {
        Ok(Update::PodBound(Arc::new(parse::pod(self)?)))
    }

    fn gone(&self) -> Update {
        Update::PodGone((*self.metadata.uid).into())
    }

    /// On the other's node, too.
    fn in_place_of(&self, other: &Self) -> Self {
        let mut changed = self.clone();
        rename(&mut changed.metadata, &other.metadata);
        changed.spec.node_name.clone_from(&other.spec.node_name);
        changed
    }
}
