//! One plugin under test, with a cluster around it.

use std::sync::Arc;

use super::objects::{NodeBuilder, PodBuilder, node};
use super::report::ReportBuilder;
use crate::cluster::Cluster;
use crate::cluster::kinds::{Update, pod_actions};
use crate::cluster::{
    Namespace, ReplicaSet, ReplicationController, Service, StatefulSet, Workload, WorkloadKind,
};
use crate::model::{Labels, Name, NodeSpec, Pod, Requirement, Selector, Timestamp};
use crate::scheduling::evaluate::{NodeChange, NodeVerdict, Scan, Shortage};
use crate::scheduling::framework::{
    Actions, Catalog, Change, Changed, Configure, Entry, Event, Fact, Kind, NodeRule, Plan, Plugin,
    Point, Points,
};
use crate::scheduling::hooks::Hooks;
use crate::scheduling::profile::{Enabled, Profile};
use crate::scheduling::scheduler::Cycle;

const NOW: Timestamp = Timestamp(0);

/// A cluster and one plugin at all its points, with weight 1.
pub struct Lab {
    pub cluster: Cluster,
    /// The plugin that leaves nodes out, then the plugin under test.
    profile: Profile,
    without: Vec<Name>,
}

impl Lab {
    pub fn new<P: Configure>(plugin: P) -> Self {
        Self::with(Enabled {
            name: P::NAME,
            points: P::POINTS,
            plugin: Arc::new(plugin),
            weight: 1,
        })
    }

    /// With default arguments.
    pub fn of(entry: &Entry) -> Self {
        Self::with(Enabled::new(entry, 1).unwrap_or_else(|error| panic!("{error}")))
    }

    /// With these arguments, or the error that a user gets for them.
    pub fn with_args(
        entry: &Entry,
        args: &mut dyn erased_serde::Deserializer<'_>,
    ) -> Result<Self, String> {
        let plugin = entry.build_with(args).map_err(|error| error.to_string())?;
        Ok(Self::with(Enabled {
            name: entry.name,
            points: entry.points,
            plugin: plugin.into(),
            weight: 1,
        }))
    }

    fn with(plugin: Enabled) -> Self {
        let profile = Profile::new(
            "default-scheduler",
            vec![LeftOut::enabled(Vec::new()), plugin],
        );
        Self {
            cluster: Cluster::new(),
            profile,
            without: Vec::new(),
        }
    }

    /// Applies an update, and checks the invariants.
    pub fn apply(mut self, update: Update) -> Self {
        self.cluster
            .apply(update)
            .unwrap_or_else(|error| panic!("{error}"));
        self.checked()
    }

    fn checked(self) -> Self {
        let checked = self.cluster.check();
        checked.unwrap_or_else(|error| panic!("{error}"));
        self
    }

    pub fn node(self, node: NodeBuilder) -> Self {
        self.apply(node.build().into())
    }

    /// A pod that is bound to a node.
    pub fn placed(self, pod: PodBuilder) -> Self {
        self.apply(pod.build().into())
    }

    pub fn nominated(mut self, pod: PodBuilder, node: &str) -> Self {
        let nominated = self.cluster.nominate(pod.build(), node.into());
        nominated.unwrap_or_else(|error| panic!("{error}"));
        self.checked()
    }

    pub fn namespace(self, name: &str, labels: &[(&str, &str)]) -> Self {
        self.object(Namespace {
            name: name.into(),
            labels: labels.iter().copied().collect(),
        })
    }

    /// A volume, a claim, a class.
    pub fn object(self, object: impl Into<Update>) -> Self {
        self.apply(object.into())
    }

    pub fn service(self, name: &str, key: &str, value: &str) -> Self {
        let selector: Labels = [(key, value)].into_iter().collect();
        self.object(Service {
            namespace: "default".into(),
            name: name.into(),
            selector: Some(selector),
        })
    }

    pub fn workload(self, kind: WorkloadKind, name: &str, key: &str, value: &str) -> Self {
        let selector = Selector::all([Requirement::equals(key, value)]);
        let workload = Workload {
            namespace: "default".into(),
            name: name.into(),
            selector,
        };
        match kind {
            WorkloadKind::ReplicationController => self.object(ReplicationController(workload)),
            WorkloadKind::ReplicaSet => self.object(ReplicaSet(workload)),
            WorkloadKind::StatefulSet => self.object(StatefulSet(workload)),
        }
    }

