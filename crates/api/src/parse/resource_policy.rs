//! ResourcePolicies.
//!
//! The schema of the kind refuses every invalid value that is refused here, but not every API server evaluates all of it. A
//! policy with an invalid value has no effect at all: half a policy would place pods where its author did not want them.

use std::fmt;
use std::sync::Arc;

use engine::cluster::ResourcePolicy;
use engine::model::{
    HIGHEST_MAX_COUNT, HIGHEST_PRIORITY, Name, PolicySpec, PolicyStrategy, Selector, Unit,
    is_dns_label, is_qualified_name,
};

use super::{name, names, selector};
use crate::wire::meta::{LabelSelector, ObjectMeta};
use crate::wire::policy as wire;

/// How long lists may be; the schema has the same bounds.
pub(crate) mod bounds {
    pub(crate) const MOST_UNITS: usize = 32;
    pub(crate) const MOST_KEYS: usize = 8;
    pub(crate) const MOST_REQUIREMENTS: usize = 32;
    pub(crate) const MOST_VALUES: usize = 64;
}
use bounds::*;

type Fault = String;

/// Every object is a policy; one with invalid values carries the first of them.
pub fn resource_policy(policy: &wire::ResourcePolicy) -> ResourcePolicy {
    with_spec(&policy.metadata, spec(&policy.spec))
}

/// A policy that cannot be read, for this reason, has no effect, whatever it said before.
pub fn unreadable_resource_policy(meta: &ObjectMeta, error: String) -> ResourcePolicy {
    with_spec(meta, Err(error))
}

fn with_spec(meta: &ObjectMeta, spec: Result<PolicySpec, Fault>) -> ResourcePolicy {
    ResourcePolicy {
        namespace: name(&meta.namespace),
        name: name(&meta.name),
        generation: meta.generation,
        spec: spec.map(Arc::new).map_err(Name::from),
    }
}

fn spec(spec: &wire::ResourcePolicySpec) -> Result<PolicySpec, Fault> {
    let strategy = match spec.strategy.as_deref() {
        None | Some("required") => PolicyStrategy::Required,
        Some("prefer") => PolicyStrategy::Prefer,
        Some(other) => {
            let allowed = "required or prefer";
            return Err(invalid("spec.strategy", format_args!("`{other}`"), allowed));
        }
    };
    let pods = label_selector("spec.podSelector", &spec.pod_selector)?;
    match_label_keys(spec)?;
    Ok(PolicySpec {
        pods,
        match_label_keys: names(&spec.match_label_keys),
        ignore_terminating: spec.match_policy.ignore_terminating_pod,
        strategy,
        units: units(&spec.units)?,
    })
}

fn match_label_keys(spec: &wire::ResourcePolicySpec) -> Result<(), Fault> {
    let keys = &spec.match_label_keys;
    most("spec.matchLabelKeys", keys.len(), MOST_KEYS, "keys")?;
    for (index, key) in keys.iter().enumerate() {
        let wrong = |allowed| {
            let field = format!("spec.matchLabelKeys[{index}]");
            Err(invalid(&field, format_args!("`{key}`"), allowed))
        };
        let selector = &spec.pod_selector;
        let expressions = selector.match_expressions.iter();
        if !is_qualified_name(key) {
            return wrong("a label key such as pod-template-hash");
        }
        if keys[..index].contains(key) {
            return wrong("each key once");
        }
        if selector.match_labels.contains_key(key)
            || expressions.into_iter().any(|it| it.key == *key)
        {
            return wrong("a key that is not in spec.podSelector");
        }
    }
    Ok(())
}

fn units(units: &[wire::Unit]) -> Result<Vec<Unit>, Fault> {
    if units.is_empty() {
        return Err("spec.units is empty: use 1 to 32 units".to_owned());
    }
    most("spec.units", units.len(), MOST_UNITS, "units")?;
    let mut parsed: Vec<Unit> = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        let field = |name: &str| format!("spec.units[{index}].{name}");
        let called = match &unit.name {
            Some(given) if !is_dns_label(given) => {
                let allowed =
                    "up to 63 lower case letters, digits and hyphens, with no hyphen at either end";
                return Err(invalid(&field("name"), format_args!("`{given}`"), allowed));
            }
            Some(given) => name(given),
            None => index.to_string().into(),
        };
        if parsed.iter().any(|known| known.name == called) {
            let allowed =
                "a name that no other unit has; a unit without a name has its index as name";
            return Err(invalid(&field("name"), format_args!("`{called}`"), allowed));
        }
        let Some(nodes) = &unit.node_selector else {
            let text = format!("{} is missing: use a label selector", field("nodeSelector"));
            return Err(format!("{text}; `{{}}` selects every node"));
        };
        parsed.push(Unit {
            name: called,
            priority: number(&field("priority"), unit.priority, HIGHEST_PRIORITY)?,
            max_count: match unit.max_count {
                None => None,
                Some(count) => Some(number(&field("maxCount"), count, HIGHEST_MAX_COUNT)?),
            },
            nodes: label_selector(&field("nodeSelector"), nodes)?,
        });
    }
    Ok(parsed)
}

