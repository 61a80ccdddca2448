//! Takes and holds the Lease: of several replicas, the holder does the work.
//!
//! Every write has the resource version of the Lease that was read, so that two replicas never both succeed. A foreign
//! Lease has expired when *this* process has seen it unchanged for its duration, on a monotonic clock; clocks of other
//! machines do not matter.

mod annotations;
mod record;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::config::LeaderElection;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::client::{self, Exchange, Refusal};
use api::http::Role;
use reconcile::backoff::jittered;

use crate::election::leadership::Leadership;
pub(crate) use annotations::Annotations;
use record::{Holder, Record};

/// The last part of the renew deadline, in which no write is sent: 2 s of 10 s.
const MARGIN: u32 = 5;
/// The shortest timeout of one request.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);
/// A cluster that just started creates its namespaces within seconds. After this time a missing one is an error.
const YOUNG: Duration = Duration::from_secs(5);
/// The timeout to release the Lease.
const RELEASE: Duration = Duration::from_secs(2);
/// See [`Election::sync_deadline`].
pub const SYNC_DEADLINE: Duration = Duration::from_secs(60);

/// The Lease and its timing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    pub namespace: String,
    pub name: String,
    /// The holder identity of this process; unique.
    pub identity: String,
    /// How long other candidates wait after the last renewal.
    pub lease_duration: Duration,
    /// The holder gives up after this time without a renewal.
    pub renew_deadline: Duration,
    /// Between attempts.
    pub retry_period: Duration,
    /// The holder gives the Lease up after this time without synchronised watches, because it cannot decide.
    pub sync_deadline: Duration,
}

impl Election {
    /// The settings of the configuration, with a unique identity.
    pub fn new(settings: &LeaderElection, host: &str) -> Self {
        Self {
            namespace: settings.resource_namespace.clone(),
            name: settings.resource_name.clone(),
            identity: format!("{host}_{}", uuid::Uuid::new_v4()),
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
            sync_deadline: SYNC_DEADLINE,
        }
    }
}

/// Why this process cannot become or stay the leader.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(
        "cannot create Lease {namespace}/{name}: namespace `{namespace}` does not exist; create it with `kubectl create namespace {namespace}`, or set another namespace with --leader-elect-resource-namespace or leaderElection.resourceNamespace"
    )]
    NoNamespace { namespace: String, name: String },
    #[error("lost Lease {lease} to `{holder}`")]
    Taken { lease: String, holder: String },
    #[error("cannot renew Lease {lease} for {time:?}: {why}")]
    NotRenewed {
        lease: String,
        time: Duration,
        why: String,
    },
}

/// The work of a leader.
pub(crate) trait LeaderWork: Sync {
    /// Works while this process holds the Lease, which it won at `won`. Returns why it cannot work.
    fn lead(&self, won: Instant) -> impl Future<Output = String> + Send;

    /// Returns when it may work again.
    fn able(&self) -> impl Future<Output = ()> + Send;
}

/// One replica that takes part in the election.
pub(crate) struct Candidate {
    election: Election,
    api: Exchange,
    leadership: Arc<Leadership>,
    annotations: Annotations,
    /// The Lease as last seen, and since when it is unchanged.
    observed: Option<(Record, Instant)>,
    /// The last message; a repeated one is not logged.
    logged: Option<String>,
}

/// The result of one attempt to take or renew the Lease.
enum LeaseAttempt {
    /// This process holds it, since the request was sent.
    Ours(Instant),
    Theirs(Holder),
    Failed(Refusal),
}

impl Candidate {
    pub(crate) fn new(
        election: Election,
        api: Exchange,
        leadership: Arc<Leadership>,
        annotations: Annotations,
    ) -> Self {
        Self {
            election,
            api,
            leadership,
            annotations,
            observed: None,
            logged: None,
        }
    }

    /// Takes part in the election until `stopped`, then releases the Lease. Does the work while this process holds the
    /// Lease; fails if the Lease is lost. If the work cannot be done, this process gives the Lease up, and takes part
    /// again when it is able to work. `reporter` is the reporting controller of events.
    pub(crate) async fn run(
        mut self,
        reporter: &str,
        work: &impl LeaderWork,
        stopped: impl Future<Output = ()>,
    ) -> Result<(), LeaseError> {
        let mut stopped = std::pin::pin!(stopped);
        loop {
            let won = tokio::select! {
                won = self.win() => won?,
                () = &mut stopped => return Ok(()),
            };
            let unable = tokio::select! {
                lost = self.hold(reporter) => return Err(lost),
                why = work.lead(won) => Some(why),
                () = &mut stopped => None,
            };
            let in_flight = self.leadership.end();
            if let Some(why) = &unable {
                tracing::warn!(lease = %self.path_name(), "giving up the Lease: {why}");
                // Requests that were sent must be over before another replica reads what they changed.
                tokio::time::sleep(in_flight).await;
            }
            self.release().await;
            self.write_event(reporter, "stopped leading").await;
            if unable.is_none() {
                return Ok(());
            }
            self.leadership.set_role(Role::Standby);
            tokio::select! {
                () = work.able() => {}
                () = &mut stopped => return Ok(()),
            }
        }
    }

