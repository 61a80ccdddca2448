//! Builders of volumes, claims and classes.

use super::affinity::requirement;
use super::objects::PodBuilder;
use crate::cluster::kinds::Object;
use crate::cluster::{
    BindingMode, Claim, ClaimPhase, ClaimRef, PersistentVolume, StorageClass, VolumeHandle,
    VolumePhase,
};
use crate::model::{Labels, Name, NodeSelector, NodeTerm, Owner, Quantity, Volume, VolumeSource};

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| Name::from(*text)).collect()
}

#[derive(Debug, Clone)]
pub struct ClaimBuilder(Claim);

/// A claim in namespace `default` for 1Gi that is not bound and has no class.
pub fn claim(name: &str) -> ClaimBuilder {
    ClaimBuilder(Claim {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("claim-{name}").into(),
        phase: ClaimPhase::Pending,
        deleting: false,
        volume: None,
        bind_completed: false,
        class: None,
        selected_node: None,
        request: Some(quantity("1Gi")),
        selector: None,
        access_modes: names(&["ReadWriteOnce"]),
        volume_mode: "Filesystem".into(),
        attributes_class: None,
        owner: None,
    })
}

impl ClaimBuilder {
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.namespace = namespace.into();
        self
    }

    /// Bound for good.
    pub fn bound_to(mut self, volume: &str) -> Self {
        self.0.volume = Some(volume.into());
        self.0.bind_completed = true;
        self.0.phase = ClaimPhase::Bound;
        self
    }

    pub fn class(mut self, class: &str) -> Self {
        self.0.class = Some(class.into());
        self
    }

    pub fn size(mut self, text: &str) -> Self {
        self.0.request = Some(quantity(text));
        self
    }

    pub fn modes(mut self, modes: &[&str]) -> Self {
        self.0.access_modes = names(modes);
        self
    }

    /// Made for the ephemeral volume of a pod, whose uid is its name.
    pub fn of_pod(mut self, pod: &str) -> Self {
        self.0.owner = Some(Owner {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.into(),
            uid: pod.into(),
        });
        self
    }

    /// Anything else.
    pub fn with(mut self, change: impl FnOnce(&mut Claim)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn build(self) -> Claim {
        self.0
    }
}

impl From<ClaimBuilder> for Object {
    fn from(claim: ClaimBuilder) -> Self {
        claim.0.into()
    }
}

#[derive(Debug, Clone)]
pub struct VolumeBuilder(PersistentVolume);

/// An available volume of 10Gi without a class, of the driver `csi`, under its name as handle.
pub fn volume(name: &str) -> VolumeBuilder {
    VolumeBuilder(PersistentVolume {
        name: name.into(),
        labels: Labels::default(),
        phase: VolumePhase::Available,
        deleting: false,
        claim: None,
        capacity: quantity("10Gi"),
        class: "".into(),
        access_modes: names(&["ReadWriteOnce"]),
        volume_mode: "Filesystem".into(),
        attributes_class: None,
        node_affinity: None,
        source: VolumeHandle::Csi {
            driver: "csi".into(),
            handle: name.into(),
        },
    })
}

impl VolumeBuilder {
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let known = self.0.labels.iter().map(|(k, v)| (k.clone(), v.clone()));
        self.0.labels = known
            .chain([(Name::from(key), Name::from(value))])
            .collect();
        self
    }

    pub fn class(mut self, class: &str) -> Self {
        self.0.class = class.into();
        self
    }

    pub fn size(mut self, text: &str) -> Self {
        self.0.capacity = quantity(text);
        self
    }

    /// Reachable from nodes that meet one more requirement: `"zone In a b"`.
    pub fn on_nodes(mut self, text: &str) -> Self {
        let affinity = self.0.node_affinity.take().unwrap_or_default();
        self.0.node_affinity = Some(NodeSelector {
            terms: affinity
                .terms
                .into_iter()
                .chain([NodeTerm::new(vec![requirement(text)], Vec::new())])
                .collect(),
        });
        self
    }

    /// Promised to a claim of namespace `default`.
    pub fn for_claim(mut self, name: &str) -> Self {
        self.0.claim = Some(ClaimRef {
            namespace: "default".into(),
            name: name.into(),
            uid: "".into(),
        });
        self
    }

    pub fn in_tree(mut self, plugin: &str, id: &str) -> Self {
        self.0.source = VolumeHandle::InTree {
            plugin: plugin.into(),
            id: id.into(),
        };
        self
    }

    /// Anything else.
    pub fn with(mut self, change: impl FnOnce(&mut PersistentVolume)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn build(self) -> PersistentVolume {
        self.0
    }
}

impl From<VolumeBuilder> for Object {
    fn from(volume: VolumeBuilder) -> Self {
        volume.0.into()
    }
}

#[derive(Debug, Clone)]
pub struct ClassBuilder(StorageClass);

/// A class of the driver `csi` that waits for the first pod.
pub fn class(name: &str) -> ClassBuilder {
    ClassBuilder(StorageClass {
        name: name.into(),
        provisioner: "csi".into(),
        mode: Some(BindingMode::WaitForFirstConsumer),
        allowed_topologies: Vec::new(),
    })
}

impl ClassBuilder {
    pub fn immediate(mut self) -> Self {
        self.0.mode = Some(BindingMode::Immediate);
        self
    }

    pub fn provisioner(mut self, provisioner: &str) -> Self {
        self.0.provisioner = provisioner.into();
        self
    }

    /// Anything else.
    pub fn with(mut self, change: impl FnOnce(&mut StorageClass)) -> Self {
        change(&mut self.0);
        self
    }
}

impl From<ClassBuilder> for Object {
    fn from(class: ClassBuilder) -> Self {
        class.0.into()
    }
}

impl PodBuilder {
    /// One more volume: a claim of the pod's namespace.
    pub fn claim(self, name: &str) -> Self {
        self.volume(VolumeSource::Claim(name.into()))
            .kind(|kind| kind.claims.push(name.into()))
    }

    /// One more volume, named `v0`, `v1` and so on.
    pub fn volume(self, source: VolumeSource) -> Self {
        self.with(|pod| {
            let name = format!("v{}", pod.volumes.len()).into();
            pod.volumes.push(Volume { name, source });
        })
    }
}
