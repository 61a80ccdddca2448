//! The nodes whose agents are silent: the controller of agents finds them, others depend on them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::model::Name;

type Listener = Box<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(crate) struct SilentNodes {
    nodes: Mutex<HashSet<Name>>,
    listeners: Mutex<Vec<Listener>>,
}

impl SilentNodes {
    pub(crate) fn contains(&self, node: &str) -> bool {
        self.lock().contains(node)
    }

    pub(crate) fn set(&self, node: &str, is_silent: bool) {
        let has_changed = match is_silent {
            true => self.lock().insert(node.into()),
            false => self.lock().remove(node),
        };
        if has_changed {
            let listeners = self.listeners.lock();
            let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
            listeners.iter().for_each(|listener| listener(node));
        }
    }

    /// Calls `listener` with each node that becomes silent or is silent no more.
    pub(crate) fn listen(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let listeners = self.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        listeners.push(Box::new(listener));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
