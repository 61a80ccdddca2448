//! Field names, list types and merge keys of a kind.

/// The type of an object, from the generated table or from a CRD.
#[derive(Debug, Clone)]
pub struct Schema {}
