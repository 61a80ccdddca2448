//! Compares the state of the simulation with the expectations of a scenario.

use engine::model::parse_duration;
use engine::scheduling::hooks::Hooks;
use engine::scheduling::scheduler::Cycle;
use indexmap::IndexMap;

use crate::scenario::Expected;
use crate::simulation::{SimPod, Simulation, key, seconds};

/// Everything that is not as expected of a pod, as messages; an error if the expectation itself is invalid.
pub(crate) fn unmet(
    simulation: &Simulation,
    name: &str,
    expected: &Expected,
) -> Result<Vec<String>, String> {
    let pod = simulation
        .pods
        .get(&key(name))
        .ok_or_else(|| format!("pod `{name}` does not exist"))?;
    let mut unmet = Vec::new();
    let is = || state(pod);
    if expected.gone.unwrap_or(false) != pod.gone {
        unmet.push(match pod.gone {
            true => "it is gone".to_owned(),
            false => format!("it should be gone, but {}", is()),
        });
        return Ok(unmet);
    }
    if let Some(node) = expected
        .on
        .as_deref()
        .filter(|node| pod.node() != Some(node))
    {
        unmet.push(format!("it should be on {node}, but {}", is()));
    }
    if let Some(nodes) = &expected.among
        && !pod
            .node()
            .is_some_and(|on| nodes.iter().any(|node| node == on))
    {
        unmet.push(format!(
            "it should be on one of {}, but {}",
            nodes.join(", "),
            is()
        ));
    }
    if let Some(want) = &expected.warned
        && !pod.warnings.iter().any(|text| text.contains(want))
    {
        let found = pod.warnings.join("; ");
        unmet.push(format!("expected a warning with `{want}`, found `{found}`"));
    }
    for (annotation, want) in &expected.annotations {
        let found = pod.wire.metadata.annotations.get(annotation);
        if found != want.as_ref() {
            let text = |it: Option<&String>| it.map_or("absent".to_owned(), |it| format!("`{it}`"));
            let (found, want) = (text(found), text(want.as_ref()));
            unmet.push(format!(
                "annotation {annotation} should be {want}, but is {found}"
            ));
        }
    }
    let must_wait = expected.rejected.is_some()
        || expected.message.is_some()
        || expected.nominated.is_some()
        || expected.gated.is_some();
    if must_wait && pod.node().is_some() {
        unmet.push(format!("it should wait, but {}", is()));
        return Ok(unmet);
    }
    if let Some(want) = &expected.rejected {
        let found = rejections(simulation, pod)?;
        if !same(want, &found) {
            unmet.push(format!(
                "expected rejections [{}], found [{}]",
                listed(want),
                listed(&found)
            ));
        }
    }
    if let Some(want) = &expected.message
        && pod.message.as_ref() != Some(want)
    {
        unmet.push(format!("expected the message `{want}`, but {}", is()));
    }
    if let Some(want) = &expected.nominated {
        let nominations = simulation.scheduler.cluster().nominations();
        let mut kept = nominations.filter(|nominated| nominated.pod.uid == pod.pod.uid);
        let found = kept.next().map(|nominated| nominated.node.to_string());
        if found.as_ref() != Some(want) {
            let found = found.unwrap_or_else(|| "none".to_owned());
            unmet.push(format!("expected the nominated node {want}, found {found}"));
        }
    }
    if let Some(want) = expected.gated {
        let ticket = simulation.scheduler.waiting(&pod.pod.uid);
        if ticket.is_some_and(|ticket| ticket.is_gated()) != want {
            let not = if want { "" } else { "not " };
            unmet.push(format!(
                "it should {not}be gated, but is {}gated",
                if want { "not " } else { "" }
            ));
        }
    }
    if let Some(want) = expected.attempts.filter(|want| *want != pod.attempts) {
        unmet.push(format!("expected {want} attempts, found {}", pod.attempts));
    }
    if let Some(want) = &expected.at {
        let nanos = parse_duration(want).map_err(|error| error.to_string())?;
        if pod.bound.map(|bound| bound.0) != Some(nanos) {
            let found = pod
                .bound
                .map_or_else(is, |bound| format!("it was bound at {}", seconds(bound)));
            unmet.push(format!("it should be bound at {want}, but {found}"));
        }
    }
    Ok(unmet)
}

fn state(pod: &SimPod) -> String {
    match (pod.node(), &pod.message) {
        _ if pod.gone => "it is gone".to_owned(),
        (Some(node), _) => format!("it is on {node}"),
        (None, Some(message)) => format!("it waits: {message}"),
        (None, None) => "it waits, with no scheduling attempt".to_owned(),
    }
}

/// Per node, the plugin that refuses it to the pod now.
fn rejections(simulation: &Simulation, pod: &SimPod) -> Result<IndexMap<String, String>, String> {
    let profiles = simulation.scheduler.profiles();
    let scheduler = &pod.pod.scheduler_name;
    let profile = profiles.find(scheduler);
    let profile = profile.ok_or_else(|| format!("no profile is named `{scheduler}`"))?;
    let hooks = Hooks::default();
    let mut cycle = Cycle::new(
        simulation.scheduler.cluster(),
        profiles.get(profile),
        &pod.pod,
        &hooks,
        simulation.now,
    );
    let verdicts = cycle.verdicts()?;
    let by = verdicts.into_iter().map(|verdict| {
        let by = match (&verdict.rejection, verdict.plugin) {
            (None, _) => "no plugin",
            (Some(_), Some(plugin)) => plugin,
            (Some(_), None) => "several",
        };
        (verdict.node.to_string(), by.to_owned())
    });
    Ok(by.collect())
}

/// The order does not matter.
fn same(a: &IndexMap<String, String>, b: &IndexMap<String, String>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, value)| b.get(key) == Some(value))
}

fn listed(map: &IndexMap<String, String>) -> String {
    let pairs: Vec<String> = map
        .iter()
        .map(|(node, plugin)| format!("{node}: {plugin}"))
        .collect();
    pairs.join(", ")
}
