//! Records events (events.k8s.io/v1), and decides which of them are written.
//!
//! A repeated failure becomes a series of one event. A pod whose failure message keeps changing may write some events at
//! once and then one a minute: the condition of the pod has the latest message. All pods together may write
//! [`REPEATS_PER_SECOND`] events about repeated failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use http::Method;
use serde::Serialize;

use super::budget::WriteBudget;
use super::requests::{Call, JSON, MERGE, Metadata, ObjectReference, micros};

/// Bytes of a note that the API accepts.
const LONGEST_NOTE: usize = 1_024;
const ENDING: &str = " ...";
/// Bytes of an object's name that the API accepts, less the unique suffix.
const LONGEST_STEM: usize = 253 - 17;
/// Bytes of `reportingInstance` that the API accepts.
const LONGEST_INSTANCE: usize = 128;
/// A series ends after this time without an event.
const SERIES_END: Duration = Duration::from_secs(6 * 60);
/// How often the count of a series is written after its second event.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// Events with a new message that a pod may write before it is limited to one per [`THEN_EVERY`].
const FREE: u32 = 10;
const THEN_EVERY: Duration = Duration::from_secs(60);
/// Events about failures of pods that have failed before.
const REPEATS_PER_SECOND: u32 = 20;
/// Series kept at a time.
const MOST_SERIES: usize = 20_000;
/// At the limit, one of so many series is dropped; its next event is a new one. Pending pods fail in turn, so dropping the
/// oldest would drop each series just before it is needed.
const ONE_OF: usize = 10;

/// An event to record.
#[derive(Debug, Clone)]
pub(crate) struct NewEvent {
    pub(crate) object: EventObject,
    /// The resource version of the object.
    pub(crate) version: Name,
    /// The reporting controller.
    pub(crate) scheduler: Name,
    pub(crate) reason: EventReason,
    pub(crate) note: String,
    /// The API server already shows that the pod is unschedulable.
    pub(crate) is_repeated: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum EventObject {
    Pod(Arc<Pod>),
    /// A CustomNodeResource, by name and uid.
    Report(Name, Name),
}

impl EventObject {
    fn name(&self) -> &Name {
        match self {
            Self::Pod(pod) => &pod.name,
            Self::Report(name, _) => name,
        }
    }

    fn uid(&self) -> &Name {
        match self {
            Self::Pod(pod) => &pod.uid,
            Self::Report(_, uid) => uid,
        }
    }

    /// Kind, version of the API, and namespace.
    fn kind(&self) -> (&'static str, &'static str, &str) {
        match self {
            Self::Pod(pod) => ("Pod", "v1", pod.namespace()),
            Self::Report(..) => (
                "CustomNodeResource",
                "node.katalyst.kubewharf.io/v1alpha1",
                "",
            ),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventReason {
    Scheduled,
    FailedScheduling,
    Preempted,
    /// The pod has invalid settings.
    InvalidSettings,
    /// The CustomNodeResource of a node is invalid.
    InvalidReport,
}

impl EventReason {
    /// Type, reason and action.
    fn fields(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scheduled => ("Normal", "Scheduled", "Binding"),
            Self::FailedScheduling => ("Warning", "FailedScheduling", "Scheduling"),
            Self::Preempted => ("Normal", "Preempted", "Preempting"),
            Self::InvalidSettings => ("Warning", "InvalidSettings", "Scheduling"),
            Self::InvalidReport => ("Warning", "InvalidReport", "Scheduling"),
        }
    }

    /// Whether it may occur repeatedly for an object.
    fn repeats(self) -> bool {
        matches!(self, Self::FailedScheduling | Self::InvalidReport)
    }
}

pub(crate) struct EventRecorder {
    host: String,
    /// By the object's uid.
    series: HashMap<Name, Series>,
    repeat_budget: WriteBudget,
    /// The suffix of the last event name.
    last: i128,
}

struct Series {
    note: String,
    /// The path of the event.
    path: String,
    count: u32,
    /// The count that was written last.
    written_count: u32,
    seen: Instant,
    written: Instant,
    /// Events with a new message so far.
    events: u32,
}

impl EventRecorder {
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            series: HashMap::new(),
            repeat_budget: WriteBudget::per_second(REPEATS_PER_SECOND),
            last: 0,
        }
    }

