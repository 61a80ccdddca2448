//! What components agree on: names and keys by which one finds what another wrote.

/// Annotation of a component's Lease: the URL of the leader's HTTP server.
pub const SERVER: &str = "tidepool.io/server";
/// Annotation of a component's Lease: the SHA-256 of the certificate that the server presents, as 64 hexadecimal digits in
/// lower case. Clients pin it.
pub const SERVER_CERTIFICATE: &str = "tidepool.io/server-certificate";
/// Annotation of a component's Lease: the pod of the leader, as NAMESPACE/NAME. The Lease may be in another namespace.
pub const SERVER_POD: &str = "tidepool.io/server-pod";
/// Annotation of a scheduler's Lease: the names that the leader serves, separated by commas. No other Lease has it.
pub const SCHEDULER_NAMES: &str = "tidepool.io/scheduler-names";

/// `status.reason` of a bind that the gate refused because another scheduler was faster. Schedulers try such a pod again.
pub const BIND_REFUSED: &str = "BindRefused";