    /// Returns when this process has become the holder. Fails only if waiting cannot help.
    async fn win(&mut self) -> Result<Instant, LeaseError> {
        let begun = Instant::now();
        loop {
            match self.attempt().await {
                LeaseAttempt::Ours(at) => {
                    self.extend(at);
                    let won = Instant::now();
                    self.leadership.set_role(Role::CatchingUp);
                    tracing::info!(lease = %self.path_name(), identity = %self.election.identity, "became leader");
                    return Ok(won);
                }
                LeaseAttempt::Theirs(holder) => {
                    self.log_info(&format!("waiting: `{}` holds the Lease", holder.identity));
                }
                LeaseAttempt::Failed(refusal) if refusal.status() == Some(StatusCode::CONFLICT) => {
                    self.log_info(&format!(
                        "another candidate wrote the Lease first: {refusal}"
                    ));
                }
                LeaseAttempt::Failed(refusal) => {
                    if is_missing_namespace(&refusal) && begun.elapsed() > YOUNG {
                        return Err(LeaseError::NoNamespace {
                            namespace: self.election.namespace.clone(),
                            name: self.election.name.clone(),
                        });
                    }
                    self.log_warning(&format!("cannot acquire the Lease: {refusal}"));
                }
            }
            self.leadership.set_role(Role::Standby);
            // Up to 2.2 periods, so that candidates do not write at the same time.
            let most = self.election.retry_period.mul_f64(2.2);
            tokio::time::sleep(jittered(most).max(self.election.retry_period)).await;
        }
    }

    /// Renews the Lease and returns when it is lost. `reporter` is the event's reporting controller.
    async fn hold(&mut self, reporter: &str) -> LeaseError {
        const SILENCE: &str = "no answer";
        let (mut renewed, mut why) = (Instant::now(), SILENCE.to_owned());
        self.write_event(reporter, "became leader").await;
        loop {
            let deadline = renewed + self.election.renew_deadline;
            let pause = self.election.retry_period;
            let attempt = async {
                tokio::time::sleep(pause).await;
                self.attempt().await
            };
            let attempt = tokio::select! {
                // After the deadline no request is sent, however late this task runs.
                biased;
                () = tokio::time::sleep_until(deadline.into()) => {
                    self.leadership.end();
                    return LeaseError::NotRenewed {
                        lease: self.path_name(),
                        time: self.election.renew_deadline,
                        why,
                    };
                }
                attempt = attempt => attempt,
            };
            match attempt {
                LeaseAttempt::Ours(at) => {
                    (renewed, why) = (at, SILENCE.to_owned());
                    self.logged = None;
                    self.extend(at);
                }
                LeaseAttempt::Theirs(holder) => {
                    self.leadership.end();
                    return LeaseError::Taken {
                        lease: self.path_name(),
                        holder: holder.identity,
                    };
                }
                LeaseAttempt::Failed(refusal) => {
                    why = refusal.to_string();
                    self.log_warning(&format!("cannot renew the Lease: {why}"));
                }
            }
        }
    }

    /// Clears the holder, so that other candidates need not wait until the Lease expires.
    async fn release(&mut self) {
        let Some((record, _)) = &self.observed else {
            return;
        };
        if record.holder.identity != self.election.identity {
            return;
        }
        let released = record.released(jiff::Timestamp::now());
        let path = self.path();
        let written = self.send(Method::PUT, &path, Some(&released), RELEASE);
        match written.await {
            Ok(written) => {
                tracing::info!(lease = %self.path_name(), "released the Lease");
                self.observe(written);
            }
            Err(refusal) => {
                tracing::warn!(lease = %self.path_name(), "cannot release the Lease: {refusal}");
                // Whether it was released is not known.
                self.observed = None;
            }
        }
    }

    fn extend(&self, at: Instant) {
        let deadline = self.election.renew_deadline;
        self.leadership.extend(at, deadline - deadline / MARGIN);
    }

    fn log_warning(&mut self, text: &str) {
        if self.is_new(text) {
            tracing::warn!(lease = %self.path_name(), "{text}");
        }
    }

    fn log_info(&mut self, text: &str) {
        if self.is_new(text) {
            tracing::info!(lease = %self.path_name(), "{text}");
        }
    }

