//! One kind, from its first list to the end of the process, whatever the server and the network do.

use std::collections::BTreeMap;
use std::time::Duration;

use api::wire::envelope::{self, ListMeta, Status};
use api::wire::meta::Partial;
use bytes::Bytes;
use engine::scheduler::Input;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Sink;
use super::frames::{Event, Frames};
use super::kinds::{Item, Kind, Raw, Unreadable, What, Whom};
use super::known::{Key, Known, Sight};
use crate::backoff::{Backoff, jittered};
use crate::client::{self, Refusal};
use crate::link::News;

/// Objects per page: the larger, the more memory; the smaller, the more requests.
const PAGE: usize = 500;
const LIST: Duration = Duration::from_secs(60);
/// A watch is ended by the server after half of this to all of it, and begun anew. So a stream that died without a word
/// is noticed in time.
const WATCH: Duration = Duration::from_secs(120);
/// How long after that the end may take to reach us.
const GRACE: Duration = Duration::from_secs(10);
/// A watch that ends sooner, without a word, is a failure.
const SHORT: Duration = Duration::from_secs(1);
/// How often a kind that the server does not have is asked for.
const MISSING: Duration = Duration::from_secs(10);

/// Objects that cannot be read and are remembered as such.
const MOST_SPOILED: usize = 10_000;

const JSON: &str = "application/json";
const PROTOBUF_LIST: &str = "application/vnd.kubernetes.protobuf, application/json;q=0.5";
const PROTOBUF_WATCH: &str =
    "application/vnd.kubernetes.protobuf;stream=watch, application/json;q=0.5";

/// Follows a kind for ever.
pub(crate) async fn follow(kind: &'static Kind, client: kube::Client, sink: Sink) {
    let follower = Follower {
        kind,
        client,
        sink,
        known: Known::default(),
        spoiled: BTreeMap::new(),
        position: String::new(),
        synced: false,
        trouble: None,
    };
    follower.run().await;
}

struct Follower {
    kind: &'static Kind,
    client: kube::Client,
    sink: Sink,
    known: Known,
    /// Objects that could not be read, and the complaint about each.
    spoiled: BTreeMap<Key, String>,
    /// The version up to which everything has been told.
    position: String,
    synced: bool,
    /// What was complained of last; the same is said once.
    trouble: Option<String>,
}

/// Why following has to change its way.
#[derive(Debug, PartialEq)]
enum Trouble {
    /// The server does not have the kind.
    Missing,
    /// The server does not know the position any more.
    Expired,
    Other(String),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal.status() {
            Some(StatusCode::NOT_FOUND) => Self::Missing,
            Some(StatusCode::GONE) => Self::Expired,
            _ => Self::Other(refusal.to_string()),
        }
    }
}

