//! The component that runs controllers, with a controller for the test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control_plane::client::Connect;
use control_plane::controllers::{
    Context, Controller, Controllers, ControllersOptions, Settings, schedulers,
};
use control_plane::election::Election;
use control_plane::serve::{Port, Serve};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Api, Client};
use reconcile::{Cache, Error, Key, Part, Requeue, by_owner};
use serde_json::json;
use tokio::sync::oneshot;

use crate::http::send_to;
use crate::support::{Fixture, NAMESPACE, eventually, object};

/// Copies the value `wanted` of each ConfigMap to `found`.
const COPIES: &[Controller] = &[Controller {
    name: "copies",
    start: start_copies,
}];

fn start_copies(context: &Arc<Context>) -> BoxFuture<'static, ()> {
    let (cache, queue) = (Cache::<ConfigMap>::new(by_owner), context.queue("copies"));
    let wake = queue.clone();
    cache.listen(move |change| {
        for object in change.sides() {
            wake.add(Key::of(&object.metadata));
        }
    });
    let api = Api::all(context.client.clone());
    context.watches.add(&cache, api, watcher::Config::default());
    let context = context.clone();
    async move {
        context.synced().await;
        let (cache, context) = (&cache, &context);
        let work = |key: Key| async move {
            let Some(object) = cache.get(&key) else {
                return Ok::<_, Error>(Requeue::OnChange);
            };
            let value = |key| object.data.as_ref().and_then(|data| data.get(key));
            if value("wanted") != value("found") {
                let fields = json!({"data": {"found": value("wanted")}});
                let requests = &context.requests;
                requests
                    .merge::<ConfigMap>(&object.metadata, Part::Object, fields)
                    .await?;
            }
            Ok(Requeue::OnChange)
        };
        queue.run(2, context.cancel.clone(), work).await;
    }
    .boxed()
}

/// One of them needs Leases.
const COPIES_AND_SCHEDULERS: &[Controller] = &[COPIES[0], schedulers::CONTROLLER];

fn options(identity: &str, controllers: &'static [Controller]) -> ControllersOptions {
    ControllersOptions {
        controllers,
        settings: Settings::default(),
        election: Some(Election {
            namespace: NAMESPACE.into(),
            name: "controllers".into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(100),
            sync_deadline: control_plane::election::SYNC_DEADLINE,
        }),
        serve: Some(Serve {
            port: Port::Exactly(0),
            ..Serve::default()
        }),
    }
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    send_to(address, "GET", path, "").await
}

async fn holder(client: &Client) -> String {
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let lease = leases.get_opt("controllers").await.unwrap();
    let spec = lease.and_then(|lease| lease.spec);
    spec.and_then(|spec| spec.holder_identity)
        .unwrap_or_default()
}

