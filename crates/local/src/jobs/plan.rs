//! Decides what a Job needs next from its pods and its own counters.
//!
//! A finished pod is counted exactly once, also across lost answers: it keeps a finalizer until its uid is
//! in the Job's status, and the uid stays there until the finalizer is gone.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods},
        core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod as NewPod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::pod::Pod;

/// The finalizer of pods that have not been counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Pods made, removed or counted in one go.
const BURST: usize = 500;
/// The real controller's longest wait between retries.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Vec<NewJobPod>,
    pub(super) delete: Vec<Arc<Pod>>,
    /// Pods that need not wait to be counted any longer.
    pub(super) release: Vec<Arc<Pod>>,
    pub(super) status: Option<JobStatus>,
    /// It finished long enough ago.
    pub(super) remove_job: bool,
    pub(super) warnings: Vec<String>,
    pub(super) recheck: Option<Duration>,
}

#[derive(Debug, PartialEq)]
pub(super) struct NewJobPod {
    pub(super) index: Option<i32>,
}

impl NewJobPod {
    /// Adds what makes a pod from the template one of this Job.
    pub(super) fn dress(&self, mut pod: NewPod) -> NewPod {
        let meta = &mut pod.metadata;
        meta.finalizers
            .get_or_insert_default()
            .push(TRACKING.into());
        let Some(index) = self.index else {
            return pod;
        };
        let prefix = meta.generate_name.take().unwrap_or_default();
        let hostname = format!("{prefix}{index}");
        meta.generate_name = Some(format!("{hostname}-"));
        for map in [&mut meta.annotations, &mut meta.labels] {
            map.get_or_insert_default()
                .insert(INDEX.into(), index.to_string());
        }
        if let Some(spec) = &mut pod.spec {
            spec.hostname.get_or_insert(hostname);
            let variable = EnvVar {
                name: "JOB_COMPLETION_INDEX".into(),
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        field_path: format!("metadata.labels['{INDEX}']"),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            };
            for container in spec
                .containers
                .iter_mut()
                .chain(spec.init_containers.iter_mut().flatten())
            {
                container.env.get_or_insert_default().push(variable.clone());
            }
        }
        pod
    }
}

pub(super) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == TRACKING)
}

/// What to do for `job`, which owns `pods`; `retry` is the wait after the first failed pod.
pub(super) fn plan(job: &Job, pods: &[Arc<Pod>], retry: Duration, now: Timestamp) -> Plan {
    let (Some(spec), before) = (&job.spec, job.status.clone().unwrap_or_default()) else {
        return Plan::default();
    };
    if job.metadata.deletion_timestamp.is_some() {
        let release = pods.iter().filter(|pod| is_tracked(pod)).cloned().collect();
        return Plan {
            release,
            ..Plan::default()
        };
    }
    if let Some(finished) = finished_at(&before) {
        return after_the_end(spec, pods, finished, now);
    }
    let mut plan = Plan::default();
    let mut status = before.clone();
    if before.start_time.is_none() {
        plan.warnings = unsupported(spec);
    }
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let count = count(&mut status, pods, indexed);
    plan.release = count.counted;

    let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).collect();
    let suspended = spec.suspend == Some(true);
    suspend_or_resume(&mut status, suspended, now);
    let over = verdict(spec, &status, &count.totals, &active, now);
    let mut stop = Vec::new();
    if let Some(verdict) = &over {
        stop.clone_from(&active);
        set_condition(
            &mut status,
            verdict.sign,
            "True",
            verdict.reason,
            verdict.message,
            now,
        );
    } else if suspended {
        stop.clone_from(&active);
    } else {
        let wanted = wanted(spec, &count.totals, active.len());
        if active.len() > wanted {
            stop = surplus(&active, active.len() - wanted);
        }
        let missing = wanted.saturating_sub(active.len() + replaced_later(spec, pods));
        let wait = retry_wait(pods, retry, now);
        if missing > 0 && wait.is_zero() {
            plan.create = new_pods(spec, &status, &active, missing.min(BURST), indexed);
        } else if missing > 0 {
            plan.recheck = Some(wait);
        }
        plan.recheck = sooner(plan.recheck, until_deadline(spec, &status, now));
    }
    // Pods that the Job itself stops are no failures: they are released uncounted.
    plan.delete = stop.into_iter().take(BURST).cloned().collect();
    let released = plan.delete.iter().filter(|pod| is_tracked(pod)).cloned();
    plan.release.extend(released.collect::<Vec<_>>());

    let all = i32::try_from(active.len()).unwrap_or(i32::MAX);
    let ready = active.iter().filter(|pod| pod.is_ready()).count();
    let terminating = pods
        .iter()
        .filter(|pod| pod.is_deleting() && !pod.is_finished())
        .count();
    status.active = Some(all);
    status.ready = Some(i32::try_from(ready).unwrap_or(i32::MAX));
    status.terminating = Some(i32::try_from(terminating).unwrap_or(i32::MAX));
    if let Some(verdict) = over
        && all == 0
        && terminating == 0
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
        if verdict.end == "Complete" {
            status.completion_time = Some(Time(now));
        }
    }
    plan.status = (!same(&before, &status)).then_some(status);
    plan
}

fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let ends = ["Complete", "Failed"];
    let condition = status.conditions.iter().flatten();
    let mut condition =
        condition.filter(|c| ends.contains(&c.type_.as_str()) && c.status == "True");
    condition
        .next()?
        .last_transition_time
        .as_ref()
        .map(|time| time.0)
}

fn after_the_end(spec: &JobSpec, pods: &[Arc<Pod>], finished: Timestamp, now: Timestamp) -> Plan {
    let mut plan = Plan {
        release: pods.iter().filter(|pod| is_tracked(pod)).cloned().collect(),
        ..Plan::default()
    };
    if let Some(ttl) = spec.ttl_seconds_after_finished {
        let left = (finished + SignedDuration::from_secs(ttl.into())).duration_since(now);
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => plan.recheck = Some(left),
            _ => plan.remove_job = true,
        }
    }
    plan
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

/// How many pods ended which way, counted or about to be.
struct Totals {
    succeeded: i32,
    failed: i32,
}

struct Count {
    totals: Totals,
    /// Pods whose end is written in the Job, so that they may go.
    counted: Vec<Arc<Pod>>,
    /// No pod waits to be counted.
    none_left: bool,
}

/// Moves finished pods through the status: uid noted, finalizer removed, number raised.
fn count(status: &mut JobStatus, pods: &[Arc<Pod>], indexed: bool) -> Count {
    let tracked: HashSet<&str> = pods
        .iter()
        .filter(|pod| is_tracked(pod))
        .map(|pod| pod.uid())
        .collect();
    let noted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let (mut succeeded, mut failed) = (
        noted.succeeded.unwrap_or_default(),
        noted.failed.unwrap_or_default(),
    );
    let mut indexes = parse_indexes(status.completed_indexes.as_deref().unwrap_or(""));
    let written: HashSet<String> = succeeded.iter().chain(&failed).cloned().collect();
    let written_indexes = indexes.clone();

    let raise = |number: &mut Option<i32>, uids: &mut Vec<String>| {
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid.as_str()));
        let raised = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
        *number = Some(number.unwrap_or(0).saturating_add(raised));
    };
    raise(&mut status.succeeded, &mut succeeded);
    raise(&mut status.failed, &mut failed);

    let mut counted = Vec::new();
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        let ended_well = pod.status.phase == "Succeeded";
        let index = index_of(pod).filter(|_| indexed && ended_well);
        let is_written = match index {
            Some(index) => written_indexes.contains(&index),
            None => written.contains(pod.uid()),
        };
        if is_written {
            counted.push(pod.clone());
        } else if succeeded.len() + failed.len() >= BURST {
            continue;
        } else if let Some(index) = index {
            indexes.insert(index);
        } else if ended_well && !indexed {
            succeeded.push(pod.uid().to_owned());
        } else if pod.status.phase == "Failed" || pod.is_deleting() {
            failed.push(pod.uid().to_owned());
        }
    }
    if indexed {
        status.succeeded = Some(i32::try_from(indexes.len()).unwrap_or(i32::MAX));
        status.completed_indexes = Some(format_indexes(&indexes)).filter(|text| !text.is_empty());
    }
    let plus = |number: Option<i32>, uids: &[String]| {
        number
            .unwrap_or(0)
            .saturating_add(i32::try_from(uids.len()).unwrap_or(i32::MAX))
    };
    let totals = Totals {
        succeeded: plus(status.succeeded, &succeeded),
        failed: plus(status.failed, &failed),
    };
    let none_left = succeeded.is_empty() && failed.is_empty() && counted.is_empty();
    let some = |uids: Vec<String>| (!uids.is_empty()).then_some(uids);
    status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
        succeeded: some(succeeded),
        failed: some(failed),
    });
    Count {
        totals,
        counted,
        none_left,
    }
}

