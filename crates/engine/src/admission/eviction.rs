//! Which pods an agent may evict: those of its own node.
//!
//! An Eviction names no node, so no admission policy can check it.

use crate::model::Name;

/// An Eviction that an agent creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentEviction<'a> {
    /// The node that the caller's token is bound to; none if it is bound to none.
    pub node: Option<&'a str>,
    /// The uid in the preconditions; none if the Eviction has none.
    pub uid: Option<&'a str>,
}

/// The pod of that name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictedPod {
    pub uid: Name,
    /// Empty before the pod is bound.
    pub node: Name,
}

impl AgentEviction<'_> {
    /// Why no pod may be evicted, whatever its node.
    pub fn check_caller(&self) -> Result<(), String> {
        match self {
            Self { node: None, .. } => {
                Err("the token of the agent is not bound to a node".to_owned())
            }
            // Another pod could get the name between this check and the eviction.
            Self { uid: None, .. } => Err(
                "the Eviction of an agent must have the uid of the pod in its preconditions"
                    .to_owned(),
            ),
            Self { .. } => Ok(()),
        }
    }

    /// Why this pod may not be evicted. The API server itself refuses to evict a pod that does not exist.
    pub fn check_pod(&self, pod: Option<&EvictedPod>) -> Result<(), String> {
        self.check_caller()?;
        let Some(pod) = pod else {
            return Ok(());
        };
        // The API server says which node a token is bound to, and only a bind sets the node of a pod.
        let node = self.node.unwrap_or_default();
        if *pod.node != *node {
            let place = match &*pod.node {
                "" => "is on no node".to_owned(),
                other => format!("is on node {other}"),
            };
            return Err(format!(
                "the agent of node {node} may evict only pods of its node, and this pod {place}"
            ));
        }
        match self.uid == Some(&*pod.uid) {
            true => Ok(()),
            false => Err("the pod has another uid than the preconditions".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_evicts_pods_of_its_own_node() {
        let pod = |uid: &str, node: &str| EvictedPod {
            uid: uid.into(),
            node: node.into(),
        };
        for (case, node, uid, pod, want) in [
            ("its own pod", Some("a"), Some("u"), Some(pod("u", "a")), ""),
            ("a pod that is gone", Some("a"), Some("u"), None, ""),
            (
                "a pod of another node",
                Some("a"),
                Some("u"),
                Some(pod("u", "b")),
                "the agent of node a may evict only pods of its node, and this pod is on node b",
            ),
            (
                "a pod that is not bound",
                Some("a"),
                Some("u"),
                Some(pod("u", "")),
                "the agent of node a may evict only pods of its node, and this pod is on no node",
            ),
            (
                "another pod of the name, on its node",
                Some("a"),
                Some("u"),
                Some(pod("v", "a")),
                "the pod has another uid than the preconditions",
            ),
            (
                "a token without a node",
                None,
                Some("u"),
                Some(pod("u", "a")),
                "the token of the agent is not bound to a node",
            ),
            (
                "a token without a node, and a pod without",
                None,
                Some("u"),
                Some(pod("u", "")),
                "the token of the agent is not bound to a node",
            ),
            (
                "no uid",
                Some("a"),
                None,
                Some(pod("u", "a")),
                "the Eviction of an agent must have the uid of the pod in its preconditions",
            ),
            (
                "no uid, and no pod yet",
                Some("a"),
                None,
                None,
                "the Eviction of an agent must have the uid of the pod in its preconditions",
            ),
        ] {
            let eviction = AgentEviction { node, uid };
            let found = eviction.check_pod(pod.as_ref()).err().unwrap_or_default();
            assert_eq!(found, want, "{case}");
        }
    }
}
