//! Certificate and key, read once at the start.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ServeError, TlsFiles};

pub(super) fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServeError> {
    let unreadable = |path: &std::path::PathBuf| {
        let path = path.clone();
        move |source| ServeError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable(&files.certificate))?;
    if chain.is_empty() {
        return Err(ServeError::NoCertificate(files.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable(&files.key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refuse = |source| ServeError::Tls {
        certificate: files.certificate.clone(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refuse)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refuse)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
