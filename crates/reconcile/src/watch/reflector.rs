//! One kind, from its first list to the end of the process, across all failures of the server and the network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::wire::envelope::RequestStatus;
use api::wire::meta::Partial;
use engine::cluster::kinds::Key;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::frames::{Frame, Frames};
use super::store::{Difference, Store};
use super::{Handler, ObjectChange, Observed, Progress, RawObject, Resource, late};
use crate::backoff::{Backoff, jittered};
use crate::client::{self, Refusal};
use crate::planted::{PlantedFault, is_planted};

/// For real servers.
const TIMEOUTS: Timeouts = Timeouts {
    // A proxy may answer pings while one of its streams stands still; only the end of the watch finds that.
    watch: Duration::from_secs(40),
    grace: Duration::from_secs(5),
    answer: Duration::from_secs(15),
    first_list: Duration::from_secs(5),
};
/// The longest watch on a connection without pings: only the end of a watch shows that the connection is alive.
const WATCH_WITHOUT_PINGS: Duration = Duration::from_secs(16);
const GRACE_WITHOUT_PINGS: Duration = Duration::from_secs(3);
/// On the bookmark that ends a list.
const LIST_ENDS: &str = "k8s.io/initial-events-end";
/// A watch that ends sooner, without any event, is a failure.
const SHORT: Duration = Duration::from_secs(1);
/// After so many of them in a row, the server may not know the resource version: all objects are listed again.
const MOST_SHORT: u32 = 3;
/// How often a kind that the server does not have is requested.
const MISSING: Duration = Duration::from_secs(10);

/// Objects with problems that are remembered.
const MOST_PROBLEMS: usize = 10_000;

const JSON: &str = "application/json";
/// Stands for all messages of the server that mean it.
const DENIED: &str = "denied";
const MISSING_KIND: &str = "not served by the API server; watching begins once they are";
const PROTOBUF_WATCH: &str =
    "application/vnd.kubernetes.protobuf;stream=watch, application/json;q=0.5";

/// Lists and watches a kind until the task is aborted. `pings` find a connection that is dead.
pub async fn reflect<H: Handler>(
    resource: &'static Resource,
    client: kube::Client,
    handler: H,
    progress: Arc<Progress>,
    pings: bool,
) {
    let mut timeouts = TIMEOUTS;
    if !pings {
        (timeouts.watch, timeouts.grace) = (WATCH_WITHOUT_PINGS, GRACE_WITHOUT_PINGS);
    }
    Reflector::new(resource, client, handler, progress, timeouts)
        .run()
        .await;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// The server ends a watch after half of this to all of it, and a new one begins. So a dead stream is noticed in time.
    watch: Duration,
    /// How long after that the end may take to arrive.
    grace: Duration,
    /// For the answer to a request, and between two pieces of a list.
    pub(super) answer: Duration,
    /// A kind that is not listed by then is reported. If it is optional, the component goes on without it.
    first_list: Duration,
}

pub(super) struct Reflector<H> {
    pub(super) resource: &'static Resource,
    pub(super) client: kube::Client,
    pub(super) handler: Arc<H>,
    progress: Arc<Progress>,
    pub(super) store: Store,
    /// Objects that could not be parsed, or not fully, and the message about each.
    problems: BTreeMap<Key, String>,
    /// The version up to which everything has been delivered.
    pub(super) resource_version: String,
    synced: bool,
    list_mode: ListMode,
    /// A list that is being streamed, and when it began.
    listing: Option<std::time::Instant>,
    /// Before lists because of watches that end at once.
    relists: Backoff,
    /// The last failure that was logged; the same is logged once.
    failure: Option<String>,
    pub(super) timeouts: Timeouts,
}

/// How all objects are received.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ListMode {
    /// Object by object, at the head of a watch: nothing is held here, and the server reads nothing from its store.
    Stream,
    Pages,
}

#[derive(Debug, PartialEq)]
pub(super) enum WatchError {
    /// The server does not have the kind.
    Missing,
    /// The server has compacted the resource version.
    Expired,
    /// The server does not stream lists.
    NoStreams(String),
    /// There is no permission to read the kind.
    Denied(String),
    Other(String),
}

impl From<Refusal> for WatchError {
    fn from(refusal: Refusal) -> Self {
        match refusal.status() {
            Some(StatusCode::NOT_FOUND) => Self::Missing,
            Some(StatusCode::GONE) => Self::Expired,
            Some(StatusCode::FORBIDDEN) => Self::Denied(refusal.to_string()),
            _ => Self::Other(refusal.to_string()),
        }
    }
}

