//! What is waited for before a pod can be bound, as the watches tell it: that its claims get their volumes, and whether
//! the pod itself is still wanted.
//!
//! Only what somebody waits for is kept here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::cluster::Update;
use engine::model::{Claim, Name};
use engine::scheduler::Input;
use tokio::sync::{oneshot, watch};

/// Namespace and name.
type Key = (Name, Name);

/// How far a claim is on its way to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimState {
    pub(crate) bound: bool,
    pub(crate) deleting: bool,
    /// The node that a volume is to be made for.
    pub(crate) selected: Option<Name>,
}

impl From<&Claim> for ClaimState {
    fn from(claim: &Claim) -> Self {
        Self {
            bound: claim.volume.is_some() && claim.bind_completed,
            deleting: claim.deleting,
            selected: claim.selected_node.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Awaited(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What the watch showed last of claims that somebody waits for; `None` if it is gone, or nothing came yet.
    claims: HashMap<Key, watch::Sender<Option<ClaimState>>>,
    /// Pods that are prepared, by uid. Dropping the sender withdraws the pod.
    pods: HashMap<Name, oneshot::Sender<()>>,
}

/// What the watch shows of one claim from now on.
pub(crate) struct Told {
    awaited: Arc<Awaited>,
    key: Key,
    claim: watch::Receiver<Option<ClaimState>>,
}

/// A pod is wanted where it is prepared, until it is withdrawn.
pub(crate) struct Wanted {
    uid: Name,
    withdrawn: oneshot::Receiver<()>,
}

impl Awaited {
    /// Takes in what a watch brought, on its way to the engine.
    pub(crate) fn see(&self, inputs: &[Input]) {
        let mut state = self.lock();
        if state.claims.is_empty() && state.pods.is_empty() {
            return;
        }
        for input in inputs {
            match input {
                Input::Object(Update::Claim(claim)) => {
                    let key = (claim.namespace.clone(), claim.name.clone());
                    state.show(&key, Some(claim.into()));
                }
                Input::Object(Update::ClaimGone { namespace, name }) => {
                    state.show(&(namespace.clone(), name.clone()), None);
                }
                // The engine takes its room back when it hears of it.
                Input::Pod(pod) if pod.node.is_some() || pod.kind.terminating => {
                    state.pods.remove(&pod.uid);
                }
                Input::PodGone(uid) => drop(state.pods.remove(uid)),
                _ => {}
            }
        }
    }

    pub(crate) fn claim(self: &Arc<Self>, namespace: &Name, name: &Name) -> Told {
        let key = (namespace.clone(), name.clone());
        let mut state = self.lock();
        let sender = state.claims.entry(key.clone());
        let claim = sender.or_insert_with(|| watch::Sender::new(None));
        Told {
            awaited: self.clone(),
            claim: claim.subscribe(),
            key,
        }
    }

    /// The pod is prepared from now on; if it was, that is withdrawn.
    pub(crate) fn pod(&self, uid: &Name) -> Wanted {
        let (sender, withdrawn) = oneshot::channel();
        self.lock().pods.insert(uid.clone(), sender);
        Wanted {
            uid: uid.clone(),
            withdrawn,
        }
    }

    /// Nobody wants the pod where it is prepared, if it is.
    pub(crate) fn withdraw(&self, uid: &str) {
        self.lock().pods.remove(uid);
    }

    /// The pod is prepared. Returns false if it was withdrawn before.
    pub(crate) fn prepared(&self, mut wanted: Wanted) -> bool {
        let mut state = self.lock();
        let still = wanted.withdrawn.try_recv() == Err(oneshot::error::TryRecvError::Empty);
        if still {
            // The sender is its own: another one would have taken its place.
            state.pods.remove(&wanted.uid);
        }
        still
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn show(&self, key: &Key, claim: Option<ClaimState>) {
        if let Some(sender) = self.claims.get(key) {
            sender.send_replace(claim);
        }
    }
}

impl Told {
    /// What the claim has become since it was last asked for; `None` if it is gone.
    pub(crate) async fn changed(&mut self) -> Option<ClaimState> {
        match self.claim.changed().await {
            Ok(()) => self.claim.borrow_and_update().clone(),
            // Its sender lives as long as this.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let mut state = self.awaited.lock();
        let sender = state.claims.get(&self.key);
        if sender.is_some_and(|sender| sender.receiver_count() <= 1) {
            state.claims.remove(&self.key);
        }
    }
}

impl Wanted {
    /// Returns when it is not any more.
    pub(crate) async fn withdrawn(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.withdrawn).await;
    }
}

#[cfg(test)]
mod tests {
    use engine::model::Pod;
    use futures::FutureExt;

    use super::*;

    fn gone(name: &str) -> Input {
        let (namespace, name) = ("ns".into(), name.into());
        Input::Object(Update::ClaimGone { namespace, name })
    }

    #[test]
    fn a_claim_is_kept_while_somebody_waits_for_it() {
        let awaited = Arc::new(Awaited::default());
        let mut first = awaited.claim(&"ns".into(), &"a".into());
        let second = awaited.claim(&"ns".into(), &"a".into());
        assert_eq!(first.changed().now_or_never(), None);
        awaited.see(&[gone("b")]);
        assert_eq!(first.changed().now_or_never(), None);
        drop(second);
        awaited.see(&[gone("a")]);
        assert_eq!(first.changed().now_or_never(), Some(None));
        assert_eq!(first.changed().now_or_never(), None);
        drop(first);
        assert!(awaited.lock().claims.is_empty());
    }

    #[test]
    fn a_pod_is_withdrawn_by_its_end_or_by_its_next_turn() {
        let pod = |node: Option<&str>, terminating| {
            let kind = engine::model::PodKind {
                terminating,
                ..Default::default()
            };
            Input::Pod(Arc::new(Pod {
                uid: "u".into(),
                node: node.map(Into::into),
                kind: Arc::new(kind),
                ..Pod::default()
            }))
        };
        for (case, input, stays) in [
            ("another's end", Input::PodGone("v".into()), true),
            ("a change", pod(None, false), true),
            ("its end", Input::PodGone("u".into()), false),
            ("it is being deleted", pod(None, true), false),
            ("somebody bound it", pod(Some("n"), false), false),
        ] {
            let awaited = Awaited::default();
            let mut wanted = awaited.pod(&"u".into());
            awaited.see(&[input]);
            assert_eq!(wanted.withdrawn().now_or_never().is_none(), stays, "{case}");
        }
        let awaited = Awaited::default();
        let mut first = awaited.pod(&"u".into());
        let second = awaited.pod(&"u".into());
        assert_eq!(first.withdrawn().now_or_never(), Some(()));
        assert!(!awaited.prepared(first));
        assert!(awaited.prepared(second));
        assert!(awaited.lock().pods.is_empty());
    }
}
