//! What components agree on: the names of objects and keys by which one finds what another wrote. Keys of the engine are here,
//! too, so that this module has them all.
//!
//! docs/security.md says who may write each of them, and which component believes it.

pub mod agent_lease;

pub use engine::admission::keys::{KEEP_SCHEDULER, NAMESPACE_SCHEDULER, PROFILES, SCHEDULER_CHECK};
pub use engine::model::{NUMA_ZONES, POLICY_UNIT};
pub use engine::node::health::{INTERFERENCE, PRESSURE, UNHEALTHY};
pub use engine::policies::agents::AGENT_SILENT;

/// [`NAMESPACE`](contracts::NAMESPACE) as a literal, for `concat!`.
#[macro_export]
macro_rules! namespace {
    () => {
        "tidepool-system"
    };
}

/// The namespace of Tidepool's own objects.
pub const NAMESPACE: &str = namespace!();

/// Namespace and name of the ConfigMap with the settings of tiers and agents. Its keys are in [`crate::agent_settings`].
pub const COLOCATION: (&str, &str) = (NAMESPACE, "tidepool-colocation");

/// ConfigMap in [`NAMESPACE`]: which schedulers run.
pub const SCHEDULERS: &str = "schedulers";
/// Key of [`SCHEDULERS`]: the names that the controllers found on Leases, separated by commas.
pub const REGISTERED_NAMES: &str = "names";
/// Key of [`SCHEDULERS`]: the scheduler of pods that name none. Administrators write it.
pub const DEFAULT_NAME: &str = "default";

/// Annotation of a component's Lease: the URL of the leader's HTTP server.
pub const SERVER: &str = "tidepool.io/server";
/// Annotation of a component's Lease: the SHA-256 of the certificate that the server presents, as 64 hexadecimal digits in
/// lower case. Clients pin it.
pub const SERVER_CERTIFICATE: &str = "tidepool.io/server-certificate";
/// Annotation of a component's Lease: the pod of the leader, as NAMESPACE/NAME. The Lease may be in another namespace.
pub const SERVER_POD: &str = "tidepool.io/server-pod";
/// Annotation of a scheduler's Lease: the names that the leader serves, separated by commas. No other Lease has it.
pub const SCHEDULER_NAMES: &str = "tidepool.io/scheduler-names";

/// Annotation of a CustomNodeResource: the sum behind each reported number, as JSON.
pub const TERMS: &str = "tidepool.io/terms";

/// `status.reason` of a bind that the gate refused because another scheduler was faster. Schedulers try such a pod again.
pub const BIND_REFUSED: &str = "BindRefused";

#[cfg(test)]
mod tests {
    #[test]
    fn schedulers_can_register_in_our_namespace() {
        assert!(engine::policies::schedulers::OWN_NAMESPACES.contains(&super::NAMESPACE));
    }
}
