//! The plan for a Job, from its pods and its counters.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::batch::v1::JobCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::{
    count::{Count, completed, count, to_i32},
    member::{index_of, is_tracked},
};
use crate::objects::{
    Job, Pod,
    job::{JobSpec, JobStatus},
};

/// The most pods to create, delete or count in one plan.
pub(super) const BURST: usize = 500;
/// The longest backoff of the real controller.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct JobPlan {
    /// Pods to create; those of an indexed Job have an index.
    pub(super) create: Vec<Option<i32>>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods whose finalizer is no longer needed.
    pub(super) release: Vec<Arc<Pod>>,
    /// The status, if it changes.
    pub(super) status: Option<JobStatus>,
    /// The Job finished long enough ago to be deleted.
    pub(super) remove_job: bool,
    pub(super) warnings: Vec<String>,
    pub(super) recheck: Option<Duration>,
}

/// The plan for `job`, which owns `pods`; `retry` is the backoff after the first failed pod.
pub(super) fn plan(job: &Job, pods: &[Arc<Pod>], retry: Duration, now: Timestamp) -> JobPlan {
    let spec = &job.spec;
    let mut plan = JobPlan::default();
    let finished = finished_at(&job.status);
    if finished.is_some() || job.metadata.deletion_timestamp.is_some() {
        plan.release = pods.iter().filter(|pod| is_tracked(pod)).cloned().collect();
        if let Some((finished, ttl)) = finished.zip(spec.ttl_seconds_after_finished) {
            let left = SignedDuration::from_secs(ttl.into()) - now.duration_since(finished);
            plan.recheck = Duration::try_from(left).ok().filter(|left| !left.is_zero());
            plan.remove_job = plan.recheck.is_none();
        }
        return plan;
    }
    if job.status.start_time.is_none() {
        plan.warnings = unsupported(spec);
    }
    let mut status = job.status.clone();
    let count = count(spec, &mut status, pods);
    let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).collect();
    suspend_or_resume(&mut status, spec.suspend, now);
    let verdict = verdict(spec, &status, &count, &active, now);
    let mut stop = Vec::new();
    if let Some(verdict) = &verdict {
        stop.clone_from(&active);
        set_condition(
            &mut status,
            verdict.sign,
            "True",
            verdict.reason,
            verdict.message,
            now,
        );
    } else if spec.suspend {
        stop.clone_from(&active);
    } else {
        let wanted = wanted(spec, &count, active.len());
        stop = surplus(&active, active.len().saturating_sub(wanted));
        let missing = wanted.saturating_sub(active.len() + replaced_later(spec, pods));
        let wait = retry_wait(pods, retry, now);
        if missing > 0 && wait.is_zero() {
            plan.create = new_pods(spec, &status, &active, missing.min(BURST));
        } else if missing > 0 {
            plan.recheck = Some(wait);
        }
        plan.recheck = plan
            .recheck
            .into_iter()
            .chain(until_deadline(spec, &status, now))
            .min();
    }
    // Pods that the Job itself deletes are no failures: they are released without being counted.
    plan.delete = stop.into_iter().take(BURST).cloned().collect();
    plan.release = count.counted;
    plan.release
        .extend(plan.delete.iter().filter(|pod| is_tracked(pod)).cloned());

    status.active = to_i32(active.len());
    status.ready = to_i32(active.iter().filter(|pod| pod.is_ready()).count());
    status.terminating = to_i32(stopping(pods));
    if let Some(verdict) = verdict
        && status.active == 0
        && status.terminating == 0
        && count.none_left
    {
        set_condition(
            &mut status,
            verdict.end,
            "True",
            verdict.reason,
            verdict.message,
            now,
        );
        status.completion_time = (verdict.end == "Complete").then_some(Time(now));
    }
    plan.status = (status != job.status).then_some(status);
    plan
}

fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let is_end =
        |c: &&JobCondition| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True";
    let end = status.conditions.iter().find(is_end)?;
    end.last_transition_time.as_ref().map(|time| time.0)
}

fn unsupported(spec: &JobSpec) -> Vec<String> {
    let fields = [
        (spec.pod_failure_policy.is_some(), "podFailurePolicy"),
        (spec.success_policy.is_some(), "successPolicy"),
        (
            spec.backoff_limit_per_index.is_some(),
            "backoffLimitPerIndex",
        ),
    ];
    let used = fields.into_iter().filter(|(used, _)| *used);
    used.map(|(_, field)| format!("spec.{field} has no effect on the embedded cluster"))
        .collect()
}

fn stopping(pods: &[Arc<Pod>]) -> usize {
    pods.iter()
        .filter(|pod| pod.is_deleting() && !pod.is_finished())
        .count()
}

