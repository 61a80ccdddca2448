//! `tidepool debug`: what a running scheduler has in mind, as numbers.
//!
//! Fields that are not there are empty: a scheduler may be newer or older than this program.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use engine::model::ReclaimedResource;
use serde::Deserialize;

use crate::{
    ask,
    exit::{Code, error},
    output,
};

/// Look into a running scheduler
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cache(CacheFlags),
}

/// Show what the scheduler counts on nodes
///
/// What nodes offer and what pods take of it, as it was between two decisions, with pods whose binding is under way.
/// Nothing waits for it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct CacheFlags {
    /// Only this node, with all its resources
    node: Option<String>,
    #[command(flatten)]
    ask: ask::Flags,
}

const EXAMPLES: &str = "\
Examples:
  tidepool debug cache                                   every node, one line each
  tidepool debug cache node-3                            every resource of one node
  tidepool debug cache -o json | jq '.nodes[].assumed'   for programs";

pub(crate) fn run(flags: &Flags) -> Result<()> {
    let Command::Cache(flags) = &flags.command;
    match &flags.node {
        None => {
            let (_, answer) = ask::ask(&flags.ask, "/debug/cache")?;
            output::print(flags.ask.output, &answer, |answer| {
                Ok(all(&Cache::deserialize(answer).context(OTHER_VERSION)?))
            })
        }
        Some(name) => {
            let is_name =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            if name.is_empty() || !name.chars().all(is_name) {
                let text =
                    format!("`{name}` names no node; `kubectl get nodes` shows which there are");
                return Err(error(Code::BadInput, text));
            }
            let (_, answer) = ask::ask(&flags.ask, &format!("/debug/cache/{name}"))?;
            output::print(flags.ask.output, &answer, |answer| {
                Ok(one(&Node::deserialize(answer).context(OTHER_VERSION)?))
            })
        }
    }
}

