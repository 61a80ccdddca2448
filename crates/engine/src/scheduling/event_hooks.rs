//! Hooks around events: they change what the scheduler knows of objects, and can have a pod tried at once.
//!
//! The state of the scheduler follows from what hooks show: a rewritten object is known as rewritten, and a hidden one
//! does not exist, even if it was known before. So the number of events about an object does not matter, and a scheduler
//! that restarts reaches the same state. A hook returns values; it changes nothing itself.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::CustomNodeResource;
use crate::cluster::kinds::{Kind, Object, Update, Watched};
use crate::model::{Name, Node, Pod, Timestamp};
use crate::scheduling::instructions::Input;
use crate::scheduling::queue::{Queue, Ticket};

/// Called around every event. Each method does nothing by default.
pub trait EventHook: Send + Sync {
    /// A pod, pending or bound, before the scheduler knows it. A rewritten pod must keep its uid, namespace, name and the
    /// node it is bound to.
    fn pod(&self, _pod: &Arc<Pod>, _context: &EventContext) -> ObjectView<Arc<Pod>> {
        ObjectView::Unchanged
    }

    /// A node, before the scheduler knows it. A rewritten node must keep its name.
    fn node(&self, _node: &Node, _context: &EventContext) -> ObjectView<Node> {
        ObjectView::Unchanged
    }

    /// The report of a node's agent, before the scheduler knows it. A rewritten report must keep the name of the node.
    fn report(
        &self,
        _report: &CustomNodeResource,
        _context: &EventContext,
    ) -> ObjectView<CustomNodeResource> {
        ObjectView::Unchanged
    }

    /// The scheduler has applied the event, with the objects as hooks show them. It carries out the returned actions next.
    /// Not called for events about hidden objects.
    fn after(&self, _event: &Input, _context: &EventContext) -> Vec<HookAction> {
        Vec::new()
    }
}

/// What the scheduler is to know of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectView<T> {
    Unchanged,
    Replace(T),
    /// The object does not exist.
    Hide,
}

/// An action that a hook requests. No hook is called for it. An object changed by it stays so until the next event about
/// the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookAction {
    /// Tries the waiting pod with this uid as soon as its backoff allows, even if nothing happened that helps it. Plugins
    /// of PreEnqueue still keep pods out of the queue.
    Try(Name),
    /// Sets a pod that is hidden, or that a hook replaced.
    Pod(Arc<Pod>),
    /// Hides the pod with this uid.
    HidePod(Name),
    Node(Node),
    /// By name.
    HideNode(Name),
    Report(CustomNodeResource),
    /// By the name of the node.
    HideReport(Name),
}

/// What hooks can read.
#[derive(Clone, Copy)]
pub struct EventContext<'a> {
    pub cluster: &'a Cluster,
    pub now: Timestamp,
    pub(crate) queue: &'a Queue,
}

impl EventContext<'_> {
    /// All pods that wait or are being scheduled, in the order in which they were first seen.
    pub fn waiting(&self) -> Vec<&Ticket> {
        self.queue.tickets()
    }
}

/// The event hooks of a scheduler, in their order.
#[derive(Clone, Default)]
pub struct EventHooks(Vec<Arc<dyn EventHook>>);

impl EventHooks {
    pub fn new(hooks: Vec<Arc<dyn EventHook>>) -> Self {
        Self(hooks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The event to apply instead of this one, and whether a hook hides the object: the event is its end then. Each hook
    /// gets the result of the one before it. Ends of objects and results of instructions always stay as they are.
    pub(crate) fn rewrite(&self, event: Input, context: &EventContext) -> (Input, bool) {
        let (shown, end) = match event {
            Input::Pod(pod) | Input::Object(Update::Set(Object::Pod(pod))) => {
                let end = Input::PodGone(pod.uid.clone());
                let shown = self.fold(pod, |hook, pod| hook.pod(pod, context), same_pod);
                (shown.map(Input::Pod), end)
            }
            Input::Object(Update::Set(Object::Node(node))) => {
                let end = Update::Delete(Kind::Node, node.key());
                let same = |a: &Node, b: &Node| a.spec.name == b.spec.name;
                let shown = self.fold(node, |hook, node| hook.node(node, context), same);
                (
                    shown.map(|node| Input::Object(node.into())),
                    Input::Object(end),
                )
            }
            Input::Object(Update::Set(Object::CustomNodeResource(report))) => {
                let end = Update::Delete(Kind::CustomNodeResource, report.key());
                let same = |a: &CustomNodeResource, b: &CustomNodeResource| a.node == b.node;
                let shown = self.fold(report, |hook, report| hook.report(report, context), same);
                (
                    shown.map(|report| Input::Object(report.into())),
                    Input::Object(end),
                )
            }
            other => return (other, false),
        };
        shown.map_or((end, true), |event| (event, false))
    }

    /// `None` if it is hidden. Ignores a replacement that is another object.
    fn fold<T>(
        &self,
        object: T,
        view: impl Fn(&dyn EventHook, &T) -> ObjectView<T>,
        same: impl Fn(&T, &T) -> bool,
    ) -> Option<T> {
        self.0
            .iter()
            .try_fold(object, |object, hook| match view(&**hook, &object) {
                ObjectView::Replace(other) if same(&object, &other) => Some(other),
                ObjectView::Replace(_) | ObjectView::Unchanged => Some(object),
                ObjectView::Hide => None,
            })
    }

    /// The actions that all hooks request, in their order.
    pub(crate) fn after(&self, event: &Input, context: &EventContext) -> Vec<HookAction> {
        let actions = self.0.iter().map(|hook| hook.after(event, context));
        actions.flatten().collect()
    }
}

fn same_pod(a: &Arc<Pod>, b: &Arc<Pod>) -> bool {
    let identity = |pod: &Pod| {
        (
            pod.uid.clone(),
            pod.namespace().clone(),
            pod.name.clone(),
            pod.node.clone(),
        )
    };
    identity(a) == identity(b)
}
