//! Predictions, suppression and evictions, against Koordinator's agent.

use anyhow::Result;
use engine::model::{QosClass, ReclaimedResource, Timestamp};
use engine::node::evict::{self, EvictionCandidate};
use engine::node::histogram::{Buckets, Histogram};
use engine::node::reclaimable::{Requester, by_class, by_pods};
use engine::node::suppress::{Processor, spread};
use engine::node::{CpuMemory, LocalPod};
use serde_json::{Map, Value, json};

use super::{Figure, NodeQuestion, fraction};
use crate::oracle::Oracle;
use crate::random::Random;
use crate::sample::Sample;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "histogram",
        generate: histogram,
        listed: &["no 100th percentile, which depends on the rounding of weights long decayed"],
    },
    Figure {
        name: "predictor",
        generate: predictor,
        listed: &[
            "a pod without a model needs all that it requests; upstream drops it from the request of the class, too",
        ],
    },
    Figure {
        name: "suppressed CPUs",
        generate: cpus,
        listed: &[
            "at least one CPU instead of two; increases to what was free for 10 s instead of a tenth of the CPUs per round",
        ],
    },
    Figure {
        name: "satisfaction",
        generate: satisfaction,
        listed: &["reclaimed and Mid+BE pods count as batch pods do"],
    },
    Figure {
        name: "victims",
        generate: victims,
        listed: &[
            "inside of a class by use against request before use, and by uid instead of name; Mid+LS pods go before Mid+BE pods; pods that use nothing stay",
        ],
    },
];

const MIB: i64 = 1 << 20;

pub(crate) fn compare(oracle: &mut Oracle, sample: &Sample) -> Result<bool> {
    super::compare("koordlet", FIGURES, oracle, sample, |answer| answer)
}

fn below(random: &mut Random, bound: i64) -> i64 {
    i64::try_from(random.below(usize::try_from(bound).unwrap_or(1))).unwrap_or(0)
}

fn histogram(random: &mut Random) -> NodeQuestion {
    let memory = random.chance(50);
    let buckets = match memory {
        true => Buckets::memory(),
        false => Buckets::cpu(),
    };
    let most = if memory { 4e11 } else { 200.0 };
    let mut built = Histogram::new(buckets);
    let mut second = 1_800_000_000 + below(random, 1_000_000);
    let mut samples = Vec::new();
    for _ in 0..random.between(0, 60) {
        // Sometimes so long that the reference moves.
        second += match random.chance(3) {
            true => 3600 * below(random, 3000),
            false => below(random, 7200),
        };
        let value = most * fraction(random, 0.0, 1.0).powi(4);
        samples.push(json!({"value": value, "second": second}));
        built.add(value, Timestamp::from_secs(second));
    }
    let percentiles = [0.0, 0.5, 0.6, 0.9, 0.95, 0.98];
    let values: Vec<f64> = percentiles.iter().map(|it| built.percentile(*it)).collect();
    let weights: Map<String, Value> = built
        .checkpoint()
        .weights
        .into_iter()
        .map(|(bucket, weight)| (bucket.to_string(), json!(weight)))
        .collect();
    NodeQuestion {
        asked: json!({"histogram": {"memory": memory, "samples": samples, "percentiles": percentiles}}),
        ours: json!({"values": values, "weights": weights}),
    }
}

fn predictor(random: &mut Random) -> NodeQuestion {
    let mut amounts =
        |cpu: i64, memory: i64| CpuMemory::new(below(random, cpu), below(random, memory) * MIB);
    let allocatable = amounts(64_000, 256 << 10);
    let (system, production, none) = (
        amounts(2000, 4096),
        amounts(16_000, 32_768),
        amounts(2000, 1024),
    );
    let pods: Vec<(CpuMemory, CpuMemory)> = (0..6)
        .map(|_| (amounts(16_000, 32_768), amounts(8000, 16_384)))
        .collect();
    let count = random.between(0, 6);
    let margin = random.one(&[0, 10, 25]);
    let pair = |amounts: CpuMemory| json!([amounts.milli_cpu, amounts.memory]);
    let (mut asked, mut requesters) = (Vec::new(), Vec::new());
    for (request, peak) in pods.into_iter().take(count) {
        let cold = random.chance(20);
        asked.push(json!({"request": pair(request), "peak": pair(peak), "cold": cold}));
        requesters.push(Requester {
            request,
            peak: (!cold).then_some(peak),
        });
    }
    let request = requesters.iter().map(|pod| pod.request).sum();
    let peaks = system.plus(production).plus(none);
    let by_pods = by_pods(&requesters, allocatable, margin).reclaimable;
    let by_class = by_class(request, peaks, allocatable, margin).reclaimable;
    let result = by_pods.min(by_class);
    NodeQuestion {
        asked: json!({"predictor": {
            "allocatable": pair(allocatable), "margin": margin, "system": pair(system),
            "production": pair(production), "none": pair(none), "pods": asked,
        }}),
        ours: json!({"amounts": [result.milli_cpu, result.memory]}),
    }
}

