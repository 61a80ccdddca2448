//! What to do about one node: its CustomNodeResource, its taint, its Lease and its reclaimed pods.

use std::time::Duration;

use super::Liveness;
use crate::model::{Labels, Name, Timestamp};

/// When something happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentTimes {
    /// An agent that has not renewed its Lease for so long is silent.
    pub silent_after: Duration,
    /// The reclaimed pods of a node whose agent has been silent for so long are evicted; None: they stay.
    pub evict_after: Option<Duration>,
    /// A CustomNodeResource or a Lease without a Node goes after this time: the Node may just be on its way.
    pub orphaned_after: Duration,
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMeta {
    pub uid: Name,
    pub labels: Labels,
}

/// A CustomNodeResource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportMeta {
    pub labels: Labels,
    /// The uid of the Node that owns it; None: no Node does.
    pub owner: Option<Name>,
    /// It has the taint of a silent agent.
    pub is_tainted: bool,
}

/// What is observed of one node.
#[derive(Debug, Clone, Copy)]
pub struct AgentNode<'a> {
    /// Or since when there is no such Node.
    pub node: Result<&'a NodeMeta, Timestamp>,
    /// Err: CustomNodeResources cannot be read, or the cluster has no such kind.
    pub report: Result<Option<&'a ReportMeta>, Unreadable>,
    /// None: it has no Lease.
    pub agent: Option<Liveness>,
    /// As judged over all agents.
    pub brake: bool,
}

/// Nothing is known about objects of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAction {
    /// With all labels of the Node, and owned by it.
    CreateReport {
        is_tainted: bool,
    },
    /// These labels are set; others stay. With a new owner, the Node replaces another Node or none.
    UpdateReport {
        labels: Vec<(Name, Name)>,
        is_owner_new: bool,
    },
    Taint,
    Untaint,
    /// The Node is gone. The caller asks the API server once more before it deletes.
    DeleteReport,
    DeleteLease,
    EvictReclaimed,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPlan {
    pub actions: Vec<AgentAction>,
    /// The node counts as one with a silent agent, for the capacity of its tiers too.
    pub is_silent: bool,
    /// The plan can change at this time although nothing is observed.
    pub again: Option<Timestamp>,
}

/// Plans one node.
pub fn plan(observed: &AgentNode<'_>, times: &AgentTimes, now: Timestamp) -> AgentPlan {
    let report = observed.report.ok().flatten();
    let node = match observed.node {
        Ok(node) => node,
        Err(since) => return orphaned(observed, since.plus(times.orphaned_after), now),
    };
    let is_tainted = report.is_some_and(|it| it.is_tainted);
    let is_silent = match observed.agent {
        Some(Liveness::Silent(_)) => is_tainted || !observed.brake,
        // The process that led before judged it.
        Some(Liveness::Unknown) => is_tainted,
        Some(Liveness::Alive) | None => false,
    };
    let mut plan = AgentPlan {
        is_silent,
        ..AgentPlan::default()
    };
    match report {
        // One write at a time: the next one needs the version that this one makes.
        Some(report) => plan.actions.extend(match (report.is_tainted, is_silent) {
            (false, true) => Some(AgentAction::Taint),
            (true, false) => Some(AgentAction::Untaint),
            (true, true) | (false, false) => updated(node, report),
        }),
        None if observed.report.is_ok() => {
            let is_tainted = is_silent;
            plan.actions.push(AgentAction::CreateReport { is_tainted });
        }
        None => {}
    }
    if let (Some(Liveness::Silent(since)), Some(after)) = (observed.agent, times.evict_after)
        && !observed.brake
    {
        let due = since.plus(after);
        if due <= now {
            plan.actions.push(AgentAction::EvictReclaimed);
        } else {
            plan.again = Some(due);
        }
    }
    plan
}

fn updated(node: &NodeMeta, report: &ReportMeta) -> Option<AgentAction> {
    let labels: Vec<(Name, Name)> = node
        .labels
        .iter()
        .filter(|(key, value)| report.labels.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let is_owner_new = report.owner.as_ref() != Some(&node.uid);
    (is_owner_new || !labels.is_empty()).then_some(AgentAction::UpdateReport {
        labels,
        is_owner_new,
    })
}

fn orphaned(observed: &AgentNode<'_>, due: Timestamp, now: Timestamp) -> AgentPlan {
    let report = observed.report.ok().flatten();
    let actions = [
        report.map(|_| AgentAction::DeleteReport),
        observed.agent.map(|_| AgentAction::DeleteLease),
    ];
    let actions: Vec<AgentAction> = actions.into_iter().flatten().collect();
    if due <= now {
        return AgentPlan {
            actions,
            ..AgentPlan::default()
        };
    }
    AgentPlan {
        again: (!actions.is_empty()).then_some(due),
        ..AgentPlan::default()
    }
}
