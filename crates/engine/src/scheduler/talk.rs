//! A conversation with extenders about one pod. The nodes are judged anew with every answer, because the world moves on
//! while they think; their words hold for the nodes they named.

use indexmap::IndexMap;

use super::explain::Heard;
use crate::cluster::Cluster;
use crate::evaluate::{Cursor, Diagnosis, NodeStatus, Scan};
use crate::extender::{Answer, Extender, Question, Said, Verb, Victims};
use crate::framework::{Rejection, Status};
use crate::model::{Name, Pod};
use crate::preemption::Candidate;
use crate::profile::EXTENDER;

/// An extender's scores go to 10, a plugin's to 100.
const SCALE: i64 = 10;

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
    candidates: Option<Vec<(Name, Vec<Name>, usize)>>,
    /// Everything that was said so far.
    pub(super) heard: Vec<Heard>,
}

pub(super) enum Answered {
    Node(usize),
    None(Diagnosis),
    Ask(Vec<Question>),
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

    /// From the filters to the choice, as far as answers are there.
    pub(super) fn go_on(
        &mut self,
        scan: &mut Scan,
        cluster: &Cluster,
        pod: &Pod,
        extenders: &[Extender],
        cursor: Cursor,
    ) -> Result<Answered, String> {
        self.listen(extenders)?;
        let name = |slot: usize| {
            cluster
                .nodes()
                .get(slot)
                .map(|entry| entry.node.spec.name.clone())
        };
        let feasible: Vec<(usize, Name)> = scan
            .feasible()?
            .into_iter()
            .filter_map(|slot| Some((slot, name(slot)?)))
            .collect();
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
                    return Ok(Answered::Ask(self.ask(vec![question])));
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
                [] => return Ok(Answered::None(self.diagnosis(scan, cluster))),
                [(slot, _)] => return Ok(Answered::Node(slot)),
                _ => {
                    if self.scores.is_none() {
                        self.scores = Some(IndexMap::new());
                        let scorers = extenders.iter().enumerate().filter(|(_, extender)| {
                            extender.weight.is_some() && extender.is_interested(pod)
                        });
                        let questions: Vec<Question> = scorers
                            .map(|(extender, _)| Question {
                                extender,
                                verb: Verb::Prioritize { nodes: names() },
                            })
                            .collect();
                        if !questions.is_empty() {
                            return Ok(Answered::Ask(self.ask(questions)));
                        }
                    }
                    let extra = |node: &Name| {
                        let scores = self.scores.as_ref();
                        scores
                            .and_then(|scores| scores.get(node))
                            .copied()
                            .unwrap_or(0)
                    };
                    let among: Vec<(usize, i64)> = nodes
                        .iter()
                        .map(|(slot, node)| (*slot, extra(node)))
                        .collect();
                    return Ok(Answered::Node(scan.choose(&among, cursor)?.0));
                }
            }
        }
    }

    /// Shows candidates of preemption to those who want to see them; what they leave is in `candidates` in the end.
    pub(super) fn about_room(
        &mut self,
        candidates: &mut Vec<Candidate>,
        pod: &Pod,
        extenders: &[Extender],
    ) -> Result<Option<Vec<Question>>, String> {
        if candidates.is_empty() {
            return Ok(None);
        }
        if let Some(kept) = &self.candidates {
            candidates.retain_mut(|candidate| {
                let kept = kept.iter().find(|(node, ..)| *node == candidate.node);
                let Some((_, victims, violations)) = kept else {
                    return false;
                };
                candidate
                    .victims
                    .retain(|victim| victims.contains(&victim.uid));
                candidate.violations = *violations;
                !candidate.victims.is_empty()
            });
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
        if candidates.is_empty() {
            return Err("no candidate node for preemption".to_owned());
        }
        Ok(None)
    }

    /// Takes in the answers.
    fn listen(&mut self, extenders: &[Extender]) -> Result<(), String> {
        for (question, answer) in std::mem::take(&mut self.open) {
            let Some(extender) = extenders.get(question.extender) else {
                continue;
            };
            self.heard.push(Heard::new(extender, &answer));
            match (question.verb, answer) {
                (Verb::Filter { nodes: asked }, Some(Ok(said @ Said::Filter { .. }))) => {
                    self.filter(asked, said)?;
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
                (Verb::Preempt { .. }, Some(Ok(Said::Preempt(kept)))) => {
                    let empty = kept.iter().find(|(_, victims, _)| victims.is_empty());
                    if let Some((node, ..)) = empty
                        && !extender.ignorable
                    {
                        return Err(format!(
                            "expected at least one victim pod on node \"{node}\""
                        ));
                    }
                    self.candidates = Some(kept);
                }
                // Scores are welcome, not needed.
                (Verb::Prioritize { .. }, _) => {}
                (_, _) if extender.ignorable => {}
                (_, Some(Err(text))) => return Err(text),
                (_, _) => {
                    return Err(format!(
                        "extender {} did not answer what it was asked",
                        extender.url
                    ));
                }
            }
        }
        Ok(())
    }

    fn filter(&mut self, asked: Vec<Name>, said: Said) -> Result<(), String> {
        let Said::Filter {
            nodes,
            failed,
            unresolvable,
        } = said
        else {
            return Ok(());
        };
        if let Some(unknown) = nodes.iter().find(|node| !asked.contains(node)) {
            return Err(format!(
                "extender claims a filtered node {unknown} which is not found in the input node list"
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

    /// What the filters and the extenders said against every node.
    fn diagnosis(&self, scan: &mut Scan, cluster: &Cluster) -> Diagnosis {
        let mut diagnosis = scan.diagnose();
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
