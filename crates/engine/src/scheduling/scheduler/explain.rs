//! The report about one pod: its state, its last attempt, and the result for every node now.
//!
//! Computed on demand by a scheduling cycle. A pod that has a node is evaluated as if it had none.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cycle::NO_NODES;
use super::extenders::Conversation;
use super::zones::ZonesReport;
use super::{Cycle, CycleResult, PostFilterResult, Scheduler, full_name};
use crate::cluster::{Cluster, NodeZones, ZoneHolder};
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::evaluate::{NodeExplanation, Shortage};
use crate::scheduling::extender::{Answer, Extender, Response};
use crate::scheduling::framework::{Point, Rejection};
use crate::scheduling::preemption::{PreemptionOutcome, SearchScope};
use crate::scheduling::profile::Profile;
use crate::scheduling::queue::{Attempt, Ticket, Whereabouts};

/// The number of pods whose extender answers are kept.
const MOST_REPORTS: usize = 64;

/// `S` holds the names of plugins and `T` times, so that the report can be read back as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport<S = &'static str, T = Timestamp> {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub scheduler_name: Name,
    #[serde(flatten)]
    pub state: PodState<S, T>,
    /// Number of attempts; `None` once the pod is on its node.
    pub attempts: Option<u32>,
    /// The last attempt that failed.
    pub last_attempt: Option<AttemptReport<S, T>>,
    /// The node that it is nominated to.
    pub nominated_node: Option<Name>,
    /// The NUMA zones that it has on its node, or would get on the node of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZonesReport>,
    /// What a decision would be now.
    pub verdict: Decision,
    /// Resources for which nodes are rejected now.
    #[serde(default)]
    pub shortages: Vec<Shortage>,
    /// What preemption would find now; `None` if a node fits.
    pub preemption: Option<PreemptionReport<S>>,
    /// The latest answers of extenders about the pod. They are not called for this report.
    pub extenders: Vec<ExtenderReport>,
    /// In the order of slots.
    pub nodes: Vec<NodeReport<S>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum PodState<S = &'static str, T = Timestamp> {
    /// It is in the active queue.
    Active,
    /// It was tried and is in backoff.
    Backoff {
        until: T,
    },
    /// It waits for an event that can help it.
    Unschedulable {
        rejected_by: Vec<S>,
        latest_retry: T,
    },
    /// A plugin of PreEnqueue keeps it out of the queue.
    Gated {
        by: S,
        latest_retry: T,
    },
    /// It is being scheduled, and extenders have not answered yet.
    AskingExtenders,
    /// It has a node, and plugins of Permit hold it.
    Waiting {
        node: Name,
        held_by: Vec<HeldBy<S, T>>,
    },
    /// It has a node, and PreBind is in progress.
    Preparing {
        node: Name,
    },
    /// It has a node, and the API server does not show it there yet.
    Binding {
        node: Name,
    },
    Placed {
        node: Name,
    },
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptReport<S = &'static str, T = Timestamp> {
    pub at: T,
    /// As in the pod's condition.
    pub reason: S,
    pub message: String,
    /// The message without that of PostFilter.
    #[serde(default)]
    pub reasons: String,
    /// Pods that are being evicted for it, as `namespace/name`.
    pub evicted: Vec<String>,
}