fn label_selector(field: &str, given: &LabelSelector) -> Result<Selector, Fault> {
    let labels = format!("{field}.matchLabels");
    most(
        &labels,
        given.match_labels.len(),
        MOST_REQUIREMENTS,
        "labels",
    )?;
    let expressions = format!("{field}.matchExpressions");
    let count = given.match_expressions.len();
    most(&expressions, count, MOST_REQUIREMENTS, "expressions")?;
    for (index, expression) in given.match_expressions.iter().enumerate() {
        let values = format!("{expressions}[{index}].values");
        most(&values, expression.values.len(), MOST_VALUES, "values")?;
    }
    selector::label_selector(Some(given)).map_err(|error| format!("{field}: {error}"))
}

fn number<T>(field: &str, found: i64, highest: T) -> Result<T, Fault>
where
    T: TryFrom<i64> + PartialOrd + fmt::Display,
{
    let number = T::try_from(found).ok().filter(|number| *number <= highest);
    number.ok_or_else(|| invalid(field, found, format_args!("0 to {highest}")))
}

fn most(field: &str, found: usize, most: usize, things: &str) -> Result<(), Fault> {
    if found > most {
        return Err(format!("{field} has {found} {things}: use at most {most}"));
    }
    Ok(())
}

fn invalid(field: &str, found: impl fmt::Display, allowed: impl fmt::Display) -> Fault {
    format!("{field} is {found}: use {allowed}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> ResourcePolicy {
        let policy = json!({"metadata": {"namespace": "shop", "name": "web", "generation": 3}, "spec": spec});
        resource_policy(&serde_json::from_value(policy).unwrap())
    }

    /// The policy of the proposal, to the letter.
    #[test]
    fn a_policy_with_all_fields() {
        let key1 = |value: &str| json!({"matchExpressions": [{"key": "key1", "operator": "In", "values": [value]}]});
        let policy = read(json!({
            "matchLabelKeys": ["pod-template-hash"],
            "matchPolicy": {"ignoreTerminatingPod": true},
            "podSelector": {
                "matchExpressions": [{"key": "key1", "operator": "In", "values": ["value1"]}],
                "matchLabels": {"key1": "value1"},
            },
            "strategy": "prefer",
            "units": [
                {"name": "unit1", "priority": 5, "maxCount": 10, "nodeSelector": key1("value1")},
                {"name": "unit2", "priority": 5, "maxCount": 10, "nodeSelector": key1("value2")},
                {"name": "unit3", "priority": 4, "maxCount": 20, "nodeSelector": {"matchLabels": {"key1": "value3"}}},
            ],
        }));
        assert_eq!(
            (&*policy.namespace, &*policy.name, policy.generation),
            ("shop", "web", 3)
        );
        let spec = policy.spec.unwrap();
        assert_eq!(spec.match_label_keys, ["pod-template-hash".into()]);
        assert!(spec.ignore_terminating);
        assert_eq!(spec.strategy, PolicyStrategy::Prefer);
        assert!(spec.selects(&[("key1", "value1")].into_iter().collect()));
        let units = spec.units.iter();
        let units: Vec<_> = units
            .map(|it| (&*it.name, it.priority, it.max_count))
            .collect();
        let want = [
            ("unit1", 5, Some(10)),
            ("unit2", 5, Some(10)),
            ("unit3", 4, Some(20)),
        ];
        assert_eq!(units, want);
        let third = [("key1", "value3")].into_iter().collect();
        assert_eq!(spec.unit_of(&third).map(|unit| &*unit.name), Some("unit3"));
    }

    #[test]
    fn defaults() {
        let spec =
            read(json!({"units": [{"nodeSelector": {}}, {"nodeSelector": {}, "maxCount": 0}]}));
        let spec = spec.spec.unwrap();
        assert_eq!(spec.strategy, PolicyStrategy::Required);
        assert!(!spec.ignore_terminating && spec.pods.is_empty());
        let units = spec.units.iter();
        let units: Vec<_> = units
            .map(|it| (&*it.name, it.priority, it.max_count))
            .collect();
        assert_eq!(units, [("0", 0, None), ("1", 0, Some(0))]);
        assert!(spec.units[0].nodes.is_empty());
    }

    #[test]
    fn invalid_values_and_what_is_allowed() {
        let unit = |more: Value| {
            let mut unit = json!({"nodeSelector": {}});
            unit.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"units": [unit]})
        };
        let with =
            |field: &str, value: Value| json!({"units": [{"nodeSelector": {}}], field: value});
        let select = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
        let pairs = |count: usize| {
            (0..count)
                .map(|i| (format!("k{i}"), json!("v")))
                .collect::<serde_json::Map<_, _>>()
        };
        for (spec, want) in [
            (json!({}), "spec.units is empty: use 1 to 32 units"),
            (
                json!({"units": vec![json!({"nodeSelector": {}}); 33]}),
                "spec.units has 33 units: use at most 32",
            ),
            (
                json!({"units": [{"name": "a"}]}),
                "spec.units[0].nodeSelector is missing: use a label selector; `{}` selects every node",
            ),
            (
                unit(json!({"maxCount": -1})),
                "spec.units[0].maxCount is -1: use 0 to 100000",
            ),
            (
                unit(json!({"maxCount": 100_001})),
                "spec.units[0].maxCount is 100001: use 0 to 100000",
            ),
            (
                unit(json!({"priority": -1})),
                "spec.units[0].priority is -1: use 0 to 1000",
            ),
            (
                unit(json!({"priority": 1001})),
                "spec.units[0].priority is 1001: use 0 to 1000",
            ),
            (
                unit(json!({"priority": 1_000_000_000_000_i64})),
                "spec.units[0].priority is 1000000000000: use 0 to 1000",
            ),
            (
                unit(json!({"name": "Spot"})),
                "spec.units[0].name is `Spot`: use up to 63 lower case letters, digits and hyphens, with no hyphen at either end",
            ),
            (
                unit(json!({"name": ""})),
                "spec.units[0].name is ``: use up to 63 lower case letters",
            ),
            (
                json!({"units": [{"name": "a", "nodeSelector": {}}, {"name": "a", "nodeSelector": {}}]}),
                "spec.units[1].name is `a`: use a name that no other unit has; a unit without a name has its index as name",
            ),
            (
                json!({"units": [{"nodeSelector": {}}, {"name": "0", "nodeSelector": {}}]}),
                "spec.units[1].name is `0`: use a name that no other unit has",
            ),
            (
                unit(json!({"nodeSelector": {"matchLabels": {"not a key": "v"}}})),
                "spec.units[0].nodeSelector: key: Invalid value: \"not a key\"",
            ),
            (
                unit(json!({"nodeSelector": select("Gt", json!(["1"]))})),
                "spec.units[0].nodeSelector: \"Gt\" is not a valid label selector operator",
            ),
            (
                with("strategy", json!("must")),
                "spec.strategy is `must`: use required or prefer",
            ),
            (
                with("podSelector", select("In", json!([]))),
                "spec.podSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                with("podSelector", select("Exists", json!(["v"]))),
                "spec.podSelector: values: Invalid value: [\"v\"]: values set must be empty",
            ),
            (
                with("podSelector", select("In", json!(vec!["v"; 65]))),
                "spec.podSelector.matchExpressions[0].values has 65 values: use at most 64",
            ),
            (
                with("podSelector", json!({"matchLabels": pairs(33)})),
                "spec.podSelector.matchLabels has 33 labels: use at most 32",
            ),
            (
                with(
                    "podSelector",
                    json!({"matchExpressions": vec![json!({"key": "k", "operator": "Exists"}); 33]}),
                ),
                "spec.podSelector.matchExpressions has 33 expressions: use at most 32",
            ),
            (
                with("matchLabelKeys", json!(["not a key"])),
                "spec.matchLabelKeys[0] is `not a key`: use a label key such as pod-template-hash",
            ),
            (
                with("matchLabelKeys", json!(["a", "a"])),
                "spec.matchLabelKeys[1] is `a`: use each key once",
            ),
            (
                with(
                    "matchLabelKeys",
                    json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"]),
                ),
                "spec.matchLabelKeys has 9 keys: use at most 8",
            ),
            (
                json!({"units": [{"nodeSelector": {}}], "matchLabelKeys": ["k"], "podSelector": {"matchLabels": {"k": "v"}}}),
                "spec.matchLabelKeys[0] is `k`: use a key that is not in spec.podSelector",
            ),
            (
                json!({"units": [{"nodeSelector": {}}], "matchLabelKeys": ["k"], "podSelector": select("Exists", json!([]))}),
                "spec.matchLabelKeys[0] is `k`: use a key that is not in spec.podSelector",
            ),
        ] {
            let found = read(spec.clone()).spec;
            let found = found.expect_err(&spec.to_string());
            assert!(found.starts_with(want), "{spec}: {found}");
        }
    }

    #[test]
    fn a_warning_names_the_policy() {
        let policy = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {}});
        let mut warnings = Vec::new();
        let manifest =
            super::super::Manifest::read(engine::cluster::kinds::Kind::ResourcePolicy, policy)
                .unwrap();
        manifest.parse(&mut warnings).unwrap();
        let want = "resourcepolicy shop/web has no effect: spec.units is empty: use 1 to 32 units";
        assert_eq!(warnings, [want]);
    }
}
