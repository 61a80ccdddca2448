//! Programs outside that have a say.

use std::sync::{Arc, Mutex};

use api::config::{Configuration, Extender};
use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::post;
use control_plane::scheduler::Options;
use serde_json::{Value, json};

use crate::support::{Fixture, SCHEDULER, eventually};

/// What the extender was asked, by verb.
type Asked = Arc<Mutex<Vec<(&'static str, Value)>>>;

/// An extender that refuses node `a`, likes node `c` best and binds by itself.
async fn extender(asked: Asked, client: kube::Client) -> String {
    let filter = |State(asked): State<Asked>, Json(question): Json<Value>| async move {
        asked.lock().unwrap().push(("filter", question.clone()));
        let nodes = question["Nodes"]["items"].as_array().unwrap().iter();
        let kept: Vec<&Value> = nodes
            .filter(|node| node["metadata"]["name"] != "a")
            .collect();
        Json(json!({"Nodes": {"items": kept}, "FailedNodes": {"a": "not a"}, "Error": ""}))
    };
    let prioritize = |State(asked): State<Asked>, Json(question): Json<Value>| async move {
        asked.lock().unwrap().push(("prioritize", question));
        Json(json!([{"Host": "b", "Score": 0}, {"Host": "c", "Score": 10}]))
    };
    let bind = |State(asked): State<Asked>, Json(question): Json<Value>| async move {
        asked.lock().unwrap().push(("bind", question.clone()));
        let pod = question["PodName"].as_str().unwrap();
        let body = json!({"metadata": {"name": pod, "uid": question["PodUID"]},
            "target": {"kind": "Node", "name": question["Node"]}});
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        let request = http::Request::post(path).body(body.to_string().into_bytes());
        client.request_text(request.unwrap()).await.unwrap();
        Json(json!({"Error": ""}))
    };
    let router = Router::new()
        .route("/x/filter", post(filter))
        .route("/x/prioritize", post(prioritize))
        .route("/x/bind", post(bind))
        .with_state(asked);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn options(extender: Extender) -> Options {
    let mut configuration = Configuration::default();
    configuration.extenders = vec![extender];
    configuration.profiles[0].scheduler_name = SCHEDULER.into();
    Options::new(&configuration, engine::plugins::ALL, "host")
        .unwrap()
        .0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_filters_scores_and_binds() {
    let mut fixture = Fixture::new().await;
    for node in ["a", "b", "c"] {
        fixture.add_node(node, "4", 110).await;
    }
    let asked = Asked::default();
    let endpoint = Extender {
        url_prefix: extender(asked.clone(), fixture.client.clone()).await,
        filter_verb: "filter".into(),
        prioritize_verb: "prioritize".into(),
        bind_verb: "bind".into(),
        weight: 100,
        ..Extender::default()
    };
    fixture.schedule_by(fixture.client.clone(), options(endpoint));
    fixture.add_pod("pod", "1").await;
    let placed = fixture.all_placed(1).await;
    assert_eq!(placed["pod"], "c");
    let asked = asked.lock().unwrap().clone();
    let verbs: Vec<&str> = asked.iter().map(|(verb, _)| *verb).collect();
    assert_eq!(verbs, ["filter", "prioritize", "bind"]);
    // Whole objects, for who does not keep them.
    assert_eq!(asked[0].1["Pod"]["metadata"]["name"], "pod");
    assert_eq!(asked[0].1["Nodes"]["items"].as_array().unwrap().len(), 3);
    assert_eq!(asked[1].1["Nodes"]["items"].as_array().unwrap().len(), 2);
    fixture.stop().await;
}

/// An extender that answers with this text, whatever it is asked.
async fn parrot(answer: &'static str) -> String {
    let router = Router::new().fallback(move || async move { answer });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_without_a_usable_answer_fails_the_pod_unless_it_may_be_ignored() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    let silent = "http://127.0.0.1:1/x".to_owned();
    let wrong = parrot(r#"{"NodeNames": "abc"}"#).await;
    for (pod, url, ignorable) in [
        ("waits", &silent, false),
        ("goes-on", &silent, true),
        ("waits-too", &wrong, false),
        ("goes-on-too", &wrong, true),
    ] {
        let endpoint = Extender {
            url_prefix: url.clone(),
            filter_verb: "filter".into(),
            http_timeout: Some("1s".into()),
            node_cache_capable: true,
            ignorable,
            ..Extender::default()
        };
        let failed = format!("failed filter with extender at URL {url}/filter");
        fixture.add_pod(pod, "1").await;
        fixture.schedule_by(fixture.client.clone(), options(endpoint));
        eventually("the pod is heard of", || async {
            let events = fixture.events().await;
            let heard = events.iter().any(|(name, reason, note)| {
                name == pod && (reason == "Scheduled" || note.starts_with(&failed))
            });
            if heard { Ok(()) } else { Err(events) }
        })
        .await;
        let is_placed = fixture.placed().await.contains_key(pod);
        assert_eq!(is_placed, ignorable, "{pod}");
        fixture.stop().await;
    }
}
