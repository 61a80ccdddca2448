//! The TLS side of the server: its certificate, and the certificates that clients present.
//!
//! The certificate is made at start, or read from files and read again when they change.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use sha2::{Digest, Sha256};

use super::der::Validity;
use super::{ServeError, TlsFiles};

/// The SHA-256 of a certificate, in hexadecimal digits.
pub fn fingerprint(certificate: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(certificate) {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificate that the server presents now.
#[derive(Debug)]
pub struct ServingCertificate {
    current: RwLock<Arc<CertifiedKey>>,
    files: Option<TlsFiles>,
}

impl ServingCertificate {
    pub(crate) fn from_files(files: &TlsFiles) -> Result<Self, ServeError> {
        Ok(Self {
            current: RwLock::new(Arc::new(read(files)?)),
            files: Some(files.clone()),
        })
    }

    /// A certificate that its owner replaces.
    pub(crate) fn of(certificate: CertifiedKey) -> Self {
        Self {
            current: RwLock::new(Arc::new(certificate)),
            files: None,
        }
    }

    /// Presents another certificate in new connections. False if it is the present one.
    pub(crate) fn replace(&self, certificate: CertifiedKey) -> bool {
        if certificate.cert == self.current().cert {
            return false;
        }
        let current = self.current.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(certificate);
        true
    }

    /// The certificate itself, without its chain.
    pub(crate) fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.current().cert.first().cloned()
    }

    /// A self-signed certificate, as kube-scheduler makes one. Clients that read its fingerprint on the Lease
    /// authenticate the server by it; for others it only encrypts.
    pub(super) fn self_signed() -> Result<Self, ServeError> {
        let key = rcgen::KeyPair::generate()?;
        let names = vec!["localhost".to_owned()];
        let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| ServeError::Made(rustls::Error::General(why.to_owned())))?;
        let chain = vec![certificate.der().clone()];
        let made = CertifiedKey::from_der(chain, key, &provider()).map_err(ServeError::Made)?;
        Ok(Self {
            current: RwLock::new(Arc::new(made)),
            files: None,
        })
    }

    pub(crate) fn fingerprint(&self) -> String {
        let current = self.current();
        current
            .cert
            .first()
            .map_or_else(String::new, |first| fingerprint(first))
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again and again, as long as the server runs. Files that cannot be used change nothing: a rotation
    /// may have written only one of the two yet.
    pub(crate) async fn reload(self: Arc<Self>, period: Duration) {
        let Some(files) = &self.files else {
            return;
        };
        let (mut logged, mut warned) = (None, None);
        loop {
            let current = self.current();
            if warned.as_ref() != Some(&current.cert)
                && let Some(text) = expiry(&current, jiff::Timestamp::now())
            {
                let path = files.certificate.display();
                tracing::warn!("the certificate in {path} {text}; renew it");
                warned = Some(current.cert.clone());
            }
            tokio::time::sleep(period).await;
            match read(files) {
                Ok(read) if read.cert == self.current().cert => logged = None,
                Ok(read) => {
                    let current = self.current.write();
                    *current.unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                    logged = None;
                    tracing::info!(sha256 = self.fingerprint(), "reloaded the certificate");
                }
                Err(error) => {
                    let text = crate::client::causes::of_request(&error);
                    if logged.as_ref() != Some(&text) {
                        tracing::warn!("cannot reload the certificate: {text}");
                        logged = Some(text);
                    }
                }
            }
        }
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// A warning, if the certificate expired. It is still used: health checks do not verify it.
fn expiry(key: &CertifiedKey, now: jiff::Timestamp) -> Option<String> {
    let end = Validity::of(key.cert.first()?)?.end;
    (end <= now).then(|| format!("expired at {end}: clients that verify it do not connect"))
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, ServeError> {
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
    CertifiedKey::from_der(chain, key, &provider()).map_err(|source| ServeError::Tls {
        certificate: files.certificate.clone(),
        source,
    })
}

pub(super) fn config(
    certificate: Arc<ServingCertificate>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = provider();
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(AnyClientCertificate(provider)))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Asks clients for a certificate and checks that they have its key. Who signed it is checked with each request, because
/// a client whose certificate is not accepted may have a token.
#[derive(Debug)]
struct AnyClientCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
