//! Kubernetes objects and configuration, and their conversion into the engine's types. Nothing here makes decisions.
//!
//! | module | what it is |
//! |---|---|
//! | [`agent_settings`] | reads the settings of node agents |
//! | [`config`] | reads the configuration of a scheduler |
//! | [`crds`] | definitions of custom resources |
//! | [`http`] | the answers of a scheduler's HTTP API |
//! | [`lease`] | annotations on the Lease of a component |
//! | [`parse`] | converts [`wire`] structs into [`engine::model`] types |
//! | [`wire`] | structs with only the fields that the engine reads; decoding skips the others |
//! | [`yaml`] | text into types, with line numbers |
//! | [`zone_grid`] | NUMA zones of equal size, for simulated nodes |

pub mod agent_settings;
pub mod config;
pub mod crds;
pub mod http;
pub mod lease;
pub mod parse;
pub mod wire;
pub mod yaml;
pub mod zone_grid;