fn index_of(pod: &Pod) -> Option<i32> {
    pod.annotation(INDEX).and_then(|text| text.parse().ok())
}

/// Reads `0-2,5`; what makes no sense is left out.
fn parse_indexes(text: &str) -> BTreeSet<i32> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            indexes.extend(first..=last);
        }
    }
    indexes
}

fn format_indexes(indexes: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for &index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => runs.push((index, index)),
        }
    }
    let text = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

fn suspend_or_resume(status: &mut JobStatus, suspended: bool, now: Timestamp) {
    let was = status
        .conditions
        .iter()
        .flatten()
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

/// How a Job ends: first a sign that it will, then, when its pods are gone, the end.
struct Verdict {
    sign: &'static str,
    end: &'static str,
    reason: &'static str,
    message: &'static str,
}

fn verdict(
    spec: &JobSpec,
    status: &JobStatus,
    totals: &Totals,
    active: &[&Arc<Pod>],
    now: Timestamp,
) -> Option<Verdict> {
    let failed = |reason, message| {
        Some(Verdict {
            sign: "FailureTarget",
            end: "Failed",
            reason,
            message,
        })
    };
    // A verdict once given stays, whatever its pods do while they stop.
    let given = |sign: &str| {
        let mut signs = status.conditions.iter().flatten();
        signs
            .find(|c| c.type_ == sign && c.status == "True")
            .and_then(|c| c.reason.as_deref())
    };
    let limit = spec.backoff_limit.unwrap_or(6);
    let restarts: i32 = match spec
        .template
        .spec
        .as_ref()
        .and_then(|s| s.restart_policy.as_deref())
    {
        Some("OnFailure") => active.iter().map(|pod| pod.restarts()).sum(),
        _ => 0,
    };
    let too_many = totals.failed > limit || (restarts > 0 && restarts >= limit);
    let late = until_deadline(spec, status, now) == Some(Duration::ZERO);
    if given("FailureTarget") == Some("BackoffLimitExceeded")
        || (given("FailureTarget").is_none() && too_many)
    {
        return failed(
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        );
    }
    if given("FailureTarget").is_some() || late {
        return failed(
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        );
    }
    let complete = match spec.completions {
        Some(completions) => totals.succeeded >= completions,
        None => totals.succeeded > 0 && active.is_empty(),
    };
    (complete || given("SuccessCriteriaMet").is_some()).then_some(Verdict {
        sign: "SuccessCriteriaMet",
        end: "Complete",
        reason: "CompletionsReached",
        message: "Reached expected number of succeeded pods",
    })
}

fn until_deadline(spec: &JobSpec, status: &JobStatus, now: Timestamp) -> Option<Duration> {
    let deadline = SignedDuration::from_secs(spec.active_deadline_seconds?);
    let started = status.start_time.as_ref()?.0;
    let left = deadline - now.duration_since(started);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn wanted(spec: &JobSpec, totals: &Totals, active: usize) -> usize {
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let wanted = match spec.completions {
        Some(completions) => parallelism.min(completions - totals.succeeded),
        // A queue of work: after the first success the others finish and none is added.
        None if totals.succeeded > 0 => return active,
        None => parallelism,
    };
    usize::try_from(wanted).unwrap_or(0)
}

/// Pods that are stopping and, if the Job asks for it, are only replaced when they have.
fn replaced_later(spec: &JobSpec, pods: &[Arc<Pod>]) -> usize {
    if spec.pod_replacement_policy.as_deref() != Some("Failed") {
        return 0;
    }
    pods.iter()
        .filter(|pod| pod.is_deleting() && !pod.is_finished())
        .count()
}

/// Those that do least go first.
fn surplus<'a>(active: &[&'a Arc<Pod>], count: usize) -> Vec<&'a Arc<Pod>> {
    let mut sorted = active.to_vec();
    sorted.sort_by_key(|pod| (pod.is_bound(), pod.is_ready(), pod.metadata.name.clone()));
    sorted.truncate(count);
    sorted
}

