//! Which cgroup a pod has.
//!
//! It has the pod's uid in its name. Only a static pod has the hash of its file there, which the annotation
//! `kubernetes.io/config.hash` of its mirror pod names. Every user can write this annotation, and a forged one that is believed
//! puts the limits of a pod into the cgroup of another one. So the uid decides wherever it can.

use std::collections::BTreeMap;

use super::LocalPod;
use crate::model::Name;

/// The cgroup that the annotation of a pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupClaim {
    pub hash: Name,
    /// It is a mirror pod, and the kubelet itself shows the static pod with this hash.
    pub is_shown: bool,
}

/// A pod that names the cgroup of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConflict {
    /// Namespace and name.
    pub pod: String,
    /// Namespace and name of the pod that has the group.
    pub owner: String,
}

/// Gives each pod its group. `exists` is whether there is a group with this uid: a mirror pod, which runs nothing, has none.
pub fn settle(pods: &mut [LocalPod], exists: impl Fn(&Name) -> bool) -> Vec<GroupConflict> {
    let mut conflicts = Vec::new();
    if pods.iter().all(|pod| pod.claim.is_none()) {
        return conflicts;
    }
    let name = |pod: &LocalPod| format!("{}/{}", pod.namespace, pod.name);
    let owners = pods.iter().map(|pod| (pod.uid.clone(), name(pod)));
    let mut owners: BTreeMap<Name, String> = owners.collect();
    for pod in pods {
        pod.group = pod.uid.clone();
        let Some(claim) = pod.claim.as_ref().filter(|claim| claim.hash != pod.uid) else {
            continue;
        };
        if let Some(owner) = owners.get(&claim.hash) {
            let (pod, owner) = (name(pod), owner.clone());
            conflicts.push(GroupConflict { pod, owner });
        } else if claim.is_shown && !exists(&pod.uid) {
            pod.group = claim.hash.clone();
            owners.insert(claim.hash.clone(), name(pod));
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str, claim: Option<(&str, bool)>) -> LocalPod {
        LocalPod {
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
            group: uid.into(),
            claim: claim.map(|(hash, is_shown)| GroupClaim {
                hash: hash.into(),
                is_shown,
            }),
            ..LocalPod::default()
        }
    }

    #[test]
    fn the_uid_of_a_pod_decides_which_group_it_has() {
        let online = || pod("online", "u1", None);
        let conflict = |pod: &str, owner: &str| {
            let of = |name| format!("ns/{name}");
            let (pod, owner) = (of(pod), of(owner));
            vec![GroupConflict { pod, owner }]
        };
        for (case, pods, existing, groups, conflicts) in [
            (
                "no pod names a group",
                vec![online(), pod("b", "u2", None)],
                vec!["u1", "u2"],
                vec!["u1", "u2"],
                vec![],
            ),
            (
                "a static pod has the group of its file",
                vec![pod("s", "u2", Some(("h", true)))],
                vec!["h"],
                vec!["h"],
                vec![],
            ),
            (
                "a hash that the kubelet does not show is invented",
                vec![pod("b", "u2", Some(("h", false)))],
                vec!["u2", "h"],
                vec!["u2"],
                vec![],
            ),
            (
                "a pod with a group of its own is no mirror pod",
                vec![pod("b", "u2", Some(("h", true)))],
                vec!["u2", "h"],
                vec!["u2"],
                vec![],
            ),
            (
                "the group of another pod stays that pod's",
                vec![pod("b", "u2", Some(("u1", true))), online()],
                vec!["u1"],
                vec!["u2", "u1"],
                conflict("b", "online"),
            ),
            (
                "even if no group exists yet",
                vec![online(), pod("b", "u2", Some(("u1", false)))],
                vec![],
                vec!["u1", "u2"],
                conflict("b", "online"),
            ),
            (
                "of two claims of a hash the first holds",
                vec![
                    pod("s", "u2", Some(("h", true))),
                    pod("t", "u3", Some(("h", true))),
                ],
                vec!["h"],
                vec!["h", "u3"],
                conflict("t", "s"),
            ),
            (
                "the own uid is no claim",
                vec![pod("b", "u2", Some(("u2", false)))],
                vec!["u2"],
                vec!["u2"],
                vec![],
            ),
        ] {
            let mut pods = pods;
            let found = settle(&mut pods, |uid| existing.contains(&&**uid));
            let found_groups: Vec<&str> = pods.iter().map(|pod| &*pod.group).collect();
            assert_eq!((found_groups, found), (groups, conflicts), "{case}");
            // The next period decides the same.
            let groups: Vec<Name> = pods.iter().map(|pod| pod.group.clone()).collect();
            settle(&mut pods, |uid| existing.contains(&&**uid));
            assert!(pods.iter().map(|pod| &pod.group).eq(&groups), "{case}");
        }
    }
}
