//! Hooks: code that a program adds around extension points and around events.
//!
//! A [`Probe`] watches extension points and changes nothing. A [`Rewrite`] changes the pod or the nodes that the plugins
//! of a point see. An [`EventHook`] changes what the scheduler knows of objects. No hook decides: a decision takes the
//! same path with hooks and without them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::model::{Node, Pod};
use crate::scheduling::framework::{Point, Points, Rejection};

/// Plugins by their index in the profile, with the number of nodes each one evaluated: 1 at points that do not go through
/// nodes.
pub(crate) type Evaluations = Vec<(usize, usize)>;

/// How the plugins of a point ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointResult {
    Success,
    /// At Permit: a plugin holds the pod.
    Wait,
    Rejected(Rejection),
}

impl PointResult {
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Rejected(Rejection::error(text.into()))
    }

    /// For plugins that either succeed or fail with a message.
    pub(crate) fn of<T>(result: &Result<T, String>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(text) => Self::error(text.clone()),
        }
    }
}

/// Watches extension points. Each method does nothing by default. The engine has no clock: a probe that measures time
/// reads the clock itself. If no node fits, and the same is known of an equal pod in an unchanged cluster, the plugins do
/// not run again: probes see the results of that pod.
pub trait Probe: Send + Sync {
    /// The points to watch. QueueSort is not in the default, because it runs at every step of a heap.
    fn points(&self) -> Points {
        Points::ALL.without(Point::QueueSort)
    }

    /// The plugins of the point are about to run. The pod is the one that they see. QueueSort compares two pods and calls
    /// this for both.
    fn before(&self, _point: Point, _pod: &Pod) {}

    /// The plugins that did not skip, by their index in the profile, with the number of nodes that each one evaluated (1
    /// if the point does not go through nodes). Called at PreFilter, Filter, PostFilter, PreScore, Score, and at PreBind
    /// for the plugins that have work to do.
    fn evaluated(&self, _point: Point, _pod: &Pod, _plugins: &[(usize, usize)]) {}

    /// The plugins of the point have run. PreBind and Bind end when the driver reports their result.
    fn after(&self, _point: Point, _pod: &Pod, _result: &PointResult) {}

    /// The plugins of Reserve are about to undo their work for the pod. Only for probes that watch Reserve.
    fn before_unreserve(&self, _pod: &Pod) {}

    /// The plugins of Reserve have undone their work.
    fn after_unreserve(&self, _pod: &Pod) {}
}

/// Changes the objects that plugins see. If a scheduler has a rewrite for a point from PreFilter to Score, each of these
/// points evaluates the cluster on its own, so decisions take longer.
pub trait Rewrite: Send + Sync {
    /// The points at which it changes something.
    fn points(&self) -> Points;

    /// The pod that the plugins of the point see instead. It must have the same uid.
    fn pod(&self, _point: Point, _pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        None
    }

    /// Whether to call [`Rewrite::node`]: for all nodes from PreFilter to Score, which copies the whole cluster, and for
    /// the chosen node from Reserve on.
    fn rewrites_nodes(&self, _point: Point, _pod: &Pod) -> bool {
        false
    }

    /// The node that the plugins of the point see instead. It must have the same name.
    fn node(&self, _point: Point, _pod: &Pod, _node: &Node) -> Option<Node> {
        None
    }
}

/// The probes and rewrites of a scheduler. They run in the order in which they were added.
#[derive(Clone, Default)]
pub struct Hooks {
    probes: Vec<(Points, Arc<dyn Probe>)>,
    rewrites: Vec<(Points, Arc<dyn Rewrite>)>,
}

impl Hooks {
    pub fn with_probe(mut self, probe: Arc<dyn Probe>) -> Self {
        self.probes.push((probe.points(), probe));
        self
    }

    pub fn with_rewrite(mut self, rewrite: Arc<dyn Rewrite>) -> Self {
        self.rewrites.push((rewrite.points(), rewrite));
        self
    }

    /// For cycles that are not decisions.
    pub(crate) fn without_probes(&self) -> Self {
        Self {
            probes: Vec::new(),
            rewrites: self.rewrites.clone(),
        }
    }

    fn probes(&self, point: Point) -> impl Iterator<Item = &dyn Probe> {
        let watching = self.probes.iter();
        let watching = watching.filter(move |(points, _)| points.contains(point));
        watching.map(|(_, probe)| &**probe)
    }

    fn rewrites(&self, point: Point) -> impl Iterator<Item = &dyn Rewrite> {
        let rewriting = self.rewrites.iter();
        let rewriting = rewriting.filter(move |(points, _)| points.contains(point));
        rewriting.map(|(_, rewrite)| &**rewrite)
    }

