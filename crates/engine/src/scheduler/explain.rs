//! All there is to say about one pod: where it is, how its last attempt ended, and what every node says about it now.
//!
//! Computed when somebody asks, from the same checks that decide. A pod that has a node is looked at as if it had none.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::extenders::Talk;
use super::{PostFiltered, Scheduler, full_name, post_filter};
use crate::cluster::Cluster;
use crate::evaluate::{Narrowed, NodeExplanation, Scan};
use crate::extender::{Answer, Extender, Said};
use crate::framework::{Point, Rejection};
use crate::model::{Name, Pod, Timestamp};
use crate::preemption::{Wanted, best};
use crate::profile::Profile;
use crate::queue::{Attempt, Ticket, Whereabouts};

/// Conversations with extenders that are remembered.
const MOST_HEARD: usize = 64;

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
    /// Times it was tried; `None` once that is forgotten, because it is on its node.
    pub attempts: Option<u32>,
    /// How the last attempt that failed ended.
    pub last_attempt: Option<Arc<Attempt<S, T>>>,
    /// Where room is being made for it.
    pub nominated_node: Option<Name>,
    /// What a decision would come to now.
    pub verdict: Verdict,
    /// What preemption would find now; `None` if the pod has no need of it.
    pub preemption: Option<PreemptionReport<S>>,
    /// What extenders said when they were last asked about the pod. They are not asked for this report.
    pub extenders: Vec<Heard>,
    /// In the order of nodes that decisions have.
    pub nodes: Vec<NodeReport<S>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "state",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum PodState<S = &'static str, T = Timestamp> {
    /// Its turn comes.
    Active,
    /// It was tried and must wait a little.
    Backoff {
        until: T,
    },
    /// It waits for something that may help it.
    Unschedulable {
        rejected_by: Vec<S>,
        latest_retry: T,
    },
    /// A plugin keeps it out of the queue.
    Gated {
        by: S,
        latest_retry: T,
    },
    /// It is its turn, and extenders are being asked.
    AskingExtenders,
    /// It has a node, and plugins hold it.
    Waiting {
        node: Name,
        held_by: Vec<HeldBy<S, T>>,
    },
    /// It has a node, and what it needs there is being made ready.
    Preparing {
        node: Name,
    },
    /// It has a node, and is not seen there yet.
    Binding {
        node: Name,
    },
    Placed {
        node: Name,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldBy<S = &'static str, T = Timestamp> {
    pub plugin: S,
    pub until: T,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It would go to this node.
    Node(Name),
    /// No node would take it; the words of its condition.
    NoNode(String),
    /// Something would break.
    Error(String),
    /// It is not ours to place.
    Foreign(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport<S = &'static str> {
    #[serde(flatten)]
    pub said: NodeExplanation<S>,
    /// The pod is, or is going, there.
    pub is_its_node: bool,
    pub is_nominated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionReport<S = &'static str> {
    /// Why it finds nothing; empty if it does.
    pub message: String,
    /// The candidate that would be taken.
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
    /// Victims whose disruption budget does not allow it.
    pub budget_violations: usize,
}

/// A node where evicting does not help, or not enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnhelpfulReport<S = &'static str> {
    pub node: Name,
    pub plugin: Option<S>,
    pub rejection: Rejection,
}

/// What one extender answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// Its URL.
    pub extender: String,
    pub said: Option<Said>,
    /// Why there is no answer.
    pub error: Option<String>,
}

impl Heard {
    pub(super) fn new(extender: &Extender, answer: &Option<Answer>) -> Self {
        let (said, error) = match answer {
            Some(Ok(said)) => (Some(said.clone()), None),
            Some(Err(text)) => (None, Some(text.clone())),
            None => (None, None),
        };
        Self {
            extender: extender.url.clone(),
            said,
            error,
        }
    }
}

/// A pod and the world to look at it in.
struct View<'a> {
    cluster: Cow<'a, Cluster>,
    pod: Arc<Pod>,
    /// Where it really is.
    node: Option<Name>,
}

