//! Binds: whether one may be committed, and whether the node's kubelet would admit the pod.
//!
//! | module | what it is |
//! |---|---|
//! | [`gate`] | judges the binds of all schedulers of a cluster |
//! | [`kubelet`] | whether a node's kubelet would admit a pod, with the kubelet's messages |

pub mod gate;
pub mod kubelet;
