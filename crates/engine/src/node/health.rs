//! Whether the samples are good enough to lend, and the taints and conditions that report it.
//!
//! Without good samples the node lends nothing more, and keeps what protects online pods as it is.

use std::time::Duration;

use super::interference::Suffering;
use super::{AgentCondition, AgentTaint, GroupConflict, Inputs, RefusedValue};
use crate::model::Timestamp;

/// No more lines about pods are logged in one period.
const MOST_NOTICES: usize = 10;
/// A sample older than this shows nothing about the node.
pub const STALE: Duration = Duration::from_secs(30);

pub const PRESSURE: &str = "tidepool.io/pressure";
pub const INTERFERENCE: &str = "tidepool.io/interference";
pub const UNHEALTHY: &str = "tidepool.io/agent-unhealthy";
/// The keys of all taints that the agent sets and removes.
pub const TAINT_KEYS: [&str; 3] = [PRESSURE, INTERFERENCE, UNHEALTHY];

pub const LENDING: &str = "Lending";
pub const DEGRADED: &str = "AgentDegraded";
pub const CONFLICT: &str = "CgroupConflict";
pub const MID_LS_UNSUPPORTED: &str = "MidLSUnsupported";
pub const NUMA_ZONES_DIFFER: &str = "NumaZonesDiffer";
/// The types of all conditions that the agent sets.
pub const CONDITIONS: [&str; 5] = [
    LENDING,
    DEGRADED,
    CONFLICT,
    MID_LS_UNSUPPORTED,
    NUMA_ZONES_DIFFER,
];

/// A reason to lend nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// In CamelCase.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// Remembers what was reported, so that each change is reported once.
#[derive(Debug, Default)]
pub struct Health {
    last: Option<Degradation>,
    last_conflicts: usize,
    last_claims: Vec<GroupConflict>,
}

/// Whether the last sample is recent enough to act on.
pub fn is_usable(inputs: &Inputs<'_>, now: Timestamp) -> bool {
    inputs
        .sample
        .is_some_and(|sample| sample.at.plus(STALE) >= now)
}

/// The reason to lend nothing, if there is one: the first that applies.
pub fn degradation(inputs: &Inputs<'_>, now: Timestamp) -> Option<Degradation> {
    let because = |reason, message: String| Some(Degradation { reason, message });
    let Some(sample) = inputs.sample else {
        return because("NoSample", "no sample of the node yet".to_owned());
    };
    let age = now.0.saturating_sub(sample.at.0);
    if age > i64::try_from(STALE.as_nanos()).unwrap_or(i64::MAX) {
        let age = age / Timestamp::SECOND;
        let limit = STALE.as_secs();
        return because(
            "StaleSample",
            format!("the last sample is {age} s old; at most {limit} s are allowed"),
        );
    }
    let machine = &sample.machine;
    if machine.cpus.0.is_empty() || machine.cpu.is_none() {
        return because(
            "NoCpuUse",
            "the CPU use of the node is not known".to_owned(),
        );
    }
    if machine.memory.is_none_or(|memory| memory.total.0 == 0) {
        return because(
            "NoMemoryUse",
            "the memory use of the node is not known".to_owned(),
        );
    }
    if inputs.node.is_none() {
        return because("NodeUnknown", "the Node object is not known".to_owned());
    }
    if inputs.pods.is_none() {
        return because(
            "PodsUnknown",
            "the pods of the node are not listed yet".to_owned(),
        );
    }
    if let Some((file, why)) = inputs.unreadable.first() {
        let more = inputs.unreadable.len() - 1;
        return because(
            "Unreadable",
            format!("cannot read {file}{}: {why}", more_files(more)),
        );
    }
    if let Some(why) = inputs.writes.journal {
        return because("JournalDamaged", why.to_owned());
    }
    // Without idle groups pods are protected all the same.
    let needed = |(file, _): &&(String, String)| !file.ends_with("cpu.idle");
    if let Some((file, why)) = inputs.writes.failed.iter().find(needed) {
        let more = inputs.writes.failed.len() - 1;
        return because(
            "WriteFailed",
            format!("cannot write {file}{}: {why}", more_files(more)),
        );
    }
    None
}

/// A pod that names the cgroup of another one.
fn claimed(conflict: &GroupConflict) -> String {
    let GroupConflict { pod, owner } = conflict;
    format!(
        "the annotation kubernetes.io/config.hash of pod {pod} names the cgroup of pod {owner}; it has no effect"
    )
}

