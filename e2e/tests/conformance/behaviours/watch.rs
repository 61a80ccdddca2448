//! W: watches.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::behaviour;
use crate::client::Request;
use crate::objects::{config_map, pod, widget};
use crate::session::{MERGE_PATCH, Session};
use crate::suite::Behaviour;

mod kube_rs;

pub(super) const ALL: &[Behaviour] = &[
    behaviour(
        "W1",
        "watch: from the version of a list: create, update, delete",
        from_list_version,
    ),
    behaviour("W2", "watch: no resource version, and 0", from_now_and_zero),
    behaviour("W3", "watch: resume from an earlier version", resume),
    behaviour("W4", "watch: an expired resource version", expired_version),
    behaviour("W6", "watch: streaming lists", streaming_lists),
    behaviour(
        "W8",
        "watch: a label selector that objects enter and leave",
        label_selector_transitions,
    ),
    behaviour(
        "W9",
        "watch: unbound pods while one is bound",
        field_selector_on_binding,
    ),
    behaviour("W10", "watch: a timeout", timeout),
    behaviour("W11", "watch: tables and metadata", tables_and_metadata),
    behaviour(
        "W12",
        "watch: kube-rs watchers after 410 Gone",
        kube_rs::kube_rs_watchers,
    ),
];

fn version(event: &Value) -> u64 {
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

fn label(value: &str) -> Value {
    json!({"metadata": {"labels": {"l": value}}})
}

fn from_list_version(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.widgets(""), widget("a")),
    ] {
        let list = s.get(&path);
        let mut watch = s.watch(format!(
            "{path}?watch=true&resourceVersion={}",
            list.version()
        ));
        s.post(&path, &object);
        s.patch(MERGE_PATCH, format!("{path}/a"), &label("1"));
        s.delete(format!("{path}/a"));
        // A pod's deletion is two writes.
        let count = if path.ends_with("pods") { 4 } else { 3 };
        let events = s.events(&mut watch, count);
        s.fact(
            "versions rise",
            events.is_sorted_by(|a, b| version(a) < version(b)),
        );
        s.events_until_silence(&mut watch);
    }
    // The older form of a watch, and the values that mean yes and no.
    s.post(s.core("configmaps"), &config_map("old"));
    let namespace = s.namespace().to_owned();
    let mut watch = s.watch(format!(
        "/api/v1/watch/namespaces/{namespace}/configmaps?timeoutSeconds=2"
    ));
    s.events(&mut watch, 1);
    for value in ["1", "yes", ""] {
        let mut watch = s.watch(s.core(&format!("configmaps?watch={value}&timeoutSeconds=2")));
        s.events(&mut watch, 1);
    }
    for value in ["false", "0"] {
        let answer = s.quietly(&Request::get(s.core(&format!("configmaps?watch={value}"))));
        s.fact(&format!("kind of watch={value}"), answer.text("/kind"));
    }
    s.get(s.core("configmaps/old?watch=true"));
}

fn from_now_and_zero(s: &mut Session) {
    for (path, first, second) in [
        (s.core("configmaps"), config_map("a"), config_map("b")),
        (s.widgets(""), widget("a"), widget("b")),
    ] {
        s.post(&path, &second);
        s.post(&path, &first);
        for query in [
            "watch=true",
            "watch=true&resourceVersion=0",
            "watch=true&fieldSelector=metadata.name%3Db&resourceVersion=0",
        ] {
            // From 0 it starts with what a cache has, so wait until it has all.
            s.get_until(
                &format!("{path}?resourceVersion=0"),
                "the cache knows both",
                |answer| {
                    answer
                        .at("/items")
                        .as_array()
                        .is_some_and(|items| items.len() >= 2)
                },
            );
            let mut watch = s.watch(format!("{path}?{query}"));
            let count = if query.contains("fieldSelector") {
                1
            } else {
                2
            };
            s.events(&mut watch, count);
            s.patch(
                MERGE_PATCH,
                format!("{path}/b"),
                &label(&query.len().to_string()),
            );
            s.events(&mut watch, 1);
        }
    }
    let mut watch = s.watch(s.core("secrets?watch=true"));
    s.events_until_silence(&mut watch);
}

