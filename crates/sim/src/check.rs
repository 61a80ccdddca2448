//! Checks a scenario before it is played, so that one run reports everything that is wrong with the file.

use api::parse::koordinator::colocation_config;
use api::wire::meta::{Quantity, ResourceList};
use api::yaml::{self, Finding, is_at_or_below};
use engine::model::{Quantity as Amount, parse_duration};
use indexmap::IndexMap;

use crate::objects;
use crate::play::span;
use crate::scenario::{
    Expect, Expected, NodeEntry, Objects, PodEntry, Relabel, Resize, Scenario, Step,
};

/// Everything that is wrong, apart from what follows from the faults that are known already. Names of objects are checked
/// when they are used.
pub(crate) fn check(
    text: &str,
    scenario: &Scenario,
    schedulers: &[&str],
    faults: &[Finding],
) -> Vec<Finding> {
    let mut checker = Checker {
        schedulers,
        found: Vec::new(),
    };
    checker.scenario(scenario);
    let follows = |path: &str| {
        let mut faults = faults.iter().map(|fault| &fault.field[..]);
        faults.any(|fault| is_at_or_below(fault, path) || is_at_or_below(path, fault))
    };
    let found = checker.found.into_iter();
    let found = found.filter(|(path, _)| !follows(path));
    found
        .map(|(field, message)| Finding {
            line: yaml::line(text, &field),
            field,
            text: message,
        })
        .collect()
}

struct Checker<'a> {
    /// The names of the profiles; empty if the configuration is invalid.
    schedulers: &'a [&'a str],
    /// Path and message.
    found: Vec<(String, String)>,
}

