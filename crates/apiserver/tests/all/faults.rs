//! Injected faults have the documented effect, as often as configured, and no other.

use std::time::{Duration, Instant};

use apiserver::faults::{Fault, Faults, Matching};
use apiserver::{Cluster, Options, ServeOptions};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};

fn configmap(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

/// A cluster, with a client that faults affect and a client that they do not.
fn cluster() -> (Faults, Api<ConfigMap>, Api<ConfigMap>) {
    let cluster = Cluster::new(Options::default());
    let faults = Faults::new();
    let faulty = Client::new(faults.wrap(cluster.service()), "default");
    let direct = Client::new(cluster.service(), "default");
    (
        faults,
        Api::default_namespaced(faulty),
        Api::default_namespaced(direct),
    )
}

fn code(result: Result<ConfigMap, Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test]
async fn a_refused_request_is_not_carried_out() {
    let (faults, faulty, direct) = cluster();
    let creates = Matching::new("create", "configmaps");
    for (fault, want) in [
        (Fault::Conflict, 409),
        (
            Fault::TooManyRequests {
                retry_after_seconds: 1,
            },
            429,
        ),
        (Fault::InternalError, 500),
        (Fault::LostRequest, 0),
    ] {
        faults.next(1, creates.clone(), fault.clone());
        let result = faulty.create(&PostParams::default(), &configmap("a")).await;
        assert_eq!(code(result), want, "{fault:?}");
        assert!(direct.get_opt("a").await.unwrap().is_none(), "{fault:?}");
    }
    assert_eq!(faults.struck(), 4);
    faulty
        .create(&PostParams::default(), &configmap("a"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_request_with_a_lost_answer_is_carried_out() {
    let (faults, faulty, direct) = cluster();
    faults.next(1, Matching::new("create", ""), Fault::LostAnswer);
    assert_eq!(
        code(faulty.create(&PostParams::default(), &configmap("a")).await),
        0
    );
    assert!(direct.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn rules_count_and_match() {
    let (faults, faulty, _) = cluster();
    faults.every(3, Matching::new("get", "configmaps"), Fault::InternalError);
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(code(faulty.get("x").await));
    }
    assert_eq!(codes, [500, 404, 404, 500, 404, 404]);
    faulty
        .list(&ListParams::default())
        .await
        .expect("another verb");
    faults.clear();
    assert_eq!(code(faulty.get("x").await), 404);

    faults.next(
        1,
        Matching::default(),
        Fault::Delay(Duration::from_millis(50)),
    );
    let begun = Instant::now();
    assert_eq!(code(faulty.get("x").await), 404);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn watches_end_break_and_expire() {
    let (faults, faulty, direct) = cluster();
    for name in ["a", "b", "c"] {
        direct
            .create(&PostParams::default(), &configmap(name))
            .await
            .unwrap();
    }
    let watches = Matching::new("watch", "configmaps");
    let watch = async || {
        let stream = faulty.watch(&WatchParams::default(), "0").await.unwrap();
        stream
            .map_err(|error| error.to_string())
            .collect::<Vec<_>>()
            .await
    };
    faults.next(1, watches.clone(), Fault::EndWatch { after_events: 2 });
    let events = watch().await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(Result::is_ok));

    faults.next(1, watches.clone(), Fault::TruncateWatch { after_events: 1 });
    let events = watch().await;
    assert!(events[0].is_ok());
    assert!(events[1..].iter().all(Result::is_err) && events.len() > 1);

    faults.next(1, watches, Fault::Expired { after_events: 1 });
    let events = watch().await;
    match events.last() {
        Some(Ok(kube::api::WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => panic!("expected 410, got {other:?}"),
    }
    faults.next(
        1,
        Matching::new("list", ""),
        Fault::Expired { after_events: 0 },
    );
    match faulty.list(&ListParams::default()).await {
        Err(Error::Api(status)) => assert_eq!(status.code, 410),
        other => panic!("expected 410, got {other:?}"),
    }
}

#[tokio::test]
async fn faults_work_over_the_network_too() {
    let cluster = Cluster::new(Options::default());
    let faults = Faults::new();
    let options = ServeOptions {
        faults: Some(faults.clone()),
        ..ServeOptions::default()
    };
    let serving = cluster.serve(options).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&serving.kubeconfig("admin").unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    faults.next(1, Matching::new("create", "configmaps"), Fault::LostAnswer);
    let lost = api.create(&PostParams::default(), &configmap("a")).await;
    assert!(
        matches!(lost, Err(ref error) if !matches!(error, Error::Api(_))),
        "{lost:?}"
    );
    assert!(api.get_opt("a").await.unwrap().is_some());
    serving.shutdown().await;
}
