//! The lifecycle of a pod on its node: what happens next, and the status that the kubelet writes.
//!
//! The annotations of a pod state how long it runs and how it ends. They are about the pod, so it also ends under the
//! restart policy `Always`, which is only the default. `OnFailure` restarts it after a failure. A pod of a Job also ends
//! without annotations, or its Job would never end.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use reconcile::controller_of;
use serde_json::{Value, json};

use crate::{
    context::Timings,
    objects::pod::{Container, Pod},
};

/// The pod ends after this duration, such as `90s` or `1h30m`.
pub const RUN_FOR: &str = "tidepool.io/run-for";
/// The exit code of the pod, from 0 to 255; the default is 0.
pub const EXIT_CODE: &str = "tidepool.io/exit-code";

/// The kubelet's waits between restarts.
const FIRST_RESTART: Duration = Duration::from_secs(10);
const LONGEST_RESTART: Duration = Duration::from_secs(300);

/// The stage of a pod's lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Starting,
    Running,
    /// Its containers failed and wait for a restart.
    Crashed,
    /// It has been deleted and still runs.
    Stopping,
    /// Nothing of it runs any more.
    Ended,
}

pub(super) fn stage(pod: &Pod) -> Stage {
    // After the deletion without grace only a finalizer keeps it.
    if pod.metadata.deletion_grace_period_seconds == Some(0) {
        return Stage::Ended;
    }
    if pod.is_deleting() {
        return Stage::Stopping;
    }
    if pod.is_finished() {
        return Stage::Ended;
    }
    let containers = &pod.status.container_statuses;
    if containers.is_empty() {
        Stage::Starting
    } else if containers.iter().any(|c| c.state.running.is_some()) {
        Stage::Running
    } else {
        Stage::Crashed
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    Wait(Duration),
    Start,
    /// It runs, but was marked as not ready while its node sent no heartbeats.
    MarkReady,
    Crash {
        code: i32,
    },
    End {
        code: i32,
    },
    Remove,
}

/// What happens to a pod that has been in `stage` for `elapsed`.
pub(super) fn next(pod: &Pod, stage: Stage, elapsed: Duration, timings: &Timings) -> Step {
    let after = |wait: Duration, step: Step| match wait.saturating_sub(elapsed) {
        Duration::ZERO => step,
        left => Step::Wait(left),
    };
    match stage {
        Stage::Ended => Step::Nothing,
        Stage::Starting => after(timings.pod_start, Step::Start),
        Stage::Stopping => {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            let stop = pre_stop(pod).saturating_add(timings.pod_stop);
            after(stop.min(grace), Step::Remove)
        }
        Stage::Crashed => {
            let doublings = u32::try_from(pod.restarts()).unwrap_or(0).min(8);
            after(
                (FIRST_RESTART * (1 << doublings)).min(LONGEST_RESTART),
                Step::Start,
            )
        }
        Stage::Running if !pod.is_ready() && gates_open(pod) => Step::MarkReady,
        Stage::Running => {
            let run_for = match run_for(pod) {
                Ok(Some(run_for)) => run_for,
                Ok(None) if is_of_job(pod) => timings.job_run,
                _ => return Step::Nothing,
            };
            let code = exit_code(pod).unwrap_or(0);
            let restarts = code != 0 && pod.spec.restart_policy == "OnFailure";
            after(
                run_for,
                if restarts {
                    Step::Crash { code }
                } else {
                    Step::End { code }
                },
            )
        }
    }
}

/// How long the hooks of running containers sleep before the containers get their signal to stop.
fn pre_stop(pod: &Pod) -> Duration {
    let running = pod.status.container_statuses.iter();
    if !running.into_iter().any(|c| c.state.running.is_some()) {
        return Duration::ZERO;
    }
    let containers = pod.spec.containers.iter();
    let seconds = containers.map(Container::pre_stop_seconds).max();
    Duration::from_secs(seconds.unwrap_or(0))
}

fn is_of_job(pod: &Pod) -> bool {
    controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job")
}

fn gates_open(pod: &Pod) -> bool {
    let mut gates = pod.spec.readiness_gates.iter();
    gates.all(|gate| {
        pod.condition(&gate.condition_type)
            .is_some_and(|c| c.status == "True")
    })
}

fn run_for(pod: &Pod) -> Result<Option<Duration>, String> {
    let Some(text) = pod.annotation(RUN_FOR) else {
        return Ok(None);
    };
    humantime::parse_duration(text).map(Some).map_err(|_| {
        format!(
            "annotation {RUN_FOR} is {text:?}: use a duration like 90s, 5m or 1h30m; \
             the pod runs until it is deleted"
        )
    })
}

fn exit_code(pod: &Pod) -> Result<i32, String> {
    let Some(text) = pod.annotation(EXIT_CODE) else {
        return Ok(0);
    };
    text.parse::<u8>().map(i32::from).map_err(|_| {
        format!(
            "annotation {EXIT_CODE} is {text:?}: use a whole number from 0 to 255; the exit code is 0"
        )
    })
}

/// The invalid annotations of the pod, each with what is allowed.
pub(super) fn annotation_errors(pod: &Pod) -> Vec<String> {
    run_for(pod)
        .err()
        .into_iter()
        .chain(exit_code(pod).err())
        .collect()
}

/// The addresses of a pod, for its status.
pub(super) struct PodNetwork {
    pub(super) host_ip: String,
    pub(super) pod_ip: String,
}

/// The status of a pod whose containers have just started.
pub(super) fn running(pod: &Pod, network: &PodNetwork, now: Timestamp) -> Value {
    let crashed = !pod.status.container_statuses.is_empty();
    let restarts = pod.restarts() + i32::from(crashed);
    let state = json!({"running": {"startedAt": Time(now)}});
    let done = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": Time(now), "finishedAt": Time(now),
    }});
    let init = pod.spec.init_containers.iter().map(|container| {
        let is_sidecar = container.restart_policy == "Always";
        let state = if is_sidecar { &state } else { &done };
        container_status(pod, container, 0, true, state)
    });
    let main = pod
        .spec
        .containers
        .iter()
        .map(|c| container_status(pod, c, restarts, true, &state));
    let start_time = pod.status.start_time.clone().unwrap_or(Time(now));
    let ready = gates_open(pod);
    let mut status = json!({
        "phase": "Running",
        "observedGeneration": pod.metadata.generation,
        "hostIP": network.host_ip, "hostIPs": [{"ip": network.host_ip}],
        "podIP": network.pod_ip, "podIPs": [{"ip": network.pod_ip}],
        "startTime": start_time,
        "containerStatuses": main.collect::<Vec<_>>(),
        "conditions": conditions(pod, now, &[
            ("PodReadyToStartContainers", true, ""),
            ("Initialized", true, ""),
            ("Ready", ready, if ready { "" } else { "ReadinessGatesNotReady" }),
            ("ContainersReady", true, ""),
            ("PodScheduled", true, ""),
        ]),
    });
    if !pod.spec.init_containers.is_empty() {
        status["initContainerStatuses"] = init.collect();
    }
    status
}

