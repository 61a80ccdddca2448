//! A snapshot of the nodes: taken between two decisions, read by another thread.
//!
//! Taking it copies the rows and shares the objects, so decisions wait for a copy of numbers and for nothing else. What
//! the numbers mean is worked out by the reader.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Accounts, Cluster, Part};
use crate::model::{Amounts, Name, Node, Pod, ReclaimedResource, Resource};

/// What was known of nodes and of the pods on them. Nothing changes it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    accounts: Accounts,
    width: usize,
    nodes: Vec<Arc<Node>>,
    /// One per node, in their order.
    rows: Vec<i64>,
    /// With the position of the node.
    assumed: Vec<(usize, Arc<Pod>)>,
    nominated: Vec<(usize, Arc<Pod>)>,
    unknown: Vec<UnknownNode>,
}

/// One node of a view; `A` holds amounts by resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeState<A = Amounts> {
    pub name: Name,
    /// Pods that take capacity there, assumed ones included.
    pub pods: i64,
    /// What the node's status offers.
    pub native: AccountState<A>,
    /// What its agent reports; `None` if it reports nothing, and no pod there takes any of it.
    pub reclaimed: Option<ReclaimedState<A>>,
    /// The scheduler chose the node, and the pod was not yet observed there.
    pub assumed: Vec<PodRef>,
    /// Pods that are nominated to this node.
    pub nominated: Vec<PodRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimedState<A = Amounts> {
    /// There is a CustomNodeResource of the node.
    pub reported: bool,
    #[serde(flatten)]
    pub account: AccountState<A>,
}

/// An account. The native one has what the node offers or pods take there, but cpu, memory and pods in any case.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountState<A = Amounts> {
    pub allocatable: A,
    pub requested: A,
    /// With defaults for containers that do not say; where such are counted.
    pub non_zero_requested: A,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
}

/// A node that pods are on and that is not known itself: gone before them, or not heard of yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownNode {
    pub name: Name,
    pub pods: usize,
}

impl Cluster {
    /// All nodes.
    pub fn view(&self) -> Snapshot {
        let slots = 0..self.nodes.slots().len();
        let mut view = self.view_of_slots(slots.filter(|slot| self.nodes.get(*slot).is_some()));
        view.unknown = self
            .stray
            .iter()
            .map(|(name, pods)| UnknownNode {
                name: name.clone(),
                pods: pods.len(),
            })
            .collect();
        view.unknown.sort_by(|a, b| a.name.cmp(&b.name));
        view
    }

    /// One node; `None` if it is not known.
    pub fn view_of(&self, node: &str) -> Option<Snapshot> {
        Some(self.view_of_slots(std::iter::once(self.nodes.slot(node)?)))
    }

    fn view_of_slots(&self, slots: impl Iterator<Item = usize>) -> Snapshot {
        let (most, width) = (slots.size_hint().1.unwrap_or(0), self.nodes.width());
        let mut view = Snapshot {
            accounts: self.catalog.accounts.clone(),
            width,
            nodes: Vec::with_capacity(most),
            rows: Vec::with_capacity(most * width),
            assumed: Vec::new(),
            nominated: Vec::new(),
            unknown: Vec::new(),
        };
        for slot in slots {
            let Some(entry) = self.nodes.get(slot) else {
                continue;
            };
            let position = view.nodes.len();
            view.nodes.push(entry.node.clone());
            view.rows.extend_from_slice(self.nodes.row(slot));
            let assumed = self.pods_on(slot).filter(|placed| placed.assumed);
            view.assumed
                .extend(assumed.map(|placed| (position, placed.pod.clone())));
            if !self.nominated.is_empty() {
                let nominated = self.nominated_to(&entry.node.spec.name);
                view.nominated
                    .extend(nominated.map(|nominated| (position, nominated.pod.clone())));
            }
        }
        view
    }
}

