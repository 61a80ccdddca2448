//! Volumes and claims, and what volume controllers and provisioners would do with them.

use engine::cluster::Update;
use engine::framework::Step;
use engine::model::{
    Claim, ClaimPhase, ClaimRef, Name, PersistentVolume, VolumeHandle, VolumePhase,
};
use indexmap::IndexMap;

#[derive(Default)]
pub(crate) struct Storage {
    claims: IndexMap<(Name, Name), Claim>,
    volumes: IndexMap<Name, PersistentVolume>,
}

impl Storage {
    pub(crate) fn set_claim(&mut self, claim: Claim) -> Update {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.claims.insert(key, claim.clone());
        Update::Claim(claim)
    }

    pub(crate) fn set_volume(&mut self, volume: PersistentVolume) -> Update {
        self.volumes.insert(volume.name.clone(), volume.clone());
        Update::Volume(volume)
    }

    /// Forgets what is gone.
    pub(crate) fn forget(&mut self, update: &Update) {
        match update {
            Update::ClaimGone { namespace, name } => {
                self.claims.shift_remove(&(namespace.clone(), name.clone()));
            }
            Update::VolumeGone(name) => drop(self.volumes.shift_remove(name)),
            _ => {}
        }
    }

    /// What becomes known when the step is done; nothing if somebody else must do it.
    pub(crate) fn carry_out(&mut self, step: Step) -> Vec<Update> {
        match step {
            Step::BindVolume {
                volume,
                namespace,
                claim,
            } => self.bind(&volume, &(namespace, claim)),
            Step::ProvisionVolume {
                namespace, claim, ..
            } => self.provision(&(namespace, claim)),
            Step::AwaitClaim { .. } => Vec::new(),
        }
    }

    fn provision(&mut self, key: &(Name, Name)) -> Vec<Update> {
        let Some(claim) = self.claims.get(key) else {
            return Vec::new();
        };
        let name: Name = format!("pvc-{}-{}", key.0, key.1).into();
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
        self.set_volume(volume);
        self.bind(&name, key)
    }

    fn bind(&mut self, volume: &Name, key: &(Name, Name)) -> Vec<Update> {
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
        vec![Update::Volume(volume.clone()), Update::Claim(claim.clone())]
    }
}
