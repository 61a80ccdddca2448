use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::*;
use crate::testing::Log;

static NAMESPACES: Resource = Resource::at("/api/v1/namespaces");
static OPTIONAL: Resource = Resource {
    optional: true,
    ..Resource::at("/apis/scheduling.k8s.io/v1/priorityclasses")
};

fn progress() -> Arc<Progress> {
    Arc::new(Progress::new([&NAMESPACES, &OPTIONAL]))
}

/// Notes the names of what is delivered.
#[derive(Clone, Default)]
struct Notebook(Arc<Mutex<Vec<String>>>);

impl Handler for Notebook {
    type Object = String;
    type Problem = String;

    fn parse(&self, raw: &RawObject) -> Result<Observed<String, String>, String> {
        let meta = partial(raw).ok_or("no metadata")?.metadata;
        Ok(Observed {
            key: Key::new(meta.namespace, meta.name.as_str()),
            uid: meta.uid.into(),
            resource_version: meta.resource_version,
            object: Some(meta.name),
            problem: None,
        })
    }

    async fn deliver(&self, changes: Vec<ObjectChange<String>>) {
        let names = changes.into_iter().map(|change| match change {
            ObjectChange::Applied(name) => name,
            ObjectChange::Deleted { key, .. } => format!("{key} is deleted"),
        });
        self.0.lock().unwrap().extend(names);
    }

    async fn synced(&self, kind: &'static str) {
        self.0.lock().unwrap().push(format!("{kind} are synced"));
    }

    fn report(&self, problem: String) {
        self.0.lock().unwrap().push(problem);
    }
}

/// A server that denies everything, or all but lists.
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
async fn a_missing_permission_is_logged_once() {
    let progress = progress();
    let log = Log::begin();
    let notebook = Notebook::default();
    let reflect = reflect(
        &NAMESPACES,
        strict_server(false),
        notebook,
        progress.clone(),
        true,
    );
    let _ = tokio::time::timeout(Duration::from_secs(2), reflect).await;
    assert_eq!(log.lines().len(), 1, "{:?}", log.lines());
    assert!(log.lines()[0].contains("WARN"), "{:?}", log.lines());
    // Both were tried, and the last is known.
    assert_eq!(
        progress.kinds()["namespaces"].broken.as_ref().unwrap().1,
        "cannot list"
    );
}