fn suspend_or_resume(status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let was = status
        .conditions
        .iter()
        .any(|c| c.type_ == "Suspended" && c.status == "True");
    if suspended {
        status.start_time = None;
        set_condition(
            status,
            "Suspended",
            "True",
            "JobSuspended",
            "Job suspended",
            now,
        );
    } else {
        status.start_time.get_or_insert(Time(now));
        if was {
            set_condition(
                status,
                "Suspended",
                "False",
                "JobResumed",
                "Job resumed",
                now,
            );
        }
    }
}

/// How a Job ends: first a condition that it will end, then, when its pods are gone, the final condition.
struct Verdict {
    sign: &'static str,
    end: &'static str,
    reason: &'static str,
    message: &'static str,
}

const TOO_MANY_FAILURES: Verdict = Verdict {
    sign: "FailureTarget",
    end: "Failed",
    reason: "BackoffLimitExceeded",
    message: "Job has reached the specified backoff limit",
};
const TOO_LATE: Verdict = Verdict {
    sign: "FailureTarget",
    end: "Failed",
    reason: "DeadlineExceeded",
    message: "Job was active longer than specified deadline",
};
const DONE: Verdict = Verdict {
    sign: "SuccessCriteriaMet",
    end: "Complete",
    reason: "CompletionsReached",
    message: "Reached expected number of succeeded pods",
};

fn verdict(
    spec: &JobSpec,
    status: &JobStatus,
    count: &Count,
    active: &[&Arc<Pod>],
    now: Timestamp,
) -> Option<Verdict> {
    // The condition stays, whatever the pods do while they stop.
    let given = |verdict: &Verdict| {
        let mut signs = status
            .conditions
            .iter()
            .filter(|c| c.type_ == verdict.sign && c.status == "True");
        signs.any(|c| c.reason.as_deref() == Some(verdict.reason))
    };
    if let Some(verdict) = [TOO_MANY_FAILURES, TOO_LATE, DONE].into_iter().find(given) {
        return Some(verdict);
    }
    let limit = spec.backoff_limit.unwrap_or(6);
    let restarts = if spec.restarts_failed_pods() {
        active
            .iter()
            .fold(0, |sum: i32, pod| sum.saturating_add(pod.restarts()))
    } else {
        0
    };
    if count.failed > limit || (restarts > 0 && restarts >= limit) {
        return Some(TOO_MANY_FAILURES);
    }
    if until_deadline(spec, status, now) == Some(Duration::ZERO) {
        return Some(TOO_LATE);
    }
    let done = match spec.completions {
        Some(completions) => count.succeeded >= completions,
        None => count.succeeded > 0 && active.is_empty(),
    };
    done.then_some(DONE)
}

fn until_deadline(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let deadline = SignedDuration::from_secs(spec.active_deadline_seconds?);
    let started = status.start_time.as_ref()?.0;
    let left = deadline.saturating_sub(now.duration_since(started));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn wanted(spec: &JobSpec, count: &Count, active: usize) -> usize {
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let wanted = match spec.completions {
        Some(completions) => parallelism.min(completions.saturating_sub(count.succeeded)),
        // A work queue Job: after the first success the other pods finish and none is added.
        None if count.succeeded > 0 => return active,
        None => parallelism,
    };
    usize::try_from(wanted).unwrap_or(0)
}

/// Terminating pods, if the Job's policy replaces them only when they have ended.
fn replaced_later(spec: &JobSpec, pods: &[Arc<Pod>]) -> usize {
    if spec.pod_replacement_policy == "Failed" {
        stopping(pods)
    } else {
        0
    }
}

/// The least active pods first.
fn surplus<'a>(active: &[&'a Arc<Pod>], count: usize) -> Vec<&'a Arc<Pod>> {
    let mut sorted = active.to_vec();
    sorted.sort_by_key(|pod| (pod.is_bound(), pod.is_ready(), pod.metadata.name.clone()));
    sorted.truncate(count);
    sorted
}

/// The backoff before the next pod, from the failures since the last success.
fn retry_wait(pods: &[Arc<Pod>], retry: Duration, now: Timestamp) -> Duration {
    let ended = |phase: &'static str| {
        pods.iter()
            .filter(move |pod| pod.status.phase == phase)
            .filter_map(|pod| pod.ended())
    };
    let success = ended("Succeeded").max();
    let failures: Vec<Timestamp> = ended("Failed")
        .filter(|end| success.is_none_or(|success| *end > success))
        .collect();
    let Some(last) = failures.iter().max() else {
        return Duration::ZERO;
    };
    let doublings = u32::try_from(failures.len() - 1)
        .unwrap_or(u32::MAX)
        .min(16);
    let wait = retry.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let since = Duration::try_from(now.duration_since(*last)).unwrap_or(Duration::ZERO);
    wait.saturating_sub(since)
}

