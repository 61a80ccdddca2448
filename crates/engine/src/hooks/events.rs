//! Code around events: it may change what becomes known of objects, and what is done next.
//!
//! The state follows from what hooks show: an object that is rewritten is known as rewritten, and one that is hidden does
//! not exist, whatever was known of it before. So it does not matter how often an object is told, and a scheduler that
//! starts anew comes to the same state. What hooks want besides is said in values; nothing is changed behind the
//! scheduler's back.

use std::sync::Arc;

use crate::cluster::{Cluster, Update};
use crate::model::{CustomNodeResource, Name, Node, Pod, Timestamp};
use crate::queue::{Queue, Ticket};
use crate::scheduler::Input;

/// Called around every event. Each method does nothing by default.
pub trait EventHook: Send + Sync {
    /// A pod, pending or bound, before it is known. Whoever rewrites it must keep what the API server keeps of it: uid,
    /// namespace, name and the node it is bound to.
    fn pod(&self, _pod: &Arc<Pod>, _known: &Known) -> Shown<Arc<Pod>> {
        Shown::AsItIs
    }

    /// A node, before it is known. It must keep its name.
    fn node(&self, _node: &Node, _known: &Known) -> Shown<Node> {
        Shown::AsItIs
    }

    /// What the agent of a node reports, before it is known. It must keep the name of the node.
    fn report(&self, _report: &CustomNodeResource, _known: &Known) -> Shown<CustomNodeResource> {
        Shown::AsItIs
    }

    /// The event is taken in, as hooks have shown it, and this is known now. What is returned is done next. Of what is
    /// hidden nobody hears.
    fn after(&self, _event: &Input, _known: &Known) -> Vec<Then> {
        Vec::new()
    }
}

/// What the scheduler comes to know of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown<T> {
    AsItIs,
    As(T),
    /// It does not exist.
    Hidden,
}

/// What a hook wants done. No hook is called for it. What is known of an object by it holds until the next event about the
/// object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// The waiting pod with this uid is tried as soon as it may be, whatever it waits for. Plugins that keep pods out of
    /// the queue still do.
    Try(Name),
    /// The pod is known like this: for one that was hidden, or shown otherwise.
    Pod(Arc<Pod>),
    /// The pod with this uid is hidden from now on.
    HidePod(Name),
    Node(Node),
    /// By name.
    HideNode(Name),
    Report(CustomNodeResource),
    /// By the name of the node.
    HideReport(Name),
}

/// What hooks make of an event.
pub(crate) enum Told {
    Event(Input),
    /// The object is over for the scheduler.
    Hidden {
        end: Input,
    },
}

/// What hooks may look at.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub cluster: &'a Cluster,
    pub now: Timestamp,
    pub(crate) queue: &'a Queue,
}

impl Known<'_> {
    /// Every pod that waits, or is being decided about, in the order in which they first came.
    pub fn waiting(&self) -> Vec<&Ticket> {
        self.queue.tickets()
    }
}

/// All of a scheduler, in their order.
#[derive(Clone, Default)]
pub struct EventHooks(Vec<Arc<dyn EventHook>>);

impl EventHooks {
    pub fn new(hooks: Vec<Arc<dyn EventHook>>) -> Self {
        Self(hooks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is taken in instead of this event, each hook working on what the one before it made. Ends of objects and
    /// results of instructions are always taken in as they are.
    pub(crate) fn shown(&self, event: Input, known: &Known) -> Told {
        let (shown, end) = match event {
            Input::Pod(pod) | Input::Object(Update::PodBound(pod)) => {
                let end = Input::PodGone(pod.uid.clone());
                let shown = self.fold(pod, |hook, pod| hook.pod(pod, known), same_pod);
                (shown.map(Input::Pod), end)
            }
            Input::Object(Update::Node(node)) => {
                let end = Update::NodeGone(node.spec.name.clone());
                let same = |a: &Node, b: &Node| a.spec.name == b.spec.name;
                let shown = self.fold(node, |hook, node| hook.node(node, known), same);
                (
                    shown.map(|node| Input::Object(Update::Node(node))),
                    Input::Object(end),
                )
            }
            Input::Object(Update::CustomNodeResource(report)) => {
                let end = Update::CustomNodeResourceGone(report.node.clone());
                let same = |a: &CustomNodeResource, b: &CustomNodeResource| a.node == b.node;
                let shown = self.fold(report, |hook, report| hook.report(report, known), same);
                (
                    shown.map(|report| Input::Object(Update::CustomNodeResource(report))),
                    Input::Object(end),
                )
            }
            other => return Told::Event(other),
        };
        shown.map_or(Told::Hidden { end }, Told::Event)
    }

    /// `None` if it is hidden. A rewrite that is about another object is not taken.
    fn fold<T>(
        &self,
        object: T,
        ask: impl Fn(&dyn EventHook, &T) -> Shown<T>,
        same: impl Fn(&T, &T) -> bool,
    ) -> Option<T> {
        self.0
            .iter()
            .try_fold(object, |object, hook| match ask(&**hook, &object) {
                Shown::As(other) if same(&object, &other) => Some(other),
                Shown::As(_) | Shown::AsItIs => Some(object),
                Shown::Hidden => None,
            })
    }

    /// What all of them want, in their order.
    pub(crate) fn after(&self, event: &Input, known: &Known) -> Vec<Then> {
        let wishes = self.0.iter().map(|hook| hook.after(event, known));
        wishes.flatten().collect()
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
