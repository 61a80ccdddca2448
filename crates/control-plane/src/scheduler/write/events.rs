//! Events (events.k8s.io/v1), nearly all about pods, and which of them are worth a request.
//!
//! A failure that repeats becomes a series of one event. A pod whose failures have ever new words may write some of them
//! at once and then one a minute: the condition of the pod says the rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use http::Method;

use super::requests::{Call, JSON, MERGE, Quoted, micros};

/// Bytes of a note that the API takes.
const LONGEST_NOTE: usize = 1_024;
const ENDING: &str = " ...";
/// Bytes of an object's name that the API takes, less what makes it unique.
const LONGEST_STEM: usize = 253 - 17;
/// Bytes of `reportingInstance` that the API takes.
const LONGEST_INSTANCE: usize = 128;
/// A series ends when nothing was added for so long; then it begins anew.
const SERIES_END: Duration = Duration::from_secs(6 * 60);
/// How often the count of a series is written after its second event.
const SERIES_REFRESH: Duration = Duration::from_secs(30 * 60);
/// Events with new words that a pod may write before it must wait.
const FREE: u32 = 10;
const THEN_EVERY: Duration = Duration::from_secs(60);
/// Series kept at a time.
const MOST_SERIES: usize = 20_000;
/// One of so many goes when there are more; its next event is a new one. Pods that wait fail in turn, so whoever let the
/// oldest go would lose each series just before it is needed.
const ONE_OF: usize = 10;

/// Something to tell.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) about: About,
    /// Of the object.
    pub(crate) version: Name,
    /// Who says it.
    pub(crate) scheduler: Name,
    pub(crate) what: What,
    pub(crate) note: String,
}

#[derive(Debug, Clone)]
pub(crate) enum About {
    Pod(Arc<Pod>),
    /// A CustomNodeResource, by name and uid.
    Report(Name, Name),
}

impl About {
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
pub(crate) enum What {
    Scheduled,
    FailedScheduling,
    Preempted,
    /// What the pod says means nothing.
    Misunderstood,
    /// What the agent of a node says means nothing.
    Misreported,
}

impl What {
    /// Type, reason and action.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scheduled => ("Normal", "Scheduled", "Binding"),
            Self::FailedScheduling => ("Warning", "FailedScheduling", "Scheduling"),
            Self::Preempted => ("Normal", "Preempted", "Preempting"),
            Self::Misunderstood => ("Warning", "InvalidSettings", "Scheduling"),
            Self::Misreported => ("Warning", "InvalidReport", "Scheduling"),
        }
    }

    /// It may be said again and again.
    fn repeats(self) -> bool {
        matches!(self, Self::FailedScheduling | Self::Misreported)
    }
}

pub(crate) struct Recorder {
    host: String,
    /// By the object's uid.
    series: HashMap<Name, Series>,
    /// The last number of a name.
    last: i128,
}

struct Series {
    note: String,
    /// Of the event.
    path: String,
    count: u32,
    seen: Instant,
    written: Instant,
    /// Events with new words so far.
    events: u32,
}

impl Recorder {
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            series: HashMap::new(),
            last: 0,
        }
    }

    /// The request that tells it, unless it was told or must wait.
    pub(crate) fn record(
        &mut self,
        report: Report,
        now: Instant,
        time: jiff::Timestamp,
    ) -> Option<Call> {
        let report = Report {
            note: cut(report.note),
            ..report
        };
        if !report.what.repeats() {
            return Some(self.create(&report, time).1);
        }
        let known = self.series.get_mut(report.about.uid());
        let known = known.filter(|series| now.duration_since(series.seen) < SERIES_END);
        let mut events = 0;
        if let Some(series) = known {
            series.seen = now;
            let since_written = now.duration_since(series.written);
            if series.note == report.note {
                series.count = series.count.saturating_add(1);
                if series.count > 2 && since_written < SERIES_REFRESH {
                    return None;
                }
                series.written = now;
                return Some(repeat(series, time));
            }
            if series.events >= FREE && since_written < THEN_EVERY {
                return None;
            }
            events = series.events;
        }
        let (path, call) = self.create(&report, time);
        let series = Series {
            note: report.note,
            path,
            count: 1,
            seen: now,
            written: now,
            events: events.saturating_add(1),
        };
        if self.series.len() >= MOST_SERIES {
            self.thin_out();
        }
        self.series.insert(report.about.uid().clone(), series);
        Some(call)
    }

    /// Nothing more is expected of the pod.
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

    /// Returns the event's own path, too.
    fn create(&mut self, report: &Report, time: jiff::Timestamp) -> (String, Call) {
        let about = &report.about;
        let (of, api_version, namespace) = about.kind();
        // Events about what has no namespace are here.
        let home = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        // Unique in this process even when two are made at once; another process has another time.
        self.last = time.as_nanosecond().max(self.last + 1);
        let name = format!("{}.{:x}", stem(about.name()), self.last);
        let mut instance = format!("{}-{}", report.scheduler, self.host);
        shorten(&mut instance, LONGEST_INSTANCE);
        let (kind, reason, action) = report.what.words();
        let body = format!(
            r#"{{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{{"name":{name},"namespace":"{home}"}},"eventTime":"{at}","reportingController":{controller},"reportingInstance":{instance},"action":"{action}","reason":"{reason}","regarding":{{"kind":"{of}","namespace":{namespace},"name":{object},"uid":{uid},"apiVersion":"{api_version}","resourceVersion":{version}}},"note":{note},"type":"{kind}"}}"#,
            name = Quoted(&name),
            namespace = Quoted(namespace),
            at = micros(time),
            controller = Quoted(&report.scheduler),
            instance = Quoted(&instance),
            object = Quoted(about.name()),
            uid = Quoted(about.uid()),
            version = Quoted(&report.version),
            note = Quoted(&report.note),
        );
        let path = format!("/apis/events.k8s.io/v1/namespaces/{home}/events");
        let own = format!("{path}/{name}");
        (own, Call::new(Method::POST, path, JSON, body))
    }
}