fn resume(s: &mut Session) {
    let path = s.core("configmaps");
    let created = s.post(&path, &config_map("a"));
    let second = s.patch(MERGE_PATCH, format!("{path}/a"), &label("2"));
    s.patch(MERGE_PATCH, format!("{path}/a"), &label("3"));
    let other = s.post(&path, &config_map("b"));
    s.delete(format!("{path}/a"));
    for (from, count) in [
        (created.version(), 4),
        (second.version(), 3),
        (other.version(), 1),
    ] {
        let mut watch = s.watch(format!("{path}?watch=true&resourceVersion={from}"));
        s.events(&mut watch, count);
        s.events_until_silence(&mut watch);
    }
}

fn expired_version(s: &mut Session) {
    s.post(s.core("configmaps"), &config_map("a"));
    for path in ["configmaps", "pods"] {
        for query in ["", "&allowWatchBookmarks=true", "&labelSelector=x%3Dy"] {
            let mut watch = s.watch(s.core(&format!("{path}?watch=true&resourceVersion=1{query}")));
            s.events_until_end(&mut watch);
        }
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watch =
        s.watch_with(Request::get(s.core("configmaps?watch=true&resourceVersion=1")).accept(table));
    s.events_until_end(&mut watch);
    s.watch(s.core("configmaps?watch=true&resourceVersion=abc"));
    s.watch(s.core("configmaps?watch=true&resourceVersion=-1"));
}

fn streaming_lists(s: &mut Session) {
    for (path, make) in [
        (s.core("configmaps"), config_map as fn(&str) -> Value),
        (s.core("pods"), pod as fn(&str) -> Value),
        (s.widgets(""), widget as fn(&str) -> Value),
    ] {
        s.post(&path, &make("a"));
        let last = s.post(&path, &make("b"));
        let streaming =
            format!("{path}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        for query in [
            "&allowWatchBookmarks=true".to_owned(),
            "&allowWatchBookmarks=true&resourceVersion=".to_owned(),
            format!(
                "&allowWatchBookmarks=true&resourceVersion={}",
                last.version()
            ),
            "&allowWatchBookmarks=true&fieldSelector=metadata.name%3Db".to_owned(),
        ] {
            let mut watch = s.watch(format!("{streaming}{query}"));
            let events = s.events(
                &mut watch,
                if query.contains("fieldSelector") {
                    2
                } else {
                    3
                },
            );
            let bookmark = events.last().map(version).unwrap_or_default();
            let newest = events.iter().map(version).max().unwrap_or_default();
            s.fact(
                "the bookmark is not older than any object",
                bookmark == newest && bookmark > 0,
            );
            s.patch(
                MERGE_PATCH,
                format!("{path}/b"),
                &label(&query.len().to_string()),
            );
            s.events(&mut watch, 1);
        }
        let mut watch = s.watch(format!(
            "{streaming}&resourceVersion=1&allowWatchBookmarks=true"
        ));
        s.events(&mut watch, 3);
        let mut watch = s.watch(&streaming);
        s.events(&mut watch, 2);
        s.events_until_silence(&mut watch);
        let mut watch = s.watch(format!(
            "{path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ));
        s.patch(MERGE_PATCH, format!("{path}/b"), &label("live"));
        s.events(&mut watch, 1);
    }
    for query in [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1",
        "sendInitialEvents=false",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=NotOlderThan&resourceVersion=5",
        "resourceVersionMatch=Exact&resourceVersion=5",
        "resourceVersionMatch=Foo&sendInitialEvents=true",
        "sendInitialEvents=maybe",
        "timeoutSeconds=abc",
    ] {
        s.watch(s.core(&format!("configmaps?watch=true&{query}")));
    }
    s.watch(s.core("configmaps?watch=true&labelSelector=a%20b"));
    s.watch(s.core("configmaps?watch=true&fieldSelector=spec.x%3D1"));
}

fn label_selector_transitions(s: &mut Session) {
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.widgets(""), widget("a")),
    ] {
        let list = s.get(&path);
        let mut watch = s.watch(format!(
            "{path}?watch=true&labelSelector=l%3D1&resourceVersion={}",
            list.version()
        ));
        s.post(&path, &object);
        for value in ["1", "1", "2", "3", "1"] {
            s.patch(
                MERGE_PATCH,
                format!("{path}/a"),
                &json!({"metadata": {"labels": {"l": value}, "annotations": {"x": value}}}),
            );
        }
        s.patch(
            MERGE_PATCH,
            format!("{path}/a"),
            &json!({"metadata": {"annotations": {"x": "again"}}}),
        );
        s.delete(format!("{path}/a"));
        s.events(&mut watch, 5);
        s.events_until_silence(&mut watch);
    }
}

fn field_selector_on_binding(s: &mut Session) {
    let list = s.get(s.core("pods"));
    let from = list.version();
    let mut unbound = s.watch(s.core(&format!(
        "pods?watch=true&fieldSelector=spec.nodeName%3D&resourceVersion={from}"
    )));
    let mut bound = s.watch(s.core(&format!(
        "pods?watch=true&fieldSelector=spec.nodeName%3Dw9-n&resourceVersion={from}"
    )));
    let mut pending = s.watch(s.core(&format!(
        "pods?watch=true&fieldSelector=status.phase%3DPending&resourceVersion={from}"
    )));
    s.post(s.core("pods"), &pod("p"));
    s.post(
        s.core("pods/p/binding"),
        &json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "w9-n"}}),
    );
    s.patch(
        MERGE_PATCH,
        s.core("pods/p/status"),
        &json!({"status": {"phase": "Running"}}),
    );
    s.events(&mut unbound, 2);
    s.events(&mut bound, 2);
    s.events(&mut pending, 3);
    s.events_until_silence(&mut unbound);
}

