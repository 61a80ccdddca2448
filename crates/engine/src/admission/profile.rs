//! ClusterColocationProfiles: what they set in the pods that they match.

use std::collections::BTreeMap;
use std::hash::Hasher;

use fnv::FnvHasher;
use serde_json::Value;

use super::fields::{annotation, check_shape, describe, is_of_author, remove_of_author};
use super::keys::{KOORDINATOR_CLASS, PROFILES, SUB_PRIORITY};
use super::resources::object_in;
use super::{AdmissionRequest, AdmissionSettings, Mutation, Refused, merge};
use crate::cluster::PriorityClass;
use crate::model::{
    Labels, Name, PreemptionPolicy, QosLabels, Selector, is_label_value, is_qualified_name,
};
use crate::policies::schedulers::DEFAULT_SCHEDULER;

pub type KeyMap = BTreeMap<String, String>;

/// A profile. One with faults matches no pods.
#[derive(Debug, Clone, PartialEq)]
pub struct ColocationProfile {
    pub name: Name,
    /// What makes it impossible to tell which pods it matches.
    pub faults: Vec<String>,
    /// None: all namespaces.
    pub namespace_selector: Option<Selector>,
    /// None: all pods.
    pub selector: Option<Selector>,
    pub probability: Probability,
    pub keeps_resources: bool,
    pub labels: KeyMap,
    pub annotations: KeyMap,
    pub label_keys_mapping: KeyMap,
    pub annotation_keys_mapping: KeyMap,
    pub label_suffixes: KeyMap,
    pub scheduler_name: Option<String>,
    pub qos_class: Option<String>,
    pub priority_class_name: Option<String>,
    pub koordinator_priority: Option<i32>,
    /// A strategic merge patch of the pod.
    pub patch: Option<Value>,
}

impl ColocationProfile {
    /// A profile that matches every pod and sets nothing.
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            faults: Vec::new(),
            namespace_selector: None,
            selector: None,
            probability: Probability::ALWAYS,
            keeps_resources: false,
            labels: KeyMap::new(),
            annotations: KeyMap::new(),
            label_keys_mapping: KeyMap::new(),
            annotation_keys_mapping: KeyMap::new(),
            label_suffixes: KeyMap::new(),
            scheduler_name: None,
            qos_class: None,
            priority_class_name: None,
            koordinator_priority: None,
            patch: None,
        }
    }

    fn matches(&self, request: &AdmissionRequest<'_>, labels: &Labels) -> bool {
        let in_namespace = match &self.namespace_selector {
            None => true,
            Some(selector) if selector.is_empty() => true,
            Some(selector) => request
                .namespace
                .is_some_and(|labels| selector.matches(labels)),
        };
        let selects = self.selector.as_ref();
        self.faults.is_empty() && in_namespace && selects.is_none_or(|it| it.matches(labels))
    }
}

/// The share of the matching pods that a profile applies to, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probability(u8);

impl Probability {
    pub const ALWAYS: Self = Self(100);

    /// A share outside of 0 to 100 counts as the nearest one.
    pub fn percent(share: i64) -> Self {
        Self(share.clamp(0, 100) as u8)
    }

    /// Whether the share includes the request; equal requests and profiles always give equal answers.
    fn includes(self, uid: &str, profile: &str) -> bool {
        let mut hasher = FnvHasher::default();
        hasher.write(format!("{uid}/{profile}").as_bytes());
        let hash = hasher.finish();
        // The low bits of FNV-1a follow the last bytes closely: mix them.
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) % 100 < u64::from(self.0)
    }
}

/// How the profiles ended.
pub(super) enum Application {
    Done(AppliedProfiles),
    /// The pod must be admitted as it was, for this reason.
    Impossible(String),
}

/// The profiles of a pod.
#[derive(Default)]
pub(super) struct AppliedProfiles {
    pub(super) keeps_resources: bool,
    names: Vec<Name>,
}

