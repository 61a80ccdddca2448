//! `tidepool debug`: the internal state of a running scheduler.

use anyhow::Result;
use api::http::{CACHE, CacheDump, NodeDump, Quantities};
use clap::{Args, Subcommand};
use engine::cluster::{AccountState, ReclaimedState};
use engine::model::ReclaimedResource;

use crate::{
    ask,
    exit::{Code, error},
    output::{self, count},
};

/// Inspect the state of a running scheduler
#[derive(Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cache(CacheFlags),
}

/// Show the scheduler's cache of nodes
///
/// Shows allocatable and requested resources of each node between two decisions, including pods that are being bound.
/// It does not delay scheduling.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct CacheFlags {
    /// Show only this node, with all its resources
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
            let (scheduler, answer) = ask::ask(&flags.ask, CACHE)?;
            output::print(flags.ask.output, &answer, |cache| {
                all(&cache) + &scheduler.place_line()
            })
        }
        Some(name) => {
            let is_name =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            if name.is_empty() || !name.chars().all(is_name) {
                let text = format!(
                    "`{name}` is not a valid node name; `kubectl get nodes` lists all nodes"
                );
                return Err(error(Code::BadInput, text));
            }
            let (scheduler, answer) = ask::ask(&flags.ask, &format!("{CACHE}/{name}"))?;
            output::print(flags.ask.output, &answer, |node| {
                one(&node) + &scheduler.place_line()
            })
        }
    }
}

fn all(cache: &CacheDump) -> String {
    let mut accounts = cache
        .nodes
        .iter()
        .filter_map(|node| node.reclaimed.as_ref());
    let lends = accounts.any(|it| it.reported || takes(&it.account));
    let row =
        |name: &str, pods: &str, native: [String; 2], lent: [String; 2], more: [String; 2]| {
            let mut row = vec![name.to_owned(), pods.to_owned()];
            row.extend(native);
            row.extend(lent.into_iter().filter(|_| lends));
            row.extend(more);
            row
        };
    let heading = |names: [&str; 2]| names.map(str::to_owned);
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
            account.map_or_else(|| "-".to_owned(), |it| reclaimed_share(it, resource))
        };
        rows.push(row(
            &node.name,
            &node.pods.to_string(),
            ["cpu", "memory"].map(|resource| share(&node.native, resource)),
            ReclaimedResource::ALL.map(|resource| lent(resource.name())),
            [&node.assumed, &node.nominated].map(|pods| pods.len().to_string()),
        ));
    }
    let mut text = output::columns(&rows);
    for node in &cache.unknown_nodes {
        let are = if node.pods == 1 { "is" } else { "are" };
        text += &format!(
            "{} {are} bound to unknown node {}\n",
            count(node.pods, "pod"),
            node.name
        );
    }
    text + &format!(
        "{} on {} at {}{}\n",
        count(cache.pods, "pod"),
        count(cache.nodes.len(), "node"),
        cache.time,
        caution(cache.synced)
    )
}

fn one(dump: &NodeDump) -> String {
    let node = &dump.node;
    let heading = ["RESOURCE", "ALLOCATABLE", "REQUESTED", "NON-ZERO"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(account_rows(&node.native));
    let reported = node.reclaimed.iter().filter(|it| it.reported);
    rows.extend(reported.flat_map(|it| account_rows(&it.account)));
    let mut text = format!(
        "{}: {} at {}{}\n",
        node.name,
        count(node.pods, "pod"),
        dump.time,
        caution(dump.synced)
    );
    text += &output::columns(&rows);
    let silent = node.reclaimed.as_ref().filter(|it| !it.reported);
    for (resource, amount) in silent.iter().flat_map(|it| &it.account.requested) {
        if !is_zero(amount) {
            text += &format!(
                "{resource}: {amount} requested, but there is no CustomNodeResource for the node\n"
            );
        }
    }
    for (state, pods) in [("assumed", &node.assumed), ("nominated", &node.nominated)] {
        for pod in pods {
            text += &format!("{state}: {}/{}\n", pod.namespace, pod.name);
        }
    }
    text
}

fn caution(synced: bool) -> &'static str {
    if synced {
        ""
    } else {
        "; some objects of the cluster are not listed yet"
    }
}

/// Whether pods request some of the account.
fn takes(account: &AccountState<Quantities>) -> bool {
    account.requested.values().any(|amount| !is_zero(amount))
}

fn is_zero(amount: &str) -> bool {
    amount == "0"
}

/// Requested of allocatable; a node without a CustomNodeResource has no such resources.
fn reclaimed_share(state: &ReclaimedState<Quantities>, resource: &str) -> String {
    let requested = state.account.requested.get(resource);
    match requested.filter(|amount| !is_zero(amount)) {
        _ if state.reported => share(&state.account, resource),
        None => "-".to_owned(),
        Some(requested) => format!("{requested}/-"),
    }
}

