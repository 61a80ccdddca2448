//! A kubeconfig for one user of an API server.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

/// One server and one user with a bearer token.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// `https://host:port`.
    pub server: String,
    /// The certificate that the server's own must be signed by.
    pub certificate_authority_pem: String,
    pub user: String,
    pub token: String,
}

impl Kubeconfig {
    /// The file that kubectl and kube-rs read. JSON is YAML.
    pub fn to_yaml(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {
                "server": self.server,
                "certificate-authority-data": BASE64.encode(&self.certificate_authority_pem),
            }}],
            "users": [{"name": self.user, "user": {"token": self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": self.user, "namespace": "default"}}],
            "current-context": "c",
        })
        .to_string()
    }

    /// For a kube-rs client. No retries of its own: a test wants to see the first answer.
    pub async fn to_client_config(&self) -> Result<kube::Config> {
        let file = kube::config::Kubeconfig::from_yaml(&self.to_yaml())
            .context("kube-rs cannot read our kubeconfig")?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default())
            .await
            .context("kube-rs cannot use our kubeconfig")?;
        config.default_retry = false;
        Ok(config)
    }
}
