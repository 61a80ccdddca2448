use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use engine::cluster::Update;
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::scheduler::channel::WaitFor;
use crate::scheduler::pods::PendingPods;
use crate::testing::Log;
use crate::watch::ALL;

fn sink() -> Sink {
    Sink {
        channel: Arc::default(),
        pods: Arc::new(PendingPods::new(Vec::new())),
        claim_waits: Arc::default(),
        unreadable: mpsc::channel(1).0,
        progress: Arc::default(),
    }
}

/// A server that lets nobody read, or only list.
fn strict_server(lists: bool) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let verb = if query.contains("watch=1") {
            "watch"
        } else {
            "list"
        };
        if lists && verb == "list" {
            let list = r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#;
            let response = Response::new(Body::from(list.as_bytes().to_vec()));
            return std::future::ready(Ok::<_, Infallible>(response));
        }
        let status = format!(r#"{{"kind":"Status","message":"cannot {verb}"}}"#);
        let mut response = Response::new(Body::from(status.into_bytes()));
        *response.status_mut() = StatusCode::FORBIDDEN;
        std::future::ready(Ok(response))
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_missing_right_is_said_once() {
    let sink = sink();
    let progress = sink.progress.clone();
    let log = Log::begin();
    let follow = follow(&ALL[0], strict_server(false), sink);
    let _ = tokio::time::timeout(Duration::from_secs(2), follow).await;
    assert_eq!(log.lines().len(), 1, "{:?}", log.lines());
    assert!(log.lines()[0].contains("WARN"), "{:?}", log.lines());
    // Both were tried, and the last is known.
    assert_eq!(
        progress.kinds()[ALL[0].name].broken.as_ref().unwrap().1,
        "cannot list"
    );
}

#[tokio::test]
async fn what_is_optional_holds_nothing_up() {
    let kind = ALL.iter().find(|kind| kind.name == "priorityclasses");
    let kind = kind.unwrap();
    for lists in [false, true] {
        let sink = sink();
        let (progress, log) = (sink.progress.clone(), Log::begin());
        let mut follower = Follower::new(kind, strict_server(lists), sink, PATIENCE);
        if lists {
            // As if it had been allowed to watch before.
            follower.list().await.unwrap();
            follower.watch_on().await;
        }
        tokio::select! {
            () = follower.run() => unreachable!("it follows for ever"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        let state = &progress.kinds()[kind.name];
        let is_well = state.synced && state.missing && state.broken.is_none();
        assert!(is_well, "{state:?}");
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let words = "priorityclasses: cannot be read, and are done without: cannot watch";
        assert!(
            lines[0].contains("WARN") && lines[0].contains(words),
            "{lines:?}"
        );
    }
}

/// One event of a watch.
fn event(kind: &str, name: &str, version: &str) -> String {
    let metadata = json!({"name": name, "uid": name, "resourceVersion": version});
    format!(
        "{}\n",
        json!({"type": kind, "object": {"metadata": metadata}})
    )
}

/// Says up to which version everything was told.
fn bookmark(version: &str, annotations: Value) -> String {
    let metadata = json!({"resourceVersion": version, "annotations": annotations});
    format!(
        "{}\n",
        json!({"type": "BOOKMARK", "object": {"metadata": metadata}})
    )
}

/// A server of namespaces. It answers one request after the other with these words; to a watch it then says nothing
/// more, and does not end it. Returns the queries that came.
fn mute_server(answers: Vec<String>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let queries = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut queries = queries.lock().unwrap();
        let answer = answers.get(queries.len()).cloned().unwrap_or_default();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let said = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(answer)))]);
        let pieces = match query.contains("watch=1") {
            true => usize::MAX,
            false => 1,
        };
        let body = StreamBody::new(said.chain(stream::pending()).take(pieces));
        queries.push(query);
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    (kube::Client::new(service, "default"), asked)
}

/// Follows namespaces until so many requests came. Returns what the engine was told, in words, and what each request
/// asked for besides its time.
async fn follow_until(requests: usize, answers: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (client, asked) = mute_server(answers);
    let sink = sink();
    let channel = sink.channel.clone();
    let kind = ALL.iter().find(|kind| kind.name == "namespaces");
    let short = Patience {
        watch: Duration::from_millis(300),
        grace: Duration::from_millis(50),
        list: Duration::from_millis(100),
    };
    let follower = Follower::new(kind.unwrap(), client, sink, short);
    let enough = async {
        while asked.lock().unwrap().len() < requests {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = follower.run() => unreachable!("it follows for ever"),
        () = enough => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{:?}", asked.lock().unwrap()),
    }
    let words = |news| match news {
        Message::Input(Input::Object(Update::Namespace { name, .. })) => name.to_string(),
        Message::Input(Input::Object(Update::NamespaceGone(name))) => format!("{name} is gone"),
        Message::Synced(kind) => format!("{kind} are told"),
        other => panic!("{other:?}"),
    };
    let told = channel
        .receive(WaitFor::Time(std::time::Instant::now()))
        .unwrap();
    let queries = asked.lock().unwrap().clone();
    let queries = queries.iter().map(|query| {
        let parts = query.split('&').filter(|part| {
            !part.starts_with("timeoutSeconds") && !part.starts_with("allowWatchBookmarks")
        });
        parts.collect::<Vec<_>>().join("&")
    });
    (told.into_iter().map(words).collect(), queries.collect())
}

#[tokio::test]
async fn a_watch_that_goes_silent_is_taken_up_where_it_was() {
    let log = Log::begin();
    // The second stream falls silent in the middle of an event.
    let answers = vec![
        event("ADDED", "a", "1")
            + &event("ADDED", "b", "2")
            + &bookmark("10", json!({LIST_ENDS: "true"}))
            + &event("ADDED", "c", "11"),
        event("DELETED", "b", "12") + &event("ADDED", "d", "13")[..40],
        event("ADDED", "d", "13") + &bookmark("20", json!({})),
    ];
    let (told, asked) = follow_until(4, answers).await;
    assert_eq!(
        asked,
        [
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "watch=1&resourceVersion=11",
            "watch=1&resourceVersion=12",
            "watch=1&resourceVersion=20",
        ]
    );
    let want = ["a", "b", "c", "namespaces are told", "b is gone", "d"];
    assert_eq!(told, want);
    // It is said once.
    let [warning] = &log.lines()[..] else {
        panic!("{:?}", log.lines())
    };
    let words = "namespaces: the watch broke: nothing came for too long";
    assert!(
        warning.contains("WARN") && warning.ends_with(words),
        "{warning}"
    );
}

#[tokio::test]
async fn a_list_that_goes_silent_is_begun_anew_in_pages() {
    let item = |name: &str, version: &str| json!({"metadata": {"name": name, "uid": name, "resourceVersion": version}});
    let page =
        json!({"metadata": {"resourceVersion": "5"}, "items": [item("a", "1"), item("c", "3")]});
    let answers = vec![
        event("ADDED", "a", "1") + &event("ADDED", "b", "2"),
        page.to_string(),
    ];
    let (told, asked) = follow_until(3, answers).await;
    assert_eq!(
        asked,
        [
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "limit=500",
            "watch=1&resourceVersion=5",
        ]
    );
    // What was told before the silence is not told again, and what went meanwhile is.
    let want = ["a", "b", "c", "b is gone", "namespaces are told"];
    assert_eq!(told, want);
}
