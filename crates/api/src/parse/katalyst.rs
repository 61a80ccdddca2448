//! Katalyst's annotations of pods, and its CustomNodeResources.
//!
//! Invalid settings are ignored with a warning; they never make an object invalid.

mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::cluster::CustomNodeResource;
use engine::model::{
    AuthorClaims, Effect, Enhancements, NUMA_ZONES, POLICY_UNIT, QosLevel, QosTaint, Quantity,
    RECLAIMED_GROUPS, Reclaimed, ReclaimedResource, Resource, Taint, ZoneSet,
};

pub(super) use engine::admission::keys::{LEVEL, MEMORY_ENHANCEMENT};

use super::{name, object};
use crate::wire::core;
use crate::wire::katalyst as wire;
use crate::wire::meta::ResourceList;

/// The only effect in the first version of the API; it applies to reclaimed pods.
const NO_RECLAIMED: &str = "NoScheduleForReclaimedTasks";

/// The QoS level in the annotations of a pod; labels are not used. Its author chooses it, and pays with the requests of that level.
pub(super) fn level(pod: &core::Pod, warnings: &mut Vec<String>) -> QosLevel {
    let Some(text) = pod.metadata.annotations.get(LEVEL) else {
        return QosLevel::default();
    };
    QosLevel::parse(text).unwrap_or_else(|error| {
        warnings.push(format!(
            "ignoring invalid annotation {LEVEL}: {error}; the pod counts as shared_cores"
        ));
        QosLevel::default()
    })
}

/// What the annotation `katalyst.kubewharf.io/memory_enhancement` requests. Its author may ask for zones, as for any capacity: a
/// scheduler gives them if they are free. The API server lets no user change it later (deploy/policies.yaml).
pub fn enhancements(annotation: Option<&str>, warnings: &mut Vec<String>) -> Enhancements {
    let Some(text) = annotation else {
        return Enhancements::default();
    };
    let given: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_else(|error| {
        warnings.push(format!(
            "ignoring invalid annotation {MEMORY_ENHANCEMENT}: must be a JSON object of strings: {error}"
        ));
        BTreeMap::new()
    });
    let mut flag = |name: &str| match &given.get(name)?[..] {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            warnings.push(format!(
                "ignoring {name} in annotation {MEMORY_ENHANCEMENT}: found `{other}`; use \"true\" or \"false\""
            ));
            None
        }
    };
    Enhancements {
        numa_binding: flag("numa_binding") == Some(true),
        numa_exclusive: flag("numa_exclusive"),
    }
}

/// What the author of a pod that has no node wrote into the scheduler's annotations.
pub(super) fn claims(pod: &core::Pod) -> AuthorClaims {
    let annotations = &pod.metadata.annotations;
    if annotations.is_empty() || !pod.spec.node_name.is_empty() {
        return AuthorClaims::default();
    }
    let zones = annotations.get(NUMA_ZONES);
    AuthorClaims {
        zones: zones.map(|text| ZoneSet::parse(text).unwrap_or_default()),
        unit: annotations.contains_key(POLICY_UNIT),
    }
}

/// The NUMA zones in the annotation of a bound pod. What is there before the pod is bound is not ours: see [`claims`]. After that
/// it is from the Binding, because users can neither write nor change it (deploy/policies.yaml). Of a cluster without that policy
/// no more is believed than the pod's request can need; the cluster's zones see to that.
pub(super) fn zones(pod: &core::Pod, warnings: &mut Vec<String>) -> Option<ZoneSet> {
    if pod.spec.node_name.is_empty() {
        return None;
    }
    let text = pod.metadata.annotations.get(NUMA_ZONES)?;
    let parsed = ZoneSet::parse(text);
    let warn = |error: &String| {
        warnings.push(format!("ignoring invalid annotation {NUMA_ZONES}: {error}"))
    };
    parsed.inspect_err(warn).ok()
}

/// Warns about a pod that wants NUMA zones and gets none because of its QoS level.
pub(super) fn warn_of_binding(pod: &engine::model::Pod, warnings: &mut Vec<String>) {
    if pod.enhancements.numa_binding && pod.numa_binding().is_none() {
        warnings.push(format!(
            "numa_binding in annotation {MEMORY_ENHANCEMENT} has no effect: it needs {LEVEL}: dedicated_cores, and no mid, batch, \
             reclaimed or free tier"
        ));
    }
}

/// Warns about a reclaimed pod that also requests native resources.
pub(super) fn warn_of_native_requests(pod: &engine::model::Pod, warnings: &mut Vec<String>) {
    let native = [Resource::Cpu, Resource::Memory];
    let wanted = native
        .iter()
        .filter(|resource| pod.requests.wanted.get(resource) > 0);
    let names: Vec<&str> = wanted.map(Resource::name).collect();
    if pod.is_reclaimed() && !names.is_empty() {
        warnings.push(format!(
            "a reclaimed_cores pod requests {}, which uses the capacity of the node, not its reclaimed resources; use {} \
             and {}",
            names.join(" and "),
            ReclaimedResource::Cpu.name(),
            ReclaimedResource::Memory.name(),
        ));
    }
}

