//! Extenders.

use std::sync::{Arc, Mutex};

use api::config::{Configuration, Extender};
use axum::Router;
use axum::extract::State;
use axum::response::Json;
use axum::routing::post;
use control_plane::scheduler::Options;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::support::{Fixture, SCHEDULER, eventually, object, pod};

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
    format!("{}/", serve(router).await)
}

/// Where it is.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn options(extender: Extender) -> Options {
    let mut configuration = Configuration::default();
    configuration.extenders = vec![extender];
    configuration.profiles[0].scheduler_name = SCHEDULER.into();
    Options::new(&configuration, engine::scheduling::plugins::ALL, "host")
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
    serve(Router::new().fallback(move || async move { answer })).await
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

/// An extender by which nothing may go but what goes from node `b`. Shows what it was asked.
async fn guardian(asked: Asked) -> String {
    let preempt = |State(asked): State<Asked>, Json(question): Json<Value>| async move {
        asked.lock().unwrap().push(("preempt", question.clone()));
        let whole = &question["NodeNameToVictims"]["b"]["Pods"][0]["metadata"]["uid"];
        let short = &question["NodeNameToMetaVictims"]["b"]["Pods"][0]["UID"];
        let uid = if whole.is_null() { short } else { whole };
        let victims = json!({"Pods": [{"UID": uid}], "NumPDBViolations": 0});
        Json(json!({"NodeNameToMetaVictims": {"b": victims}}))
    };
    let router = Router::new().route("/x/preempt", post(preempt));
    serve(router.with_state(asked)).await
}

fn preempts(url_prefix: String) -> Extender {
    Extender {
        url_prefix,
        preempt_verb: "preempt".into(),
        http_timeout: Some("5s".into()),
        ..Extender::default()
    }
}

/// A node, and a pod that fills it.
async fn full_node(fixture: &Fixture, node: &str, class: &str) -> Pod {
    fixture.add_node(node, "1", 110).await;
    let mut pod = pod(&format!("on-{node}"), "900m");
    pod["spec"]["nodeName"] = node.into();
    if !class.is_empty() {
        pod["spec"]["priorityClassName"] = class.into();
    }
    fixture.create_pod(pod).await
}

