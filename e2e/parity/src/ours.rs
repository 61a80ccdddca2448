//! Our engine as a judge: Kubernetes objects in, what each plugin and the whole cycle say out.

mod hints;
mod kubelet;
mod preemption;
mod profile;
mod up;
mod world;

use std::sync::Arc;

use anyhow::{Result, anyhow};
use engine::cluster::Cluster;
use engine::model::{Pod, Timestamp};
use engine::scheduling::evaluate::{Cursor, NodeVerdict, PreFilterAnswer, Scan};
use engine::scheduling::framework::{Point, Rejection, Status};
use engine::scheduling::hooks::Hooks;
use engine::scheduling::preemption::SearchScope;
use engine::scheduling::profile::Profile;
use engine::scheduling::scheduler::{self, CycleResult};

use super::generate::Case;
use super::verdicts::{Cycle, NodeStatus, PluginScores, PluginStatus, PreFilterStatus, Verdicts};
use crate::compare::Judge;
use world::World;

pub(crate) use profile::not_built;
pub(crate) use up::{Up, case as case_of_up};

/// Later than any pod's start.
const NOW: Timestamp = Timestamp(i64::MAX);

pub(crate) struct Ours;

impl Judge for Ours {
    fn judge(&mut self, case: &Case) -> Result<Verdicts> {
        judge(&profile::profile(&case.0["profile"])?, case)
    }
}

/// Evaluates a case with this profile.
fn judge(profile: &Profile, case: &Case) -> Result<Verdicts> {
    let world = World::read(case)?;
    let mut cycle = cycle(profile, &world)?;
    if !world.question.preempt {
        cycle.preemption = None;
    }
    let quiet = world.without_nominated()?;
    let mut verdicts = Verdicts {
        nodes: world.order.clone(),
        pre_enqueue: pre_enqueue(profile, &quiet, &world.pod),
        pre_filter: Vec::new(),
        filter: vec![Vec::new(); world.order.len()],
        cycle,
        kubelet: kubelet::admissions(&quiet, &world, case),
        hints: Vec::new(),
    };
    if world.question.hints {
        verdicts.hints = hints::hints(profile, &quiet, &world)?;
    }
    ask_each_plugin(profile, &quiet, &world, &mut verdicts);
    Ok(verdicts)
}

fn pre_enqueue(profile: &Profile, cluster: &Cluster, pod: &Pod) -> Vec<PluginStatus> {
    let plugins = profile.at(Point::PreEnqueue).iter();
    plugins
        .map(|&index| &profile.plugins()[index])
        .filter_map(|enabled| {
            let answer = enabled.plugin.pre_enqueue(pod, cluster.catalog());
            Some(plugin_status(Some(enabled.name), &answer.err()?))
        })
        .collect()
}

/// Every plugin in a profile of its own, so that none is silenced by another.
fn ask_each_plugin(profile: &Profile, quiet: &Cluster, world: &World, verdicts: &mut Verdicts) {
    let alone = |index: usize| Profile::new("alone", vec![profile.plugins()[index].clone()]);
    let mut silent = Vec::new();
    for &index in profile.at(Point::PreFilter) {
        for (plugin, answer) in Scan::new(quiet, &alone(index), &world.pod).pre_filter_answers() {
            if !matches!(answer, PreFilterAnswer::Pass { .. }) {
                silent.push(index);
            }
            verdicts.pre_filter.push(pre_filter_status(plugin, answer));
        }
    }
    for &index in profile.at(Point::Filter) {
        if silent.contains(&index) {
            continue;
        }
        let alone = alone(index).with_order(Point::PreFilter, Vec::new());
        let scan = Scan::new(quiet, &alone, &world.pod);
        for (node, found) in world.order.iter().zip(&mut verdicts.filter) {
            let slot = quiet.nodes().slot(node);
            if let Some(Err((plugin, rejection))) = slot.map(|slot| scan.fits(slot)) {
                found.push(plugin_status(Some(plugin), &rejection));
            }
        }
    }
}