    /// A node that some other plugin rejects. Verdicts and scores leave it out.
    pub fn without(mut self, node: &str) -> Self {
        self.without.push(node.into());
        let mut plugins = self.profile.into_plugins();
        plugins[0] = LeftOut::enabled(self.without.clone());
        self.profile = Profile::new("default-scheduler", plugins);
        self
    }

    /// Each node's verdict in the order of nodes: `ok`, `U reason, reason` or `UU reason`. A rejection before any node
    /// was looked at is every node's.
    pub fn filter(&self, pod: &PodBuilder) -> Vec<String> {
        let pod = pod.build();
        let verdicts = Scan::new(&self.cluster, &self.profile, &pod).verdicts();
        let verdicts = verdicts
            .unwrap_or_else(|error| panic!("{error}"))
            .into_iter();
        verdicts
            .filter(|verdict| !self.without.contains(&verdict.node))
            .map(|verdict| verdict.to_string())
            .collect()
    }

    /// What an explanation says about each node beyond its verdict; empty if nothing.
    pub fn explain(&self, pod: &PodBuilder) -> Vec<String> {
        let pod = pod.build();
        let texts = Scan::new(&self.cluster, &self.profile, &pod).explanations();
        texts.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The resources that nodes have too little of: `cpu 8 on 2 nodes: 3 free on a, 4 on b`.
    /// `never` is added if no node is large enough.
    pub fn shortages(&self, pod: &PodBuilder) -> Vec<String> {
        let pod = pod.build();
        let all = Scan::new(&self.cluster, &self.profile, &pod).shortages();
        let text = |it: Shortage| {
            let (free, largest) = (it.most_free, it.largest);
            let never = if it.can_never_fit { ", never" } else { "" };
            format!(
                "{} {} on {} nodes: {} free on {}, {} on {}{never}",
                it.resource,
                it.requested,
                it.nodes,
                free.amount,
                free.node,
                largest.amount,
                largest.node
            )
        };
        all.into_iter().map(text).collect()
    }

    /// The verdict of one node if these pods, by uid, were gone from it.
    pub fn filter_without(&self, pod: &PodBuilder, node: &str, gone: &[&str]) -> String {
        let pod = pod.build();
        let placed = |uid: &&str| self.cluster.placed(uid).map(|placed| &placed.pod);
        let removed: Vec<&Arc<Pod>> = gone.iter().filter_map(placed).collect();
        assert_eq!(removed.len(), gone.len(), "not all of {gone:?} are placed");
        let change = NodeChange {
            added: &[],
            removed: &removed,
        };
        let slot = self.cluster.nodes().slot(node);
        let slot = slot.unwrap_or_else(|| panic!("no node {node}"));
        let verdict = Scan::new(&self.cluster, &self.profile, &pod).fits_if(slot, change);
        NodeVerdict {
            node: node.into(),
            plugin: verdict.as_ref().err().map(|(plugin, _)| *plugin),
            rejection: verdict.err().map(|(_, rejection)| rejection),
        }
        .to_string()
    }

    /// Raw and normalised score of each node, also of those that the plugin itself rejects; `None` if it skips.
    pub fn scores(&self, pod: &PodBuilder) -> Option<Vec<(i64, i64)>> {
        let pod = pod.build();
        let profile = self.profile.clone().with_order(Point::Filter, vec![0]);
        let hooks = Hooks::default();
        let explained = Cycle::new(&self.cluster, &profile, &pod, &hooks, NOW).explain();
        let nodes = explained.unwrap_or_else(|error| panic!("{error}"));
        let nodes = nodes.into_iter();
        let scores = nodes
            .filter(|node| node.verdict.rejection.is_none())
            .map(|node| node.scores);
        scores
            .map(|scores| scores.first().map(|score| (score.raw, score.normalized)))
            .collect()
    }

    /// The error that aborts the cycle of this pod, if nodes are compared at all.
    pub fn failure(&self, pod: &PodBuilder) -> Option<String> {
        let pod = pod.build();
        let hooks = Hooks::default();
        let mut cycle = Cycle::new(&self.cluster, &self.profile, &pod, &hooks, NOW);
        cycle.explain().err()
    }

    /// Whether a change of a node helps the pod, as far as the plugin registers for it.
    pub fn helps_node(
        &self,
        pod: &PodBuilder,
        old: Option<NodeBuilder>,
        new: Option<NodeBuilder>,
    ) -> bool {
        let mut cluster = Cluster::new();
        let name = old
            .as_ref()
            .or(new.as_ref())
            .map(|node| node.clone().build().spec.name)
            .unwrap_or_default();
        if let Some(old) = old {
            cluster.set_node(old.build());
        }
        let update = match new {
            Some(new) => new.build().into(),
            None => Update::Delete(Kind::Node, name.into()),
        };
        let events = cluster
            .apply(update)
            .unwrap_or_else(|error| panic!("{error}"));
        events.iter().any(|event| self.helps(&pod.build(), event))
    }

    /// Whether a change of another pod, or of the pod itself, helps it.
    pub fn helps_pod(
        &self,
        pod: &PodBuilder,
        old: Option<PodBuilder>,
        new: Option<PodBuilder>,
    ) -> bool {
        let change = Change {
            old: old.map(|pod| pod.build()),
            new: new.map(|pod| pod.build()),
        };
        let is_on_node = change.latest().is_some_and(|pod| pod.node.is_some());
        let all_actions = match (&change.old, &change.new) {
            (None, _) => vec![Actions::ADD],
            (_, None) => vec![Actions::DELETE],
            (Some(old), Some(new)) => pod_actions(old, new),
        };
        let changed = if is_on_node {
            Changed::AssignedPod(change)
        } else {
            Changed::WaitingPod(change)
        };
        let pod = pod.build();
        all_actions.into_iter().any(|actions| {
            self.helps(
                &pod,
                &Event {
                    actions,
                    changed: changed.clone(),
                },
            )
        })
    }

    /// Whether an object that comes or changes helps the pod.
    pub fn helps_object<T: Into<Update>>(&self, pod: &PodBuilder, old: Option<T>, new: T) -> bool {
        let mut cluster = Cluster::new();
        let mut events = Vec::new();
        for update in old.into_iter().chain([new]) {
            events = cluster
                .apply(update.into())
                .unwrap_or_else(|error| panic!("{error}"));
        }
        events.iter().any(|event| self.helps(&pod.build(), event))
    }

    /// Whether a change of what an agent reports about an otherwise empty node helps the pod.
    pub fn helps_report(
        &self,
        pod: &PodBuilder,
        old: Option<ReportBuilder>,
        new: Option<ReportBuilder>,
    ) -> bool {
        let either = old.as_ref().or(new.as_ref());
        let name = either
            .map(|report| report.clone().build().node)
            .unwrap_or_default();
        let mut cluster = Cluster::new();
        cluster.set_node(node(&name).build());
        let deleted = || Update::Delete(Kind::CustomNodeResource, name.clone().into());
        let mut events = Vec::new();
        for report in [old, new] {
            let update = report.map_or_else(deleted, Update::from);
            events = cluster
                .apply(update)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        events.iter().any(|event| self.helps(&pod.build(), event))
    }

    /// The hint for one event, if the plugin registers for it at all.
    pub fn helps(&self, pod: &Pod, event: &Event) -> bool {
        let plugin = &self.profile.plugins()[1].plugin;
        plugin.events().iter().any(|pattern| pattern.matches(event))
            && plugin.helps(pod, event, self.cluster.catalog())
    }
}

/// Rejects nodes by name.
struct LeftOut(Vec<Name>);

impl LeftOut {
    fn enabled(names: Vec<Name>) -> Enabled {
        let points = Points::of(&[Point::Filter]);
        Enabled {
            name: "LeftOut",
            points,
            plugin: Arc::new(Self(names)),
            weight: 1,
        }
    }
}

impl Plugin for LeftOut {
    fn prepare(&self, _: &Pod, _: &Catalog, plan: &mut Plan) {
        plan.gate(Fact::new(Named(self.0.clone())), "left out");
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Named(Vec<Name>);

impl NodeRule for Named {
    fn of(&self, node: &NodeSpec) -> u32 {
        u32::from(self.0.contains(&node.name))
    }
}
