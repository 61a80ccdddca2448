//! One node: what its agent measures, and what follows from it.
//!
//! The agent calls [`advise`] at every period with the last [`NodeSample`] and carries out the [`Advice`]: figures to report, cgroup
//! settings to write, pods to evict, taints and conditions. Nothing here does I/O or asks a clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`sample`] | the measurements of one moment |
//! | [`setting`] | values of cgroups |
//! | [`pods`] | the node and its pods as the API server describes them; which pods are the agent's own |
//! | [`groups`] | which cgroup a pod has |
//! | [`settings`] | thresholds and ratios, with their defaults |
//! | [`advice`] | the result of a period |
//! | [`advisor`] | the function [`advise`], and what it keeps between periods |
//! | [`usage`] | use by class of pods, from samples |
//! | [`histogram`] | decaying histograms |
//! | [`predict`] | peaks of pods, classes and the node; checkpoints |
//! | [`publish`] | when a new figure is published |
//! | [`reclaimable`] | what pods of production request and do not need |
//! | [`window`] | smoothing of figures that are reported |
//! | [`headroom`] | how much the node lends |
//! | [`lender`] | what of the headroom is reported |
//! | [`zones`] | the report by NUMA node |
//! | [`numa`] | the pods that have NUMA zones, and the cpusets that follow from it |
//! | [`cgroup`] | shares, quotas and memory limits of own pods |
//! | [`suppress`] | how many CPUs own best-effort pods may use, and which |
//! | [`guard`] | the memory limit of the directory `besteffort` |
//! | [`evict`] | which own pods to evict, and how fast |
//! | [`interference`] | whether online pods suffer |
//! | [`health`] | whether the samples are good enough to lend; taints and conditions |
//! | [`terms`] | figures with the sum behind them |

pub mod advice;
pub mod advisor;
pub mod cgroup;
pub mod evict;
pub mod groups;
pub mod guard;
pub mod headroom;
pub mod health;
pub mod histogram;
pub mod interference;
pub mod lender;
pub mod numa;
pub mod pods;
pub mod predict;
pub mod publish;
pub mod reclaimable;
pub mod sample;
pub mod setting;
pub mod settings;
pub mod suppress;
pub mod terms;
pub mod usage;
pub mod window;
pub mod zones;

pub use advice::{
    Advice, AgentCondition, AgentTaint, EvictionOrder, NodeMetricReport, PodEvent, PodMetric,
    ReclaimedReport,
};
pub use advisor::{Advisor, Inputs, RefusedValue, WriteProblems, advise};
pub use groups::{GroupClaim, GroupConflict};
pub use numa::NumaMode;
pub use pods::{LocalContainer, LocalNode, LocalPod, PodPhase, ResourcePair};
pub use predict::{Checkpoint, CheckpointError};
pub use sample::{
    Allowed, Bytes, CpuSet, GroupUse, MachineMemory, MachineUse, MemoryUse, NanoCores, NodeSample,
    NumaUse, PodQos, PodUse, Pressure, Stall, Throttling,
};
pub use setting::{ChangedCpuset, CpusetFile, Group, Setting, SettingValue};
pub use settings::{AgentSettings, Lend};
pub use suppress::Processor;
pub use terms::{CpuMemory, Figure, FigureTerm};
pub use zones::{ZoneAllocation, ZoneReport};

#[cfg(test)]
mod tests;
