//! The EndpointSlice of the gate's Service. The Service has no selector: only the leader answers, and it writes its own address. So
//! a standby can be Ready, and a rollout ends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};

/// Between two looks at it.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// After an error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where the leader answers.
#[derive(Debug, Clone)]
pub(super) struct GateEndpoint {
    pub(super) namespace: String,
    /// The name of the Service and of the EndpointSlice.
    pub(super) name: String,
    pub(super) address: SocketAddr,
    /// The pod of this process, as NAMESPACE/NAME.
    pub(super) pod: Option<String>,
}

impl GateEndpoint {
    /// Keeps the EndpointSlice as it should be until the future is dropped.
    pub(super) async fn keep(&self, client: &kube::Client) {
        if self.address.ip().is_loopback() || self.address.ip().is_unspecified() {
            // Kubernetes allows no such endpoint. Webhook configurations can name a URL instead.
            tracing::warn!(
                address = %self.address,
                "not writing EndpointSlice {}: other machines cannot reach this address; set --advertise-address",
                self.name
            );
            return std::future::pending().await;
        }
        let mut logged = None;
        loop {
            let problem = self.write(client).await.err();
            let problem = problem.map(|error| reconcile::message_of(&error));
            if let Some(why) = problem.as_ref().filter(|_| problem != logged) {
                tracing::warn!("cannot write EndpointSlice {}: {why}", self.name);
            }
            let pause = problem.as_ref().map_or(CHECK_EVERY, |_| RETRY_AFTER);
            logged = problem;
            tokio::time::sleep(pause).await;
        }
    }

    async fn write(&self, client: &kube::Client) -> Result<(), kube::Error> {
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), &self.namespace);
        let parameters = PostParams::default();
        let mut wanted = self.slice();
        let Some(found) = slices.get_opt(&self.name).await? else {
            slices.create(&parameters, &wanted).await?;
            return self.log();
        };
        if found.address_type != wanted.address_type {
            // Its type cannot change.
            slices.delete(&self.name, &DeleteParams::default()).await?;
            slices.create(&parameters, &wanted).await?;
            return self.log();
        }
        let is_current = found.endpoints == wanted.endpoints
            && found.ports == wanted.ports
            && found.metadata.labels == wanted.metadata.labels;
        if is_current {
            return Ok(());
        }
        wanted.metadata.resource_version = found.metadata.resource_version;
        slices.replace(&self.name, &parameters, &wanted).await?;
        self.log()
    }

    fn log(&self) -> Result<(), kube::Error> {
        tracing::info!(address = %self.address, "wrote EndpointSlice {}", self.name);
        Ok(())
    }

    fn slice(&self) -> EndpointSlice {
        let labels = [
            ("kubernetes.io/service-name", &*self.name),
            ("endpointslice.kubernetes.io/managed-by", super::NAME),
        ];
        let pod = self.pod.as_deref().and_then(|pod| pod.split_once('/'));
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
                ..ObjectMeta::default()
            },
            address_type: match self.address.ip() {
                IpAddr::V4(_) => "IPv4".to_owned(),
                IpAddr::V6(_) => "IPv6".to_owned(),
            },
            endpoints: Some(vec![Endpoint {
                addresses: vec![self.address.ip().to_string()],
                conditions: Some(EndpointConditions {
                    ready: Some(true),
                    ..EndpointConditions::default()
                }),
                target_ref: pod.map(|(namespace, name)| ObjectReference {
                    kind: Some("Pod".to_owned()),
                    namespace: Some(namespace.to_owned()),
                    name: Some(name.to_owned()),
                    ..ObjectReference::default()
                }),
                ..Endpoint::default()
            }]),
            ports: Some(vec![EndpointPort {
                name: Some("https".to_owned()),
                port: Some(i32::from(self.address.port())),
                protocol: Some("TCP".to_owned()),
                ..EndpointPort::default()
            }]),
        }
    }
}
