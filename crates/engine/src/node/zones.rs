//! The pool by NUMA node.

use std::collections::BTreeMap;

use super::terms::CpuMemory;
use super::{NodeSample, NumaUse};

/// Divides the pool by what is free on each NUMA node. The parts add up to the whole.
pub fn divide(pool: CpuMemory, sample: &NodeSample) -> BTreeMap<u32, CpuMemory> {
    let free_cpu = |numa: &NumaUse| {
        let cpus = 1000 * i64::try_from(numa.cpus.0.len()).unwrap_or(0);
        let used = numa.cpu.map_or(0, |cpu| cpu.0 / 1_000_000);
        cpus.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX))
            .max(0)
    };
    let free_memory = |numa: &NumaUse| {
        let free = numa.memory_free.or(numa.memory_total).map_or(0, |it| it.0);
        i64::try_from(free).unwrap_or(i64::MAX)
    };
    let cpu = shares(pool.milli_cpu, sample.numa.values().map(free_cpu).collect());
    let memory = shares(pool.memory, sample.numa.values().map(free_memory).collect());
    let numbers = sample.numa.keys().copied();
    let parts = cpu.into_iter().zip(memory);
    numbers
        .zip(parts.map(|(milli_cpu, memory)| CpuMemory { milli_cpu, memory }))
        .collect()
}

/// Integer parts in proportion to the weights; the remainder goes to the first ones.
fn shares(whole: i64, weights: Vec<i64>) -> Vec<i64> {
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let weights = match sum {
        0 => vec![1; weights.len()],
        _ => weights,
    };
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let mut parts: Vec<i64> = weights
        .iter()
        .map(|weight| {
            let part = i128::from(whole) * i128::from(*weight) / sum.max(1);
            i64::try_from(part).unwrap_or(0)
        })
        .collect();
    let mut rest = whole - parts.iter().sum::<i64>();
    for part in &mut parts {
        let one = rest.signum();
        *part += one;
        rest -= one;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        for (whole, weights, want) in [
            (0, vec![1, 1], vec![0, 0]),
            (7, vec![1, 1], vec![4, 3]),
            (1000, vec![3000, 1000], vec![750, 250]),
            (5, vec![0, 0], vec![3, 2]),
            (i64::MAX, vec![i64::MAX, 0], vec![i64::MAX, 0]),
            (9, vec![0, 10], vec![0, 9]),
        ] {
            assert_eq!(shares(whole, weights.clone()), want, "{whole} {weights:?}");
        }
        assert!(shares(5, Vec::new()).is_empty());
    }
}
