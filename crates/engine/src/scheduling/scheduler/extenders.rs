//! The calls of extenders for one pod. The cycle runs again with every answer, because the cluster changes while extenders
//! answer; an answer is valid for the nodes that it names.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use indexmap::IndexMap;

use super::explain::ExtenderReport;
use super::post_filter::PostFilterResult;
use crate::cluster::{Cluster, Placed};
use crate::model::{Name, Pod};
use crate::scheduling::evaluate::{Diagnosis, FeasibleNodes, NodeStatus, Scan};
use crate::scheduling::extender::{Answer, Extender, Question, Response, Verb, Victims};
use crate::scheduling::framework::{Reason, Rejection, Status};
use crate::scheduling::preemption::Candidate;
use crate::scheduling::profile::EXTENDER;

/// An extender's scores go to 10, a plugin's to 100.
const SCALE: i64 = 10;

/// Nodes with the uids of the pods to evict, and how many of them break a budget.
type Kept = Vec<(Name, Vec<Name>, usize)>;

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) uid: Name,
    extenders: Arc<[Extender]>,
    open: Vec<(Question, Option<Answer>)>,
    /// How many extenders have filtered.
    filtered: usize,
    /// Nodes that passed them; `None` before the first.
    left: Option<HashSet<Name>>,
    /// Nodes that they rejected.
    rejected: IndexMap<Name, Rejection>,
    /// The nominated node was tried alone, and an extender rejected it.
    nominated_failed: bool,
    /// What they add to totals, once they were called.
    scores: Option<IndexMap<Name, i64>>,
    /// How many extenders have processed the candidates of preemption.
    preempted: usize,
    /// The answer of the last of them, not yet checked.
    preemption: Option<(usize, Result<Kept, String>)>,
    /// The candidates that they left; `None` before the first.
    candidates: Option<Vec<Candidate>>,
    /// All answers so far.
    pub(super) reports: Vec<ExtenderReport>,
}

/// What is left after extenders have filtered.
pub(super) enum Remaining {
    /// With what extenders add to the totals, in the order of the nodes; empty without extenders.
    Nodes(FeasibleNodes, Vec<i64>),
    Ask(Vec<Question>),
}