    /// Whether there are probes.
    pub(crate) fn probe(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Whether a rewrite may change what plugins see at one of these points.
    pub(crate) fn rewrite(&self, points: Points) -> bool {
        self.rewrites.iter().any(|(own, _)| own.intersects(points))
    }

    pub(crate) fn before(&self, point: Point, pod: &Pod) {
        self.probes(point)
            .for_each(|probe| probe.before(point, pod));
    }

    /// Evaluations are only counted if a probe watches the point.
    pub(crate) fn evaluated(
        &self,
        point: Point,
        pod: &Pod,
        evaluations: impl FnOnce() -> Evaluations,
    ) {
        if self.probes(point).next().is_some() {
            let plugins = evaluations();
            self.probes(point)
                .for_each(|probe| probe.evaluated(point, pod, &plugins));
        }
    }

    /// The result is only made if a probe watches the point.
    pub(crate) fn after(&self, point: Point, pod: &Pod, result: impl FnOnce() -> PointResult) {
        if self.probes(point).next().is_some() {
            let result = result();
            self.probes(point)
                .for_each(|probe| probe.after(point, pod, &result));
        }
    }

    /// Ends a point of the binding cycle, which began in an earlier call.
    pub(crate) fn end(&self, point: Point, pod: &Arc<Pod>, result: PointResult) {
        self.after(point, &self.pod(point, pod), || result);
    }

    pub(crate) fn before_unreserve(&self, pod: &Pod) {
        self.probes(Point::Reserve)
            .for_each(|probe| probe.before_unreserve(pod));
    }

    pub(crate) fn after_unreserve(&self, pod: &Pod) {
        self.probes(Point::Reserve)
            .for_each(|probe| probe.after_unreserve(pod));
    }

    /// Runs the plugins of a point on the pod that they are to see.
    pub(crate) fn around<T>(
        &self,
        point: Point,
        pod: &Arc<Pod>,
        run: impl FnOnce(&Arc<Pod>) -> T,
        result: impl FnOnce(&T) -> PointResult,
    ) -> T {
        let pod = self.pod(point, pod);
        self.before(point, &pod);
        let found = run(&pod);
        self.after(point, &pod, || result(&found));
        found
    }

    /// The pod that the plugins of a point see. Each rewrite gets the result of the one before it.
    pub(crate) fn pod<'p>(&self, point: Point, pod: &'p Arc<Pod>) -> Cow<'p, Arc<Pod>> {
        self.rewrites(point)
            .fold(Cow::Borrowed(pod), |seen, rewrite| {
                let new = rewrite.pod(point, &seen);
                new.filter(|new| new.uid == pod.uid)
                    .map_or(seen, Cow::Owned)
            })
    }

    /// The chosen node that the plugins of a point see.
    pub(crate) fn node<'n>(
        &self,
        point: Point,
        pod: &Pod,
        node: &'n Arc<Node>,
    ) -> Cow<'n, Arc<Node>> {
        let rewrites: Vec<_> = self.node_rewrites(point, pod).collect();
        match rewritten(&rewrites, point, pod, node) {
            Some(seen) => Cow::Owned(Arc::new(seen)),
            None => Cow::Borrowed(node),
        }
    }

    /// The nodes that the plugins of a point see, all of them.
    pub(crate) fn cluster<'a>(
        &self,
        point: Point,
        pod: &Pod,
        cluster: &'a Cluster,
    ) -> Cow<'a, Cluster> {
        let mut seen = Cow::Borrowed(cluster);
        let rewrites: Vec<_> = self.node_rewrites(point, pod).collect();
        if !rewrites.is_empty() {
            for entry in cluster.nodes().slots().iter().flatten() {
                if let Some(node) = rewritten(&rewrites, point, pod, &entry.node) {
                    seen.to_mut().set_node(node);
                }
            }
        }
        seen
    }

    fn node_rewrites(&self, point: Point, pod: &Pod) -> impl Iterator<Item = &dyn Rewrite> {
        self.rewrites(point)
            .filter(move |rewrite| rewrite.rewrites_nodes(point, pod))
    }
}

fn rewritten(rewrites: &[&dyn Rewrite], point: Point, pod: &Pod, node: &Node) -> Option<Node> {
    rewrites.iter().fold(None, |seen: Option<Node>, rewrite| {
        let new = rewrite.node(point, pod, seen.as_ref().unwrap_or(node));
        new.filter(|new| new.spec.name == node.spec.name).or(seen)
    })
}