fn cpus(random: &mut Random) -> NodeQuestion {
    let (sockets, cores, threads) = (
        random.between(1, 2),
        random.between(1, 8),
        random.between(1, 2),
    );
    let numa_per_socket = random.between(1, 2);
    let is_adjacent = random.chance(50);
    let all = sockets * cores * threads;
    let mut processors = Vec::new();
    for socket in 0..sockets {
        for core in 0..cores {
            for thread in 0..threads {
                // Siblings are neighbours, or half of all CPUs apart.
                let core_id = socket * cores + core;
                let cpu = match is_adjacent {
                    true => core_id * threads + thread,
                    false => core_id + thread * (all / threads),
                };
                let number = |it: usize| u32::try_from(it).unwrap_or(0);
                processors.push(Processor {
                    cpu: number(cpu),
                    core: number(core_id),
                    socket: number(socket),
                    numa: number(socket * numa_per_socket + core * numa_per_socket / cores),
                });
            }
        }
    }
    // Some CPUs are reserved.
    let processors = random.several(&processors, 1.max(all / 2), all);
    let count = random.below(all + 2);
    let asked: Vec<Value> = processors
        .iter()
        .map(|it| json!({"cpu": it.cpu, "core": it.core, "socket": it.socket, "node": it.numa}))
        .collect();
    NodeQuestion {
        asked: json!({"cpus": {"count": count, "processors": asked}}),
        ours: json!({"amounts": spread(&processors, count)}),
    }
}

fn satisfaction(random: &mut Random) -> NodeQuestion {
    let (request, limit) = (below(random, 100_000), below(random, 64_000));
    let lower = 1 + below(random, 60);
    let upper = lower + below(random, 100 - lower);
    let release = evict::satisfaction_release(request, limit, lower, upper);
    NodeQuestion {
        asked: json!({"satisfaction": {"request": request, "limit": limit, "lower": lower, "upper": upper}}),
        ours: json!({"amounts": [release]}),
    }
}

/// Pods of the same request in each class, with different use.
fn victims(random: &mut Random) -> NodeQuestion {
    let capacity = (64 + below(random, 64)) * 1024 * MIB;
    let threshold = 60 + below(random, 30);
    let lower = threshold - 1 - below(random, 20);
    let used = capacity / 100 * (50 + below(random, 50)) + below(random, 1000);
    let percent = used * 100 / capacity;
    let mut pods = Vec::new();
    for i in 0..random.between(0, 12) {
        let (class, priority) = random.one(&[
            (QosClass::Free, 3500),
            (QosClass::Lent, 5500),
            (QosClass::MidBestEffort, 7500),
        ]);
        let used = CpuMemory::new(
            0,
            (1 + below(random, 4000)) * MIB + i64::try_from(i).unwrap_or(0),
        );
        let name = format!("p{i}");
        let pod = LocalPod {
            name: name.as_str().into(),
            uid: name.as_str().into(),
            class,
            ..LocalPod::default()
        };
        pods.push((pod, priority, used));
    }
    let mut candidates: Vec<EvictionCandidate<'_>> = pods
        .iter()
        .map(|(pod, _, used)| EvictionCandidate {
            pod,
            used: *used,
            request: CpuMemory::new(0, 1024 * MIB),
        })
        .collect();
    candidates.sort_by(|one, other| evict::order(one, other, ReclaimedResource::Memory));
    let release = evict::memory_release(used, capacity, lower);
    let mut released = 0;
    let mut names = Vec::new();
    for candidate in candidates {
        if percent < threshold || released >= release {
            break;
        }
        released += candidate.used.memory;
        names.push(candidate.pod.name.to_string());
    }
    let asked: Vec<Value> = pods
        .iter()
        .map(|(pod, priority, used)| json!({"name": &*pod.name, "priority": priority, "used": used.memory}))
        .collect();
    NodeQuestion {
        asked: json!({"victims": {
            "capacity": capacity, "used": used, "threshold": threshold, "lower": lower, "pods": asked,
        }}),
        ours: json!({"names": names}),
    }
}
