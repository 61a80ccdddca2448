//! A pod as `kubectl get pods` shows it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::printer;
use crate::objects::fields::{at, items, number, text};

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let view = PodSummary::of(pod);
    vec![
        printer::name(pod),
        format!("{}/{}", view.ready, view.total).into(),
        view.status.into(),
        restarts(view.restarts, view.last_restart, now).into(),
        printer::created(pod, now),
        printer::or_none(address(pod)),
        printer::or_none(text(pod, "spec.nodeName")),
        printer::or_none(text(pod, "status.nominatedNodeName")),
        readiness_gates(pod).into(),
    ]
}

/// Finished pods are marked, so that clients can hide them.
pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match text(pod, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn address(pod: &Value) -> &str {
    match items(pod, "status.podIPs") {
        [first, ..] => text(first, "ip"),
        [] => text(pod, "status.podIP"),
    }
}

fn restarts(count: i64, last: Option<Timestamp>, now: Timestamp) -> String {
    match last {
        Some(last) if count > 0 => {
            format!(
                "{count} ({} ago)",
                printer::duration(now.as_second() - last.as_second())
            )
        }
        _ => count.to_string(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_true = |gate: &&Value| condition(pod, text(gate, "conditionType")) == Some("True");
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a str> {
    let found = items(pod, "status.conditions")
        .iter()
        .find(|c| text(c, "type") == kind);
    found.map(|condition| text(condition, "status"))
}

/// The container statuses of a pod, summed up for the table.
struct PodSummary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl PodSummary {
    fn of(pod: &Value) -> Self {
        let sidecars: Vec<&str> = items(pod, "spec.initContainers")
            .iter()
            .filter(|container| text(container, "restartPolicy") == "Always")
            .map(|container| text(container, "name"))
            .collect();
        let mut view = PodSummary {
            ready: 0,
            total: items(pod, "spec.containers").len() + sidecars.len(),
            status: phase(pod),
            restarts: 0,
            last_restart: None,
        };
        let initializing = view.count_init_containers(pod, &sidecars);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            view.count_containers(pod, &sidecars);
        }
        if !at(pod, "metadata.deletionTimestamp").is_null() {
            if text(pod, "status.reason") == "NodeLost" {
                view.status = "Unknown".to_owned();
            } else if !["Succeeded", "Failed"].contains(&text(pod, "status.phase")) {
                view.status = "Terminating".to_owned();
            }
        }
        view
    }

    /// Whether an init container is still running; it then determines the status.
    fn count_init_containers(&mut self, pod: &Value, sidecars: &[&str]) -> bool {
        let total = items(pod, "spec.initContainers").len();
        for (i, container) in items(pod, "status.initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.count_restarts(container);
            let sidecar = sidecars.contains(&text(container, "name"));
            let terminated = at(container, "state.terminated");
            let waiting = text(container, "state.waiting.reason");
            if terminated.is_object() && number(terminated, "exitCode") == 0 {
                continue;
            }
            if sidecar && at(container, "started") == &Value::Bool(true) {
                self.ready += usize::from(at(container, "ready") == &Value::Bool(true));
                continue;
            }
            self.status = if terminated.is_object() {
                format!("Init:{}", ending(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{i}/{total}")
            };
            return true;
        }
        false
    }

    fn count_containers(&mut self, pod: &Value, sidecars: &[&str]) {
        // Ordinary init containers that are done no longer count.
        (self.restarts, self.last_restart) = (0, None);
        for container in items(pod, "status.initContainerStatuses") {
            if sidecars.contains(&text(container, "name")) {
                self.count_restarts(container);
            }
        }
        let mut running = false;
        let mut failure = None;
        for container in items(pod, "status.containerStatuses").iter().rev() {
            self.count_restarts(container);
            let terminated = at(container, "state.terminated");
            let waiting = text(container, "state.waiting.reason");
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if terminated.is_object() {
                self.status = ending(terminated);
                if self.status != "Completed" {
                    failure = Some(self.status.clone());
                }
            } else if at(container, "ready") == &Value::Bool(true)
                && at(container, "state.running").is_object()
            {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            self.status = match failure {
                _ if running && condition(pod, "Ready") == Some("True") => "Running".to_owned(),
                _ if running => "NotReady".to_owned(),
                Some(failure) => failure,
                None => return,
            };
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += number(container, "restartCount");
        let finished = text(container, "lastState.terminated.finishedAt")
            .parse()
            .ok();
        self.last_restart = self.last_restart.max(finished);
    }
}

fn phase(pod: &Value) -> String {
    let gated = items(pod, "status.conditions").iter().any(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    });
    match text(pod, "status.reason") {
        _ if gated => "SchedulingGated",
        "" => text(pod, "status.phase"),
        reason => reason,
    }
    .to_owned()
}

/// Why a container ended.
fn ending(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pod: Value) -> (String, String, String) {
        let now: Timestamp = "2030-01-01T01:00:00Z".parse().unwrap();
        let cells = cells(&pod, now);
        let cell = |i: usize| cells[i].as_str().unwrap().to_owned();
        (cell(1), cell(2), cell(3))
    }

    fn pod(status: Value) -> Value {
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}, "status": status})
    }

    #[test]
    fn the_status_cell_shows_the_most_specific_reason() {
        let running = json!({"ready": true, "state": {"running": {}}});
        let completed = json!({"state": {"terminated": {"reason": "Completed"}}});
        let crashed = json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"finishedAt": "2030-01-01T00:55:00Z"}}});
        let failed = json!({"state": {"terminated": {"reason": "Error", "exitCode": 1}}});
        let killed = json!({"state": {"terminated": {"signal": 9}}});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let gated = json!([{"type": "PodScheduled", "reason": "SchedulingGated"}]);
        for (case, status, want) in [
            (
                "pending",
                json!({"phase": "Pending"}),
                ("0/2", "Pending", "0"),
            ),
            (
                "a reason",
                json!({"phase": "Failed", "reason": "Evicted"}),
                ("0/2", "Evicted", "0"),
            ),
            (
                "gated",
                json!({"phase": "Pending", "conditions": gated}),
                ("0/2", "SchedulingGated", "0"),
            ),
            (
                "running",
                json!({"phase": "Running", "containerStatuses": [running, running]}),
                ("2/2", "Running", "0"),
            ),
            (
                "crashing",
                json!({"phase": "Running", "containerStatuses": [crashed, running]}),
                ("1/2", "CrashLoopBackOff", "3 (5m ago)"),
            ),
            (
                "one done, ready",
                json!({"phase": "Running", "conditions": ready, "containerStatuses": [completed, running]}),
                ("1/2", "Running", "0"),
            ),
            (
                "one done, not ready",
                json!({"phase": "Running", "containerStatuses": [completed, running]}),
                ("1/2", "NotReady", "0"),
            ),
            (
                "one done, one failed",
                json!({"phase": "Failed", "containerStatuses": [completed, failed]}),
                ("0/2", "Error", "0"),
            ),
            (
                "killed",
                json!({"phase": "Failed", "containerStatuses": [killed]}),
                ("0/2", "Signal:9", "0"),
            ),
            (
                "starting",
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
                ("0/2", "Init:0/1", "0"),
            ),
            (
                "init fails",
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
                ("0/2", "Init:ExitCode:2", "0"),
            ),
            (
                "init waits",
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}]}),
                ("0/2", "Init:ErrImagePull", "0"),
            ),
            (
                "init done",
                json!({"phase": "Running", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}]}),
                ("0/2", "Running", "0"),
            ),
        ] {
            let (ready, status, restarts) = shown(pod(status));
            assert_eq!((&*ready, &*status, &*restarts), want, "{case}");
        }
    }

    #[test]
    fn deletion_shows_unless_the_pod_is_over() {
        for (phase, reason, want) in [
            ("Running", "", "Terminating"),
            ("Succeeded", "", "Succeeded"),
            ("Running", "NodeLost", "Unknown"),
        ] {
            let mut pod = pod(json!({"phase": phase, "reason": reason}));
            pod["metadata"] = json!({"deletionTimestamp": "2030-01-01T00:00:00Z"});
            assert_eq!(shown(pod).1, want);
        }
    }

    #[test]
    fn sidecars_count_as_containers() {
        let pod = json!({
            "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Running",
                "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}}],
                "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}]},
        });
        assert_eq!(shown(pod), ("2/2".into(), "Running".into(), "2".into()));
    }

    #[test]
    fn readiness_gates_are_counted() {
        let pod = json!({"spec": {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]}, "status": {"conditions": [{"type": "x", "status": "True"}]}});
        assert_eq!(readiness_gates(&pod), "1/2");
        assert_eq!(readiness_gates(&json!({})), "<none>");
    }
}
