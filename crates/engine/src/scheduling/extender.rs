//! Extenders: programs outside that filter, score, preempt and bind. The engine makes the questions and uses the answers;
//! the driver sends them.

use std::sync::Arc;

use crate::model::{Name, Pod, Resource};

/// An extender, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extender {
    /// Its name in messages.
    pub url: String,
    pub filters: bool,
    pub preempts: bool,
    pub binds: bool,
    /// The weight of its scores; `None` if it does not score.
    pub weight: Option<i64>,
    /// The cycle goes on without it if it fails.
    pub ignorable: bool,
    /// It is called only for pods that request one of these resources; for all pods if empty.
    pub managed: Vec<Name>,
}

impl Extender {
    pub fn is_interested(&self, pod: &Pod) -> bool {
        let asks = |name: &Name| {
            Resource::parse(name).is_some_and(|resource| pod.requests.wanted.contains(&resource))
        };
        self.managed.is_empty() || self.managed.iter().any(asks)
    }
}

/// A call of one extender.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Position in the list of extenders.
    pub extender: usize,
    pub verb: Verb,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    Filter { nodes: Vec<Name> },
    Prioritize { nodes: Vec<Name> },
    Preempt { nodes: Vec<Victims> },
}

/// The pods to evict from a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Victims {
    pub node: Name,
    pub pods: Vec<Arc<Pod>>,
    pub violations: usize,
}

/// The answer of an extender; an error if the call failed or the extender reports one.
pub type Answer = Result<Response, String>;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    Filter {
        nodes: Vec<Name>,
        /// With the reasons.
        failed: Vec<(Name, String)>,
        /// Nodes where preemption cannot help.
        unresolvable: Vec<(Name, String)>,
    },
    /// Scores of 0 to 10.
    Prioritize(Vec<(Name, i64)>),
    /// Nodes that may still be used, with the uids of the pods to evict there.
    Preempt(Vec<(Name, Vec<Name>, usize)>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn interest() {
        for (managed, requests, want) in [
            (vec![], "cpu=1", true),
            (vec!["example.com/gpu"], "cpu=1", false),
            (vec!["example.com/gpu"], "example.com/gpu=1", true),
            (
                vec!["example.com/a", "example.com/gpu"],
                "example.com/gpu=0",
                true,
            ),
        ] {
            let extender = Extender {
                managed: managed.iter().map(|name| (*name).into()).collect(),
                ..Extender::default()
            };
            let pod = pod("p").container(requests).build();
            assert_eq!(extender.is_interested(&pod), want, "{managed:?} {requests}");
        }
    }
}
