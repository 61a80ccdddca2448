//! NodeMetrics, the settings of the tiers, and Koordinator's annotations of nodes.
//!
//! Amounts that cannot be read, or are negative, count as 0 with a warning.

use engine::admission::keys::KOORDINATOR_CLASS;
use engine::model::{Amounts, Quantity, Resource};
use engine::node::{CpuMemory, CpuSet};
use engine::policies::tiers::{
    ColocationConfig, NodeMetric, NodeStrategy, PodUsage, PriorityBand, StrategyError,
    StrategyOverrides, TIER_RESOURCES, TierNodeObject, TierPod, TierResource,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::selector::label_selector;
use super::{ParseError, labels, name, object, time};
use crate::wire::core;
use crate::wire::koordinator as wire;
use crate::wire::meta::{LabelSelector, ResourceList};
use crate::yaml::{self, Finding};

pub const RESERVATION: &str = "node.koordinator.sh/reservation";
pub const COLOCATION_STRATEGY: &str = "node.koordinator.sh/colocation-strategy";

/// More than any machine has; sums over the pods of a node stay far below the largest integer.
const MOST: i64 = 1 << 50;

/// A NodeMetric, with warnings about its invalid parts.
pub fn node_metric(metric: &wire::NodeMetric) -> (NodeMetric, Vec<String>) {
    let mut warnings = Vec::new();
    let status = &metric.status;
    let mut amounts = |field: &str, list: &ResourceList| {
        let amount = |resource: Resource, warnings: &mut Vec<String>| {
            amount(field, list, &resource, warnings).unwrap_or(0)
        };
        CpuMemory::new(
            amount(Resource::Cpu, &mut warnings),
            amount(Resource::Memory, &mut warnings),
        )
    };
    let usage = status.node_metric.as_ref();
    let node_usage = usage.filter(|it| {
        let list = &it.node_usage.resources;
        list.contains_key("cpu") && list.contains_key("memory")
    });
    let node_usage = node_usage.map(|it| amounts("nodeMetric.nodeUsage", &it.node_usage.resources));
    let system_usage = usage.map_or(CpuMemory::ZERO, |it| {
        amounts("nodeMetric.systemUsage", &it.system_usage.resources)
    });
    let host_applications = status.host_application_metric.iter().filter_map(|it| {
        let usage = amounts("hostApplicationMetric", &it.usage.resources);
        Some((band(&it.priority)?, usage))
    });
    let host_applications = host_applications.collect();
    let pods = status.pods_metric.iter().map(|it| PodUsage {
        namespace: name(&it.namespace),
        name: name(&it.name),
        // Koordinator names every pod's class; what has none is a service.
        band: band(&it.priority).unwrap_or(PriorityBand::Prod),
        usage: amounts("podsMetric", &it.pod_usage.resources),
    });
    let pods = pods.collect();
    let reclaimable = &status.prod_reclaimable_metric.resource.resources;
    let parsed = NodeMetric {
        // Without a nodeMetric the report is half written: it is as old as none.
        updated: usage.and(status.update_time).map(time),
        node_usage,
        system_usage,
        host_applications,
        pods,
        prod_reclaimable: amounts("prodReclaimableMetric", reclaimable),
    };
    let whose = object("nodemetric", &metric.metadata);
    let warnings = warnings.into_iter().map(|text| format!("{whose}: {text}"));
    (parsed, warnings.collect())
}

fn amount(
    field: &str,
    list: &ResourceList,
    resource: &Resource,
    warnings: &mut Vec<String>,
) -> Option<i64> {
    let text = &list.get(resource.name())?.0;
    let mut warn = |problem: String| {
        warnings.push(format!(
            "{} of {field} is `{text}`: {problem}",
            resource.name()
        ));
    };
    let amount = match Quantity::parse(text) {
        Ok(quantity) => resource.integer(quantity),
        Err(error) => {
            warn(format!("{error}; using 0"));
            return Some(0);
        }
    };
    let counts = amount.clamp(0, MOST);
    if counts != amount {
        warn(format!("using {counts}"));
    }
    Some(counts)
}

fn band(text: &str) -> Option<PriorityBand> {
    match text {
        "koord-prod" => Some(PriorityBand::Prod),
        "koord-mid" => Some(PriorityBand::Mid),
        "koord-batch" => Some(PriorityBand::Batch),
        "koord-free" => Some(PriorityBand::Free),
        _ => None,
    }
}

/// A Node, with warnings about its invalid parts.
pub fn tier_node(node: &wire::CapacityNode) -> (TierNodeObject, Vec<String>) {
    let mut warnings = Vec::new();
    let (meta, status) = (&node.metadata, &node.status);
    let mut amounts = |field: &str, list: &ResourceList| {
        let mut of = |resource| amount(field, list, &resource, &mut warnings).unwrap_or(0);
        CpuMemory::new(of(Resource::Cpu), of(Resource::Memory))
    };
    let capacity = amounts("status.capacity", &status.capacity);
    let allocatable = amounts("status.allocatable", &status.allocatable);
    let published = TIER_RESOURCES.map(|resource| {
        let text = status.allocatable.get(resource.name())?;
        // Whatever it says is replaced.
        Some(Quantity::parse(&text.0).map_or(-1, Quantity::units))
    });
    // Only administrators and the node itself can write a Node.
    let annotation = |key: &str| meta.annotations.get(key).map(String::as_str);
    // Whether or not it is taken off what the scheduler sees.
    let reservation = annotation(RESERVATION).map(reserved_amounts).transpose();
    let overrides = annotation(COLOCATION_STRATEGY).map(colocation_strategy);
    let overrides = overrides.transpose();
    for (key, error) in [
        (RESERVATION, reservation.as_ref().err()),
        (COLOCATION_STRATEGY, overrides.as_ref().err()),
    ] {
        if let Some(error) = error {
            warnings.push(format!("ignoring invalid annotation {key}: {error}"));
        }
    }
    let parsed = TierNodeObject {
        uid: name(&meta.uid),
        labels: labels(&meta.labels),
        capacity,
        allocatable,
        reservation: reservation.ok().flatten().unwrap_or_default(),
        overrides: overrides.ok().flatten(),
        published,
    };
    let whose = object("node", meta);
    let warnings = warnings.into_iter().map(|text| format!("{whose}: {text}"));
    (parsed, warnings.collect())
}

/// A pod, as far as tiers are about it.
pub fn tier_pod(pod: &core::Pod) -> Result<TierPod, ParseError> {
    let parsed = super::pod(pod)?;
    let placed = &parsed.requests.placed;
    let tier = |cpu: TierResource, memory: TierResource| {
        let get = |it: TierResource| {
            placed
                .get(&Resource::Scalar(it.name().into()))
                .clamp(0, MOST)
        };
        CpuMemory::new(get(cpu), get(memory))
    };
    let mid = tier(TierResource::MidCpu, TierResource::MidMemory);
    let batch = tier(TierResource::BatchCpu, TierResource::BatchMemory);
    let reclaimed = parsed.requests.reclaimed.as_ref();
    let reclaimed = reclaimed.map_or(CpuMemory::ZERO, |it| {
        CpuMemory::new(it.placed.milli_cpu, it.placed.memory)
    });
    let meta = &pod.metadata;
    let zones = parsed.zones.filter(|_| parsed.takes_whole_zones());
    let zones = zones.unwrap_or_default();
    let native = |resource| placed.get(&resource).clamp(0, MOST);
    Ok(TierPod {
        namespace: parsed.namespace().clone(),
        name: parsed.name.clone(),
        class: parsed.qos,
        exclusive: meta
            .labels
            .get(KOORDINATOR_CLASS)
            .is_some_and(|it| it == "LSE"),
        requests: match zones.is_empty() {
            true => Amounts::default(),
            false => placed.clone(),
        },
        zones,
        active: matches!(&pod.status.phase[..], "" | "Pending" | "Running"),
        native: CpuMemory::new(native(Resource::Cpu), native(Resource::Memory)),
        mid,
        batch,
        reclaimed,
    })
}

/// The groups of nodes in `colocation-config`, with some of their fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Groups<T> {
    node_configs: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct GroupSelector {
    #[serde(deserialize_with = "crate::wire::nullable")]
    name: String,
    node_selector: Option<LabelSelector>,
}

/// Reads `colocation-config`: the fields of the cluster, and those of groups of nodes. The error names the line and the field.
pub fn colocation_config(text: &str) -> Result<ColocationConfig, String> {
    if text.trim().is_empty() {
        return Ok(ColocationConfig::default());
    }
    // Only JSON: Koordinator reads the same text.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Err(format!("line {}: {error}", error.line()));
    }
    // The levels are read one by one, because only then every fault has its line.
    let cluster: StrategyOverrides = known_fields(text)?;
    let selectors: Groups<GroupSelector> = known_fields(text)?;
    let overrides: Groups<StrategyOverrides> = known_fields(text)?;
    let at = |field: String, text_: String| {
        let finding = Finding {
            line: yaml::line(text, &field),
            field,
            text: text_,
        };
        finding.to_string()
    };
    let check = |level: &StrategyOverrides, path: &str| {
        level.check().map_err(|error| {
            let StrategyError { found, allowed, .. } = &error;
            let text = format!("{found} is not allowed: use {allowed}");
            at(format!("{path}{}", error.field), text)
        })
    };
    check(&cluster, "")?;
    let mut nodes = Vec::new();
    let selectors = selectors.node_configs.unwrap_or_default().into_iter();
    let overrides = overrides.node_configs.unwrap_or_default();
    for (index, (group, overrides)) in selectors.zip(overrides).enumerate() {
        check(&overrides, &format!("nodeConfigs[{index}]."))?;
        let selector = group.node_selector.as_ref().map(|selector| {
            let field = format!("nodeConfigs[{index}].nodeSelector");
            label_selector(Some(selector)).map_err(|error| at(field, error.to_string()))
        });
        nodes.push(NodeStrategy {
            name: group.name,
            selector: selector.transpose()?,
            overrides,
        });
    }
    Ok(ColocationConfig { cluster, nodes })
}