impl Snapshot {
    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Pods that take capacity of these nodes. Those on unknown nodes are in [`Self::unknown`].
    pub fn pods(&self) -> i64 {
        (0..self.len()).map(|node| self.pods_on(node)).sum()
    }

    /// By name. None in a view of one node.
    pub fn unknown(&self) -> &[UnknownNode] {
        &self.unknown
    }

    /// Positions of nodes in the order of their names.
    pub fn by_name(&self) -> Vec<usize> {
        let name = |position: &usize| &self.nodes[*position].spec.name;
        let mut positions: Vec<usize> = (0..self.len()).collect();
        positions.sort_by(|a, b| name(a).cmp(name(b)));
        positions
    }

    /// The node at this position.
    pub fn node(&self, position: usize) -> Option<NodeState> {
        Some(NodeState {
            name: self.nodes.get(position)?.spec.name.clone(),
            pods: self.pods_on(position),
            native: self.native(position),
            reclaimed: self.reclaimed(position),
            assumed: pods(&self.assumed, position),
            nominated: pods(&self.nominated, position),
        })
    }

    fn pods_on(&self, position: usize) -> i64 {
        let column = self.accounts.column(&Resource::Pods, Part::Requested);
        self.value(position, column).unwrap_or(0)
    }

    fn native(&self, position: usize) -> AccountState {
        let always = [
            Resource::Cpu,
            Resource::Memory,
            Resource::EphemeralStorage,
            Resource::Pods,
        ];
        let scalars = self.accounts.scalars().cloned().map(Resource::Scalar);
        let mut state: AccountState = AccountState::default();
        for resource in always.into_iter().chain(scalars) {
            let amount = |part| self.value(position, self.accounts.column(&resource, part));
            let offered = amount(Part::Allocatable).unwrap_or(0);
            let requested = amount(Part::Requested).unwrap_or(0);
            let is_basic = matches!(resource, Resource::Cpu | Resource::Memory | Resource::Pods);
            if !is_basic && offered == 0 && requested == 0 {
                continue;
            }
            if let Some(non_zero) = amount(Part::NonZeroRequested) {
                state.non_zero_requested.set(resource.clone(), non_zero);
            }
            state.allocatable.set(resource.clone(), offered);
            state.requested.set(resource, requested);
        }
        state
    }

    fn reclaimed(&self, position: usize) -> Option<ReclaimedState> {
        let reported = self.nodes[position].spec.reports;
        let part = |part| -> Amounts {
            let amount = |resource: ReclaimedResource| {
                let column = self.accounts.reclaimed_column(resource, part);
                let name = Resource::Scalar(resource.name().into());
                (name, self.value(position, column).unwrap_or(0))
            };
            ReclaimedResource::ALL.into_iter().map(amount).collect()
        };
        let account = AccountState {
            allocatable: part(Part::Allocatable),
            requested: part(Part::Requested),
            non_zero_requested: part(Part::NonZeroRequested),
        };
        let borrowed = account
            .non_zero_requested
            .iter()
            .any(|(_, amount)| amount != 0);
        (reported || borrowed).then_some(ReclaimedState { reported, account })
    }

    fn value(&self, position: usize, column: Option<usize>) -> Option<i64> {
        self.rows.get(position * self.width + column?).copied()
    }
}