#[tokio::test]
async fn an_optional_kind_without_permission_counts_as_synced() {
    for lists in [false, true] {
        let (progress, log) = (progress(), Log::begin());
        let mut reflector = Reflector::new(
            &OPTIONAL,
            strict_server(lists),
            Notebook::default(),
            progress.clone(),
            TIMEOUTS,
        );
        if lists {
            // As if it had been allowed to watch before.
            reflector.list().await.unwrap();
            reflector.watch_on().await;
        }
        tokio::select! {
            () = reflector.run() => unreachable!("it watches for ever"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        let state = &progress.kinds()["priorityclasses"];
        let is_well = state.synced && state.missing && state.broken.is_none();
        assert!(is_well, "{state:?}");
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let text = "no permission to list priorityclasses; continuing without them";
        assert!(
            lines[0].contains("WARN")
                && lines[0].contains(text)
                && lines[0].contains("cannot watch"),
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

/// The version up to which everything was sent.
fn bookmark(version: &str, annotations: Value) -> String {
    let metadata = json!({"resourceVersion": version, "annotations": annotations});
    format!(
        "{}\n",
        json!({"type": "BOOKMARK", "object": {"metadata": metadata}})
    )
}

/// A server of namespaces. It answers one request after the other with these texts; a watch then gets nothing more, and
/// does not end. Returns the queries of the requests.
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

/// Watches namespaces until so many requests came. Returns what was delivered, and the query of each request without its
/// time.
async fn reflect_until(requests: usize, answers: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (client, asked) = mute_server(answers);
    let notebook = Notebook::default();
    let short = Timeouts {
        watch: Duration::from_millis(300),
        grace: Duration::from_millis(50),
        answer: Duration::from_millis(100),
        first_list: Duration::from_secs(10),
    };
    let reflector = Reflector::new(&NAMESPACES, client, notebook.clone(), progress(), short);
    let enough = async {
        while asked.lock().unwrap().len() < requests {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = reflector.run() => unreachable!("it watches for ever"),
        () = enough => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{:?}", asked.lock().unwrap()),
    }
    let queries = asked.lock().unwrap().clone();
    let queries = queries.iter().map(|query| {
        let parts = query.split('&').filter(|part| {
            !part.starts_with("timeoutSeconds") && !part.starts_with("allowWatchBookmarks")
        });
        parts.collect::<Vec<_>>().join("&")
    });
    (notebook.0.lock().unwrap().clone(), queries.collect())
}

#[tokio::test]
async fn a_watch_that_goes_silent_is_resumed_where_it_was() {
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
    let (delivered, asked) = reflect_until(4, answers).await;
    assert_eq!(
        asked,
        [
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "watch=1&resourceVersion=11",
            "watch=1&resourceVersion=12",
            "watch=1&resourceVersion=20",
        ]
    );
    let want = ["a", "b", "c", "namespaces are synced", "b is deleted", "d"];
    assert_eq!(delivered, want);
    // It is logged once.
    let [warning] = &log.lines()[..] else {
        panic!("{:?}", log.lines())
    };
    let text =
        "namespaces: watch failed: the server did not end it at its deadline of at most 350ms";
    assert!(
        warning.contains("WARN") && warning.ends_with(text),
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
    let (delivered, asked) = reflect_until(3, answers).await;
    assert_eq!(
        asked,
        [
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "limit=500",
            "watch=1&resourceVersion=5",
        ]
    );
    // What was delivered before the silence is not delivered again; what was deleted meanwhile is reported.
    let want = ["a", "b", "c", "b is deleted", "namespaces are synced"];
    assert_eq!(delivered, want);
}

/// A server that answers lists and ends every watch at once, as one does that does not know the resource version.
fn forgetful_server() -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let queries = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let body = match query.contains("sendInitialEvents") {
            true => bookmark("7", json!({LIST_ENDS: "true"})),
            false => String::new(),
        };
        queries.lock().unwrap().push(query);
        let response = Response::new(Body::from(body.into_bytes()));
        std::future::ready(Ok::<_, Infallible>(response))
    });
    (kube::Client::new(service, "default"), asked)
}

#[tokio::test]
async fn watches_that_end_at_once_lead_to_a_list_and_are_reported() {
    let (client, asked) = forgetful_server();
    let (progress, notebook) = (progress(), Notebook::default());
    let reflect = reflect(&NAMESPACES, client, notebook, progress.clone(), true);
    let _ = tokio::time::timeout(Duration::from_secs(3), reflect).await;
    let queries = asked.lock().unwrap().clone();
    let lists = queries.iter().filter(|it| it.contains("sendInitialEvents"));
    let lists = lists.count();
    assert!((2..6).contains(&lists), "{queries:?}");
    let broken = progress.kinds()["namespaces"].broken.clone();
    let text = broken.map(|(_, text)| text);
    assert!(text.is_none_or(|it| it.contains("end at once")), "{lists}");
}

/// The client never gets an answer.
fn silent_client() -> kube::Client {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_first_list_without_an_answer_is_reported() {
    let timeouts = Timeouts {
        answer: Duration::from_millis(600),
        first_list: Duration::from_millis(100),
        ..TIMEOUTS
    };
    for (resource, late, end) in [
        (&NAMESPACES, false, "waiting for it"),
        (&OPTIONAL, true, "continuing without it"),
    ] {
        let (progress, notebook, log) = (progress(), Notebook::default(), Log::begin());
        let reflector = Reflector::new(
            resource,
            silent_client(),
            notebook.clone(),
            progress.clone(),
            timeouts,
        );
        let _ = tokio::time::timeout(Duration::from_secs(1), reflector.run()).await;
        let name = resource.name();
        let lines = log.lines();
        let texts = [
            format!("{name}: the first list is not complete after 100ms; {end}"),
            format!("{name}: cannot list: no answer after 600ms"),
        ];
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, text) in lines.iter().zip(&texts) {
            assert!(line.ends_with(text), "{text}: {lines:?}");
        }
        let state = progress.kinds()[name].clone();
        assert!(state.broken.is_some(), "{state:?}");
        assert_eq!((state.synced, state.late), (false, late));
        let delivered = notebook.0.lock().unwrap().clone();
        let want = late.then(|| format!("{name} are synced"));
        assert_eq!(delivered, want.into_iter().collect::<Vec<_>>());
        assert_eq!(progress.unsynced().contains(&name), !late);
    }
}
