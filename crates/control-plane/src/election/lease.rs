//! Leader election: of all that could do the work, the one that has the Lease does it.
//!
//! The Lease is taken and renewed by updates with its resource version, so that two can never both succeed. Whether
//! another's Lease has run out is judged by how long *we* have seen it unchanged, on a clock that never jumps; nobody
//! else's time of day matters.

mod record;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::config::LeaderElection;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::backoff::jittered;
use crate::client::{self, Exchange, Refusal};
use crate::election::leadership::{Mandate, Role};
use crate::status::Leader;
use record::{Holder, Record};

/// The part of the renew deadline in which nothing is sent any more: 2 s of 10 s.
const MARGIN: u32 = 5;
/// For one request about the Lease, at least.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);
/// The namespaces of a cluster that just began come within seconds; one that is missing for longer will not.
const YOUNG: Duration = Duration::from_secs(5);
/// For giving the Lease back.
const RELEASE: Duration = Duration::from_secs(2);

/// Which Lease, and how it is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// Who we are on the Lease; nobody else may use it.
    pub identity: String,
    /// Others wait so long after the last renewal.
    pub lease_duration: Duration,
    /// Without a renewal for so long, we give up.
    pub renew_deadline: Duration,
    /// Between attempts.
    pub retry_period: Duration,
}

impl Election {
    /// As the configuration says, under a name that no other process has.
    pub fn new(settings: &LeaderElection, host: &str) -> Self {
        Self {
            namespace: settings.resource_namespace.clone(),
            name: settings.resource_name.clone(),
            identity: format!("{host}_{}", uuid::Uuid::new_v4()),
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
        }
    }
}

/// Why we are not, or not any more, the leader.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(
        "the Lease {namespace}/{name} cannot be made because namespace `{namespace}` does not exist; make it with `kubectl create namespace {namespace}`, or name another one in leaderElection.resourceNamespace"
    )]
    NoNamespace { namespace: String, name: String },
    #[error("the Lease {lease} was lost to `{holder}`")]
    Taken { lease: String, holder: String },
    #[error("the Lease {lease} could not be renewed for {time:?}: {why}")]
    NotRenewed {
        lease: String,
        time: Duration,
        why: String,
    },
}

/// One candidate.
pub(crate) struct Candidate {
    election: Election,
    api: Exchange,
    mandate: Arc<Mandate>,
    /// Where our HTTP server is, for the Lease.
    server: Option<String>,
    seen: Arc<Seen>,
    /// The Lease as last seen, and since when it has been so.
    observed: Option<(Record, Instant)>,
    /// What was complained of last; the same is said once.
    trouble: Option<String>,
}

/// Who has the Lease, for people.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Option<Leader>>);

impl Seen {
    pub(crate) fn get(&self) -> Option<Leader> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, leader: Option<Leader>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = leader;
    }
}

/// What came of one attempt.
enum Attempt {
    /// It is ours, since just before we asked.
    Ours(Instant),
    Theirs(Holder),
    Failed(Refusal),
}

impl Candidate {
    pub(crate) fn new(
        election: Election,
        api: Exchange,
        mandate: Arc<Mandate>,
        server: Option<String>,
        seen: Arc<Seen>,
    ) -> Self {
        Self {
            election,
            api,
            mandate,
            server,
            seen,
            observed: None,
            trouble: None,
        }
    }

    /// Returns when the Lease became ours; an error only for what waiting cannot mend.
    pub(crate) async fn win(&mut self) -> Result<Instant, LeaseError> {
        let begun = Instant::now();
        loop {
            match self.attempt().await {
                Attempt::Ours(at) => {
                    self.prolong(at);
                    let won = Instant::now();
                    self.mandate.set_role(Role::CatchingUp);
                    tracing::info!(lease = %self.path_name(), identity = %self.election.identity, "became leader");
                    return Ok(won);
                }
                Attempt::Theirs(holder) => {
                    self.mention(&format!("`{}` is the leader", holder.identity));
                }
                Attempt::Failed(refusal) if refusal.status() == Some(StatusCode::CONFLICT) => {
                    self.mention(&format!("another was faster: {refusal}"));
                }
                Attempt::Failed(refusal) => {
                    if is_missing_namespace(&refusal) && begun.elapsed() > YOUNG {
                        return Err(LeaseError::NoNamespace {
                            namespace: self.election.namespace.clone(),
                            name: self.election.name.clone(),
                        });
                    }
                    self.complain(&format!("the Lease cannot be had: {refusal}"));
                }
            }
            self.mandate.set_role(Role::Standby);
            // Up to 2.2 periods, so that candidates do not ask in step.
            let most = self.election.retry_period.mul_f64(2.2);
            tokio::time::sleep(jittered(most).max(self.election.retry_period)).await;
        }
    }

