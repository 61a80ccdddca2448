//! The way to one extender.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Config;
use kube::client::Body;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo,
    NamedCluster, NamedContext,
};
use serde_json::Value;

use super::{Endpoint, Tls};
use crate::scheduler::requests::JSON;

/// Of an answer: names and messages for every node of a large cluster.
const LONGEST_ANSWER: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("extender `{url}` cannot be reached as configured")]
    Config {
        url: String,
        source: Box<KubeconfigError>,
    },
    #[error("extender `{url}` cannot be reached as configured")]
    Client {
        url: String,
        source: Box<kube::Error>,
    },
}

pub(crate) struct Connection {
    pub(super) endpoint: Endpoint,
    client: kube::Client,
}

impl Connection {
    pub(super) async fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let url = endpoint.url_prefix.clone();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig(&endpoint), &options);
        let mut config = config.await.map_err(|source| EndpointError::Config {
            url: url.clone(),
            source: Box::new(source),
        })?;
        config.connect_timeout = Some(endpoint.timeout);
        config.read_timeout = Some(endpoint.timeout);
        let client = kube::Client::try_from(config).map_err(|source| EndpointError::Client {
            url,
            source: Box::new(source),
        })?;
        Ok(Self { endpoint, client })
    }

    pub(super) async fn post(&self, verb: &str, question: Value) -> Result<Value, String> {
        let url = self.endpoint.url_prefix.trim_end_matches('/');
        let failed = |why: &dyn std::fmt::Display| {
            format!("failed {verb} with extender at URL {url}/{verb}, {why}")
        };
        let request = Request::post(format!("/{verb}"))
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, JSON)
            .body(Body::from(question.to_string().into_bytes()))
            .map_err(|error| failed(&error))?;
        let exchange = async {
            let answer = self
                .client
                .send(request)
                .await
                .map_err(|error| failed(&error))?;
            let status = answer.status();
            if status != StatusCode::OK {
                return Err(failed(&format!("code {}", status.as_u16())));
            }
            let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect();
            let body = body.await.map_err(|error| failed(&error))?;
            Ok::<Bytes, String>(body.to_bytes())
        };
        let answer = tokio::time::timeout(self.endpoint.timeout, exchange).await;
        let answer = answer.map_err(|_| failed(&"no answer in time"))??;
        serde_json::from_slice(&answer).map_err(|error| failed(&error))
    }
}

/// kube knows how to talk to whatever a kubeconfig describes.
fn kubeconfig(endpoint: &Endpoint) -> Kubeconfig {
    const NAME: &str = "extender";
    let tls = endpoint.tls.clone().unwrap_or_default();
    let Tls {
        insecure,
        server_name,
        ca_file,
        ca_data,
        cert_file,
        cert_data,
        key_file,
        key_data,
    } = tls;
    // As kube-scheduler does it: without a root there is nothing to verify by.
    let blind = insecure || (ca_file.is_none() && ca_data.is_none());
    Kubeconfig {
        current_context: Some(NAME.into()),
        clusters: vec![NamedCluster {
            name: NAME.into(),
            cluster: Some(Cluster {
                server: Some(endpoint.url_prefix.trim_end_matches('/').into()),
                insecure_skip_tls_verify: Some(blind),
                certificate_authority: ca_file,
                certificate_authority_data: ca_data,
                tls_server_name: server_name,
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: NAME.into(),
            auth_info: Some(AuthInfo {
                client_certificate: cert_file,
                client_certificate_data: cert_data,
                client_key: key_file,
                client_key_data: key_data.map(Into::into),
                ..AuthInfo::default()
            }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: NAME.into(),
            context: Some(Context {
                cluster: NAME.into(),
                user: Some(NAME.into()),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        ..Kubeconfig::default()
    }
}
