//! Users with a client certificate of the cluster's client CA, as kubeadm and kind make them.
//!
//! The API server publishes that CA in the ConfigMap `kube-system/extension-apiserver-authentication`. It is read when a
//! client presents a certificate, and again after a while, so that a rotation of the CA has an effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http::header::ACCEPT;
use http_body_util::Full;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::Value;
use tokio::sync::Mutex;

use super::auth::Caller;
use super::der::{OBJECT_IDENTIFIER, SEQUENCE, SET, TEXTS, expect, next};
use super::reviews::LIMIT;
use super::tls::provider;
use crate::client::{self, Exchange};

const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The API server adds this group to every user that it authenticates.
const AUTHENTICATED: &str = "system:authenticated";

/// The chain that a client presented, its own certificate first. The client has the key of that one.
#[derive(Debug, Clone)]
pub(super) struct ClientCertificates(pub(super) Arc<[CertificateDer<'static>]>);

/// Why a client certificate names no user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("the client certificate is not accepted: {0}")]
    Refused(String),
    #[error(
        "cannot verify the client certificate, because the client CA of the cluster cannot be read from ConfigMap kube-system/extension-apiserver-authentication: {0}"
    )]
    NoAuthority(String),
}

type Authority = Result<Arc<dyn ClientCertVerifier>, String>;

/// The client CA of the cluster.
pub(super) struct ClientAuthority {
    api: Exchange,
    reload: Duration,
    /// One request reads it while the others wait.
    known: Mutex<Option<(Instant, Authority)>>,
}

impl ClientAuthority {
    pub(super) fn new(api: Exchange, reload: Duration) -> Self {
        Self {
            api,
            reload,
            known: Mutex::new(None),
        }
    }

    /// The user of a chain: the common name, with the organizations as groups.
    pub(super) async fn caller(
        &self,
        chain: &ClientCertificates,
    ) -> Result<Caller, CertificateError> {
        let refused = |why: &str| CertificateError::Refused(why.to_owned());
        let Some((first, intermediates)) = chain.0.split_first() else {
            return Err(refused("there is none"));
        };
        let authority = self.authority().await;
        authority
            .map_err(CertificateError::NoAuthority)?
            .verify_client_cert(first, intermediates, UnixTime::now())
            .map_err(|error| refused(&without_prefix(&error)))?;
        let certificate =
            webpki::EndEntityCert::try_from(first).map_err(|error| refused(&error.to_string()))?;
        subject(certificate.subject()).ok_or_else(|| refused("its subject has no common name"))
    }

    async fn authority(&self) -> Authority {
        let mut known = self.known.lock().await;
        if let Some((read, authority)) = &*known
            && read.elapsed() < self.reload
        {
            return authority.clone();
        }
        let authority = match (self.read().await, known.take()) {
            // The API server may be away for a moment.
            (Err(why), Some((_, Ok(before)))) => {
                tracing::warn!("cannot read the client CA of the cluster again: {why}");
                Ok(before)
            }
            (Err(why), None) => {
                tracing::warn!(
                    "cannot read the client CA of the cluster, so client certificates are not accepted: {why}"
                );
                Err(why)
            }
            (read, _) => read,
        };
        *known = Some((Instant::now(), authority.clone()));
        authority
    }

    async fn read(&self) -> Authority {
        let request = Request::get(CONFIG_MAP)
            .header(ACCEPT, "application/json")
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = client::send(&self.api, request, LIMIT)
            .await
            .map_err(|refusal| refusal.to_string())?;
        let map: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let bundle = map["data"]["client-ca-file"].as_str().unwrap_or_default();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok),
        );
        if roots.is_empty() {
            return Err("its key client-ca-file has no certificate".to_owned());
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        verifier.build().map_err(|error| error.to_string())
    }
}

/// A certificate error begins with words that repeat ours.
fn without_prefix(error: &rustls::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("invalid peer certificate: ") {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// The user of a subject, which is a sequence of sets of (name, value) without its outer tag. As in Kubernetes, the last
/// common name counts and every organization is a group.
fn subject(mut names: &[u8]) -> Option<Caller> {
    let mut caller = Caller::default();
    while !names.is_empty() {
        let mut set = expect(&mut names, SET)?;
        while !set.is_empty() {
            let mut pair = expect(&mut set, SEQUENCE)?;
            let kind = expect(&mut pair, OBJECT_IDENTIFIER)?;
            let (tag, value) = next(&mut pair)?;
            if kind != COMMON_NAME && kind != ORGANIZATION {
                continue;
            }
            let text = TEXTS.contains(&tag).then(|| str::from_utf8(value).ok())??;
            match kind {
                COMMON_NAME => text.clone_into(&mut caller.username),
                _ => caller.groups.push(text.to_owned()),
            }
        }
    }
    caller.groups.push(AUTHENTICATED.to_owned());
    (!caller.username.is_empty()).then_some(caller)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    /// The user and the groups of a certificate with this subject.
    fn read(names: &[(DnType, DnValue)]) -> Option<(String, Vec<String>)> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, value) in names {
            parameters
                .distinguished_name
                .push(kind.clone(), value.clone());
        }
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let parsed = webpki::EndEntityCert::try_from(certificate.der()).unwrap();
        subject(parsed.subject()).map(|caller| (caller.username, caller.groups))
    }

    #[test]
    fn the_subject_names_the_user_and_its_groups() {
        let text = |text: &str| DnValue::Utf8String(text.to_owned());
        let printable = |text: &str| DnValue::PrintableString(text.try_into().unwrap());
        let long = "n".repeat(300);
        let (name, group) = (DnType::CommonName, DnType::OrganizationName);
        for (names, want) in [
            (
                vec![
                    (group.clone(), text("system:masters")),
                    (name.clone(), text("kubernetes-admin")),
                ],
                Some(("kubernetes-admin", vec!["system:masters"])),
            ),
            (
                vec![(name.clone(), printable("alice"))],
                Some(("alice", vec![])),
            ),
            (
                vec![
                    (DnType::CountryName, printable("XX")),
                    (name.clone(), text(&long)),
                ],
                Some((&*long, vec![])),
            ),
            (vec![(group, text("system:masters"))], None),
            (vec![(name.clone(), text(""))], None),
            (
                vec![(name, DnValue::BmpString("alice".try_into().unwrap()))],
                None,
            ),
            (vec![], None),
        ] {
            let want = want.map(|(name, mut groups)| {
                groups.push(AUTHENTICATED);
                (
                    name.to_owned(),
                    groups.into_iter().map(str::to_owned).collect(),
                )
            });
            assert_eq!(read(&names), want, "{names:?}");
        }
    }

    #[test]
    fn an_invalid_subject_names_no_user() {
        let valid = [
            0x31, 12, 0x30, 10, 0x06, 3, 0x55, 4, 3, 0x0c, 3, b'b', b'o', b'b',
        ];
        assert_eq!(subject(&valid).unwrap().username, "bob");
        for length in 1..valid.len() {
            assert_eq!(subject(&valid[..length]), None, "{length} bytes");
        }
        for invalid in [&[0x31, 0x80][..], &[0x31, 0x84, 0, 0, 0, 1], &[0x30, 0]] {
            assert_eq!(subject(invalid), None, "{invalid:?}");
        }
    }
}
