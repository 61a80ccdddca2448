//! Volumes and claims, and what volume controllers and provisioners would do with them.

use engine::cluster::kinds::{Key, Kind, Object};
use engine::cluster::{Claim, ClaimPhase, ClaimRef, PersistentVolume, VolumeHandle, VolumePhase};
use engine::model::Name;
use engine::scheduling::framework::Step;
use indexmap::IndexMap;

#[derive(Default)]
pub(crate) struct Storage {
    claims: IndexMap<Key, Claim>,
    volumes: IndexMap<Name, PersistentVolume>,
}

impl Storage {
    /// Remembers a volume or a claim.
    pub(crate) fn set(&mut self, object: &Object) {
        match object {
            Object::PersistentVolumeClaim(claim) => {
                self.claims.insert(object.key(), claim.clone());
            }
            Object::PersistentVolume(volume) => {
                self.volumes.insert(volume.name.clone(), volume.clone());
            }
            _ => {}
        }
    }

    pub(crate) fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::PersistentVolumeClaim => drop(self.claims.shift_remove(key)),
            Kind::PersistentVolume => drop(self.volumes.shift_remove(&key.name)),
            _ => {}
        }
    }

    /// Returns the objects that the step changes; none if a controller of the cluster does it.
    pub(crate) fn carry_out(&mut self, step: Step) -> Vec<Object> {
        match step {
            Step::BindVolume {
                volume,
                namespace,
                claim,
            } => self.bind(&volume, &Key::new(namespace, claim)),
            Step::ProvisionVolume {
                namespace, claim, ..
            } => self.provision(&Key::new(namespace, claim)),
            Step::AwaitClaim { .. } => Vec::new(),
        }
    }

    fn provision(&mut self, key: &Key) -> Vec<Object> {
        let Some(claim) = self.claims.get(key) else {
            return Vec::new();
        };
        let name: Name = format!("pvc-{}-{}", key.namespace, key.name).into();
        let volume = PersistentVolume {
            name: name.clone(),
            labels: Default::default(),
            phase: VolumePhase::Available,
            deleting: false,
            claim: None,
            capacity: claim.request.unwrap_or_default(),
            class: claim.class.clone().unwrap_or_default(),
            access_modes: claim.access_modes.clone(),
            volume_mode: claim.volume_mode.clone(),
            attributes_class: claim.attributes_class.clone(),
            node_affinity: None,
            source: VolumeHandle::Other,
        };
        self.volumes.insert(name.clone(), volume);
        self.bind(&name, key)
    }

    fn bind(&mut self, volume: &Name, key: &Key) -> Vec<Object> {
        let (Some(claim), Some(volume)) = (self.claims.get_mut(key), self.volumes.get_mut(volume))
        else {
            return Vec::new();
        };
        claim.phase = ClaimPhase::Bound;
        claim.volume = Some(volume.name.clone());
        claim.bind_completed = true;
        volume.phase = VolumePhase::Bound;
        volume.claim = Some(ClaimRef {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        });
        vec![volume.clone().into(), claim.clone().into()]
    }
}
