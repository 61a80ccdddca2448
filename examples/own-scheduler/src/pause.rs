//! An event hook: hides the pods of a paused namespace until it is resumed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::cluster::Namespace;
use engine::cluster::kinds::{Object, Update};
use engine::model::{Labels, Name, Pod};
use engine::scheduling::event_hooks::{EventContext, EventHook, HookAction, ObjectView};
use engine::scheduling::scheduler::Input;

const PAUSED: &str = "example.com/paused";

#[derive(Default)]
pub(crate) struct Pause {
    /// Hidden pods, by uid.
    hidden: Mutex<BTreeMap<Name, Arc<Pod>>>,
}

impl EventHook for Pause {
    fn pod(&self, pod: &Arc<Pod>, context: &EventContext) -> ObjectView<Arc<Pod>> {
        let namespace = context.cluster.catalog().namespace(pod.namespace());
        // A pod that has a node uses its capacity, paused or not.
        if pod.node.is_some() || !namespace.is_some_and(is_paused) {
            return ObjectView::Unchanged;
        }
        self.with_hidden(|hidden| hidden.insert(pod.uid.clone(), pod.clone()));
        ObjectView::Hide
    }

    fn after(&self, event: &Input, context: &EventContext) -> Vec<HookAction> {
        match event {
            Input::PodGone(uid) => {
                self.with_hidden(|hidden| hidden.remove(uid));
                Vec::new()
            }
            Input::Object(Update::Set(Object::Namespace(Namespace { name, labels })))
                if is_paused(labels) =>
            {
                self.hide(name, context)
            }
            Input::Object(Update::Set(Object::Namespace(Namespace { name, .. }))) => {
                self.resume(name)
            }
            _ => Vec::new(),
        }
    }
}

impl Pause {
    fn hide(&self, namespace: &Name, context: &EventContext) -> Vec<HookAction> {
        let waiting = context.waiting().into_iter().map(|ticket| &ticket.pod);
        let waiting = waiting.filter(|pod| pod.namespace() == namespace);
        waiting
            .map(|pod| {
                self.with_hidden(|hidden| hidden.insert(pod.uid.clone(), pod.clone()));
                HookAction::HidePod(pod.uid.clone())
            })
            .collect()
    }

    fn resume(&self, namespace: &Name) -> Vec<HookAction> {
        let freed = self.with_hidden(|hidden| -> Vec<Arc<Pod>> {
            let freed = hidden.extract_if(.., |_, pod| pod.namespace() == namespace);
            freed.map(|(_, pod)| pod).collect()
        });
        freed.into_iter().map(HookAction::Pod).collect()
    }

    fn with_hidden<T>(&self, work: impl FnOnce(&mut BTreeMap<Name, Arc<Pod>>) -> T) -> T {
        work(&mut self.hidden.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_paused(namespace: &Labels) -> bool {
    namespace.get(PAUSED).is_some()
}
