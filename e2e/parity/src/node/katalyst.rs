//! Headroom and its parts, against Katalyst's agent.

use std::time::Duration;

use anyhow::Result;
use engine::model::Timestamp;
use engine::node::headroom::{
    MemorySupply, by_utilization, container_cpu, container_memory, memory,
};
use engine::node::settings::{
    Aggregation, CpuUtilization, MemoryUtilization, ReclaimSettings, Smoothing,
};
use engine::node::window::{SmoothWindow, limited_step};
use serde_json::{Value, json};

use super::{Figure, NodeQuestion, fraction};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::sample::Sample;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "capacity by utilisation",
        generate: utilization,
        listed: &["a supply of 0 gives no headroom"],
    },
    Figure {
        name: "smoothed series",
        generate: window,
        listed: &["the agent limits the steps of increases only; a decrease is reported at once"],
    },
    Figure {
        name: "CPU of containers",
        generate: cpu,
        listed: &[
            "the agent counts a pod that uses nothing as 0 instead of its request or 4 cores, and has no load of containers",
        ],
    },
    Figure {
        name: "memory of containers",
        generate: container,
        listed: &["the agent counts a pod that is not measured by its request instead of 8 GiB"],
    },
    Figure {
        name: "memory headroom",
        generate: headroom,
        listed: &["the agent bounds the result by what memory eviction leaves to lent pods"],
    },
];

const FALLBACK_CPU: f64 = 4.0;
const FALLBACK_MEMORY: f64 = (8_u64 << 30) as f64;
const GIB: f64 = (1_u64 << 30) as f64;

pub(crate) fn compare(oracle: &mut Oracle, sample: &Sample) -> Result<bool> {
    super::compare("katalyst", FIGURES, oracle, sample, |verdicts| {
        verdicts["node"].clone()
    })
}

fn utilization(random: &mut Random) -> NodeQuestion {
    let settings = CpuUtilization {
        enable: true,
        target: fraction(random, 0.0, 1.0),
        max: random.one(&[0.0, 0.5, 0.8, 1.0]),
        max_oversold_rate: random.one(&[0.0, 0.8, 1.0, 1.2, 2.0]),
        max_capacity_rate: 1.0,
    };
    let supply = fraction(random, 0.5, 100.0);
    let used = fraction(random, 0.0, 1.5);
    let last = fraction(random, 0.0, 150.0);
    let most = random.one(&[0.0, 40.0, 96.0]);
    let value = by_utilization(&settings, supply, used, last, most);
    NodeQuestion {
        asked: json!({"node": {"utilization": {
            "target": settings.target, "max": settings.max, "rate": settings.max_oversold_rate,
            "most": most, "supply": supply, "utilization": used, "last": last,
        }}}),
        ours: json!({"value": value}),
    }
}

fn window(random: &mut Random) -> NodeQuestion {
    let percentile = random.chance(50).then(|| fraction(random, 0.0, 100.0));
    let settings = Smoothing {
        period: Duration::from_secs(30),
        samples: random.between(1, 6),
        ttl: Duration::from_secs(3600),
        aggregation: percentile.map_or(Aggregation::Average, Aggregation::Percentile),
        ..ReclaimSettings::default().smoothing
    };
    let (min_step, max_step) = (
        random.one(&[0, 300, 1000]),
        random.one(&[1000, 4000, 50_000]),
    );
    let mut window = SmoothWindow::default();
    let mut last = None;
    let (mut values, mut results) = (Vec::new(), Vec::new());
    for i in 0..random.between(1, 20) {
        // Whole cores, so that the mean has no more digits than a float.
        let value = 1000 * i64::try_from(random.below(40)).unwrap_or(0);
        values.push(value);
        let now = Timestamp::from_secs(i64::try_from(i).unwrap_or(0) * 30);
        let smooth = window.push(value, now, &settings);
        last = smooth.map(|smooth| limited_step(last, smooth, min_step, max_step));
        results.push(last);
    }
    NodeQuestion {
        asked: json!({"node": {"window": {
            "values": values, "samples": settings.samples, "percentile": percentile,
            "minStep": min_step, "maxStep": max_step,
        }}}),
        ours: json!({"value": 0, "values": results}),
    }
}

