//! Accepts a server by the fingerprint of its certificate, which the Lease has.

use std::{fmt, sync::Arc};

use control_plane::serve::fingerprint;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Its name, its issuer and its expiry do not matter. The server proves that it has the key of the certificate.
#[derive(Debug)]
pub(super) struct Pin {
    wanted: String,
    provider: Arc<CryptoProvider>,
}

/// The server has another certificate.
#[derive(Debug)]
pub(super) struct WrongCertificate {
    pub(super) found: String,
    pub(super) wanted: String,
}

impl fmt::Display for WrongCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, wanted } = self;
        write!(f, "its SHA-256 is {found}, not {wanted}")
    }
}

impl std::error::Error for WrongCertificate {}

impl Pin {
    pub(super) fn new(wanted: &str, provider: Arc<CryptoProvider>) -> Arc<Self> {
        let wanted = wanted.to_ascii_lowercase();
        Arc::new(Self { wanted, provider })
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = fingerprint(certificate);
        if found == self.wanted {
            return Ok(ServerCertVerified::assertion());
        }
        let wanted = self.wanted.clone();
        let wrong = OtherError(Arc::new(WrongCertificate { found, wanted }));
        Err(CertificateError::Other(wrong).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