impl AppliedProfiles {
    /// Names the profiles in a refusal, because they may have caused it.
    pub(super) fn blame(&self, refused: Refused) -> Refused {
        if self.names.is_empty() {
            return refused;
        }
        let names = self.names.join(", ");
        let blame = |fault| format!("{fault} (after colocation profiles: {names})");
        Refused(refused.0.into_iter().map(blame).collect())
    }
}

/// The pod without a decision about profiles that its author wrote; `None` if there is none.
pub(super) fn without_forged(pod: &Value) -> Option<Value> {
    annotation(pod, PROFILES)?;
    is_of_author(pod, PROFILES).then(|| {
        let mut pod = pod.clone();
        // What the webhook writes instead is not the author's when the webhook is called again.
        remove_of_author(&mut pod, PROFILES);
        pod
    })
}

/// Applies the profiles that match the pod as it was sent. An earlier decision of the webhook, which the pod's annotation names,
/// stays: see [`without_forged`].
pub(super) fn apply(
    request: &AdmissionRequest<'_>,
    settings: &AdmissionSettings,
    change: &mut Mutation,
) -> Result<Application, Refused> {
    if let Some(decided) = annotation(request.pod, PROFILES) {
        return Ok(Application::Done(keep(decided, settings)));
    }
    let labels = labels_of(request.pod);
    let matching = settings.profiles.iter();
    let matching: Vec<_> = matching
        .filter(|profile| profile.matches(request, &labels))
        .collect();
    if matching.is_empty() {
        return Ok(Application::Done(AppliedProfiles::default()));
    }
    let mut applied = AppliedProfiles::default();
    let mut decisions = Vec::new();
    for profile in matching {
        applied.keeps_resources |= profile.keeps_resources;
        let percent = profile.probability.0;
        if !profile.probability.includes(request.uid, &profile.name) {
            decisions.push(format!("-{}", profile.name));
            change.reasons.push(format!(
                "colocation profile {} skips this pod: it applies to {percent} percent of the pods",
                profile.name
            ));
            continue;
        }
        let class = match &profile.priority_class_name {
            None => None,
            Some(name) => match settings.priority_classes.get(&**name) {
                Some(class) => Some(class),
                None => {
                    return Ok(Application::Impossible(format!(
                        "colocation profile {} names PriorityClass {name}, which does not exist",
                        profile.name
                    )));
                }
            },
        };
        set(profile, class, &mut change.pod)
            .and_then(|()| check_result(request.pod, &change.pod))
            .map_err(|fault| {
                Refused::one(format!(
                    "colocation profile {} makes an invalid pod: {fault}",
                    profile.name
                ))
            })?;
        decisions.push(profile.name.to_string());
        applied.names.push(profile.name.clone());
        change.reasons.push(explain(profile, class));
    }
    pairs(&mut change.pod, "annotations").insert(PROFILES.to_owned(), decisions.join(",").into());
    Ok(Application::Done(applied))
}

/// The decision of an earlier call.
fn keep(decided: &str, settings: &AdmissionSettings) -> AppliedProfiles {
    let mut applied = AppliedProfiles::default();
    for decision in decided.split(',').filter(|it| !it.is_empty()) {
        let name = decision.strip_prefix('-').unwrap_or(decision);
        let profile = settings.profiles.iter().find(|it| *it.name == *name);
        applied.keeps_resources |= profile.is_some_and(|profile| profile.keeps_resources);
        if name == decision {
            applied.names.push(name.into());
        }
    }
    applied
}

