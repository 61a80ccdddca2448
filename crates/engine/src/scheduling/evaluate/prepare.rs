//! Prepares the plan of a pod from the plugins of a profile, and runs PreFilter on it.

use crate::cluster::Cluster;
use crate::model::Pod;
use crate::scheduling::framework::{Plan, Point, Rejection, Status};
use crate::scheduling::profile::Profile;

/// The nodes that PreFilter leaves to evaluate.
#[derive(Clone)]
pub(crate) enum PreFilterResult {
    All,
    /// These slots; the others are rejected in the name of these plugins.
    Only {
        slots: Vec<usize>,
        plugins: Vec<&'static str>,
    },
    /// No node fits.
    Rejected {
        rejection: Rejection,
        /// The plugin that rejected the pod; `None` if the node sets of several plugins have no node in common.
        by: Option<&'static str>,
        /// Plugins that reject the pod.
        plugins: Vec<&'static str>,
    },
    /// The cycle is aborted.
    Failed {
        text: String,
        by: &'static str,
    },
}

pub(super) fn prepare<'a>(cluster: &'a Cluster, profile: &Profile, pod: &Pod) -> Plan<'a> {
    let mut plan = Plan::new(cluster.catalog());
    for enabled in profile.plugins() {
        plan.next_plugin();
        enabled.plugin.prepare(pod, cluster.catalog(), &mut plan);
    }
    plan
}

pub(super) fn narrow(cluster: &Cluster, profile: &Profile, plan: &Plan) -> PreFilterResult {
    let mut rejected: Option<(Rejection, &'static str)> = None;
    let mut names: Option<Vec<&str>> = None;
    let mut narrowing = Vec::new();
    for &index in profile.at(Point::PreFilter) {
        let (part, name) = (&plan.plugins[index], profile.plugins()[index].name);
        match &part.rejection {
            None => {}
            Some(rejection) => match rejection.status {
                Status::Unresolvable => {
                    return PreFilterResult::Rejected {
                        rejection: rejection.clone(),
                        by: Some(name),
                        plugins: vec![name],
                    };
                }
                Status::Unschedulable => rejected = Some((rejection.clone(), name)),
                Status::Error | Status::Pending => {
                    let text = rejection.message();
                    return PreFilterResult::Failed {
                        text: format!("running PreFilter plugin \"{name}\": {text}"),
                        by: name,
                    };
                }
            },
        }
        if let Some(only) = &part.only {
            narrowing.push(name);
            names = Some(match names {
                None => only.iter().map(|name| &**name).collect(),
                Some(known) => known
                    .into_iter()
                    .filter(|name| only.iter().any(|o| **o == **name))
                    .collect(),
            });
            if names.as_ref().is_some_and(Vec::is_empty) {
                narrowing.sort_unstable();
                let text = match narrowing[..] {
                    [one] => format!("node(s) didn't satisfy plugin {one}"),
                    _ => format!(
                        "node(s) didn't satisfy plugin(s) [{}] simultaneously",
                        narrowing.join(" ")
                    ),
                };
                return PreFilterResult::Rejected {
                    rejection: Rejection::unresolvable(text),
                    by: None,
                    plugins: narrowing,
                };
            }
        }
    }
    if let Some((rejection, plugin)) = rejected {
        return PreFilterResult::Rejected {
            rejection,
            by: Some(plugin),
            plugins: vec![plugin],
        };
    }
    match names {
        None => PreFilterResult::All,
        Some(names) => {
            let mut slots: Vec<usize> = names
                .into_iter()
                .filter_map(|name| cluster.nodes().slot(name))
                .collect();
            slots.sort_unstable();
            slots.dedup();
            narrowing.sort_unstable();
            PreFilterResult::Only {
                slots,
                plugins: narrowing,
            }
        }
    }
}
