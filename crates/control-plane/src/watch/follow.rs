//! One kind, from its first list to the end of the process, whatever the server and the network do.

use std::collections::BTreeMap;
use std::time::Duration;

use api::wire::envelope::RequestStatus;
use api::wire::meta::Partial;
use engine::scheduler::Input;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::Sink;
use super::frames::{Event, Frames};
use super::kinds::{Item, Kind, Raw, Unreadable, What, Whom};
use super::known::{Key, Known, Sight};
use crate::backoff::{Backoff, jittered};
use crate::client::{self, Refusal};
use crate::scheduler::channel::Message;

/// For real servers.
const PATIENCE: Patience = Patience {
    watch: Duration::from_secs(120),
    grace: Duration::from_secs(10),
    list: Duration::from_secs(15),
};
/// On the bookmark that ends a list.
const LIST_ENDS: &str = "k8s.io/initial-events-end";
/// A watch that ends sooner, without a word, is a failure.
const SHORT: Duration = Duration::from_secs(1);
/// How often a kind that the server does not have is asked for.
const MISSING: Duration = Duration::from_secs(10);

/// Objects that cannot be read and are remembered as such.
const MOST_SPOILED: usize = 10_000;

const JSON: &str = "application/json";
/// Stands for all ways in which the server says so.
const DENIED: &str = "denied";
const PROTOBUF_WATCH: &str =
    "application/vnd.kubernetes.protobuf;stream=watch, application/json;q=0.5";

/// Follows a kind for ever.
pub(crate) async fn follow(kind: &'static Kind, client: kube::Client, sink: Sink) {
    Follower::new(kind, client, sink, PATIENCE).run().await;
}

/// When a stream that says nothing counts as dead.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// A watch is ended by the server after half of this to all of it, and begun anew. So a stream that died without a
    /// word is noticed in time.
    watch: Duration,
    /// How long after that the end may take to reach us.
    grace: Duration,
    /// Between two pieces of a list that is streamed.
    list: Duration,
}

pub(super) struct Follower {
    pub(super) kind: &'static Kind,
    pub(super) client: kube::Client,
    pub(super) sink: Sink,
    pub(super) known: Known,
    /// Objects that could not be read, and the complaint about each.
    spoiled: BTreeMap<Key, String>,
    /// The version up to which everything has been told.
    pub(super) position: String,
    synced: bool,
    /// What a list is asked for in.
    way: Way,
    /// A list that is being streamed, and when it began.
    listing: Option<std::time::Instant>,
    /// What was complained of last; the same is said once.
    trouble: Option<String>,
    patience: Patience,
}

/// How everything there is comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Object by object, at the head of a watch: nothing is held here, and the server reads nothing from its store.
    Stream,
    Pages,
}

/// Why following has to change its way.
#[derive(Debug, PartialEq)]
pub(super) enum Trouble {
    /// The server does not have the kind.
    Missing,
    /// The server does not know the position any more.
    Expired,
    /// The server does not stream lists.
    NoStreams(String),
    /// We have no right to it.
    Denied(String),
    Other(String),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal.status() {
            Some(StatusCode::NOT_FOUND) => Self::Missing,
            Some(StatusCode::GONE) => Self::Expired,
            Some(StatusCode::FORBIDDEN) => Self::Denied(refusal.to_string()),
            _ => Self::Other(refusal.to_string()),
        }
    }
}

