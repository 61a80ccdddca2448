//! What a new pod gets from other objects: default resources, priority, service account, runtime class, topology.

use serde_json::{Value, json};

use super::{account, spec};
use crate::kinds::kind::Lookup;
use crate::kinds::{limit_range, priority_class, quantity};
use crate::objects::fields::{JsonObject, at, fill, inside, is_empty, items, open, text};
use crate::objects::status::Status;

pub(crate) const TOPOLOGY_LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

pub(super) fn admit(pod: &mut Value, others: &dyn Lookup) -> Result<(), Status> {
    limit_range::set_defaults(pod, others);
    let result = account::set(pod, others)
        .and_then(|()| set_priority(pod, others))
        .and_then(|()| {
            if let Some(spec) = spec_of(pod) {
                spec::tolerate_brief_outages(spec);
            }
            set_runtime_class(pod, others)
        });
    result.map_err(|why| {
        let name = match text(pod, "metadata.name") {
            "" => text(pod, "metadata.generateName"),
            name => name,
        };
        Status::forbidden("", "pods", name, why)
    })?;
    let node = text(pod, "spec.nodeName");
    if !node.is_empty()
        && let Some(node) = others.get("", "nodes", "", node)
    {
        copy_topology_labels(pod, &node);
    }
    Ok(())
}

/// A pod gets the zone and region labels of its node.
fn copy_topology_labels(pod: &mut Value, node: &Value) {
    for key in TOPOLOGY_LABELS {
        if let Some(value) = crate::objects::fields::label(node, key)
            && let Some(fields) = pod.as_object_mut()
        {
            open(open(fields, "metadata"), "labels").insert(key.to_owned(), value.into());
        }
    }
}

fn spec_of(pod: &mut Value) -> Option<&mut JsonObject> {
    inside(pod.as_object_mut()?, "spec")
}