impl Scheduler {
    /// `None` if no such pod waits for us or is on a node.
    pub fn explain(&self, namespace: &str, name: &str, now: Timestamp) -> Option<PodReport> {
        let is_it = |pod: &Pod| **pod.namespace() == *namespace && *pod.name == *name;
        if let Some(uid) = self.under_way_as(is_it) {
            return self.explain_under_way(uid, now);
        }
        if let Some(ticket) = self.queue.find(namespace, name) {
            return self.explain_waiting(ticket, now);
        }
        let placed = self
            .cluster
            .all_placed()
            .find(|placed| is_it(&placed.pod))?;
        let (pod, node) = (&placed.pod, &placed.node);
        let mut cluster = self.cluster.clone();
        cluster.remove_pod(&pod.uid);
        let state = PodState::Placed { node: node.clone() };
        let view = View::without(cluster, pod, node);
        Some(self.report(view, state, None, now))
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
        let view = View {
            cluster: Cow::Borrowed(&self.cluster),
            pod: ticket.pod.clone(),
            node: None,
        };
        Some(self.report(view, state, Some(ticket), now))
    }

    fn explain_under_way(&self, uid: &Name, now: Timestamp) -> Option<PodReport> {
        let under_way = self.under_way.get(uid)?;
        let (pod, node) = (&under_way.pod, &under_way.node().spec);
        let mut cluster = self.cluster.clone();
        let profile = self.profiles.get(under_way.profile());
        for &index in profile.at(Point::Reserve).iter().rev() {
            let plugin = &profile.plugins()[index].plugin;
            plugin.unreserve(pod, node, cluster.catalog_mut());
        }
        cluster.remove_pod(uid);
        let ticket = under_way.ticket().or_else(|| self.queue.get(uid));
        let view = View::without(cluster, pod, &node.name);
        Some(self.report(view, under_way.state(), ticket, now))
    }

    fn report(
        &self,
        view: View,
        state: PodState,
        ticket: Option<&Ticket>,
        now: Timestamp,
    ) -> PodReport {
        let real = view.pod.clone();
        let heard = self.heard.iter().rev().find(|(uid, _)| *uid == real.uid);
        let mut report = PodReport {
            namespace: real.namespace().clone(),
            name: real.name.clone(),
            uid: real.uid.clone(),
            scheduler_name: real.scheduler_name.clone(),
            state,
            attempts: ticket.map(|ticket| ticket.attempts),
            last_attempt: ticket.and_then(|ticket| ticket.last.clone()),
            nominated_node: real.nominated_node.clone(),
            verdict: Verdict::NoNode("no nodes available to schedule pods".to_owned()),
            preemption: None,
            extenders: heard.map_or_else(Vec::new, |(_, heard)| heard.clone()),
            nodes: Vec::new(),
        };
        let Some(profile) = self.profiles.find(&real.scheduler_name) else {
            report.verdict = Verdict::Foreign(format!(
                "pod {} is for scheduler `{}`, which is none of ours",
                full_name(&real),
                real.scheduler_name
            ));
            return report;
        };
        if let Some(text) = self.unknown_class(&real)
            && view.node.is_none()
        {
            report.verdict = Verdict::NoNode(text);
            return report;
        }
        if view.cluster.nodes().is_empty() {
            return report;
        }
        let profile = self.profiles.get(profile);
        let verdict = self.look(&view, profile, &mut report, now);
        report.verdict = verdict.unwrap_or_else(Verdict::Error);
        report
    }

