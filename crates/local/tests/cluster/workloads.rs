//! Deployments, ReplicaSets, Jobs and disruption budgets, as a client sees them.

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    core::v1::{Event, Pod, ReplicationController},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    nodes::{CORDONED, node_is},
    support::{Fixture, cluster, deployment, eventually, gone, is_ready, template},
};

/// What `kubectl rollout status` waits for.
async fn rolled_out(fixture: &Fixture, name: &str) -> Deployment {
    eventually(&format!("{name} is rolled out"), || async {
        let deployment = fixture.api::<Deployment>().get(name).await.unwrap();
        let status = deployment.status.clone().unwrap_or_default();
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let done = status.observed_generation == deployment.metadata.generation
            && [
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
            ]
            .iter()
            .all(|n| *n == wanted);
        if done { Ok(deployment) } else { Err(status) }
    })
    .await
}

async fn patch<K>(api: &Api<K>, name: &str, fields: Value) -> K
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Strategic(fields))
        .await
        .unwrap()
}

fn image(tag: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": tag}]}}}})
}

#[tokio::test]
async fn a_deployment_rolls_out_without_losing_availability() {
    let fixture = cluster(3).await;
    fixture.create::<Deployment>(deployment("web", 8)).await;
    let first = rolled_out(&fixture, "web").await;
    assert_eq!(
        first.annotations()["deployment.kubernetes.io/revision"],
        "1"
    );
    let condition = |deployment: &Deployment, type_: &str| {
        let conditions = deployment.status.clone().unwrap().conditions.unwrap();
        let found = conditions.into_iter().find(|c| c.type_ == type_).unwrap();
        (found.status, found.reason.unwrap())
    };
    assert_eq!(
        condition(&first, "Available"),
        ("True".into(), "MinimumReplicasAvailable".into())
    );

    patch(&fixture.api::<Deployment>(), "web", image("app:2")).await;
    // Eight wanted, a quarter may be missing and a quarter too many.
    eventually("the second revision is out", || async {
        let pods = fixture.pods("web").await;
        let live = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .count();
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        assert!(ready >= 6 && live <= 10, "{ready} ready of {live}");
        let new = pods.iter().filter(|pod| {
            is_ready(pod)
                && pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some("app:2")
        });
        let new = new.count();
        if new == 8 && pods.len() == 8 {
            Ok(())
        } else {
            Err(new)
        }
    })
    .await;
    let second = rolled_out(&fixture, "web").await;
    assert_eq!(
        second.annotations()["deployment.kubernetes.io/revision"],
        "2"
    );
    eventually("progress is told", || async {
        let deployment = fixture.api::<Deployment>().get("web").await.unwrap();
        let told = condition(&deployment, "Progressing");
        if told == ("True".into(), "NewReplicaSetAvailable".into()) {
            Ok(())
        } else {
            Err(told)
        }
    })
    .await;

    patch(&fixture.api::<Deployment>(), "web", image("app:1")).await;
    fixture.ready("web", 8).await;
    let back = rolled_out(&fixture, "web").await;
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision"], "3");
    let sets = fixture
        .api::<ReplicaSet>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(sets.items.len(), 2, "a rollback takes the old set again");
}

#[tokio::test]
async fn a_deployment_follows_its_size_and_strategy() {
    let fixture = cluster(2).await;
    let mut recreate = deployment("web", 3);
    recreate["spec"]["strategy"] = json!({"type": "Recreate"});
    fixture.create::<Deployment>(recreate).await;
    fixture.ready("web", 3).await;
    for size in [6, 1, 0, 2] {
        patch(
            &fixture.api::<Deployment>(),
            "web",
            json!({"spec": {"replicas": size}}),
        )
        .await;
        fixture.ready("web", size).await;
        rolled_out_or_empty(&fixture, size).await;
    }
    patch(&fixture.api::<Deployment>(), "web", image("app:2")).await;
    eventually("only new pods are there", || async {
        let pods = fixture.pods("web").await;
        let images: Vec<_> = pods
            .iter()
            .map(|pod| {
                pod.spec.as_ref().unwrap().containers[0]
                    .image
                    .clone()
                    .unwrap()
            })
            .collect();
        let mixed = images.iter().any(|i| i == "app:1") && images.iter().any(|i| i == "app:2");
        assert!(!mixed, "Recreate never runs both: {images:?}");
        if images == ["app:2", "app:2"] {
            Ok(())
        } else {
            Err(images)
        }
    })
    .await;
}

async fn rolled_out_or_empty(fixture: &Fixture, size: usize) {
    eventually("the status follows", || async {
        let status = fixture
            .api::<Deployment>()
            .get("web")
            .await
            .unwrap()
            .status
            .unwrap();
        let ready = usize::try_from(status.ready_replicas.unwrap_or(0)).unwrap();
        if ready == size { Ok(()) } else { Err(status) }
    })
    .await;
}

