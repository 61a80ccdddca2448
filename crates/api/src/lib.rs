//! Kubernetes objects and configuration, and their conversion into the engine's types. Nothing here makes decisions.
//!
//! | module | what it is |
//! |---|---|
//! | [`config`] | reads the configuration of a scheduler |
//! | [`crds`] | definitions of custom resources |
//! | [`http`] | the answers of a scheduler's HTTP API |
//! | [`parse`] | converts [`wire`] structs into [`engine::model`] types |
//! | [`wire`] | structs with only the fields that the engine reads; decoding skips the others |
//! | [`yaml`] | text into types, with line numbers |

pub mod config;
pub mod crds;
pub mod http;
pub mod parse;
pub mod wire;
pub mod yaml;