/// Decodes the fields that the type has: other components read others.
fn known_fields<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let (value, findings) = yaml::decode::<T>(text);
    let mut faults = findings
        .into_iter()
        .filter(|it| it.text != yaml::UNKNOWN_FIELD);
    match (faults.next(), value) {
        (Some(fault), _) => Err(fault.to_string()),
        (None, Some(value)) => Ok(value),
        (None, None) => Err("it is not an object".to_owned()),
    }
}

/// Reads the annotation [`COLOCATION_STRATEGY`].
pub fn colocation_strategy(text: &str) -> Result<StrategyOverrides, String> {
    let overrides: StrategyOverrides =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    overrides.check().map_err(|error| error.to_string())?;
    Ok(overrides)
}

/// Reads the annotation [`RESERVATION`]: what the scheduler takes off the node's allocatable.
pub fn node_reservation(text: &str) -> Result<CpuMemory, String> {
    let (reserved, is_taken_off) = reservation(text)?;
    Ok(if is_taken_off {
        reserved
    } else {
        CpuMemory::ZERO
    })
}

/// Reads the annotation [`RESERVATION`]: what the node keeps for processes outside of pods.
fn reserved_amounts(text: &str) -> Result<CpuMemory, String> {
    reservation(text).map(|(reserved, _)| reserved)
}

