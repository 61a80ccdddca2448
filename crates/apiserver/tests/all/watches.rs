//! Watches: order, resumption, selectors, bookmarks and the end of history.

use serde_json::{Value, json};

use crate::client::{CONFIGMAPS, Client, PODS, configmap, pod};

#[tokio::test]
async fn changes_come_in_order_and_a_resumed_watch_sees_exactly_the_rest() {
    let client = Client::new();
    let start = client.get(CONFIGMAPS).await.revision();
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={start}");
    let mut watch = client.watch(&path, &[]).await;
    let made = client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    let mut changed = made.body.clone();
    changed["data"]["k"] = json!("2");
    client
        .put(&format!("{CONFIGMAPS}/a"), changed)
        .await
        .expect(200);
    client
        .delete(&format!("{CONFIGMAPS}/a"), json!(null))
        .await
        .expect(200);

    let events = [watch.next().await, watch.next().await, watch.next().await];
    let kinds = events
        .each_ref()
        .map(|event| event["type"].as_str().unwrap());
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[0]["object"], made.body);
    let revision = |event: &Value| -> u64 {
        let text = event["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap();
        text.parse().unwrap()
    };
    assert!(revision(&events[0]) < revision(&events[1]));
    assert!(revision(&events[1]) < revision(&events[2]));
    assert_eq!(events[2]["object"]["data"]["k"], "2", "the last state");
    assert!(watch.is_silent().await);

    let middle = revision(&events[0]);
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={middle}");
    let mut resumed = client.watch(&path, &[]).await;
    assert_eq!(
        [resumed.next().await, resumed.next().await],
        [events[1].clone(), events[2].clone()]
    );
    assert!(resumed.is_silent().await);
}

#[tokio::test]
async fn a_watch_without_a_revision_starts_with_the_present_objects() {
    let client = Client::new();
    for name in ["a", "b"] {
        client.post(CONFIGMAPS, configmap(name)).await.expect(201);
    }
    for version in ["", "&resourceVersion=0"] {
        let mut watch = client
            .watch(&format!("{CONFIGMAPS}?watch=1{version}"), &[])
            .await;
        assert_eq!(watch.next_named().await, "ADDED a");
        assert_eq!(watch.next_named().await, "ADDED b");
        assert!(watch.is_silent().await);
    }
    let mut old_form = client
        .watch("/api/v1/watch/namespaces/default/configmaps", &[])
        .await;
    assert_eq!(old_form.next_named().await, "ADDED a");
    let streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let path = format!("{CONFIGMAPS}?{streaming}&allowWatchBookmarks=true");
    let mut watch = client.watch(&path, &[]).await;
    assert_eq!(watch.next_named().await, "ADDED a");
    assert_eq!(watch.next_named().await, "ADDED b");
    let bookmark = watch.next().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(
        metadata["resourceVersion"],
        client.get(CONFIGMAPS).await.revision()
    );
    let mut without = client
        .watch(&format!("{CONFIGMAPS}?{streaming}"), &[])
        .await;
    without.next().await;
    without.next().await;
    assert!(without.is_silent().await);
}

#[tokio::test]
async fn objects_that_enter_or_leave_a_selector_are_added_or_deleted() {
    let client = Client::new();
    let path = format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3D");
    let mut unbound = client.watch(&path, &[]).await;
    let path = format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3Dn1");
    let mut on_node = client.watch(&path, &[]).await;
    client.post(PODS, pod("p")).await.expect(201);
    assert_eq!(unbound.next_named().await, "ADDED p");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    client
        .post(&format!("{PODS}/p/binding"), binding)
        .await
        .expect(201);
    let now = client.get(&format!("{PODS}/p")).await;
    let left = unbound.next().await;
    assert_eq!(left["type"], "DELETED");
    assert!(
        left["object"]["spec"].get("nodeName").is_none(),
        "the old object"
    );
    assert_eq!(
        left["object"]["metadata"]["resourceVersion"],
        now.revision(),
        "the new revision"
    );
    assert_eq!(
        on_node.next().await,
        json!({"type": "ADDED", "object": now.body})
    );
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    client
        .patch(&format!("{PODS}/p"), "merge-patch+json", label)
        .await
        .expect(200);
    assert_eq!(on_node.next_named().await, "MODIFIED p");
    assert!(unbound.is_silent().await);
}