/// The conditions of a running pod whose node is back.
pub(super) fn ready_again(pod: &Pod, now: Timestamp) -> Value {
    let all = [("Ready", true, ""), ("ContainersReady", true, "")];
    json!({"conditions": conditions(pod, now, &all)})
}

/// The status of a pod whose containers failed and will be restarted.
pub(super) fn crashed(pod: &Pod, code: i32, now: Timestamp) -> Value {
    let state = json!({"waiting": {
        "reason": "CrashLoopBackOff",
        "message": format!("back-off restarting failed container after exit code {code}"),
    }});
    let last = ended_state(pod, code, now);
    let main = pod.spec.containers.iter().map(|container| {
        let mut status = container_status(pod, container, pod.restarts(), false, &state);
        status["lastState"] = last.clone();
        status
    });
    json!({
        "containerStatuses": main.collect::<Vec<_>>(),
        "conditions": conditions(pod, now, &[
            ("Ready", false, "ContainersNotReady"),
            ("ContainersReady", false, "ContainersNotReady"),
        ]),
    })
}

/// The status of a pod that ran to its end.
pub(super) fn ended(pod: &Pod, code: i32, now: Timestamp) -> Value {
    let (phase, reason) = if code == 0 {
        ("Succeeded", "PodCompleted")
    } else {
        ("Failed", "PodFailed")
    };
    let state = ended_state(pod, code, now);
    let main = pod.spec.containers.iter();
    let main =
        main.map(|container| container_status(pod, container, pod.restarts(), false, &state));
    json!({
        "phase": phase,
        "containerStatuses": main.collect::<Vec<_>>(),
        "conditions": conditions(pod, now, &[
            ("PodReadyToStartContainers", false, ""),
            ("Ready", false, reason),
            ("ContainersReady", false, reason),
        ]),
    })
}