impl From<&Attempt> for AttemptReport {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at,
            reason: attempt.reason,
            message: attempt.message.clone(),
            reasons: attempt.reasons().to_owned(),
            evicted: attempt.evicted.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldBy<S = &'static str, T = Timestamp> {
    pub plugin: S,
    pub until: T,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// It would be bound to this node.
    Node(Name),
    /// No node fits; the message of its condition.
    NoNode(String),
    /// The cycle would fail.
    Error(String),
    /// Another scheduler decides; the text says which.
    Foreign(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport<S = &'static str> {
    #[serde(flatten)]
    pub result: NodeExplanation<S>,
    /// The pod is on this node, or is being bound to it.
    pub is_its_node: bool,
    pub is_nominated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionReport<S = &'static str> {
    #[serde(default)]
    pub outcome: PreemptionOutcome,
    /// The message of PostFilter in the pod's condition; empty if there is a candidate.
    pub message: String,
    /// The node of the candidate that would be chosen.
    pub node: Option<Name>,
    pub candidates: Vec<CandidateReport>,
    pub unhelpful: Vec<UnhelpfulReport<S>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateReport {
    pub node: Name,
    /// As `namespace/name`, most important first.
    pub victims: Vec<String>,
    /// Victims whose eviction violates a disruption budget.
    pub budget_violations: usize,
}

/// A node where evicting pods does not help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnhelpfulReport<S = &'static str> {
    pub node: Name,
    pub plugin: Option<S>,
    pub rejection: Rejection,
}

/// The answer of one extender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtenderReport {
    /// Its URL.
    pub extender: String,
    pub response: Option<Response>,
    /// Why there is no response.
    pub error: Option<String>,
}

impl ExtenderReport {
    pub(super) fn new(extender: &Extender, answer: &Option<Answer>) -> Self {
        let (response, error) = match answer {
            Some(Ok(response)) => (Some(response.clone()), None),
            Some(Err(text)) => (None, Some(text.clone())),
            None => (None, None),
        };
        Self {
            extender: extender.url.clone(),
            response,
            error,
        }
    }
}

/// The pod to explain, and the cluster to evaluate it in.
struct Subject<'a> {
    cluster: Cow<'a, Cluster>,
    pod: Arc<Pod>,
    /// The node that it has.
    node: Option<Name>,
    /// What it has of the NUMA zones that it claims.
    held: Option<ZoneHolder>,
}

impl Subject<'_> {
    /// The zones that the pod has, or would get on the node that is chosen now.
    fn zones(&self, verdict: &Decision, profile: Option<&Profile>) -> Option<ZonesReport> {
        self.pod.numa_binding()?;
        let node = match (&self.node, verdict) {
            (Some(node), _) | (None, Decision::Node(node)) => node,
            (None, Decision::NoNode(_) | Decision::Error(_) | Decision::Foreign(_)) => return None,
        };
        let slot = self.cluster.nodes().slot(node);
        let others = slot.and_then(|slot| self.cluster.zones_of(slot));
        let choose = |pod: &Pod, zones: &NodeZones| profile?.zones(pod, Some(zones));
        let zones = match (&self.node, &self.held) {
            (Some(_), Some(held)) => held.zones,
            (Some(_), None) => self.pod.zones?,
            (None, _) => choose(&self.pod, others?)?,
        };
        let mut report = ZonesReport::new(&self.pod, node, zones, others, &choose);
        let refused = self.held.as_ref().map(|held| held.refused);
        let refused = refused.filter(|refused| !refused.is_empty());
        report.refused = refused.map(|refused| refused.to_string());
        Some(report)
    }
}

impl Scheduler {
    /// `None` if no such pod waits for this scheduler or is on a node. The state is the same afterwards.
    pub fn explain(&mut self, namespace: &str, name: &str, now: Timestamp) -> Option<PodReport> {
        let is_it = |pod: &Pod| **pod.namespace() == *namespace && *pod.name == *name;
        if let Some(uid) = self.binding_as(is_it).cloned() {
            return self.explain_binding(&uid, now);
        }
        if let Some(ticket) = self.queue.find(namespace, name) {
            return self.explain_waiting(ticket, now);
        }
        let (pod, node) = {
            let mut placed = self.cluster.all_placed();
            let placed = placed.find(|placed| is_it(&placed.pod))?;
            (placed.pod.clone(), placed.node.clone())
        };
        let held = self.zones_held(&pod.uid, &node);
        let lifted = self.cluster.lift(&pod.uid)?;
        let subject = Subject::without(Cow::Borrowed(&self.cluster), &pod, &node, held);
        let report = self.report(subject, PodState::Placed { node }, None, now);
        self.cluster.put_back(lifted);
        Some(report)
    }

