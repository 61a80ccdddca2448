//! N: nodes.

use serde_json::json;

use super::behaviour;
use crate::session::{MERGE_PATCH, STRATEGIC_PATCH, Session};
use crate::suite::Behaviour;

pub(super) const ALL: &[Behaviour] = &[behaviour(
    "N1",
    "nodes: create, status and defaults",
    create_status_and_defaults,
)];

fn create_status_and_defaults(s: &mut Session) {
    s.post("/api/v1/nodes", &json!({"metadata": {"name": "n1-bare"}}));
    s.post("/api/v1/nodes", &json!({"metadata": {"name": "n1-full", "labels": {"zone": "a"}},
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": "x://1", "taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}], "unschedulable": true},
        "status": {"capacity": {"cpu": "4000m", "memory": "8192Mi", "pods": "110", "x.io/gpu": "2"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux"}}}));
    for patch in [
        json!({"status": {"capacity": {"cpu": "8"}}}),
        json!({"status": {"allocatable": {"cpu": "3", "memory": "7Gi"}}}),
        json!({"status": {"capacity": {"cpu": "16"}}}),
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Down", "message": "m",
            "lastHeartbeatTime": "2020-01-01T00:00:00Z", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}),
        json!({"status": {"phase": "Running", "volumesInUse": ["v"], "nodeInfo": {"kernelVersion": "6"}}}),
    ] {
        s.patch(STRATEGIC_PATCH, "/api/v1/nodes/n1-full/status", &patch);
    }
    s.patch(
        MERGE_PATCH,
        "/api/v1/nodes/n1-bare/status",
        &json!({"status": {"capacity": {"cpu": "1"}}}),
    );
    s.patch(
        MERGE_PATCH,
        "/api/v1/nodes/n1-bare",
        &json!({"metadata": {"labels": {"l": "1"}}, "spec": {"unschedulable": true}}),
    );
    s.patch(MERGE_PATCH, "/api/v1/nodes/n1-bare", &json!({"spec": {"unschedulable": null, "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z"}]}}));
    s.get("/api/v1/nodes/n1-bare");
    s.get("/api/v1/nodes/n1-full");
}
