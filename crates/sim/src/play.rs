//! Plays a scenario, step by step.

use std::collections::BTreeSet;
use std::time::Duration;

use api::parse::Manifest;
use api::{config, yaml};
use engine::cluster::kinds::{Key, Kind, Object};
use engine::model::parse_duration;
use engine::scheduling::profile::Profile;
use engine::scheduling::scheduler::{Scheduler, Settings};

use crate::check;
use crate::expect;
use crate::kinds;
use crate::objects;
use crate::scenario::{
    Expect, Named, NodeEntry, Objects, PodEntry, Relabel, Resize, Scenario, Step,
};
use crate::simulation::{Deletion, Simulation, key};
use crate::{BadScenario, Finding, Report};

/// Longer than anything that waits in a queue.
const LONGEST_SPAN: i64 = 366 * 86_400 * 1_000_000_000;

/// Plays a scenario, unless it has faults: those of its text, or those that [`check`] finds.
pub(crate) fn play(
    text: &str,
    scenario: Scenario,
    mut faults: Vec<Finding>,
) -> Result<Report, BadScenario> {
    let configured = configured(text, &scenario);
    let profiles = configured.iter().flat_map(|(profiles, ..)| profiles);
    let schedulers: Vec<&str> = profiles.map(|it| &*it.scheduler_name).collect();
    let more = check::check(text, &scenario, &schedulers, &faults);
    faults.extend(more);
    let configured = configured.map_err(|BadScenario(errors)| faults.extend(errors));
    // Those of the whole file come last.
    faults.sort_by_key(|fault| fault.line.unwrap_or(u64::MAX));
    let (profiles, settings, warnings) = match configured {
        Ok(configured) if faults.is_empty() => configured,
        _ => return Err(BadScenario(faults)),
    };
    let default_scheduler = profiles[0].scheduler_name.to_string();
    let scheduler = Scheduler::new(profiles, settings);
    let scheduler = scheduler.map_err(|error| bad(text, "configuration", error.to_string()))?;
    let mut player = Player {
        text,
        simulation: Simulation::new(scheduler),
        default_scheduler,
        failures: Vec::new(),
    };
    player.simulation.log.extend(warnings);
    player.set_colocation_config("colocationConfig", scenario.colocation_config.as_ref())?;
    player.create("cluster", &scenario.cluster)?;
    player.settle("cluster")?;
    player.create_pods("pods", &scenario.pods)?;
    player.settle("pods")?;
    player.check("expect", &scenario.expect)?;
    player.check_nodes("expectNodes", &scenario.expect_nodes)?;
    for (i, step) in scenario.steps.iter().enumerate() {
        player.step(&format!("steps[{i}]"), step)?;
    }
    let unoffered = player.simulation.unoffered();
    let warnings = unoffered
        .iter()
        .map(|it| format!("warning: configuration: {it}"));
    player.simulation.log.extend(warnings);
    Ok(Report {
        log: player.simulation.log,
        failures: player.failures,
    })
}

type Configured = (Vec<Profile>, Settings, Vec<String>);

fn configured(text: &str, scenario: &Scenario) -> Result<Configured, BadScenario> {
    let (configuration, mut warnings) = match &scenario.configuration {
        None => (config::Configuration::default(), Vec::new()),
        Some(inner) => config::load(inner).map_err(|_| {
            // All errors, also those of the plugins.
            below(
                text,
                config::check(inner, engine::scheduling::plugins::ALL).errors,
            )
        })?,
    };
    let (profiles, more) = configuration
        .profiles(engine::scheduling::plugins::ALL)
        .map_err(|errors| below(text, errors.0))?;
    warnings.extend(more);
    let warnings = warnings
        .iter()
        .map(|warning| format!("warning: configuration: {warning}"));
    Ok((profiles, configuration.settings(), warnings.collect()))
}

