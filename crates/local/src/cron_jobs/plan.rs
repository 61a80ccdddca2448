//! The plan for a CronJob: whether a Job is due, and which finished Jobs go.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::{batch::v1::JobCondition, core::v1::ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::Resource;
use serde_json::{Value, json};

use super::schedule::Schedule;
use crate::{
    events::Report,
    objects::{CronJob, Job, cron_job::CronJobStatus},
    ownership::controlled_by,
};

/// Annotation of a Job: the time that it was due.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed times than this are reported.
const MANY_MISSED: usize = 100;

#[derive(Debug, Default)]
pub(super) struct CronPlan {
    pub(super) create: Option<NewJob>,
    pub(super) delete: Vec<Arc<Job>>,
    pub(super) reports: Vec<Report>,
    /// The status without the new Job, if it changes.
    pub(super) status: Option<CronJobStatus>,
    /// The time until the next Job is due.
    pub(super) recheck: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct NewJob {
    pub(super) name: String,
    pub(super) job: Value,
    pub(super) due: Timestamp,
}

/// The plan for `cron`, which owns `jobs`.
pub(super) fn plan(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> CronPlan {
    let mut plan = CronPlan::default();
    let active: Vec<&Arc<Job>> = jobs.iter().filter(|job| end(job).is_none()).collect();
    let status = status(cron, jobs, &active, &mut plan.reports);
    plan.status = (status != cron.status).then_some(status);
    let limits = [
        ("Complete", cron.spec.successful_jobs_history_limit),
        ("Failed", cron.spec.failed_jobs_history_limit),
    ];
    for (condition, limit) in limits {
        plan.delete.extend(beyond_history(jobs, condition, limit));
    }
    if cron.metadata.deletion_timestamp.is_some() || cron.spec.suspend {
        return plan;
    }
    let (schedule, zone) = match read(cron) {
        Ok(read) => read,
        Err(report) => {
            plan.reports.push(report);
            return plan;
        }
    };
    let next = schedule.next(now, &zone);
    let wait = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    plan.recheck = wait.map(|wait| wait.max(Duration::from_millis(1)));
    let Some(due) = due(cron, &schedule, &zone, now, &mut plan.reports) else {
        return plan;
    };
    match cron.spec.concurrency_policy.as_str() {
        "Forbid" if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.reports
                .push(Report::normal("JobAlreadyActive", message));
            return plan;
        }
        "Replace" if !active.is_empty() => {
            let status = plan.status.get_or_insert_with(|| cron.status.clone());
            status.active.clear();
            plan.delete.extend(active.into_iter().cloned());
        }
        _ => {}
    }
    plan.create = Some(new(cron, due, &zone));
    plan
}

fn read(cron: &CronJob) -> Result<(Schedule, TimeZone), Report> {
    let spec = &cron.spec;
    let zone = match &spec.time_zone {
        None => TimeZone::UTC,
        Some(name) => TimeZone::get(name).map_err(|error| {
            Report::warning(
                "UnknownTimeZone",
                format!("invalid timeZone: {name:?}: {error}"),
            )
        })?,
    };
    let schedule = Schedule::parse(&spec.schedule).map_err(|error| {
        let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
        Report::warning("UnparseableSchedule", message)
    })?;
    Ok((schedule, zone))
}

/// The last time that a Job should have started, unless one has, or it is too late.
fn due(
    cron: &CronJob,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
    reports: &mut Vec<Report>,
) -> Option<Timestamp> {
    let created = cron.metadata.creation_timestamp.as_ref();
    let last = cron.status.last_schedule_time.as_ref();
    let earliest = last.or(created).map_or(now, |time| time.0);
    let due = schedule.latest(earliest, now, zone)?;
    let deadline = cron.spec.starting_deadline_seconds;
    if let Some(deadline) = deadline
        && now.duration_since(due) > SignedDuration::from_secs(deadline)
    {
        let message = format!("Missed scheduled time to start a job: {due}");
        reports.push(Report::warning("MissSchedule", message));
        return None;
    }
    let mut missed = std::iter::successors(schedule.next(earliest, zone), |time| {
        schedule.next(*time, zone)
    });
    if deadline.is_none() && missed.nth(MANY_MISSED).is_some_and(|time| time <= now) {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        reports.push(Report::warning("TooManyMissedTimes", message));
    }
    Some(due)
}

fn new(cron: &CronJob, due: Timestamp, zone: &TimeZone) -> NewJob {
    let template = &cron.spec.job_template;
    // Equal times give equal names, so that no time gets two Jobs.
    let name = format!("{}-{}", cron.name(), due.as_second() / 60);
    let mut meta = json!({"name": name, "ownerReferences": [controlled_by(cron)]});
    for key in ["labels", "annotations"] {
        if template["metadata"][key].is_object() {
            meta[key] = template["metadata"][key].clone();
        }
    }
    let local = due.to_zoned(zone.clone());
    meta["annotations"][SCHEDULED] = local
        .timestamp()
        .display_with_offset(local.offset())
        .to_string()
        .into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": template["spec"],
    });
    NewJob { name, job, due }
}

