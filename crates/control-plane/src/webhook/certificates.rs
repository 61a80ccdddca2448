//! The certificate of a webhook server.
//!
//! By default the replicas share a CA and a certificate in a Secret, which is there without data before they start. Each replica
//! reads it again and again; when it is time for a renewal, all of them try, and the one whose update of the Secret wins decides. A new CA is first added to the CA bundle of
//! the webhook configurations, then used; the one before stays in the bundle for the life of a certificate. So API servers
//! trust every certificate that any replica serves. A replica whose clock differs from that of the API server writes nothing: with
//! its certificates, no replica could serve. The other way is files, for example from cert-manager.

mod authority;
mod bundle;
mod clock;
mod plan;
#[cfg(test)]
mod tests;
mod validity;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::DATE;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use kube::core::Status;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use reconcile::Outage;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::serve::{ServeError, ServingCertificate, TlsFiles, Validity};
use bundle::Bundles;
use clock::{ClockCheck, WrongClock};
pub use plan::CertificatePeriods;
use plan::{CertificateState, advance};

/// Where the certificate comes from.
#[derive(Debug, Clone)]
pub enum CertificateOptions {
    Managed(ManagedCertificate),
    Files {
        files: TlsFiles,
        /// The files are read again after this time.
        reload: Duration,
    },
}

/// A certificate that the replicas keep themselves.
#[derive(Debug, Clone)]
pub struct ManagedCertificate {
    pub namespace: String,
    /// The name of the Secret and of the webhook configurations.
    pub name: String,
    /// The configurations that trust the certificate.
    pub configurations: &'static [Configuration],
    /// The host names and addresses of the server, as the API server calls it.
    pub hosts: Vec<String>,
    pub periods: CertificatePeriods,
}

/// A kind of webhook configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    Mutating,
    Validating,
    /// A validating one of its own for pods that are created on a node: it is optional.
    NodeNames,
    /// A validating one of its own for Evictions that agents create.
    Evictions,
}

/// After the Secret changed, until it is read again.
const AGAIN: Duration = Duration::from_millis(20);
/// In a row; then it waits as after any error.
const MOST_CONFLICTS: u32 = 20;

/// For all requests of one round.
const ROUND: Duration = Duration::from_secs(20);

/// Bytes of an answer with the Secret: API servers store at most half of it.
const LARGEST_SECRET: usize = 3 << 20;

