//! The scheduling cycle of one pod: PreFilter, Filter, Score, and PostFilter if no node fits. `Cycle::run_with` is the only
//! code that runs all these points in order; `Cycle::choices` runs them up to Score. A cycle changes nothing.
//!
//! Its callers: a decision (`decide.rs`) commits the result, an explanation (`explain.rs`) reports it, and the score table
//! (`scores.rs`) shows the scores behind it. Every cycle takes the same path, with probes, rewrites and extenders or
//! without them. The cycle calls the evaluator only through the methods of `Scan`; another evaluator needs the same methods.

use std::sync::Arc;

use super::extenders::{Conversation, Remaining};
use super::known_rejections::PointTrace;
use super::post_filter::{self, PostFilterResult};
use crate::cluster::Cluster;
use crate::model::{Pod, Timestamp};
use crate::scheduling::evaluate::{
    Cursor, Diagnosis, FeasibleNodes, NodeExplanation, NodeVerdict, PreFilterResult, Scan,
    Shortage, Tier, WeightedScores, by_tier,
};
use crate::scheduling::extender::Question;
use crate::scheduling::framework::{Point, Points, Rejection};
use crate::scheduling::hooks::{Hooks, PointResult};
use crate::scheduling::preemption::{Search, SearchScope, Unhelpful};
use crate::scheduling::profile::Profile;

/// The points of a cycle.
pub(super) const POINTS: Points = Points::of(&[
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::PreScore,
    Point::Score,
]);

/// What kube-scheduler reports for a pod if the cluster has no nodes.
pub(super) const NO_NODES: &str = "no nodes available to schedule pods";

pub struct Cycle<'a> {
    cluster: &'a Cluster,
    profile: &'a Profile,
    pod: &'a Arc<Pod>,
    hooks: &'a Hooks,
    now: Timestamp,
    /// The evaluation that all points share. Not used if rewrites show each point another cluster.
    scan: Option<Scan<'a>>,
    has_rewrites: bool,
    /// The nodes that PreFilter left, once it has run.
    pre_filter: Option<PreFilterResult>,
    /// Why PreFilter or Filter left no node.
    diagnosis: Option<Diagnosis>,
}

/// How a cycle ends, unless it fails.
#[expect(
    clippy::large_enum_variant,
    reason = "made once per decision and taken apart at once"
)]
#[derive(Debug, Clone)]
pub enum CycleResult {
    Node {
        slot: usize,
        /// The nodes that it was chosen from.
        nodes: FeasibleNodes,
        /// `None` for a single node, which is chosen without scores.
        total: Option<i64>,
    },
    NoNode {
        diagnosis: Diagnosis,
        post_filter: PostFilterResult,
    },
    /// Extenders must answer these questions first. The cycle then runs again from the start.
    Ask(Vec<Question>),
}

impl<'a> Cycle<'a> {
    pub fn new(
        cluster: &'a Cluster,
        profile: &'a Profile,
        pod: &'a Arc<Pod>,
        hooks: &'a Hooks,
        now: Timestamp,
    ) -> Self {
        Self {
            cluster,
            profile,
            pod,
            hooks,
            now,
            scan: None,
            has_rewrites: hooks.rewrite(POINTS),
            pre_filter: None,
            diagnosis: None,
        }
    }

    /// Runs the cycle without extenders. An error is the message of a plugin that failed.
    pub fn run(&mut self, cursor: Cursor, scope: SearchScope) -> Result<CycleResult, String> {
        self.run_with(None, cursor, scope)
    }

    /// The nodes that can be chosen: those with the lowest tier and the highest total of these, in the order of slots. Runs the
    /// cycle up to Score, without extenders. Empty if no node fits.
    pub fn choices(&mut self) -> Result<Vec<usize>, String> {
        if self.cluster.nodes().is_empty() || !self.pre_filter()? {
            return Ok(Vec::new());
        }
        let nodes = self.filter(false)?;
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let (columns, tiers) = self.weighted_scores(&nodes)?;
        let total = |at: usize| columns.iter().map(|(_, scores)| scores[at]).sum::<i64>();
        let order = |&(a, _): &(usize, usize), &(b, _): &(usize, usize)| {
            by_tier(&tiers[a], &tiers[b]).then(total(b).cmp(&total(a)))
        };
        let nodes = || nodes.slots().enumerate();
        let Some(best) = nodes().min_by(order) else {
            return Ok(Vec::new());
        };
        let best = nodes().filter(|node| order(node, &best).is_eq());
        Ok(best.map(|(_, slot)| slot).collect())
    }

