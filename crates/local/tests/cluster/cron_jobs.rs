//! CronJobs, as a client sees them.

use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{Fixture, cluster, eventually, template};

/// Creates a suspended CronJob whose last Job was long ago, and resumes it.
async fn start(fixture: &Fixture, name: &str, spec: Value) {
    let mut job = json!({"template": template(name, "app:1")});
    job["template"]["spec"]["restartPolicy"] = "Never".into();
    let mut cron = json!({"metadata": {"name": name}, "spec": {
        "schedule": "* * * * *", "suspend": true, "jobTemplate": {"spec": job},
    }});
    for (key, value) in spec.as_object().unwrap() {
        cron["spec"][key] = value.clone();
    }
    fixture.create::<CronJob>(cron).await;
    due(fixture, name).await;
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    let api = fixture.api::<CronJob>();
    api.patch(name, &PatchParams::default(), &resume)
        .await
        .unwrap();
}

/// Makes a Job due by moving back the time of the last one.
async fn due(fixture: &Fixture, name: &str) {
    let last = Timestamp::now() - SignedDuration::from_secs(90);
    let last = format!("{last:.0}");
    let fields = Patch::Merge(json!({"status": {"lastScheduleTime": last}}));
    let api = fixture.api::<CronJob>();
    api.patch_status(name, &PatchParams::default(), &fields)
        .await
        .unwrap();
}

async fn jobs_of(fixture: &Fixture, name: &str) -> Vec<Job> {
    let mut jobs = fixture.list::<Job>().await;
    jobs.retain(|job| {
        job.owner_references()
            .iter()
            .any(|owner| owner.name == name)
    });
    jobs
}

async fn reported(fixture: &Fixture, name: &str, reason: &str) -> String {
    eventually(reason, || async {
        let events = fixture.events_about(name).await;
        let found = events.iter().find(|event| event.0 == reason);
        found.map(|event| event.1.clone()).ok_or(events)
    })
    .await
}

#[tokio::test]
async fn a_job_runs_at_its_time() {
    let fixture = cluster(1).await;
    start(
        &fixture,
        "tick",
        json!({"successfulJobsHistoryLimit": 0, "timeZone": "Asia/Tokyo"}),
    )
    .await;
    let completed = reported(&fixture, "tick", "SawCompletedJob").await;
    // Another one is due if a minute ends meanwhile.
    let events = fixture.events_about("tick").await;
    let created = events.iter().filter(|it| it.0 == "SuccessfulCreate");
    let created = created.map(|it| it.1.trim_start_matches("Created job "));
    let of = |name: &str| format!("Saw completed job: {name}, condition: Complete");
    let created: Vec<String> = created.map(of).collect();
    assert!(created.contains(&completed), "{completed}: {created:?}");
    let start = "Saw completed job: tick-";
    assert!(
        created.iter().all(|it| it.starts_with(start)),
        "{created:?}"
    );
    reported(&fixture, "tick", "SuccessfulDelete").await;
    eventually("the history is short", || async {
        let jobs = jobs_of(&fixture, "tick").await;
        let status = fixture
            .api::<CronJob>()
            .get("tick")
            .await
            .unwrap()
            .status
            .unwrap();
        let idle = status.active.is_none_or(|active| active.is_empty());
        let noted = status.last_successful_time.is_some();
        if jobs.is_empty() && idle && noted {
            Ok(())
        } else {
            Err(jobs.len())
        }
    })
    .await;
    let api = fixture.api::<CronJob>();
    api.delete("tick", &DeleteParams::background())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_second_job_waits_for_the_first_or_replaces_it() {
    let fixture = cluster(0).await;
    start(&fixture, "wait", json!({"concurrencyPolicy": "Forbid"})).await;
    start(&fixture, "swap", json!({"concurrencyPolicy": "Replace"})).await;
    for name in ["wait", "swap"] {
        reported(&fixture, name, "SuccessfulCreate").await;
    }
    let first = jobs_of(&fixture, "swap").await;
    for name in ["wait", "swap"] {
        due(&fixture, name).await;
    }
    reported(&fixture, "wait", "JobAlreadyActive").await;
    assert_eq!(jobs_of(&fixture, "wait").await.len(), 1);
    reported(&fixture, "swap", "SuccessfulDelete").await;
    eventually("another job is there", || async {
        let jobs = jobs_of(&fixture, "swap").await;
        if jobs.len() == 1 && jobs[0].uid() != first[0].uid() {
            Ok(())
        } else {
            Err(jobs.len())
        }
    })
    .await;
}