impl Follower {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            match self.list().await {
                Ok(()) => {
                    self.sink.progress.mended(self.kind.name);
                    backoff.reset();
                }
                Err(Trouble::Missing) => {
                    self.nothing_there().await;
                    continue;
                }
                Err(Trouble::Expired) => {
                    // Paging took longer than the server remembers.
                    backoff.wait().await;
                    continue;
                }
                Err(Trouble::Other(text)) => {
                    self.complain(format!("cannot be listed: {text}"));
                    backoff.wait().await;
                    continue;
                }
            }
            self.now_synced().await;
            self.watch_on().await;
        }
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
                Err(Trouble::Other(text)) => {
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
                .link
                .tell(vec![News::Synced(self.kind.name)])
                .await;
        }
    }

    /// The server does not have the kind (any more): what was known of it is gone.
    async fn nothing_there(&mut self) {
        self.complain("are not known to the API server; they are watched once they are".to_owned());
        self.known.begin();
        self.tell_vanished().await;
        self.sink.progress.missing(self.kind.name);
        self.now_synced().await;
        tokio::time::sleep(jittered(MISSING)).await;
    }

    fn complain(&mut self, text: String) {
        self.sink.progress.broken(self.kind.name, &text);
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("{}: {text}", self.kind.name);
            self.trouble = Some(text);
        }
    }

    async fn tell_vanished(&mut self) {
        let kind = self.kind;
        let vanished = self.known.vanished();
        let gone = vanished.into_iter().map(|(key, uid)| {
            self.sink.notes.forget(&uid);
            (kind.gone)(key, uid)
        });
        self.sink.tell(gone.collect()).await;
    }

    /// Tells everything there is, page by page, and what is not there any more.
    async fn list(&mut self) -> Result<(), Trouble> {
        let begun = std::time::Instant::now();
        self.known.begin();
        let mut token = String::new();
        loop {
            let (bytes, protobuf) = self.page(&token).await?;
            let (meta, items) = read_page(bytes, protobuf).map_err(Trouble::Other)?;
            let mut inputs = Vec::with_capacity(items.len());
            for raw in items {
                match (self.kind.read)(&raw) {
                    Ok(item) => self.seen(item, &mut inputs),
                    Err(error) => self.unreadable(&raw, error),
                }
            }
            self.sink.tell(inputs).await;
            token = meta.continue_token;
            if token.is_empty() {
                self.position = meta.resource_version;
                break;
            }
        }
        self.tell_vanished().await;
        self.sink
            .progress
            .listed(self.kind.name, begun, &self.position);
        self.trouble = None;
        Ok(())
    }

    async fn page(&self, token: &str) -> Result<(Bytes, bool), Trouble> {
        let mut uri = format!("{}?limit={PAGE}", self.kind.path);
        if !self.kind.fields.is_empty() {
            uri += &format!("&fieldSelector={}", self.kind.fields);
        }
        if !token.is_empty() {
            // Tokens are base64 for URLs, but nobody promises it.
            uri += &format!("&continue={}", percent(token));
        }
        let accept = if self.kind.protobuf {
            PROTOBUF_LIST
        } else {
            JSON
        };
        let request = get(uri, accept)?;
        Ok(client::receive(&self.client, request, LIST).await?)
    }

    /// One watch, to its end.
    async fn watch(&mut self) -> Result<(), Trouble> {
        let time = jittered(WATCH);
        let mut uri = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.kind.path,
            percent(&self.position),
            time.as_secs()
        );
        if !self.kind.fields.is_empty() {
            uri += &format!("&fieldSelector={}", self.kind.fields);
        }
        let accept = if self.kind.protobuf {
            PROTOBUF_WATCH
        } else {
            JSON
        };
        let deadline = Instant::now() + time + GRACE;
        let late = |_| Trouble::Other("nothing came for too long".to_owned());
        let answer = client::stream(&self.client, get(uri, accept)?);
        let answer = tokio::time::timeout_at(deadline, answer)
            .await
            .map_err(late)??;
        let mut frames = Frames::new(client::is_protobuf(answer.headers()));
        let mut body = answer.into_body().into_data_stream();
        let progress = self.sink.progress.clone();
        progress.mended(self.kind.name);
        loop {
            // What has come is told in full before anything else happens.
            let chunk = tokio::select! {
                chunk = tokio::time::timeout_at(deadline, client::chunk(&mut body)) => chunk,
                () = progress.asked_again(self.kind.name) => return Err(Trouble::Expired),
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
        let end = loop {
            match frames.next() {
                Ok(None) => break Ok(()),
                Ok(Some(Event::Error(status))) => break Err(ended(&status)),
                Ok(Some(Event::Bookmark(raw))) => self.bookmark(&raw),
                Ok(Some(Event::Changed(raw))) => match (self.kind.read)(&raw) {
                    Ok(item) => self.seen(item, &mut inputs),
                    Err(error) => self.unreadable(&raw, error),
                },
                Ok(Some(Event::Deleted(raw))) => self.deleted(&raw, &mut inputs),
                Err(error) => break Err(Trouble::Other(error.to_string())),
            }
        };
        self.sink.tell(inputs).await;
        self.sink.progress.passed(self.kind.name, &self.position);
        end
    }

    fn seen(&mut self, item: Item, inputs: &mut Vec<Input>) {
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
        let notes = &self.sink.notes;
        if let What::Over = what {
            self.known.forget(&key);
            notes.forget(&uid);
            inputs.push((self.kind.gone)(key, uid));
        } else {
            let sight = self.known.see(key.clone(), &uid, &version);
            if let Sight::Replaced(old) = &sight {
                notes.forget(old);
                inputs.push((self.kind.gone)(key, old.clone()));
            }
            match what {
                _ if sight == Sight::Same => {}
                What::Object(update) => inputs.push(Input::Object(update)),
                What::Pod(pod, note) => {
                    if pod.node.is_none() && notes.is_ours(&pod.scheduler_name) {
                        notes.set(&uid, note);
                    } else {
                        notes.forget(&uid);
                    }
                    inputs.push(Input::Pod(pod));
                }
                What::Over => {}
            }
        }
        self.position = version;
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
        self.sink.notes.forget(&uid);
        inputs.push((self.kind.gone)(key, uid));
        self.position = meta.resource_version;
    }

    fn bookmark(&mut self, raw: &Raw) {
        if let Some(partial) = partial(raw)
            && !partial.metadata.resource_version.is_empty()
        {
            self.position = partial.metadata.resource_version;
        }
    }

    /// What was known of the object stays as it was. Complains once per object and fault.
    fn unreadable(&mut self, raw: &Raw, error: Unreadable) {
        if let Some(meta) = partial(raw).map(|partial| partial.metadata) {
            let key: Key = (meta.namespace.into(), meta.name.into());
            self.known.keep(&key);
            self.position = meta.resource_version;
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

fn get(uri: String, accept: &'static str) -> Result<Request<Body>, Trouble> {
    Request::get(uri)
        .header(ACCEPT, accept)
        .body(Body::empty())
        .map_err(|error| Trouble::Other(error.to_string()))
}

fn ended(status: &Status) -> Trouble {
    match (status.code, &status.reason[..]) {
        (410, _) | (_, "Expired" | "Gone") => Trouble::Expired,
        _ => Trouble::Other(status.message.clone()),
    }
}

fn partial(raw: &Raw) -> Option<Partial> {
    match raw {
        Raw::Json(bytes) => serde_json::from_slice(bytes).ok(),
        Raw::Protobuf(bytes) => Partial::decode(&**bytes).ok(),
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

fn read_page(bytes: Bytes, protobuf: bool) -> Result<(ListMeta, Vec<Raw>), String> {
    if protobuf {
        let message = envelope::open(&bytes).map_err(|error| error.to_string())?;
        let list = envelope::List::decode(message).map_err(|error| error.to_string())?;
        let items = list.items.into_iter().map(Raw::Protobuf).collect();
        return Ok((list.metadata, items));
    }
    let page: Page = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let item = |raw: &&RawValue| Raw::Json(bytes.slice_ref(raw.get().as_bytes()));
    let items = page.items.iter().map(item).collect();
    Ok((page.metadata, items))
}

/// Encodes what has a meaning in a query.
fn percent(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_either_form() {
        let json = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1},{"b":2}]}"#;
        let (meta, items) = read_page(Bytes::from_static(json), false).unwrap();
        assert_eq!((&*meta.resource_version, &*meta.continue_token), ("7", "t"));
        let raw = |text: &'static str| Raw::Json(Bytes::from_static(text.as_bytes()));
        assert_eq!(items, [raw(r#"{"a":1}"#), raw(r#"{"b":2}"#)]);

        let list = envelope::List {
            metadata: meta.clone(),
            items: vec![Bytes::from_static(b"x")],
        };
        let bytes = envelope::wrap("v1", "PodList", &list);
        let read = read_page(bytes.into(), true).unwrap();
        assert_eq!(read, (meta, vec![Raw::Protobuf(Bytes::from_static(b"x"))]));
        assert!(read_page(Bytes::from_static(b"{}"), false).is_err());
    }
}