fn timeout(s: &mut Session) {
    s.post(s.core("configmaps"), &config_map("a"));
    for query in ["timeoutSeconds=2", "timeoutSeconds=1"] {
        let started = Instant::now();
        let mut watch = s.watch(s.core(&format!("configmaps?watch=true&{query}")));
        s.events_until_end(&mut watch);
        let took = started.elapsed();
        let asked = Duration::from_secs(if query.ends_with('2') { 2 } else { 1 });
        s.fact(
            "it ended in time",
            took >= asked - Duration::from_millis(200) && took < asked + Duration::from_secs(3),
        );
    }
}

fn tables_and_metadata(s: &mut Session) {
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    for (path, object) in [
        (s.core("configmaps"), config_map("a")),
        (s.core("pods"), pod("a")),
        (s.widgets(""), widget("a")),
    ] {
        s.post(&path, &object);
        for accept in [table, partial] {
            let mut watch = s.watch_with(Request::get(format!("{path}?watch=true")).accept(accept));
            let first = s.events(&mut watch, 1);
            let changed = s.patch(
                MERGE_PATCH,
                format!("{path}/a"),
                &label(&accept.len().to_string()),
            );
            let second = s.events(&mut watch, 1);
            s.fact(
                "a table has its object's version",
                second.first().map(version) == changed.version().parse().ok(),
            );
            s.fact("one event each", json!([first.len(), second.len()]));
            let streaming = format!(
                "{path}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            );
            let mut watch = s.watch_with(Request::get(streaming).accept(accept));
            s.events(&mut watch, 2);
        }
        let mut watch = s.watch_with(
            Request::get(format!("{path}?watch=true&includeObject=None")).accept(table),
        );
        s.events(&mut watch, 1);
        let list = s.get(&path);
        let mut watch = s.watch_with(
            Request::get(format!(
                "{path}?watch=true&resourceVersion={}",
                list.version()
            ))
            .accept(table),
        );
        s.delete(format!("{path}/a?gracePeriodSeconds=0"));
        s.events(&mut watch, 1);
    }
}
