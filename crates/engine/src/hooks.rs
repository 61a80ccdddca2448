//! Code around the extension points: it may watch, and it may change what plugins see.
//!
//! A hook is for those who build a scheduler of their own from this crate. It decides nothing itself.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::framework::Point;
use crate::model::{Node, Pod};

/// Called around every extension point. Each method does nothing by default.
pub trait Hook: Send + Sync {
    /// What plugins see from PreFilter to Score instead of the pod. It must keep the pod's uid.
    fn pod(&self, _pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        None
    }

    /// Whether [`Hook::node`] is to be asked about every node for this pod; that costs as much as a change of them.
    fn rewrites_nodes(&self, _pod: &Pod) -> bool {
        false
    }

    /// What plugins see from PreFilter to Score instead of the node. It must keep the node's name.
    fn node(&self, _pod: &Pod, _node: &Node) -> Option<Node> {
        None
    }

    /// The point is about to run for the pod.
    fn before(&self, _point: Point, _pod: &Pod) {}

    /// The point has run; an error is what it said against the pod.
    fn after(&self, _point: Point, _pod: &Pod, _said: Result<(), &str>) {}
}

/// All hooks of a scheduler, in their order.
#[derive(Clone, Default)]
pub struct Hooks(Vec<Arc<dyn Hook>>);

/// Nodes as they really are, while plugins see others.
#[must_use = "the real nodes must come back"]
pub(crate) struct Disguise(Vec<Arc<Node>>);

impl Hooks {
    pub fn new(hooks: Vec<Arc<dyn Hook>>) -> Self {
        Self(hooks)
    }

    /// The same, with one more at the end.
    pub fn and(mut self, hook: Arc<dyn Hook>) -> Self {
        self.0.push(hook);
        self
    }

    pub(crate) fn before(&self, point: Point, pod: &Pod) {
        self.0.iter().for_each(|hook| hook.before(point, pod));
    }

    pub(crate) fn after(&self, point: Point, pod: &Pod, said: Result<(), &str>) {
        self.0.iter().for_each(|hook| hook.after(point, pod, said));
    }

    /// The pod as plugins are to see it, each hook working on what the one before it made.
    pub(crate) fn pod(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        self.0.iter().fold(pod.clone(), |seen, hook| {
            hook.pod(&seen)
                .filter(|new| new.uid == pod.uid)
                .unwrap_or(seen)
        })
    }

    /// Puts what plugins are to see in the place of the real nodes.
    pub(crate) fn disguise(&self, cluster: &mut Cluster, pod: &Pod) -> Disguise {
        let hooks: Vec<_> = self
            .0
            .iter()
            .filter(|hook| hook.rewrites_nodes(pod))
            .collect();
        if hooks.is_empty() {
            return Disguise(Vec::new());
        }
        let nodes = cluster.nodes().slots().iter().flatten();
        let real: Vec<Arc<Node>> = nodes.map(|entry| entry.node.clone()).collect();
        let mut changed = Vec::new();
        for node in real {
            let mut seen: Option<Node> = None;
            for hook in &hooks {
                let new = hook.node(pod, seen.as_ref().unwrap_or(&node));
                seen = new.filter(|new| new.spec.name == node.spec.name).or(seen);
            }
            if let Some(seen) = seen {
                cluster.set_node(seen);
                changed.push(node);
            }
        }
        Disguise(changed)
    }

    /// The same for a mere question, in a world that may be a copy.
    pub(crate) fn show(&self, cluster: &mut Cow<Cluster>, pod: &mut Arc<Pod>) {
        *pod = self.pod(pod);
        if self.0.iter().any(|hook| hook.rewrites_nodes(pod)) {
            let _ = self.disguise(cluster.to_mut(), pod);
        }
    }

    pub(crate) fn reveal(&self, cluster: &mut Cluster, disguise: Disguise) {
        for node in disguise.0 {
            cluster.set_node((*node).clone());
        }
    }
}