/// Those of one node; they are in the order of positions.
fn pods(all: &[(usize, Arc<Pod>)], position: usize) -> Vec<PodRef> {
    let first = all.partition_point(|(at, _)| *at < position);
    let here = all[first..].iter().take_while(|(at, _)| *at == position);
    here.map(|(_, pod)| PodRef {
        namespace: pod.namespace().clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    fn amounts(amounts: &Amounts) -> String {
        let text = amounts
            .iter()
            .map(|(resource, amount)| format!("{}={}", resource.name(), resource.quantity(amount)));
        text.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_lent_is_an_account_of_its_own() {
        const OLD: &str = "katalyst.kubewharf.io/reclaimed_millicpu";
        let mut cluster = Cluster::new();
        for name in ["borrows", "lends", "neither"] {
            cluster.set_node(node(name).allocatable("cpu=4").build());
        }
        let lends = crate::testing::report("lends").lends(40_000, 100 << 30);
        cluster.apply(lends.into()).unwrap();
        let job = |name: &str, on: &str| pod(name).container(&format!("{OLD}=2500")).on(on).build();
        cluster.set_pod(job("a", "lends")).unwrap();
        cluster.set_pod(job("b", "borrows")).unwrap();
        let view = cluster.view();
        let told = |at: usize| {
            let state = view.node(at).unwrap().reclaimed?;
            let account = state.account;
            Some((
                state.reported,
                amounts(&account.allocatable),
                amounts(&account.requested),
                amounts(&account.non_zero_requested),
            ))
        };
        let text = |memory: &str, cpu: &str| {
            let name = "resource.katalyst.kubewharf.io/reclaimed";
            format!("{name}_memory={memory} {name}_millicpu={cpu}")
        };
        let taken = (text("0", "2500"), text("200Mi", "2500"));
        let want = |reported, offered, (requested, non_zero)| {
            Some((reported, offered, requested, non_zero))
        };
        assert_eq!(told(0), want(false, text("0", "0"), taken.clone()));
        assert_eq!(told(1), want(true, text("100Gi", "40k"), taken));
        assert_eq!(told(2), None);
    }

    #[test]
    fn a_view_says_what_was_known_and_stays() {
        let mut cluster = Cluster::new();
        cluster.set_node(node("b").allocatable("cpu=4 memory=16Gi").build());
        cluster.set_node(node("a").allocatable("cpu=2500m example.com/gpu=2").build());
        let bound = |name: &str, on: &str| pod(name).container("cpu=300m").on(on).build();
        cluster.set_pod(bound("x", "b")).unwrap();
        cluster.set_pod(bound("lost", "gone")).unwrap();
        let wants = pod("y").container("cpu=1 memory=1536Mi example.com/gpu=1");
        cluster.assume(wants.build(), "a".into()).unwrap();
        cluster.nominate(pod("z").build(), "b".into()).unwrap();

        let view = cluster.view();
        cluster.remove_node("a");
        cluster.remove_pod("x");
        assert_eq!((view.len(), view.pods()), (2, 2));
        let unknown = UnknownNode {
            name: "gone".into(),
            pods: 1,
        };
        assert_eq!(view.unknown(), [unknown]);
        let states = view.by_name().into_iter().map(|at| view.node(at).unwrap());
        let states: Vec<NodeState> = states.collect();
        let told: Vec<_> = states
            .iter()
            .map(|state| {
                let names = |pods: &[PodRef]| -> Vec<Name> {
                    pods.iter().map(|pod| pod.name.clone()).collect()
                };
                (
                    &*state.name,
                    state.pods,
                    names(&state.assumed),
                    names(&state.nominated),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("a", 1, vec!["y".into()], vec![]),
                ("b", 1, vec![], vec!["z".into()]),
            ]
        );
        for (found, want) in [
            (
                &states[0].native.allocatable,
                "cpu=2500m memory=0 pods=110 example.com/gpu=2",
            ),
            (
                &states[0].native.requested,
                "cpu=1 memory=1536Mi pods=1 example.com/gpu=1",
            ),
            (&states[0].native.non_zero_requested, "cpu=1 memory=1536Mi"),
            (&states[1].native.allocatable, "cpu=4 memory=16Gi pods=110"),
            (&states[1].native.requested, "cpu=300m memory=0 pods=1"),
            (
                &states[1].native.non_zero_requested,
                "cpu=300m memory=200Mi",
            ),
        ] {
            assert_eq!(amounts(found), want);
        }

        assert!(cluster.view_of("a").is_none());
        let one = cluster.view_of("b").unwrap();
        assert_eq!((one.len(), one.pods()), (1, 0));
        assert_eq!(one.node(0).unwrap().nominated.len(), 1);
        assert_eq!(one.node(1), None);
    }
}
