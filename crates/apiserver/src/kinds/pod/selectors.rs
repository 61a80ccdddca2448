//! `matchLabelKeys`: adds the pod's own label values to the selectors of its terms.

use serde_json::{Value, json};

use crate::objects::fields::{JsonObject, each, inside, items};

/// Adds an expression per key that the pod has a label for. Templates keep only the keys.
pub(super) fn merge_label_keys(pod: &mut Value) {
    let Some(labels) = pod
        .get("metadata")
        .and_then(|metadata| metadata.get("labels"))
        .and_then(Value::as_object)
        .cloned()
    else {
        return;
    };
    let Some(spec) = pod
        .as_object_mut()
        .and_then(|pod| inside(pod, "spec"))
        .filter(|spec| {
            spec.contains_key("affinity") || spec.contains_key("topologySpreadConstraints")
        })
    else {
        return;
    };
    if let Some(affinity) = inside(spec, "affinity") {
        for side in ["podAffinity", "podAntiAffinity"] {
            let Some(side) = inside(affinity, side) else {
                continue;
            };
            for term in each(side, "requiredDuringSchedulingIgnoredDuringExecution") {
                merge_into(term, &labels);
            }
            for weighted in each(side, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = inside(weighted, "podAffinityTerm") {
                    merge_into(term, &labels);
                }
            }
        }
    }
    for constraint in each(spec, "topologySpreadConstraints") {
        merge_into(constraint, &labels);
    }
}

fn merge_into(term: &mut JsonObject, labels: &JsonObject) {
    let mut expressions = Vec::new();
    let whole = Value::Object(std::mem::take(term));
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in items(&whole, list).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if let Value::Object(fields) = whole {
        *term = fields;
    }
    // Without a selector a term matches nothing, and stays so.
    if expressions.is_empty() {
        return;
    }
    if let Some(selector) = inside(term, "labelSelector") {
        match selector.get_mut("matchExpressions") {
            Some(Value::Array(present)) => present.extend(expressions),
            _ => {
                selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_expressions_where_the_pod_has_the_label() {
        let term = json!({"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["v", "absent"], "mismatchLabelKeys": ["t"]});
        let mut pod = json!({
            "metadata": {"labels": {"v": "1", "t": "x"}},
            "spec": {
                "affinity": {"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [term],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}],
                }},
                "topologySpreadConstraints": [{"labelSelector": {}, "matchLabelKeys": ["v"]}, {"matchLabelKeys": ["v"]}],
            },
        });
        merge_label_keys(&mut pod);
        let same = json!({"key": "v", "operator": "In", "values": ["1"]});
        let other = json!({"key": "t", "operator": "NotIn", "values": ["x"]});
        let anti = &pod["spec"]["affinity"]["podAntiAffinity"];
        let required = &anti["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let preferred =
            &anti["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
        for term in [required, preferred] {
            assert_eq!(
                term["labelSelector"]["matchExpressions"],
                json!([same, other])
            );
            assert_eq!(
                term["matchLabelKeys"],
                json!(["v", "absent"]),
                "the keys stay"
            );
        }
        let spread = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(
            spread[0]["labelSelector"]["matchExpressions"],
            json!([same])
        );
        assert_eq!(spread[1].get("labelSelector"), None, "no selector is made");
    }
}