    /// Whether this was not the last message.
    fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.logged.as_deref() != Some(text);
        if is_new {
            self.logged = Some(text.to_owned());
        }
        is_new
    }

    async fn attempt(&mut self) -> LeaseAttempt {
        match self.take_or_renew().await {
            Ok(attempt) => {
                self.leadership.answered();
                attempt
            }
            Err(refusal) => {
                match &refusal {
                    // Not a success, but an answer.
                    Refusal::Refused { .. } => self.leadership.answered(),
                    Refusal::Unknown(why) => self.leadership.unanswered(why.clone()),
                    Refusal::NotLeader => {}
                }
                // Another candidate wrote it, or the response was lost: read it again.
                if let Some((record, _)) = &mut self.observed {
                    record.forget_version();
                }
                LeaseAttempt::Failed(refusal)
            }
        }
    }

    async fn take_or_renew(&mut self) -> Result<LeaseAttempt, Refusal> {
        let ours = self.observed.as_ref().is_some_and(|(record, _)| {
            record.is_current() && record.holder.identity == self.election.identity
        });
        if !ours {
            self.read().await?;
        }
        let asked = Instant::now();
        let now = jiff::Timestamp::now();
        let Some((record, since)) = &self.observed else {
            let new = Record::create(&self.election, &self.annotations, now);
            let path = self.collection();
            self.write(Method::POST, &path, &new).await?;
            return Ok(LeaseAttempt::Ours(asked));
        };
        let holder = &record.holder;
        let free = holder.identity.is_empty()
            || holder.identity == self.election.identity
            || since.elapsed() >= holder.duration.unwrap_or(self.election.lease_duration);
        if !free {
            return Ok(LeaseAttempt::Theirs(holder.clone()));
        }
        let taken = record.taken(&self.election, &self.annotations, now);
        let path = self.path();
        self.write(Method::PUT, &path, &taken).await?;
        Ok(LeaseAttempt::Ours(asked))
    }

    /// Reads the Lease, which need not exist.
    async fn read(&mut self) -> Result<(), Refusal> {
        let path = self.path();
        let object = match self.send(Method::GET, &path, None, self.limit()).await {
            Ok(object) => object,
            Err(Refusal::Refused {
                status: StatusCode::NOT_FOUND,
                ..
            }) => {
                self.observed = None;
                self.leadership.set_leader(None);
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
        self.leadership.set_leader(record.leader());
        match &mut self.observed {
            // Unchanged: keeps its age.
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

    /// The event that kube-scheduler writes, shown by `kubectl describe lease`.
    async fn write_event(&self, reporter: &str, what: &str) {
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
        match self.send(Method::POST, &path, Some(&event), RELEASE).await {
            Ok(_) => {}
            // Only an administrator can correct that.
            Err(refusal @ Refusal::Refused { .. }) => {
                tracing::warn!(lease = %self.path_name(), "cannot write the event about the Lease: {refusal}");
            }
            Err(refusal) => tracing::debug!("cannot write the event about the Lease: {refusal}"),
        }
    }
}

fn is_missing_namespace(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Refused { status: StatusCode::NOT_FOUND, resource, .. } if resource == "namespaces")
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use reconcile::testing::Log;

    /// A candidate whose server gives this response to every request.
    fn candidate(code: u16, answer: Value) -> Candidate {
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
            sync_deadline: SYNC_DEADLINE,
        };
        let leadership = Arc::new(Leadership::new(Role::Candidate));
        let api = Exchange::new(service);
        Candidate::new(election, api, leadership, Annotations::default())
    }

    /// What it logs while it waits for the Lease.
    async fn logged(code: u16, answer: Value) -> Vec<String> {
        let mut candidate = candidate(code, answer);
        let log = Log::begin();
        let win = tokio::time::timeout(Duration::from_millis(300), candidate.win());
        assert!(win.await.is_err(), "it won or gave up");
        log.lines()
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_acquired_is_logged_once_as_a_warning() {
        let message = "leases \"lock\" is forbidden";
        let lines = logged(403, json!({"kind": "Status", "message": message})).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains(message),
            "{lines:?}"
        );
    }

    #[tokio::test]
    async fn a_lease_of_another_holder_is_no_warning() {
        let theirs = json!({"spec": {"holderIdentity": "them", "leaseDurationSeconds": 15}});
        let lines = logged(200, theirs).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("INFO") && lines[0].contains("`them`"),
            "{lines:?}"
        );
    }

    #[tokio::test]
    async fn an_event_that_is_refused_is_a_warning_and_one_without_an_answer_is_none() {
        let message = "events is forbidden";
        let status = json!({"kind": "Status", "message": message});
        for (code, warnings) in [(201, 0), (403, 1), (422, 1), (503, 0)] {
            let candidate = candidate(code, status.clone());
            let log = Log::begin();
            candidate.write_event("us", "became leader").await;
            let lines = log.lines();
            let is_warning = |it: &&String| it.contains("WARN") && it.contains(message);
            let found = lines.iter().filter(is_warning).count();
            assert_eq!(
                (found, lines.len()),
                (warnings, warnings),
                "{code}: {lines:?}"
            );
        }
    }
}