    pub(super) fn run_with(
        &mut self,
        mut extenders: Option<&mut Conversation>,
        cursor: Cursor,
        scope: SearchScope,
    ) -> Result<CycleResult, String> {
        if self.cluster.nodes().is_empty() {
            return Err(NO_NODES.to_owned());
        }
        if self.pre_filter()? {
            // Extenders try the nominated node themselves.
            let nodes = self.filter(extenders.is_none())?;
            let remaining = match extenders.as_deref_mut() {
                Some(conversation) => conversation.filter(nodes, self.cluster, self.pod),
                None => Remaining::Nodes(nodes, Vec::new()),
            };
            match remaining {
                Remaining::Ask(questions) => return Ok(CycleResult::Ask(questions)),
                Remaining::Nodes(nodes, _) if nodes.is_empty() => {}
                Remaining::Nodes(nodes, extra) => {
                    let (slot, total) = self.score(&nodes, &extra, cursor)?;
                    return Ok(CycleResult::Node { slot, nodes, total });
                }
            }
        }
        Ok(self.post_filter(extenders, scope))
    }

    /// False if a plugin rejects the pod before any node is evaluated.
    fn pre_filter(&mut self) -> Result<bool, String> {
        let hooks = self.hooks;
        let run = |scan: &mut Scan| {
            hooks.evaluated(Point::PreFilter, scan.pod(), || {
                scan.evaluated_at_pre_filter()
            });
            let rejection = scan.pre_filter()?;
            let diagnosis = rejection.is_some().then(|| scan.diagnose());
            Ok((scan.pre_filter_result().clone(), rejection, diagnosis))
        };
        let found = self.point(Point::PreFilter, run, |found| match found {
            Ok((_, Some(rejection), _)) => PointResult::Rejected(rejection.clone()),
            found => PointResult::of(found),
        });
        let (result, _, diagnosis) = found?;
        self.pre_filter = Some(result);
        self.diagnosis = diagnosis;
        Ok(self.diagnosis.is_none())
    }

    /// All nodes that fit, or only the nominated node if it fits and `nominated_first` is set.
    fn filter(&mut self, nominated_first: bool) -> Result<FeasibleNodes, String> {
        let hooks = self.hooks;
        let run = |scan: &mut Scan| {
            let nominated = nominated_first.then(|| scan.filter_nominated()).flatten();
            let nodes = match nominated {
                Some(slot) => FeasibleNodes::from_iter([slot]),
                None => scan.filter()?,
            };
            hooks.evaluated(Point::Filter, scan.pod(), || scan.evaluated_at_filter());
            let diagnosis = nodes.is_empty().then(|| scan.diagnose());
            Ok((nodes, diagnosis))
        };
        let found = self.point(Point::Filter, run, |found| match found {
            Ok((_, Some(diagnosis))) => no_node_fits(diagnosis),
            found => PointResult::of(found),
        });
        let (nodes, diagnosis) = found?;
        self.diagnosis = diagnosis;
        Ok(nodes)
    }

    /// PreScore and Score: the best of these nodes. `extra` is what extenders add, in the order of the nodes.
    fn score(
        &mut self,
        nodes: &FeasibleNodes,
        extra: &[i64],
        cursor: Cursor,
    ) -> Result<(usize, Option<i64>), String> {
        if let (Some(only), 1) = (nodes.slots().next(), nodes.len()) {
            return Ok((only, None));
        }
        let hooks = self.hooks;
        let pre_score = |scan: &mut Scan| {
            let result = scan.pre_score();
            hooks.evaluated(Point::PreScore, scan.pod(), || {
                scan.evaluated_at_pre_score()
            });
            result
        };
        self.point(Point::PreScore, pre_score, PointResult::of)?;
        let score = |scan: &mut Scan| {
            let (slot, total) = scan.score(nodes, extra, cursor)?;
            hooks.evaluated(Point::Score, scan.pod(), || {
                scan.evaluated_at_score(nodes.len())
            });
            Ok((slot, Some(total)))
        };
        self.point(Point::Score, score, PointResult::of)
    }

    /// No node fits. Plugins and extenders look for a node where evicting pods helps.
    fn post_filter(
        &mut self,
        mut extenders: Option<&mut Conversation>,
        scope: SearchScope,
    ) -> CycleResult {
        let mut diagnosis = match self.diagnosis.take() {
            Some(diagnosis) => diagnosis,
            // Only extenders rejected some of the nodes.
            None => self.view(Point::Filter, |scan| scan.diagnose()),
        };
        if let Some(conversation) = extenders.as_deref() {
            conversation.add_rejections(&mut diagnosis, self.cluster);
        }
        let (hooks, cluster, pod, now) = (self.hooks, self.cluster, self.pod, self.now);
        let run = |scan: &mut Scan| {
            let mut result = post_filter::run_plugins(scan, &diagnosis, scope, now);
            hooks.evaluated(Point::PostFilter, scan.pod(), || result.evaluations());
            if let Some(conversation) = &mut extenders
                && let Some(questions) = conversation.post_filter(&mut result, scan)
            {
                return CycleResult::Ask(questions);
            }
            result.keep_allowed_victims(pod, cluster);
            result.choose(now);
            CycleResult::NoNode {
                diagnosis,
                post_filter: result,
            }
        };
        self.point(Point::PostFilter, run, |result| match result {
            CycleResult::NoNode { post_filter, .. } => post_filter.point_result(),
            CycleResult::Node { .. } | CycleResult::Ask(_) => PointResult::Success,
        })
    }