#[tokio::test]
async fn a_replica_set_replaces_adopts_and_releases() {
    let fixture = cluster(2).await;
    fixture
        .create::<Pod>({
            let mut pod = template("web", "app:1");
            pod["metadata"]["name"] = "older".into();
            pod
        })
        .await;
    fixture.create::<ReplicaSet>(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "app:1"),
    }}))
    .await;
    let pods = fixture.ready("web", 3).await;
    assert!(
        pods.iter().any(|pod| pod.name_any() == "older"),
        "a pod that was there counts"
    );
    assert!(pods.iter().all(|pod| pod.owner_references().len() == 1));

    let taken_out = pods[0].name_any();
    patch(
        &fixture.api::<Pod>(),
        &taken_out,
        json!({"metadata": {"labels": {"app": "debug"}}}),
    )
    .await;
    fixture.ready("web", 3).await;
    eventually("it is nobody's", || async {
        let pod = fixture.api::<Pod>().get(&taken_out).await.unwrap();
        if pod.owner_references().is_empty() {
            Ok(())
        } else {
            Err(pod.owner_references().to_vec())
        }
    })
    .await;
}

#[tokio::test]
async fn a_replication_controller_keeps_its_number_of_pods() {
    let fixture = cluster(2).await;
    fixture
        .create::<ReplicationController>(json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 3, "selector": {"app": "web"}, "template": template("web", "app:1"),
        }}))
        .await;
    let pods = fixture.ready("web", 3).await;
    let owner = &pods[0].owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("ReplicationController", "web")
    );
    let api = fixture.api::<ReplicationController>();
    patch(&api, "web", json!({"spec": {"replicas": 1}})).await;
    fixture.ready("web", 1).await;
    eventually("the status follows", || async {
        let status = api.get("web").await.unwrap().status.unwrap();
        if (status.replicas, status.ready_replicas) == (1, Some(1)) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    // Without a policy, the server keeps the pods of a ReplicationController.
    api.delete("web", &DeleteParams::background())
        .await
        .unwrap();
    fixture.ready("web", 0).await;
}

#[tokio::test]
async fn events_name_the_controllers_of_kubernetes() {
    let fixture = cluster(1).await;
    fixture.create::<Deployment>(deployment("web", 2)).await;
    fixture.ready("web", 2).await;
    // A second change before the first is rolled out: its new set starts with no replicas.
    fixture.local.nodes().cordon("node-001").await.unwrap();
    node_is(&fixture, "node-001", "True", &[CORDONED]).await;
    for tag in ["app:2", "app:3"] {
        patch(&fixture.api::<Deployment>(), "web", image(tag)).await;
        eventually("the new set exists", || async {
            let sets = fixture.list::<ReplicaSet>().await;
            let has = sets.iter().any(|set| {
                let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
                let spec = template.and_then(|template| template.spec.as_ref());
                spec.is_some_and(|spec| spec.containers[0].image.as_deref() == Some(tag))
            });
            if has { Ok(()) } else { Err(sets.len()) }
        })
        .await;
    }
    let scaled = fixture.events_about("web").await;
    assert!(
        scaled.iter().any(|event| event.1.contains("from 0 to 2")),
        "{scaled:?}"
    );
    assert!(
        !scaled.iter().any(|event| event.1.contains("from 0 to 0")),
        "{scaled:?}"
    );
    fixture
        .create::<Job>(job(
            "j",
            json!({}),
            json!({local::RUN_FOR: "10ms", local::EXIT_CODE: "soon"}),
        ))
        .await;
    fixture.local.nodes().uncordon("node-001").await.unwrap();
    job_is(&fixture, "j", "Complete").await;
    eventually("the events are written", || async {
        let events = fixture.list::<Event>().await;
        let mut found: Vec<String> = events
            .iter()
            .map(|event| {
                let kind = event.involved_object.kind.clone().unwrap();
                let source = event.source.clone().unwrap().component.unwrap();
                format!("{kind} {source} {}", event.reason.clone().unwrap())
            })
            .collect();
        found.sort();
        found.dedup();
        let want = [
            "Deployment deployment-controller ScalingReplicaSet",
            "Job job-controller Completed",
            "Job job-controller SuccessfulCreate",
            "Pod kubelet InvalidAnnotation",
        ];
        if want.iter().all(|want| found.iter().any(|it| it == want)) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
}

fn job(name: &str, spec: Value, annotations: Value) -> Value {
    let mut job =
        json!({"metadata": {"name": name}, "spec": {"template": template(name, "app:1")}});
    job["spec"]["template"]["metadata"]["annotations"] = annotations;
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

async fn job_is(fixture: &Fixture, name: &str, condition: &str) -> Job {
    eventually(&format!("{name} is {condition}"), || async {
        let job = fixture.api::<Job>().get(name).await.unwrap();
        let status = job.status.clone().unwrap_or_default();
        let is = status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == condition && c.status == "True");
        if is { Ok(job) } else { Err(status) }
    })
    .await
}

#[tokio::test]
async fn jobs_run_to_their_end() {
    let fixture = cluster(2).await;
    let quick = json!({local::RUN_FOR: "30ms"});
    fixture
        .create::<Job>(job(
            "good",
            json!({"completions": 7, "parallelism": 3}),
            quick.clone(),
        ))
        .await;
    fixture
        .create::<Job>(job(
            "indexed",
            json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"}),
            quick,
        ))
        .await;
    fixture
        .create::<Job>(job(
            "bad",
            json!({"backoffLimit": 2}),
            json!({local::RUN_FOR: "10ms", local::EXIT_CODE: "1"}),
        ))
        .await;

    fixture
        .create::<Job>(job("plain", json!({}), json!({})))
        .await;

    let good = job_is(&fixture, "good", "Complete").await.status.unwrap();
    assert_eq!(
        (
            good.succeeded,
            good.failed.unwrap_or(0),
            good.active.unwrap_or(0)
        ),
        (Some(7), 0, 0)
    );
    assert_eq!(fixture.pods("good").await.len(), 7, "never one too many");
    let indexed = job_is(&fixture, "indexed", "Complete")
        .await
        .status
        .unwrap();
    assert_eq!(indexed.completed_indexes.as_deref(), Some("0-3"));
    job_is(&fixture, "plain", "Complete").await;
    let bad = job_is(&fixture, "bad", "Failed").await.status.unwrap();
    assert_eq!((bad.succeeded.unwrap_or(0), bad.failed), (0, Some(3)));
    let left = fixture.pods("good").await;
    assert!(
        left.iter().all(|pod| pod.finalizers().is_empty()),
        "counted pods can be deleted"
    );
}

#[tokio::test]
async fn a_job_counts_pods_that_are_gone() {
    let fixture = cluster(1).await;
    fixture
        .create::<Job>(job(
            "j",
            json!({"completions": 4, "parallelism": 1}),
            json!({local::RUN_FOR: "20ms"}),
        ))
        .await;
    // A job ends even if its finished pods are deleted at once.
    eventually("it is complete", || async {
        for pod in fixture.pods("j").await {
            if crate::support::phase(&pod) == "Succeeded" {
                let _ = fixture
                    .api::<Pod>()
                    .delete(&pod.name_any(), &Default::default())
                    .await;
            }
        }
        let status = fixture
            .api::<Job>()
            .get("j")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        if status.completion_time.is_some() {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let status = fixture.api::<Job>().get("j").await.unwrap().status.unwrap();
    assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(4), 0));
}

#[tokio::test]
async fn a_finished_job_goes_after_its_time() {
    let fixture = cluster(1).await;
    fixture
        .create::<Job>(job(
            "j",
            json!({"ttlSecondsAfterFinished": 1}),
            json!({local::RUN_FOR: "10ms"}),
        ))
        .await;
    gone(&fixture.api::<Job>(), "j").await;
    fixture.ready("j", 0).await;
}

#[tokio::test]
async fn budgets_allow_the_evictions_that_they_can() {
    let fixture = cluster(2).await;
    fixture.create::<Deployment>(deployment("web", 3)).await;
    fixture
        .create::<PodDisruptionBudget>(json!({"metadata": {"name": "web"}, "spec": {
            "maxUnavailable": "34%", "selector": {"matchLabels": {"app": "web"}},
        }}))
        .await;
    let pods = fixture.ready("web", 3).await;
    let budget_is = |allowed: i32| {
        let budgets = fixture.api::<PodDisruptionBudget>();
        eventually("the budget is up to date", move || {
            let budgets = budgets.clone();
            async move {
                let status = budgets.get("web").await.unwrap().status.unwrap_or_default();
                let numbers = [
                    status.expected_pods,
                    status.desired_healthy,
                    status.disruptions_allowed,
                ];
                if numbers == [Some(3), Some(1), Some(allowed)] {
                    Ok(())
                } else {
                    Err(status)
                }
            }
        })
    };
    // A third of three, rounded up, is two.
    budget_is(2).await;
    // No replacement starts meanwhile, however slow this test is.
    for node in ["node-001", "node-002"] {
        fixture.local.nodes().cordon(node).await.unwrap();
        node_is(&fixture, node, "True", &[CORDONED]).await;
    }
    let api = fixture.api::<Pod>();
    let evict = |pod: &Pod| {
        let (api, name) = (api.clone(), pod.name_any());
        async move { api.evict(&name, &EvictParams::default()).await }
    };
    evict(&pods[0]).await.unwrap();
    evict(&pods[1]).await.unwrap();
    match evict(&pods[2]).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429),
        other => panic!("the budget is spent, but: {other:?}"),
    }
    for node in ["node-001", "node-002"] {
        fixture.local.nodes().uncordon(node).await.unwrap();
    }
    fixture.ready("web", 3).await;
    budget_is(2).await;
}
