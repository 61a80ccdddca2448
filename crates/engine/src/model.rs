//! Objects of the cluster as the engine sees them, once they are parsed.
//!
//! Nothing here knows a plugin or a wire format. Everything is parsed once, when it is received: a value of these types is
//! valid, and text that could not be parsed is kept only where Kubernetes keeps it too. The models of small objects are in
//! the files of their kinds.

mod affinity;
mod labels;
mod names;
mod node;
mod node_selector;
mod pod;
mod pod_shape;
mod priority;
mod qos;
mod quantity;
mod reclaimed;
mod requests;
mod resource;
mod resource_policy;
mod taint;
mod tier;
mod time;
mod topology;

pub use affinity::{PodTerm, PreferredPodTerm};
pub use labels::{Labels, Operator, Requirement, Selector, SelectorError};
pub use names::{
    is_dns_label, is_dns_subdomain, is_label_value, is_qualified_name, label_value_faults,
    qualified_name_faults,
};
pub use node::{Image, Images, Node, NodeSpec, fingerprint};
pub use node_selector::{
    FieldRequirement, NodeMatch, NodeSelector, NodeTerm, ParsedTerm, PreferredNodeTerm,
    RequiredNodes, TopologyTerm,
};
pub use pod::{
    AuthorClaims, Disk, Enhancements, HostPort, Inclusion, Owner, Pod, PodKind, PreemptionPolicy,
    SpreadConstraint, Unsatisfiable, Volume, VolumeSource,
};
pub use pod_shape::PodShape;
pub use priority::OpenPriority;
pub use qos::{QosClass, QosError, QosLabels, QosLevel};
pub use quantity::{Quantity, QuantityError};
pub use reclaimed::{QosTaint, RECLAIMED_GROUPS, Reclaimed, ReclaimedRequests, ReclaimedResource};
pub use requests::{
    ContainerResources, DEFAULT_MEMORY, DEFAULT_MILLI_CPU, NonZero, PodRequests, PodResources,
    Quantities, StatusResources,
};
pub use resource::{Amounts, Resource};
pub use resource_policy::{
    CountedPod, DELETION_COST, HIGHEST_MAX_COUNT, HIGHEST_PRIORITY, POLICY_UNIT, PolicyGroup,
    PolicySpec, PolicyStrategy, SharedSpec, Unit, UnitMark, above_cap, deletion_cost,
};
pub use taint::{Effect, Taint, Toleration, TolerationOperator, tolerated};
pub use tier::TierAccount;
pub use time::{DurationError, Timestamp, parse_duration, write_duration};
pub use topology::{
    Allocation, MOST_ZONES, NUMA_ZONES, NumaBinding, TakenZones, Topology, TopologyPolicy, Zone,
    ZoneSet,
};

/// Text that is shared and never changed: names, keys, values.
pub type Name = std::sync::Arc<str>;