impl Checker<'_> {
    fn add(&mut self, path: &str, message: impl Into<String>) {
        self.found.push((path.to_owned(), message.into()));
    }

    /// Adds the error of a result.
    fn expect_ok<T>(&mut self, path: &str, result: Result<T, String>) {
        if let Err(message) = result {
            self.add(path, message);
        }
    }

    fn scenario(&mut self, scenario: &Scenario) {
        let steps = scenario.steps.iter();
        let expectations: usize = steps
            .map(|step| step.expect.len() + step.expect_nodes.len())
            .sum();
        if expectations + scenario.expect.len() + scenario.expect_nodes.len() == 0 {
            let message = "the scenario has no expectation; add expect or expectNodes";
            self.add("", message);
        }
        self.settings("colocationConfig", &scenario.colocation_config);
        self.objects("cluster", &scenario.cluster);
        self.pods("pods", &scenario.pods);
        self.expectations("expect", &scenario.expect);
        for (i, step) in scenario.steps.iter().enumerate() {
            self.step(&format!("steps[{i}]"), step);
        }
    }

    fn objects(&mut self, path: &str, objects: &Objects) {
        for (i, entry) in objects.nodes.iter().enumerate() {
            self.node(&format!("{path}.nodes[{i}]"), entry);
        }
        self.pods(&format!("{path}.pods"), &objects.pods);
    }

    fn node(&mut self, path: &str, entry: &NodeEntry) {
        let NodeEntry {
            name, count, cpu, ..
        } = entry;
        self.expect_ok(path, objects::names("node", name, *count));
        self.expect_ok(path, objects::taints(&entry.taints));
        let amounts = [
            ("cpu", cpu),
            ("memory", &entry.memory),
            ("pods", &entry.pods),
        ];
        self.amounts(path, &amounts);
        self.list(&format!("{path}.resources"), &entry.resources);
    }

    fn pods(&mut self, path: &str, entries: &[PodEntry]) {
        for (i, entry) in entries.iter().enumerate() {
            self.pod(&format!("{path}[{i}]"), entry);
        }
    }

    fn pod(&mut self, path: &str, entry: &PodEntry) {
        self.expect_ok(path, objects::pods(entry, ""));
        self.amounts(path, &[("cpu", &entry.cpu), ("memory", &entry.memory)]);
        self.list(&format!("{path}.requests"), &entry.requests);
        let spec = &entry.spec;
        for (field, containers) in [
            ("containers", &spec.containers),
            ("initContainers", &spec.init_containers),
        ] {
            for (i, container) in containers.iter().enumerate() {
                let path = format!("{path}.spec.{field}[{i}].resources.requests");
                self.list(&path, &container.resources.requests);
            }
        }
        self.list(&format!("{path}.spec.overhead"), &spec.overhead);
        self.duration(&format!("{path}.leavesAfter"), &entry.leaves_after);
        if let Some(name) = &entry.scheduler
            && !self.schedulers.is_empty()
            && !self.schedulers.contains(&&name[..])
        {
            let nearest = yaml::suggest(name, self.schedulers.iter().copied());
            let message = format!(
                "no profile is named `{name}`{nearest}; a pod of another scheduler has spec.schedulerName"
            );
            self.add(&format!("{path}.scheduler"), message);
        }
    }

    fn amounts(&mut self, path: &str, amounts: &[(&str, &Option<Quantity>)]) {
        for (name, amount) in amounts {
            if let Some(amount) = amount {
                self.amount(&format!("{path}.{name}"), amount);
            }
        }
    }

    fn list(&mut self, path: &str, amounts: &ResourceList) {
        for (resource, amount) in amounts {
            self.amount(&format!("{path}.{resource}"), amount);
        }
    }

    /// What is no quantity is reported with its object when that is created.
    fn amount(&mut self, path: &str, amount: &Quantity) {
        if Amount::parse(&amount.0).is_ok_and(|amount| amount.units() < 0) {
            let message = format!("`{}` is negative; use an amount of 0 or more", amount.0);
            self.add(path, message);
        }
    }

    fn duration(&mut self, path: &str, given: &Option<String>) {
        if let Some(given) = given {
            self.expect_ok(path, span(given));
        }
    }

    fn settings(&mut self, path: &str, given: &Option<String>) {
        if let Some(given) = given {
            self.expect_ok(path, colocation_config(given));
        }
    }

    fn step(&mut self, path: &str, step: &Step) {
        self.settings(&format!("{path}.colocationConfig"), &step.colocation_config);
        let actions = [
            step.create.is_some(),
            step.delete.is_some(),
            step.relabel.is_some(),
            step.taint.is_some(),
            step.resize.is_some(),
            step.cordon.is_some(),
            step.uncordon.is_some(),
            step.ungate.is_some(),
            step.refuse.is_some(),
            step.colocation_config.is_some(),
            step.advance.is_some(),
        ];
        let count = actions.into_iter().filter(|given| *given).count();
        if count > 1 {
            let message = format!("the step has {count} actions; a step has exactly one action");
            self.add(path, message);
        }
        if count == 0 && step.expect.is_empty() && step.expect_nodes.is_empty() {
            self.add(path, "the step has no action and no expectation");
        }
        if let Some(objects) = &step.create {
            self.objects(&format!("{path}.create"), objects);
        }
        if let Some(taint) = &step.taint {
            self.expect_ok(&format!("{path}.taint"), objects::taints(&taint.taints));
        }
        if let Some(Relabel { pod, node, .. }) = &step.relabel {
            self.one_object(&format!("{path}.relabel"), pod, node);
        }
        if let Some(resize) = &step.resize {
            let Resize { pod, node, cpu, .. } = resize;
            let path = format!("{path}.resize");
            self.one_object(&path, pod, node);
            let amounts = [
                ("cpu", cpu),
                ("memory", &resize.memory),
                ("pods", &resize.pods),
            ];
            self.amounts(&path, &amounts);
            self.list(&format!("{path}.resources"), &resize.resources);
        }
        self.duration(&format!("{path}.advance"), &step.advance);
        self.expectations(&format!("{path}.expect"), &step.expect);
    }

    fn one_object(&mut self, path: &str, pod: &Option<String>, node: &Option<String>) {
        if pod.is_some() == node.is_some() {
            self.add(path, "name one pod or one node");
        }
    }

    fn expectations(&mut self, path: &str, expected: &IndexMap<String, Expect>) {
        for (name, Expect(expected)) in expected {
            let path = format!("{path}.{name}");
            if *expected == Expected::default() {
                self.add(
                    &path,
                    "the expectation is empty; name a node, or say what is expected",
                );
            }
            if expected.among.as_ref().is_some_and(Vec::is_empty) {
                self.add(&format!("{path}.among"), "the list is empty; name nodes");
            }
            for (field, text) in [
                ("on", &expected.on),
                ("message", &expected.message),
                ("nominated", &expected.nominated),
                ("warned", &expected.warned),
            ] {
                if text.as_ref().is_some_and(String::is_empty) {
                    self.add(&format!("{path}.{field}"), "the text is empty");
                }
            }
            if let Some(at) = &expected.at {
                let result = parse_duration(at).map_err(|error| error.to_string());
                self.expect_ok(&format!("{path}.at"), result);
            }
        }
    }
}
