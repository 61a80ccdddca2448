//! Decisions as data that people read: computed on demand, from the same checks that decided.

use std::collections::BTreeMap;
use std::fmt;

use super::prepare::Narrowed;
use super::scan::{Diagnosis, NodeStatus, Scan, UNJUDGED, WORDED, Window};
use super::tally::evaluate;
use crate::framework::{Need, Places, Point, Reason, Rejection, Status};
use crate::model::Name;

/// What every node had to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// In the order of the slots.
    pub nodes: Vec<NodeExplanation>,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeExplanation<S = &'static str> {
    #[serde(flatten)]
    pub verdict: NodeVerdict<S>,
    /// In the order of the profile; plugins that skipped are not in it. Empty for a node that does not fit.
    pub scores: Vec<PluginScore<S>>,
    pub total: i64,
}

/// What the filters say about a node.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeVerdict<S = &'static str> {
    pub node: Name,
    /// `None` if it fits.
    pub rejection: Option<Rejection>,
    /// The plugin that said no; `None` if the node was left out before any plugin looked at it.
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

/// What one plugin says at PreFilter, whatever the others say.
#[derive(Debug, Clone, PartialEq)]
pub enum PreFilterAnswer {
    /// Nodes are to be asked: all, or only these.
    Pass {
        only: Option<Vec<Name>>,
    },
    /// It has nothing to filter by.
    Skip,
    Reject(Rejection),
}

impl Scan<'_> {
    /// What each plugin says at PreFilter, in its order there.
    pub fn pre_filter(&self) -> Vec<(&'static str, PreFilterAnswer)> {
        // Nothing was counted if PreFilter ended the cycle.
        let tallies = match self.narrowed() {
            Narrowed::All | Narrowed::Only { .. } => self.places.tallies.clone(),
            Narrowed::None { .. } | Narrowed::Failed { .. } => {
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

    /// What PreFilter says in the end, if it ends the cycle, and the plugin in whose name.
    pub fn early_end(&self) -> Option<(Option<&'static str>, Rejection)> {
        match self.narrowed() {
            Narrowed::All | Narrowed::Only { .. } => None,
            Narrowed::None { rejection, by, .. } => Some((*by, rejection.clone())),
            Narrowed::Failed { text, by } => Some((Some(by), Rejection::error(text.clone()))),
        }
    }

    /// What the filters say about every node, in the order of the slots; an error if one broke.
    pub fn verdicts(&mut self) -> Result<Vec<NodeVerdict>, String> {
        if let Narrowed::Failed { text, .. } = self.narrowed() {
            return Err(text.clone());
        }
        self.judge();
        if let Some((_, text)) = self.judged().and_then(|judged| judged.error.as_ref()) {
            return Err(text.clone());
        }
        let mut fits = vec![false; self.cluster.nodes().slots().len()];
        self.judged()
            .iter()
            .flat_map(|judged| &judged.feasible)
            .for_each(|(slot, _)| fits[*slot as usize] = true);
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

    /// The verdicts with the scores of nodes that fit. A lone one has scores too, though it is taken without them.
    pub fn explain(&mut self) -> Result<Explanation, String> {
        let verdicts = self.verdicts()?;
        let feasible = self.feasible()?;
        let nodes = self.explain_scores(verdicts, &feasible)?;
        Ok(Explanation { nodes })
    }

    /// Adds to verdicts the scores of the nodes that fit, which are these slots in their order.
    pub(crate) fn explain_scores(
        &mut self,
        verdicts: Vec<NodeVerdict>,
        feasible: &[usize],
    ) -> Result<Vec<NodeExplanation>, String> {
        let places: Vec<(u32, u32)> = feasible.iter().map(|slot| (*slot as u32, 1)).collect();
        let mut scores: Vec<Vec<PluginScore>> = vec![Vec::new(); places.len()];
        if !places.is_empty() {
            let profile = self.profile;
            self.score(&places, |weight, plugin, raw, normalized| {
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
        let mut scores = scores.into_iter();
        let nodes = verdicts.into_iter().map(|verdict| {
            let scores = if verdict.rejection.is_none() {
                scores.next().unwrap_or_default()
            } else {
                Vec::new()
            };
            NodeExplanation {
                verdict,
                total: scores.iter().map(|score| score.weighted).sum(),
                scores,
            }
        });
        Ok(nodes.collect())
    }

    fn why_not(&self, slot: usize, at: &mut Window) -> (Option<&'static str>, Rejection) {
        match self.rejection(slot, at) {
            Some((plugin, rejection)) => (Some(self.profile.plugins()[plugin].name), rejection),
            None => self.why_left_out(),
        }
    }

    /// What is said of nodes that no filter was asked about.
    fn why_left_out(&self) -> (Option<&'static str>, Rejection) {
        match self.narrowed() {
            Narrowed::None { rejection, by, .. } => (*by, rejection.clone()),
            Narrowed::Only { plugins, .. } => (
                None,
                Rejection::unresolvable(format!(
                    "node(s) didn't satisfy plugin(s) [{}]",
                    plugins.join(" ")
                )),
            ),
            Narrowed::All | Narrowed::Failed { .. } => (
                None,
                Rejection {
                    status: Status::Unresolvable,
                    reasons: vec![],
                },
            ),
        }
    }

    /// Why no node would do, for the pod's condition, the queue and preemption.
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
        match self.narrowed() {
            Narrowed::None {
                rejection, plugins, ..
            } => {
                diagnosis.pre_filter = Some(rejection.message());
                plugins
                    .iter()
                    .filter_map(|name| position(name))
                    .for_each(|index| named[index] = true);
            }
            Narrowed::Only { plugins, .. } => {
                plugins
                    .iter()
                    .filter_map(|name| position(name))
                    .for_each(|index| named[index] = true);
            }
            Narrowed::All | Narrowed::Failed { .. } => {}
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
                        // Neighbours are often refused alike.
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
