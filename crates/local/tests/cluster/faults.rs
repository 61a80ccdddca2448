//! Everything converges to the right state though requests fail, answers are lost and watches break.

use apiserver::{
    Cluster, Options,
    faults::{Fault, Faults, Matching},
};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::support::{self, deployment, eventually, is_ready, object, short, template};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_connection_delays_but_loses_and_doubles_nothing() {
    let cluster = Cluster::new(Options::default());
    let faults = Faults::new();
    let bad = Client::new(faults.wrap(cluster.service()), "default");
    let good = Client::new(cluster.service(), "default");
    for (n, verb, resource, fault) in [
        (5, "create", "pods", Fault::LostAnswer),
        (7, "create", "pods", Fault::InternalError),
        (6, "patch", "pods/status", Fault::Conflict),
        (11, "patch", "pods/status", Fault::LostAnswer),
        (4, "patch", "replicasets/status", Fault::LostAnswer),
        (3, "update", "jobs/status", Fault::LostAnswer),
        (5, "delete", "pods", Fault::LostAnswer),
        (
            9,
            "",
            "",
            Fault::TooManyRequests {
                retry_after_seconds: 1,
            },
        ),
        (
            2,
            "watch",
            "pods",
            Fault::TruncateWatch { after_events: 40 },
        ),
        (3, "watch", "pods", Fault::Expired { after_events: 25 }),
        (
            2,
            "watch",
            "replicasets",
            Fault::EndWatch { after_events: 5 },
        ),
    ] {
        faults.every(n, Matching::new(verb, resource), fault);
    }
    let local = local::start(bad, String::new(), short());
    local.synced().await;
    let healthy = local::start(good.clone(), String::new(), short());
    healthy.synced().await;
    healthy.nodes().add_demo(3).await.unwrap();
    healthy.stop().await;
    let binder = tokio::spawn(support::bind_in_turn(good.clone()));

    let deployments: Api<Deployment> = Api::default_namespaced(good.clone());
    deployments
        .create(&PostParams::default(), &object(deployment("web", 25)))
        .await
        .unwrap();
    let jobs: Api<Job> = Api::default_namespaced(good.clone());
    let mut template = template("batch", "app:1");
    template["metadata"]["annotations"] = json!({local::RUN_FOR: "20ms"});
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"metadata": {"name": "batch"}, "spec": {"completions": 10, "parallelism": 4, "template": template}});
    jobs.create(&PostParams::default(), &object(job))
        .await
        .unwrap();

    let pods: Api<Pod> = Api::default_namespaced(good.clone());
    let states = |app: &'static str| {
        let pods = pods.clone();
        async move {
            let pods = pods
                .list(&ListParams::default().labels(&format!("app={app}")))
                .await
                .unwrap()
                .items;
            pods.iter()
                .map(|pod| (pod.name_any(), is_ready(pod)))
                .collect::<Vec<_>>()
        }
    };
    eventually("exactly the wanted pods run", || async {
        let now = states("web").await;
        if now.len() == 25 && now.iter().all(|(_, ready)| *ready) {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
    let status = eventually("the job is complete", || async {
        let status = jobs.get("batch").await.unwrap().status.unwrap_or_default();
        if status.completion_time.is_some() {
            Ok(status)
        } else {
            Err(status)
        }
    })
    .await;
    assert_eq!(
        (status.succeeded, status.failed.unwrap_or(0)),
        (Some(10), 0)
    );
    assert!(
        faults.struck() > 20,
        "the connection was bad: {}",
        faults.struck()
    );

    deployments
        .delete("web", &Default::default())
        .await
        .unwrap();
    eventually("and everything is removed", || async {
        let now = states("web").await;
        if now.is_empty() { Ok(()) } else { Err(now) }
    })
    .await;
    binder.abort();
    local.stop().await;
}
