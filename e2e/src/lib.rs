//! The harness that runs the real control plane, for tests that want the real thing.
//!
//! [`ControlPlane`] starts etcd, kube-apiserver and, if enabled, kube-controller-manager and
//! kube-scheduler on free loopback ports; [`Kubectl`] runs the real kubectl against it or against
//! anything else that a [`Kubeconfig`] reaches. What the tests say is in `tests/`.

pub mod api;
pub mod audit;
pub mod binaries;
pub mod binds;
pub mod control_plane;
pub mod etcd;
pub mod kubeconfig;
pub mod kubectl;
pub mod kubelet;
mod loopback;
pub mod node;
pub mod normalise;
mod process;
pub mod proxy;
pub mod tidepool;
pub mod transcript;
pub mod webhook;

pub use api::{Api, eventually};
pub use binaries::Binaries;
pub use binds::Binds;
pub use control_plane::{ControlPlane, Options, User};
pub use kubeconfig::Kubeconfig;
pub use kubectl::Kubectl;
pub use kubelet::Kubelet;
pub use process::Process;
pub use proxy::Proxy;
pub use webhook::{Reply, WebhookAuthority, WebhookServer};