async fn becomes(client: &Client, want: &str) {
    eventually(&format!("the holder is {want:?}"), || async {
        let found = holder(client).await;
        if found == want { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn copied(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = json!({"metadata": {"name": name}, "data": {"wanted": "x"}});
    let map = object(map);
    maps.create(&PostParams::default(), &map).await.unwrap();
    eventually(&format!("{name} is copied"), || async {
        let data = maps.get(name).await.unwrap().data.unwrap();
        if data.contains_key("found") {
            Ok(())
        } else {
            Err(data)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_runs_the_controllers_and_hands_over() {
    let fixture = Fixture::new().await;
    let start = |identity: &str| {
        let connect = Connect::Client(fixture.client.clone());
        let controllers = Controllers::new(connect, options(identity, COPIES)).unwrap();
        let server = controllers.server().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(controllers.run(async {
            let _ = stopped.await;
        }));
        (stop, running, server)
    };
    let (stop_first, first, server) = start("first");
    becomes(&fixture.client, "first").await;
    let (stop_second, second, standby) = start("second");
    copied(&fixture.client, "a").await;
    let (code, text) = get(server, "/readyz?verbose").await;
    assert_eq!(code, 200, "{text}");
    for check in ["leaderElection", "shutdown", "informer-sync", "watches"] {
        assert!(text.contains(&format!("[+]{check} ok")), "{text}");
    }
    is_ready(standby).await;
    assert_eq!(get(server, "/livez").await, (200, "ok".to_owned()));
    let (_, metrics) = get(server, "/metrics").await;
    for line in [
        "tidepool_role{role=\"leader\"} 1",
        "tidepool_role{role=\"standby\"} 0",
        "workqueue_depth{name=\"copies\"} 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    drop(stop_first);
    first.await.unwrap().unwrap();
    becomes(&fixture.client, "second").await;
    copied(&fixture.client, "b").await;
    drop(stop_second);
    second.await.unwrap().unwrap();
    becomes(&fixture.client, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_controllers_it_still_leads_and_serves() {
    let fixture = Fixture::new().await;
    let connect = Connect::Client(fixture.client.clone());
    let controllers = Controllers::new(connect, options("me", &[])).unwrap();
    let server = controllers.server().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(controllers.run(async {
        let _ = stopped.await;
    }));
    becomes(&fixture.client, "me").await;
    is_ready(server).await;
    drop(stop);
    running.await.unwrap().unwrap();
    becomes(&fixture.client, "").await;
}

/// As with a new binary and the Roles of an older one.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_a_permission_waits_alone() {
    let fixture = Fixture::new().await;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let namespace = object(json!({"metadata": {"name": "tidepool-system"}}));
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    let is_denied = Arc::new(AtomicBool::new(true));
    let (inner, denied) = (fixture.client.clone(), is_denied.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, denied) = (inner.clone(), denied.clone());
        async move {
            let lists = request.uri().path() == "/apis/coordination.k8s.io/v1/leases";
            if !lists || !denied.load(Ordering::Relaxed) {
                return inner.send(request).await;
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                "message": "leases.coordination.k8s.io is forbidden", "code": 403});
            let body = Body::from(status.to_string().into_bytes());
            Ok(Response::builder().status(403).body(body).unwrap())
        }
    });
    let mut options = options("only", COPIES_AND_SCHEDULERS);
    let deadline = Duration::from_millis(500);
    options.election.as_mut().unwrap().sync_deadline = deadline;
    let connect = Connect::Client(Client::new(service, NAMESPACE));
    let controllers = Controllers::new(connect, options).unwrap();
    let server = controllers.server().unwrap();
    let _running = tokio::spawn(controllers.run(std::future::pending()));
    becomes(&fixture.client, "only").await;
    copied(&fixture.client, "a").await;
    eventually("the missing permission is shown", || async {
        let (code, text) = get(server, "/readyz").await;
        let is_shown = text.contains("not listed yet: leases");
        if code != 200 && is_shown {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    // It keeps the Lease, though its watches fail for longer than a leader may.
    for _ in 0..20 {
        tokio::time::sleep(deadline / 5).await;
        assert_eq!(holder(&fixture.client).await, "only");
    }
    copied(&fixture.client, "b").await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), "tidepool-system");
    assert!(maps.get_opt("schedulers").await.unwrap().is_none());
    is_denied.store(false, Ordering::Relaxed);
    eventually("the registry writes its names", || async {
        match maps.get_opt("schedulers").await.unwrap() {
            Some(_) => Ok(()),
            None => Err("none"),
        }
    })
    .await;
    is_ready(server).await;
}

/// A candidate, a standby, a leader and a replica without election, while the API server is silent.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_server_that_nobody_can_reach_no_replica_is_ready() {
    let fixture = Fixture::new().await;
    let start = |identity: &str, has_election: bool, is_silent: &Arc<AtomicBool>| {
        let (inner, is_silent) = (fixture.client.clone(), is_silent.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, is_silent) = (inner.clone(), is_silent.clone());
            async move {
                if is_silent.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                inner.send(request).await
            }
        });
        let mut options = options(identity, &COPIES_AND_SCHEDULERS[1..]);
        options.election = options.election.filter(|_| has_election);
        let connect = Connect::Client(Client::new(service, NAMESPACE));
        let controllers = Controllers::new(connect, options).unwrap();
        let server = controllers.server().unwrap();
        (
            server,
            tokio::spawn(controllers.run(std::future::pending())),
        )
    };
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let namespace = object(json!({"metadata": {"name": "tidepool-system"}}));
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    made.unwrap();
    let says = async |server, want: &str| {
        eventually(want, || async {
            let (code, text) = get(server, "/readyz").await;
            match code == 500 && text.contains(want) {
                true => Ok(()),
                false => Err(text),
            }
        })
        .await;
    };
    let cut = |is_cut| Arc::new(AtomicBool::new(is_cut));

    let (candidate, _running) = start("candidate", true, &cut(true));
    says(
        candidate,
        "the API server has not answered about Lease default/controllers: no answer",
    )
    .await;
    assert_eq!(get(candidate, "/healthz").await.0, 200, "it is not killed");
    let (alone, _running) = start("alone", false, &cut(true));
    says(alone, "not listed yet: configmaps, leases, pods").await;

    let (first, second) = (cut(false), cut(false));
    let (leader, _leads) = start("leader", true, &first);
    is_ready(leader).await;
    let (standby, _waits) = start("standby", true, &second);
    is_ready(standby).await;
    second.store(true, Ordering::Relaxed);
    says(
        standby,
        "the API server has not answered about Lease default/controllers for 4 s: no answer",
    )
    .await;
    second.store(false, Ordering::Relaxed);
    is_ready(standby).await;
}

async fn is_ready(server: SocketAddr) {
    eventually("it is ready", || async {
        let (code, text) = get(server, "/readyz").await;
        if code == 200 { Ok(()) } else { Err(text) }
    })
    .await;
}
