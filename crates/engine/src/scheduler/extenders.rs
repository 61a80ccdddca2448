//! A conversation with extenders about one pod. The nodes are judged anew with every answer, because the world moves on
//! while they think; their words hold for the nodes they named.

use indexmap::IndexMap;

use super::explain::Heard;
use crate::cluster::Cluster;
use crate::evaluate::{Diagnosis, NodeStatus};
use crate::extender::{Answer, Extender, Question, Said, Verb, Victims};
use crate::framework::{Rejection, Status};
use crate::model::{Name, Pod};
use crate::preemption::Candidate;
use crate::profile::EXTENDER;

/// An extender's scores go to 10, a plugin's to 100.
const SCALE: i64 = 10;

/// Nodes with the uids of the pods to evict, and how many of them break a budget.
type Kept = Vec<(Name, Vec<Name>, usize)>;

#[derive(Debug)]
pub(super) struct Talk {
    pub(super) uid: Name,
    open: Vec<(Question, Option<Answer>)>,
    /// Extenders that have filtered.
    filtered: usize,
    /// Nodes that they left; `None` before the first.
    left: Option<Vec<Name>>,
    /// What they said against nodes.
    rejected: IndexMap<Name, Rejection>,
    /// The nominated node was tried alone, and an extender refused it.
    nominated_failed: bool,
    /// What they add to totals, once asked.
    scores: Option<IndexMap<Name, i64>>,
    /// Extenders that have looked at candidates of preemption.
    seen_room: usize,
    /// What the last of them said, not yet looked into.
    about_room: Option<(usize, Result<Kept, String>)>,
    /// What they left so far; `None` before the first.
    candidates: Option<Vec<Candidate>>,
    /// Everything that was said so far.
    pub(super) heard: Vec<Heard>,
}

/// Who is left to choose from.
pub(super) enum Answered {
    One(usize),
    /// With what extenders add to their totals.
    Several(Vec<(usize, i64)>),
    None,
    Ask(Vec<Question>),
}

impl Answered {
    pub(super) fn without_extenders(feasible: &[usize]) -> Self {
        match feasible {
            [] => Self::None,
            [only] => Self::One(*only),
            _ => Self::Several(feasible.iter().map(|slot| (*slot, 0)).collect()),
        }
    }
}

