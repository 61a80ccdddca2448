//! ClusterColocationProfiles and LimitRanges, as admission uses them.

use std::collections::BTreeMap;

use engine::admission::{
    ColocationProfile, LimitKind, LimitRange, LimitRangeItem, Probability, keys,
};
use engine::model::Selector;
use serde_json::Value;

use super::{name, selector};
use crate::wire::colocation as wire;
use crate::wire::meta::{LabelSelector, ResourceList};

/// Every object is a profile; one that does not say which pods it matches has faults.
pub fn colocation_profile(profile: &wire::ClusterColocationProfile) -> ColocationProfile {
    let spec = profile.spec.clone();
    let mut faults = Vec::new();
    let mut parse_selector = |field: &str, selector: Option<&LabelSelector>| -> Option<Selector> {
        let selector = selector::label_selector(Some(selector?));
        selector
            .map_err(|error| faults.push(format!("spec.{field}: {error}")))
            .ok()
    };
    let namespace_selector = parse_selector("namespaceSelector", spec.namespace_selector.as_ref());
    let selector = parse_selector("selector", spec.selector.as_ref());
    let probability = probability(spec.probability.as_ref()).unwrap_or_else(|fault| {
        faults.push(fault);
        Probability::percent(0)
    });
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    ColocationProfile {
        name: name(&profile.metadata.name),
        faults,
        namespace_selector,
        selector,
        probability,
        // Profiles are cluster-wide: only administrators write them.
        keeps_resources: profile
            .metadata
            .annotations
            .contains_key(keys::SKIP_RESOURCES),
        labels: spec.labels,
        annotations: spec.annotations,
        label_keys_mapping: spec.label_keys_mapping,
        annotation_keys_mapping: spec.annotation_keys_mapping,
        label_suffixes: spec.label_suffixes,
        scheduler_name: given(spec.scheduler_name),
        qos_class: given(spec.qos_class),
        priority_class_name: given(spec.priority_class_name),
        koordinator_priority: spec.koordinator_priority,
        patch: spec.patch.filter(|patch| !patch.is_null()),
    }
}

/// A profile as JSON; one that cannot be read matches no pods, whatever it said before.
pub fn colocation_profile_from(object: &Value) -> ColocationProfile {
    use serde::Deserialize;
    wire::ClusterColocationProfile::deserialize(object).map_or_else(
        |error| {
            let named = object["metadata"]["name"].as_str().unwrap_or_default();
            let mut profile = ColocationProfile::new(named);
            profile.faults.push(error.to_string());
            profile
        },
        |profile| colocation_profile(&profile),
    )
}

fn probability(value: Option<&Value>) -> Result<Probability, String> {
    let allowed = "use a number of percent from 0 to 100, such as 50 or \"50%\"";
    let percent = match value {
        None | Some(Value::Null) => return Ok(Probability::ALWAYS),
        Some(Value::Number(number)) => number.as_i64(),
        Some(Value::String(text)) => text.strip_suffix('%').and_then(|text| text.parse().ok()),
        Some(_) => None,
    };
    let percent = percent.filter(|percent| (0..=100).contains(percent));
    let found = || value.map(ToString::to_string).unwrap_or_default();
    percent
        .map(Probability::percent)
        .ok_or_else(|| format!("spec.probability is {}: {allowed}", found()))
}

/// With the defaults of the API server: a maximum is the default limit, which is the default request.
pub fn limit_range(range: &wire::LimitRange) -> LimitRange {
    let items = range.spec.limits.iter().map(|item| {
        let kind = match &item.kind[..] {
            "Container" => LimitKind::Container,
            "Pod" => LimitKind::Pod,
            _ => LimitKind::Other,
        };
        let (mut default, mut default_request) =
            (texts(&item.default), texts(&item.default_request));
        let (min, max) = (texts(&item.min), texts(&item.max));
        if kind == LimitKind::Container {
            fill(&mut default, &max);
            fill(&mut default_request, &default);
            fill(&mut default_request, &min);
        }
        LimitRangeItem {
            kind,
            default,
            default_request,
            min,
            max,
            max_limit_request_ratio: texts(&item.max_limit_request_ratio),
        }
    });
    LimitRange {
        name: name(&range.metadata.name),
        items: items.collect(),
    }
}

type Texts = BTreeMap<String, String>;

fn texts(list: &ResourceList) -> Texts {
    let texts = list.iter();
    texts
        .map(|(name, text)| (name.clone(), text.0.clone()))
        .collect()
}

fn fill(missing: &mut Texts, from: &Texts) {
    for (name, text) in from {
        missing.entry(name.clone()).or_insert_with(|| text.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn profile(spec: Value) -> ColocationProfile {
        colocation_profile_from(&json!({"metadata": {"name": "p"}, "spec": spec}))
    }

    #[test]
    fn profiles() {
        let parsed = profile(
            json!({"selector": {"matchLabels": {"a": "b"}}, "namespaceSelector": {},
            "probability": "30%", "qosClass": "BE", "priorityClassName": "koord-batch", "koordinatorPriority": 7,
            "labels": {"x": "y"}, "schedulerName": "", "patch": {"spec": {}}}),
        );
        assert_eq!(parsed.faults, Vec::<String>::new());
        assert_eq!(parsed.probability, Probability::percent(30));
        assert_eq!(parsed.scheduler_name, None);
        assert_eq!(parsed.koordinator_priority, Some(7));
        assert_eq!(parsed.patch, Some(json!({"spec": {}})));
        assert!(parsed.namespace_selector.is_some_and(|it| it.is_empty()));
        assert_eq!(profile(Value::Null), ColocationProfile::new("p"));
    }

    #[test]
    fn profiles_with_invalid_selectors_or_shares_have_faults() {
        for (case, spec, want) in [
            (
                "operator",
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
                "spec.selector: ",
            ),
            (
                "values",
                json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                "spec.namespaceSelector: ",
            ),
            (
                "share",
                json!({"probability": "half"}),
                "spec.probability is \"half\": use a number",
            ),
            (
                "too much",
                json!({"probability": 101}),
                "spec.probability is 101",
            ),
            ("type", json!({"labels": {"a": 1}}), "invalid type"),
        ] {
            let faults = profile(spec).faults;
            assert!(
                faults.len() == 1 && faults[0].contains(want),
                "{case}: {faults:?}"
            );
        }
    }

    #[test]
    fn limit_ranges_have_the_defaults_of_the_server() {
        let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}, {"type": "PersistentVolumeClaim"}]}});
        let parsed = limit_range(&serde_json::from_value(range).unwrap());
        let item = &parsed.items[0];
        assert_eq!(item.default["cpu"], "2");
        assert_eq!(
            (
                &item.default_request["cpu"][..],
                &item.default_request["memory"][..]
            ),
            ("2", "1Mi")
        );
        assert_eq!(parsed.items[1].kind, LimitKind::Other);
    }
}