fn repeat(series: &Series, time: jiff::Timestamp) -> Call {
    let body = format!(
        r#"{{"series":{{"count":{},"lastObservedTime":"{}"}}}}"#,
        series.count,
        micros(time)
    );
    Call::new(Method::PATCH, series.path.clone(), MERGE, body)
}

/// As kube-scheduler cuts it: the last bytes become dots.
fn cut(mut note: String) -> String {
    if note.len() > LONGEST_NOTE {
        shorten(&mut note, LONGEST_NOTE - ENDING.len());
        note += ENDING;
    }
    note
}

/// The part of a pod's name that an event's name has room for.
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

    fn report(what: What, note: &str) -> Report {
        let pod = Pod {
            name: "web".into(),
            uid: "u".into(),
            ..Pod::default()
        };
        Report {
            about: About::Pod(Arc::new(pod)),
            version: "7".into(),
            scheduler: "tidepool".into(),
            what,
            note: note.into(),
        }
    }

    struct Bench {
        recorder: Recorder,
        begun: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                recorder: Recorder::new("host"),
                begun: Instant::now(),
            }
        }

        /// Method and body of what a report at this second leads to.
        fn at(&mut self, second: u64, what: What, note: &str) -> Option<(Method, Value)> {
            let now = self.begun + Duration::from_secs(second);
            let time = jiff::Timestamp::from_second(1_767_323_045 + second as i64).unwrap();
            let call = self.recorder.record(report(what, note), now, time)?;
            Some((call.method, serde_json::from_slice(&call.body).unwrap()))
        }
    }

    #[test]
    fn an_event_says_what_kubectl_shows() {
        let mut bench = Bench::new();
        let note = "Successfully assigned default/web to n";
        let (method, event) = bench.at(0, What::Scheduled, note).unwrap();
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
        let (_, second) = bench.at(0, What::Scheduled, note).unwrap();
        assert_ne!(event["metadata"]["name"], second["metadata"]["name"]);
    }

    #[test]
    fn a_repeated_failure_is_a_series() {
        let mut bench = Bench::new();
        let failed = What::FailedScheduling;
        assert_eq!(bench.at(0, failed, "a").unwrap().0, Method::POST);
        let (method, body) = bench.at(5, failed, "a").unwrap();
        assert_eq!(
            (method, &body["series"]["count"]),
            (Method::PATCH, &2.into())
        );
        assert_eq!(bench.at(10, failed, "a"), None);
        // Other words are another event.
        assert_eq!(bench.at(20, failed, "b").unwrap().0, Method::POST);
        // After a long silence it begins anew.
        assert_eq!(bench.at(1_000, failed, "b").unwrap().0, Method::POST);
        bench.recorder.forget("u");
        assert_eq!(bench.at(1_001, failed, "b").unwrap().0, Method::POST);
    }

    #[test]
    fn a_pod_with_ever_new_words_is_held_back() {
        let mut bench = Bench::new();
        let written = (0..600).filter(|second| {
            let note = format!("failure {second}");
            bench.at(*second, What::FailedScheduling, &note).is_some()
        });
        // Ten at once, then one a minute.
        assert_eq!(written.count(), 10 + 9);
    }

    #[test]
    fn too_many_pods_still_have_series() {
        let (mut recorder, now) = (Recorder::new("host"), Instant::now());
        let mut fail = |number: usize| {
            let pod = Pod {
                uid: number.to_string().into(),
                ..Pod::default()
            };
            let report = Report {
                about: About::Pod(Arc::new(pod)),
                ..report(What::FailedScheduling, "a")
            };
            let call = recorder.record(report, now, jiff::Timestamp::UNIX_EPOCH);
            call.is_some_and(|call| call.method == Method::POST)
        };
        let pods = MOST_SERIES + MOST_SERIES / 20;
        assert_eq!((0..pods).filter(|number| fail(*number)).count(), pods);
        // Those that came last are known as well as those that came first.
        assert_eq!((MOST_SERIES..pods).filter(|it| fail(*it)).count(), 0);
        let anew = (0..MOST_SERIES).filter(|it| fail(*it)).count();
        assert!(anew < MOST_SERIES / 4, "{anew} are told anew");
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