fn set(
    profile: &ColocationProfile,
    class: Option<&PriorityClass>,
    pod: &mut Value,
) -> Result<(), String> {
    let add = |pod: &mut Value, map: &str, more: &KeyMap| {
        if !more.is_empty() {
            let more = more
                .iter()
                .map(|(key, value)| (key.clone(), value.clone().into()));
            pairs(pod, map).extend(more);
        }
    };
    let copy = |pod: &mut Value, map: &str, keys: &KeyMap| {
        for (from, to) in keys {
            let pairs = pairs(pod, map);
            // A key that is missing is copied as an empty value, as Koordinator does.
            let value = pairs.get(from).cloned().unwrap_or_else(|| "".into());
            pairs.insert(to.clone(), value);
        }
    };
    add(pod, "labels", &profile.labels);
    add(pod, "annotations", &profile.annotations);
    copy(pod, "labels", &profile.label_keys_mapping);
    copy(pod, "annotations", &profile.annotation_keys_mapping);
    for (key, suffix) in &profile.label_suffixes {
        if let Some(Value::String(value)) = pairs(pod, "labels").get_mut(key) {
            value.push_str(suffix);
        }
    }
    let scheduler = pod["spec"]["schedulerName"].as_str();
    if let Some(name) = &profile.scheduler_name
        && scheduler.is_none_or(|it| it.is_empty() || it == DEFAULT_SCHEDULER)
    {
        pod["spec"]["schedulerName"] = name.clone().into();
    }
    if let Some(class) = &profile.qos_class {
        pairs(pod, "labels").insert(KOORDINATOR_CLASS.to_owned(), class.clone().into());
    }
    if let Some(class) = class {
        // The API server refuses a pod whose class does not match its priority.
        pod["spec"]["priorityClassName"] = (*class.name).into();
        pod["spec"]["priority"] = class.value.into();
        pod["spec"]["preemptionPolicy"] = match class.preemption_policy {
            PreemptionPolicy::LowerPriority => "PreemptLowerPriority",
            PreemptionPolicy::Never => "Never",
        }
        .into();
    }
    if let Some(priority) = profile.koordinator_priority {
        pairs(pod, "labels").insert(SUB_PRIORITY.to_owned(), priority.to_string().into());
    }
    match &profile.patch {
        Some(patch) => merge::merge(pod, patch).map_err(|fault| format!("spec.patch: {fault}")),
        None => Ok(()),
    }
}

/// What a profile must leave as it was, and what must be valid after it.
fn check_result(before: &Value, after: &Value) -> Result<(), String> {
    check_shape(after)?;
    for field in ["apiVersion", "kind"] {
        if before[field] != after[field] {
            return Err(format!("it changes {field}"));
        }
    }
    for field in ["name", "namespace", "generateName", "uid"] {
        if before["metadata"][field] != after["metadata"][field] {
            return Err(format!("it changes metadata.{field}"));
        }
    }
    for (key, value) in after["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let value = value.as_str().unwrap_or_default();
        if !is_qualified_name(key) || !is_label_value(value) {
            return Err(format!("the label {key}={value} is not valid"));
        }
    }
    let annotations = after["metadata"]["annotations"].as_object();
    for (key, _) in annotations.into_iter().flatten() {
        // Kubernetes checks the keys of annotations in lower case.
        if !is_qualified_name(&key.to_lowercase()) {
            return Err(format!("the annotation key {key} is not valid"));
        }
    }
    Ok(())
}

fn explain(profile: &ColocationProfile, class: Option<&PriorityClass>) -> String {
    let mut effects = Vec::new();
    let mut keys = |what: &str, map: &KeyMap| {
        if !map.is_empty() {
            let keys: Vec<&str> = map.values().map(String::as_str).collect();
            effects.push(format!("{what} {}", keys.join(", ")));
        }
    };
    let own =
        |map: &KeyMap| -> KeyMap { map.keys().map(|key| (key.clone(), key.clone())).collect() };
    keys("labels", &own(&profile.labels));
    keys("annotations", &own(&profile.annotations));
    keys("copied labels", &profile.label_keys_mapping);
    keys("copied annotations", &profile.annotation_keys_mapping);
    keys("suffixes of labels", &own(&profile.label_suffixes));
    let mut add = |what: &str, value: Option<String>| {
        effects.extend(value.map(|value| format!("{what} {value}")));
    };
    add("schedulerName", profile.scheduler_name.clone());
    add("QoS class", profile.qos_class.clone());
    add(
        "PriorityClass",
        class.map(|class| format!("{} with priority {}", class.name, class.value)),
    );
    add(
        "sub-priority",
        profile.koordinator_priority.map(|it| it.to_string()),
    );
    if profile.patch.is_some() {
        effects.push("a patch".to_owned());
    }
    let effects = match effects.is_empty() {
        true => "nothing".to_owned(),
        false => effects.join("; "),
    };
    format!("colocation profile {} sets: {effects}", profile.name)
}

