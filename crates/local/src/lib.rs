//! What lives in the embedded cluster.
