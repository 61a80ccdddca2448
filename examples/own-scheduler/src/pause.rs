//! A hook around events: hides the pods of a paused namespace until it is resumed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use engine::cluster::Update;
use engine::hooks::{EventHook, Known, Shown, Then};
use engine::model::{Labels, Name, Pod};
use engine::scheduler::Input;

const PAUSED: &str = "example.com/paused";

#[derive(Default)]
pub(crate) struct Pause {
    /// Hidden pods, by uid.
    kept: Mutex<BTreeMap<Name, Arc<Pod>>>,
}

impl EventHook for Pause {
    fn pod(&self, pod: &Arc<Pod>, known: &Known) -> Shown<Arc<Pod>> {
        let namespace = known.cluster.catalog().namespace(pod.namespace());
        // A pod that has a node uses its capacity, paused or not.
        if pod.node.is_some() || !namespace.is_some_and(is_paused) {
            return Shown::AsItIs;
        }
        self.with_kept(|kept| kept.insert(pod.uid.clone(), pod.clone()));
        Shown::Hidden
    }

    fn after(&self, event: &Input, known: &Known) -> Vec<Then> {
        match event {
            Input::PodGone(uid) => {
                self.with_kept(|kept| kept.remove(uid));
                Vec::new()
            }
            Input::Object(Update::Namespace { name, labels }) if is_paused(labels) => {
                self.keep_back(name, known)
            }
            Input::Object(Update::Namespace { name, .. }) => self.let_go(name),
            _ => Vec::new(),
        }
    }
}

impl Pause {
    fn keep_back(&self, namespace: &Name, known: &Known) -> Vec<Then> {
        let waiting = known.waiting().into_iter().map(|ticket| &ticket.pod);
        let waiting = waiting.filter(|pod| pod.namespace() == namespace);
        waiting
            .map(|pod| {
                self.with_kept(|kept| kept.insert(pod.uid.clone(), pod.clone()));
                Then::HidePod(pod.uid.clone())
            })
            .collect()
    }

    fn let_go(&self, namespace: &Name) -> Vec<Then> {
        let freed = self.with_kept(|kept| -> Vec<Arc<Pod>> {
            let freed = kept.extract_if(.., |_, pod| pod.namespace() == namespace);
            freed.map(|(_, pod)| pod).collect()
        });
        freed.into_iter().map(Then::Pod).collect()
    }

    fn with_kept<T>(&self, work: impl FnOnce(&mut BTreeMap<Name, Arc<Pod>>) -> T) -> T {
        work(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_paused(namespace: &Labels) -> bool {
    namespace.get(PAUSED).is_some()
}