/// The labels or annotations of a pod.
fn pairs<'a>(pod: &'a mut Value, map: &str) -> &'a mut serde_json::Map<String, Value> {
    let metadata = match pod {
        Value::Object(pod) => object_in(pod, "metadata"),
        _ => unreachable!("the shape was checked"),
    };
    object_in(metadata, map)
}

fn labels_of(pod: &Value) -> Labels {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect()
}

/// Every fault of a profile, for its validation when a user writes it.
pub fn validate_profile(profile: &ColocationProfile) -> Vec<String> {
    let mut faults = profile.faults.clone();
    let mut check_keys = |field: &str, keys: &mut dyn Iterator<Item = &String>| {
        for key in keys.filter(|key| !is_qualified_name(&key.to_lowercase())) {
            faults.push(format!("spec.{field}: `{key}` is not a valid key"));
        }
    };
    check_keys("labels", &mut profile.labels.keys());
    check_keys("annotations", &mut profile.annotations.keys());
    check_keys("labelKeysMapping", &mut profile.label_keys_mapping.values());
    check_keys(
        "annotationKeysMapping",
        &mut profile.annotation_keys_mapping.values(),
    );
    for (key, value) in profile
        .labels
        .iter()
        .filter(|(_, value)| !is_label_value(value))
    {
        faults.push(format!(
            "spec.labels: the value `{value}` of {key} is not valid"
        ));
    }
    let labels = QosLabels {
        koordinator_class: profile
            .qos_class
            .as_deref()
            .or(profile.labels.get(KOORDINATOR_CLASS).map(String::as_str)),
        koordinator_band: profile
            .labels
            .get(super::keys::KOORDINATOR_BAND)
            .map(String::as_str),
        priority_class: profile.priority_class_name.as_deref(),
        katalyst_level: profile
            .annotations
            .get(super::keys::LEVEL)
            .map(String::as_str),
        ..QosLabels::default()
    };
    if let Err(error) = labels.strict() {
        faults.push(format!("{error}; found: {}", describe(&labels)));
    }
    if let Some(patch) = &profile.patch {
        // A pod with all the fields that a patch must not remove.
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "pod", "namespace": "namespace"},
            "spec": {"containers": [{"name": "container"}]},
        });
        let mut patched = pod.clone();
        let result = merge::merge(&mut patched, patch).and_then(|()| check_result(&pod, &patched));
        if let Err(fault) = result {
            faults.push(format!("spec.patch makes an invalid pod: {fault}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_pods_is_that_share() {
        for percent in [0, 1, 10, 50, 99, 100] {
            let share = Probability::percent(percent);
            let uid = |i: u32| format!("6ba7b810-9dad-11d1-80b4-{i:012x}");
            let pods = 20_000;
            let included = (0..pods)
                .filter(|i| share.includes(&uid(*i), "profile"))
                .count();
            let found = included as f64 * 100.0 / f64::from(pods);
            // Five standard deviations of a fair coin with 20,000 throws are 1.8 percent.
            assert!((found - percent as f64).abs() < 1.8, "{percent}: {found}");
        }
        assert_eq!(Probability::percent(-3), Probability::percent(0));
        assert_eq!(Probability::percent(300), Probability::ALWAYS);
    }

    #[test]
    fn two_profiles_choose_independently() {
        let half = Probability::percent(50);
        let both = (0..10_000).filter(|i| {
            let uid = format!("uid-{i}");
            half.includes(&uid, "a") && half.includes(&uid, "b")
        });
        let both = both.count();
        assert!((2_200..2_800).contains(&both), "{both}");
    }
}
