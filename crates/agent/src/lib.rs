//! The agent of one node: it measures the node and its pods, applies cgroup settings, evicts pods and reports to the API server.
//!
//! It decides nothing: the engine does. It reads below `/proc` and `/sys`, and it writes cgroup files only through
//! [`write::Writer`].
//!
//! | module | contents |
//! |---|---|
//! | [`agent`] | the running agent: watches, the thread of the node, reports, the Lease and evictions |
//! | [`checkpoint`] | what a restart continues from |
//! | [`collect`] | one sample of the node, its NUMA nodes, pods and containers |
//! | `control` | one period: sample, ask the engine, write, publish |
//! | `counters` | rates from counters that may restart |
//! | [`evict`] | evictions through the Eviction API |
//! | [`hierarchy`] | where cgroups are: v1, v2 or hybrid |
//! | [`kubelet`] | the state of the kubelet's CPU and memory managers |
//! | [`layout`] | the names of pod cgroups |
//! | `metrics` | the last period as metrics |
//! | [`objects`] | the Node and its pods as the engine reads them |
//! | [`parse`] | parsers of kernel files |
//! | [`report`] | the fields of CNR and NodeMetric, and their writer; the Lease |
//! | [`request`] | requests to the API server |
//! | [`settings`] | settings from a file or a ConfigMap |
//! | [`tree`] | the pod cgroups that exist |
//! | [`write`] | writes cgroup settings |

pub mod agent;
pub mod checkpoint;
pub mod collect;
mod control;
mod counters;
pub mod evict;
pub mod hierarchy;
pub mod kubelet;
pub mod layout;
mod metrics;
pub mod objects;
pub mod parse;
pub mod report;
pub mod request;
pub mod settings;
pub mod tree;
pub mod write;
