//! Kubernetes objects and configuration, and their conversion into the engine's types.
//!
//! [`wire`] has structs with only the fields that the engine reads; decoding skips the others. [`parse`] converts them
//! into [`engine::model`] types. [`config`] reads the configuration of a scheduler. [`crds`] has the definitions of custom
//! resources. [`http`] has the answers of a scheduler's HTTP API. Nothing here makes decisions.

pub mod config;
pub mod crds;
pub mod http;
pub mod parse;
pub mod wire;
pub mod yaml;
