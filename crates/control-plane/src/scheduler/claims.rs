//! Whoever replaces kube-scheduler on a cluster with ResourceClaims should know what is missing.

use super::requests::Call;
use crate::client::Exchange;

/// Newest first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// Says so once if there are any.
pub(super) async fn warn(api: Exchange) {
    if are_there(&api).await {
        tracing::warn!(
            "this cluster has ResourceClaims: devices are not allocated by this scheduler, and pods that need them stay pending"
        );
    }
}

/// A cluster that does not have the kind, or does not show it, has no need of it.
async fn are_there(api: &Exchange) -> bool {
    for version in VERSIONS {
        let path = format!("/apis/resource.k8s.io/{version}/resourceclaims?limit=1");
        if let Ok(answer) = Call::get(path).send(api).await {
            let list: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
            let items = list["items"].as_array();
            return items.is_some_and(|items| !items.is_empty());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;

    use super::*;

    /// A server that has the kind in this version, with these objects.
    fn server(version: &'static str, items: &'static str) -> Exchange {
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| async move {
            let path = request.uri().path();
            let known = path.contains(&format!("/{version}/"));
            let (code, body) = match known {
                true => (200, format!(r#"{{"items":{items}}}"#)),
                false => (404, "{}".to_owned()),
            };
            let mut response = Response::new(body.into());
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
            Ok(response)
        });
        Exchange::new(service)
    }

    #[tokio::test]
    async fn claims_of_any_version_are_found() {
        for (version, items, want) in [
            ("v1", "[{}]", true),
            ("v1beta2", "[{}]", true),
            ("v1beta1", "[{}]", true),
            ("v1", "[]", false),
            ("v2", "[{}]", false),
        ] {
            let client = server(version, items);
            assert_eq!(are_there(&client).await, want, "{version} {items}");
        }
    }
}