/// The condition that ended a Job.
fn end(job: &Job) -> Option<&JobCondition> {
    let mut conditions = job.status.conditions.iter();
    conditions.find(|it| ["Complete", "Failed"].contains(&it.type_.as_str()) && it.status == "True")
}

fn status(
    cron: &CronJob,
    jobs: &[Arc<Job>],
    active: &[&Arc<Job>],
    reports: &mut Vec<Report>,
) -> CronJobStatus {
    let mut status = cron.status.clone();
    status.active = active.iter().map(|job| reference(job)).collect();
    for before in &cron.status.active {
        let name = before.name.as_deref().unwrap_or_default();
        let job = jobs.iter().find(|job| job.metadata.uid == before.uid);
        let Some(job) = job else {
            let message = format!("Active job went missing: {name}");
            reports.push(Report::normal("MissingJob", message));
            continue;
        };
        if let Some(end) = end(job) {
            let message = format!("Saw completed job: {name}, condition: {}", end.type_);
            reports.push(Report::normal("SawCompletedJob", message));
        }
    }
    let completed = jobs
        .iter()
        .filter_map(|job| job.status.completion_time.clone());
    let last = completed.map(|time| time.0).max();
    let before = status.last_successful_time.as_ref().map(|time| time.0);
    status.last_successful_time = last.max(before).map(Time);
    status
}

/// The reference to an active Job.
pub(super) fn reference(job: &Job) -> ObjectReference {
    // Without the revision, which changes while the Job is active.
    ObjectReference {
        resource_version: None,
        ..job.object_ref(&())
    }
}

