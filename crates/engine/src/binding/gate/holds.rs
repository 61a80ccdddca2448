//! Binds that were allowed and that the watch does not show yet.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Name, Pod};

/// After this time without an observation the pod of a bind is read. The API server commits a bind within milliseconds, or within
/// seconds if its store is slow.
pub const SETTLE_TIME: Duration = Duration::from_secs(15);
/// A read that was not answered is repeated.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Nodes that one pod can have holds on: schedulers that serve the same name bind a pod two or three times at once.
const MOST_PER_POD: usize = 8;

/// A pod to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPod {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
}

/// A pod as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPod {
    /// It was deleted, or it ended.
    Gone,
    Unbound,
    /// Bound to this node.
    On(Name),
}

#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) node: Name,
    allowed: Duration,
    read_at: Duration,
}

impl Hold {
    pub(super) fn is_late(&self, now: Duration) -> bool {
        self.allowed + SETTLE_TIME <= now
    }
}

#[derive(Debug, Clone)]
struct PodHolds {
    namespace: Name,
    name: Name,
    holds: Vec<Hold>,
}

/// By uid of the pod.
#[derive(Debug, Clone, Default)]
pub(super) struct Holds {
    pods: BTreeMap<Name, PodHolds>,
    count: usize,
}

/// A pod can have holds on several nodes, so each has a uid of its own. Neither uids nor names of nodes contain `@`.
pub(super) fn uid_of(uid: &str, node: &str) -> Name {
    format!("{uid}@{node}").into()
}

impl Holds {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_full(&self, uid: &str) -> bool {
        let pod = self.pods.get(uid);
        pod.is_some_and(|pod| pod.holds.len() >= MOST_PER_POD)
    }

    pub(super) fn add(&mut self, pod: &Pod, node: &Name, now: Duration) {
        let known = self
            .pods
            .entry(pod.uid.clone())
            .or_insert_with(|| PodHolds {
                namespace: pod.namespace().clone(),
                name: pod.name.clone(),
                holds: Vec::new(),
            });
        let before = known.holds.len();
        known.holds.retain(|hold| hold.node != *node);
        known.holds.push(Hold {
            node: node.clone(),
            allowed: now,
            read_at: now + SETTLE_TIME,
        });
        self.count += known.holds.len() - before;
    }

    /// Ends these holds of the pod, and returns their nodes.
    pub(super) fn release(&mut self, uid: &str, ends: impl Fn(&Hold) -> bool) -> Vec<Name> {
        let Some(pod) = self.pods.get_mut(uid) else {
            return Vec::new();
        };
        let ended = pod.holds.extract_if(.., |hold| ends(hold));
        let ended: Vec<Name> = ended.map(|hold| hold.node).collect();
        self.count -= ended.len();
        if pod.holds.is_empty() {
            self.pods.remove(uid);
        }
        ended
    }

    pub(super) fn late(&mut self, now: Duration) -> Vec<HeldPod> {
        let mut late = Vec::new();
        for (uid, pod) in &mut self.pods {
            if !pod.holds.iter().any(|hold| hold.read_at <= now) {
                continue;
            }
            for hold in &mut pod.holds {
                if hold.read_at <= now {
                    hold.read_at = now + READ_AGAIN;
                }
            }
            late.push(HeldPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                uid: uid.clone(),
            });
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn a_pod_whose_holds_have_ended_takes_no_memory() {
        let mut holds = Holds::default();
        holds.add(&pod("a").build(), &"n".into(), Duration::ZERO);
        holds.add(&pod("a").build(), &"m".into(), Duration::ZERO);
        assert_eq!(holds.release("a", |hold| *hold.node == *"n"), ["n".into()]);
        assert_eq!((holds.len(), holds.pods.len()), (1, 1));
        assert_eq!(holds.release("a", |_| true), ["m".into()]);
        assert_eq!((holds.len(), holds.pods.len()), (0, 0));
    }
}
