//! ResourcePolicies, `scheduling.sigs.x-k8s.io/v1alpha1`.

use engine::policies::resource_policy::PolicyStatus;
use serde::{Deserialize, Serialize};

use super::meta::{LabelSelector, ObjectMeta};
use super::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ResourcePolicy {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub spec: ResourcePolicySpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePolicySpec {
    /// Absent and empty both match every pod of the namespace.
    #[serde(deserialize_with = "nullable")]
    pub pod_selector: LabelSelector,
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub match_policy: MatchPolicy,
    pub strategy: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub units: Vec<Unit>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MatchPolicy {
    #[serde(deserialize_with = "nullable")]
    pub ignore_terminating_pod: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Unit {
    pub name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub priority: i64,
    pub max_count: Option<i64>,
    /// Required, so that a unit of all nodes is never an accident.
    pub node_selector: Option<LabelSelector>,
}

/// The status, as the controller writes it. All of it is written, so that no old value stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourcePolicyStatus {
    pub observed_generation: i64,
    pub conditions: Vec<Condition>,
    pub matched_pods: usize,
    pub outside_pods: usize,
    pub units: Vec<UnitStatus>,
    pub summary: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UnitStatus {
    pub name: String,
    pub nodes: usize,
    pub pods: usize,
    pub over_limit: usize,
}

impl ResourcePolicyStatus {
    /// Conditions that hold as `before` keep their time; the others changed `now`, a time in RFC 3339.
    pub fn new(status: &PolicyStatus, before: &Self, now: &str) -> Self {
        let conditions = status.conditions.iter().map(|condition| {
            let status = if condition.holds { "True" } else { "False" };
            let old = before.condition(condition.kind);
            let same = old.filter(|old| old.status == status);
            Condition {
                kind: condition.kind.to_owned(),
                status: status.to_owned(),
                last_transition_time: same.map_or(now, |old| &old.last_transition_time).to_owned(),
                reason: condition.reason.to_owned(),
                message: condition.message.clone(),
            }
        });
        let units = status.units.iter().map(|unit| UnitStatus {
            name: unit.name.to_string(),
            nodes: unit.nodes,
            pods: unit.pods,
            over_limit: unit.over_limit,
        });
        Self {
            observed_generation: status.observed_generation,
            conditions: conditions.collect(),
            matched_pods: status.matched_pods,
            outside_pods: status.outside_pods,
            units: units.collect(),
            summary: status.summary.clone(),
        }
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.kind == kind)
    }
}
