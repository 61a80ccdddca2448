//! Waits of pods in preparation: for volumes of their claims, and for a withdrawal of the pod, as the watches report it.
//!
//! Only claims and pods that are waited for are kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::cluster::Claim;
use engine::cluster::kinds::{Kind, Object, Update};
use engine::model::Name;
use engine::scheduling::scheduler::Input;
use tokio::sync::{oneshot, watch};

/// Namespace and name.
type ClaimKey = (Name, Name);

/// The progress of a claim towards a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimState {
    pub(crate) bound: bool,
    pub(crate) deleting: bool,
    /// The node that a volume is provisioned for.
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
pub(crate) struct ClaimWaits(Mutex<WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    /// The last state of the claims that are waited for; `None` if a claim is gone, or unknown yet.
    claims: HashMap<ClaimKey, watch::Sender<Option<ClaimState>>>,
    /// Pods in preparation, by uid. Dropping the sender withdraws the pod.
    pods: HashMap<Name, oneshot::Sender<()>>,
}

/// A subscription to one claim.
pub(crate) struct ClaimWait {
    claim_waits: Arc<ClaimWaits>,
    key: ClaimKey,
    claim: watch::Receiver<Option<ClaimState>>,
}

/// A pod in preparation, until it is withdrawn.
pub(crate) struct Preparing {
    uid: Name,
    withdrawn: oneshot::Receiver<()>,
}

impl ClaimWaits {
    /// Reads the inputs of a watch on their way to the engine.
    pub(crate) fn observe(&self, inputs: &[Input]) {
        let mut state = self.lock();
        if state.claims.is_empty() && state.pods.is_empty() {
            return;
        }
        for input in inputs {
            match input {
                Input::Object(Update::Set(Object::PersistentVolumeClaim(claim))) => {
                    let key = (claim.namespace.clone(), claim.name.clone());
                    state.show(&key, Some(claim.into()));
                }
                Input::Object(Update::Delete(Kind::PersistentVolumeClaim, key)) => {
                    state.show(&(key.namespace.clone(), key.name.clone()), None);
                }
                // The engine releases its node when it gets this input.
                Input::Pod(pod) if pod.node.is_some() || pod.kind.terminating => {
                    state.pods.remove(&pod.uid);
                }
                Input::PodGone(uid) => drop(state.pods.remove(uid)),
                _ => {}
            }
        }
    }

    pub(crate) fn claim(self: &Arc<Self>, namespace: &Name, name: &Name) -> ClaimWait {
        let key = (namespace.clone(), name.clone());
        let mut state = self.lock();
        let sender = state.claims.entry(key.clone());
        let claim = sender.or_insert_with(|| watch::Sender::new(None));
        ClaimWait {
            claim_waits: self.clone(),
            claim: claim.subscribe(),
            key,
        }
    }

    /// Starts the preparation of a pod; withdraws an earlier one.
    pub(crate) fn pod(&self, uid: &Name) -> Preparing {
        let (sender, withdrawn) = oneshot::channel();
        self.lock().pods.insert(uid.clone(), sender);
        Preparing {
            uid: uid.clone(),
            withdrawn,
        }
    }

    /// Withdraws the pod, if it is in preparation.
    pub(crate) fn withdraw(&self, uid: &str) {
        self.lock().pods.remove(uid);
    }

    /// The pod is prepared. Returns false if it was withdrawn before.
    pub(crate) fn prepared(&self, mut preparing: Preparing) -> bool {
        let mut state = self.lock();
        let still = preparing.withdrawn.try_recv() == Err(oneshot::error::TryRecvError::Empty);
        if still {
            // It is this preparation's sender: another preparation would have replaced it.
            state.pods.remove(&preparing.uid);
        }
        still
    }

    fn lock(&self) -> MutexGuard<'_, WaitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitState {
    fn show(&self, key: &ClaimKey, claim: Option<ClaimState>) {
        if let Some(sender) = self.claims.get(key) {
            sender.send_replace(claim);
        }
    }
}

impl ClaimWait {
    /// The next state of the claim; `None` if it is gone.
    pub(crate) async fn changed(&mut self) -> Option<ClaimState> {
        match self.claim.changed().await {
            Ok(()) => self.claim.borrow_and_update().clone(),
            // Its sender lives as long as this.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for ClaimWait {
    fn drop(&mut self) {
        let mut state = self.claim_waits.lock();
        let sender = state.claims.get(&self.key);
        if sender.is_some_and(|sender| sender.receiver_count() <= 1) {
            state.claims.remove(&self.key);
        }
    }
}

impl Preparing {
    /// Returns when the pod is withdrawn.
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
        let key = engine::cluster::kinds::Key::new("ns", name);
        Input::Object(Update::Delete(Kind::PersistentVolumeClaim, key))
    }

    #[test]
    fn a_claim_is_kept_while_somebody_waits_for_it() {
        let claim_waits = Arc::new(ClaimWaits::default());
        let mut first = claim_waits.claim(&"ns".into(), &"a".into());
        let second = claim_waits.claim(&"ns".into(), &"a".into());
        assert_eq!(first.changed().now_or_never(), None);
        claim_waits.observe(&[gone("b")]);
        assert_eq!(first.changed().now_or_never(), None);
        drop(second);
        claim_waits.observe(&[gone("a")]);
        assert_eq!(first.changed().now_or_never(), Some(None));
        assert_eq!(first.changed().now_or_never(), None);
        drop(first);
        assert!(claim_waits.lock().claims.is_empty());
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
            ("another client bound it", pod(Some("n"), false), false),
        ] {
            let claim_waits = ClaimWaits::default();
            let mut preparing = claim_waits.pod(&"u".into());
            claim_waits.observe(&[input]);
            assert_eq!(
                preparing.withdrawn().now_or_never().is_none(),
                stays,
                "{case}"
            );
        }
        let claim_waits = ClaimWaits::default();
        let mut first = claim_waits.pod(&"u".into());
        let second = claim_waits.pod(&"u".into());
        assert_eq!(first.withdrawn().now_or_never(), Some(()));
        assert!(!claim_waits.prepared(first));
        assert!(claim_waits.prepared(second));
        assert!(claim_waits.lock().pods.is_empty());
    }
}
