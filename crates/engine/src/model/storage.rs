//! Volumes and the classes, drivers and claims around them.

use super::{Labels, Name, NodeSelector, Owner, Quantity, Selector, TopologyTerm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimPhase {
    Pending,
    Bound,
    Lost,
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub phase: ClaimPhase,
    pub deleting: bool,
    /// The volume it is, or is to be, bound to.
    pub volume: Option<Name>,
    /// The binding controller has finished (`pv.kubernetes.io/bind-completed`).
    pub bind_completed: bool,
    /// From the beta annotation, else from the spec; `None` and "" mean no class.
    pub class: Option<Name>,
    /// Node for which a volume is to be provisioned (`volume.kubernetes.io/selected-node`).
    pub selected_node: Option<Name>,
    pub request: Option<Quantity>,
    pub selector: Option<Selector>,
    pub access_modes: Vec<Name>,
    /// `Filesystem` when not given.
    pub volume_mode: Name,
    pub attributes_class: Option<Name>,
    pub owner: Option<Owner>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumePhase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
}

/// Which volume it is for its driver. In-tree sources are kept by their plugin's name until they are translated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeHandle {
    Csi { driver: Name, handle: Name },
    InTree { plugin: Name, id: Name },
    Other,
}

/// The claim that a volume is, or is to be, bound to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    pub name: Name,
    pub labels: Labels,
    pub phase: VolumePhase,
    pub deleting: bool,
    pub claim: Option<ClaimRef>,
    pub capacity: Quantity,
    pub class: Name,
    pub access_modes: Vec<Name>,
    pub volume_mode: Name,
    pub attributes_class: Option<Name>,
    pub node_affinity: Option<NodeSelector>,
    pub source: VolumeHandle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BindingMode {
    Immediate,
    WaitForFirstConsumer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    pub name: Name,
    pub provisioner: Name,
    pub mode: Option<BindingMode>,
    pub allowed_topologies: Vec<TopologyTerm>,
}

/// A CSINode: how many volumes of each driver fit on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CsiLimits {
    pub node: Name,
    /// Driver and its limit; `None` is unlimited.
    pub drivers: Vec<(Name, Option<i64>)>,
    /// In-tree plugins that are served by CSI on this node.
    pub migrated_plugins: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriver {
    pub name: Name,
    pub storage_capacity: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageCapacity {
    pub namespace: Name,
    pub name: Name,
    pub class: Name,
    /// `None` matches no node.
    pub topology: Option<Selector>,
    pub capacity: Option<Quantity>,
    pub largest_volume: Option<Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    pub name: Name,
    pub attacher: Name,
    pub node: Name,
    /// The attached PersistentVolume; `None` for inline volumes.
    pub volume: Option<Name>,
}
