//! Explanations of a decision, computed on demand from the same checks.

use std::collections::BTreeMap;
use std::fmt;

use super::points::FeasibleNodes;
use super::prepare::PreFilterResult;
use super::scan::{Diagnosis, NodeStatus, Scan, UNJUDGED, WORDED, Window};
use super::tally::evaluate;
use super::tier::Tier;
use crate::model::Name;
use crate::scheduling::framework::{Need, Places, Point, Reason, Rejection, Status};

/// The result of the filters for a node, and its scores.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeExplanation<S = &'static str> {
    #[serde(flatten)]
    pub verdict: NodeVerdict<S>,
    /// Says more than the reasons of the rejection: the taint, the requirement, the missing object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// In the order of the profile; plugins that skipped are not in it. Empty for a node that does not fit.
    pub scores: Vec<PluginScore<S>>,
    pub total: i64,
    /// Compared before the total. Empty for a node that does not fit, and without plugins that have tiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
}

/// The result of the filters for a node.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeVerdict<S = &'static str> {
    pub node: Name,
    /// `None` if it fits.
    pub rejection: Option<Rejection>,
    /// The plugin that rejected it; `None` if PreFilter left it out.
    pub plugin: Option<S>,
}

impl fmt::Display for NodeVerdict {
    /// `ok`, or the status and the reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rejection) = &self.rejection else {
            return f.write_str("ok");
        };
        let status = match rejection.status {
            Status::Error => "Err",
            Status::Unschedulable => "U",
            Status::Unresolvable => "UU",
            Status::Pending => "Pending",
        };
        write!(f, "{status} {}", rejection.message())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PluginScore<S = &'static str> {
    pub plugin: S,
    pub raw: i64,
    pub normalized: i64,
    pub weighted: i64,
}

/// The result of one plugin at PreFilter, whatever the others return.
#[derive(Debug, Clone, PartialEq)]
pub enum PreFilterAnswer {
    /// All nodes are to be evaluated, or only these.
    Pass {
        only: Option<Vec<Name>>,
    },
    /// It has nothing to filter by for this pod.
    Skip,
    Reject(Rejection),
}