impl<H: Handler> Reflector<H> {
    fn new(
        resource: &'static Resource,
        client: kube::Client,
        handler: H,
        progress: Arc<Progress>,
        timeouts: Timeouts,
    ) -> Self {
        Self {
            resource,
            client,
            handler: Arc::new(handler),
            progress,
            store: Store::default(),
            problems: BTreeMap::new(),
            resource_version: String::new(),
            synced: false,
            list_mode: ListMode::Stream,
            listing: None,
            relists: Backoff::default(),
            failure: None,
            timeouts,
        }
    }

    async fn run(self) {
        let (resource, timeouts) = (self.resource, self.timeouts);
        let (handler, progress) = (self.handler.clone(), self.progress.clone());
        let late = async {
            tokio::time::sleep(timeouts.first_list).await;
            late::report(resource, &*handler, &progress, timeouts.first_list).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.follow() => {}
            () = late => {}
        }
    }

    async fn follow(mut self) {
        let mut backoff = Backoff::default();
        let mut broke = false;
        loop {
            // Small pieces get through where a long stream does not.
            let listed = match self.list_mode {
                ListMode::Stream if !broke => self.stream().await,
                ListMode::Stream | ListMode::Pages => self.list().await,
            };
            broke = matches!(listed, Err(WatchError::Other(_) | WatchError::Denied(_)));
            match listed {
                Ok(()) => backoff.reset(),
                Err(WatchError::NoStreams(text)) => {
                    tracing::debug!(
                        kind = self.resource.name(),
                        error = text,
                        "server does not stream lists; listing in pages"
                    );
                    self.list_mode = ListMode::Pages;
                    continue;
                }
                Err(WatchError::Missing) => {
                    // No fault: not every cluster has every kind.
                    if self.is_new(MISSING_KIND) {
                        tracing::info!("{}: {MISSING_KIND}", self.resource.name());
                    }
                    self.store.begin();
                    self.deliver_deleted().await;
                    self.continue_without().await;
                    continue;
                }
                Err(WatchError::Denied(text)) if self.resource.optional => {
                    if self.is_new(DENIED) {
                        let name = self.resource.name();
                        tracing::warn!(
                            error = text,
                            "no permission to list {name}; continuing without them"
                        );
                    }
                    self.continue_without().await;
                    continue;
                }
                Err(WatchError::Expired) => {
                    // Paging took so long that the server compacted the version.
                    backoff.wait().await;
                    continue;
                }
                Err(WatchError::Denied(text)) => {
                    self.denied(&text);
                    backoff.wait().await;
                    continue;
                }
                Err(WatchError::Other(text)) => {
                    self.failed(format!("cannot list: {text}"));
                    backoff.wait().await;
                    continue;
                }
            }
            self.watch_on().await;
        }
    }

    /// Receives all objects at the head of a watch, and then the watch to its end. An error if the list did not end.
    async fn stream(&mut self) -> Result<(), WatchError> {
        self.store.begin();
        self.listing = Some(std::time::Instant::now());
        let end = self.watch().await;
        let Some(begun) = self.listing.take() else {
            // It is resumed at once, and logged only if that fails.
            if let Err(WatchError::Other(text)) = end {
                let text = format!("watch failed: {text}");
                self.progress.broken(self.resource.name(), &text);
            }
            return Ok(());
        };
        if end.is_ok() && is_planted(PlantedFault::IncompleteList) {
            self.listed(begun).await;
            return Ok(());
        }
        end?;
        Err(WatchError::Other("the list ended early".to_owned()))
    }

    /// A list that began then has been delivered in full.
    pub(super) async fn listed(&mut self, begun: std::time::Instant) {
        self.deliver_deleted().await;
        let progress = &self.progress;
        progress.listed(self.resource.name(), begun, &self.resource_version);
        progress.recovered(self.resource.name());
        self.failure = None;
        self.now_synced().await;
    }

    /// Watches again and again, until the resource version cannot be resumed from.
    async fn watch_on(&mut self) {
        let (mut backoff, mut short) = (Backoff::default(), 0);
        loop {
            let begun = Instant::now();
            let (before, end) = (self.resource_version.clone(), self.watch().await);
            match end {
                Ok(()) if begun.elapsed() > SHORT || self.resource_version != before => {
                    (backoff, short) = (Backoff::default(), 0);
                    self.relists.reset();
                }
                Ok(()) => {
                    short += 1;
                    if short == MOST_SHORT {
                        self.failed("watches end at once; listing again".to_owned());
                        self.relists.wait().await;
                        return;
                    }
                    backoff.wait().await;
                }
                Err(WatchError::Expired | WatchError::Missing) => return,
                Err(WatchError::Denied(_)) if self.resource.optional => return,
                Err(WatchError::Denied(text)) => {
                    self.denied(&text);
                    backoff.wait().await;
                }
                Err(WatchError::NoStreams(text) | WatchError::Other(text)) => {
                    self.failed(format!("watch failed: {text}"));
                    if self.resource_version != before {
                        backoff.reset();
                    }
                    backoff.wait().await;
                }
            }
        }
    }

