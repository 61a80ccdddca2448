//! The cluster over TLS: tokens, both HTTP versions, kubeconfigs and shutdown.

use std::time::Duration;

use apiserver::{Cluster, Options, ServeError, ServeOptions, Serving};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

async fn serve() -> Serving {
    let options = ServeOptions {
        users: vec!["admin".to_owned(), "alice".to_owned()],
        ..ServeOptions::default()
    };
    let cluster = Cluster::new(Options::default());
    cluster.serve(options).await.unwrap()
}

async fn config(serving: &Serving, user: &str) -> Config {
    let yaml = serving.kubeconfig(user).unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&yaml).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_kubeconfig_is_all_a_client_needs() {
    let serving = serve().await;
    for user in ["admin", "alice"] {
        let client = Client::try_from(config(&serving, user).await).unwrap();
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("by-{user}"));
        api.create(&Default::default(), &object).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get("kube-system").await.is_ok());
        let version = client.apiserver_version().await.unwrap();
        assert!(version.git_version.starts_with("v1.36.4"));
    }
    assert!(serving.kubeconfig("nobody").is_none());
    serving.shutdown().await;
}

#[tokio::test]
async fn requests_without_a_valid_token_are_refused() {
    let serving = serve().await;
    let good = config(&serving, "admin").await;
    for token in [None, Some("wrong")] {
        let mut config = good.clone();
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = Client::try_from(config).unwrap();
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        match api.list(&Default::default()).await {
            Err(kube::Error::Api(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
            }
            other => panic!("expected 401, got {other:?}"),
        }
    }
    serving.shutdown().await;
}

#[tokio::test]
async fn a_busy_port_is_an_error_and_shutdown_frees_it() {
    let serving = serve().await;
    let address = serving.address();
    let options = ServeOptions {
        port: address.port(),
        ..ServeOptions::default()
    };
    let cluster = Cluster::new(Options::default());
    match cluster.serve(options.clone()).await {
        Err(error @ ServeError::Listen { .. }) => {
            assert_eq!(error.to_string(), format!("cannot listen on {address}"));
        }
        Err(other) => panic!("expected a busy port, got {other}"),
        Ok(_) => panic!("two servers on one port"),
    }
    // An open watch must not delay the shutdown.
    let client = Client::try_from(config(&serving, "admin").await).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let _watch = api.watch(&Default::default(), "0").await.unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(5), serving.shutdown()).await;
    assert!(stopped.is_ok(), "shutdown took more than five seconds");
    cluster.serve(options).await.unwrap();
}
