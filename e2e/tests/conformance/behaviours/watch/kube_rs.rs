//! W12: what a Rust controller sees when its version has been forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tower::ServiceBuilder;

use crate::client::Request;
use crate::objects::config_map;
use crate::session::{MERGE_PATCH, Session};

/// Both of kube-rs' ways to start, through a version that the server has forgotten: the watcher
/// must list again and end with the same set.
pub(super) fn kube_rs_watchers(s: &mut Session) {
    for name in ["a", "b", "c"] {
        s.prepare(&Request::post(s.core("configmaps")).json(&config_map(name)));
    }
    for (name, strategy) in [
        ("list", InitialListStrategy::ListWatch),
        ("stream", InitialListStrategy::StreamingList),
    ] {
        let runtime = s.server().client.runtime.clone();
        let _inside = runtime.enter();
        let client = s.server().client.kube().clone();
        let (spoilt, spoiled) = spoil(client, if name == "list" { 1 } else { 2 });
        let namespace = s.namespace().to_owned();
        let config = watcher::Config {
            initial_list_strategy: strategy,
            ..watcher::Config::default()
        }
        .timeout(2);
        let api: Api<ConfigMap> = Api::namespaced(spoilt, &namespace);
        let task = runtime.spawn(follow(api, config));
        // Once it has lost its place, change something: it must arrive.
        let deadline = std::time::Instant::now() + Duration::from_secs(15);
        while spoiled.load(Ordering::SeqCst) == 0 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        let body = json!({"data": {"last": name}}).to_string();
        s.prepare(&Request::new("PATCH", s.core("configmaps/c")).body(MERGE_PATCH, body));
        let seen = runtime
            .block_on(task)
            .unwrap_or_else(|error| json!(error.to_string()));
        s.fact(
            &format!("what a kube-rs watcher saw that starts with a {name}"),
            seen,
        );
        s.prepare(
            &Request::new("PATCH", s.core("configmaps/c"))
                .body(MERGE_PATCH, r#"{"data":{"last":null}}"#),
        );
    }
}

/// This client, except that the `nth` watch that resumes from a version asks for version 1.
fn spoil(client: kube::Client, nth: usize) -> (kube::Client, Arc<AtomicUsize>) {
    let spoiled = Arc::new(AtomicUsize::new(0));
    let resumed = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&spoiled);
    let service = ServiceBuilder::new()
        .map_request(move |mut request: http::Request<kube::client::Body>| {
            let uri = request.uri().to_string();
            let version = uri
                .split(['?', '&'])
                .find_map(|pair| pair.strip_prefix("resourceVersion="));
            if let Some(version) = version
                .filter(|version| uri.contains("watch=true") && !matches!(*version, "" | "0"))
                && resumed.fetch_add(1, Ordering::SeqCst) + 1 == nth
            {
                let old = uri.replace(&format!("resourceVersion={version}"), "resourceVersion=1");
                if let Ok(uri) = old.parse() {
                    *request.uri_mut() = uri;
                    spoiled.fetch_add(1, Ordering::SeqCst);
                }
            }
            request
        })
        .service(tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        }));
    (kube::Client::new(service, "default"), counter)
}

/// Follows until the change arrives after a second list; says how often it listed and what it holds.
async fn follow(api: Api<ConfigMap>, config: watcher::Config) -> Value {
    let mut lists = 0;
    let mut errors = Vec::new();
    let mut held: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut listing = BTreeMap::new();
    let mut events = watcher(api, config).boxed();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let event = match tokio::time::timeout_at(deadline, events.try_next()).await {
            Err(_) => {
                return json!({"gave up": true, "lists": lists, "errors": errors, "holds": held});
            }
            Ok(Ok(None)) => {
                return json!({"ended": true, "lists": lists, "errors": errors, "holds": held});
            }
            Ok(Err(error)) => {
                errors.push(
                    error
                        .to_string()
                        .split(':')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                );
                continue;
            }
            Ok(Ok(Some(event))) => event,
        };
        match event {
            Event::Init => listing = BTreeMap::new(),
            Event::InitApply(object) => {
                drop(listing.insert(object.name_any(), object.data.unwrap_or_default()))
            }
            Event::InitDone => {
                lists += 1;
                held = std::mem::take(&mut listing);
            }
            Event::Apply(object) => {
                drop(held.insert(object.name_any(), object.data.unwrap_or_default()))
            }
            Event::Delete(object) => drop(held.remove(&object.name_any())),
        }
        if lists > 1 && held.values().any(|data| data.contains_key("last")) {
            return json!({"lists": lists, "errors": errors, "holds": held});
        }
    }
}