/// Warns about a request whose name has the group of reclaimed resources but is none of them, probably misspelled.
pub(super) fn warn_of_unknown_requests(pod: &engine::model::Pod, warnings: &mut Vec<String>) {
    for (resource, _) in pod.requests.wanted.iter() {
        let group = resource.name().split_once('/').map(|(group, _)| group);
        let is_ours = group.is_some_and(|group| RECLAIMED_GROUPS.contains(&group));
        if is_ours && ReclaimedResource::of(resource).is_none() {
            warnings.push(format!(
                "the pod requests `{}`, which is not a reclaimed resource: QoSAwareNodeResourcesFit ignores it; use {} or {}",
                resource.name(),
                ReclaimedResource::Cpu.name(),
                ReclaimedResource::Memory.name(),
            ));
        }
    }
}

/// A CustomNodeResource, with warnings about its invalid parts.
pub fn custom_node_resource(
    report: &wire::CustomNodeResource,
) -> (CustomNodeResource, Vec<String>) {
    let mut warnings = Vec::new();
    let status = &report.status;
    let (field, list) = match (&status.resources.allocatable, &status.resource_allocatable) {
        (Some(list), _) => ("status.resources.allocatable", Some(list)),
        (None, list) => ("status.resourceAllocatable", list.as_ref()),
    };
    let mut amount = |resource| lent(list?, field, resource, &mut warnings);
    let milli_cpu = amount(ReclaimedResource::Cpu).unwrap_or(0);
    let memory = amount(ReclaimedResource::Memory).unwrap_or(0);
    let taints = report.spec.taints.iter().enumerate();
    let taints = taints.filter_map(|(i, taint)| qos_taint(i, taint, &mut warnings));
    let parsed = CustomNodeResource {
        node: name(&report.metadata.name),
        allocatable: Reclaimed::lent(milli_cpu, memory),
        pool: reclaimed_capacity(report),
        taints: taints.collect(),
        refuses_mid_latency_sensitive: report
            .status
            .conditions
            .iter()
            .any(|it| it.kind == "MidLSUnsupported" && it.status == "True"),
        topology: zones::topology(status, &mut warnings).map(Arc::new),
    };
    let whose = object("customnoderesource", &report.metadata);
    let warnings = warnings.into_iter().map(|text| format!("{whose}: {text}"));
    (parsed, warnings.collect())
}

/// The capacity that a CustomNodeResource reports: the whole idle pool. None if it reports none.
fn reclaimed_capacity(report: &wire::CustomNodeResource) -> Option<Reclaimed> {
    let status = &report.status;
    let capacity = status.resources.capacity.as_ref();
    let list = capacity.or(status.resource_capacity.as_ref())?;
    // Warnings are about what the scheduler uses.
    let amount = |resource| lent(list, "status", resource, &mut Vec::new());
    let (cpu, memory) = (
        amount(ReclaimedResource::Cpu),
        amount(ReclaimedResource::Memory),
    );
    (cpu.is_some() || memory.is_some())
        .then(|| Reclaimed::lent(cpu.unwrap_or(0), memory.unwrap_or(0)))
}

/// An amount under the current name or else the older one; `None` if there is none.
fn lent(
    list: &ResourceList,
    field: &str,
    resource: ReclaimedResource,
    warnings: &mut Vec<String>,
) -> Option<i64> {
    let (_, short) = resource.name().split_once('/')?;
    let names = RECLAIMED_GROUPS.map(|group| format!("{group}/{short}"));
    let (name, text) = names
        .iter()
        .find_map(|name| Some((name, list.get(name)?)))?;
    let mut warn =
        |problem: String| warnings.push(format!("{name} of {field} is `{}`: {problem}", text.0));
    let amount = match Quantity::parse(&text.0) {
        Ok(quantity) => quantity.units(),
        Err(error) => {
            warn(format!("{error}; using 0"));
            return Some(0);
        }
    };
    let counts = Reclaimed::lent(amount, 0).milli_cpu;
    if counts != amount {
        warn(format!("using {counts}"));
    }
    Some(counts)
}

