//! Code around the extension points and around events: it may watch, and it may change what plugins see and what
//! becomes known.
//!
//! A hook is for those who build a scheduler of their own from this crate. It decides nothing itself. Points that no hook
//! is about cost nothing; at the others a decision is made step by step, each step on what the hooks show it.

mod events;

use std::borrow::Cow;
use std::sync::Arc;

pub(crate) use events::Told;
pub use events::{EventHook, EventHooks, Known, Shown, Then};

use crate::cluster::Cluster;
use crate::evaluate::Asked;
use crate::framework::{Point, Points, Rejection};
use crate::model::{Node, Pod};

/// How the plugins of a point ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Fine,
    /// At Permit: not yet.
    Wait,
    No(Rejection),
}

/// Called around extension points. Each method does nothing by default.
pub trait Hook: Send + Sync {
    /// The points it is about. QueueSort must be asked for, because it runs with every step of a heap.
    fn points(&self) -> Points {
        Points::ALL.without(Point::QueueSort)
    }

    /// Whether it changes what is seen from PreFilter to Score. If nobody does, a decision looks at the world once.
    fn rewrites(&self) -> bool {
        true
    }

    /// What the plugins of the point see instead of the pod. It must keep the pod's uid.
    fn pod(&self, _point: Point, _pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        None
    }

    /// Whether [`Hook::node`] is to be asked about nodes. From PreFilter to Score these are all nodes, and showing other
    /// ones costs a copy of the whole cluster; from Reserve on it is the chosen node.
    fn rewrites_nodes(&self, _point: Point, _pod: &Pod) -> bool {
        false
    }

    /// What the plugins of the point see instead of the node. It must keep the node's name.
    fn node(&self, _point: Point, _pod: &Pod, _node: &Node) -> Option<Node> {
        None
    }

    /// The plugins of the point are about to run, on the pod as they will see it. At QueueSort two pods are compared, and
    /// this is called for both.
    fn before(&self, _point: Point, _pod: &Pod) {}

    /// Who had something to say at PreFilter, Filter, PostFilter, PreScore or Score, and who has something to do at
    /// PreBind before it is done: the plugin by its index in the pod's profile, and how many nodes it was asked about (1
    /// where nodes are not asked about one by one).
    fn asked(&self, _point: Point, _pod: &Pod, _plugins: &[(usize, usize)]) {}

    /// They have run. PreBind and Bind end when the world has answered.
    fn after(&self, _point: Point, _pod: &Pod, _said: &Said) {}

    /// The plugins of Reserve are about to take back what they did for the pod. Only for hooks that are about Reserve.
    fn before_unreserve(&self, _pod: &Pod) {}

    /// They have.
    fn after_unreserve(&self, _pod: &Pod) {}
}

/// All hooks of a scheduler, in their order.
#[derive(Clone, Default)]
pub struct Hooks(Vec<Arc<dyn Hook>>);

impl Hooks {
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Self {
        Self(hooks)
    }

    /// The same, with one more at the end.
    pub fn and(mut self, hook: Arc<dyn Hook>) -> Self {
        self.0.push(hook);
        self
    }

    fn at(&self, point: Point) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.0
            .iter()
            .filter(move |hook| hook.points().contains(point))
    }

    /// Whether anybody is about one of these points.
    pub(crate) fn any(&self, points: Points) -> bool {
        self.0.iter().any(|hook| hook.points().intersects(points))
    }

    /// Whether anybody who is about one of these points changes what is seen there.
    pub(crate) fn rewrite(&self, points: Points) -> bool {
        let mut about = self
            .0
            .iter()
            .filter(|hook| hook.points().intersects(points));
        about.any(|hook| hook.rewrites())
    }

    pub(crate) fn before(&self, point: Point, pod: &Pod) {
        self.at(point).for_each(|hook| hook.before(point, pod));
    }

    /// The plugins are only counted if somebody is about the point.
    pub(crate) fn asked(&self, point: Point, pod: &Pod, plugins: impl FnOnce() -> Asked) {
        if self.at(point).next().is_some() {
            let plugins = plugins();
            self.at(point)
                .for_each(|hook| hook.asked(point, pod, &plugins));
        }
    }

    pub(crate) fn after(&self, point: Point, pod: &Pod, said: &Said) {
        self.at(point).for_each(|hook| hook.after(point, pod, said));
    }

    pub(crate) fn before_unreserve(&self, pod: &Pod) {
        self.at(Point::Reserve)
            .for_each(|hook| hook.before_unreserve(pod));
    }

    pub(crate) fn after_unreserve(&self, pod: &Pod) {
        self.at(Point::Reserve)
            .for_each(|hook| hook.after_unreserve(pod));
    }

    /// Runs the plugins of a point that looks at no node, or at none but those that `run` knows of.
    pub(crate) fn around<T>(
        &self,
        point: Point,
        pod: &Arc<Pod>,
        run: impl FnOnce(&Arc<Pod>) -> T,
        said: impl FnOnce(&T) -> Said,
    ) -> T {
        if self.at(point).next().is_none() {
            return run(pod);
        }
        let seen = self.pod(point, pod);
        self.before(point, &seen);
        let found = run(&seen);
        self.after(point, &seen, &said(&found));
        found
    }

    /// The pod as the plugins of a point are to see it, each hook working on what the one before it made.
    pub(crate) fn pod(&self, point: Point, pod: &Arc<Pod>) -> Arc<Pod> {
        self.at(point).fold(pod.clone(), |seen, hook| {
            hook.pod(point, &seen)
                .filter(|new| new.uid == pod.uid)
                .unwrap_or(seen)
        })
    }

    /// The same for the node that was chosen.
    pub(crate) fn node(&self, point: Point, pod: &Pod, node: &Arc<Node>) -> Arc<Node> {
        let rewriting: Vec<_> = self.rewriting(point, pod).collect();
        match rewritten(&rewriting, point, pod, node) {
            Some(seen) => Arc::new(seen),
            None => node.clone(),
        }
    }

    /// The same for all nodes.
    pub(crate) fn cluster<'a>(
        &self,
        point: Point,
        pod: &Pod,
        cluster: &'a Cluster,
    ) -> Cow<'a, Cluster> {
        let mut seen = Cow::Borrowed(cluster);
        let rewriting: Vec<_> = self.rewriting(point, pod).collect();
        if !rewriting.is_empty() {
            for entry in cluster.nodes().slots().iter().flatten() {
                if let Some(node) = rewritten(&rewriting, point, pod, &entry.node) {
                    seen.to_mut().set_node(node);
                }
            }
        }
        seen
    }

    fn rewriting(&self, point: Point, pod: &Pod) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.at(point)
            .filter(move |hook| hook.rewrites_nodes(point, pod))
    }
}

fn rewritten(hooks: &[&Arc<dyn Hook>], point: Point, pod: &Pod, node: &Node) -> Option<Node> {
    hooks.iter().fold(None, |seen: Option<Node>, hook| {
        let new = hook.node(point, pod, seen.as_ref().unwrap_or(node));
        new.filter(|new| new.spec.name == node.spec.name).or(seen)
    })
}