fn set_priority(pod: &mut Value, others: &dyn Lookup) -> Result<(), String> {
    let named = text(pod, "spec.priorityClassName");
    let class = if named.is_empty() {
        priority_class::global_default(others)
    } else {
        let found = others.get("scheduling.k8s.io", "priorityclasses", "", named);
        Some(found.ok_or_else(|| format!("no PriorityClass with name {named} was found"))?)
    };
    let class = class.as_deref().unwrap_or(&Value::Null);
    let priority = at(class, "value").as_i64().unwrap_or_default();
    let policy = match text(class, "preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    if let Some(given) = at(pod, "spec.priority").as_i64()
        && given != priority
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    let given = text(pod, "spec.preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    let name = text(class, "metadata.name").to_owned();
    if let Some(spec) = spec_of(pod) {
        if !name.is_empty() {
            fill(spec, "priorityClassName", name);
        }
        fill(spec, "priority", priority);
        fill(spec, "preemptionPolicy", policy);
    }
    Ok(())
}

fn set_runtime_class(pod: &mut Value, others: &dyn Lookup) -> Result<(), String> {
    let name = text(pod, "spec.runtimeClassName");
    let given = at(pod, "spec.overhead");
    if name.is_empty() {
        return match is_empty(given) {
            true => Ok(()),
            false => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned()),
        };
    }
    let class = others
        .get("node.k8s.io", "runtimeclasses", "", name)
        .ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?;
    let overhead = at(&class, "overhead.podFixed");
    if !is_empty(given) && !same_amounts(given, overhead) {
        let why = match is_empty(overhead) {
            true => {
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            }
            false => "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        };
        return Err(why.to_owned());
    }
    let Some(spec) = spec_of(pod) else {
        return Ok(());
    };
    if !is_empty(overhead) {
        spec.insert("overhead".to_owned(), overhead.clone());
    }
    merge_node_selector(spec, at(&class, "scheduling.nodeSelector"))?;
    let added = items(&class, "scheduling.tolerations");
    if !added.is_empty() {
        let list = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            for toleration in added {
                if !list.contains(toleration) {
                    list.push(toleration.clone());
                }
            }
        }
    }
    Ok(())
}

fn merge_node_selector(spec: &mut JsonObject, wanted: &Value) -> Result<(), String> {
    let Some(wanted) = wanted.as_object().filter(|wanted| !wanted.is_empty()) else {
        return Ok(());
    };
    let selector = open(spec, "nodeSelector");
    for (key, value) in wanted {
        match selector.get(key) {
            Some(own) if own != value => {
                return Err(format!(
                    "pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    value.as_str().unwrap_or_default(),
                    own.as_str().unwrap_or_default(),
                ));
            }
            _ => {
                selector.insert(key.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn same_amounts(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return false;
    };
    let amount = |value: &Value| quantity::nanos(value.as_str().unwrap_or_default());
    a.len() == b.len()
        && a.iter().all(|(name, value)| {
            b.get(name)
                .is_some_and(|other| amount(value) == amount(other))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct FakeLookup(Vec<(&'static str, Value)>);

    impl Lookup for FakeLookup {
        fn get(&self, _: &str, plural: &str, _: &str, name: &str) -> Option<Arc<Value>> {
            let found = self
                .0
                .iter()
                .find(|(p, o)| *p == plural && text(o, "metadata.name") == name);
            found.map(|(_, object)| Arc::new(object.clone()))
        }
        fn list(&self, _: &str, plural: &str, _: &str) -> Vec<Arc<Value>> {
            let found = self.0.iter().filter(|(p, _)| *p == plural);
            found.map(|(_, object)| Arc::new(object.clone())).collect()
        }
    }

    fn admitted(spec: Value, cluster: &FakeLookup) -> Result<Value, String> {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": spec});
        match admit(&mut pod, cluster) {
            Ok(()) => Ok(pod),
            Err(status) => Err(status.message),
        }
    }

    #[test]
    fn priority_comes_from_the_class() {
        let high = (
            "priorityclasses",
            json!({"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"}),
        );
        let usual = (
            "priorityclasses",
            json!({"metadata": {"name": "usual"}, "value": 3, "globalDefault": true}),
        );
        let (plain, with_default) = (
            FakeLookup(vec![high.clone()]),
            FakeLookup(vec![high, usual]),
        );
        for (case, spec, cluster, want) in [
            (
                "no class",
                json!({}),
                &plain,
                Ok((0, "PreemptLowerPriority")),
            ),
            (
                "the default class",
                json!({}),
                &with_default,
                Ok((3, "PreemptLowerPriority")),
            ),
            (
                "a class",
                json!({"priorityClassName": "high"}),
                &with_default,
                Ok((9, "Never")),
            ),
            (
                "the right number",
                json!({"priorityClassName": "high", "priority": 9}),
                &plain,
                Ok((9, "Never")),
            ),
            (
                "an unknown class",
                json!({"priorityClassName": "nope"}),
                &plain,
                Err("pods \"p\" is forbidden: no PriorityClass with name nope was found"),
            ),
            (
                "a number of its own",
                json!({"priority": 5}),
                &plain,
                Err(
                    "pods \"p\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name",
                ),
            ),
        ] {
            let got = admitted(spec, cluster).map(|pod| {
                (
                    pod["spec"]["priority"].as_i64().unwrap(),
                    pod["spec"]["preemptionPolicy"].as_str().unwrap().to_owned(),
                )
            });
            let want = want.map(|(n, p)| (n, p.to_owned())).map_err(str::to_owned);
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn a_runtime_class_brings_overhead_and_placement() {
        let class = json!({
            "metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]},
        });
        let cluster = FakeLookup(vec![("runtimeclasses", class)]);
        let pod = admitted(json!({"runtimeClassName": "vm"}), &cluster).unwrap();
        assert_eq!(pod["spec"]["overhead"], json!({"cpu": "250m"}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"vm": "yes"}));
        let last = pod["spec"]["tolerations"]
            .as_array()
            .and_then(|list| list.last());
        assert_eq!(last, Some(&json!({"key": "vm"})));
        for (case, spec, says) in [
            (
                "unknown",
                json!({"runtimeClassName": "nope"}),
                "RuntimeClass \"nope\" not found",
            ),
            (
                "other overhead",
                json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}),
                "doesn't match",
            ),
            (
                "overhead alone",
                json!({"overhead": {"cpu": "1"}}),
                "without corresponding RuntimeClass",
            ),
            (
                "against its selector",
                json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
                "conflict",
            ),
        ] {
            let refused = admitted(spec, &cluster).unwrap_err();
            assert!(refused.contains(says), "{case}: {refused}");
        }
    }

    #[test]
    fn a_pod_made_on_a_node_gets_its_topology() {
        let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "other": "o"}}});
        let cluster = FakeLookup(vec![("nodes", node)]);
        let pod = admitted(json!({"nodeName": "n"}), &cluster).unwrap();
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"topology.kubernetes.io/zone": "z"})
        );
    }
}