impl Talk {
    pub(super) fn new(uid: Name) -> Self {
        Self {
            uid,
            open: Vec::new(),
            filtered: 0,
            left: None,
            rejected: IndexMap::new(),
            nominated_failed: false,
            scores: None,
            seen_room: 0,
            about_room: None,
            candidates: None,
            heard: Vec::new(),
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.open.iter().all(|(_, answer)| answer.is_some())
    }

    /// The first answer to a question counts; others are not expected.
    pub(super) fn answer(&mut self, extender: usize, answer: Answer) {
        let open = self
            .open
            .iter_mut()
            .find(|(question, said)| question.extender == extender && said.is_none());
        if let Some((_, said)) = open {
            *said = Some(answer);
        }
    }

    fn ask(&mut self, questions: Vec<Question>) -> Vec<Question> {
        self.open = questions
            .iter()
            .map(|question| (question.clone(), None))
            .collect();
        questions
    }

    /// From what the filters left to the choice, as far as answers are there.
    pub(super) fn go_on(
        &mut self,
        feasible: &[usize],
        cluster: &Cluster,
        pod: &Pod,
        extenders: &[Extender],
    ) -> Answered {
        let name = |slot: usize| {
            let entry = cluster.nodes().get(slot)?;
            Some((slot, entry.node.spec.name.clone()))
        };
        let feasible: Vec<(usize, Name)> = feasible.iter().filter_map(|slot| name(*slot)).collect();
        loop {
            let nominated = feasible.iter().find(|(_, node)| {
                !self.nominated_failed && Some(node) == pod.nominated_node.as_ref()
            });
            let mut nodes = nominated.map_or_else(|| feasible.clone(), |node| vec![node.clone()]);
            if let Some(left) = &self.left {
                nodes.retain(|(_, node)| left.contains(node));
            }
            let names = || nodes.iter().map(|(_, node)| node.clone()).collect();
            while let Some(extender) = extenders.get(self.filtered).filter(|_| !nodes.is_empty()) {
                self.filtered += 1;
                if extender.filters && extender.is_interested(pod) {
                    let question = Question {
                        extender: self.filtered - 1,
                        verb: Verb::Filter { nodes: names() },
                    };
                    return Answered::Ask(self.ask(vec![question]));
                }
            }
            match nodes[..] {
                [] if nominated.is_some() => {
                    *self = Self {
                        nominated_failed: true,
                        heard: std::mem::take(&mut self.heard),
                        ..Self::new(self.uid.clone())
                    };
                }
                [] => return Answered::None,
                [(slot, _)] => return Answered::One(slot),
                _ => return self.scored(&nodes, pod, extenders),
            }
        }
    }

    /// Asks for scores, once.
    fn scored(&mut self, nodes: &[(usize, Name)], pod: &Pod, extenders: &[Extender]) -> Answered {
        if self.scores.is_none() {
            self.scores = Some(IndexMap::new());
            let names = || nodes.iter().map(|(_, node)| node.clone()).collect();
            let scorers = extenders
                .iter()
                .enumerate()
                .filter(|(_, extender)| extender.weight.is_some() && extender.is_interested(pod));
            let questions: Vec<Question> = scorers
                .map(|(extender, _)| Question {
                    extender,
                    verb: Verb::Prioritize { nodes: names() },
                })
                .collect();
            if !questions.is_empty() {
                return Answered::Ask(self.ask(questions));
            }
        }
        let scores = self.scores.as_ref();
        let extra = |node: &Name| scores.and_then(|scores| scores.get(node)).copied();
        let among = nodes
            .iter()
            .map(|(slot, node)| (*slot, extra(node).unwrap_or(0)));
        Answered::Several(among.collect())
    }

    /// Shows candidates of preemption to those who want to see them; what they leave is in `candidates` in the end.
    pub(super) fn about_room(
        &mut self,
        candidates: &mut Vec<Candidate>,
        cluster: &Cluster,
        pod: &Pod,
        extenders: &[Extender],
    ) -> Result<Option<Vec<Question>>, String> {
        if let Some((extender, said)) = self.about_room.take()
            && let Some(extender) = extenders.get(extender)
        {
            match said.and_then(|kept| resolve(kept, cluster, pod, extender)) {
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
            .get(self.seen_room)
            .filter(|_| !candidates.is_empty())
        {
            self.seen_room += 1;
            if extender.preempts && extender.is_interested(pod) {
                let shown = candidates.iter().map(|candidate| Victims {
                    node: candidate.node.clone(),
                    pods: candidate.victims.clone(),
                    violations: candidate.violations,
                });
                let question = Question {
                    extender: self.seen_room - 1,
                    verb: Verb::Preempt {
                        nodes: shown.collect(),
                    },
                };
                return Ok(Some(self.ask(vec![question])));
            }
        }
        Ok(None)
    }

    /// Takes in the answers.
    pub(super) fn listen(&mut self, extenders: &[Extender]) -> Result<(), String> {
        for (question, answer) in std::mem::take(&mut self.open) {
            let Some(extender) = extenders.get(question.extender) else {
                continue;
            };
            self.heard.push(Heard::new(extender, &answer));
            match (question.verb, answer) {
                (Verb::Filter { nodes: asked }, Some(Ok(said @ Said::Filter { .. }))) => {
                    self.filter(extender, asked, said)?;
                }
                (Verb::Prioritize { .. }, Some(Ok(Said::Prioritize(scores)))) => {
                    let weight = extender.weight.unwrap_or(0);
                    let all = self.scores.get_or_insert_default();
                    for (node, score) in scores {
                        let points = score.saturating_mul(weight).saturating_mul(SCALE);
                        let sum = all.entry(node).or_default();
                        *sum = sum.saturating_add(points);
                    }
                }
                // Whatever is wrong with it is told by PostFilter, and breaks nothing else.
                (Verb::Preempt { .. }, answer) => {
                    let said = match answer {
                        Some(Ok(Said::Preempt(kept))) => Ok(kept),
                        Some(Err(text)) => Err(text),
                        _ => Err(no_answer(extender)),
                    };
                    self.about_room = Some((question.extender, said));
                }
                // Scores are welcome, not needed.
                (Verb::Prioritize { .. }, _) => {}
                (_, _) if extender.ignorable => {}
                (_, Some(Err(text))) => return Err(text),
                (_, _) => return Err(no_answer(extender)),
            }
        }
        Ok(())
    }

    fn filter(&mut self, extender: &Extender, asked: Vec<Name>, said: Said) -> Result<(), String> {
        let Said::Filter {
            nodes,
            failed,
            unresolvable,
        } = said
        else {
            return Ok(());
        };
        if let Some(unknown) = nodes.iter().find(|node| !asked.contains(node)) {
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
        self.left = Some(nodes);
        Ok(())
    }

    /// Adds to what the filters said against nodes what extenders did.
    pub(super) fn complain(&self, mut diagnosis: Diagnosis, cluster: &Cluster) -> Diagnosis {
        if self.left.is_some() {
            diagnosis.plugins.push(EXTENDER);
        }
        for (node, rejection) in &self.rejected {
            let Some(slot) = cluster.nodes().slot(node) else {
                continue;
            };
            let status = diagnosis
                .statuses
                .iter_mut()
                .find(|known| known.slot == slot);
            let new = NodeStatus {
                slot,
                status: rejection.status,
            };
            match status {
                Some(known) if rejection.status != Status::Error => *known = new,
                _ => continue,
            }
            for reason in &rejection.reasons {
                match diagnosis
                    .reasons
                    .iter_mut()
                    .find(|(known, _)| known == reason)
                {
                    Some((_, nodes)) => *nodes += 1,
                    None => diagnosis.reasons.push((reason.clone(), 1)),
                }
            }
        }
        diagnosis
    }
}

/// The candidates that an answer means, in the order of slots. It may name any node, and any pod on it that ours may
/// evict.
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
        let pods = || cluster.pods_on(slot).map(|placed| &placed.pod);
        let mut victims = Vec::with_capacity(uids.len());
        for uid in uids {
            let Some(victim) = pods().find(|pod| pod.uid == uid) else {
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

/// The world moves on while others think.
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

fn no_answer(extender: &Extender) -> String {
    format!("extender {} did not answer what it was asked", extender.url)
}