    /// The request that writes the event, if it is to be written now.
    pub(crate) fn record(
        &mut self,
        event: NewEvent,
        now: Instant,
        time: jiff::Timestamp,
    ) -> Option<Call> {
        let event = NewEvent {
            note: cut(event.note),
            ..event
        };
        if !event.reason.repeats() {
            return Some(self.create(&event, time).1);
        }
        let known = self.series.get_mut(event.object.uid());
        let known = known.filter(|series| now.duration_since(series.seen) < SERIES_END);
        let mut events = 0;
        if let Some(series) = known {
            series.seen = now;
            let since_written = now.duration_since(series.written);
            if series.note == event.note {
                series.count = series.count.saturating_add(1);
                let is_written = series.written_count > 1;
                if is_written && since_written < SERIES_REFRESH || !self.repeat_budget.take(now) {
                    return None;
                }
                series.written = now;
                series.written_count = series.count;
                return Some(repeat(series, time));
            }
            if series.events >= FREE && since_written < THEN_EVERY {
                return None;
            }
            events = series.events;
        }
        if (events > 0 || event.is_repeated) && !self.repeat_budget.take(now) {
            return None;
        }
        let (path, call) = self.create(&event, time);
        let series = Series {
            note: event.note,
            path,
            count: 1,
            written_count: 1,
            seen: now,
            written: now,
            events: events.saturating_add(1),
        };
        if self.series.len() >= MOST_SERIES {
            self.thin_out();
        }
        self.series.insert(event.object.uid().clone(), series);
        Some(call)
    }

    /// No further failure of the pod is expected.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.series.remove(uid);
    }

    fn thin_out(&mut self) {
        let mut index = 0;
        self.series.retain(|_, _| {
            index += 1;
            index % ONE_OF != 0
        });
    }

    pub(crate) fn sweep(&mut self, now: Instant) {
        self.series
            .retain(|_, series| now.duration_since(series.seen) < SERIES_END);
    }

    /// Returns the event's path, too.
    fn create(&mut self, event: &NewEvent, time: jiff::Timestamp) -> (String, Call) {
        let object = &event.object;
        let (of, api_version, namespace) = object.kind();
        // Events about cluster-scoped objects are there.
        let home = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        // Unique in this process even for two events at the same time; another process has another time.
        self.last = time.as_nanosecond().max(self.last + 1);
        let name = format!("{}.{:x}", stem(object.name()), self.last);
        let mut instance = format!("{}-{}", event.scheduler, self.host);
        shorten(&mut instance, LONGEST_INSTANCE);
        let (kind, reason, action) = event.reason.fields();
        let body = EventBody {
            api_version: "events.k8s.io/v1",
            kind: "Event",
            metadata: Metadata {
                name: &name,
                namespace: home,
                ..Metadata::default()
            },
            event_time: micros(time),
            reporting_controller: &event.scheduler,
            reporting_instance: &instance,
            action,
            reason,
            regarding: ObjectReference {
                kind: of,
                namespace,
                name: object.name(),
                uid: object.uid(),
                api_version,
                resource_version: &event.version,
            },
            note: &event.note,
            event_type: kind,
        };
        let path = format!("/apis/events.k8s.io/v1/namespaces/{home}/events");
        let own = format!("{path}/{name}");
        (own, Call::new(Method::POST, path, JSON, &body))
    }
}

fn repeat(series: &Series, time: jiff::Timestamp) -> Call {
    let body = SeriesPatch {
        series: EventSeries {
            count: series.count,
            last_observed_time: micros(time),
        },
    };
    Call::new(Method::PATCH, series.path.clone(), MERGE, &body)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    event_time: String,
    reporting_controller: &'a str,
    reporting_instance: &'a str,
    action: &'static str,
    reason: &'static str,
    regarding: ObjectReference<'a>,
    note: &'a str,
    #[serde(rename = "type")]
    event_type: &'static str,
}

#[derive(Serialize)]
struct SeriesPatch {
    series: EventSeries,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventSeries {
    count: u32,
    last_observed_time: String,
}

/// Truncates as kube-scheduler does: the last bytes become dots.
fn cut(mut note: String) -> String {
    if note.len() > LONGEST_NOTE {
        shorten(&mut note, LONGEST_NOTE - ENDING.len());
        note += ENDING;
    }
    note
}

/// The part of a pod's name that fits into an event's name.
fn stem(pod: &str) -> &str {
    let mut end = pod.len().min(LONGEST_STEM);
    while !pod.is_char_boundary(end) {
        end -= 1;
    }
    pod[..end].trim_end_matches(['.', '-'])
}

fn shorten(text: &mut String, longest: usize) {
    let mut end = text.len().min(longest);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn event(reason: EventReason, note: &str) -> NewEvent {
        let pod = Pod {
            name: "web".into(),
            uid: "u".into(),
            ..Pod::default()
        };
        NewEvent {
            object: EventObject::Pod(Arc::new(pod)),
            version: "7".into(),
            scheduler: "tidepool".into(),
            reason,
            note: note.into(),
            is_repeated: false,
        }
    }

    struct Bench {
        recorder: EventRecorder,
        begun: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                recorder: EventRecorder::new("host"),
                begun: Instant::now(),
            }
        }

