//! `tidepool status`: the status of a running scheduler.

use std::{fmt::Write as _, time::Duration};

use anyhow::Result;
use api::http::{Leader, Role, STATUS, SchedulerStatus, Waiting, Watch};
use clap::Args;
use http::Uri;

use crate::{
    ask,
    cluster::Place,
    foreign::one_line,
    output::{self, count},
};

/// Show the status of a running scheduler
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    ask: ask::Flags,
}

const EXAMPLES: &str = "\
Examples:
  tidepool status                                  the scheduler of your kubeconfig's cluster, or of `tidepool up`
  tidepool status -o json | jq .queue              for programs
  tidepool status --server http://127.0.0.1:10259  the scheduler at this address";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let (scheduler, answer) = ask::ask(&flags.ask, STATUS)?;
    output::print(flags.ask.output, &answer, |status| {
        table(&status, &scheduler.server, scheduler.place())
    })
}

fn table(status: &SchedulerStatus, server: &Uri, place: Option<&Place>) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {}", one_line(&value));
    };
    if let Some(place) = place {
        row("context", place.to_string());
    }
    let server = server.to_string();
    row(
        "scheduler",
        format!(
            "{} at {}, up {}",
            status.version,
            server.trim_end_matches('/'),
            whole(status.uptime_seconds)
        ),
    );
    row("mode", format!("{}, {}", status.mode, role(status)));
    row("pods of", status.schedulers.join(", "));
    let cluster = &status.cluster;
    row(
        "cluster",
        format!(
            "{}, {}",
            count(cluster.nodes, "node"),
            count(cluster.placed_pods, "bound pod")
        ),
    );
    let queue = &status.queue;
    let waiting = queue.active + queue.backoff + queue.unschedulable + queue.gated;
    row(
        "pending",
        format!(
            "{}: {} active, {} in backoff, {} unschedulable, {} gated; {} in progress",
            count(waiting, "pod"),
            queue.active,
            queue.backoff,
            queue.unschedulable,
            queue.gated,
            queue.in_flight + cluster.assumed_pods
        ),
    );
    if let Some(oldest) = &status.oldest_waiting {
        let Waiting {
            namespace,
            name,
            since,
            waiting_seconds,
            why,
        } = oldest;
        let waits = whole(*waiting_seconds);
        row(
            "oldest",
            format!("{namespace}/{name}, for {waits} (since {since}): {why}"),
        );
    }
    let done = &status.since_start;
    row(
        "done",
        format!(
            "{} bound, {} failed, {} evicted, {} written, {} dropped",
            count(done.bound, "pod"),
            count(done.bind_failures, "bind"),
            count(done.victims, "pod"),
            count(done.events_written, "event"),
            done.events_dropped
        ),
    );
    row("watches", watches(&status.watches));
    for watch in &status.watches {
        if let Some(trouble) = &watch.trouble {
            row("", format!("{}: {trouble}", watch.kind));
        }
    }
    if cluster.reports_without_node > 0 {
        let which = named(
            &status.first_reports_without_node,
            cluster.reports_without_node,
        );
        row(
            "warning",
            format!("ignoring CustomNodeResources without a node of the same name: {which}"),
        );
    }
    for warning in &status.warnings {
        row("warning", warning.clone());
    }
    text
}

/// The count, with the first names.
fn named(first: &[String], count: u64) -> String {
    let more = count.saturating_sub(first.len() as u64);
    match (first.join(", "), more) {
        (names, _) if names.is_empty() => count.to_string(),
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    }
}

/// Whole seconds.
fn whole(seconds: f64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(seconds.max(0.0) as u64))
}

fn role(status: &SchedulerStatus) -> String {
    let lease = status.lease.as_deref().unwrap_or("its Lease");
    let other = match &status.leader {
        None => "the Lease is free".to_owned(),
        Some(Leader { identity, server }) => match server {
            Some(server) => format!("held by {identity} at {server}"),
            None => format!("held by {identity}"),
        },
    };
    match status.role {
        Role::Alone => "without leader election".to_owned(),
        Role::Observer => "observer: logs decisions and writes nothing".to_owned(),
        Role::Candidate => format!("has not tried to acquire {lease} yet"),
        Role::Standby => format!("standby for {lease}, {other}"),
        Role::CatchingUp => format!("holds {lease}, reading the changes of the previous leader"),
        Role::Leader => format!("leader, holds {lease}"),
        Role::Former => format!("lost {lease}, {other}"),
        Role::Unknown => "unknown role".to_owned(),
    }
}

