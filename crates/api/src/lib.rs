//! The words as Kubernetes writes them, and their one translation into the engine's types.