fn ended_state(pod: &Pod, code: i32, now: Timestamp) -> Value {
    let started = pod.ready_since().map_or(Time(now), Time);
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": started, "finishedAt": Time(now),
        "containerID": format!("tidepool://{}", pod.uid()),
    }})
}

fn container_status(
    pod: &Pod,
    container: &Container,
    restarts: i32,
    up: bool,
    state: &Value,
) -> Value {
    let runs = state.get("running").is_some();
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": format!("tidepool://{}/{}", pod.uid(), container.name),
        "ready": up,
        "started": runs,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    })
}

/// Conditions as a strategic patch: those named, with the time of their last change.
fn conditions(pod: &Pod, now: Timestamp, wanted: &[(&str, bool, &str)]) -> Vec<Value> {
    let condition = |&(type_, holds, reason): &(&str, bool, &str)| {
        let status = if holds { "True" } else { "False" };
        let old = pod.condition(type_).filter(|old| old.status == status);
        let since = old
            .and_then(|old| old.last_transition_time.clone())
            .unwrap_or(Time(now));
        json!({
            "type": type_, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
            "observedGeneration": pod.metadata.generation,
            "reason": Some(reason).filter(|reason| !reason.is_empty()),
        })
    };
    wanted.iter().map(condition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::pod::testing::{merge, pod};

    const SECOND: Duration = Duration::from_secs(1);

    fn timings() -> Timings {
        Timings {
            pod_start: 2 * SECOND,
            pod_stop: 5 * SECOND,
            job_run: 10 * SECOND,
            ..Timings::default()
        }
    }

    /// A running pod with these annotations.
    fn up(annotations: Value, policy: &str) -> Pod {
        pod(
            "p",
            json!({
                "metadata": {"annotations": annotations},
                "spec": {"nodeName": "n", "restartPolicy": policy},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"name": "main", "restartCount": 2, "state": {"running": {}}}]},
            }),
        )
    }

    fn dying(grace: i64) -> Pod {
        pod(
            "p",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}}),
        )
    }

    /// A running pod that was deleted, with a hook that sleeps.
    fn with_hook(grace: i64, sleep: i64) -> Pod {
        pod(
            "p",
            json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace},
                "spec": {"containers": [{"name": "main", "lifecycle": {"preStop": {"sleep": {"seconds": sleep}}}}]},
                "status": {"containerStatuses": [{"state": {"running": {}}}]},
            }),
        )
    }

    #[test]
    fn a_pod_moves_on_when_its_time_has_come() {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
        let mut of_job = up(json!({}), "Never");
        of_job.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let mut of_job_for_a_minute = up(json!({RUN_FOR: "1m"}), "Never");
        of_job_for_a_minute.metadata.owner_references = of_job.metadata.owner_references.clone();
        let minute = json!({RUN_FOR: "1m"});
        let failing = json!({RUN_FOR: "1m", EXIT_CODE: "3"});
        let crashed = pod(
            "p",
            json!({"status": {"phase": "Running", "containerStatuses": [{"restartCount": 1, "state": {"waiting": {}}}]}}),
        );
        let written_off = {
            let mut pod = up(json!({}), "Always");
            pod.status.conditions[0].status = "False".into();
            pod
        };
        let gated = pod(
            "p",
            json!({
                "spec": {"readinessGates": [{"conditionType": "x.io/open"}]},
                "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
            }),
        );
        for (case, pod, seconds, want) in [
            ("just bound", pod("p", json!({})), 1, Step::Wait(SECOND)),
            ("started", pod("p", json!({})), 2, Step::Start),
            (
                "runs for ever",
                up(json!({}), "Always"),
                9999,
                Step::Nothing,
            ),
            (
                "runs still",
                up(minute.clone(), "Never"),
                59,
                Step::Wait(SECOND),
            ),
            (
                "ends well",
                up(minute.clone(), "Never"),
                60,
                Step::End { code: 0 },
            ),
            (
                "ends badly",
                up(failing.clone(), "Never"),
                60,
                Step::End { code: 3 },
            ),
            (
                "the default policy does not keep it alive",
                up(failing.clone(), "Always"),
                60,
                Step::End { code: 3 },
            ),
            (
                "is restarted on failure",
                up(failing, "OnFailure"),
                60,
                Step::Crash { code: 3 },
            ),
            (
                "and only then",
                up(minute, "OnFailure"),
                60,
                Step::End { code: 0 },
            ),
            (
                "nonsense is ignored",
                up(json!({RUN_FOR: "soon"}), "Never"),
                9999,
                Step::Nothing,
            ),
            (
                "waits longer after each crash",
                crashed.clone(),
                19,
                Step::Wait(SECOND),
            ),
            ("and starts again", crashed, 20, Step::Start),
            ("its node was away", written_off, 0, Step::MarkReady),
            ("others decide when it is ready", gated, 0, Step::Nothing),
            ("a pod of a Job runs", of_job.clone(), 9, Step::Wait(SECOND)),
            ("and ends", of_job, 10, Step::End { code: 0 }),
            (
                "unless it is annotated",
                of_job_for_a_minute,
                59,
                Step::Wait(SECOND),
            ),
            (
                "its hook sleeps before it stops",
                with_hook(30, 20),
                24,
                Step::Wait(SECOND),
            ),
            ("and it stops", with_hook(30, 20), 25, Step::Remove),
            (
                "the grace period limits the hook",
                with_hook(10, 20),
                10,
                Step::Remove,
            ),
            ("stops in good order", dying(30), 4, Step::Wait(SECOND)),
            ("is gone", dying(30), 5, Step::Remove),
            ("has little time to stop", dying(1), 1, Step::Remove),
            ("waits for a finalizer", dying(0), 99, Step::Nothing),
            (
                "is over",
                pod("p", json!({"status": {"phase": "Failed"}})),
                99,
                Step::Nothing,
            ),
        ] {
            let got = next(&pod, stage(&pod), SECOND * seconds, &timings());
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn errors_name_the_value_and_what_is_allowed() {
        let bad = up(json!({RUN_FOR: "5 parsecs", EXIT_CODE: "256"}), "Never");
        assert_eq!(
            annotation_errors(&bad),
            [
                "annotation tidepool.io/run-for is \"5 parsecs\": use a duration like 90s, 5m or 1h30m; the pod runs until it is deleted",
                "annotation tidepool.io/exit-code is \"256\": use a whole number from 0 to 255; the exit code is 0",
            ]
        );
        assert!(
            annotation_errors(&up(json!({RUN_FOR: "1h 30m", EXIT_CODE: "255"}), "Never"))
                .is_empty()
        );
    }

    /// The pod after a status patch of ours; lists of containers are replaced, conditions are all we keep.
    fn after(pod: &Pod, status: Value) -> Pod {
        let mut whole = json!({"metadata": pod.metadata, "spec": {"containers": [{"name": "main", "image": "app:1"}]}});
        merge(&mut whole, json!({"status": status}));
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn each_status_leads_to_its_stage() {
        let now = Timestamp::UNIX_EPOCH;
        let network = PodNetwork {
            host_ip: "172.16.0.1".into(),
            pod_ip: "10.128.0.2".into(),
        };
        let new = pod(
            "p",
            json!({"spec": {"initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}]}}),
        );
        let status = running(&new, &network, now);
        assert_eq!(
            status["initContainerStatuses"][0]["state"]["terminated"]["reason"],
            "Completed"
        );
        assert!(status["initContainerStatuses"][1]["state"]["running"].is_object());
        let first = after(&new, status);
        assert_eq!(stage(&first), Stage::Running);
        assert!(first.is_ready());
        assert_eq!(
            (first.restarts(), first.status.pod_ip.as_str()),
            (0, "10.128.0.2")
        );

        let fallen = after(&first, {
            let mut status = crashed(&first, 3, now);
            status["phase"] = "Running".into();
            status
        });
        assert_eq!((stage(&fallen), fallen.is_ready()), (Stage::Crashed, false));
        let second = after(&fallen, running(&fallen, &network, now));
        assert_eq!((stage(&second), second.restarts()), (Stage::Running, 1));
        let over = after(&second, ended(&second, 0, now));
        assert_eq!(
            (stage(&over), over.status.phase.as_str(), over.ended()),
            (Stage::Ended, "Succeeded", Some(now))
        );
    }
}
