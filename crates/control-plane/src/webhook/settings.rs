//! The answers to reviews of the ConfigMap with the settings of tiers and agents.

use api::contracts::COLOCATION;
use std::collections::BTreeMap;

use super::review::{Review, ReviewAnswer};

pub const VALIDATE_SETTINGS: &str = "/validate-settings";

/// Refuses settings that the controllers and agents would not use. Other ConfigMaps of the namespace pass.
pub fn validate(review: &Review) -> ReviewAnswer {
    let (namespace, name) = COLOCATION;
    let is_write = matches!(&review.operation[..], "CREATE" | "UPDATE");
    let is_settings = review.resource.resource == "configmaps"
        && review.namespace == namespace
        && review.object["metadata"]["name"] == name;
    if !is_write || !is_settings {
        return ReviewAnswer::default();
    }
    let data = review.object["data"].as_object().into_iter().flatten();
    let data: BTreeMap<String, String> = data
        .filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
        .collect();
    match api::agent_settings::check(&data) {
        Ok(()) => ReviewAnswer::default(),
        Err(faults) => {
            tracing::info!(object = format!("{namespace}/{name}"), "refused: {faults}");
            ReviewAnswer::refuse(faults.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::webhook::review::GroupResource;

    fn review(name: &str, operation: &str, data: Value) -> Review {
        Review {
            resource: GroupResource {
                group: String::new(),
                resource: "configmaps".to_owned(),
            },
            namespace: COLOCATION.0.to_owned(),
            operation: operation.to_owned(),
            object: json!({"metadata": {"name": name}, "data": data}),
            ..Review::default()
        }
    }

    #[test]
    fn invalid_values_of_each_key_are_refused_with_key_and_line() {
        for (case, data, want) in [
            (
                "a percentage",
                json!({"colocation-config": "{\n  \"midCPUThresholdPercent\": 101\n}"}),
                Some(
                    "colocation-config: line 2: midCPUThresholdPercent: 101 is not allowed: use 0 to 100",
                ),
            ),
            (
                "a group that selects no node of today",
                json!({"colocation-config": "{\"nodeConfigs\": [\n{\"nodeSelector\": {\"matchLabels\": {\"a\": \"b\"}},\n\"lend\": \"all\"}]}"}),
                Some("colocation-config: line 3: nodeConfigs[0].lend"),
            ),
            (
                "no JSON",
                json!({"colocation-config": "{\n\"enable\": true"}),
                Some("colocation-config: line 2"),
            ),
            (
                "thresholds",
                json!({"resource-threshold-config": "{\"clusterStrategy\": {\n\"cpuSuppressThresholdPercent\": 101}}"}),
                Some(
                    "resource-threshold-config: line 2: clusterStrategy.cpuSuppressThresholdPercent",
                ),
            ),
            (
                "reclaimed resources",
                json!({"reclaimed-resource-config": "{\n\"unheardOf\": 1}"}),
                Some("reclaimed-resource-config: line 2: unheardOf"),
            ),
            (
                "fields that only Koordinator reads",
                json!({"colocation-config": "{\"enable\": true, \"metricReportIntervalSeconds\": 60}", "cpu-burst-config": "{"}),
                None,
            ),
            ("nothing", Value::Null, None),
        ] {
            let answer = validate(&review(COLOCATION.1, "UPDATE", data));
            match want {
                None => assert_eq!(answer, ReviewAnswer::default(), "{case}"),
                Some(want) => {
                    let refusal = answer.refusal.unwrap();
                    assert!(refusal.starts_with(want), "{case}: {refusal}");
                }
            }
        }
    }

    #[test]
    fn other_reviews_pass() {
        let invalid = json!({"colocation-config": "{"});
        for review in [
            review("another", "CREATE", invalid.clone()),
            review(COLOCATION.1, "DELETE", invalid.clone()),
            Review {
                namespace: "default".to_owned(),
                ..review(COLOCATION.1, "CREATE", invalid)
            },
        ] {
            assert_eq!(validate(&review), ReviewAnswer::default(), "{review:?}");
        }
    }
}
