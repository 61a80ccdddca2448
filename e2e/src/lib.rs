//! The harness that runs the real control plane.
