//! Makes a CA, and certificates that it signs.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::serve::provider;

/// Clocks differ: a certificate is valid a little before it is made.
const BEFORE: SignedDuration = SignedDuration::from_hours(1);

/// A certificate with its key, in PEM, and when it was made and ends.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyedCertificate {
    pub(super) certificate: String,
    pub(super) key: String,
    /// The common name, which is different for each CA.
    pub(super) name: String,
    /// The host names that it is for; a CA has none.
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    pub(super) made: Timestamp,
    pub(super) ends: Timestamp,
}

impl std::fmt::Debug for KeyedCertificate {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            name, made, ends, ..
        } = self;
        f.debug_struct("KeyedCertificate")
            .field("name", name)
            .field("made", made)
            .field("ends", ends)
            .finish_non_exhaustive()
    }
}

impl KeyedCertificate {
    /// A new CA.
    pub(super) fn authority(made: Timestamp, ends: Timestamp) -> Result<Self, rcgen::Error> {
        let name = format!("tidepool-webhook-ca-{}", uuid::Uuid::new_v4());
        let key = KeyPair::generate()?;
        let certificate = authority_parameters(&name, made, ends)?.self_signed(&key)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            name,
            hosts: Vec::new(),
            made,
            ends,
        })
    }

    /// A certificate for these hosts, which this CA signs.
    pub(super) fn sign(
        &self,
        hosts: &[String],
        made: Timestamp,
        ends: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let name = "tidepool-webhook".to_owned();
        let mut parameters = CertificateParams::new(hosts.to_vec())?;
        set_names(&mut parameters, &name, made, ends.min(self.ends))?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.use_authority_key_identifier_extension = true;
        let own = authority_parameters(&self.name, self.made, self.ends)?;
        let issuer = Issuer::new(own, KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &issuer)?;
        Ok(Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            name,
            hosts: hosts.to_vec(),
            made,
            ends: ends.min(self.ends),
        })
    }

    /// API servers do not accept one that begins later: the clock that it was made by was wrong.
    pub(super) fn has_begun(&self, now: Timestamp) -> bool {
        start(self.made) <= now
    }

    pub(super) fn certified_key(&self) -> Result<CertifiedKey, rustls::Error> {
        let unreadable =
            |what: &str| rustls::Error::General(format!("the {what} in the Secret is not PEM"));
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|_| unreadable("certificate"))?;
        let key =
            PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| unreadable("key"))?;
        CertifiedKey::from_der(vec![certificate], key, &provider())
    }
}

fn start(made: Timestamp) -> Timestamp {
    made.checked_sub(BEFORE).unwrap_or(Timestamp::MIN)
}

fn authority_parameters(
    name: &str,
    made: Timestamp,
    ends: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    set_names(&mut parameters, name, made, ends)?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(parameters)
}

fn set_names(
    parameters: &mut CertificateParams,
    name: &str,
    made: Timestamp,
    ends: Timestamp,
) -> Result<(), rcgen::Error> {
    let date =
        |seconds: i64| OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| rcgen::Error::Time);
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = date(start(made).as_second())?;
    parameters.not_after = date(ends.as_second())?;
    Ok(())
}
