//! Katalyst's settings of reclaimed resources: the fields of `reclaimedResourceConfig` of an AdminQoSConfiguration.

use engine::model::{Quantity, Resource};
use engine::node::CpuMemory;
use engine::node::settings::ReclaimSettings;
use serde::Deserialize;

use super::Faults;

/// Fields for pools of CPUs that the agent does not have are read and have no effect.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ReclaimConfig {
    enable_reclaim: Option<bool>,
    disable_reclaim_share_pools: Vec<String>,
    reserved_resource_for_report: Quantities,
    min_reclaimed_resource_for_report: Quantities,
    min_ignored_reclaimed_resource_for_report: Quantities,
    reserved_resource_for_allocate: Quantities,
    min_reclaimed_resource_for_allocate: Quantities,
    numa_min_reclaimed_resource_ratio_for_allocate: Quantities,
    numa_min_reclaimed_resource_for_allocate: Quantities,
    allow_shared_cores_overlap_reclaimed_cores: Option<bool>,
    cpu_headroom_config: CpuHeadroom,
    memory_headroom_config: MemoryHeadroom,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Quantities {
    cpu: Option<QuantityText>,
    memory: Option<QuantityText>,
}

/// A quantity as text or as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum QuantityText {
    Text(String),
    Whole(i64),
    Fraction(f64),
}

impl QuantityText {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(number) => number.to_string(),
            Self::Fraction(number) => number.to_string(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CpuHeadroom {
    util_based_config: CpuUtilConfig,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CpuUtilConfig {
    enable: Option<bool>,
    target_reclaimed_core_utilization: Option<f64>,
    max_reclaimed_core_utilization: Option<f64>,
    max_oversold_rate: Option<f64>,
    max_headroom_capacity_rate: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MemoryHeadroom {
    util_based_config: MemoryUtilConfig,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MemoryUtilConfig {
    enable: Option<bool>,
    free_based_ratio: Option<f64>,
    static_based_capacity: Option<f64>,
    cache_based_ratio: Option<f64>,
    request_based_ratio: Option<f64>,
    max_oversold_rate: Option<f64>,
}

pub(super) fn read(text: &str, settings: &mut ReclaimSettings, faults: &mut Faults) {
    let config: ReclaimConfig = faults.decode(text, true);
    if let Some(enable) = config.enable_reclaim {
        settings.enable = enable;
    }
    let mut amounts = |to: CpuMemory, found: &Quantities, field: &str| CpuMemory {
        milli_cpu: amount(to.milli_cpu, &found.cpu, Resource::Cpu, field, faults),
        memory: amount(to.memory, &found.memory, Resource::Memory, field, faults),
    };
    settings.reserved_for_report = amounts(
        settings.reserved_for_report,
        &config.reserved_resource_for_report,
        "reservedResourceForReport",
    );
    settings.min_for_report = amounts(
        settings.min_for_report,
        &config.min_reclaimed_resource_for_report,
        "minReclaimedResourceForReport",
    );
    settings.min_ignored_for_report = amounts(
        settings.min_ignored_for_report,
        &config.min_ignored_reclaimed_resource_for_report,
        "minIgnoredReclaimedResourceForReport",
    );
    let reserve = &config.reserved_resource_for_allocate;
    if reserve.cpu.is_some() || reserve.memory.is_some() {
        let katalyst = CpuMemory::new(4000, 5 << 30);
        let reserve = amounts(katalyst, reserve, "reservedResourceForAllocate");
        settings.reserved_for_allocate = Some(reserve);
    }
    let mut ratio = |to: &mut f64, found: Option<f64>, field: &str, most: f64| {
        let Some(found) = found else { return };
        if (0.0..=most).contains(&found) {
            *to = found;
        } else {
            faults.invalid(field.to_owned(), found, format_args!("0 to {most}"));
        }
    };
    let (cpu, found) = (
        &mut settings.cpu,
        &config.cpu_headroom_config.util_based_config,
    );
    let path = "cpuHeadroomConfig.utilBasedConfig";
    cpu.enable = found.enable.unwrap_or(cpu.enable);
    for (to, found, field, most) in [
        (
            &mut cpu.target,
            found.target_reclaimed_core_utilization,
            "targetReclaimedCoreUtilization",
            1.0,
        ),
        (
            &mut cpu.max,
            found.max_reclaimed_core_utilization,
            "maxReclaimedCoreUtilization",
            1.0,
        ),
        (
            &mut cpu.max_oversold_rate,
            found.max_oversold_rate,
            "maxOversoldRate",
            10.0,
        ),
        (
            &mut cpu.max_capacity_rate,
            found.max_headroom_capacity_rate,
            "maxHeadroomCapacityRate",
            10.0,
        ),
    ] {
        ratio(to, found, &format!("{path}.{field}"), most);
    }
    let found = &config.memory_headroom_config.util_based_config;
    let path = "memoryHeadroomConfig.utilBasedConfig";
    let memory = &mut settings.memory;
    memory.enable = found.enable.unwrap_or(memory.enable);
    let mut capacity = memory.static_based_capacity as f64;
    for (to, found, field, most) in [
        (
            &mut memory.free_based_ratio,
            found.free_based_ratio,
            "freeBasedRatio",
            1.0,
        ),
        (
            &mut memory.cache_based_ratio,
            found.cache_based_ratio,
            "cacheBasedRatio",
            1.0,
        ),
        (
            &mut memory.max_oversold_rate,
            found.max_oversold_rate,
            "maxOversoldRate",
            10.0,
        ),
        (
            &mut capacity,
            found.static_based_capacity,
            "staticBasedCapacity",
            1e15,
        ),
    ] {
        ratio(to, found, &format!("{path}.{field}"), most);
    }
    memory.static_based_capacity = capacity as i64;
}

fn amount(
    default: i64,
    found: &Option<QuantityText>,
    resource: Resource,
    field: &str,
    faults: &mut Faults,
) -> i64 {
    let Some(found) = found else {
        return default;
    };
    let text = found.text();
    let path = format!("{field}.{}", resource.name());
    match Quantity::parse(&text) {
        Ok(quantity) if resource.integer(quantity) >= 0 => resource.integer(quantity),
        Ok(_) => {
            faults.invalid(path, format_args!("`{text}`"), "a quantity of 0 or more");
            default
        }
        Err(error) => {
            faults.invalid(
                path,
                format_args!("`{text}` ({error})"),
                "a quantity such as 4 or 5Gi",
            );
            default
        }
    }
}
