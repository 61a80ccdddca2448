//! The default profile of `tidepool up` as a judge of ordinary pods: it must decide as kube-scheduler's default profile does.

use anyhow::{Context, Result};
use engine::scheduling::plugins::DEFAULT;
use engine::scheduling::profile::Profile;
use serde_json::json;

use crate::compare::Judge;
use crate::generate::{self, Case};
use crate::verdicts::{Cycle, PreFilterStatus, Verdicts};

const PROFILE: &str = include_str!("../../../../crates/tidepool/src/up/default-profile.yaml");

/// The plugins of the profile that stand for one of kube-scheduler's.
const INSTEAD: &[(&str, &str)] = &[("QoSAwareNodeResourcesFit", "NodeResourcesFit")];

const LEVEL: &str = "katalyst.kubewharf.io/qos_level";
const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";

pub(crate) struct Up(Profile);

impl Up {
    pub(crate) fn new() -> Result<Self> {
        let (configuration, _) = api::config::load(PROFILE)?;
        let (mut profiles, _) = configuration.profiles(engine::scheduling::plugins::ALL)?;
        let profile = profiles.pop().context("it has no profile")?;
        Ok(Self(profile))
    }
}

/// A case of kube-scheduler's default profile. In every second one some running pods are reclaimed.
pub(crate) fn case(seed: u64, index: u64) -> Case {
    let mut case = generate::case(seed, index);
    case.0["profile"].take();
    if index.is_multiple_of(2) {
        return case;
    }
    // The change of a QoS level is an event that kube-scheduler does not have.
    case.0["hints"] = json!(false);
    let pods = case.0["pods"].as_array_mut();
    for (number, pod) in pods.into_iter().flatten().enumerate() {
        if number % 4 < 2 {
            pod["metadata"]["annotations"][LEVEL] = json!("reclaimed_cores");
        }
        if number % 4 == 0 {
            let amount = json!({CPU: "1k"});
            pod["spec"]["containers"][0]["resources"] =
                json!({"requests": amount, "limits": amount});
        }
    }
    case
}

impl Judge for Up {
    /// Every node has a report, which only our side reads.
    fn judge(&mut self, case: &Case) -> Result<Verdicts> {
        let mut case = case.clone();
        let nodes = case.0["nodes"].as_array();
        let reports = nodes.into_iter().flatten().map(|node| {
            json!({"metadata": {"name": node["metadata"]["name"]}, "status": {"resources": {"allocatable": {CPU: "4k"}}}})
        });
        case.0["customNodeResources"] = reports.collect();
        super::judge(&self.0, &case).map(translated)
    }
}

/// With kube-scheduler's names and in its order, without the answers of additional plugins that have no part in the decision: a
/// PreFilter that passes, equal scores for all nodes, and hints of a plugin that rejected no node.
fn translated(mut verdicts: Verdicts) -> Verdicts {
    let decides = |it: &PreFilterStatus| {
        it.nodes.is_some() || !matches!(&*it.status.code, "Skip" | "Success")
    };
    verdicts
        .pre_filter
        .retain(|it| is_default(&it.status.plugin) || decides(it));
    for hint in &mut verdicts.hints {
        hint.helps.retain(|plugin, _| is_default(plugin));
    }
    let Cycle {
        failure,
        scores,
        totals,
        ..
    } = &mut verdicts.cycle;
    // The error about an invalid score names its plugin.
    if let Some(text) = failure {
        for (ours, theirs) in INSTEAD {
            *text = text.replace(
                &format!("plugin \"{ours}\""),
                &format!("plugin \"{theirs}\""),
            );
        }
    }
    for score in scores.iter_mut() {
        let instead = INSTEAD.iter().find(|(ours, _)| *ours == score.plugin);
        if let Some((_, theirs)) = instead {
            (*theirs).clone_into(&mut score.plugin);
        }
    }
    scores.retain(|score| {
        let first = score.normalized.first().copied().unwrap_or(0);
        let is_equal = score.normalized.iter().all(|it| *it == first);
        let stays = is_default(&score.plugin) || !is_equal;
        if !stays {
            totals
                .iter_mut()
                .for_each(|total| *total -= first * score.weight);
        }
        stays
    });
    scores.sort_by_key(|score| {
        DEFAULT
            .iter()
            .position(|(name, _)| *name == score.plugin)
            .unwrap_or(DEFAULT.len())
    });
    verdicts
}

fn is_default(plugin: &str) -> bool {
    DEFAULT.iter().any(|(name, _)| *name == plugin)
}