/// The amounts, and whether the scheduler takes them off.
fn reservation(text: &str) -> Result<(CpuMemory, bool), String> {
    let reservation: wire::NodeReservation =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_taken_off = match &*reservation.apply_policy {
        "" | "Default" => true,
        // The reserved CPUs are not used, and the amounts are not taken off.
        "ReservedCPUsOnly" => false,
        other => {
            return Err(format!(
                "applyPolicy: `{other}` is not allowed: use Default or ReservedCPUsOnly"
            ));
        }
    };
    let mut warnings = Vec::new();
    let mut amount = |resource: Resource| {
        amount(
            "resources",
            &reservation.resources,
            &resource,
            &mut warnings,
        )
        .unwrap_or(0)
    };
    let mut reserved = CpuMemory::new(amount(Resource::Cpu), amount(Resource::Memory));
    if let Some(warning) = warnings.pop() {
        return Err(warning);
    }
    if !reservation.reserved_cpus.is_empty() {
        let cpus = CpuSet::parse(&reservation.reserved_cpus).ok_or_else(|| {
            format!(
                "reservedCPUs: `{}` is not a list of CPUs such as 0-5,8",
                reservation.reserved_cpus
            )
        })?;
        let count = i64::try_from(cpus.0.len()).unwrap_or(i64::MAX);
        reserved.milli_cpu = count.saturating_mul(1000);
    }
    Ok((reserved, is_taken_off))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_are_read_and_invalid_amounts_count_as_zero() {
        let metric = json!({
            "metadata": {"name": "n1"},
            "status": {
                "updateTime": "2026-01-31T10:20:30Z",
                "nodeMetric": {
                    "nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}},
                    "systemUsage": {"resources": {"cpu": "-1", "memory": "many"}},
                },
                "podsMetric": [
                    {"namespace": "a", "name": "b", "priority": "koord-mid", "podUsage": {"resources": {"cpu": 1}}},
                    {"namespace": "a", "name": "c", "podUsage": {"resources": {"cpu": "10E"}}},
                ],
                "hostApplicationMetric": [{"priority": "koord-prod", "usage": {"resources": {"memory": "1k"}}}, {}],
                "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2", "memory": "1Gi"}}},
            },
        });
        let metric: wire::NodeMetric = serde_json::from_value(metric).unwrap();
        let (parsed, warnings) = node_metric(&metric);
        assert!(parsed.updated.is_some());
        assert_eq!(parsed.node_usage, Some(CpuMemory::new(1500, 2 << 30)));
        assert_eq!(parsed.system_usage, CpuMemory::ZERO);
        assert_eq!(parsed.pods[0].band, PriorityBand::Mid);
        assert_eq!(parsed.pods[1].usage, CpuMemory::new(MOST, 0));
        assert_eq!(
            parsed.host_applications,
            [(PriorityBand::Prod, CpuMemory::new(0, 1000))]
        );
        assert_eq!(parsed.prod_reclaimable, CpuMemory::new(2000, 1 << 30));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(
            warnings[0].starts_with("nodemetric n1: cpu of nodeMetric.systemUsage is `-1`"),
            "{warnings:?}"
        );
        let half =
            json!({"metadata": {"name": "n1"}, "status": {"updateTime": "2026-01-31T10:20:30Z"}});
        let half: wire::NodeMetric = serde_json::from_value(half).unwrap();
        assert_eq!(node_metric(&half).0.updated, None);
    }

    #[test]
    fn settings_are_read_and_errors_name_the_field() {
        let text = r#"{"enable": true, "midCPUThresholdPercent": 45, "degradeTimeMinutes": 5, "extensions": {},
            "nodeConfigs": [{"name": "gpu", "nodeSelector": {"matchLabels": {"a": "b"}}, "lend": "batch"},
                {"name": "nothing", "midFormula": "koordinator"}]}"#;
        let config = colocation_config(text).unwrap();
        assert_eq!(config.cluster.mid_cpu_threshold_percent, Some(45));
        assert_eq!(config.nodes.len(), 2);
        assert!(config.nodes[1].selector.is_none());
        for (text, words) in [
            ("{", "line 1"),
            (r#"{"lend": "all"}"#, "line 1: lend"),
            ("enable: true", "line 1: expected value"),
            ("[]", "line 1"),
            (
                r#"{"midCPUThresholdPercent": 101}"#,
                "midCPUThresholdPercent: 101 is not allowed: use 0 to 100",
            ),
            (
                r#"{"resourceDiffThreshold": 0}"#,
                "resourceDiffThreshold: 0 is not allowed: use more than 0 and at most 1",
            ),
            (
                r#"{"nodeConfigs": [{"name": "a", "degradeTimeMinutes": -1}]}"#,
                "line 1: nodeConfigs[0].degradeTimeMinutes: -1 is not allowed",
            ),
            (
                r#"{"nodeConfigs": [{"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]}"#,
                "line 1: nodeConfigs[0].nodeSelector",
            ),
        ] {
            let error = colocation_config(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn reservations_are_amounts_or_cpus() {
        for (text, want) in [
            (
                r#"{"resources": {"cpu": "2", "memory": "1Gi"}}"#,
                Ok(CpuMemory::new(2000, 1 << 30)),
            ),
            (
                r#"{"resources": {"cpu": "2"}, "reservedCPUs": "0-5"}"#,
                Ok(CpuMemory::new(6000, 0)),
            ),
            (
                r#"{"resources": {"cpu": "2"}, "applyPolicy": "ReservedCPUsOnly"}"#,
                Ok(CpuMemory::ZERO),
            ),
            (
                r#"{"resources": {"cpu": "-2"}}"#,
                Err("cpu of resources is `-2`"),
            ),
            (r#"{"reservedCPUs": "5-0"}"#, Err("is not a list of CPUs")),
            ("no", Err("line 1")),
        ] {
            match (node_reservation(text), want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{text}"),
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