/// Three metrics, some of which are not measured, and a request.
fn measured(random: &mut Random, most: f64) -> ([f64; 3], f64) {
    let mut metric = || match random.chance(25) {
        true => 0.0,
        false => fraction(random, 0.0, most),
    };
    ([metric(), metric(), metric()], metric())
}

fn cpu(random: &mut Random) -> NodeQuestion {
    let (metrics, request) = measured(random, 16.0);
    let enabled = random.chance(80);
    let level = random.one(&["shared_cores", "dedicated_cores"]);
    NodeQuestion {
        asked: json!({"node": {"cpu": {"metrics": metrics, "request": request, "enabled": enabled, "level": level}}}),
        ours: json!({"value": container_cpu(metrics, request, enabled, FALLBACK_CPU)}),
    }
}

fn container(random: &mut Random) -> NodeQuestion {
    let (metrics, request) = measured(random, 16.0 * GIB);
    let enabled = random.chance(80);
    let level = random.one(&["shared_cores", "dedicated_cores", "system_cores"]);
    let is_system = level == "system_cores";
    let value = container_memory(metrics, request, enabled, is_system, FALLBACK_MEMORY);
    NodeQuestion {
        asked: json!({"node": {"memory": {"metrics": metrics, "request": request, "enabled": enabled, "level": level}}}),
        ours: json!({"value": value}),
    }
}

fn headroom(random: &mut Random) -> NodeQuestion {
    let whole = |value: f64| value.trunc();
    let mut containers: Vec<Value> = Vec::new();
    let mut supply = MemorySupply::default();
    for _ in 0..random.between(0, 6) {
        let (metrics, request) = measured(random, 16.0 * GIB);
        let metrics = metrics.map(whole);
        let level = random.one(&[
            "shared_cores",
            "dedicated_cores",
            "system_cores",
            "reclaimed_cores",
        ]);
        containers.push(json!({"metrics": metrics, "request": whole(request), "level": level}));
        let is_system = level == "system_cores";
        if level == "reclaimed_cores" {
            continue;
        }
        supply.estimate += container_memory(metrics, request, true, is_system, FALLBACK_MEMORY);
        match is_system {
            true => supply.system_cache += metrics[1] + metrics[2],
            false => supply.used_by_online += metrics.iter().sum::<f64>(),
        }
    }
    supply.total = whole(fraction(random, 32.0 * GIB, 512.0 * GIB));
    supply.free = whole(fraction(random, 0.0, supply.total));
    supply.used = whole(fraction(random, 0.0, supply.total - supply.free));
    supply.upper_bound = supply.total;
    supply.reserve = random.one(&[0.0, 5.0, 20.0]) * GIB;
    let cores = random.between(4, 128);
    supply.cores_per_gib = cores as f64 / (supply.total / 1024.0 / 1024.0 / 1024.0);
    let settings = MemoryUtilization {
        enable: random.chance(70),
        free_based_ratio: fraction(random, 0.0, 1.0),
        static_based_capacity: random.one(&[0, 20 << 30]),
        cache_based_ratio: random.one(&[0.0, 0.0, 0.4, 0.8]),
        max_oversold_rate: 2.0,
        watermark_scale_factor: random.one(&[10, 100, 500]),
    };
    let value = whole(memory(&settings, supply));
    NodeQuestion {
        asked: json!({"node": {"headroom": {
            "containers": containers, "total": supply.total, "free": supply.free, "used": supply.used,
            "scaleFactor": settings.watermark_scale_factor, "upperBound": supply.upper_bound,
            "reserve": supply.reserve, "enable": settings.enable, "freeRatio": settings.free_based_ratio,
            "cacheRatio": settings.cache_based_ratio, "static": settings.static_based_capacity,
            "cores": cores, "capacity": supply.total as u64,
            "ratioLowerBound": 1.0 / 6.0, "ratioUpperBound": 1.0 / 3.5,
        }}}),
        ours: json!({"value": value}),
    }
}