/// The oldest Jobs that ended this way, beyond the limit.
fn beyond_history(jobs: &[Arc<Job>], condition: &str, limit: Option<i32>) -> Vec<Arc<Job>> {
    let Some(limit) = limit else {
        return Vec::new();
    };
    let ended = |job: &&Arc<Job>| end(job).is_some_and(|end| end.type_ == condition);
    let mut ended: Vec<Arc<Job>> = jobs.iter().filter(ended).cloned().collect();
    ended.sort_by_key(|job| {
        let start = job.status.start_time.as_ref().map(|time| time.0);
        (start, job.metadata.name.clone())
    });
    ended.truncate(
        ended
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(0)),
    );
    ended.retain(|job| job.metadata.deletion_timestamp.is_none());
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::merge;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cron(spec: Value, last: &str) -> CronJob {
        let mut whole = json!({
            "metadata": {"name": "tick", "namespace": "ns", "uid": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "schedule": "0 * * * *", "concurrencyPolicy": "Allow",
                "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0,
                "jobTemplate": {"metadata": {"labels": {"app": "tick"}}, "spec": {"x": 1}},
            },
            "status": {"lastScheduleTime": last},
        });
        merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    fn job(name: &str, end: Option<&str>) -> Arc<Job> {
        let conditions: Vec<Value> = end
            .iter()
            .map(|end| json!({"type": end, "status": "True"}))
            .collect();
        let job = json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {},
            "status": {"conditions": conditions},
        });
        Arc::new(serde_json::from_value(job).unwrap())
    }

    #[test]
    fn a_job_starts_when_it_is_due() {
        let (before, after) = ("2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z");
        let busy = || vec![job("tick-1", None)];
        for (case, spec, last, jobs, created, deleted, reason) in [
            ("due", json!({}), before, vec![], true, 0, ""),
            ("started already", json!({}), after, vec![], false, 0, ""),
            (
                "suspended",
                json!({"suspend": true}),
                before,
                vec![],
                false,
                0,
                "",
            ),
            ("a second one", json!({}), before, busy(), true, 0, ""),
            (
                "not a second one",
                json!({"concurrencyPolicy": "Forbid"}),
                before,
                busy(),
                false,
                0,
                "JobAlreadyActive",
            ),
            (
                "in place of it",
                json!({"concurrencyPolicy": "Replace"}),
                before,
                busy(),
                true,
                1,
                "",
            ),
            (
                "too late",
                json!({"startingDeadlineSeconds": 60}),
                before,
                vec![],
                false,
                0,
                "MissSchedule",
            ),
            (
                "a bad schedule",
                json!({"schedule": "often"}),
                before,
                vec![],
                false,
                0,
                "UnparseableSchedule",
            ),
            (
                "a bad zone",
                json!({"timeZone": "Moon/Base"}),
                before,
                vec![],
                false,
                0,
                "UnknownTimeZone",
            ),
            (
                "long ago",
                json!({"schedule": "* * * * *"}),
                "2025-12-01T00:00:00Z",
                vec![],
                true,
                0,
                "TooManyMissedTimes",
            ),
        ] {
            let plan = plan(&cron(spec, last), &jobs, at("2026-01-01T02:05:00Z"));
            assert_eq!(plan.create.is_some(), created, "{case}");
            assert_eq!(plan.delete.len(), deleted, "{case}");
            let reason_found = plan.reports.first().map_or("", |report| report.reason);
            assert_eq!(reason_found, reason, "{case}");
        }
        let made = plan(
            &cron(json!({"timeZone": "Asia/Tokyo"}), before),
            &[],
            at("2026-01-01T02:05:00Z"),
        );
        assert_eq!(made.recheck, Some(Duration::from_secs(55 * 60)));
        let made = made.create.unwrap();
        assert_eq!(made.name, "tick-29453880");
        assert_eq!(made.job["metadata"]["labels"]["app"], "tick");
        assert_eq!(
            made.job["metadata"]["annotations"][SCHEDULED],
            "2026-01-01T11:00:00+09:00"
        );
    }

    #[test]
    fn finished_jobs_are_reported_and_go() {
        let mut cron = cron(json!({"suspend": true}), "2026-01-01T01:00:00Z");
        let jobs = [
            job("a", Some("Complete")),
            job("b", Some("Complete")),
            job("c", Some("Failed")),
            job("d", None),
        ];
        cron.status.active = vec![reference(&jobs[1]), reference(&job("gone", None))];
        let plan = plan(&cron, &jobs, at("2026-01-01T02:05:00Z"));
        let names: Vec<_> = plan
            .delete
            .iter()
            .map(|job| job.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(names, ["a", "c"]);
        let messages: Vec<_> = plan
            .reports
            .iter()
            .map(|report| report.message.as_str())
            .collect();
        assert_eq!(
            messages,
            [
                "Saw completed job: b, condition: Complete",
                "Active job went missing: gone"
            ]
        );
        assert_eq!(plan.status.unwrap().active, [reference(&jobs[3])]);
    }
}
