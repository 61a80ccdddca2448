//! The checks of kube-scheduler that need no plugin's code, with its messages.

use std::collections::BTreeSet;

use engine::model::{Resource, qualified_name_faults};
use engine::scheduling::framework::{ConfigVersion, Point};
use serde::Serialize;

use super::types::{Configuration, Extender, Profile};
use super::{Findings, PluginSet};

pub(super) fn configuration(configuration: &Configuration, findings: &mut Findings) {
    let burst = configuration.client_connection.burst;
    if burst < 0 {
        findings.error(
            "clientConnection.burst",
            format!("Invalid value: {burst}: must be non-negative"),
        );
    }
    let parallelism = configuration.parallelism;
    if parallelism <= 0 {
        let text =
            format!("Invalid value: {parallelism}: should be an integer value greater than zero");
        findings.error("parallelism", text);
    }
    let mut names = BTreeSet::new();
    for profile in &configuration.profiles {
        let field = format!("{}.schedulerName", profile.place);
        let name = &profile.scheduler_name;
        if name.is_empty() {
            findings.error(&field, "Required value");
        } else if !names.insert(name) {
            findings.error(&field, format!("Duplicate value: \"{name}\""));
        }
        plugins(profile, configuration.version, findings);
    }
    queue_sort(&configuration.profiles, findings);
}

/// Names that this version no longer has, and arguments given twice.
fn plugins(profile: &Profile, version: ConfigVersion, findings: &mut Findings) {
    for (point, set) in profile.plugins.all() {
        for (i, plugin) in set.enabled.iter().enumerate() {
            let field = format!("{}.plugins.{point}.enabled[{i}]", profile.place);
            if plugin.name.is_empty() {
                findings.error(field, "Required value: name of the plugin");
            } else {
                removed(&plugin.name, version, field, findings);
            }
        }
    }
    for (point, set) in profile.plugins.without_effect() {
        if !set.is_empty() {
            let field = format!("{}.plugins.{point}", profile.place);
            findings.warn(field, "has no effect: the scheduler places pods one by one");
        }
    }
    let mut names = BTreeSet::new();
    for config in &profile.plugin_config {
        if !names.insert(&config.name) {
            findings.error(
                &config.place,
                format!("Duplicate value: \"{}\"", config.name),
            );
        }
        removed(&config.name, version, config.place.clone(), findings);
    }
}

fn removed(plugin: &str, version: ConfigVersion, field: String, findings: &mut Findings) {
    let removed_in =
        engine::scheduling::plugins::find(plugin).and_then(|entry| entry.rules.removed_in);
    if let Some(since) = removed_in.filter(|since| *since <= version) {
        let text = format!(
            "Invalid value: \"{plugin}\": was invalid in version \"{}\" (KubeSchedulerConfiguration is version \"{version}\")",
            since.short()
        );
        findings.error(field, text);
    }
}

/// There is one queue, so all profiles must sort it alike.
fn queue_sort(profiles: &[Profile], findings: &mut Findings) {
    let Some(first) = profiles.first() else {
        return;
    };
    for profile in profiles {
        let field = format!("{}.plugins.{}", profile.place, Point::QueueSort.field());
        let set = profile.plugins.at(Point::QueueSort);
        let count = set.enabled.len();
        if count > 1 {
            let text = format!("Invalid value: {count}: only one queue sort plugin can be enabled");
            findings.error(format!("{field}.enabled"), text);
        }
        if set != first.plugins.at(Point::QueueSort) {
            let text = format!(
                "Invalid value: {}: must be the same for all profiles",
                in_go(set)
            );
            findings.error(field, text);
        }
    }
}

/// As kube-scheduler prints a set: its internal Go type as JSON.
fn in_go(set: &PluginSet) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct GoPlugin<'a> {
        name: &'a str,
        weight: i32,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct GoPluginSet<'a> {
        enabled: Option<Vec<GoPlugin<'a>>>,
        disabled: Option<Vec<GoPlugin<'a>>>,
    }
    let enabled = set.enabled.iter().map(|plugin| GoPlugin {
        name: &plugin.name,
        weight: plugin.weight,
    });
    let disabled = set.disabled.iter().map(|plugin| GoPlugin {
        name: &plugin.name,
        weight: plugin.weight,
    });
    let set = GoPluginSet {
        enabled: (!set.enabled.is_empty()).then(|| enabled.collect()),
        disabled: (!set.disabled.is_empty()).then(|| disabled.collect()),
    };
    serde_json::to_string(&set).unwrap_or_default()
}

/// kube-scheduler reports such faults only when it first calls the extender.
fn reachable(extender: &Extender, at: impl Fn(&str) -> String, findings: &mut Findings) {
    let url = &extender.url_prefix;
    let is_good = url.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
    });
    if !is_good {
        let text = format!(
            "Invalid value: \"{url}\": must be a URL that verbs can be added to, such as https://host:8888/scheduler"
        );
        findings.error(at("urlPrefix"), text);
    }
    for (field, verb) in [
        ("filterVerb", &extender.filter_verb),
        ("preemptVerb", &extender.preempt_verb),
        ("prioritizeVerb", &extender.prioritize_verb),
        ("bindVerb", &extender.bind_verb),
    ] {
        let path = format!("/{verb}");
        if path.contains(['?', '#']) || path.parse::<http::Uri>().is_err() {
            let text = format!("Invalid value: \"{verb}\": must be the path part of a URL");
            findings.error(at(field), text);
        }
    }
}

pub(super) fn extenders(extenders: &[Extender], findings: &mut Findings) {
    let mut managed = BTreeSet::new();
    for (i, extender) in extenders.iter().enumerate() {
        let at = |field: &str| format!("extenders[{i}].{field}");
        reachable(extender, at, findings);
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let text = format!(
                "Invalid value: {}: must have a positive weight applied to it",
                extender.weight
            );
            findings.error(at("weight"), text);
        }
        let timeout = extender
            .http_timeout
            .as_deref()
            .map(engine::model::parse_duration);
        if let Some(Err(error)) = timeout {
            findings.error(at("httpTimeout"), error.to_string());
        }
        for (j, resource) in extender.managed_resources.iter().enumerate() {
            let (name, field) = (&resource.name, at(&format!("managedResources[{j}].name")));
            let faults = qualified_name_faults(name);
            if !faults.is_empty() {
                for fault in faults {
                    findings.error(&field, format!("Invalid value: \"{name}\": {fault}"));
                }
            } else if !Resource::parse(name).is_some_and(|resource| resource.is_extended()) {
                let text =
                    format!("Invalid value: \"{name}\": is an invalid extended resource name");
                findings.error(field, text);
            } else if !managed.insert(name) {
                let text =
                    format!("Invalid value: \"{name}\": duplicate extender managed resource name");
                findings.error(field, text);
            }
        }
    }
    let binders = extenders
        .iter()
        .filter(|extender| !extender.bind_verb.is_empty())
        .count();
    if binders > 1 {
        let text = format!(
            "Invalid value: \"found {binders} extenders implementing bind\": only one extender can implement bind"
        );
        findings.error("extenders", text);
    }
}
