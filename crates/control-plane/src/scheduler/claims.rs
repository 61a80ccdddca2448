//! Whoever replaces kube-scheduler on a cluster with ResourceClaims should know what is missing.

use std::time::Duration;

use super::requests::Call;

const LIMIT: Duration = Duration::from_secs(10);
/// Newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Says so once if there are any. A cluster that does not have the kind, or does not show it, has no need of it.
pub(super) async fn warn(client: kube::Client) {
    for version in VERSIONS {
        let path = format!("/apis/resource.k8s.io/{version}/resourceclaims?limit=1");
        let Ok(answer) = Call::get(path).send_within(&client, LIMIT).await else {
            continue;
        };
        let list: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        if list["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
        {
            tracing::warn!(
                "this cluster has ResourceClaims: devices are not allocated by this scheduler, and pods that need them stay pending"
            );
        }
        return;
    }
}
