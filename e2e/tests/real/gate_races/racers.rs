//! What the pods of a race compete for, and which limits they exceed in the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::shared_cluster::text;

/// An even number: half of the nodes lend to reclaimed pods, the others have a pool.
pub(super) const NODES: usize = 76;
/// The schedulers of ours.
pub(super) const OURS: [&str; 3] = ["one", "two", "three"];
pub(super) const THEIRS: &str = "default-scheduler";
/// The label that says which half of the nodes a node belongs to.
pub(super) const HALF: &str = "example.com/half";
/// How many pods of a kind a node has place for: of its cores, of what it lends to reclaimed pods, and of its pool.
const PLACES: usize = 2;
/// Pods of the ResourcePolicy in its unit, and all of them.
const MAX_COUNT: usize = 10;
const CAPPED: usize = 30;
/// Which kind of racer a pod is.
const KIND: &str = "race";
const RECLAIMED: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const BATCH: &str = "kubernetes.io/batch-cpu";

/// Half of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// They lend to reclaimed pods only.
    Lends,
    /// They lend one pool to reclaimed and batch pods: the setting `lend: shared`.
    Shares,
}

impl Half {
    pub(super) fn of(number: usize) -> Self {
        match number % 2 {
            0 => Self::Lends,
            _ => Self::Shares,
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Lends => "lends",
            Self::Shares => "shares",
        }
    }

    /// `status.resources` of the CustomNodeResource.
    pub(super) fn lent(self) -> Value {
        let places = |count: usize| json!({RECLAIMED: (1_000 * count).to_string()});
        match self {
            Self::Lends => json!({"allocatable": places(PLACES)}),
            // Neither account alone bounds the pods.
            Self::Shares => json!({"allocatable": places(PLACES + 1), "capacity": places(PLACES)}),
        }
    }

    /// What the node itself has besides its cores.
    pub(super) fn batch(self) -> Value {
        match self {
            Self::Lends => json!({}),
            Self::Shares => json!({BATCH: (1_000 * (PLACES + 1)).to_string()}),
        }
    }
}

/// A kind of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Racer {
    /// Belongs to the ResourcePolicy.
    Capped,
    /// Requests most of a core.
    Native,
    /// Requests a core that a node lends to reclaimed pods.
    Reclaimed,
    /// Requests a core of the pool of a node, as a reclaimed or as a batch pod.
    PooledReclaimed,
    PooledBatch,
}

impl Racer {
    fn kind(self) -> &'static str {
        match self {
            Self::Capped => "capped",
            Self::Native => "native",
            Self::Reclaimed => "reclaimed",
            Self::PooledReclaimed | Self::PooledBatch => "pooled",
        }
    }

    /// What the pod requests, and the half of the nodes that it is for.
    fn wants(self) -> (&'static str, &'static str, Option<Half>) {
        match self {
            Self::Capped => ("cpu", "0", None),
            Self::Native => ("cpu", "900m", None),
            Self::Reclaimed => (RECLAIMED, "1000", Some(Half::Lends)),
            Self::PooledReclaimed => (RECLAIMED, "1000", Some(Half::Shares)),
            Self::PooledBatch => (BATCH, "1000", Some(Half::Shares)),
        }
    }
}

/// The pods of a race, as many as there are places. Those of the policy come first, so that all schedulers place them at once.
pub(super) fn pods(race: usize) -> Vec<Value> {
    let in_half = NODES / 2 * PLACES;
    let count = |racer: Racer, count: usize| std::iter::repeat_n(racer, count);
    let racers = count(Racer::Capped, CAPPED)
        .chain(count(Racer::Reclaimed, in_half))
        .chain(count(Racer::PooledReclaimed, in_half / 2))
        .chain(count(Racer::PooledBatch, in_half / 2))
        .chain(count(Racer::Native, NODES * PLACES));
    let pod = |(number, racer): (usize, Racer)| {
        // kube-scheduler knows neither what nodes lend nor policies.
        let scheduler = match (racer, number % 4) {
            (Racer::Native, 3) => THEIRS,
            (_, number) => OURS[number % OURS.len()],
        };
        self::pod(&format!("race-{race}-{number}"), scheduler, racer)
    };
    racers.enumerate().map(pod).collect()
}

/// A pod without requests.
pub(super) fn small_pod(name: &str, scheduler: &str) -> Value {
    let mut pod = pod(name, scheduler, Racer::Capped);
    pod["metadata"]["labels"] = json!({});
    pod
}

fn pod(name: &str, scheduler: &str, racer: Racer) -> Value {
    let (resource, amount, half) = racer.wants();
    let amounts = json!({resource: amount});
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {KIND: racer.kind()}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i",
            "resources": {"requests": amounts, "limits": amounts}}]}});
    if resource == RECLAIMED {
        pod["metadata"]["annotations"] =
            json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    }
    if let Some(half) = half {
        pod["spec"]["nodeSelector"] = json!({HALF: half.label()});
    }
    pod
}

/// Pods of the policy prefer one node, and few of them may be there.
pub(super) fn policy(preferred: &str) -> Value {
    let node = json!({"matchLabels": {"kubernetes.io/hostname": preferred}});
    json!({"apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1", "kind": "ResourcePolicy", "metadata": {"name": "capped"},
        "spec": {"podSelector": {"matchLabels": {KIND: Racer::Capped.kind()}}, "strategy": "prefer",
            "units": [{"name": "few", "priority": 2, "maxCount": MAX_COUNT, "nodeSelector": node}]}})
}

/// Pods beyond the limits. Pods that a kubelet refused do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) cores: usize,
    pub(super) reclaimed: usize,
    pub(super) pools: usize,
    pub(super) unit: usize,
}

impl Excess {
    pub(super) fn of(pods: &[Value], preferred: &str) -> Self {
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        let bound = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] != "Failed"
        });
        for pod in bound {
            let kind = text(&pod["metadata"]["labels"][KIND]);
            let node = text(&pod["spec"]["nodeName"]);
            *counts.entry((kind, node)).or_default() += 1;
        }
        let on_nodes = |racer: Racer| -> usize {
            let of_kind = counts.iter().filter(|((kind, _), _)| kind == racer.kind());
            of_kind.map(|(_, pods)| pods.saturating_sub(PLACES)).sum()
        };
        let in_unit = (Racer::Capped.kind().to_owned(), preferred.to_owned());
        let in_unit = counts.get(&in_unit).copied().unwrap_or_default();
        Self {
            cores: on_nodes(Racer::Native),
            reclaimed: on_nodes(Racer::Reclaimed),
            pools: on_nodes(Racer::PooledBatch),
            unit: in_unit.saturating_sub(MAX_COUNT),
        }
    }
}

/// Whether the log of a gate has a refusal for each limit.
pub(super) fn check_refusals(log: &str) {
    for reason in [
        "OutOfcpu: ",
        "OutOfresource.katalyst.kubewharf.io/reclaimed_millicpu: ",
        "enough idle cpu for reclaimed and batch pods together",
        "unit \"few\" is full",
    ] {
        let mut refusals = log.lines().filter(|line| line.contains("refused bind"));
        assert!(
            refusals.any(|line| line.contains(reason)),
            "the race proves nothing of `{reason}`"
        );
    }
}