/// The key of the Secret with everything; the others are for people and other programs.
const STATE: &str = "state.json";

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("{}", reconcile::message_of(.0))]
    Request(#[from] kube::Error),
    #[error("the API server did not answer within {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Clock(#[from] WrongClock),
    /// The replicas have no permission to create it: `create` cannot be limited to a name.
    #[error(
        "Secret {namespace}/{name} does not exist; restore it with `kubectl create secret generic {name} -n {namespace}`"
    )]
    NoSecret { namespace: String, name: String },
    /// Something else was written meanwhile, or by this replica: look again.
    #[error("conflict: {0}")]
    Conflict(String),
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("cannot use the certificate: {0}")]
    Use(#[from] rustls::Error),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Keeps the certificate of this replica up to date.
pub struct CertificateKeeper {
    client: kube::Client,
    options: CertificateOptions,
    /// The certificate to serve, once there is one.
    serving: watch::Sender<Option<Arc<ServingCertificate>>>,
    status: Mutex<CertificateStatus>,
    renewals: AtomicI64,
}

#[derive(Default)]
struct CertificateStatus {
    served: Option<Validity>,
    /// Why the served certificate is not the one in the Secret.
    problem: Option<String>,
    /// Times of certificates mean nothing then.
    has_wrong_clock: bool,
    /// That is the problem: what is served stays good until it expires.
    has_no_secret: bool,
    /// The last answer of the API server did not show its clock.
    has_unknown_clock: bool,
}

impl CertificateKeeper {
    pub fn new(client: kube::Client, options: CertificateOptions) -> Result<Arc<Self>, ServeError> {
        let keeper = Self {
            client,
            serving: watch::Sender::new(None),
            status: Mutex::default(),
            renewals: AtomicI64::new(0),
            options,
        };
        if let CertificateOptions::Files { files, .. } = &keeper.options {
            keeper.serve(Arc::new(ServingCertificate::from_files(files)?));
        }
        Ok(Arc::new(keeper))
    }

    /// Waits for the first certificate. None if the keeper ended.
    pub async fn first(&self) -> Option<Arc<ServingCertificate>> {
        let mut serving = self.serving.subscribe();
        let found = serving.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }

    /// A check of readiness: the certificate is the current one and does not end soon.
    pub fn check(&self) -> Result<(), String> {
        let status = self.status();
        if let (true, Some(problem)) = (status.has_wrong_clock, &status.problem) {
            return Err(problem.clone());
        }
        let served = status.served.as_ref().ok_or_else(|| {
            let why = status.problem.as_deref().unwrap_or("it is not read yet");
            format!("there is no certificate: {why}")
        })?;
        validity::check(served, jiff::Timestamp::now())?;
        match &status.problem {
            Some(problem) if !status.has_no_secret => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    /// What an administrator should know although the certificate is good: without the Secret it is not renewed.
    pub fn warning(&self) -> Option<String> {
        let status = self.status();
        let problem = status.problem.clone();
        problem.filter(|_| status.has_no_secret && status.served.is_some())
    }

    /// Until the served certificate expires.
    pub fn seconds_left(&self) -> Option<i64> {
        let end = self.status().served.as_ref()?.end;
        Some(end.as_second() - jiff::Timestamp::now().as_second())
    }

    /// How often this replica began to serve a certificate.
    pub fn renewals(&self) -> i64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Adds metrics of the certificate.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let expiry = Gauge::<i64>::default();
        expiry.set(self.seconds_left().unwrap_or(0));
        registry.register(
            "tidepool_cert_expiry_seconds",
            "Seconds until the served certificate expires",
            expiry,
        );
        let renewals = Gauge::<i64>::default();
        renewals.set(self.renewals());
        registry.register(
            "tidepool_cert_renewals",
            "Certificates that this replica began to serve",
            renewals,
        );
    }

    /// Keeps the certificate up to date until cancelled.
    pub async fn run(self: Arc<Self>, cancel: CancellationToken) {
        let keep = async {
            match &self.options {
                CertificateOptions::Files { reload, .. } => self.follow_files(*reload).await,
                CertificateOptions::Managed(managed) => {
                    self.manage(managed, ROUND, Outage::default()).await;
                }
            }
        };
        cancel.run_until_cancelled(keep).await;
    }

    async fn follow_files(&self, period: Duration) {
        let Some(certificate) = self.first().await else {
            return;
        };
        tokio::spawn(certificate.clone().reload(period));
        loop {
            tokio::time::sleep(period).await;
            self.note(&certificate);
        }
    }

    /// `limit` is for all requests of one round.
    async fn manage(&self, managed: &ManagedCertificate, limit: Duration, mut outage: Outage) {
        let mut conflicts = 0;
        loop {
            let round = tokio::time::timeout(limit, self.keep(managed)).await;
            let result = round.unwrap_or(Err(KeepError::Silent(limit)));
            let has_wrong_clock = matches!(result, Err(KeepError::Clock(_)));
            let has_no_secret = matches!(result, Err(KeepError::NoSecret { .. }));
            let problem = match result {
                Ok(()) => None,
                Err(KeepError::Conflict(why)) if conflicts < MOST_CONFLICTS => {
                    tracing::debug!("looking at the Secret again: {why}");
                    conflicts += 1;
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(error) => Some(format!("cannot keep the certificate up to date: {error}")),
            };
            match &problem {
                None => {
                    if let Some(time) = outage.ends(Instant::now()) {
                        tracing::info!(after = ?time, "the certificate is kept up to date again");
                    }
                }
                Some(problem) => {
                    if let Some(since) = outage.fails(problem, Instant::now()) {
                        tracing::warn!(%since, "{problem}");
                    }
                }
            }
            conflicts = 0;
            {
                let mut status = self.status();
                status.problem = problem;
                status.has_wrong_clock = has_wrong_clock;
                status.has_no_secret = has_no_secret;
            }
            tokio::time::sleep(managed.periods.check).await;
        }
    }

    /// One round: reads the Secret, makes API servers trust what is in it, serves it, and renews what is due.
    async fn keep(&self, managed: &ManagedCertificate) -> Result<(), KeepError> {
        let (stored, date) = self.read(managed).await?;
        let Some(mut secret) = stored else {
            return Err(KeepError::NoSecret {
                namespace: managed.namespace.clone(),
                name: managed.name.clone(),
            });
        };
        let state = read_state(&secret);
        let now = jiff::Timestamp::now();
        match clock::check(date.as_ref(), now) {
            Ok(clock) => self.note_clock(clock),
            Err(wrong) => {
                // The other replicas write, and this one serves the same.
                state.as_ref().map_or(Ok(()), |state| self.adopt(state))?;
                return Err(wrong.into());
            }
        }
        let mut is_trusted = false;
        if let Some(state) = &state {
            let bundles = Bundles::new(&self.client, &managed.name, managed.configurations);
            is_trusted = match bundles.trust(&state.bundle(), now).await {
                // Another replica wrote it meanwhile: the test in the patch failed.
                Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {
                    return Err(KeepError::Conflict(status.message.clone()));
                }
                result => result?,
            };
            self.adopt(state)?;
        }
        let Some(next) = advance(state.as_ref(), now, is_trusted, managed)? else {
            return Ok(());
        };
        secret.metadata.managed_fields = None;
        let data = [
            (STATE, serde_json::to_string(&next)?),
            ("ca.crt", next.bundle().concat()),
            ("tls.crt", next.certificate.certificate.clone()),
            ("tls.key", next.certificate.key.clone()),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
        secret.data = Some(data.into());
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &managed.namespace);
        let parameters = PostParams::default();
        // The resourceVersion makes it fail if another replica was faster.
        match secrets.replace(&managed.name, &parameters, &secret).await {
            Ok(_) => {
                tracing::info!(secret = managed.name, "{}", next.describe());
                // The next round trusts it, then serves it.
                Err(KeepError::Conflict("the Secret is new".to_owned()))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                Err(KeepError::Conflict(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The Secret, if there is one, and the time at the API server. kube's own methods do not show the head of an answer.
    async fn read(
        &self,
        managed: &ManagedCertificate,
    ) -> Result<(Option<Secret>, Option<HeaderValue>), kube::Error> {
        let (namespace, name) = (&managed.namespace, &managed.name);
        let request = http::Request::get(format!("/api/v1/namespaces/{namespace}/secrets/{name}"))
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        let (head, body) = self.client.send(request).await?.into_parts();
        let body = Limited::new(body, LARGEST_SECRET).collect().await;
        let body = body.map_err(kube::Error::Service)?.to_bytes();
        let secret = match head.status {
            StatusCode::NOT_FOUND => None,
            status if status.is_success() => {
                Some(serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?)
            }
            status => {
                let text: String = String::from_utf8_lossy(&body).chars().take(200).collect();
                let known = serde_json::from_slice(&body);
                let answer = known.unwrap_or_else(|_| {
                    Status::failure(&text, status.as_str()).with_code(status.as_u16())
                });
                return Err(kube::Error::Api(Box::new(answer)));
            }
        };
        Ok((secret, head.headers.get(DATE).cloned()))
    }

    /// Says once that the clock cannot be checked.
    fn note_clock(&self, clock: ClockCheck) {
        let is_unknown = clock == ClockCheck::Unknown;
        let was_unknown = std::mem::replace(&mut self.status().has_unknown_clock, is_unknown);
        if is_unknown && !was_unknown {
            tracing::warn!(
                "cannot compare the clock of this machine with that of the API server, whose answers have no valid Date header; writing certificates nevertheless"
            );
        }
    }

    /// Serves the certificate of the Secret.
    fn adopt(&self, state: &CertificateState) -> Result<(), KeepError> {
        let key = state.certificate.certified_key()?;
        let current = self.serving.borrow().clone();
        match current {
            None => self.serve(Arc::new(ServingCertificate::of(key))),
            Some(serving) => {
                if serving.replace(key) {
                    self.note(&serving);
                    self.renewals.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(
                        sha256 = serving.fingerprint(),
                        "serving another certificate"
                    );
                }
            }
        }
        Ok(())
    }

    fn serve(&self, certificate: Arc<ServingCertificate>) {
        self.note(&certificate);
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.serving.send_replace(Some(certificate));
    }

    fn note(&self, certificate: &ServingCertificate) {
        self.status().served = certificate.leaf().and_then(|leaf| Validity::of(&leaf));
    }

    fn status(&self) -> std::sync::MutexGuard<'_, CertificateStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a Secret has; a state that cannot be read is made anew.
fn read_state(secret: &Secret) -> Option<CertificateState> {
    let bytes = &secret.data.as_ref()?.get(STATE)?.0;
    serde_json::from_slice(bytes)
        .map_err(|error| tracing::warn!("making new certificates: cannot read the Secret: {error}"))
        .ok()
}
