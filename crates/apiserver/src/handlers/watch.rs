//! Watches: initial events, live events, bookmarks and timeouts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::{Call, read};
use crate::objects::decode;
use crate::objects::status::Status;
use crate::protocol::media::{Accept, Representation};
use crate::protocol::options::WatchOptions;
use crate::protocol::response::{
    ApiResponse, IncludeObject, metadata_only, stream_response, table,
};
use crate::resources::registry::ServedKind;
use crate::resources::selector::Selector;
use crate::resources::state::ServerState;
use crate::store::object::{Change, Object};
use crate::store::{TooOld, WatchEvent};

/// Changes taken from the history at once.
const BATCH: usize = 256;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the stream's end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The real server picks between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// A client may request more seconds than an `Instant` can hold.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) fn watch(call: &Call) -> Result<ApiResponse, Status> {
    let options = WatchOptions::parse(&call.request.query)?;
    let selector = Selector::parse(
        &options.label_selector,
        &options.field_selector,
        &call.served,
    )?;
    let selector = WatchFilter {
        name: call.path.name.clone(),
        selector,
    };
    let timeout = options
        .timeout_seconds
        .map_or(DEFAULT_TIMEOUT, Duration::from_secs)
        .min(LONGEST_TIMEOUT);
    let now = Instant::now();
    let watcher = Watcher {
        server: Arc::clone(&call.server),
        form: EventEncoder {
            served: Arc::clone(&call.served),
            accept: call.accept,
            include: call.include,
            columns_sent: false,
        },
        selector,
        prefix: read::prefix(call),
        changes: call.server.store.changes(call.served.table),
        seen: options.revision,
        deadline: now + timeout,
        next_bookmark: options.bookmarks.then(|| {
            let last = (now + timeout)
                .checked_sub(BOOKMARK_BEFORE_END)
                .unwrap_or(now);
            (now + BOOKMARK_EVERY).min(last.max(now))
        }),
        start: WatchStart::of(&options),
        initial: Vec::new().into_iter(),
        initial_bookmark: false,
        ready: VecDeque::new(),
        ended: false,
    };
    let lines = futures::stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((Ok(line), watcher))
    });
    Ok(ApiResponse::raw(stream_response(lines)))
}

/// The events before the live events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStart {
    /// Nothing (more): live events after `seen`.
    Live,
    /// Live events from the newest revision on.
    Now,
    /// All present objects, then a bookmark if requested; not before this revision.
    Initial { not_before: u64, bookmark: bool },
}

impl WatchStart {
    fn of(options: &WatchOptions) -> Self {
        match options.send_initial {
            Some(true) => Self::Initial {
                not_before: options.revision,
                bookmark: options.bookmarks,
            },
            Some(false) if options.revision == 0 => Self::Now,
            None if options.revision == 0 => Self::Initial {
                not_before: 0,
                bookmark: options.bookmarks,
            },
            _ => Self::Live,
        }
    }
}

/// A selector, and the name that the old form `/watch/.../name` watches alone.
struct WatchFilter {
    name: String,
    selector: Selector,
}

impl WatchFilter {
    fn matches(&self, served: &ServedKind, object: &Object) -> bool {
        (self.name.is_empty() || self.name == object.name())
            && (self.selector.is_empty() || self.selector.matches(served, object))
    }
}

