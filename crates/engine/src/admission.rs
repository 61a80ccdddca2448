//! Admission of pods: what the webhook changes in a pod, and which pods it refuses.
//!
//! [`mutate`] applies colocation profiles, sets the scheduler and turns cpu and memory into the resources of the pod's tier.
//! [`validate`] checks the pod that results, after all other admission plugins. [`admit`] does both, and between them what the
//! API server does, for a pod that is not in a cluster. Pods are JSON, because everything that is not translated must stay as
//! it is.
//!
//! The API server may call [`mutate`] again after other webhooks changed the pod, so it must not change its own result:
//! the annotation `tidepool.io/profiles` keeps the decision about profiles, and translated resources stay. What the author of a pod
//! writes into annotations that are the webhook's is replaced.

mod defaults;
mod diff;
mod eviction;
mod extended_resources;
mod fields;
pub mod keys;
mod limit_range;
mod merge;
mod owned_keys;
mod profile;
mod qos_class;
mod resources;
mod scheduler_name;
mod system_namespace;
mod translate;
mod validate;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::PriorityClass;
use crate::model::{Labels, Name};
pub use diff::json_patch;
pub use eviction::{AgentEviction, EvictedPod};
pub use limit_range::{LimitKind, LimitRange, LimitRangeItem};
pub use owned_keys::is_kubelet_of;
pub use profile::{ColocationProfile, KeyMap, Probability, validate_profile};
pub use qos_class::pod_qos;
pub use scheduler_name::{KnownSchedulers, check_scheduler, keeps_scheduler};
pub use system_namespace::{SystemNamespaces, check_system};
pub use validate::{validate, validate_update};

/// A pod to admit, and what it depends on in its namespace.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// The uid of the request, which decides by chance about profiles with a probability.
    pub uid: &'a str,
    /// The name of the user that sends the request. The API server has authenticated it, so keys of a component are believed by it.
    pub user: &'a str,
    /// The name of the user that `tidepool controllers` runs as.
    pub controllers: &'a str,
    /// The labels of the namespace; none if the namespace is not known.
    pub namespace: Option<&'a Labels>,
    /// The LimitRanges of the namespace.
    pub limit_ranges: &'a [LimitRange],
    pub pod: &'a Value,
}

/// What applies to the pods of all namespaces.
#[derive(Debug, Clone, Default)]
pub struct AdmissionSettings {
    /// In the order of their names.
    pub profiles: Vec<ColocationProfile>,
    pub priority_classes: BTreeMap<Name, PriorityClass>,
    pub schedulers: KnownSchedulers,
    pub system_namespaces: SystemNamespaces,
}

/// An admitted pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    pub pod: Value,
    /// Why it changed, one sentence per change.
    pub reasons: Vec<String>,
    /// For the user that sent the request.
    pub warnings: Vec<String>,
}

/// Why a pod is refused; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refused(pub Vec<String>);

/// Faults in a message: a pod can have thousands of containers.
const MOST_SHOWN: usize = 20;

impl Refused {
    fn text(&self) -> String {
        let shown = &self.0[..self.0.len().min(MOST_SHOWN)];
        match self.0.len() - shown.len() {
            0 => shown.join("; "),
            more => format!("{}; and {more} more faults", shown.join("; ")),
        }
    }

    fn one(fault: impl Into<String>) -> Self {
        Self(vec![fault.into()])
    }

    /// Ok if there are no faults.
    fn unless_empty(faults: Vec<String>) -> Result<(), Self> {
        match faults.is_empty() {
            true => Ok(()),
            false => Err(Self(faults)),
        }
    }
}

/// What the mutating webhook makes of a new pod.
pub fn mutate(
    request: &AdmissionRequest<'_>,
    settings: &AdmissionSettings,
) -> Result<Mutation, Refused> {
    fields::check_shape(request.pod).map_err(Refused::one)?;
    let without = profile::without_forged(request.pod);
    let request = &AdmissionRequest {
        pod: without.as_ref().unwrap_or(request.pod),
        ..*request
    };
    let mut change = Mutation {
        pod: request.pod.clone(),
        reasons: Vec::new(),
        warnings: Vec::new(),
    };
    let applied = match profile::apply(request, settings, &mut change)? {
        profile::Application::Done(applied) => applied,
        profile::Application::Impossible(why) => {
            return Ok(Mutation {
                pod: request.pod.clone(),
                reasons: Vec::new(),
                warnings: vec![format!("{why}; the pod is admitted as it is")],
            });
        }
    };
    scheduler_name::choose(
        request.pod,
        request.namespace,
        &settings.schedulers,
        &mut change,
    );
    if applied.keeps_resources {
        let reason = format!(
            "a matching profile has the annotation {}: resources stay",
            keys::SKIP_RESOURCES
        );
        change.reasons.push(reason);
    } else {
        translate::translate(request.limit_ranges, &mut change)
            .map_err(|refused| applied.blame(refused))?;
    }
    extended_resources::annotate(&mut change)?;
    Ok(change)
}

/// What becomes of a pod that a user creates: the API server's defaults, [`mutate`], the defaults again, [`validate`].
pub fn admit(
    request: &AdmissionRequest<'_>,
    settings: &AdmissionSettings,
) -> Result<Mutation, Refused> {
    fields::check_shape(request.pod).map_err(Refused::one)?;
    let mut pod = request.pod.clone();
    defaults::fill(&mut pod, request.limit_ranges);
    let mut change = mutate(
        &AdmissionRequest {
            pod: &pod,
            ..*request
        },
        settings,
    )?;
    defaults::fill(&mut change.pod, request.limit_ranges);
    validate(&AdmissionRequest {
        pod: &change.pod,
        ..*request
    })?;
    let namespace = change.pod["metadata"]["namespace"].as_str();
    check_system(
        &change.pod,
        namespace.unwrap_or_default(),
        &settings.system_namespaces,
    )?;
    let warnings = check_scheduler(&change.pod, request.namespace, &settings.schedulers)?;
    change.warnings.extend(warnings);
    Ok(change)
}

#[cfg(test)]
mod tests;
