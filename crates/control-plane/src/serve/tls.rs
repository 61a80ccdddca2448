//! Certificate and key, read from files or made at start.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ServeError, TlsFiles};

pub(super) fn from_files(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServeError> {
    let unreadable = |path: &PathBuf| {
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
    config(chain, key).map_err(|source| ServeError::Tls {
        certificate: files.certificate.clone(),
        source,
    })
}

/// A self-signed certificate, as kube-scheduler makes one. It encrypts but does not authenticate the server, which is
/// enough for the kubelet's probes and most scrapers.
pub(super) fn self_signed() -> Result<Arc<ServerConfig>, ServeError> {
    let key = rcgen::KeyPair::generate()?;
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|why| ServeError::Made(rustls::Error::General(why.to_owned())))?;
    config(vec![certificate.der().clone()], key).map_err(ServeError::Made)
}

fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