async fn is_leaving(fixture: &Fixture, pod: &str) -> bool {
    let pod = fixture.pods().get(pod).await.unwrap();
    pod.metadata.deletion_timestamp.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_chooses_among_victims() {
    for capable in [false, true] {
        let mut fixture = Fixture::new().await;
        let classes: Api<PriorityClass> = Api::all(fixture.client.clone());
        let middle = object(json!({"metadata": {"name": "middle"}, "value": 10}));
        let params = PostParams::default();
        classes.create(&params, &middle).await.unwrap();
        // By itself, a scheduler takes the room of the lesser one.
        let lesser = full_node(&fixture, "a", "").await;
        let victim = full_node(&fixture, "b", "middle").await;
        let asked = Asked::default();
        let endpoint = Extender {
            node_cache_capable: capable,
            ..preempts(guardian(asked.clone()).await)
        };
        fixture.schedule_by(fixture.client.clone(), options(endpoint));
        fixture.add_urgent_pod("urgent", "900m").await;
        eventually("room is made where the extender lets it", || async {
            let urgent = fixture.pods().get("urgent").await.unwrap();
            let nominated = urgent.status.unwrap().nominated_node_name;
            match (is_leaving(&fixture, "on-b").await, nominated.as_deref()) {
                (true, Some("b")) => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await;
        assert!(!is_leaving(&fixture, "on-a").await);
        fixture.kill("on-b").await;
        eventually("the urgent pod has the room", || async {
            match fixture.placed().await.remove("urgent").as_deref() {
                Some("b") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        fixture.stop().await;

        // Once the room is being made, there is nothing more to ask.
        let asked = asked.lock().unwrap().clone();
        let [(_, question)] = &asked[..] else {
            panic!("{asked:?}")
        };
        assert_eq!(question["Pod"]["metadata"]["name"], "urgent");
        let (shown, other) = match capable {
            true => ("NodeNameToMetaVictims", "NodeNameToVictims"),
            false => ("NodeNameToVictims", "NodeNameToMetaVictims"),
        };
        assert_eq!(question[other], Value::Null);
        for (node, pod) in [("a", &lesser), ("b", &victim)] {
            let victims = &question[shown][node];
            assert_eq!(victims["NumPDBViolations"], 0);
            let [shown] = &victims["Pods"].as_array().unwrap()[..] else {
                panic!("{victims}")
            };
            let uid = pod.metadata.uid.as_deref().unwrap();
            match capable {
                true => assert_eq!(*shown, json!({"UID": uid})),
                false => {
                    assert_eq!(shown["metadata"]["uid"], uid);
                    assert_eq!(shown["spec"]["nodeName"], node, "whole pods");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_an_extender_is_final() {
    for (answer, ignorable, words) in [
        (
            r#"{"NodeNameToMetaVictims": {}}"#,
            false,
            "preemption: no candidate node for preemption",
        ),
        (
            r#"{"NodeNameToMetaVictims": "none"}"#,
            false,
            "preemption: failed preempt with extender at URL",
        ),
        // As if there were none.
        (r#"{"NodeNameToMetaVictims": "none"}"#, true, ""),
    ] {
        let mut fixture = Fixture::new().await;
        full_node(&fixture, "a", "").await;
        let endpoint = Extender {
            ignorable,
            ..preempts(parrot(answer).await)
        };
        fixture.schedule_by(fixture.client.clone(), options(endpoint));
        fixture.add_urgent_pod("urgent", "900m").await;
        let told = eventually("the pod is told", || async {
            let events = fixture.events().await;
            let told = events.iter().find(|(pod, ..)| pod == "urgent");
            told.map(|(_, _, note)| note.clone()).ok_or(events)
        })
        .await;
        assert!(told.contains(words), "{answer}: {told}");
        if ignorable {
            eventually("room is made all the same", || async {
                is_leaving(&fixture, "on-a").await.then_some(()).ok_or(())
            })
            .await;
        }
        assert_eq!(is_leaving(&fixture, "on-a").await, ignorable, "{answer}");
        fixture.stop().await;
    }
}

/// A page of them is larger than other responses may be.
#[tokio::test(flavor = "multi_thread")]
async fn an_extender_gets_whole_nodes_of_any_size() {
    const COUNT: usize = 100;
    let mut fixture = Fixture::new().await;
    let nodes: Api<Node> = Api::all(fixture.client.clone());
    for number in 0..COUNT {
        let node = object(json!({
            "metadata": {"name": format!("n{number}"), "annotations": {"example.com/note": "x".repeat(50 << 10)}},
            "status": {"capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"}},
        }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let asked = Arc::<Mutex<Vec<usize>>>::default();
    let filter = |State(asked): State<Arc<Mutex<Vec<usize>>>>, Json(question): Json<Value>| async move {
        let nodes = question["Nodes"]["items"].as_array().unwrap();
        asked.lock().unwrap().push(nodes.len());
        Json(json!({"Nodes": question["Nodes"]}))
    };
    let router = Router::new()
        .route("/x/filter", post(filter))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(asked.clone());
    let endpoint = Extender {
        url_prefix: serve(router).await,
        filter_verb: "filter".into(),
        http_timeout: Some("30s".into()),
        ..Extender::default()
    };
    fixture.schedule_with_options(options(endpoint));
    fixture.add_pod("p", "1").await;
    fixture.all_placed(1).await;
    let asked = asked.lock().unwrap().clone();
    // The nodes that the scheduler knew at that time.
    assert!(asked.last().is_some_and(|&count| count > 84), "{asked:?}");
    fixture.stop().await;
}
