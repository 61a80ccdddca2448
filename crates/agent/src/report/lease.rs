//! The Lease of the agent: as long as it is renewed, the agent is alive.

use api::contracts::{NAMESPACE, agent_lease};
use engine::model::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::writer::Failure;
use crate::request::{self, RequestError};

/// Without renewal for this time the agent counts as silent: four renewals are missing.
const DURATION_SECONDS: u32 = 40;

/// Renews the Lease of one node, and creates it where it is missing.
pub struct LeaseRenewal {
    client: Client,
    node: String,
}

impl LeaseRenewal {
    pub fn new(client: Client, node: &str) -> Self {
        Self {
            client,
            node: node.to_owned(),
        }
    }

    pub async fn renew(&self, now: Timestamp) -> Result<(), Failure> {
        let collection = collection();
        let name = agent_lease::name(&self.node);
        let mut lease = content(&self.node, now);
        let url = format!("{collection}/{name}");
        let result = match request::merge(&self.client, &url, &lease).await {
            Err(RequestError::NotFound) => {
                lease["apiVersion"] = json!("coordination.k8s.io/v1");
                lease["kind"] = json!("Lease");
                lease["metadata"]["name"] = json!(name);
                request::create(&self.client, &collection, &lease).await
            }
            answer => answer,
        };
        match result {
            Ok(_) => Ok(()),
            Err(RequestError::NotFound) => Err(Failure::Request(format!(
                "the namespace {NAMESPACE} does not exist; deploy/namespace.yaml defines it"
            ))),
            Err(error) => Err(Failure::Request(error.to_string())),
        }
    }
}

/// Deletes the Lease of a node; one that does not exist is no error.
pub(super) async fn remove(client: &Client, node: &str) -> Result<(), Failure> {
    let url = format!("{}/{}", collection(), agent_lease::name(node));
    match request::delete(client, &url).await {
        Ok(_) | Err(RequestError::NotFound) => Ok(()),
        Err(error) => Err(Failure::Request(error.to_string())),
    }
}

fn collection() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
}

/// The fields that each renewal sets, so that a Lease that was changed by hand recovers.
fn content(node: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"labels": {
            agent_lease::IS_AGENT: "true",
            agent_lease::NODE: agent_lease::label(node),
        }},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": micros(now),
        },
    })
}

/// The format of a Lease's times: always six digits after the second.
fn micros(now: Timestamp) -> String {
    let (seconds, micros) = (
        now.whole_second(),
        now.0.rem_euclid(Timestamp::SECOND) / 1000,
    );
    let text = seconds.to_string();
    format!("{}.{micros:06}Z", text.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_after_the_second() {
        let at = |nanos| micros(Timestamp(nanos));
        assert_eq!(at(1_000), "1970-01-01T00:00:00.000001Z");
        assert_eq!(at(1_500_000_000), "1970-01-01T00:00:01.500000Z");
        assert_eq!(at(2_000_000_000), "1970-01-01T00:00:02.000000Z");
    }
}