fn qos_taint(i: usize, taint: &wire::QosTaint, warnings: &mut Vec<String>) -> Option<QosTaint> {
    let mut warn = |field: &str, found: &str, allowed: &str| {
        warnings.push(format!(
            "ignoring spec.taints[{i}]: {field} is `{found}`: use {allowed}"
        ));
    };
    let effect = match &taint.effect[..] {
        NO_RECLAIMED => Effect::NoSchedule,
        other => match Effect::parse(other) {
            Effect::Other(_) => {
                let allowed =
                    "NoSchedule, PreferNoSchedule, NoExecute or NoScheduleForReclaimedTasks";
                warn("effect", other, allowed);
                return None;
            }
            effect => effect,
        },
    };
    // A taint without a level never applies to online pods.
    let level = match &taint.qos_level[..] {
        "" => QosLevel::Reclaimed,
        _ if taint.effect == NO_RECLAIMED => QosLevel::Reclaimed,
        other => match QosLevel::parse(other) {
            Ok(level) => level,
            Err(_) => {
                let allowed = "system_cores, dedicated_cores, shared_cores or reclaimed_cores";
                warn("qosLevel", other, allowed);
                return None;
            }
        },
    };
    Some(QosTaint {
        taint: Taint {
            key: name(&taint.key),
            value: name(&taint.value),
            effect,
        },
        level,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> (CustomNodeResource, Vec<String>) {
        custom_node_resource(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn either_layout_and_either_name_counts_once() {
        const NEW: &str = "resource.katalyst.kubewharf.io";
        const OLD: &str = "katalyst.kubewharf.io";
        let list = |group: &str, cpu: &str, memory: &str| {
            format!(r#""{group}/reclaimed_millicpu":{cpu},"{group}/reclaimed_memory":{memory}"#)
        };
        let today = |list: &str| format!(r#""resources":{{"allocatable":{{{list}}}}}"#);
        let design = |list: &str| format!(r#""resourceAllocatable":{{{list}}}"#);
        let new = list(NEW, r#""40k""#, r#""100Gi""#);
        let old = list(OLD, "7", r#""9""#);
        for (case, status, want) in [
            ("current layout", today(&new), (40_000, 100 << 30)),
            ("older layout", design(&old), (7, 9)),
            ("older names in the current layout", today(&old), (7, 9)),
            (
                "both names",
                today(&format!("{old},{new}")),
                (40_000, 100 << 30),
            ),
            (
                "both layouts",
                format!("{},{}", design(&old), today(&new)),
                (40_000, 100 << 30),
            ),
            (
                "an empty list in the current layout",
                format!("{},{}", design(&old), today("")),
                (0, 0),
            ),
            (
                "the current layout without a list",
                format!(r#"{},"resources":{{"capacity":{{}}}}"#, design(&old)),
                (7, 9),
            ),
            ("nothing", r#""resources":null"#.to_owned(), (0, 0)),
            (
                "other resources",
                today(r#""cpu":"4","katalyst.kubewharf.io/net_bandwidth":"5""#),
                (0, 0),
            ),
        ] {
            let (report, warnings) = parsed(&format!(
                r#"{{"metadata":{{"name":"n"}},"status":{{{status}}}}}"#
            ));
            let found = report.allocatable;
            assert_eq!((found.milli_cpu, found.memory), want, "{case}");
            assert_eq!(warnings, Vec::<String>::new(), "{case}");
        }
    }

    #[test]
    fn amounts_that_make_no_sense() {
        let (report, warnings) = parsed(
            r#"{"metadata":{"name":"n"},"status":{"resources":{"allocatable":{
            "resource.katalyst.kubewharf.io/reclaimed_millicpu":"-5","resource.katalyst.kubewharf.io/reclaimed_memory":"8Ei"}}}}"#,
        );
        assert_eq!(
            (report.allocatable.milli_cpu, report.allocatable.memory),
            (0, 1 << 50)
        );
        assert_eq!(
            warnings,
            [
                "customnoderesource n: resource.katalyst.kubewharf.io/reclaimed_millicpu of status.resources.allocatable \
                 is `-5`: using 0",
                "customnoderesource n: resource.katalyst.kubewharf.io/reclaimed_memory of status.resources.allocatable \
                 is `8Ei`: using 1125899906842624",
            ]
        );
        let (report, warnings) = parsed(
            r#"{"metadata":{"name":"n"},"status":{"resourceAllocatable":{"katalyst.kubewharf.io/reclaimed_memory":"much"}}}"#,
        );
        assert_eq!(report.allocatable, Reclaimed::default());
        assert!(warnings[0].contains("is `much`: "), "{warnings:?}");
    }

    #[test]
    fn taints_of_both_forms() {
        let (report, warnings) = parsed(
            r#"{"metadata":{"name":"n"},"spec":{"taints":[
            {"key":"a","effect":"NoScheduleForReclaimedTasks"},
            {"key":"b","value":"v","effect":"PreferNoSchedule","qosLevel":"shared_cores"},
            {"key":"c","effect":"NoExecute"},
            {"key":"d","effect":"Never","qosLevel":"reclaimed_cores"},
            {"key":"e","effect":"NoSchedule","qosLevel":"gold"}]}}"#,
        );
        let found: Vec<(&str, &str, &Effect, QosLevel)> = report
            .taints
            .iter()
            .map(|t| (&*t.taint.key, &*t.taint.value, &t.taint.effect, t.level))
            .collect();
        assert_eq!(
            found,
            [
                ("a", "", &Effect::NoSchedule, QosLevel::Reclaimed),
                ("b", "v", &Effect::PreferNoSchedule, QosLevel::Shared),
                ("c", "", &Effect::NoExecute, QosLevel::Reclaimed),
            ]
        );
        assert_eq!(
            warnings,
            [
                "customnoderesource n: ignoring spec.taints[3]: effect is `Never`: use NoSchedule, \
                 PreferNoSchedule, NoExecute or NoScheduleForReclaimedTasks",
                "customnoderesource n: ignoring spec.taints[4]: qosLevel is `gold`: use system_cores, \
                 dedicated_cores, shared_cores or reclaimed_cores",
            ]
        );
    }
}