    /// Asks every node, and preemption if none would do, each step on what hooks show for it.
    fn look(
        &self,
        view: &View,
        profile: &Profile,
        report: &mut PodReport,
        now: Timestamp,
    ) -> Result<Verdict, String> {
        let hooks = self.profiles.hooks();
        let see = |point| {
            let pod = hooks.pod(point, &view.pod);
            (hooks.cluster(point, &pod, &view.cluster), pod)
        };
        let (cluster, pod) = see(Point::PreFilter);
        let narrowed = Scan::new(&cluster, profile, &pod).narrowed().clone();
        let (cluster, pod) = see(Point::Filter);
        let mut filters = Scan::resume(&cluster, profile, &pod, narrowed.clone());
        let verdicts = filters.verdicts()?;
        let feasible = filters.feasible()?;
        let (cluster, pod) = see(Point::Score);
        let mut scores = Scan::resume(&cluster, profile, &pod, Narrowed::All);
        let explained = scores.explain_scores(verdicts, &feasible)?;
        report.nodes = view.mark(explained);
        let name = |slot: usize| {
            let entry = cluster.nodes().get(slot);
            entry.map_or_else(Name::default, |entry| entry.node.spec.name.clone())
        };
        match filters.filter()?[..] {
            [] => {}
            [only] => return Ok(Verdict::Node(name(only))),
            _ => {
                let among: Vec<(usize, i64)> = feasible.iter().map(|slot| (*slot, 0)).collect();
                return Ok(Verdict::Node(name(scores.choose(&among, self.cursor)?.0)));
            }
        }
        let diagnosis = filters.diagnose();
        let (cluster, pod) = see(Point::PostFilter);
        let scan = Scan::resume(&cluster, profile, &pod, narrowed);
        let wanted = Wanted::All;
        let found = post_filter(&cluster, &scan, profile, &pod, &diagnosis, wanted, now);
        let preemption = PreemptionReport::new(&scan, &cluster, &found, now);
        let message = diagnosis.message(&preemption.message);
        report.preemption = Some(preemption);
        Ok(Verdict::NoNode(message))
    }

    /// Keeps what was said for a while.
    pub(super) fn remember(&mut self, talk: Talk) {
        self.heard.retain(|(uid, _)| *uid != talk.uid);
        if self.heard.len() == MOST_HEARD {
            self.heard.pop_front();
        }
        self.heard.push_back((talk.uid, talk.heard));
    }
}

impl View<'_> {
    /// As if the pod were on no node; the cluster must know nothing of it.
    fn without(cluster: Cluster, pod: &Arc<Pod>, node: &Name) -> Self {
        Self {
            cluster: Cow::Owned(cluster),
            pod: Arc::new(Pod {
                node: None,
                ..(**pod).clone()
            }),
            node: Some(node.clone()),
        }
    }

    fn mark(&self, nodes: Vec<NodeExplanation>) -> Vec<NodeReport> {
        let is = |named: &Option<Name>, said: &NodeExplanation| {
            named.as_ref() == Some(&said.verdict.node)
        };
        let reports = nodes.into_iter().map(|said| NodeReport {
            is_its_node: is(&self.node, &said),
            is_nominated: is(&self.pod.nominated_node, &said),
            said,
        });
        reports.collect()
    }
}

impl PreemptionReport {
    fn new(scan: &Scan, cluster: &Cluster, found: &PostFiltered, now: Timestamp) -> Self {
        let search = found.search.as_ref();
        let candidates = search.map_or(&[][..], |search| &search.candidates);
        let unhelpful = search.map_or(&[][..], |search| &search.unhelpful);
        let node = best(candidates, now).first().map(|best| best.node.clone());
        Self {
            message: match node {
                Some(_) => String::new(),
                None => found.words.join(", "),
            },
            node,
            candidates: candidates
                .iter()
                .map(|candidate| CandidateReport {
                    node: candidate.node.clone(),
                    victims: candidate.victims.iter().map(full_name).collect(),
                    budget_violations: candidate.violations,
                })
                .collect(),
            unhelpful: unhelpful
                .iter()
                .filter_map(|tried| {
                    let (plugin, rejection) = tried.words(scan);
                    Some(UnhelpfulReport {
                        node: cluster.nodes().get(tried.slot)?.node.spec.name.clone(),
                        plugin,
                        rejection,
                    })
                })
                .collect(),
        }
    }
}
