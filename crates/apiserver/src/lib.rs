//! The embedded cluster: an in-memory Kubernetes API that real clients can talk to.