    /// Runs the plugins of a point, on the pod and the nodes that rewrites show there, between the calls of the probes.
    fn point<T>(
        &mut self,
        point: Point,
        run: impl FnOnce(&mut Scan<'_>) -> T,
        result: impl FnOnce(&T) -> PointResult,
    ) -> T {
        let (hooks, pod) = (self.hooks, self.pod);
        hooks.around(point, pod, |pod| self.at(point, pod, run), result)
    }

    fn at<T>(&mut self, point: Point, pod: &Arc<Pod>, run: impl FnOnce(&mut Scan<'_>) -> T) -> T {
        let profile = self.profile;
        if !self.has_rewrites {
            let begin = || Scan::begin(self.cluster, profile, self.pod);
            return run(self.scan.get_or_insert_with(begin));
        }
        let cluster = self.hooks.cluster(point, pod, self.cluster);
        let mut scan = match (point, &self.pre_filter) {
            // The nodes to score are given.
            (Point::PreScore | Point::Score, _) => {
                Scan::resume(&cluster, profile, pod, PreFilterResult::All)
            }
            (_, Some(result)) => Scan::resume(&cluster, profile, pod, result.clone()),
            (_, None) => Scan::begin(&cluster, profile, pod),
        };
        run(&mut scan)
    }
}

/// The result of Filter if no node fits.
fn no_node_fits(diagnosis: &Diagnosis) -> PointResult {
    PointResult::Rejected(Rejection::unschedulable(diagnosis.message("")))
}

/// What explanations and the score table read after a cycle has run. Probes do not see it.
impl Cycle<'_> {
    /// What probes saw of a cycle that found no node, to show it for other pods. Empty without probes.
    pub(super) fn traces(
        &self,
        diagnosis: &Diagnosis,
        post_filter: &PostFilterResult,
    ) -> Vec<PointTrace> {
        let Some(scan) = self.scan.as_ref().filter(|_| self.hooks.probe()) else {
            return Vec::new();
        };
        let pre_filter = match scan.pre_filter() {
            Ok(Some(rejection)) => PointResult::Rejected(rejection),
            other => PointResult::of(&other),
        };
        let filters = pre_filter == PointResult::Success;
        let filter = filters.then(|| PointTrace {
            point: Point::Filter,
            evaluations: scan.evaluated_at_filter(),
            result: no_node_fits(diagnosis),
        });
        let pre_filter = PointTrace {
            point: Point::PreFilter,
            evaluations: scan.evaluated_at_pre_filter(),
            result: pre_filter,
        };
        let post_filter = PointTrace {
            point: Point::PostFilter,
            evaluations: post_filter.evaluations(),
            result: post_filter.point_result(),
        };
        let points = [Some(pre_filter), filter, Some(post_filter)];
        points.into_iter().flatten().collect()
    }

    /// The results of the filters for every node, in the order of slots.
    pub fn verdicts(&mut self) -> Result<Vec<NodeVerdict>, String> {
        self.view(Point::Filter, |scan| scan.verdicts())
    }

    /// The results of the filters for every node with explanations, and with the scores of all nodes that fit.
    pub fn explain(&mut self) -> Result<Vec<NodeExplanation>, String> {
        let verdicts = self.verdicts()?;
        let (explanations, feasible) =
            self.view(Point::Filter, |scan| (scan.explanations(), scan.filter()));
        let nodes = verdicts.into_iter().zip(explanations);
        let mut nodes: Vec<NodeExplanation> = nodes
            .map(|(verdict, explanation)| NodeExplanation {
                verdict,
                explanation,
                scores: Vec::new(),
                total: 0,
                tiers: Vec::new(),
            })
            .collect();
        let feasible = feasible?;
        self.view(Point::Score, |scan| {
            scan.explain_scores(&mut nodes, &feasible)
        })?;
        Ok(nodes)
    }

    /// The resources for which nodes were rejected.
    pub fn shortages(&mut self) -> Vec<Shortage> {
        self.view(Point::Filter, |scan| scan.shortages())
    }

    /// The weighted scores of each plugin for these nodes, and the tiers of each node.
    pub(super) fn weighted_scores(
        &mut self,
        nodes: &FeasibleNodes,
    ) -> Result<(WeightedScores, Vec<Vec<Tier>>), String> {
        self.view(Point::Score, |scan| {
            let scores = scan.weighted(nodes)?;
            Ok((scores, scan.named_tiers(nodes)))
        })
    }

    /// Nodes where preemption does not help: slot, plugin and rejection.
    pub fn unhelpful(&mut self, search: &Search) -> Vec<(usize, Option<&'static str>, Rejection)> {
        self.view(Point::PostFilter, |scan| {
            let row = |tried: &Unhelpful| {
                let (plugin, rejection) = tried.rejection(scan);
                (tried.slot, plugin, rejection)
            };
            search.unhelpful.iter().map(row).collect()
        })
    }

    fn view<T>(&mut self, point: Point, read: impl FnOnce(&mut Scan<'_>) -> T) -> T {
        let pod = self.hooks.pod(point, self.pod);
        self.at(point, &pod, read)
    }
}