struct Watcher {
    server: Arc<ServerState>,
    form: EventEncoder,
    selector: WatchFilter,
    prefix: String,
    changes: Receiver<u64>,
    /// All changes up to this revision have been looked at.
    seen: u64,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    start: WatchStart,
    /// Present objects that are still to be sent, before all else.
    initial: std::vec::IntoIter<Arc<Object>>,
    /// The bookmark that ends them is still to be sent.
    initial_bookmark: bool,
    /// Lines that wait to be sent.
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Watcher {
    /// The next line, or the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(object) = self.initial.next() {
                return Some(self.form.line(&object, Change::Added));
            }
            if std::mem::take(&mut self.initial_bookmark) {
                return Some(self.form.bookmark(self.seen, true));
            }
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.ended || Instant::now() >= self.deadline {
                return None;
            }
            match self.start {
                WatchStart::Initial {
                    not_before,
                    bookmark,
                } => {
                    self.start = WatchStart::Live;
                    self.send_initial(not_before, bookmark).await;
                }
                WatchStart::Now => {
                    self.start = WatchStart::Live;
                    self.seen = self.server.store.revision();
                }
                WatchStart::Live => self.send_live().await,
            }
        }
    }

    async fn send_initial(&mut self, not_before: u64, bookmark: bool) {
        if let Err(status) = read::wait_for(&self.server, not_before).await {
            return self.fail(&status);
        }
        let store = &self.server.store;
        let snapshot = store.scan(self.form.served.table, &self.prefix, "");
        let mut objects = snapshot.objects;
        objects.retain(|object| self.selector.matches(&self.form.served, object));
        self.initial = objects.into_iter();
        self.seen = snapshot.revision;
        self.initial_bookmark = bookmark;
    }

    /// Reads the next changes, or waits for them.
    async fn send_live(&mut self) {
        // Before reading the changes, so that a change right after it wakes the watcher.
        self.changes.borrow_and_update();
        let store = &self.server.store;
        match store.events_after(self.form.served.table, self.seen, BATCH) {
            Err(TooOld { oldest }) => {
                let message = format!("too old resource version: {} ({oldest})", self.seen);
                return self.fail(&Status::expired(message));
            }
            Ok(changes) => {
                self.seen = changes.complete_to;
                for event in &changes.events {
                    self.send(event);
                }
                if !changes.events.is_empty() {
                    return;
                }
            }
        }
        let wake = self
            .next_bookmark
            .map_or(self.deadline, |at| at.min(self.deadline));
        tokio::select! {
            // The table lives as long as the server, which this watcher holds.
            _ = self.changes.changed() => {}
            () = tokio::time::sleep_until(wake) => self.send_due_bookmark(),
        }
    }

    fn send(&mut self, event: &WatchEvent) {
        if !event.object.key.starts_with(&self.prefix) {
            return;
        }
        let served = &self.form.served;
        let is_in = event.change != Change::Deleted && self.selector.matches(served, &event.object);
        let previous = event.previous.as_ref();
        let previous = previous.filter(|previous| self.selector.matches(served, previous));
        let line = match (previous, is_in) {
            (None, false) => return,
            (None, true) => self.form.line(&event.object, Change::Added),
            (Some(_), true) => self.form.line(&event.object, Change::Modified),
            (Some(_), false) if event.change == Change::Deleted => {
                self.form.line(&event.object, Change::Deleted)
            }
            // It left the selector: what the watcher knew, under the revision of the change.
            (Some(previous), false) => {
                let left = previous.reissued(Change::Deleted, event.object.revision);
                self.form.line(&left, Change::Deleted)
            }
        };
        self.ready.push_back(line);
    }

    fn send_due_bookmark(&mut self) {
        let now = Instant::now();
        let Some(due) = self.next_bookmark.filter(|due| *due <= now) else {
            return;
        };
        let line = self.form.bookmark(self.seen, false);
        self.ready.push_back(line);
        let last = self
            .deadline
            .checked_sub(BOOKMARK_BEFORE_END)
            .unwrap_or(due);
        let next = (now + BOOKMARK_EVERY).min(last);
        self.next_bookmark = (next > now).then_some(next);
    }

    /// Errors are events too: clients do not look at the HTTP status of a watch.
    fn fail(&mut self, status: &Status) {
        let event = json!({"type": "ERROR", "object": status.to_json()});
        self.ready.push_back(Bytes::from(format!("{event}\n")));
        self.ended = true;
    }
}

/// Writes objects in the form that the watch requests.
struct EventEncoder {
    served: Arc<ServedKind>,
    accept: Accept,
    include: IncludeObject,
    /// Only the first table event describes its columns.
    columns_sent: bool,
}

impl EventEncoder {
    fn line(&mut self, object: &Object, change: Change) -> Bytes {
        match self.accept.representation {
            Representation::Whole => self.served.line(object, change),
            Representation::Metadata | Representation::MetadataList => {
                event_line(change.as_str(), metadata_only(&self.served.value(object)))
            }
            Representation::Table => {
                let value = self.served.value(object);
                let revision = object.revision;
                self.table_line(change.as_str(), value, revision)
            }
        }
    }

    fn table_line(&mut self, change: &str, value: Value, revision: u64) -> Bytes {
        let metadata = json!({"resourceVersion": revision.to_string()});
        let mut table = table(&self.served, &[value], metadata, self.include);
        if self.columns_sent {
            table["columnDefinitions"] = Value::Null;
        }
        self.columns_sent = true;
        event_line(change, table)
    }

    fn bookmark(&mut self, revision: u64, ends_initial: bool) -> Bytes {
        let kind = &self.served.kind;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({
            "kind": kind.kind, "apiVersion": self.served.api_version, "metadata": metadata,
        });
        if let (false, Value::Object(zero)) = (self.served.custom, decode::zero(&kind.schema)) {
            for (field, zero) in zero.into_iter().filter(|(field, _)| field != "metadata") {
                object[field] = zero;
            }
        }
        // The real server converts an object of another version, which has other zero values.
        for (field, zero) in kind.rules.zero_fields() {
            object[field] = zero;
        }
        match self.accept.representation {
            Representation::Whole => event_line("BOOKMARK", object),
            Representation::Metadata | Representation::MetadataList => {
                event_line("BOOKMARK", metadata_only(&object))
            }
            Representation::Table => self.table_line("BOOKMARK", object, revision),
        }
    }
}

fn event_line(change: &str, object: Value) -> Bytes {
    let event = json!({"type": change, "object": object});
    Bytes::from(format!("{event}\n"))
}