/// What concerns single pods: users cause it, so the node lends all the same.
fn of_single_pods(inputs: &Inputs<'_>) -> Option<(&'static str, String)> {
    if let [first, rest @ ..] = inputs.group_conflicts {
        let more = match rest.len() {
            0 => String::new(),
            1 => "; 1 more pod does so".to_owned(),
            count => format!("; {count} more pods do so"),
        };
        return Some(("GroupClaimed", format!("{}{more}", claimed(first))));
    }
    let [first, rest @ ..] = inputs.writes.refused else {
        return None;
    };
    let RefusedValue { pod, file, why } = first;
    let mut known = inputs.pods.unwrap_or_default().iter();
    let known = known.find(|it| it.group == *pod);
    let name = known.map_or_else(
        || pod.to_string(),
        |it| format!("{}/{}", it.namespace, it.name),
    );
    let more = more_files(rest.len());
    let message =
        format!("the kernel refuses the value of {file}{more}: {why}; pod {name} runs without it");
    Some(("ValueRefused", message))
}

/// The rest of a sentence about one file.
fn more_files(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        _ => format!(" and {count} more files"),
    }
}

impl Health {
    /// A line for the log when the state changed.
    pub(super) fn notice(
        &mut self,
        degradation: Option<&Degradation>,
        inputs: &Inputs<'_>,
    ) -> Vec<String> {
        let mut notices = Vec::new();
        let reason = |it: Option<&Degradation>| it.map(|it| it.reason);
        match degradation {
            Some(now) if reason(self.last.as_ref()) != Some(now.reason) => {
                notices.push(format!("lending nothing more: {}", now.message));
            }
            None if self.last.is_some() => notices.push("lending again".to_owned()),
            _ => {}
        }
        self.last = degradation.cloned();
        let conflicts = inputs.writes.given_up.len();
        if conflicts > self.last_conflicts {
            notices.push(format!(
                "leaving {conflicts} cgroup files to another process, {} among them",
                inputs.writes.given_up[0]
            ));
        }
        self.last_conflicts = conflicts;
        let claims = inputs.group_conflicts.iter();
        let new = claims.filter(|it| !self.last_claims.contains(it));
        notices.extend(new.take(MOST_NOTICES).map(claimed));
        self.last_claims = inputs.group_conflicts.to_vec();
        notices
    }
}

/// The taints of this period. An agent that starts lends nothing yet and needs no taint.
pub fn taints(
    degradation: Option<&Degradation>,
    pressure: Option<&'static str>,
    suffering: Option<&Suffering>,
) -> Vec<AgentTaint> {
    let taint = |key, value| AgentTaint { key, value };
    let mut taints = Vec::new();
    taints.extend(pressure.map(|resource| taint(PRESSURE, resource)));
    taints.extend(suffering.map(|suffering| taint(INTERFERENCE, suffering.signal)));
    taints.extend(degradation.map(|degradation| taint(UNHEALTHY, degradation.reason)));
    taints
}

/// The conditions of this period.
pub fn conditions(
    degradation: Option<&Degradation>,
    is_lending: bool,
    inputs: &Inputs<'_>,
) -> Vec<AgentCondition> {
    let condition = |kind, status, reason, message: String| AgentCondition {
        kind,
        status,
        reason,
        message,
    };
    let lending = match degradation {
        Some(why) => condition(LENDING, false, why.reason, why.message.clone()),
        None if is_lending => condition(
            LENDING,
            true,
            "Measured",
            "the node lends what its online pods leave idle".to_owned(),
        ),
        None => condition(
            LENDING,
            false,
            "Disabled",
            "the settings switch lending or its protection off".to_owned(),
        ),
    };
    let degraded = match degradation {
        Some(why) => condition(DEGRADED, true, why.reason, why.message.clone()),
        None => match of_single_pods(inputs) {
            Some((reason, message)) => condition(DEGRADED, true, reason, message),
            None => condition(
                DEGRADED,
                false,
                "Measured",
                "samples are complete".to_owned(),
            ),
        },
    };
    let conflict = match inputs.writes.given_up {
        [] => condition(
            CONFLICT,
            false,
            "NoOtherWriter",
            "no other process writes the agent's cgroup files".to_owned(),
        ),
        [first, rest @ ..] => condition(
            CONFLICT,
            true,
            "OtherWriter",
            format!(
                "another process overwrites {first}{}; the agent leaves them",
                more_files(rest.len())
            ),
        ),
    };
    let mid = match inputs.burstable_memory_limit {
        Some(limit) => condition(
            MID_LS_UNSUPPORTED,
            true,
            "BurstableMemoryLimit",
            format!(
                "the directory burstable has a memory limit of {} bytes; disable qosReserved in the kubelet's configuration",
                limit.0
            ),
        ),
        None => condition(
            MID_LS_UNSUPPORTED,
            false,
            "NoMemoryLimit",
            "the directory burstable has no memory limit".to_owned(),
        ),
    };
    vec![lending, degraded, conflict, mid]
}