    async fn now_synced(&mut self) {
        if !self.synced {
            self.synced = true;
            if self.progress.synced(self.resource.name()) {
                self.handler.synced(self.resource.name()).await;
            }
        }
    }

    /// Objects of the kind cannot be read for now.
    async fn continue_without(&mut self) {
        self.progress.missing(self.resource.name());
        self.now_synced().await;
        tokio::time::sleep(jittered(MISSING)).await;
    }

    fn failed(&mut self, text: String) {
        self.progress.broken(self.resource.name(), &text);
        if self.is_new(&text) {
            tracing::warn!("{}: {text}", self.resource.name());
        }
    }

    /// Logged once, whether it shows when the kind is listed or when it is watched.
    fn denied(&mut self, text: &str) {
        self.progress.denied(self.resource.name(), text);
        if self.is_new(DENIED) {
            let name = self.resource.name();
            tracing::warn!(error = text, "no permission to list {name}; retrying");
        }
    }

    /// Whether this was not the last failure.
    fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.failure.as_deref() != Some(text);
        if is_new {
            self.failure = Some(text.to_owned());
        }
        is_new
    }

    async fn deliver_deleted(&mut self) {
        let deleted = self.store.deleted().into_iter();
        let deleted = deleted.map(|(key, uid)| ObjectChange::Deleted { key, uid });
        self.deliver(deleted.collect()).await;
    }

    pub(super) async fn deliver(&self, changes: Vec<ObjectChange<H::Object>>) {
        if !changes.is_empty() {
            self.handler.deliver(changes).await;
        }
    }

    /// Receives one watch to its end.
    async fn watch(&mut self) -> Result<(), WatchError> {
        let time = jittered(self.timeouts.watch);
        let mut uri = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={}",
            self.resource.path,
            time.as_secs()
        );
        match self.listing {
            // Without a version: at least as new as the store is now.
            Some(_) => uri += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            None => uri += &format!("&resourceVersion={}", percent(&self.resource_version)),
        }
        uri += &self.resource.selectors();
        let accept = if self.resource.protobuf {
            PROTOBUF_WATCH
        } else {
            JSON
        };
        let begun = Instant::now();
        let end = begun + time + self.timeouts.grace;
        let answer = client::stream(&self.client, get(uri, accept)?, self.timeouts.answer);
        let answer = answer.await.map_err(|refusal| self.refused(refusal))?;
        let mut frames = Frames::new(client::is_protobuf(answer.headers()));
        let mut body = answer.into_body().into_data_stream();
        let progress = self.progress.clone();
        // A watch that ends at once does not work.
        let mut works = self.listing.is_some();
        loop {
            let (lists, silence) = (self.listing.is_some(), self.timeouts.answer);
            let deadline = match lists {
                true => end.min(Instant::now() + silence),
                false => end,
            };
            // What was received is delivered in full before anything else happens.
            let chunk = tokio::select! {
                chunk = tokio::time::timeout_at(deadline, client::chunk(&mut body)) => chunk,
                () = tokio::time::sleep_until(begun + SHORT), if !works => {
                    works = true;
                    progress.recovered(self.resource.name());
                    continue;
                }
                () = progress.asked_again(self.resource.name()), if !lists => {
                    return Err(WatchError::Expired);
                }
            };
            let late = |_| match lists {
                true => WatchError::Other(format!("no data of the list for {silence:?}")),
                false => self.overdue(),
            };
            let chunk = chunk.map_err(late)?;
            let Some(chunk) = chunk.map_err(WatchError::Other)? else {
                return Ok(());
            };
            if !works {
                works = true;
                progress.recovered(self.resource.name());
            }
            frames.push(&chunk);
            self.process(&mut frames).await?;
        }
    }

    /// The server did not end a watch. The text is the same for each.
    fn overdue(&self) -> WatchError {
        let longest = self.timeouts.watch + self.timeouts.grace;
        WatchError::Other(format!(
            "the server did not end it at its deadline of at most {longest:?}"
        ))
    }

    /// Delivers all events that were received in full, at once.
    async fn process(&mut self, frames: &mut Frames) -> Result<(), WatchError> {
        let mut changes = Vec::new();
        let mut listed = None;
        let end = loop {
            match frames.next() {
                Ok(None) => break Ok(()),
                Ok(Some(Frame::Error(status))) => break Err(self.ended(&status)),
                Ok(Some(Frame::Bookmark(raw))) => {
                    if self.bookmark(&raw) {
                        listed = self.listing.take().or(listed);
                    }
                }
                Ok(Some(Frame::Applied(raw))) => self.applied(&raw, &mut changes),
                Ok(Some(Frame::Deleted(raw))) => self.deleted(&raw, &mut changes),
                Err(error) => break Err(WatchError::Other(error.to_string())),
            }
        };
        self.deliver(changes).await;
        if let Some(begun) = listed {
            self.listed(begun).await;
        }
        if self.listing.is_none() {
            self.progress
                .passed(self.resource.name(), &self.resource_version);
        }
        end
    }

    fn refused(&self, refusal: Refusal) -> WatchError {
        // Older servers know no such parameter, or not for a watch.
        let unknown = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY];
        match refusal.status() {
            Some(status) if self.listing.is_some() && unknown.contains(&status) => {
                WatchError::NoStreams(refusal.to_string())
            }
            _ => refusal.into(),
        }
    }

    /// The meaning of an error in the stream.
    fn ended(&self, status: &RequestStatus) -> WatchError {
        match (status.code, &status.reason[..]) {
            (410, _) | (_, "Expired" | "Gone") => WatchError::Expired,
            // An etcd that cannot report its progress (before 3.5.13) fails only here.
            (500, _) if self.listing.is_some() => WatchError::NoStreams(status.message.clone()),
            _ => WatchError::Other(status.message.clone()),
        }
    }

    pub(super) fn applied(&mut self, raw: &RawObject, changes: &mut Vec<ObjectChange<H::Object>>) {
        let Observed {
            key,
            uid,
            resource_version,
            object,
            problem,
        } = match self.handler.parse(raw) {
            Ok(observed) => observed,
            Err(problem) => return self.invalid(raw, problem),
        };
        match problem {
            Some(problem) => self.report(key.clone(), problem),
            None if !self.problems.is_empty() => drop(self.problems.remove(&key)),
            None => {}
        }
        match object {
            None => {
                self.store.delete(&key);
                changes.push(ObjectChange::Deleted { key, uid });
            }
            Some(object) => {
                let difference = self.store.apply(key.clone(), &uid, &resource_version);
                let is_same = difference == Difference::Same;
                if let Difference::Replaced(uid) = difference {
                    changes.push(ObjectChange::Deleted { key, uid });
                }
                if !is_same {
                    changes.push(ObjectChange::Applied(object));
                }
            }
        }
        self.passed(resource_version);
    }

    fn deleted(&mut self, raw: &RawObject, changes: &mut Vec<ObjectChange<H::Object>>) {
        // Only its name matters, so the rest may be invalid.
        let Some(meta) = partial(raw).map(|partial| partial.metadata) else {
            let kind = self.resource.name();
            tracing::warn!(kind, "ignoring a deleted object without valid metadata");
            return;
        };
        let key = Key::new(meta.namespace, meta.name);
        self.problems.remove(&key);
        let uid = self.store.delete(&key).unwrap_or_else(|| meta.uid.into());
        changes.push(ObjectChange::Deleted { key, uid });
        self.passed(meta.resource_version);
    }

    /// Returns whether it ends a list.
    fn bookmark(&mut self, raw: &RawObject) -> bool {
        let Some(Partial { metadata }) = partial(raw) else {
            return false;
        };
        let ends = metadata.annotations.contains_key(LIST_ENDS);
        // Objects of a list come in any order: only its end has the resource version.
        if !metadata.resource_version.is_empty() && (ends || self.listing.is_none()) {
            self.resource_version = metadata.resource_version;
        }
        ends
    }

    /// An object of this version will be delivered.
    fn passed(&mut self, resource_version: String) {
        if self.listing.is_none() {
            self.resource_version = resource_version;
        }
    }

    /// What was known of the object stays as it was.
    fn invalid(&mut self, raw: &RawObject, problem: H::Problem) {
        let Some(meta) = partial(raw).map(|partial| partial.metadata) else {
            return self.handler.report(problem);
        };
        let key = Key::new(meta.namespace, meta.name);
        self.store.keep(&key);
        self.passed(meta.resource_version);
        self.report(key, problem);
    }

    /// Reports a problem unless it is the last one of this object.
    fn report(&mut self, key: Key, problem: H::Problem) {
        let text = problem.to_string();
        if self.problems.get(&key) == Some(&text) {
            return;
        }
        if self.problems.len() >= MOST_PROBLEMS {
            // Better to report twice than to remember without end.
            self.problems.clear();
        }
        self.problems.insert(key, text);
        self.handler.report(problem);
    }
}

pub(super) fn get(uri: String, accept: &'static str) -> Result<Request<Body>, WatchError> {
    Request::get(uri)
        .header(ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| WatchError::Other(error.to_string()))
}

fn partial(raw: &RawObject) -> Option<Partial> {
    match raw {
        RawObject::Json(bytes) => serde_json::from_slice(bytes).ok(),
        RawObject::Protobuf(bytes) => Partial::decode_identity(bytes).ok(),
    }
}

/// Encodes what has a meaning in a query.
pub(super) fn percent(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests;