impl Follower {
    fn new(kind: &'static Kind, client: kube::Client, sink: Sink, patience: Patience) -> Self {
        Self {
            kind,
            client,
            sink,
            known: Known::default(),
            spoiled: BTreeMap::new(),
            position: String::new(),
            synced: false,
            way: Way::Stream,
            listing: None,
            trouble: None,
            patience,
        }
    }

    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut broke = false;
        loop {
            // Small pieces get through where a long stream does not.
            let listed = match self.way {
                Way::Stream if !broke => self.stream().await,
                Way::Stream | Way::Pages => self.list().await,
            };
            broke = matches!(listed, Err(Trouble::Other(_) | Trouble::Denied(_)));
            match listed {
                Ok(()) => backoff.reset(),
                Err(Trouble::NoStreams(text)) => {
                    tracing::debug!("{}: lists are not streamed: {text}", self.kind.name);
                    self.way = Way::Pages;
                    continue;
                }
                Err(Trouble::Missing) => {
                    let text = "are not known to the API server; they are watched once they are";
                    // No fault: not every cluster has every kind.
                    if self.is_new(text) {
                        tracing::info!("{}: {text}", self.kind.name);
                    }
                    // What was known of it is gone.
                    self.known.begin();
                    self.tell_vanished().await;
                    self.do_without().await;
                    continue;
                }
                Err(Trouble::Denied(text)) if self.kind.optional => {
                    if self.is_new(DENIED) {
                        let name = self.kind.name;
                        tracing::warn!("{name}: cannot be read, and are done without: {text}");
                    }
                    self.do_without().await;
                    continue;
                }
                Err(Trouble::Expired) => {
                    // Paging took longer than the server remembers.
                    backoff.wait().await;
                    continue;
                }
                Err(Trouble::Denied(text)) => {
                    self.denied(&text);
                    backoff.wait().await;
                    continue;
                }
                Err(Trouble::Other(text)) => {
                    self.complain(format!("cannot be listed: {text}"));
                    backoff.wait().await;
                    continue;
                }
            }
            self.watch_on().await;
        }
    }

    /// Everything there is, at the head of a watch, which is then followed to its end. An error if it did not come that
    /// far.
    async fn stream(&mut self) -> Result<(), Trouble> {
        self.known.begin();
        self.listing = Some(std::time::Instant::now());
        let end = self.watch().await;
        if self.listing.take().is_none() {
            // How the watch ended is seen when it is taken up again.
            return Ok(());
        }
        end?;
        Err(Trouble::Other("the list broke off".to_owned()))
    }

    /// A list that began then has been told in full.
    pub(super) async fn listed(&mut self, begun: std::time::Instant) {
        self.tell_vanished().await;
        let progress = &self.sink.progress;
        progress.listed(self.kind.name, begun, &self.position);
        progress.mended(self.kind.name);
        self.trouble = None;
        self.now_synced().await;
    }

    /// Watches again and again, until the position is of no use any more.
    async fn watch_on(&mut self) {
        let mut backoff = Backoff::default();
        loop {
            let begun = Instant::now();
            let (before, end) = (self.position.clone(), self.watch().await);
            match end {
                Ok(()) if begun.elapsed() > SHORT || self.position != before => backoff.reset(),
                Ok(()) => backoff.wait().await,
                Err(Trouble::Expired | Trouble::Missing) => return,
                Err(Trouble::Denied(_)) if self.kind.optional => return,
                Err(Trouble::Denied(text)) => {
                    self.denied(&text);
                    backoff.wait().await;
                }
                Err(Trouble::NoStreams(text) | Trouble::Other(text)) => {
                    self.complain(format!("the watch broke: {text}"));
                    if self.position != before {
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
            self.sink.progress.synced(self.kind.name);
            self.sink
                .channel
                .send(vec![Message::Synced(self.kind.name)])
                .await;
        }
    }

    /// Nothing of the kind can be seen for now.
    async fn do_without(&mut self) {
        self.sink.progress.missing(self.kind.name);
        self.now_synced().await;
        tokio::time::sleep(jittered(MISSING)).await;
    }

    fn complain(&mut self, text: String) {
        self.sink.progress.broken(self.kind.name, &text);
        if self.is_new(&text) {
            tracing::warn!("{}: {text}", self.kind.name);
        }
    }

    /// Said once, whether it shows when the kind is listed or when it is watched.
    fn denied(&mut self, text: &str) {
        self.sink.progress.broken(self.kind.name, text);
        if self.is_new(DENIED) {
            tracing::warn!("{}: cannot be read: {text}", self.kind.name);
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

    async fn tell_vanished(&mut self) {
        let kind = self.kind;
        let vanished = self.known.vanished();
        let gone = vanished.into_iter().map(|(key, uid)| {
            self.sink.pods.forget(&uid);
            (kind.gone)(key, uid)
        });
        self.sink.tell(gone.collect()).await;
    }

    /// One watch, to its end.
    async fn watch(&mut self) -> Result<(), Trouble> {
        let time = jittered(self.patience.watch);
        let mut uri = format!(
            "{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={}",
            self.kind.path,
            time.as_secs()
        );
        match self.listing {
            // Without a version: at least as new as the store is now.
            Some(_) => uri += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            None => uri += &format!("&resourceVersion={}", percent(&self.position)),
        }
        if !self.kind.fields.is_empty() {
            uri += &format!("&fieldSelector={}", self.kind.fields);
        }
        let accept = if self.kind.protobuf {
            PROTOBUF_WATCH
        } else {
            JSON
        };
        let deadline = Instant::now() + time + self.patience.grace;
        let late = |_| Trouble::Other("nothing came for too long".to_owned());
        let answer = client::stream(&self.client, get(uri, accept)?);
        let answer = tokio::time::timeout_at(deadline, answer)
            .await
            .map_err(late)?
            .map_err(|refusal| self.refused(refusal))?;
        let mut frames = Frames::new(client::is_protobuf(answer.headers()));
        let mut body = answer.into_body().into_data_stream();
        let progress = self.sink.progress.clone();
        if self.listing.is_none() {
            progress.mended(self.kind.name);
        }
        loop {
            let (deadline, lists) = match self.listing {
                Some(_) => (deadline.min(Instant::now() + self.patience.list), true),
                None => (deadline, false),
            };
            // What has come is told in full before anything else happens.
            let chunk = tokio::select! {
                chunk = tokio::time::timeout_at(deadline, client::chunk(&mut body)) => chunk,
                () = progress.asked_again(self.kind.name), if !lists => return Err(Trouble::Expired),
            };
            let chunk = chunk.map_err(late)?.map_err(Trouble::Other)?;
            let Some(chunk) = chunk else {
                return Ok(());
            };
            frames.push(&chunk);
            self.take_in(&mut frames).await?;
        }
    }

    /// Tells all events that have come in full, at once.
    async fn take_in(&mut self, frames: &mut Frames) -> Result<(), Trouble> {
        let mut inputs = Vec::new();
        let mut listed = None;
        let end = loop {
            match frames.next() {
                Ok(None) => break Ok(()),
                Ok(Some(Event::Error(status))) => break Err(self.ended(&status)),
                Ok(Some(Event::Bookmark(raw))) => {
                    if self.bookmark(&raw) {
                        listed = self.listing.take().or(listed);
                    }
                }
                Ok(Some(Event::Changed(raw))) => match (self.kind.read)(&raw) {
                    Ok(item) => self.seen(item, &mut inputs),
                    Err(error) => self.unreadable(&raw, error),
                },
                Ok(Some(Event::Deleted(raw))) => self.deleted(&raw, &mut inputs),
                Err(error) => break Err(Trouble::Other(error.to_string())),
            }
        };
        self.sink.tell(inputs).await;
        if let Some(begun) = listed {
            self.listed(begun).await;
        }
        if self.listing.is_none() {
            self.sink.progress.passed(self.kind.name, &self.position);
        }
        end
    }

    fn refused(&self, refusal: Refusal) -> Trouble {
        // Older servers know no such parameter, or not for a watch.
        let unknown = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY];
        match refusal.status() {
            Some(status) if self.listing.is_some() && unknown.contains(&status) => {
                Trouble::NoStreams(refusal.to_string())
            }
            _ => refusal.into(),
        }
    }

    /// What an error in the stream means.
    fn ended(&self, status: &RequestStatus) -> Trouble {
        match (status.code, &status.reason[..]) {
            (410, _) | (_, "Expired" | "Gone") => Trouble::Expired,
            // An etcd that cannot say how far it is (before 3.5.13) is found out only here.
            (500, _) if self.listing.is_some() => Trouble::NoStreams(status.message.clone()),
            _ => Trouble::Other(status.message.clone()),
        }
    }

    pub(super) fn seen(&mut self, item: Item, inputs: &mut Vec<Input>) {
        let Item {
            key,
            uid,
            version,
            what,
            warnings,
        } = item;
        if !warnings.is_empty() {
            let whom = Whom::Report(key.1.clone(), uid.clone(), version.as_str().into());
            let text = warnings.join("; ");
            self.object_to(key.clone(), Unreadable { text, whom });
        } else if !self.spoiled.is_empty() {
            self.spoiled.remove(&key);
        }
        let pods = &self.sink.pods;
        if let What::Over = what {
            self.known.forget(&key);
            pods.forget(&uid);
            inputs.push((self.kind.gone)(key, uid));
        } else {
            let sight = self.known.see(key.clone(), &uid, &version);
            if let Sight::Replaced(old) = &sight {
                pods.forget(old);
                inputs.push((self.kind.gone)(key, old.clone()));
            }
            match what {
                _ if sight == Sight::Same => {}
                What::Object(update) => inputs.push(Input::Object(update)),
                What::Pod(pod, note) => {
                    if pod.node.is_none() && pods.is_ours(&pod.scheduler_name) {
                        pods.set(&uid, note);
                    } else {
                        pods.forget(&uid);
                    }
                    inputs.push(Input::Pod(pod));
                }
                What::Over => {}
            }
        }
        self.passed(version);
    }

    fn deleted(&mut self, raw: &Raw, inputs: &mut Vec<Input>) {
        // Whatever else is in it, its name counts.
        let Some(meta) = partial(raw).map(|partial| partial.metadata) else {
            let error = Unreadable::other("a deleted object cannot be read");
            return self.unreadable(raw, error);
        };
        let key: Key = (meta.namespace.into(), meta.name.into());
        self.spoiled.remove(&key);
        let uid = self.known.forget(&key).unwrap_or_else(|| meta.uid.into());
        self.sink.pods.forget(&uid);
        inputs.push((self.kind.gone)(key, uid));
        self.passed(meta.resource_version);
    }

    /// Returns whether it ends a list.
    fn bookmark(&mut self, raw: &Raw) -> bool {
        let Some(Partial { metadata }) = partial(raw) else {
            return false;
        };
        let ends = metadata.annotations.contains_key(LIST_ENDS);
        // Objects of a list come in any order: only its end says where it stands.
        if !metadata.resource_version.is_empty() && (ends || self.listing.is_none()) {
            self.position = metadata.resource_version;
        }
        ends
    }

    /// An object of this version was told.
    fn passed(&mut self, version: String) {
        if self.listing.is_none() {
            self.position = version;
        }
    }

    /// What was known of the object stays as it was. Complains once per object and fault.
    pub(super) fn unreadable(&mut self, raw: &Raw, error: Unreadable) {
        if let Some(meta) = partial(raw).map(|partial| partial.metadata) {
            let key: Key = (meta.namespace.into(), meta.name.into());
            self.known.keep(&key);
            self.passed(meta.resource_version);
            return self.object_to(key, error);
        }
        self.sink.complain(error);
    }

    /// Complains unless this was said of the object before.
    fn object_to(&mut self, key: Key, error: Unreadable) {
        if self.spoiled.get(&key) == Some(&error.text) {
            return;
        }
        if self.spoiled.len() >= MOST_SPOILED {
            // Better to complain twice than to remember without end.
            self.spoiled.clear();
        }
        self.spoiled.insert(key, error.text.clone());
        self.sink.complain(error);
    }
}

pub(super) fn get(uri: String, accept: &'static str) -> Result<Request<Body>, Trouble> {
    Request::get(uri)
        .header(ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| Trouble::Other(error.to_string()))
}

fn partial(raw: &Raw) -> Option<Partial> {
    match raw {
        Raw::Json(bytes) => serde_json::from_slice(bytes).ok(),
        Raw::Protobuf(bytes) => Partial::decode_identity(bytes).ok(),
    }
}

/// Encodes what has a meaning in a query.
pub(super) fn percent(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests;
