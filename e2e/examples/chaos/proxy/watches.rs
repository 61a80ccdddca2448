//! Watches: their events are late, or get lost together with the rest of the stream, as on a real network.
//!
//! No event is lost within a stream that goes on: TLS would notice. A stream that lost one delivers nothing more, and breaks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Link;
use super::exchange::{Failure, ProxyBody, note_report};
use crate::journal::Incarnation;
use crate::plan::FaultKind;

/// Frames that wait for the client.
const WAITING: usize = 64;

/// What happens to the events of all watches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WatchWeather {
    pub(super) hold: Option<EventHold>,
    pub(super) dropping: bool,
    /// Counts the times at which all watches end, the last time so.
    pub(super) ends: u64,
    pub(super) end: WatchEnd,
}

/// Events are late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventHold {
    pub(crate) kind: FaultKind,
    pub(crate) until: Instant,
    /// Each by this time; without it, until the end, and only on watches of pods.
    pub(crate) each: Option<Duration>,
}

impl EventHold {
    /// Whether no event passes for now.
    pub(super) fn is_whole(&self, now: Instant) -> bool {
        self.each.is_none() && now < self.until
    }

    /// When an event may pass.
    fn release(&self, is_pods: bool, now: Instant) -> Option<Instant> {
        if now >= self.until {
            return None;
        }
        match self.each {
            Some(time) => Some(now + time),
            None => is_pods.then_some(self.until),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// The stream breaks.
    #[default]
    Break,
    /// The stream ends in good order.
    Close,
    /// The last event says that the version is too old.
    Gone,
}

pub(super) struct Stream {
    pub(super) to: Incarnation,
    pub(super) is_protobuf: bool,
    pub(super) is_report: bool,
    pub(super) is_pods: bool,
    /// It ends after so many frames.
    pub(super) cut_after: Option<usize>,
}

/// The body of an answer that has the events of `body`.
pub(super) fn relay(link: Arc<Link>, body: Incoming, stream: Stream) -> ProxyBody {
    let (send, receive) = mpsc::channel(WAITING);
    tokio::spawn(pass(link, body, stream, send));
    let frames = futures::stream::unfold(receive, |mut receive| async {
        Some((receive.recv().await?, receive))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

type Frames = mpsc::Sender<Result<Frame<Bytes>, Failure>>;

async fn pass(link: Arc<Link>, body: Incoming, stream: Stream, send: Frames) {
    let mut weather = link.watches.subscribe();
    let ends = weather.borrow_and_update().ends;
    let mut body = body.into_data_stream();
    let mut splitter = Splitter::new(stream.is_protobuf);
    let mut held: VecDeque<(Instant, Bytes)> = VecDeque::new();
    let (mut lossy, mut over, mut passed) = (false, false, 0);
    loop {
        let due = held.front().map(|(at, _)| *at);
        let wake = due.unwrap_or_else(Instant::now);
        tokio::select! {
            () = send.closed() => return,
            changed = weather.changed() => {
                let now = *weather.borrow_and_update();
                if changed.is_err() || now.ends != ends {
                    return end(&link, &stream, now.end, &send).await;
                }
            }
            () = tokio::time::sleep_until(wake.into()), if due.is_some() => {
                let Some((_, frame)) = held.pop_front() else { continue };
                if stream.is_report {
                    note(&link, &stream, &frame);
                }
                if send.send(Ok(Frame::data(frame))).await.is_err() {
                    return;
                }
            }
            chunk = body.next(), if !over => {
                let Some(Ok(chunk)) = chunk else {
                    over = true;
                    if matches!(chunk, Some(Err(_))) {
                        let _ = send.send(Err(Failure::other("the API server broke off"))).await;
                        return;
                    }
                    continue;
                };
                for frame in splitter.push(&chunk) {
                    let now = *weather.borrow();
                    if now.dropping {
                        link.journal.hit(FaultKind::DropEvents);
                        lossy = true;
                    }
                    if lossy {
                        continue;
                    }
                    if stream.cut_after == Some(passed) {
                        // A list without its end.
                        return;
                    }
                    passed += 1;
                    let at = Instant::now();
                    let hold = now.hold.and_then(|it| Some((it.kind, it.release(stream.is_pods, at)?)));
                    if let Some((kind, _)) = hold {
                        link.journal.hit(kind);
                    }
                    // Events keep their order.
                    let after = held.back().map_or(at, |(last, _)| *last);
                    held.push_back((hold.map_or(at, |(_, at)| at).max(after), frame));
                }
            }
        }
        if over && held.is_empty() && !lossy {
            return;
        }
    }
}

async fn end(link: &Link, stream: &Stream, end: WatchEnd, send: &Frames) {
    let last = match end {
        WatchEnd::Close => return,
        WatchEnd::Break => Err(Failure::other("the proxy broke the watch")),
        WatchEnd::Gone => {
            link.journal.hit(FaultKind::Answer410);
            Ok(Frame::data(gone(stream.is_protobuf)))
        }
    };
    // The client may be gone.
    let _ = send.send(last).await;
}

fn note(link: &Link, stream: &Stream, frame: &[u8]) {
    let event: Value = serde_json::from_slice(frame).unwrap_or_default();
    if matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED")) {
        note_report(link, stream.to, &event["object"]);
    }
}

/// Finds the frames of a watch: lines of JSON, or protobuf messages after four bytes of length.
struct Splitter {
    is_protobuf: bool,
    bytes: BytesMut,
}

impl Splitter {
    fn new(is_protobuf: bool) -> Self {
        Self {
            is_protobuf,
            bytes: BytesMut::new(),
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Vec<Bytes> {
        self.bytes.extend_from_slice(chunk);
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&mut self) -> Option<Bytes> {
        let length = if self.is_protobuf {
            let mut head = self.bytes.get(..4)?;
            4 + usize::try_from(head.get_u32()).ok()?
        } else {
            self.bytes.iter().position(|&byte| byte == b'\n')? + 1
        };
        (self.bytes.len() >= length).then(|| self.bytes.split_to(length).freeze())
    }
}

/// The event by which the API server ends a watch whose version it does not have any more.
fn gone(is_protobuf: bool) -> Bytes {
    const REASON: &str = "Expired";
    if !is_protobuf {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version", "reason": REASON, "code": 410});
        let event = json!({"type": "ERROR", "object": status});
        return format!("{event}\n").into();
    }
    let mut status = Vec::new();
    field(&mut status, 2, b"Failure");
    field(&mut status, 3, b"too old resource version");
    field(&mut status, 4, REASON.as_bytes());
    // Field 6 is the code, a number: 410 in two bytes.
    status.extend([6 << 3, 0x9a, 0x03]);
    let mut kind = Vec::new();
    field(&mut kind, 1, b"v1");
    field(&mut kind, 2, b"Status");
    let mut object = b"k8s\0".to_vec();
    field(&mut object, 1, &kind);
    field(&mut object, 2, &status);
    let mut raw = Vec::new();
    field(&mut raw, 1, &object);
    let mut event = Vec::new();
    field(&mut event, 1, b"ERROR");
    field(&mut event, 2, &raw);
    let length = u32::try_from(event.len()).unwrap_or(0);
    [&length.to_be_bytes()[..], &event].concat().into()
}

/// Appends a protobuf field of bytes.
fn field(to: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    to.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        to.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    to.push(u8::try_from(length).unwrap_or(0));
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_wherever_chunks_end() {
        let lines = b"{\"a\":1}\n{\"b\":2}\n";
        let messages = [&3_u32.to_be_bytes()[..], b"abc", &0_u32.to_be_bytes(), b""].concat();
        for (bytes, is_protobuf) in [(&lines[..], false), (&messages, true)] {
            for at in 0..bytes.len() {
                let mut splitter = Splitter::new(is_protobuf);
                let mut frames = splitter.push(&bytes[..at]);
                frames.extend(splitter.push(&bytes[at..]));
                assert_eq!(frames.len(), 2, "{at}");
                assert_eq!(frames.concat(), bytes, "{at}");
            }
        }
    }

    #[test]
    fn the_end_of_a_watch_is_one_frame() {
        for is_protobuf in [false, true] {
            assert_eq!(Splitter::new(is_protobuf).push(&gone(is_protobuf)).len(), 1);
        }
    }

    #[test]
    fn events_are_late_only_while_the_fault_lasts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let hold = |each| EventHold {
            kind: FaultKind::DelayEvents,
            until: now + 9 * second,
            each,
        };
        let each = hold(Some(second));
        assert_eq!(each.release(false, now), Some(now + second));
        assert_eq!(each.release(false, now + 9 * second), None);
        let all = hold(None);
        assert_eq!(all.release(true, now), Some(now + 9 * second));
        assert_eq!(all.release(false, now), None);
    }
}