    /// Keeps the Lease and returns when it is lost. The event about it is written in this name.
    pub(crate) async fn hold(&mut self, reporter: &str) -> LeaseError {
        const SILENCE: &str = "no answer";
        let (mut renewed, mut why) = (Instant::now(), SILENCE.to_owned());
        self.tell(reporter, "became leader").await;
        loop {
            let deadline = renewed + self.election.renew_deadline;
            let pause = self.election.retry_period;
            let attempt = async {
                tokio::time::sleep(pause).await;
                self.attempt().await
            };
            let attempt = tokio::select! {
                // Whoever was held up for so long does not ask any more.
                biased;
                () = tokio::time::sleep_until(deadline.into()) => {
                    self.mandate.end();
                    return LeaseError::NotRenewed {
                        lease: self.path_name(),
                        time: self.election.renew_deadline,
                        why,
                    };
                }
                attempt = attempt => attempt,
            };
            match attempt {
                Attempt::Ours(at) => {
                    (renewed, why) = (at, SILENCE.to_owned());
                    self.trouble = None;
                    self.prolong(at);
                }
                Attempt::Theirs(holder) => {
                    self.mandate.end();
                    return LeaseError::Taken {
                        lease: self.path_name(),
                        holder: holder.identity,
                    };
                }
                Attempt::Failed(refusal) => {
                    why = refusal.to_string();
                    self.complain(&format!("the Lease was not renewed: {why}"));
                }
            }
        }
    }

    /// Gives the Lease back, so that nobody has to wait until it runs out.
    pub(crate) async fn release(&mut self) {
        self.mandate.end();
        let Some((record, _)) = &self.observed else {
            return;
        };
        if record.holder.identity != self.election.identity {
            return;
        }
        let released = record.released(jiff::Timestamp::now());
        let path = self.path();
        match self
            .send(Method::PUT, &path, Some(&released), RELEASE)
            .await
        {
            Ok(_) => tracing::info!(lease = %self.path_name(), "gave the Lease back"),
            Err(refusal) => {
                tracing::warn!(lease = %self.path_name(), "the Lease was not given back: {refusal}")
            }
        }
    }

    fn prolong(&self, at: Instant) {
        let deadline = self.election.renew_deadline;
        self.mandate.prolong(at, deadline - deadline / MARGIN);
    }

    fn complain(&mut self, text: &str) {
        if self.is_new(text) {
            tracing::warn!(lease = %self.path_name(), "{text}");
        }
    }

    /// As it should be.
    fn mention(&mut self, text: &str) {
        if self.is_new(text) {
            tracing::info!(lease = %self.path_name(), "{text}");
        }
    }