#[tokio::test]
async fn a_watch_from_an_expired_revision_sends_an_error_event() {
    let client = Client::new();
    let old = client.get(CONFIGMAPS).await.revision();
    client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    client.cluster.compact();
    let oldest = client.get(CONFIGMAPS).await.revision();
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={old}");
    let mut watch = client.watch(&path, &[]).await;
    let event = watch.next().await;
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(
        event["object"]["message"],
        format!("too old resource version: {old} ({oldest})")
    );
    assert_eq!(watch.next().await, Value::Null, "the stream ends");
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout_with_a_last_bookmark() {
    let client = Client::new();
    let start = client.get(CONFIGMAPS).await.revision();
    let query = format!("watch=true&resourceVersion={start}&timeoutSeconds=3");
    let begun = tokio::time::Instant::now();
    let path = format!("{CONFIGMAPS}?{query}&allowWatchBookmarks=true");
    let mut watch = client.watch(&path, &[]).await;
    assert_eq!(watch.next().await["type"], "BOOKMARK");
    assert_eq!(begun.elapsed().as_secs(), 1);
    assert_eq!(watch.next().await, Value::Null);
    assert_eq!(begun.elapsed().as_secs(), 3);
    let mut plain = client.watch(&format!("{CONFIGMAPS}?{query}"), &[]).await;
    assert_eq!(plain.next().await, Value::Null);
}

#[tokio::test]
async fn incomplete_streaming_list_options_are_refused() {
    let client = Client::new();
    for query in [
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersionMatch=NotOlderThan",
        "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
    ] {
        let refused = client
            .get(&format!("{CONFIGMAPS}?{query}"))
            .await
            .expect(422);
        assert_eq!(refused.body["details"]["kind"], "ListOptions", "{query}");
    }
}

#[tokio::test]
async fn tables_describe_their_columns_once() {
    let client = Client::new();
    let accept = ["Accept: application/json;as=Table;v=v1;g=meta.k8s.io"];
    let mut watch = client
        .watch(&format!("{CONFIGMAPS}?watch=true"), &accept)
        .await;
    client.post(CONFIGMAPS, configmap("a")).await.expect(201);
    client.post(CONFIGMAPS, configmap("b")).await.expect(201);
    let first = watch.next().await;
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    let second = watch.next().await;
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");

    let accept = ["Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"];
    let mut watch = client
        .watch(&format!("{CONFIGMAPS}?watch=true"), &accept)
        .await;
    let event = watch.next().await;
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert!(event["object"].get("data").is_none());
}

mod kube_watcher {
    //! kube-rs' own watcher, in both of its modes, through an expired history.

    use std::collections::BTreeSet;
    use std::time::Duration;

    use apiserver::faults::{Fault, Faults, Matching};
    use apiserver::{Cluster, Options};
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::{self, Event};
    use kube::{Api, Client};

    fn configmap(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    async fn through_a_410(config: watcher::Config) {
        let cluster = Cluster::new(Options::default());
        let faults = Faults::new();
        faults.next(
            1,
            Matching::new("watch", "configmaps"),
            Fault::EndWatch { after_events: 4 },
        );
        let client = Client::new(faults.wrap(cluster.service()), "default");
        let direct: Api<ConfigMap> =
            Api::default_namespaced(Client::new(cluster.service(), "default"));
        let make = async |name: &str| {
            let created = direct.create(&Default::default(), &configmap(name)).await;
            created.expect("created");
        };
        make("a").await;
        make("b").await;
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let mut events = watcher::watcher(api, config).boxed();
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut lists = 0;
        let mut compacted = false;
        let name = |object: ConfigMap| object.metadata.name.expect("named");
        while lists < 2 || seen.len() < 4 {
            let next = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
            match next.expect("events go on").expect("the stream goes on") {
                Ok(Event::Init) => {
                    lists += 1;
                    seen.clear();
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    seen.insert(name(object));
                }
                Ok(Event::Delete(object)) => {
                    seen.remove(&name(object));
                }
                Ok(Event::InitDone) => {}
                Err(error) => assert!(error.to_string().contains("too old"), "{error}"),
            }
            if seen.len() == 2 && !compacted {
                compacted = true;
                faults.next(
                    1,
                    Matching::new("watch", "configmaps"),
                    Fault::Expired { after_events: 0 },
                );
                make("c").await;
                make("d").await;
                cluster.compact();
            }
        }
        let all: Vec<&str> = seen.iter().map(String::as_str).collect();
        assert_eq!(all, ["a", "b", "c", "d"]);
    }

    #[tokio::test]
    async fn list_and_watch() {
        through_a_410(watcher::Config::default()).await;
    }

    #[tokio::test]
    async fn streaming_list() {
        through_a_410(watcher::Config::default().streaming_lists()).await;
    }
}