fn watches(watches: &[Watch]) -> String {
    let is_followed = |watch: &&Watch| watch.synced && !watch.missing && watch.trouble.is_none();
    let followed = watches.iter().filter(is_followed).count();
    let missing: Vec<&str> = watches
        .iter()
        .filter(|watch| watch.missing)
        .map(|watch| &watch.kind[..])
        .collect();
    let mut text = format!("{followed} of {} kinds up to date", watches.len());
    if !missing.is_empty() {
        let _ = write!(text, "; not available: {}", missing.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(answer: serde_json::Value) -> String {
        let status = serde_json::from_value(answer).unwrap();
        let place = Place {
            context: "here".into(),
            cluster: "east".into(),
            server: "https://10.0.0.1".into(),
        };
        let server = Uri::from_static("http://127.0.0.1:10259");
        table(&status, &server, Some(&place))
    }

    #[test]
    fn a_leader_at_work() {
        let text = shown(json!({
            "version": "0.0.0", "mode": "primary", "role": "leader", "identity": "host_1",
            "lease": "kube-system/kube-scheduler", "leader": {"identity": "host_1", "server": null},
            "uptimeSeconds": 61.9, "schedulers": ["default-scheduler"], "deciding": true,
            "cluster": {"nodes": 6, "placedPods": 45, "assumedPods": 200, "reportsWithoutNode": 3},
            "firstReportsWithoutNode": ["ghost", "old\n"],
            "queue": {"active": 0, "backoff": 1, "unschedulable": 4, "gated": 0, "inFlight": 2},
            "oldestWaiting": {"namespace": "demo", "name": "train-large", "since": "2026-01-02T03:04:05Z",
                "waitingSeconds": 303.7, "why": "0/6 nodes are available: 6 Insufficient cpu."},
            "sinceStart": {"bound": 45, "bindFailures": 0, "bindUnknown": 0, "eventsWritten": 50,
                "eventsDropped": 0, "statusPatches": 9, "victims": 3},
            "watches": [
                {"kind": "pods", "resourceVersion": "9", "synced": true, "missing": false, "silentSeconds": 1.0,
                    "trouble": null},
                {"kind": "csistoragecapacities", "resourceVersion": "", "synced": true, "missing": true,
                    "silentSeconds": null, "trouble": null},
                {"kind": "nodes", "resourceVersion": "9", "synced": true, "missing": false, "silentSeconds": 1.0,
                    "trouble": "the connection was lost"},
            ],
            "warnings": ["no node has `nvidia.com/gpus`\n"],
        }));
        let want = "\
context    here, cluster east at https://10.0.0.1
scheduler  0.0.0 at http://127.0.0.1:10259, up 1m 1s
mode       primary, leader, holds kube-system/kube-scheduler
pods of    default-scheduler
cluster    6 nodes, 45 bound pods
pending    5 pods: 0 active, 1 in backoff, 4 unschedulable, 0 gated; 202 in progress
oldest     demo/train-large, for 5m 3s (since 2026-01-02T03:04:05Z): 0/6 nodes are available: 6 Insufficient cpu.
done       45 pods bound, 0 binds failed, 3 pods evicted, 50 events written, 0 dropped
watches    1 of 3 kinds up to date; not available: csistoragecapacities
           nodes: the connection was lost
warning    ignoring CustomNodeResources without a node of the same name: ghost, old\\n and 1 more
warning    no node has `nvidia.com/gpus`\\n
";
        assert_eq!(text, want);
    }

    #[test]
    fn one_thing_has_no_plural() {
        let text = shown(json!({
            "cluster": {"nodes": 1, "placedPods": 1}, "queue": {"active": 1},
            "sinceStart": {"bound": 1, "bindFailures": 1, "eventsWritten": 1, "victims": 1},
        }));
        for line in [
            "cluster    1 node, 1 bound pod\n",
            "pending    1 pod: 1 active",
            "done       1 pod bound, 1 bind failed, 1 pod evicted, 1 event written, 0 dropped\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_first_of_many_are_named() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        for (first, count, want) in [
            (names(&[]), 3, "3"),
            (names(&["a"]), 1, "a"),
            (names(&["a", "b"]), 5, "a, b and 3 more"),
        ] {
            assert_eq!(named(&first, count), want);
        }
    }

    #[test]
    fn every_role_has_a_text() {
        let leader = json!({"identity": "other", "server": "http://a:1"});
        for (role_, want) in [
            (
                "standby",
                "second, standby for a/b, held by other at http://a:1",
            ),
            ("former", "second, lost a/b, held by other at http://a:1"),
            ("alone", "second, without leader election"),
            ("new kind", "second, unknown role"),
        ] {
            let answer = json!({"mode": "second", "role": role_, "lease": "a/b", "leader": leader});
            assert!(shown(answer).contains(want), "{role_}");
        }
    }
}