/// Findings in the configuration, with lines of the whole file.
fn below(text: &str, findings: Vec<Finding>) -> BadScenario {
    let first = yaml::line(text, "configuration");
    let shifted = |finding: Finding| Finding {
        line: first.zip(finding.line).map(|(first, line)| first + line),
        ..finding
    };
    BadScenario(findings.into_iter().map(shifted).collect())
}

fn bad(text: &str, path: &str, message: String) -> BadScenario {
    BadScenario(vec![Finding {
        line: yaml::line(text, path),
        field: path.to_owned(),
        text: message,
    }])
}

struct Player<'a> {
    text: &'a str,
    simulation: Simulation,
    /// For pods that name none.
    default_scheduler: String,
    failures: Vec<Finding>,
}

impl Player<'_> {
    fn at<T>(&self, path: &str, result: Result<T, impl ToString>) -> Result<T, BadScenario> {
        result.map_err(|error| bad(self.text, path, error.to_string()))
    }

    fn settle(&mut self, path: &str) -> Result<(), BadScenario> {
        let result = self.simulation.settle();
        self.at(path, result)
    }

    fn step(&mut self, path: &str, step: &Step) -> Result<(), BadScenario> {
        self.act(path, step)?;
        self.settle(path)?;
        self.check(&format!("{path}.expect"), &step.expect)?;
        self.check_nodes(&format!("{path}.expectNodes"), &step.expect_nodes)
    }

    fn act(&mut self, path: &str, step: &Step) -> Result<(), BadScenario> {
        if let Some(objects) = &step.create {
            self.create(&format!("{path}.create"), objects)?;
        }
        if let Some(named) = &step.delete {
            let result = self.delete(named);
            self.at(&format!("{path}.delete"), result)?;
        }
        if let Some(relabel) = &step.relabel {
            let result = self.relabel(relabel);
            self.at(&format!("{path}.relabel"), result)?;
        }
        if let Some(taints) = &step.taint {
            let result = objects::taints(&taints.taints).and_then(|new| {
                let mut node = self.simulation.node(&taints.node)?;
                node.spec.taints = new;
                self.simulation.log(format!(
                    "node {} has taints {:?}",
                    taints.node, taints.taints
                ));
                self.simulation.set_node(node)
            });
            self.at(&format!("{path}.taint"), result)?;
        }
        if let Some(resize) = &step.resize {
            let result = self.resize(resize);
            self.at(&format!("{path}.resize"), result)?;
        }
        for (node, unschedulable) in [(&step.cordon, true), (&step.uncordon, false)] {
            if let Some(name) = node {
                let result = self.simulation.node(name).and_then(|mut node| {
                    node.spec.unschedulable = unschedulable;
                    let takes = if unschedulable {
                        "takes no more pods"
                    } else {
                        "takes pods again"
                    };
                    self.simulation.log(format!("node {name} {takes}"));
                    self.simulation.set_node(node)
                });
                self.at(path, result)?;
            }
        }
        if let Some(name) = &step.ungate {
            let result = self
                .simulation
                .pod(name)
                .map(|_| key(name))
                .and_then(|key| {
                    self.simulation
                        .log(format!("scheduling gates of pod {key} are removed"));
                    self.simulation
                        .edit_pod(&key, |pod| pod.spec.scheduling_gates.clear())
                });
            self.at(path, result)?;
        }
        if let Some(name) = &step.refuse {
            let known = self.simulation.pods.contains_key(&key(name));
            let result = if known {
                Ok(())
            } else {
                Err(format!("pod `{name}` does not exist"))
            };
            self.at(path, result)?;
            self.simulation.refusals.insert(key(name));
        }
        let settings = step.colocation_config.as_ref();
        self.set_colocation_config(&format!("{path}.colocationConfig"), settings)?;
        if let Some(given) = &step.advance {
            let result = span(given).and_then(|span| self.simulation.advance(span));
            self.at(&format!("{path}.advance"), result)?;
        }
        Ok(())
    }

    fn set_colocation_config(
        &mut self,
        path: &str,
        text: Option<&String>,
    ) -> Result<(), BadScenario> {
        let result = text.map(|text| self.simulation.set_colocation_config(text));
        self.at(path, result.unwrap_or(Ok(())))
    }

    fn delete(&mut self, named: &Named) -> Result<(), String> {
        for name in &named.pods {
            let key = key(name);
            self.simulation.pod(name)?;
            self.simulation.log(format!("pod {key} is deleted"));
            self.simulation.delete_pod(&key, Deletion::Asked)?;
        }
        for name in &named.nodes {
            self.simulation.delete_node(name)?;
        }
        for name in &named.node_metrics {
            self.simulation.delete_metric(name)?;
        }
        for (kind, names) in &named.others {
            for name in names {
                self.simulation.delete(*kind, kinds::key_of(*kind, name))?;
            }
        }
        Ok(())
    }

    fn relabel(&mut self, relabel: &Relabel) -> Result<(), String> {
        let edit = |labels: &mut api::wire::meta::Map| {
            for (name, value) in &relabel.labels {
                match value {
                    Some(value) => drop(labels.insert(name.clone(), value.clone())),
                    None => drop(labels.remove(name)),
                }
            }
        };
        match (&relabel.pod, &relabel.node) {
            (Some(name), None) => {
                self.simulation.pod(name)?;
                self.simulation
                    .log(format!("pod {} is relabelled", key(name)));
                self.simulation
                    .edit_pod(&key(name), |pod| edit(&mut pod.metadata.labels))
            }
            (None, Some(name)) => {
                let mut node = self.simulation.node(name)?;
                edit(&mut node.metadata.labels);
                self.simulation.log(format!("node {name} is relabelled"));
                self.simulation.set_node(node)
            }
            _ => Err("name one pod or one node".to_owned()),
        }
    }

    fn resize(&mut self, resize: &Resize) -> Result<(), String> {
        match (&resize.pod, &resize.node) {
            (Some(name), None) => {
                self.simulation.pod(name)?;
                self.simulation.log(format!("pod {} is resized", key(name)));
                self.simulation.edit_pod(&key(name), |pod| {
                    if let Some(container) = pod.spec.containers.first_mut() {
                        objects::resize(&mut container.resources.requests, resize);
                    }
                })
            }
            (None, Some(name)) => {
                let mut node = self.simulation.node(name)?;
                objects::resize(&mut node.status.allocatable, resize);
                self.simulation.log(format!("node {name} is resized"));
                self.simulation.set_node(node)
            }
            _ => Err("name one pod or one node".to_owned()),
        }
    }

    /// Creates all objects that are valid, and reports all others.
    fn create(&mut self, path: &str, objects: &Objects) -> Result<(), BadScenario> {
        let mut errors = Vec::new();
        for (i, entry) in objects.nodes.iter().enumerate() {
            let result = self.create_nodes(&format!("{path}.nodes[{i}]"), entry);
            collect(&mut errors, result);
        }
        let mut given = BTreeSet::new();
        for (kind, manifests) in &objects.others {
            for (i, manifest) in manifests.iter().enumerate() {
                let result = self.simulation.parse(*kind, manifest.clone());
                let result = result
                    .and_then(|object| named(&object, &mut given).map(|()| object))
                    .and_then(|object| self.simulation.set_object(object));
                let path = format!("{path}.{}[{i}]", kinds::field(*kind));
                collect(&mut errors, self.at(&path, result));
            }
        }
        for (i, metric) in objects.node_metrics.iter().enumerate() {
            let result = self.simulation.set_metric(metric);
            let path = format!("{path}.nodeMetrics[{i}]");
            collect(&mut errors, self.at(&path, result));
        }
        let result = self.create_pods(&format!("{path}.pods"), &objects.pods);
        collect(&mut errors, result);
        all(errors)
    }

    fn create_nodes(&mut self, path: &str, entry: &NodeEntry) -> Result<(), BadScenario> {
        for node in self.at(path, objects::nodes(entry))? {
            let result = match self.simulation.nodes.contains_key(&node.metadata.name) {
                true => Err(format!("node `{}` exists already", node.metadata.name)),
                false => self.simulation.set_node(node),
            };
            self.at(path, result)?;
        }
        let reports = self.at(&format!("{path}.zones"), objects::zones(entry))?;
        for report in reports {
            let manifest = Manifest::CustomNodeResource(report);
            let result = self.simulation.parse(Kind::CustomNodeResource, manifest);
            let result = result.and_then(|object| self.simulation.set_object(object));
            self.at(path, result)?;
        }
        Ok(())
    }

    fn create_pods(&mut self, path: &str, entries: &[PodEntry]) -> Result<(), BadScenario> {
        let mut errors = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let result = self.create_pod(&format!("{path}[{i}]"), entry);
            collect(&mut errors, result);
        }
        all(errors)
    }

    fn create_pod(&mut self, path: &str, entry: &PodEntry) -> Result<(), BadScenario> {
        let pods = objects::pods(entry, &self.default_scheduler);
        let leaves_after = entry
            .leaves_after
            .as_deref()
            .map_or(Ok(Duration::ZERO), span);
        let leaves_after = self.at(&format!("{path}.leavesAfter"), leaves_after)?;
        for pod in self.at(path, pods)? {
            let result = self.simulation.create_pod(pod, leaves_after);
            self.at(path, result)?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        path: &str,
        expected: &indexmap::IndexMap<String, Expect>,
    ) -> Result<(), BadScenario> {
        let mut errors = Vec::new();
        for (name, expect) in expected {
            let path = format!("{path}.{name}");
            let unmet = expect::unmet(&self.simulation, name, &expect.0);
            match self.at(&path, unmet) {
                Err(BadScenario(more)) => errors.extend(more),
                Ok(unmet) => self.unmet(&path, unmet),
            }
        }
        all(errors)
    }

    fn unmet(&mut self, path: &str, texts: Vec<String>) {
        for text in texts {
            self.failures.extend(bad(self.text, path, text).0);
        }
    }

    fn check_nodes(
        &mut self,
        path: &str,
        expected: &indexmap::IndexMap<String, usize>,
    ) -> Result<(), BadScenario> {
        let mut errors = Vec::new();
        for (name, count) in expected {
            let path = format!("{path}.{name}");
            let known = self.simulation.node(name);
            collect(&mut errors, self.at(&path, known).map(|_| ()));
            let pods = self.simulation.pods.values();
            let found = pods.filter(|pod| pod.node() == Some(name)).count();
            if found != *count {
                let plural = if *count == 1 { "" } else { "s" };
                let text = format!("expected {count} pod{plural}, found {found}");
                self.unmet(&path, vec![text]);
            }
        }
        all(errors)
    }
}

fn collect(errors: &mut Vec<Finding>, result: Result<(), BadScenario>) {
    errors.extend(result.err().into_iter().flat_map(|BadScenario(more)| more));
}

fn all(errors: Vec<Finding>) -> Result<(), BadScenario> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(BadScenario(errors)),
    }
}

/// Every object needs a name, and what is created at once a name of its own.
fn named(object: &Object, given: &mut BTreeSet<(Kind, Key)>) -> Result<(), String> {
    let (kind, key) = (object.kind(), object.key());
    if key.name.is_empty() {
        return Err(format!("a {kind} needs a name"));
    }
    match given.insert((kind, key.clone())) {
        true => Ok(()),
        false => Err(format!("{kind} `{key}` is given twice")),
    }
}

/// Time that passes.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let nanos = parse_duration(text).map_err(|error| error.to_string())?;
    if !(0..=LONGEST_SPAN).contains(&nanos) {
        return Err(format!("`{text}` is not between 0s and 8784h"));
    }
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}