fn new_pods(
    spec: &JobSpec,
    status: &JobStatus,
    active: &[&Arc<Pod>],
    count: usize,
) -> Vec<Option<i32>> {
    if !spec.is_indexed() {
        return vec![None; count];
    }
    let mut taken = completed(spec, status);
    let indexes = active.iter().filter_map(|pod| index_of(pod));
    indexes.for_each(|index| taken.insert(index));
    let free = taken.missing(spec.completions.unwrap_or(0));
    free.take(count).map(Some).collect()
}

fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    truth: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    if conditions
        .iter()
        .any(|c| c.type_ == type_ && c.status == truth)
    {
        return;
    }
    conditions.retain(|c| c.type_ != type_);
    conditions.push(JobCondition {
        type_: type_.into(),
        status: truth.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
}

#[cfg(test)]
mod tests {
    use super::super::member::{INDEX, TRACKING};
    use super::*;
    use crate::objects::pod::testing::{merge, pod};
    use serde_json::{Value, json};

    const RETRY: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(spec: Value) -> Job {
        let mut whole = json!({
            "metadata": {"namespace": "ns", "name": "j", "uid": "j"},
            "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 1, "template": {"spec": {"containers": [], "restartPolicy": "Never"}}},
        });
        merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    fn member(name: &str, phase: &str, tracked: bool) -> Arc<Pod> {
        let finalizers: &[&str] = if tracked { &[TRACKING] } else { &[] };
        let end = json!([{"state": {"terminated": {"finishedAt": at(100).to_string()}}}]);
        let containers = if phase == "Running" { json!([]) } else { end };
        Arc::new(pod(
            name,
            json!({
                "metadata": {"finalizers": finalizers, "annotations": {INDEX: name.trim_start_matches('p')}},
                "status": {"phase": phase, "containerStatuses": containers},
            }),
        ))
    }

    /// Plans, writes the status and describes both in one line.
    fn next(job: &mut Job, pods: &[Arc<Pod>], now: i64) -> String {
        let plan = plan(job, pods, RETRY, at(now));
        if let Some(status) = plan.status {
            job.status = status;
        }
        let status = job.status.clone();
        let names = |pods: &[Arc<Pod>]| {
            pods.iter()
                .map(|pod| pod.name().to_owned())
                .collect::<Vec<_>>()
                .join(",")
        };
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .filter(|c| c.status == "True")
            .map(|c| c.type_.clone())
            .collect();
        let mut parts = vec![format!("{}+{}", status.succeeded, status.failed)];
        for (name, text) in [
            ("create", plan.create.len().to_string()),
            ("delete", names(&plan.delete)),
            ("release", names(&plan.release)),
            ("is", conditions.join(",")),
            (
                "recheck",
                plan.recheck
                    .map_or(String::new(), |wait| format!("{wait:?}")),
            ),
        ] {
            if !text.is_empty() && text != "0" {
                parts.push(format!("{name} {text}"));
            }
        }
        parts.join(" ")
    }

    #[test]
    fn a_job_runs_to_completion_and_counts_each_pod_once() {
        let mut job = job(json!({}));
        let run = |name| member(name, "Running", true);
        let done = |name, tracked| member(name, "Succeeded", tracked);
        for (case, pods, want) in [
            ("starts", vec![], "0+0 create 2"),
            ("runs", vec![run("p0"), run("p1")], "0+0"),
            (
                "one ends: noted first",
                vec![done("p0", true), run("p1")],
                "0+0",
            ),
            (
                "then released",
                vec![done("p0", true), run("p1")],
                "0+0 release p0",
            ),
            ("then counted", vec![done("p0", false), run("p1")], "1+0"),
            (
                "and only once, also when it is gone",
                vec![run("p1")],
                "1+0",
            ),
            (
                "the last one ends",
                vec![done("p1", true)],
                "1+0 is SuccessCriteriaMet",
            ),
            (
                "is released",
                vec![done("p1", true)],
                "1+0 release p1 is SuccessCriteriaMet",
            ),
            (
                "over",
                vec![done("p1", false)],
                "2+0 is SuccessCriteriaMet,Complete",
            ),
            ("stays over", vec![], "2+0 is SuccessCriteriaMet,Complete"),
        ] {
            assert_eq!(next(&mut job, &pods, 100), want, "{case}");
        }
        assert_eq!(job.status.completion_time, Some(Time(at(100))));
    }

    #[test]
    fn a_job_fails_after_too_many_failures_and_stops_the_rest() {
        let mut job = job(json!({"parallelism": 1}));
        let failed = |name, tracked| member(name, "Failed", tracked);
        let run = || member("p3", "Running", true);
        for (case, pods, now, want) in [
            ("starts", vec![], 90, "0+0 create 1"),
            (
                "fails: waits before the next",
                vec![failed("p1", true)],
                100,
                "0+0 recheck 10s",
            ),
            ("counted", vec![failed("p1", false)], 105, "0+1 recheck 5s"),
            (
                "tries again",
                vec![failed("p1", false)],
                110,
                "0+1 create 1",
            ),
            (
                "fails again",
                vec![failed("p1", false), failed("p2", true), run()],
                111,
                "0+1 delete p3 release p3 is FailureTarget",
            ),
            (
                "its pods go",
                vec![failed("p2", false)],
                112,
                "0+2 is FailureTarget,Failed",
            ),
        ] {
            assert_eq!(next(&mut job, &pods, now), want, "{case}");
        }
    }

    #[test]
    fn limits_and_wishes() {
        let run = |n: usize| {
            (0..n)
                .map(|i| member(&format!("p{i}"), "Running", true))
                .collect::<Vec<_>>()
        };
        let dying = |name: &str| {
            let mut pod = (*member(name, "Running", true)).clone();
            pod.metadata.deletion_timestamp = Some(Time(at(1)));
            Arc::new(pod)
        };
        for (case, spec, pods, want) in [
            (
                "no more at a time than allowed",
                json!({"completions": 9, "parallelism": 3}),
                vec![],
                "0+0 create 3",
            ),
            (
                "no more than needed",
                json!({"completions": 2, "parallelism": 9}),
                vec![],
                "0+0 create 2",
            ),
            (
                "fewer at a time",
                json!({"parallelism": 1}),
                run(2),
                "0+0 delete p0 release p0",
            ),
            (
                "suspended",
                json!({"suspend": true}),
                run(1),
                "0+0 delete p0 release p0 is Suspended",
            ),
            (
                "a deleted pod is a failed one and replaced",
                json!({}),
                vec![dying("p0")],
                "0+0 create 2",
            ),
            (
                "or replaced when it has stopped",
                json!({"podReplacementPolicy": "Failed"}),
                vec![dying("p0")],
                "0+0 create 1",
            ),
            (
                "nothing to do at all",
                json!({"completions": 0}),
                vec![],
                "0+0 is SuccessCriteriaMet,Complete",
            ),
            (
                "a queue of work",
                json!({"completions": null, "parallelism": 3}),
                run(1),
                "0+0 create 2",
            ),
        ] {
            assert_eq!(next(&mut job(spec), &pods, 50), want, "{case}");
        }
    }

    #[test]
    fn a_deadline_ends_a_job() {
        let mut job = job(json!({"activeDeadlineSeconds": 60}));
        assert_eq!(next(&mut job, &[], 0), "0+0 create 2 recheck 60s");
        let pods = [member("p0", "Running", true), member("p1", "Running", true)];
        assert_eq!(next(&mut job, &pods, 59), "0+0 recheck 1s");
        assert_eq!(
            next(&mut job, &pods, 60),
            "0+0 delete p0,p1 release p0,p1 is FailureTarget"
        );
        assert_eq!(next(&mut job, &[], 61), "0+0 is FailureTarget,Failed");
        let reason = job.status.conditions.pop().unwrap().reason;
        assert_eq!(reason.as_deref(), Some("DeadlineExceeded"));
    }

    #[test]
    fn a_finished_job_goes_when_its_time_is_over() {
        let mut job = job(json!({"completions": 0, "ttlSecondsAfterFinished": 30}));
        next(&mut job, &[], 100);
        assert_eq!(
            next(&mut job, &[], 110),
            "0+0 is SuccessCriteriaMet,Complete recheck 20s"
        );
        assert!(plan(&job, &[], RETRY, at(130)).remove_job);
    }

    #[test]
    fn indexed_jobs_run_each_index_until_it_succeeds() {
        let mut job = job(
            json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3, "backoffLimit": 9}),
        );
        let indexes = |plan: &JobPlan| {
            plan.create
                .iter()
                .copied()
                .map(Option::unwrap)
                .collect::<Vec<_>>()
        };
        assert_eq!(indexes(&plan(&job, &[], RETRY, at(0))), [0, 1, 2]);
        let pods = [
            member("p0", "Succeeded", true),
            member("p1", "Running", true),
            member("p2", "Succeeded", true),
        ];
        let first = plan(&job, &pods, RETRY, at(1));
        job.status = first.status.clone().unwrap();
        assert_eq!(job.status.completed_indexes.as_deref(), Some("0,2"));
        assert_eq!(indexes(&first), [3], "1 still runs");
        assert_eq!(next(&mut job, &pods, 2), "2+0 create 1 release p0,p2");
    }
}
