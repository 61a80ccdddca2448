//! Objects that an API server would refuse. They must be judged like upstream judges them, and
//! break nothing.

use serde_json::{Value, json};

use crate::random::Random;

/// Makes one thing in the case wrong.
pub(super) fn spoil(random: &mut Random, case: &mut Value) {
    let no_values = json!({"matchExpressions": [{"key": "app", "operator": "In"}]});
    let no_number =
        json!({"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["x"]}]});
    let term = json!({"topologyKey": "rack", "labelSelector": no_values});
    let spread = |action| json!({"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": action, "labelSelector": no_values});
    let spec = &mut case["pod"]["spec"];
    match random.below(10) {
        0 | 1 => {
            spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 3, "preference": no_number}]);
        }
        2 => {
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [no_number, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]});
        }
        3 => {
            spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([term])
        }
        4 => {
            spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 3, "podAffinityTerm": term}]);
        }
        5 => spec["topologySpreadConstraints"] = json!([spread("DoNotSchedule")]),
        6 => spec["topologySpreadConstraints"] = json!([spread("ScheduleAnyway")]),
        7 => {
            spec["containers"][0]["resources"]["requests"] = json!({"cpu": "-3", "memory": "-1Gi"})
        }
        number => {
            let Some(pod) = case["pods"].get_mut(0) else {
                return;
            };
            if number == 8 {
                pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([term]);
            } else {
                pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "-500m"});
            }
        }
    }
}