    fn explain_waiting(&self, ticket: &Ticket, now: Timestamp) -> Option<PodReport> {
        let state = match (self.queue.whereabouts(&ticket.pod.uid)?, ticket.gate()) {
            (Whereabouts::Active, _) => PodState::Active,
            (Whereabouts::Backoff { until }, _) => PodState::Backoff { until },
            (Whereabouts::Parked { latest_retry }, Some(by)) => {
                PodState::Gated { by, latest_retry }
            }
            (Whereabouts::Parked { latest_retry }, None) => PodState::Unschedulable {
                rejected_by: ticket.rejectors().plugins.clone(),
                latest_retry,
            },
            (Whereabouts::InFlight, _) => PodState::AskingExtenders,
        };
        let subject = Subject {
            cluster: Cow::Borrowed(&self.cluster),
            pod: ticket.pod.clone(),
            node: None,
            held: None,
        };
        Some(self.report(subject, state, Some(ticket), now))
    }

    fn explain_binding(&mut self, uid: &Name, now: Timestamp) -> Option<PodReport> {
        if self.cluster.catalog().storage().promise(uid).is_some() {
            return self.explain_promised(uid, now);
        }
        let node = self.binding.get(uid)?.node().spec.name.clone();
        let held = self.zones_held(uid, &node);
        let lifted = self.cluster.lift(uid)?;
        let report = self.binding.get(uid).map(|binding| {
            let cluster = Cow::Borrowed(&self.cluster);
            let subject = Subject::without(cluster, &binding.pod, &node, held);
            self.report(subject, binding.state(), self.ticket(uid), now)
        });
        self.cluster.put_back(lifted);
        report
    }

    /// The pod holds volumes, which it must give back before it is evaluated: on a copy of the cluster.
    fn explain_promised(&self, uid: &Name, now: Timestamp) -> Option<PodReport> {
        let binding = self.binding.get(uid)?;
        let (pod, node) = (&binding.pod, &binding.node().spec);
        let held = self.zones_held(uid, &node.name);
        let mut cluster = self.cluster.clone();
        let profile = self.profiles.get(binding.profile());
        for &index in profile.at(Point::Reserve).iter().rev() {
            let plugin = &profile.plugins()[index].plugin;
            plugin.unreserve(pod, node, cluster.catalog_mut());
        }
        cluster.remove_pod(uid);
        let subject = Subject::without(Cow::Owned(cluster), pod, &node.name, held);
        Some(self.report(subject, binding.state(), self.ticket(uid), now))
    }

    fn report(
        &self,
        subject: Subject,
        state: PodState,
        ticket: Option<&Ticket>,
        now: Timestamp,
    ) -> PodReport {
        let real = subject.pod.clone();
        let mut answers = self.extender_reports.iter().rev();
        let answers = answers.find(|(uid, _)| *uid == real.uid);
        let mut report = PodReport {
            namespace: real.namespace().clone(),
            name: real.name.clone(),
            uid: real.uid.clone(),
            scheduler_name: real.scheduler_name.clone(),
            state,
            attempts: ticket.map(|ticket| ticket.attempts),
            last_attempt: ticket.and_then(|ticket| Some(ticket.last.as_deref()?.into())),
            nominated_node: real.nominated_node.clone(),
            zones: None,
            verdict: Decision::NoNode(NO_NODES.to_owned()),
            shortages: Vec::new(),
            preemption: None,
            extenders: answers.map_or_else(Vec::new, |(_, answers)| answers.clone()),
            nodes: Vec::new(),
        };
        let Some(profile) = self.profiles.find(&real.scheduler_name) else {
            let names: Vec<&str> = self.profiles.iter().map(|it| &*it.scheduler_name).collect();
            report.verdict = Decision::Foreign(format!(
                "scheduler `{}` decides about this pod; the scheduler that answers places pods of {}",
                real.scheduler_name,
                names.join(", ")
            ));
            report.zones = subject.zones(&report.verdict, None);
            return report;
        };
        if let Some(text) = self.unknown_class(&real)
            && subject.node.is_none()
        {
            report.verdict = Decision::NoNode(text);
            return report;
        }
        if subject.cluster.nodes().is_empty() {
            return report;
        }
        let profile = self.profiles.get(profile);
        let decision = self.run_explained(&subject, profile, &mut report, now);
        report.verdict = decision.unwrap_or_else(Decision::Error);
        report.zones = subject.zones(&report.verdict, Some(profile));
        report
    }