/// Requested of allocatable.
fn share(account: &AccountState<Quantities>, resource: &str) -> String {
    match (
        account.requested.get(resource),
        account.allocatable.get(resource),
    ) {
        (None, None) => "-".to_owned(),
        (requested, allocatable) => format!(
            "{}/{}",
            requested.map_or("0", String::as_str),
            allocatable.map_or("0", String::as_str)
        ),
    }
}

fn account_rows(account: &AccountState<Quantities>) -> impl Iterator<Item = Vec<String>> {
    account.allocatable.iter().map(|(resource, allocatable)| {
        let get = |list: &Quantities| list.get(resource).cloned().unwrap_or_default();
        vec![
            resource.clone(),
            allocatable.clone(),
            get(&account.requested),
            get(&account.non_zero_requested),
        ]
    })
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
            "time": "2026-01-02T03:04:05Z", "synced": false, "pods": 1, "nodes": [node()],
            "unknownNodes": [{"name": "gone", "pods": 1}],
        });
        let want = "\
NODE  PODS  CPU      MEMORY    ASSUMED  NOMINATED
n1       2  1500m/4  1Gi/16Gi        1          0
1 pod is bound to unknown node gone
1 pod on 1 node at 2026-01-02T03:04:05Z; some objects of the cluster are not listed yet
";
        assert_eq!(all(&serde_json::from_value(cache).unwrap()), want);
    }

    #[test]
    fn reclaimed_resources_have_columns_where_a_node_has_some() {
        let mut lends = node();
        lends["name"] = "n2".into();
        lends["reclaimed"] = json!({
            "reported": true,
            "allocatable": {RECLAIMED_CPU: "40k", RECLAIMED_MEMORY: "100Gi"},
            "requested": {RECLAIMED_CPU: "2500", RECLAIMED_MEMORY: "0"},
            "nonZeroRequested": {RECLAIMED_CPU: "2500", RECLAIMED_MEMORY: "200Mi"},
        });
        let cache = json!({"time": "2026-01-02T03:04:05Z", "synced": true, "pods": 4, "unknownNodes": [],
            "nodes": [node(), lends]});
        let want = "\
NODE  PODS  CPU      MEMORY    RECLAIMED CPU  RECLAIMED MEMORY  ASSUMED  NOMINATED
n1       2  1500m/4  1Gi/16Gi  -              -                       1          0
n2       2  1500m/4  1Gi/16Gi  2500/40k       0/100Gi                 1          0
4 pods on 2 nodes at 2026-01-02T03:04:05Z
";
        assert_eq!(all(&serde_json::from_value(cache).unwrap()), want);
        let one = one(&serde_json::from_value(lends).unwrap());
        let line =
            "resource.katalyst.kubewharf.io/reclaimed_memory    100Gi        0          200Mi\n";
        assert!(one.contains(line), "{one}");
    }

    #[test]
    fn a_node_without_a_report_has_no_reclaimed_resources() {
        let with = |name: &str, requested: &str| {
            let mut node = node();
            node["name"] = name.into();
            node["reclaimed"] = json!({
                "reported": false,
                "allocatable": {RECLAIMED_CPU: "0", RECLAIMED_MEMORY: "0"},
                "requested": {RECLAIMED_CPU: requested, RECLAIMED_MEMORY: "0"},
                "nonZeroRequested": {RECLAIMED_CPU: requested, RECLAIMED_MEMORY: "200Mi"},
            });
            node
        };
        let dump = |nodes: &[serde_json::Value]| {
            let cache = json!({"time": "2026-01-02T03:04:05Z", "synced": true, "pods": 4, "unknownNodes": [],
                "nodes": nodes});
            all(&serde_json::from_value(cache).unwrap())
        };
        // Pods there have only the amounts that scores assume.
        let silent = dump(&[with("n1", "0")]);
        assert!(!silent.contains("RECLAIMED"), "{silent}");
        let borrowed = dump(&[with("n1", "0"), with("n2", "2500")]);
        let want = "\
NODE  PODS  CPU      MEMORY    RECLAIMED CPU  RECLAIMED MEMORY  ASSUMED  NOMINATED
n1       2  1500m/4  1Gi/16Gi  -              -                       1          0
n2       2  1500m/4  1Gi/16Gi  2500/-         -                       1          0
4 pods on 2 nodes at 2026-01-02T03:04:05Z
";
        assert_eq!(borrowed, want);
        let one = one(&serde_json::from_value(with("n2", "2500")).unwrap());
        let line = format!(
            "{RECLAIMED_CPU}: 2500 requested, but there is no CustomNodeResource for the node\n"
        );
        assert!(one.contains(&line), "{one}");
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
