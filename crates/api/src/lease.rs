//! The annotations on the Lease of a component: where its leader serves, and what it does. Clients and other components
//! read them.

/// The URL of the leader's HTTP server.
pub const SERVER: &str = "tidepool.io/server";
/// The SHA-256 of the certificate that the server presents: 64 hexadecimal digits in lower case. Clients pin it.
pub const CERTIFICATE: &str = "tidepool.io/server-certificate";
/// The pod of the leader, as NAMESPACE/NAME: the Lease may be in another namespace.
pub const POD: &str = "tidepool.io/server-pod";
/// The names of the schedulers that the leader serves, separated by commas. Only a scheduler's Lease has it.
pub const SCHEDULER_NAMES: &str = "tidepool.io/scheduler-names";
