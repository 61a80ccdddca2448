//! Authentication and authorization of callers, as kube-scheduler does it: by client certificate or TokenReview, and by
//! SubjectAccessReview.

use std::time::Duration;

use api::http::ErrorCode;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};

use super::HEALTH;
use super::client_certificates::{CertificateError, ClientAuthority, ClientCertificates};
use super::reviews::{ReviewError, Reviews};
use super::slots::Slot;
use crate::client::Exchange;

const LONGEST_TOKEN: usize = 16 << 10;
/// Kubernetes allows this group everything.
const MASTERS: &str = "system:masters";

/// A user as a TokenReview returns it and an AdmissionReview names it; a SubjectAccessReview gets the same fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    pub username: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// One permission that a request needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Path {
        path: String,
        verb: String,
    },
    /// To get a pod.
    Pod {
        namespace: String,
        name: String,
    },
    /// To bind pods of a scheduler, in a namespace.
    Bind {
        scheduler: String,
        namespace: String,
    },
}

pub(super) struct Guard {
    always_allow: Vec<String>,
    certificates: ClientAuthority,
    reviews: Reviews,
}

impl Guard {
    /// The client CA of the cluster is read again after `reload`.
    pub(super) fn new(api: Exchange, always_allow: Vec<String>, reload: Duration) -> Self {
        Self {
            certificates: ClientAuthority::new(api.clone(), reload),
            reviews: Reviews::new(api),
            always_allow,
        }
    }

    pub(super) fn is_open(&self, path: &str) -> bool {
        self.always_allow
            .iter()
            .any(|open| match open.strip_suffix('*') {
                Some(start) => path.starts_with(start),
                None => path == open || is_check_of(open, path),
            })
    }

    /// An error is the response to send. The connection of an authenticated caller takes a place of its class.
    pub(super) async fn allow(
        &self,
        headers: &HeaderMap,
        certificates: Option<&ClientCertificates>,
        slot: Option<&Slot>,
        accesses: &[Access],
    ) -> Result<(), (ErrorCode, String)> {
        let caller = self.authenticate(headers, certificates).await?;
        if let Some(slot) = slot {
            slot.authenticated();
        }
        if caller.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        for access in accesses {
            let allowed = self.reviews.is_allowed(&caller, access).await;
            if !allowed.map_err(failed)? {
                let text = format!("user `{}` has no permission to {access}", caller.username);
                return Err((ErrorCode::Forbidden, text));
            }
        }
        Ok(())
    }

    /// The client certificate counts, or without a valid one the token.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        certificates: Option<&ClientCertificates>,
    ) -> Result<Caller, (ErrorCode, String)> {
        let without_certificate = match certificates {
            None => None,
            Some(chain) => match self.certificates.caller(chain).await {
                Ok(caller) => return Ok(caller),
                Err(why) => Some(why),
            },
        };
        let token = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
        let token = token.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.map(str::trim).filter(|it| !it.is_empty());
        let Some(token) = token.filter(|token| token.len() <= LONGEST_TOKEN) else {
            return Err(match without_certificate {
                None => (
                    ErrorCode::Unauthorized,
                    "the request has neither a client certificate nor a valid bearer token"
                        .to_owned(),
                ),
                Some(why @ CertificateError::Refused(_)) => {
                    (ErrorCode::Unauthorized, why.to_string())
                }
                Some(why @ CertificateError::NoAuthority(_)) => {
                    (ErrorCode::Internal, why.to_string())
                }
            });
        };
        match self.reviews.caller(token).await.map_err(failed)? {
            Some(caller) => Ok(caller),
            None => Err((
                ErrorCode::Unauthorized,
                "the API server does not accept the bearer token".to_owned(),
            )),
        }
    }
}

fn failed(error: ReviewError) -> (ErrorCode, String) {
    (error.code(), error.to_string())
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { path, verb } => write!(f, "{verb} {path}"),
            Self::Pod { namespace, name } => write!(f, "get pod {namespace}/{name}"),
            Self::Bind {
                scheduler,
                namespace,
            } => write!(
                f,
                "bind pods of scheduler `{scheduler}` in namespace `{namespace}`"
            ),
        }
    }
}

/// Whether the path is one check of a health path, as `/readyz/watches` is. It shows no more than the health path.
fn is_check_of(open: &str, path: &str) -> bool {
    let check = path.strip_prefix(open);
    HEALTH.contains(&open) && check.is_some_and(|check| check.starts_with('/'))
}

pub(super) fn is_health(path: &str) -> bool {
    HEALTH
        .iter()
        .any(|health| path == *health || is_check_of(health, path))
}
