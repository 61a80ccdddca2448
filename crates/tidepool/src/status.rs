//! `tidepool status`: what a running scheduler says of itself.
//!
//! Fields that are not there are empty: a scheduler may be newer or older than this program.

use std::{fmt::Write as _, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use http::Uri;
use serde::Deserialize;

use crate::{ask, foreign::one_line, output};

/// Say how a running scheduler is
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Flags {
    #[command(flatten)]
    ask: ask::Flags,
}

const EXAMPLES: &str = "\
Examples:
  tidepool status                                  of the cluster in your kubeconfig, or of `tidepool up`
  tidepool status -o json | jq .queue              for programs
  tidepool status --server http://127.0.0.1:10259  of this one";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let (scheduler, answer) = ask::ask(&flags.ask, "/apis/v1/status")?;
    output::print(flags.ask.output, &answer, |answer| {
        let status = Status::deserialize(answer);
        let status = status.context(
            "the scheduler is of another version, and its answer has other fields; use -o json",
        )?;
        Ok(table(&status, &scheduler.server))
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    version: String,
    mode: String,
    role: String,
    lease: Option<String>,
    leader: Option<Leader>,
    uptime_seconds: f64,
    schedulers: Vec<String>,
    cluster: ClusterSize,
    queue: Queue,
    oldest_waiting: Option<Waiting>,
    first_reports_without_node: Vec<String>,
    since_start: SinceStart,
    watches: Vec<Watch>,
    warnings: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Leader {
    identity: String,
    server: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterSize {
    nodes: u64,
    placed_pods: u64,
    assumed_pods: u64,
    reports_without_node: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Queue {
    active: u64,
    backoff: u64,
    unschedulable: u64,
    gated: u64,
    in_flight: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Waiting {
    namespace: String,
    name: String,
    since: String,
    waiting_seconds: f64,
    why: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SinceStart {
    bound: u64,
    bind_failures: u64,
    events_written: u64,
    events_dropped: u64,
    victims: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Watch {
    kind: String,
    synced: bool,
    missing: bool,
    trouble: Option<String>,
}

fn table(status: &Status, server: &Uri) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {}", one_line(&value));
    };
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
            "{} nodes, {} pods on them",
            cluster.nodes, cluster.placed_pods
        ),
    );
    let queue = &status.queue;
    let waiting = queue.active + queue.backoff + queue.unschedulable + queue.gated;
    row(
        "waiting",
        format!(
            "{waiting} pods: {} active, {} in backoff, {} unschedulable, {} gated; {} under way",
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
            "longest",
            format!("{namespace}/{name}, for {waits} (since {since}): {why}"),
        );
    }
    let done = &status.since_start;
    row(
        "done",
        format!(
            "{} pods bound, {} binds failed, {} pods evicted, {} events written, {} dropped",
            done.bound, done.bind_failures, done.victims, done.events_written, done.events_dropped
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
            format!(
                "CustomNodeResources without a node of their name: {which}; what they report is not used"
            ),
        );
    }
    for warning in &status.warnings {
        row("warning", warning.clone());
    }
    text
}

/// So many, the first of them by name.
fn named(first: &[String], count: u64) -> String {
    let more = count.saturating_sub(first.len() as u64);
    match (first.join(", "), more) {
        (names, _) if names.is_empty() => count.to_string(),
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    }
}

/// Seconds, in words.
fn whole(seconds: f64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(seconds.max(0.0) as u64))
}

fn role(status: &Status) -> String {
    let lease = status.lease.as_deref().unwrap_or("its Lease");
    let other = match &status.leader {
        None => "nobody has it".to_owned(),
        Some(Leader { identity, server }) => match server {
            Some(server) => format!("{identity} at {server} has it"),
            None => format!("{identity} has it"),
        },
    };
    match &status.role[..] {
        "alone" => "without leader election".to_owned(),
        "observer" => "decides and writes nothing".to_owned(),
        "candidate" => format!("asks for {lease}"),
        "standby" => format!("waits for {lease}: {other}"),
        "catchingUp" => format!("has {lease}, and is catching up"),
        "leader" => format!("leader by {lease}"),
        "former" => format!("has lost {lease}: {other}"),
        unknown => unknown.to_owned(),
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
    let mut text = format!("{followed} of {} kinds followed", watches.len());
    if !missing.is_empty() {
        let _ = write!(text, "; the cluster has or shows no {}", missing.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(answer: serde_json::Value) -> String {
        let status = serde_json::from_value(answer).unwrap();
        table(&status, &Uri::from_static("http://127.0.0.1:10259"))
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
scheduler  0.0.0 at http://127.0.0.1:10259, up 1m 1s
mode       primary, leader by kube-system/kube-scheduler
pods of    default-scheduler
cluster    6 nodes, 45 pods on them
waiting    5 pods: 0 active, 1 in backoff, 4 unschedulable, 0 gated; 202 under way
longest    demo/train-large, for 5m 3s (since 2026-01-02T03:04:05Z): 0/6 nodes are available: 6 Insufficient cpu.
done       45 pods bound, 0 binds failed, 3 pods evicted, 50 events written, 0 dropped
watches    1 of 3 kinds followed; the cluster has or shows no csistoragecapacities
           nodes: the connection was lost
warning    CustomNodeResources without a node of their name: ghost, old\\n and 1 more; what they report is not used
warning    no node has `nvidia.com/gpus`\\n
";
        assert_eq!(text, want);
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
    fn roles_are_said_in_words() {
        let leader = json!({"identity": "other", "server": "http://a:1"});
        for (role_, want) in [
            (
                "standby",
                "second, waits for a/b: other at http://a:1 has it",
            ),
            ("former", "second, has lost a/b: other at http://a:1 has it"),
            ("alone", "second, without leader election"),
            ("new kind", "second, new kind"),
        ] {
            let answer = json!({"mode": "second", "role": role_, "lease": "a/b", "leader": leader});
            assert!(shown(answer).contains(want), "{role_}");
        }
    }
}