/// How long to wait before the next pod, because of those that failed since the last success.
fn retry_wait(pods: &[Arc<Pod>], retry: Duration, now: Timestamp) -> Duration {
    let ended = |phase: &'static str| {
        pods.iter()
            .filter(move |pod| pod.status.phase == phase)
            .filter_map(|pod| pod.ended())
    };
    let success = ended("Succeeded").max();
    let failures: Vec<Timestamp> = ended("Failed")
        .filter(|end| success.is_none_or(|s| *end > s))
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
    indexed: bool,
) -> Vec<NewJobPod> {
    if !indexed {
        return (0..count).map(|_| NewJobPod { index: None }).collect();
    }
    let mut taken = parse_indexes(status.completed_indexes.as_deref().unwrap_or(""));
    taken.extend(active.iter().filter_map(|pod| index_of(pod)));
    let free = (0..spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index));
    free.take(count)
        .map(|index| NewJobPod { index: Some(index) })
        .collect()
}

fn sooner(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    truth: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
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

/// Equal but for zeros and empty lists, which the server may leave out.
fn same(a: &JobStatus, b: &JobStatus) -> bool {
    let plain = |status: &JobStatus| {
        let mut status = status.clone();
        for number in [
            &mut status.active,
            &mut status.ready,
            &mut status.terminating,
            &mut status.succeeded,
            &mut status.failed,
        ] {
            *number = number.filter(|&n| n != 0);
        }
        let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        (
            status,
            uncounted.succeeded.unwrap_or_default(),
            uncounted.failed.unwrap_or_default(),
        )
    };
    plain(a) == plain(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::pod;
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
        crate::pod::testing::merge(&mut whole["spec"], spec);
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

    /// Plans, writes the status and says in one line what was done and what the status is.
    fn next(job: &mut Job, pods: &[Arc<Pod>], now: i64) -> String {
        let plan = plan(job, pods, RETRY, at(now));
        if let Some(status) = plan.status {
            job.status = Some(status);
        }
        let status = job.status.clone().unwrap_or_default();
        let names = |pods: &[Arc<Pod>]| {
            pods.iter()
                .map(|pod| pod.name().to_owned())
                .collect::<Vec<_>>()
                .join(",")
        };
        let conditions: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .filter(|c| c.status == "True")
            .map(|c| c.type_.clone())
            .collect();
        let mut said = vec![format!(
            "{}+{}",
            status.succeeded.unwrap_or(0),
            status.failed.unwrap_or(0)
        )];
        for (word, text) in [
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
                said.push(format!("{word} {text}"));
            }
        }
        said.join(" ")
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
        assert_eq!(job.status.unwrap().completion_time, Some(Time(at(100))));
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
        let reason = job
            .status
            .unwrap()
            .conditions
            .unwrap()
            .pop()
            .unwrap()
            .reason;
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
        let indexes = |plan: &Plan| {
            plan.create
                .iter()
                .map(|new| new.index.unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(indexes(&plan(&job, &[], RETRY, at(0))), [0, 1, 2]);
        let pods = [
            member("p0", "Succeeded", true),
            member("p1", "Running", true),
            member("p2", "Succeeded", true),
        ];
        let first = plan(&job, &pods, RETRY, at(1));
        job.status = first.status.clone();
        assert_eq!(
            job.status.as_ref().unwrap().completed_indexes.as_deref(),
            Some("0,2")
        );
        assert_eq!(indexes(&first), [3], "1 still runs");
        assert_eq!(next(&mut job, &pods, 2), "2+0 create 1 release p0,p2");
    }

    #[test]
    fn index_lists_are_written_short() {
        for text in ["", "3", "0,1", "0-2", "0-2,4,6,7,9-12"] {
            assert_eq!(format_indexes(&parse_indexes(text)), text);
        }
    }

    #[test]
    fn a_pod_of_an_indexed_job_knows_its_index() {
        let template: NewPod = serde_json::from_value(json!({
            "metadata": {"generateName": "j-"}, "spec": {"containers": [{"name": "c"}]},
        }))
        .unwrap();
        let made = NewJobPod { index: Some(7) }.dress(template);
        assert_eq!(made.metadata.generate_name.as_deref(), Some("j-7-"));
        assert_eq!(made.metadata.annotations.unwrap()[INDEX], "7");
        assert_eq!(made.metadata.finalizers.unwrap(), [TRACKING]);
        let spec = made.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("j-7"));
        assert_eq!(
            spec.containers[0].env.as_ref().unwrap()[0].name,
            "JOB_COMPLETION_INDEX"
        );
    }
}