const OTHER_VERSION: &str =
    "the scheduler is of another version, and its answer has other fields; use -o json";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cache {
    time: String,
    synced: bool,
    pods: u64,
    nodes: Vec<Node>,
    unknown_nodes: Vec<UnknownNode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Node {
    time: String,
    synced: bool,
    name: String,
    pods: u64,
    native: Account,
    reclaimed: Option<Account>,
    assumed: Vec<Pod>,
    nominated: Vec<Pod>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Account {
    allocatable: BTreeMap<String, String>,
    requested: BTreeMap<String, String>,
    non_zero_requested: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnknownNode {
    name: String,
    pods: u64,
}

fn all(cache: &Cache) -> String {
    let lends = cache.nodes.iter().any(|node| node.reclaimed.is_some());
    let row =
        |name: &str, pods: &str, native: [String; 2], lent: [String; 2], more: [String; 2]| {
            let mut row = vec![name.to_owned(), pods.to_owned()];
            row.extend(native);
            row.extend(lent.into_iter().filter(|_| lends));
            row.extend(more);
            row
        };
    let heading = |words: [&str; 2]| words.map(str::to_owned);
    let mut rows = vec![row(
        "NODE",
        "PODS",
        heading(["CPU", "MEMORY"]),
        heading(["RECLAIMED CPU", "RECLAIMED MEMORY"]),
        heading(["ASSUMED", "NOMINATED"]),
    )];
    for node in &cache.nodes {
        let lent = |resource| {
            let account = node.reclaimed.as_ref();
            account.map_or_else(|| "-".to_owned(), |account| account.share(resource))
        };
        rows.push(row(
            &node.name,
            &node.pods.to_string(),
            ["cpu", "memory"].map(|resource| node.native.share(resource)),
            ReclaimedResource::ALL.map(|resource| lent(resource.name())),
            [&node.assumed, &node.nominated].map(|pods| pods.len().to_string()),
        ));
    }
    let mut text = output::columns(&rows);
    for node in &cache.unknown_nodes {
        text += &format!(
            "{} pods are on node {}, which is not known\n",
            node.pods, node.name
        );
    }
    text + &format!(
        "{} pods on {} nodes at {}{}\n",
        cache.pods,
        cache.nodes.len(),
        cache.time,
        caution(cache.synced)
    )
}

fn one(node: &Node) -> String {
    let heading = ["RESOURCE", "ALLOCATABLE", "REQUESTED", "NON-ZERO"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(node.native.rows());
    rows.extend(node.reclaimed.iter().flat_map(Account::rows));
    let mut text = format!(
        "{}: {} pods at {}{}\n",
        node.name,
        node.pods,
        node.time,
        caution(node.synced)
    );
    text += &output::columns(&rows);
    for (what, pods) in [("assumed", &node.assumed), ("nominated", &node.nominated)] {
        for pod in pods {
            text += &format!("{what}: {}/{}\n", pod.namespace, pod.name);
        }
    }
    text
}

fn caution(synced: bool) -> &'static str {
    if synced {
        ""
    } else {
        "; the cluster is not known in full yet"
    }
}

impl Account {
    /// Requested of allocatable.
    fn share(&self, resource: &str) -> String {
        let get = |list: &BTreeMap<String, String>| list.get(resource).cloned();
        match (get(&self.requested), get(&self.allocatable)) {
            (None, None) => "-".to_owned(),
            (requested, allocatable) => format!(
                "{}/{}",
                requested.as_deref().unwrap_or("0"),
                allocatable.as_deref().unwrap_or("0")
            ),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.allocatable.keys().map(|resource| {
            let get = |list: &BTreeMap<String, String>| list.get(resource).cloned();
            vec![
                resource.clone(),
                get(&self.allocatable).unwrap_or_default(),
                get(&self.requested).unwrap_or_default(),
                get(&self.non_zero_requested).unwrap_or_default(),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RECLAIMED_CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
    const RECLAIMED_MEMORY: &str = "resource.katalyst.kubewharf.io/reclaimed_memory";

    fn node() -> serde_json::Value {
        json!({
            "time": "2026-01-02T03:04:05Z", "synced": true, "name": "n1", "pods": 2,
            "native": {
                "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "requested": {"cpu": "1500m", "memory": "1Gi", "pods": "2"},
                "nonZeroRequested": {"cpu": "1500m", "memory": "1224Mi"},
            },
            "assumed": [{"namespace": "default", "name": "a", "uid": "1"}],
            "nominated": [],
        })
    }

    #[test]
    fn all_nodes_are_a_line_each() {
        let cache = json!({
            "time": "2026-01-02T03:04:05Z", "synced": false, "pods": 3, "nodes": [node()],
            "unknownNodes": [{"name": "gone", "pods": 1}],
        });
        let want = "\
NODE  PODS  CPU      MEMORY    ASSUMED  NOMINATED
n1       2  1500m/4  1Gi/16Gi        1          0
1 pods are on node gone, which is not known
3 pods on 1 nodes at 2026-01-02T03:04:05Z; the cluster is not known in full yet
";
        assert_eq!(all(&serde_json::from_value(cache).unwrap()), want);
    }

    #[test]
    fn what_is_lent_has_columns_where_some_is() {
        let mut lends = node();
        lends["name"] = "n2".into();
        lends["reclaimed"] = json!({
            "reported": true,
            "allocatable": {RECLAIMED_CPU: "40k", RECLAIMED_MEMORY: "100Gi"},
            "requested": {RECLAIMED_CPU: "2500", RECLAIMED_MEMORY: "0"},
            "nonZeroRequested": {RECLAIMED_CPU: "2500", RECLAIMED_MEMORY: "200Mi"},
        });
        let cache = json!({"time": "t", "synced": true, "pods": 4, "nodes": [node(), lends]});
        let want = "\
NODE  PODS  CPU      MEMORY    RECLAIMED CPU  RECLAIMED MEMORY  ASSUMED  NOMINATED
n1       2  1500m/4  1Gi/16Gi  -              -                       1          0
n2       2  1500m/4  1Gi/16Gi  2500/40k       0/100Gi                 1          0
4 pods on 2 nodes at t
";
        assert_eq!(all(&serde_json::from_value(cache).unwrap()), want);
        let one = one(&serde_json::from_value(lends).unwrap());
        let line =
            "resource.katalyst.kubewharf.io/reclaimed_memory    100Gi        0          200Mi\n";
        assert!(one.contains(line), "{one}");
    }

    #[test]
    fn one_node_is_shown_with_all_resources() {
        let want = "\
n1: 2 pods at 2026-01-02T03:04:05Z
RESOURCE  ALLOCATABLE  REQUESTED  NON-ZERO
cpu       4            1500m      1500m
memory    16Gi         1Gi        1224Mi
pods      110          2
assumed: default/a
";
        assert_eq!(one(&serde_json::from_value(node()).unwrap()), want);
    }
}
