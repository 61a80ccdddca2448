//! Events and conditions that the scheduler writes.

use apiserver::faults::{Fault, Matching};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tower::ServiceExt;

use crate::metrics::{metrics, options, value};
use crate::support::{Fixture, NAMESPACE, condition, eventually, object};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why() {
    let mut fixture = Fixture::new().await;
    for node in ["a", "b"] {
        fixture.add_node(node, "1", 110).await;
    }
    fixture.schedule();
    fixture.add_pod("giant", "2").await;
    let words = "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let pod = eventually("the pod has its condition", || async {
        let pod = fixture.pods().get("giant").await.unwrap();
        match condition(&pod, "PodScheduled") {
            Some(_) => Ok(pod),
            None => Err(pod),
        }
    })
    .await;
    let want = ("False", "Unschedulable", words);
    let (status, reason, message) = condition(&pod, "PodScheduled").unwrap();
    assert_eq!((&*status, &*reason, &*message), want);
    let events = eventually("the pod has its event", || async {
        let events = fixture.events().await;
        if events.is_empty() {
            Err(())
        } else {
            Ok(events)
        }
    })
    .await;
    let want = ("giant".into(), "FailedScheduling".into(), words.to_owned());
    assert_eq!(events, [want]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_name_the_version_of_their_pod() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    fixture.schedule();
    for pod in ["a", "b", "c", "d"] {
        fixture.add_pod(pod, "1").await;
    }
    fixture.all_placed(4).await;
    fixture.add_urgent_pod("urgent", "1").await;
    let api: Api<Event> = Api::default_namespaced(fixture.client.clone());
    let reasons = |wanted: &[&str]| {
        let (api, wanted) = (api.clone(), wanted.join(","));
        async move {
            let events = api.list(&ListParams::default()).await.unwrap().items;
            let mut found: Vec<_> = events.iter().filter_map(|it| it.reason.clone()).collect();
            found.sort();
            if found.join(",") == wanted {
                Ok(events)
            } else {
                Err(found)
            }
        }
    };
    let wanted = [
        "FailedScheduling",
        "Preempted",
        "Scheduled",
        "Scheduled",
        "Scheduled",
        "Scheduled",
    ];
    for event in eventually("all are told", || reasons(&wanted)).await {
        let version = event.regarding.unwrap_or_default().resource_version;
        assert!(
            version.is_some_and(|it| it.parse::<u64>().is_ok()),
            "{:?}",
            event.reason
        );
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_nodes_a_pod_says_so() {
    let mut fixture = Fixture::new().await;
    fixture.add_pod("lonely", "1").await;
    fixture.schedule();
    let events = eventually("the pod has its event", || async {
        let events = fixture.events().await;
        if events.is_empty() {
            Err(())
        } else {
            Ok(events)
        }
    })
    .await;
    assert_eq!(events[0].2, "no nodes available to schedule pods");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_pod_gets_an_event_and_the_others_are_scheduled() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    // The API server would refuse such a quantity; another version of it may not.
    let spoil = |bytes: Bytes| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Bytes::from(text.replace("\"123m\"", "\"many\""))
    };
    let spoiled = move |response: Response<apiserver::Body>| {
        response.map(|body| body.map_frame(move |frame| frame.map_data(spoil)))
    };
    let service = fixture.cluster.service();
    let service = ServiceExt::<Request<Body>>::map_response(service, spoiled);
    fixture.add_pod("bad", "123m").await;
    fixture.schedule_with(Client::new(service, NAMESPACE));
    fixture.add_pod("good", "1").await;
    let placed = fixture.all_placed(1).await;
    assert!(placed.contains_key("good"), "{placed:?}");
    let (pod, reason, note) = eventually("the pod has its event", || async {
        let mut events = fixture.events().await;
        events.retain(|(pod, ..)| pod == "bad");
        events.pop().ok_or(())
    })
    .await;
    assert_eq!((&*pod, &*reason), ("bad", "FailedScheduling"));
    assert!(
        note.starts_with("pod default/bad: cpu of spec.containers: "),
        "{note}"
    );
    let said = eventually("the pod has its condition", || async {
        let pod = fixture.pods().get("bad").await.unwrap();
        condition(&pod, "PodScheduled").ok_or(())
    })
    .await;
    assert_eq!(said, ("False".into(), "SchedulerError".into(), note));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_priority_class_is_unknown_waits_for_it() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    let classes: Api<PriorityClass> = Api::all(fixture.client.clone());
    fixture.add_urgent_pod("urgent", "3").await;
    let gone = classes.delete("high", &DeleteParams::default()).await;
    gone.unwrap();
    // As if the API server had no admission for priorities.
    let open = |bytes: Bytes| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Bytes::from(text.replace("\"priority\":", "\"left\":"))
    };
    let opened = move |response: Response<apiserver::Body>| {
        response.map(|body| body.map_frame(move |frame| frame.map_data(open)))
    };
    let service = ServiceExt::<Request<Body>>::map_response(fixture.cluster.service(), opened);
    fixture.schedule_with(Client::new(service, NAMESPACE));
    let (_, reason, note) = eventually("the pod has its event", || async {
        fixture.events().await.pop().ok_or(())
    })
    .await;
    let words = "PriorityClass \"high\" was not found: create it, or recreate the pod with a priorityClassName that exists";
    assert_eq!((&*reason, &*note), ("FailedScheduling", words));
    fixture.add_pod("low", "3").await;
    let placed = fixture.all_placed(1).await;
    assert!(placed.contains_key("low"), "{placed:?}");
    let high = object(json!({"metadata": {"name": "high"}, "value": 1000}));
    classes.create(&PostParams::default(), &high).await.unwrap();
    eventually("the pod makes room for itself", || async {
        let low = fixture.pods().get("low").await.unwrap();
        low.metadata.deletion_timestamp.ok_or("it stays")
    })
    .await;
    fixture.kill("low").await;
    let placed = fixture.all_placed(1).await;
    assert!(placed.contains_key("urgent"), "{placed:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_answer_was_lost_is_written_once() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    let create = || Matching::new("create", "events");
    fixture.faults.next(1, create(), Fault::LostAnswer);
    fixture.faults.next(1, create(), Fault::InternalError);
    fixture.schedule_with_options(options());
    for name in ["a", "b"] {
        fixture.add_pod(name, "1").await;
    }
    fixture.all_placed(2).await;
    let count = |text: &str, result: &str| {
        value(
            text,
            &format!(r#"tidepool_events_total{{result="{result}"}}"#),
        )
    };
    let text = eventually("both are written", || async {
        let text = metrics(&fixture).await;
        match count(&text, "written") {
            Some(2.0) => Ok(text),
            found => Err((found, count(&text, "refused"))),
        }
    })
    .await;
    assert_eq!(count(&text, "refused"), None);
    let events = fixture.events().await;
    assert_eq!(events.len(), 2, "{events:?}");
    fixture.stop().await;
}
