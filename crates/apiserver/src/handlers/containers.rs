//! Subresources of pods that need containers: logs, exec, attach and port-forward. No containers run here.

use super::Call;
use crate::objects::status::Status;
use crate::protocol::response::ApiResponse;

/// Whether the subresource needs a running container.
pub(super) fn needs_container(plural: &str, subresource: &str) -> bool {
    plural == "pods" && ["attach", "exec", "log", "portforward"].contains(&subresource)
}

pub(super) fn refuse(call: &Call) -> Result<ApiResponse, Status> {
    let found = call.server.store.get(call.served.table, &call.key());
    found.ok_or_else(|| call.not_found())?;
    let pod = &call.path.name;
    let consequence = match call.path.subresource.as_str() {
        "log" => format!("pod {pod:?} has no logs"),
        "exec" => format!("pod {pod:?} cannot execute commands"),
        "attach" => format!("pod {pod:?} has no process to attach to"),
        _ => format!("pod {pod:?} has no ports to forward to"),
    };
    let message = format!("no containers run in this cluster: {consequence}");
    Err(Status::new(501, "NotImplemented", message))
}