    /// Runs the pod's cycle without extenders, and reports on every node and on preemption.
    fn run_explained(
        &self,
        subject: &Subject,
        profile: &Profile,
        report: &mut PodReport,
        now: Timestamp,
    ) -> Result<Decision, String> {
        let hooks = self.profiles.hooks().without_probes();
        let mut cycle = Cycle::new(&subject.cluster, profile, &subject.pod, &hooks, now);
        let result = cycle.run(self.cursor, SearchScope::All);
        report.nodes = subject.mark(cycle.explain()?);
        report.shortages = cycle.shortages();
        match result? {
            CycleResult::Node { slot, .. } => Ok(Decision::Node(subject.node_name(slot))),
            CycleResult::NoNode {
                diagnosis,
                post_filter,
            } => {
                let message = diagnosis.message(&post_filter.message());
                report.preemption = Some(subject.preemption(&mut cycle, post_filter));
                Ok(Decision::NoNode(message))
            }
            CycleResult::Ask(_) => Err("the cycle ran without extenders".to_owned()),
        }
    }

    fn zones_held(&self, uid: &Name, node: &Name) -> Option<ZoneHolder> {
        let zones = self.cluster.zones_of(self.cluster.nodes().slot(node)?)?;
        zones.holders().iter().find(|it| it.uid == *uid).cloned()
    }

    /// Keeps the answers of extenders for later reports.
    pub(super) fn remember(&mut self, conversation: Conversation) {
        let Conversation { uid, reports, .. } = conversation;
        self.extender_reports.retain(|(known, _)| *known != uid);
        if self.extender_reports.len() == MOST_REPORTS {
            self.extender_reports.pop_front();
        }
        self.extender_reports.push_back((uid, reports));
    }
}

impl<'a> Subject<'a> {
    /// As if the pod were on no node; the cluster must know nothing of it.
    fn without(
        cluster: Cow<'a, Cluster>,
        pod: &Arc<Pod>,
        node: &Name,
        held: Option<ZoneHolder>,
    ) -> Self {
        Self {
            cluster,
            held,
            pod: Arc::new(Pod {
                node: None,
                ..(**pod).clone()
            }),
            node: Some(node.clone()),
        }
    }

    fn node_name(&self, slot: usize) -> Name {
        let entry = self.cluster.nodes().get(slot);
        entry.map_or_else(Name::default, |entry| entry.node.spec.name.clone())
    }

    fn mark(&self, nodes: Vec<NodeExplanation>) -> Vec<NodeReport> {
        let is = |name: &Option<Name>, result: &NodeExplanation| {
            name.as_ref() == Some(&result.verdict.node)
        };
        let reports = nodes.into_iter().map(|result| NodeReport {
            is_its_node: is(&self.node, &result),
            is_nominated: is(&self.pod.nominated_node, &result),
            result,
        });
        reports.collect()
    }

    fn preemption(&self, cycle: &mut Cycle, found: PostFilterResult) -> PreemptionReport {
        let (outcome, message) = (found.outcome, found.message());
        let search = found.search.unwrap_or_default();
        let unhelpful = cycle.unhelpful(&search).into_iter();
        let unhelpful = unhelpful.map(|(slot, plugin, rejection)| UnhelpfulReport {
            node: self.node_name(slot),
            plugin,
            rejection,
        });
        let candidates = search.candidates.into_iter();
        let candidates = candidates.map(|candidate| CandidateReport {
            victims: candidate.victims.iter().map(full_name).collect(),
            budget_violations: candidate.violations,
            node: candidate.node,
        });
        PreemptionReport {
            outcome,
            message,
            node: found.candidate.map(|candidate| candidate.node),
            unhelpful: unhelpful.collect(),
            candidates: candidates.collect(),
        }
    }
}
