//! A case as the engine's cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::parse::{self, Manifest};
use api::wire::core;
use engine::cluster::Cluster;
use engine::cluster::kinds::Kind;
use engine::model::Pod;
use serde::Deserialize;
use serde_json::Value;

use crate::generate::Case;

/// The fields of `e2e/oracle-kube/protocol.go` that are no list of a kind.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Question {
    pub(super) preempt: bool,
    pub(super) hints: bool,
    pub(super) pod: core::Pod,
    pub(super) nominated: Vec<core::Pod>,
}

/// The objects of every kind, in the order of the engine's list of kinds.
pub(super) type Objects = Vec<(Kind, Vec<Manifest>)>;

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) pod: Arc<Pod>,
    /// Node names in the order of kube-scheduler's snapshot.
    pub(super) order: Vec<String>,
    pub(super) question: Question,
    pub(super) objects: Objects,
}

impl World {
    pub(super) fn read(case: &Case) -> Result<Self> {
        let malformed = "the case has a malformed object";
        let question = Question::deserialize(&case.0).context(malformed)?;
        let objects = objects(case).context(malformed)?;
        let nodes: Vec<&core::Node> = (objects.iter().flat_map(|(_, list)| list))
            .filter_map(|object| match object {
                Manifest::Node(node) => Some(node),
                _ => None,
            })
            .collect();
        let mut names = BTreeSet::new();
        for node in &nodes {
            let name = &node.metadata.name;
            // Shrinking takes names away, too, and without them nodes cannot be distinguished.
            ensure!(
                !name.is_empty() && names.insert(name),
                "two nodes named {name:?}"
            );
        }
        let mut cluster = load(&objects)?;
        for pod in &question.nominated {
            let pod = Arc::new(parse::pod(pod)?);
            let node = pod.nominated_node.clone();
            let node = node.context("a pod of \"nominated\" has no status.nominatedNodeName")?;
            cluster.nominate(pod, node)?;
        }
        cluster.check()?;
        Ok(Self {
            cluster,
            pod: Arc::new(parse::pod(&question.pod)?),
            order: snapshot_order(&nodes),
            question,
            objects,
        })
    }

    /// This cluster as if nothing were nominated.
    pub(super) fn without_nominated(&self) -> Result<Cluster> {
        load(&self.objects)
    }

    pub(super) fn position(&self, node: &str) -> Option<usize> {
        self.order.iter().position(|name| name == node)
    }
}

fn objects(case: &Case) -> Result<Objects> {
    let read = |kind: Kind| {
        let list = case.0.get(kind.plural()).map(Vec::<Value>::deserialize);
        let list = list.transpose()?.unwrap_or_default();
        let objects = list.into_iter().map(|object| Manifest::read(kind, object));
        Ok((kind, objects.collect::<Result<_, _>>()?))
    };
    Kind::ALL.iter().map(|kind| read(*kind)).collect()
}

fn load(objects: &Objects) -> Result<Cluster> {
    let mut cluster = Cluster::new();
    for object in objects.iter().flat_map(|(_, list)| list) {
        cluster.apply(object.parse(&mut Vec::new())?.into())?;
    }
    Ok(cluster)
}

/// Round robin over the zones, each in the order in which its nodes came; zones by their first node.
fn snapshot_order(nodes: &[&core::Node]) -> Vec<String> {
    let mut zones: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for node in nodes {
        let label = |name: &str| {
            let labels = &node.metadata.labels;
            let beta = labels.get(&format!("failure-domain.beta.kubernetes.io/{name}"));
            beta.or_else(|| labels.get(&format!("topology.kubernetes.io/{name}")))
                .map_or("", String::as_str)
        };
        let zone = (label("region"), label("zone"));
        let name = &node.metadata.name[..];
        match zones.iter_mut().find(|(known, _)| *known == zone) {
            Some((_, members)) if members.contains(&name) => {}
            Some((_, members)) => members.push(name),
            None => zones.push((zone, vec![name])),
        }
    }
    let longest = zones.iter().map(|(_, members)| members.len()).max();
    (0..longest.unwrap_or(0))
        .flat_map(|turn| {
            zones
                .iter()
                .filter_map(move |(_, members)| members.get(turn))
        })
        .map(|name| (*name).to_owned())
        .collect()
}