impl Conversation {
    pub(super) fn new(uid: Name, extenders: Arc<[Extender]>) -> Self {
        Self {
            uid,
            extenders,
            open: Vec::new(),
            filtered: 0,
            left: None,
            rejected: IndexMap::new(),
            nominated_failed: false,
            scores: None,
            preempted: 0,
            preemption: None,
            candidates: None,
            reports: Vec::new(),
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.open.iter().all(|(_, answer)| answer.is_some())
    }

    /// Only the first answer to a question counts.
    pub(super) fn answer(&mut self, extender: usize, answer: Answer) {
        let open = self
            .open
            .iter_mut()
            .find(|(question, answer)| question.extender == extender && answer.is_none());
        if let Some((_, open)) = open {
            *open = Some(answer);
        }
    }

    fn ask(&mut self, questions: Vec<Question>) -> Vec<Question> {
        self.open = questions
            .iter()
            .map(|question| (question.clone(), None))
            .collect();
        questions
    }

    /// The nodes that extenders leave, with their scores, or the next question.
    pub(super) fn filter(
        &mut self,
        feasible: FeasibleNodes,
        cluster: &Cluster,
        pod: &Pod,
    ) -> Remaining {
        let extenders = self.extenders.clone();
        let name = |slot: usize| {
            let entry = cluster.nodes().get(slot)?;
            Some((slot, entry.node.spec.name.clone()))
        };
        let feasible: Vec<(usize, Name)> = feasible.slots().filter_map(name).collect();
        loop {
            let nominated = feasible.iter().find(|(_, node)| {
                !self.nominated_failed && Some(node) == pod.nominated_node.as_ref()
            });
            let mut nodes = nominated.map_or_else(|| feasible.clone(), |node| vec![node.clone()]);
            if let Some(left) = &self.left {
                nodes.retain(|(_, node)| left.contains(node));
            }
            while let Some(extender) = extenders.get(self.filtered).filter(|_| !nodes.is_empty()) {
                self.filtered += 1;
                if extender.filters && extender.is_interested(pod) {
                    let question = Question {
                        extender: self.filtered - 1,
                        verb: Verb::Filter {
                            nodes: names(&nodes),
                        },
                    };
                    return Remaining::Ask(self.ask(vec![question]));
                }
            }
            if !nodes.is_empty() || nominated.is_none() {
                return self.scored(&nodes, pod);
            }
            *self = Self {
                nominated_failed: true,
                reports: std::mem::take(&mut self.reports),
                ..Self::new(self.uid.clone(), extenders.clone())
            };
        }
    }

    /// Asks for scores, once, if there are several nodes.
    fn scored(&mut self, nodes: &[(usize, Name)], pod: &Pod) -> Remaining {
        if self.scores.is_none() && nodes.len() > 1 {
            self.scores = Some(IndexMap::new());
            let scorers = self.extenders.iter().enumerate();
            let scorers = scorers
                .filter(|(_, extender)| extender.weight.is_some() && extender.is_interested(pod));
            let questions: Vec<Question> = scorers
                .map(|(extender, _)| Question {
                    extender,
                    verb: Verb::Prioritize {
                        nodes: names(nodes),
                    },
                })
                .collect();
            if !questions.is_empty() {
                return Remaining::Ask(self.ask(questions));
            }
        }
        let scores = self.scores.as_ref();
        let extra = |node: &Name| scores.and_then(|scores| scores.get(node)).copied();
        let extra = nodes.iter().map(|(_, node)| extra(node).unwrap_or(0));
        Remaining::Nodes(
            nodes.iter().map(|(slot, _)| *slot).collect(),
            extra.collect(),
        )
    }

    /// Lets extenders choose among the candidates of preemption. Returns the next question, if any.
    pub(super) fn post_filter(
        &mut self,
        result: &mut PostFilterResult,
        scan: &Scan,
    ) -> Option<Vec<Question>> {
        let candidates = result.candidates_mut()?;
        match self.choose_candidates(candidates, scan.cluster(), scan.pod()) {
            Ok(None) if candidates.is_empty() => result.give_up(),
            Ok(questions) => return questions,
            Err(text) => result.fail(&text),
        }
        None
    }

    fn choose_candidates(
        &mut self,
        candidates: &mut Vec<Candidate>,
        cluster: &Cluster,
        pod: &Pod,
    ) -> Result<Option<Vec<Question>>, String> {
        let extenders = self.extenders.clone();
        if let Some((extender, answer)) = self.preemption.take()
            && let Some(extender) = extenders.get(extender)
        {
            match answer.and_then(|kept| resolve(kept, cluster, pod, extender)) {
                Ok(kept) => self.candidates = Some(kept),
                Err(_) if extender.ignorable => {}
                Err(text) => return Err(text),
            }
        }
        if let Some(kept) = &self.candidates {
            candidates.clone_from(kept);
            candidates
                .iter_mut()
                .for_each(|kept| forget_gone(kept, cluster));
            candidates.retain(|kept| !kept.victims.is_empty());
        }
        while let Some(extender) = extenders
            .get(self.preempted)
            .filter(|_| !candidates.is_empty())
        {
            self.preempted += 1;
            if extender.preempts && extender.is_interested(pod) {
                let nodes = candidates.iter().map(|candidate| Victims {
                    node: candidate.node.clone(),
                    pods: candidate.victims.clone(),
                    violations: candidate.violations,
                });
                let question = Question {
                    extender: self.preempted - 1,
                    verb: Verb::Preempt {
                        nodes: nodes.collect(),
                    },
                };
                return Ok(Some(self.ask(vec![question])));
            }
        }
        Ok(None)
    }

    /// Applies the answers to the open questions. An error fails the cycle.
    pub(super) fn take_answers(&mut self) -> Result<(), String> {
        let extenders = self.extenders.clone();
        for (question, answer) in std::mem::take(&mut self.open) {
            let Some(extender) = extenders.get(question.extender) else {
                continue;
            };
            self.reports.push(ExtenderReport::new(extender, &answer));
            match (question.verb, answer) {
                (Verb::Filter { nodes: asked }, Some(Ok(answer @ Response::Filter { .. }))) => {
                    self.take_filter_answer(extender, asked, answer)?;
                }
                (Verb::Prioritize { .. }, Some(Ok(Response::Prioritize(scores)))) => {
                    let weight = extender.weight.unwrap_or(0);
                    let all = self.scores.get_or_insert_default();
                    for (node, score) in scores {
                        let points = score.saturating_mul(weight).saturating_mul(SCALE);
                        let sum = all.entry(node).or_default();
                        *sum = sum.saturating_add(points);
                    }
                }
                // PostFilter reports errors, and the cycle goes on.
                (Verb::Preempt { .. }, answer) => {
                    let kept = match answer {
                        Some(Ok(Response::Preempt(kept))) => Ok(kept),
                        Some(Err(text)) => Err(text),
                        _ => Err(no_answer(extender)),
                    };
                    self.preemption = Some((question.extender, kept));
                }
                // Scores are optional.
                (Verb::Prioritize { .. }, _) => {}
                (_, _) if extender.ignorable => {}
                (_, Some(Err(text))) => return Err(text),
                (_, _) => return Err(no_answer(extender)),
            }
        }
        Ok(())
    }

    fn take_filter_answer(
        &mut self,
        extender: &Extender,
        asked: Vec<Name>,
        answer: Response,
    ) -> Result<(), String> {
        let Response::Filter {
            nodes,
            failed,
            unresolvable,
        } = answer
        else {
            return Ok(());
        };
        let asked: HashSet<Name> = asked.into_iter().collect();
        if let Some(unknown) = nodes.iter().find(|node| !asked.contains(*node)) {
            if extender.ignorable {
                return Ok(());
            }
            return Err(format!(
                "extender \"{}\" claims a filtered node \"{unknown}\" which is not found in the input node list",
                extender.url
            ));
        }
        let rejections = failed
            .into_iter()
            .map(|(node, text)| (node, Rejection::unschedulable(text)));
        let finally = unresolvable
            .into_iter()
            .map(|(node, text)| (node, Rejection::unresolvable(text)));
        self.rejected.extend(rejections.chain(finally));
        self.left = Some(nodes.into_iter().collect());
        Ok(())
    }

    /// Adds the nodes that extenders rejected.
    pub(super) fn add_rejections(&self, diagnosis: &mut Diagnosis, cluster: &Cluster) {
        if self.left.is_some() {
            diagnosis.plugins.push(EXTENDER);
        }
        let statuses = diagnosis.statuses.iter().enumerate();
        let positions: HashMap<usize, usize> = statuses
            .map(|(position, known)| (known.slot, position))
            .collect();
        let mut reasons: IndexMap<Reason, usize> = diagnosis.reasons.drain(..).collect();
        for (node, rejection) in &self.rejected {
            let Some(slot) = cluster.nodes().slot(node) else {
                continue;
            };
            let new = NodeStatus {
                slot,
                status: rejection.status,
            };
            match positions.get(&slot) {
                Some(position) if rejection.status != Status::Error => {
                    diagnosis.statuses[*position] = new;
                }
                _ => continue,
            }
            for reason in &rejection.reasons {
                *reasons.entry(reason.clone()).or_default() += 1;
            }
        }
        diagnosis.reasons = reasons.into_iter().collect();
    }
}

/// The candidates of an answer, in the order of slots. It may name any node, and any pod on it that the pod may evict.
fn resolve(
    kept: Kept,
    cluster: &Cluster,
    ours: &Pod,
    extender: &Extender,
) -> Result<Vec<Candidate>, String> {
    let mut found = Vec::with_capacity(kept.len());
    for (node, uids, violations) in kept {
        let Some(slot) = cluster.nodes().slot(&node) else {
            return Err(format!("nodeinfo not found for node name \"{node}\""));
        };
        let mut victims = Vec::with_capacity(uids.len());
        for uid in uids {
            let placed = cluster.placed(&uid);
            let Some(Placed { pod: victim, .. }) = placed.filter(|it| it.node == node) else {
                return Err(format!(
                    "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {node}, but the pod is not found on \
                     that node",
                    extender.url
                ));
            };
            if !ours.may_evict(victim) {
                let (namespace, name) = (victim.namespace(), &victim.name);
                return Err(format!(
                    "extender: {} claims to preempt pod {namespace}/{name} on node: {node}, but a reclaimed pod may \
                     evict only reclaimed pods of lower priority",
                    extender.url
                ));
            }
            victims.push(victim.clone());
        }
        if !victims.is_empty() {
            found.push(Candidate {
                slot,
                node,
                victims,
                violations,
            });
        } else if !extender.ignorable {
            return Err(format!(
                "expected at least one victim pod on node \"{node}\""
            ));
        }
    }
    found.sort_by_key(|candidate| candidate.slot);
    Ok(found)
}

/// Drops victims that are gone since the extender was called.
fn forget_gone(candidate: &mut Candidate, cluster: &Cluster) {
    let slot = cluster.nodes().slot(&candidate.node);
    candidate.victims.retain(|victim| {
        let placed = cluster.placed(&victim.uid);
        slot.is_some() && placed.is_some_and(|placed| placed.node == candidate.node)
    });
    if let Some(slot) = slot {
        candidate.slot = slot;
    }
}

fn names(nodes: &[(usize, Name)]) -> Vec<Name> {
    nodes.iter().map(|(_, node)| node.clone()).collect()
}

fn no_answer(extender: &Extender) -> String {
    format!("extender {} did not answer what it was asked", extender.url)
}
