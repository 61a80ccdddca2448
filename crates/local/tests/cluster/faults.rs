//! The controllers converge although requests fail, responses are lost, watches break and controllers stop.

use std::{collections::BTreeSet, time::Duration};

use apiserver::{
    Cluster, Options,
    faults::{Fault, Faults, Matching},
};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
    client::retry::RetryPolicy,
};
use serde_json::json;
use tower::{Layer, retry::RetryLayer};

use crate::support::{self, deployment, eventually, is_ready, object, short, template};

const WEB: usize = 25;
const COMPLETIONS: i32 = 10;

/// A client without faults.
struct Observer {
    client: Client,
}

impl Observer {
    fn new(cluster: &Cluster) -> Self {
        let client = Client::new(cluster.service(), "default");
        Self { client }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    async fn create_workloads(&self) {
        let options = PostParams::default();
        let web = object(deployment("web", i32::try_from(WEB).unwrap()));
        let deployments = self.api::<Deployment>();
        deployments.create(&options, &web).await.unwrap();
        let mut template = template("batch", "app:1");
        template["metadata"]["annotations"] = json!({local::RUN_FOR: "20ms"});
        template["spec"]["restartPolicy"] = "Never".into();
        let job = object(json!({"metadata": {"name": "batch"}, "spec": {
            "completions": COMPLETIONS, "parallelism": 4, "template": template,
        }}));
        let jobs = self.api::<Job>();
        jobs.create(&options, &job).await.unwrap();
    }

    async fn web(&self) -> Vec<Pod> {
        let labelled = ListParams::default().labels("app=web");
        self.api::<Pod>().list(&labelled).await.unwrap().items
    }

    /// Returns once exactly the wanted pods run, each with an address of its own, and the job counted each pod once.
    async fn all_is_as_wanted(&self) {
        eventually("exactly the wanted pods run", || async {
            let pods = self.web().await;
            let addresses: BTreeSet<_> = pods
                .iter()
                .filter(|pod| is_ready(pod))
                .filter_map(|pod| pod.status.as_ref()?.pod_ip.clone())
                .collect();
            if (pods.len(), addresses.len()) == (WEB, WEB) {
                Ok(())
            } else {
                Err((pods.len(), addresses))
            }
        })
        .await;
        let sets = self.api::<ReplicaSet>().list(&ListParams::default()).await;
        assert_eq!(sets.unwrap().items.len(), 1);
        let status: JobStatus = eventually("the job is complete", || async {
            let job = self.api::<Job>().get("batch").await.unwrap();
            let status = job.status.unwrap_or_default();
            if status.completion_time.is_some() {
                Ok(status)
            } else {
                Err(status)
            }
        })
        .await;
        assert_eq!(
            (status.succeeded, status.failed.unwrap_or(0)),
            (Some(COMPLETIONS), 0)
        );
    }

    async fn delete_workloads(&self) {
        let options = Default::default();
        let deployments = self.api::<Deployment>();
        deployments.delete("web", &options).await.unwrap();
        eventually("everything is removed", || async {
            let names: Vec<_> = self.web().await.iter().map(ResourceExt::name_any).collect();
            if names.is_empty() { Ok(()) } else { Err(names) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_connection_delays_but_loses_and_doubles_nothing() {
    let cluster = Cluster::new(Options::default());
    let observer = Observer::new(&cluster);
    let healthy = local::start(observer.client.clone(), String::new(), short());
    healthy.nodes().add_demo(3).await.unwrap();
    healthy.stop().await;
    let binder = tokio::spawn(support::bind_in_turn(observer.client.clone()));

    let busy = Fault::TooManyRequests {
        retry_after_seconds: 1,
    };
    let faults = Faults::new();
    for (n, verb, resource, fault) in [
        (5, "create", "pods", Fault::LostAnswer),
        (7, "create", "pods", Fault::InternalError),
        (6, "patch", "pods/status", Fault::Conflict),
        (11, "patch", "pods/status", Fault::LostAnswer),
        (4, "patch", "replicasets/status", Fault::LostAnswer),
        (3, "patch", "jobs/status", Fault::LostAnswer),
        (4, "patch", "jobs/status", Fault::Conflict),
        (5, "delete", "pods", Fault::LostAnswer),
        (
            4,
            "watch",
            "pods",
            Fault::TruncateWatch { after_events: 40 },
        ),
        (5, "watch", "pods", Fault::Expired { after_events: 25 }),
        (
            2,
            "watch",
            "replicasets",
            Fault::EndWatch { after_events: 5 },
        ),
        (2, "list", "jobs", Fault::InternalError),
        (40, "", "", busy),
    ] {
        faults.every(n, Matching::new(verb, resource), fault);
    }
    // A client from a kubeconfig retries as well when the server is busy.
    let patient = RetryLayer::new(RetryPolicy::server_retry());
    let service = patient.layer(faults.wrap(cluster.service()));
    let local = local::start(Client::new(service, "default"), String::new(), short());

    observer.create_workloads().await;
    observer.all_is_as_wanted().await;
    observer.delete_workloads().await;
    assert!(faults.struck() > 20, "{} faults", faults.struck());
    binder.abort();
    local.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_that_stop_anywhere_are_replaced_by_others_that_carry_on() {
    let cluster = Cluster::new(Options::default());
    let observer = Observer::new(&cluster);
    let start = || local::start(observer.client.clone(), String::new(), short());
    let mut local = start();
    local.nodes().add_demo(3).await.unwrap();
    let binder = tokio::spawn(support::bind_in_turn(observer.client.clone()));
    observer.create_workloads().await;
    // Each is stopped at any point; running work is dropped, not finished.
    for life in [1, 3, 10, 30, 100] {
        tokio::time::sleep(Duration::from_millis(life)).await;
        local.stop().await;
        local = start();
    }
    observer.all_is_as_wanted().await;
    local.stop().await;
    // The next one sees the changes that happen while none runs.
    let deletion = observer.delete_workloads();
    let (_, local) = tokio::join!(deletion, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        start()
    });
    binder.abort();
    local.stop().await;
}