    /// Whether this was not the last thing said.
    fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.trouble.as_deref() != Some(text);
        if is_new {
            self.trouble = Some(text.to_owned());
        }
        is_new
    }

    async fn attempt(&mut self) -> Attempt {
        match self.take_or_renew().await {
            Ok(attempt) => attempt,
            Err(refusal) => {
                // Another wrote it meanwhile, or the answer was lost: what we have seen is of no use.
                if let Some((record, _)) = &mut self.observed {
                    record.forget_version();
                }
                Attempt::Failed(refusal)
            }
        }
    }

    async fn take_or_renew(&mut self) -> Result<Attempt, Refusal> {
        let ours = self.observed.as_ref().is_some_and(|(record, _)| {
            record.is_current() && record.holder.identity == self.election.identity
        });
        if !ours {
            self.look().await?;
        }
        let asked = Instant::now();
        let now = jiff::Timestamp::now();
        let Some((record, since)) = &self.observed else {
            let new = Record::create(&self.election, self.server.as_deref(), now);
            let path = self.collection();
            self.write(Method::POST, &path, &new).await?;
            return Ok(Attempt::Ours(asked));
        };
        let holder = &record.holder;
        let free = holder.identity.is_empty()
            || holder.identity == self.election.identity
            || since.elapsed() >= holder.duration.unwrap_or(self.election.lease_duration);
        if !free {
            return Ok(Attempt::Theirs(holder.clone()));
        }
        let taken = record.taken(&self.election, self.server.as_deref(), now);
        let path = self.path();
        self.write(Method::PUT, &path, &taken).await?;
        Ok(Attempt::Ours(asked))
    }

    /// Reads the Lease; none at all is an answer, too.
    async fn look(&mut self) -> Result<(), Refusal> {
        let path = self.path();
        let object = match self.send(Method::GET, &path, None, self.limit()).await {
            Ok(object) => object,
            Err(Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            }) => {
                self.observed = None;
                self.seen.set(None);
                return Ok(());
            }
            Err(refusal) => return Err(refusal),
        };
        self.observe(object);
        Ok(())
    }

    async fn write(&mut self, method: Method, path: &str, lease: &Value) -> Result<(), Refusal> {
        let written = self.send(method, path, Some(lease), self.limit()).await?;
        self.observe(written);
        Ok(())
    }

    fn observe(&mut self, object: Value) {
        let record = Record::read(object);
        self.seen.set(record.leader());
        match &mut self.observed {
            // Unchanged: its time goes on.
            Some((known, _)) if known.is_same(&record) => *known = record,
            _ => self.observed = Some((record, Instant::now())),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value, Refusal> {
        let body = body.map(|body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.unwrap_or_default()))
            .map_err(|error| Refusal::Unknown(error.to_string()))?;
        let answer = client::send(&self.api, request, limit).await?;
        serde_json::from_slice(&answer).map_err(|error| Refusal::Unknown(error.to_string()))
    }

    fn limit(&self) -> Duration {
        (self.election.renew_deadline / 2).max(SHORTEST_LIMIT)
    }

    fn collection(&self) -> String {
        let namespace = &self.election.namespace;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.election.name)
    }

    fn path_name(&self) -> String {
        format!("{}/{}", self.election.namespace, self.election.name)
    }

    /// The event that kube-scheduler writes, so that `kubectl describe lease` tells who came and went.
    pub(crate) async fn tell(&self, reporter: &str, what: &str) {
        let (election, now) = (&self.election, jiff::Timestamp::now());
        let note = format!("{} {what}", election.identity);
        let uid = self
            .observed
            .as_ref()
            .map_or("", |(record, _)| record.uid());
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": format!("{}.{:x}", election.name, now.as_nanosecond()), "namespace": election.namespace},
            "eventTime": record::micros(now), "reportingController": reporter, "reportingInstance": election.identity.chars().take(128).collect::<String>(),
            "action": "LeaderElection", "reason": "LeaderElection", "type": "Normal", "note": note,
            "regarding": {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "namespace": election.namespace, "name": election.name, "uid": uid},
        });
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/{}/events",
            election.namespace
        );
        if let Err(refusal) = self.send(Method::POST, &path, Some(&event), RELEASE).await {
            tracing::debug!("the event about the Lease was not written: {refusal}");
        }
    }
}

/// The Lease would have been made if its namespace were there.
fn is_missing_namespace(refusal: &Refusal) -> bool {
    refusal.status() == Some(StatusCode::NOT_FOUND) && refusal.to_string().contains("namespaces")
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::testing::Log;

    /// What a candidate says while the server answers all its questions so.
    async fn said(code: u16, answer: Value) -> Vec<String> {
        let service = tower::service_fn(move |_| {
            let mut response = Response::new(answer.to_string().into());
            *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
            std::future::ready(Ok(response))
        });
        let election = Election {
            namespace: "ns".into(),
            name: "lock".into(),
            identity: "me".into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_millis(10),
        };
        let mandate = Arc::new(Mandate::new(Role::Candidate));
        let api = Exchange::new(service);
        let mut candidate = Candidate::new(election, api, mandate, None, Arc::default());
        let log = Log::begin();
        let win = tokio::time::timeout(Duration::from_millis(300), candidate.win());
        assert!(win.await.is_err(), "it won or gave up");
        log.lines()
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_had_is_a_warning_said_once() {
        let message = "leases \"lock\" is forbidden";
        let lines = said(403, json!({"kind": "Status", "message": message})).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains(message),
            "{lines:?}"
        );
    }

    #[tokio::test]
    async fn a_lease_that_another_has_is_none() {
        let theirs = json!({"spec": {"holderIdentity": "them", "leaseDurationSeconds": 15}});
        let lines = said(200, theirs).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("INFO") && lines[0].contains("`them`"),
            "{lines:?}"
        );
    }
}
