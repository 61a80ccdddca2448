//! Field names, types, list kinds and merge keys of a kind.

use serde_json::Value;

/// The type of an object, from the generated table or from a CRD. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {}

impl Schema {
    /// The schema of a built-in kind; `None` when the table does not have it.
    pub fn builtin(_api_version: &str, _kind: &str) -> Option<Self> {
        Some(Self {})
    }

    /// The schema of a custom kind, from `openAPIV3Schema`; metadata is always that of built-in kinds.
    pub fn structural(_open_api_v3_schema: &Value) -> Self {
        Self {}
    }
}
