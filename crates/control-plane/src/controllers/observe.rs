//! The watches of a controller: each object is parsed and given to the state of the controller, which plans from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::model::Name;
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinSet;

use super::Context;
use reconcile::watch::{self, Handler, ObjectChange, Observed, Progress, RawObject, Resource};

/// An object of a controller, or why it cannot be read.
pub(super) type ParsedAs<T> = Result<Observed<T, String>, String>;

/// What a controller has observed.
pub(super) trait Observer: Send + Sync + 'static {
    /// The kinds that it watches.
    type Kind: Copy + Send + Sync + 'static;
    type Object: Send + 'static;

    fn parse(kind: Self::Kind, raw: &RawObject) -> ParsedAs<Self::Object>;

    fn apply(&self, kind: Self::Kind, change: ObjectChange<Self::Object>);

    /// Called once for each object and text.
    fn report(problem: &str) {
        tracing::warn!("{problem}");
    }
}

/// The reflectors of a controller. They end when this is dropped.
pub(super) struct Watching {
    _reflectors: JoinSet<()>,
    kinds: usize,
    /// Kinds that were listed in full.
    listed: Receiver<usize>,
}

impl Watching {
    /// Starts a reflector for each kind. `resources` are in the order of `kinds`.
    pub(super) fn start<S: Observer>(
        context: &Context,
        state: &Arc<S>,
        kinds: impl IntoIterator<Item = S::Kind>,
        resources: &'static [Resource],
        progress: &Arc<Progress>,
    ) -> Self {
        let listing = Sender::new(0);
        let listed = listing.subscribe();
        let mut reflectors = JoinSet::new();
        for (kind, resource) in kinds.into_iter().zip(resources) {
            let handler = KindHandler {
                kind,
                state: state.clone(),
                listing: listing.clone(),
            };
            let client = context.client.clone();
            let reflect = watch::reflect(resource, client, handler, progress.clone(), true);
            reflectors.spawn(reflect);
        }
        Self {
            kinds: reflectors.len(),
            _reflectors: reflectors,
            listed,
        }
    }

    /// Returns when all kinds were listed.
    pub(super) async fn synced(&mut self) {
        let all = self.kinds;
        // Each reflector has a sender, and runs until this is dropped.
        let _ = self.listed.wait_for(|kinds| *kinds == all).await;
    }
}

/// Parses the objects of one kind and gives them to the state.
struct KindHandler<S: Observer> {
    kind: S::Kind,
    state: Arc<S>,
    listing: Sender<usize>,
}

impl<S: Observer> Handler for KindHandler<S> {
    type Object = S::Object;
    type Problem = String;

    fn parse(&self, raw: &RawObject) -> ParsedAs<S::Object> {
        S::parse(self.kind, raw)
    }

    async fn deliver(&self, changes: Vec<ObjectChange<S::Object>>) {
        for change in changes {
            self.state.apply(self.kind, change);
        }
    }

    async fn synced(&self, _: &'static str) {
        self.listing.send_modify(|kinds| *kinds += 1);
    }

    fn report(&self, problem: String) {
        S::report(&problem);
    }
}

/// Pods by their node.
pub(super) struct NodePods<T> {
    /// By node, then by uid.
    by_node: HashMap<Name, BTreeMap<Name, T>>,
    /// The node of each pod, by uid.
    node_of: HashMap<Name, Name>,
}

impl<T> Default for NodePods<T> {
    fn default() -> Self {
        Self {
            by_node: HashMap::new(),
            node_of: HashMap::new(),
        }
    }
}

impl<T: PartialEq> NodePods<T> {
    /// Whether the pod is new or has changed. Most changes of a pod are of its status.
    pub(super) fn insert(&mut self, node: &Name, uid: Name, pod: T) -> bool {
        self.node_of.insert(uid.clone(), node.clone());
        let pods = self.by_node.entry(node.clone()).or_default();
        let is_new = pods.get(&uid) != Some(&pod);
        if is_new {
            pods.insert(uid, pod);
        }
        is_new
    }

    /// Returns the node of the pod.
    pub(super) fn remove(&mut self, uid: &Name) -> Option<Name> {
        let node = self.node_of.remove(uid)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }

    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &T> {
        let pods = self.by_node.get(node).into_iter();
        pods.flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_node_and_forgotten_by_uid() {
        let mut pods = NodePods::default();
        let (node, uid) = (Name::from("n"), Name::from("u"));
        assert!(pods.insert(&node, uid.clone(), 1));
        assert!(!pods.insert(&node, uid.clone(), 1));
        assert!(pods.insert(&node, uid.clone(), 2));
        assert!(pods.insert(&node, "v".into(), 3));
        assert_eq!(pods.on("n").copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(pods.on("m").count(), 0);
        assert_eq!(pods.remove(&uid), Some(node));
        assert_eq!(pods.remove(&uid), None);
        assert_eq!(pods.remove(&"v".into()), Some("n".into()));
        assert!(pods.by_node.is_empty() && pods.node_of.is_empty());
    }
}
