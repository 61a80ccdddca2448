//! Kubernetes objects and configuration, and their conversion into the engine's types. Nothing here makes decisions.
//!
//! | module | what it is |
//! |---|---|
//! | [`agent_settings`] | reads the settings of node agents |
//! | [`config`] | reads the configuration of a scheduler |
//! | [`contracts`] | names and keys by which a component finds what another one wrote |
//! | [`crds`] | definitions of custom resources |
//! | [`http`] | the answers of a scheduler's HTTP API |
//! | [`parse`] | converts [`wire`] structs into [`engine::model`] types |
//! | [`wire`] | structs with only the fields that the engine reads; decoding skips the others |
//! | [`yaml`] | text into types, with line numbers |
//! | [`zone_grid`] | NUMA zones of equal size, for simulated nodes |

pub mod agent_settings;
pub mod config;
pub mod contracts;
pub mod crds;
pub mod http;
pub mod parse;
pub mod wire;
pub mod yaml;
pub mod zone_grid;