fn cycle(profile: &Profile, world: &World) -> Result<Cycle> {
    let hooks = Hooks::default();
    let mut ours = scheduler::Cycle::new(&world.cluster, profile, &world.pod, &hooks, NOW);
    let mut cycle = Cycle {
        failure: None,
        pre_filter: Scan::new(&world.cluster, profile, &world.pod)
            .early_end()
            .filter(|_| !world.order.is_empty())
            .map(|(plugin, rejection)| plugin_status(plugin, &rejection)),
        rejected: Vec::new(),
        feasible: Vec::new(),
        scores: Vec::new(),
        totals: Vec::new(),
        message: None,
        preemption: None,
    };
    match ours.run(Cursor::default(), SearchScope::All) {
        Err(text) => {
            cycle.failure = Some(text);
            // If scoring failed, the filters ran before it.
            if let Ok(verdicts) = ours.verdicts() {
                judged(verdicts, world, &mut cycle);
            }
        }
        Ok(CycleResult::NoNode {
            diagnosis,
            post_filter,
        }) => {
            cycle.message = Some(diagnosis.message(&post_filter.message()));
            let search = post_filter.search.as_ref();
            cycle.preemption = search.map(|search| preemption::found(world, &mut ours, search));
            let verdicts = ours.verdicts().map_err(|text| anyhow!(text))?;
            judged(verdicts, world, &mut cycle);
        }
        Ok(CycleResult::Node { slot, total, .. }) => {
            let node = world.cluster.nodes().get(slot);
            let node = node.map_or("", |entry| &entry.node.spec.name);
            if total.is_none() && is_nominated(&world.pod, node) {
                // No other node was evaluated.
                cycle.feasible = vec![node.to_owned()];
                return Ok(cycle);
            }
            let verdicts = ours.verdicts().map_err(|text| anyhow!(text))?;
            judged(verdicts, world, &mut cycle);
            if total.is_some() {
                scores(profile, &mut ours, world, &mut cycle)?;
            }
        }
        Ok(CycleResult::Ask(_)) => return Err(anyhow!("a cycle without extenders asks them")),
    }
    Ok(cycle)
}

fn is_nominated(pod: &Arc<Pod>, node: &str) -> bool {
    pod.nominated_node.as_deref() == Some(node)
}

fn judged(mut verdicts: Vec<NodeVerdict>, world: &World, cycle: &mut Cycle) {
    verdicts.sort_by_key(|verdict| world.position(&verdict.node));
    for verdict in verdicts {
        let node = verdict.node.to_string();
        match (verdict.rejection, verdict.plugin) {
            (None, _) => cycle.feasible.push(node),
            (Some(rejection), Some(plugin)) if cycle.pre_filter.is_none() => {
                let status = plugin_status(Some(plugin), &rejection);
                cycle.rejected.push(NodeStatus { node, status });
            }
            // Left out before any plugin looked at it.
            (Some(_), _) => {}
        }
    }
}

fn scores(
    profile: &Profile,
    ours: &mut scheduler::Cycle,
    world: &World,
    cycle: &mut Cycle,
) -> Result<()> {
    let mut nodes = ours.explain().map_err(|text| anyhow!(text))?;
    nodes.retain(|node| node.verdict.rejection.is_none());
    nodes.sort_by_key(|node| world.position(&node.verdict.node));
    cycle.totals = nodes.iter().map(|node| node.total).collect();
    let plugins = nodes.first().map_or(&[][..], |node| &node.scores[..]);
    for (position, score) in plugins.iter().enumerate() {
        let enabled = profile.plugins().iter().find(|e| e.name == score.plugin);
        cycle.scores.push(PluginScores {
            plugin: score.plugin.to_owned(),
            weight: enabled.map_or(0, |enabled| enabled.weight),
            raw: nodes.iter().map(|node| node.scores[position].raw).collect(),
            normalized: nodes
                .iter()
                .map(|node| node.scores[position].normalized)
                .collect(),
        });
    }
    Ok(())
}

fn pre_filter_status(plugin: &'static str, answer: PreFilterAnswer) -> PreFilterStatus {
    let plain = |code: &str| PluginStatus {
        plugin: plugin.to_owned(),
        code: code.to_owned(),
        reasons: Vec::new(),
    };
    match answer {
        PreFilterAnswer::Reject(rejection) => PreFilterStatus {
            status: plugin_status(Some(plugin), &rejection),
            nodes: None,
        },
        PreFilterAnswer::Skip => PreFilterStatus {
            status: plain("Skip"),
            nodes: None,
        },
        PreFilterAnswer::Pass { only } => {
            let mut nodes: Option<Vec<String>> =
                only.map(|names| names.iter().map(ToString::to_string).collect());
            if let Some(nodes) = &mut nodes {
                nodes.sort();
                nodes.dedup();
            }
            PreFilterStatus {
                status: plain("Success"),
                nodes,
            }
        }
    }
}

fn plugin_status(plugin: Option<&str>, rejection: &Rejection) -> PluginStatus {
    let code = match rejection.status {
        Status::Error => "Error",
        Status::Unschedulable => "Unschedulable",
        Status::Unresolvable => "UnschedulableAndUnresolvable",
        Status::Pending => "Pending",
    };
    PluginStatus {
        plugin: plugin.unwrap_or_default().to_owned(),
        code: code.to_owned(),
        reasons: rejection.reasons.iter().map(ToString::to_string).collect(),
    }
}