impl Scan<'_> {
    /// The result of each plugin at PreFilter, in its order there.
    pub fn pre_filter_answers(&self) -> Vec<(&'static str, PreFilterAnswer)> {
        // Counts are not evaluated if PreFilter ended the cycle.
        let tallies = match self.pre_filter_result() {
            PreFilterResult::All | PreFilterResult::Only { .. } => self.places.tallies.clone(),
            PreFilterResult::Rejected { .. } | PreFilterResult::Failed { .. } => {
                let mut places = Places::default();
                let (cluster, plan) = (self.cluster, &self.plan);
                evaluate(cluster, plan, Need::PreFilter, &mut places, &mut Vec::new());
                places.tallies
            }
        };
        let answers = self.profile.at(Point::PreFilter).iter().map(|&index| {
            let plan = &self.plan.plugins[index];
            let answer = match &plan.rejection {
                _ if plan.skips_filters(&tallies) => PreFilterAnswer::Skip,
                Some(rejection) => PreFilterAnswer::Reject(rejection.clone()),
                None => PreFilterAnswer::Pass {
                    only: plan.only.clone(),
                },
            };
            (self.profile.plugins()[index].name, answer)
        });
        answers.collect()
    }

    /// The rejection by PreFilter, if it ends the cycle, and the plugin it is attributed to.
    pub fn early_end(&self) -> Option<(Option<&'static str>, Rejection)> {
        match self.pre_filter_result() {
            PreFilterResult::All | PreFilterResult::Only { .. } => None,
            PreFilterResult::Rejected { rejection, by, .. } => Some((*by, rejection.clone())),
            PreFilterResult::Failed { text, by } => {
                Some((Some(by), Rejection::error(text.clone())))
            }
        }
    }

    /// The results of the filters, in the order of slots; an error if a filter failed.
    pub fn verdicts(&mut self) -> Result<Vec<NodeVerdict>, String> {
        if let PreFilterResult::Failed { text, .. } = self.pre_filter_result() {
            return Err(text.clone());
        }
        self.judge();
        if let Some((_, text)) = self.judged().and_then(|judged| judged.error.as_ref()) {
            return Err(text.clone());
        }
        let mut fits = vec![false; self.cluster.nodes().slots().len()];
        self.judged()
            .iter()
            .flat_map(|judged| judged.feasible.slots())
            .for_each(|slot| fits[slot] = true);
        let mut window = Window::default();
        let slots = self.cluster.nodes().slots().iter().zip(fits).enumerate();
        let verdicts = slots.filter_map(|(slot, (entry, fits))| {
            let node = entry.as_ref()?.node.spec.name.clone();
            if fits {
                return Some(NodeVerdict {
                    node,
                    rejection: None,
                    plugin: None,
                });
            }
            let (plugin, rejection) = self.why_not(slot, &mut window);
            Some(NodeVerdict {
                node,
                rejection: Some(rejection),
                plugin,
            })
        });
        Ok(verdicts.collect())
    }

    /// Adds the scores of the nodes that fit. A single one has scores too, though it is chosen without them.
    pub(crate) fn explain_scores(
        &mut self,
        nodes: &mut [NodeExplanation],
        feasible: &FeasibleNodes,
    ) -> Result<(), String> {
        let mut scores: Vec<Vec<PluginScore>> = vec![Vec::new(); feasible.len()];
        if !feasible.is_empty() {
            let profile = self.profile;
            self.each_score(&feasible.0, |weight, plugin, raw, normalized| {
                for (index, scores) in scores.iter_mut().enumerate() {
                    scores.push(PluginScore {
                        plugin: profile.plugins()[plugin].name,
                        raw: raw[index],
                        normalized: normalized[index],
                        weighted: weight * normalized[index],
                    });
                }
            })?;
        }
        let tiers = self.named_tiers(feasible);
        let fitting = nodes
            .iter_mut()
            .filter(|node| node.verdict.rejection.is_none());
        for (node, (scores, tiers)) in fitting.zip(scores.into_iter().zip(tiers)) {
            node.total = scores.iter().map(|score| score.weighted).sum();
            node.tiers = tiers;
            node.scores = scores;
        }
        Ok(())
    }

    fn why_not(&self, slot: usize, at: &mut Window) -> (Option<&'static str>, Rejection) {
        match self.rejection(slot, at) {
            Some((plugin, rejection)) => (Some(self.profile.plugins()[plugin].name), rejection),
            None => self.why_left_out(),
        }
    }

    /// The rejection of nodes that no filter evaluated.
    fn why_left_out(&self) -> (Option<&'static str>, Rejection) {
        match self.pre_filter_result() {
            PreFilterResult::Rejected { rejection, by, .. } => (*by, rejection.clone()),
            PreFilterResult::Only { plugins, .. } => (
                None,
                Rejection::unresolvable(format!(
                    "node(s) didn't satisfy plugin(s) [{}]",
                    plugins.join(" ")
                )),
            ),
            PreFilterResult::All | PreFilterResult::Failed { .. } => (
                None,
                Rejection {
                    status: Status::Unresolvable,
                    reasons: vec![],
                },
            ),
        }
    }

    pub(super) fn diagnosis(&self) -> Diagnosis {
        let mut diagnosis = Diagnosis {
            nodes: self.cluster.nodes().len(),
            ..Diagnosis::default()
        };
        let mut window = Window::default();
        let mut named = vec![false; self.profile.plugins().len()];
        let mut pending = named.clone();
        let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
        let position = |name: &str| {
            self.profile
                .plugins()
                .iter()
                .position(|enabled| enabled.name == name)
        };
        match self.pre_filter_result() {
            PreFilterResult::Rejected {
                rejection, plugins, ..
            } => {
                diagnosis.pre_filter = Some(rejection.message());
                plugins
                    .iter()
                    .filter_map(|name| position(name))
                    .for_each(|index| named[index] = true);
            }
            PreFilterResult::Only { plugins, .. } => {
                plugins
                    .iter()
                    .filter_map(|name| position(name))
                    .for_each(|index| named[index] = true);
            }
            PreFilterResult::All | PreFilterResult::Failed { .. } => {}
        }
        let mut left_out = 0;
        let (_, why_left_out) = self.why_left_out();
        let mut codes: Vec<((usize, u32), usize)> = Vec::new();
        diagnosis.statuses.reserve(diagnosis.nodes);
        let nodes = self.cluster.nodes().slots().iter().enumerate();
        for slot in nodes.filter_map(|(slot, entry)| entry.as_ref().map(|_| slot)) {
            let judged = self
                .judged()
                .map(|judged| (judged, judged.rejections[slot]));
            let status = match judged {
                None | Some((_, (UNJUDGED, _))) => {
                    left_out += 1;
                    why_left_out.status
                }
                Some((judged, (WORDED, _))) => {
                    let Some((plugin, rejection)) = judged.worded.get(&slot) else {
                        continue;
                    };
                    named[*plugin] = true;
                    pending[*plugin] |= rejection.status == Status::Pending;
                    for reason in &rejection.reasons {
                        *reasons.entry(reason.clone()).or_default() += 1;
                    }
                    rejection.status
                }
                Some((_, (filter, verdict))) => {
                    let filter = usize::from(filter);
                    named[self.filters[filter].0] = true;
                    let row = self.row(slot, &mut window);
                    self.each_code(filter, verdict, row, &mut |code| {
                        // Adjacent nodes are often rejected for the same reason.
                        let known = codes.iter_mut().rev();
                        match known
                            .into_iter()
                            .find(|(known, _)| *known == (filter, code))
                        {
                            Some((_, nodes)) => *nodes += 1,
                            None => codes.push(((filter, code), 1)),
                        }
                    });
                    verdict.status()
                }
            };
            diagnosis.statuses.push(NodeStatus { slot, status });
        }
        for ((filter, code), nodes) in codes {
            *reasons.entry(self.reason(filter, code)).or_default() += nodes;
        }
        if left_out > 0 {
            for reason in why_left_out.reasons {
                *reasons.entry(reason).or_default() += left_out;
            }
        }
        let names = |flags: Vec<bool>| {
            flags
                .into_iter()
                .zip(self.profile.plugins())
                .filter_map(|(yes, e)| yes.then_some(e.name))
                .collect()
        };
        diagnosis.reasons = reasons.into_iter().collect();
        diagnosis.plugins = names(named);
        diagnosis.pending = names(pending);
        diagnosis
    }
}
