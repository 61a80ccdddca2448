//! The connection to one extender.

use api::config::{Extender, ExtenderTls};
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
use serde::Deserialize;
use serde_json::Value;

use super::answers::WrongType;
use crate::scheduler::write::requests::JSON;

/// Bytes of an answer: names and messages for every node of a large cluster. Whole nodes, which an extender returns as it
/// received them, come in addition.
const LONGEST_ANSWER: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ExtenderError {
    #[error("invalid connection settings of extender `{url}`")]
    Config {
        url: String,
        source: Box<KubeconfigError>,
    },
    #[error("invalid connection settings of extender `{url}`")]
    Client {
        url: String,
        source: Box<kube::Error>,
    },
}

pub(crate) struct Connection {
    pub(super) config: Extender,
    client: kube::Client,
}

impl Connection {
    pub(super) async fn new(config: Extender) -> Result<Self, ExtenderError> {
        let url = config.url_prefix.clone();
        let options = KubeConfigOptions::default();
        let reach = Config::from_custom_kubeconfig(kubeconfig(&config), &options);
        let mut reach = reach.await.map_err(|source| ExtenderError::Config {
            url: url.clone(),
            source: Box::new(source),
        })?;
        reach.connect_timeout = Some(config.timeout());
        reach.read_timeout = Some(config.timeout());
        let client = kube::Client::try_from(reach).map_err(|source| ExtenderError::Client {
            url,
            source: Box::new(source),
        })?;
        Ok(Self { config, client })
    }

    /// Sends a question, and reads the answer with `read`.
    pub(super) async fn post<T>(
        &self,
        verb: &str,
        question: Value,
        read: impl FnOnce(&Value) -> Result<Result<T, String>, WrongType>,
    ) -> Result<T, String> {
        let url = self.config.url_prefix.trim_end_matches('/');
        let failed = |why: &dyn std::fmt::Display| {
            format!("failed {verb} with extender at URL {url}/{verb}, {why}")
        };
        let question = question.to_string();
        let longest = LONGEST_ANSWER + question.len();
        let request = Request::post(format!("/{verb}"))
            .header(ACCEPT, JSON)
            .header(CONTENT_TYPE, JSON)
            .body(Body::from(question.into_bytes()))
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
            let body = Limited::new(answer.into_body(), longest).collect();
            let body = body.await.map_err(|error| failed(&error))?;
            Ok::<Bytes, String>(body.to_bytes())
        };
        let answer = tokio::time::timeout(self.config.timeout(), exchange).await;
        let answer = answer.map_err(|_| failed(&"no answer in time"))??;
        // Data after the first value is ignored, as in Go.
        let mut answer = serde_json::Deserializer::from_slice(&answer);
        let answer = Value::deserialize(&mut answer).map_err(|error| failed(&error))?;
        read(&answer).map_err(|error| failed(&error))?
    }
}

/// The settings as a kubeconfig, which kube can use.
fn kubeconfig(config: &Extender) -> Kubeconfig {
    const NAME: &str = "extender";
    let ExtenderTls {
        insecure,
        server_name,
        cert_file,
        key_file,
        ca_file,
        cert_data,
        key_data,
        ca_data,
    } = config.tls_config.clone().unwrap_or_default();
    let given = |text: String| (!text.is_empty()).then_some(text);
    // As in kube-scheduler: without a CA certificate nothing is verified.
    let blind = insecure || (ca_file.is_empty() && ca_data.is_empty());
    Kubeconfig {
        current_context: Some(NAME.into()),
        clusters: vec![NamedCluster {
            name: NAME.into(),
            cluster: Some(Cluster {
                server: Some(config.url_prefix.trim_end_matches('/').into()),
                insecure_skip_tls_verify: Some(blind),
                certificate_authority: given(ca_file),
                certificate_authority_data: given(ca_data),
                tls_server_name: given(server_name),
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: NAME.into(),
            auth_info: Some(AuthInfo {
                client_certificate: given(cert_file),
                client_certificate_data: given(cert_data),
                client_key: given(key_file),
                client_key_data: given(key_data).map(Into::into),
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
