//! The words as Kubernetes writes them, and their one translation into the engine's types.
//!
//! [`wire`] has slim structs: only the fields that the engine reads are decoded, the rest is skipped. [`parse`] turns
//! them into [`engine::model`] types. [`config`] reads the configuration of a scheduler. [`crds`] has the definitions
//! of custom kinds. Nothing here decides.

pub mod config;
pub mod crds;
pub mod parse;
pub mod wire;
pub mod yaml;