        /// Method and body of the request for an event at this second.
        fn at(&mut self, second: u64, reason: EventReason, note: &str) -> Option<(Method, Value)> {
            let now = self.begun + Duration::from_secs(second);
            let time = jiff::Timestamp::from_second(1_767_323_045 + second as i64).unwrap();
            let call = self.recorder.record(event(reason, note), now, time)?;
            Some((call.method, serde_json::from_slice(&call.body).unwrap()))
        }
    }

    #[test]
    fn an_event_has_the_fields_that_kubectl_shows() {
        let mut bench = Bench::new();
        let note = "Successfully assigned default/web to n";
        let (method, event) = bench.at(0, EventReason::Scheduled, note).unwrap();
        assert_eq!(method, Method::POST);
        assert_eq!(event["note"], note);
        assert_eq!(
            (&event["reason"], &event["type"]),
            (&"Scheduled".into(), &"Normal".into())
        );
        assert_eq!(event["action"], "Binding");
        assert_eq!(event["reportingController"], "tidepool");
        assert_eq!(event["reportingInstance"], "tidepool-host");
        assert_eq!(event["regarding"]["uid"], "u");
        assert_eq!(event["regarding"]["resourceVersion"], "7");
        let (_, second) = bench.at(0, EventReason::Scheduled, note).unwrap();
        assert_ne!(event["metadata"]["name"], second["metadata"]["name"]);
    }

    #[test]
    fn a_repeated_failure_is_a_series() {
        let mut bench = Bench::new();
        let failed = EventReason::FailedScheduling;
        assert_eq!(bench.at(0, failed, "a").unwrap().0, Method::POST);
        let (method, body) = bench.at(5, failed, "a").unwrap();
        assert_eq!(
            (method, &body["series"]["count"]),
            (Method::PATCH, &2.into())
        );
        assert_eq!(bench.at(10, failed, "a"), None);
        // Another message is another event.
        assert_eq!(bench.at(20, failed, "b").unwrap().0, Method::POST);
        // After a long pause a new series begins.
        assert_eq!(bench.at(1_000, failed, "b").unwrap().0, Method::POST);
        bench.recorder.forget("u");
        assert_eq!(bench.at(1_001, failed, "b").unwrap().0, Method::POST);
    }

    #[test]
    fn a_pod_with_changing_messages_is_limited() {
        let mut bench = Bench::new();
        let written = (0..600).filter(|second| {
            let note = format!("failure {second}");
            bench
                .at(*second, EventReason::FailedScheduling, &note)
                .is_some()
        });
        // Ten at once, then one a minute.
        assert_eq!(written.count(), 10 + 9);
    }

    #[test]
    fn repeated_failures_of_many_pods_are_few_events() {
        let (mut recorder, begun) = (EventRecorder::new("host"), Instant::now());
        let mut written = |second: u64, note: &str, is_repeated: bool| {
            let now = begun + Duration::from_secs(second);
            let fails = |number: &usize| {
                let pod = Pod {
                    uid: number.to_string().into(),
                    ..Pod::default()
                };
                let event = NewEvent {
                    object: EventObject::Pod(Arc::new(pod)),
                    is_repeated,
                    ..event(EventReason::FailedScheduling, note)
                };
                let call = recorder.record(event, now, jiff::Timestamp::UNIX_EPOCH);
                call.is_some()
            };
            (0..1_000).filter(fails).count()
        };
        let limit = REPEATS_PER_SECOND as usize;
        assert_eq!(written(0, "a", true), limit, "known from before");
        assert_eq!(written(1, "b", false), 1_000 - limit + limit, "new pods");
        assert_eq!(written(2, "b", true), limit, "a series");
        assert_eq!(written(3, "c", true), limit, "another message");
    }

    #[test]
    fn too_many_pods_still_have_series() {
        let (mut recorder, now) = (EventRecorder::new("host"), Instant::now());
        let mut fail = |number: usize| {
            let pod = Pod {
                uid: number.to_string().into(),
                ..Pod::default()
            };
            let event = NewEvent {
                object: EventObject::Pod(Arc::new(pod)),
                ..event(EventReason::FailedScheduling, "a")
            };
            let call = recorder.record(event, now, jiff::Timestamp::UNIX_EPOCH);
            call.is_some_and(|call| call.method == Method::POST)
        };
        let pods = MOST_SERIES + MOST_SERIES / 20;
        assert_eq!((0..pods).filter(|number| fail(*number)).count(), pods);
        // The latest pods have a series as well as the first.
        assert_eq!((MOST_SERIES..pods).filter(|it| fail(*it)).count(), 0);
        let anew = (0..MOST_SERIES).filter(|it| fail(*it)).count();
        assert!(anew < MOST_SERIES / 4, "{anew} series are new");
        assert!(recorder.series.len() <= MOST_SERIES);
    }

    #[test]
    fn long_texts_are_cut() {
        let note = cut("ä".repeat(600));
        assert!(
            note.len() <= LONGEST_NOTE && note.ends_with("ä ..."),
            "{note}"
        );
        assert_eq!(cut("short".into()), "short");
        assert_eq!(stem("a-b"), "a-b");
        let long = format!("{}-.tail", "a".repeat(LONGEST_STEM - 2));
        assert_eq!(stem(&long), "a".repeat(LONGEST_STEM - 2));
    }
}
