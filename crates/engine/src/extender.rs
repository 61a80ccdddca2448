//! Programs outside that have a say in decisions: what they are asked and what they may answer. Asking is the shell's.

use std::sync::Arc;

use crate::model::{Name, Pod, Resource};

/// An extender, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extender {
    /// How it is called in messages.
    pub url: String,
    pub filters: bool,
    pub preempts: bool,
    pub binds: bool,
    /// The factor of its scores; `None` if it gives none.
    pub weight: Option<i64>,
    /// Its failure is no failure of the pod.
    pub ignorable: bool,
    /// Only pods that ask for one of these; all pods if empty.
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

/// Something to ask one extender.
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

/// What would have to go from a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Victims {
    pub node: Name,
    pub pods: Vec<Arc<Pod>>,
    pub violations: usize,
}

/// What an extender said; an error is why it could not be asked or what it complained of.
pub type Answer = Result<Said, String>;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said {
    Filter {
        nodes: Vec<Name>,
        /// With its words.
        failed: Vec<(Name, String)>,
        /// Those that no preemption can help.
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
