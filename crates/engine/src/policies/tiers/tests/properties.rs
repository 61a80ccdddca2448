//! Random nodes: what must hold for every plan, and that faults of the controller do not change where it ends.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use crate::testing::Dice;

/// More than any machine has: the largest amount that parsed objects contain.
const MOST: i64 = 1 << 50;

fn steps() -> usize {
    match std::env::var_os("TIDEPOOL_FULL").is_some() {
        true => 1_000_000,
        false => 100_000,
    }
}

/// All that a plan depends on, but the settings and the time.
#[derive(Debug, Clone)]
struct World {
    node: TierNodeObject,
    pods: Vec<TierPod>,
    metric: Option<NodeMetric>,
    report: Option<CustomNodeResource>,
    silent: bool,
    strategy: ColocationStrategy,
}

impl World {
    fn of(dice: &mut Dice) -> Self {
        let capacity = amount(dice);
        Self {
            node: TierNodeObject {
                capacity,
                allocatable: capacity,
                ..TierNodeObject::default()
            },
            pods: Vec::new(),
            metric: None,
            report: None,
            silent: false,
            strategy: ColocationStrategy::default(),
        }
    }

    fn observed(&self) -> TierNode<'_> {
        TierNode {
            capacity: self.node.capacity,
            allocatable: self.node.allocatable,
            reservation: self.node.reservation,
            pods: &self.pods,
            metric: self.metric.as_ref(),
            report: self.report.as_ref(),
            agent_silent: self.silent,
        }
    }

    fn plan(&self, published: &Published, written: Option<Timestamp>, now: Timestamp) -> TierPlan {
        plan(
            &self.observed(),
            &self.strategy,
            false,
            published,
            written,
            now,
        )
    }

    /// One random change.
    fn change(&mut self, dice: &mut Dice, now: Timestamp) {
        match dice.below(12) {
            0 => self.node.allocatable = amount(dice),
            1 => self.node.reservation = amount(dice),
            2 | 3 => self.pods.push(random_pod(dice)),
            4 | 5 if !self.pods.is_empty() => {
                let index = dice.below(self.pods.len() as i64) as usize;
                self.pods.swap_remove(index);
            }
            6 => self.report = (!dice.one_in(4)).then(|| random_report(dice)),
            7 => self.silent = dice.one_in(4),
            8 => self.strategy = random_strategy(dice),
            _ => self.metric = Some(random_metric(dice, &self.pods, now)),
        }
        // A node has a bounded number of pods.
        self.pods.truncate(50);
    }
}

/// Mostly those of a machine, sometimes nothing or the largest.
fn amount(dice: &mut Dice) -> CpuMemory {
    match dice.below(10) {
        0 => CpuMemory::ZERO,
        1 => CpuMemory::new(dice.below(MOST), dice.below(MOST)),
        _ => CpuMemory::new(dice.below(128_000), dice.below(1 << 39)),
    }
}

fn random_pod(dice: &mut Dice) -> TierPod {
    const CLASSES: [QosClass; 6] = [
        QosClass::System,
        QosClass::Online,
        QosClass::MidLatencySensitive,
        QosClass::MidBestEffort,
        QosClass::Lent,
        QosClass::Free,
    ];
    let class = CLASSES[dice.below(CLASSES.len() as i64) as usize];
    let zone = |dice: &mut Dice| ZoneSet::of(dice.below(4) as u8).unwrap();
    let mut found = TierPod {
        exclusive: dice.one_in(8),
        zones: match dice.one_in(8) {
            true => zone(dice).with(zone(dice)),
            false => ZoneSet::EMPTY,
        },
        active: !dice.one_in(8),
        ..pod(&dice.below(1 << 20).to_string(), class, CpuMemory::ZERO)
    };
    let requests = amount(dice);
    match class {
        QosClass::MidLatencySensitive | QosClass::MidBestEffort => found.mid = requests,
        QosClass::Lent if dice.one_in(2) => found.batch = requests,
        QosClass::Lent => found.reclaimed = requests,
        _ => found.native = requests,
    }
    found
}

/// The report of a node with up to three zones.
fn random_report(dice: &mut Dice) -> CustomNodeResource {
    let count = dice.below(4) as u8;
    let mut report = report(amount(dice));
    report.topology = Some(topology((0..count).map(|id| zone(id, amount(dice)))));
    report
}

fn random_metric(dice: &mut Dice, pods: &[TierPod], now: Timestamp) -> NodeMetric {
    let usage = |dice: &mut Dice, pod: &TierPod| PodUsage {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        band: PriorityBand::Prod,
        usage: amount(dice),
    };
    NodeMetric {
        updated: (!dice.one_in(10)).then_some(now),
        node_usage: (!dice.one_in(10)).then(|| amount(dice)),
        system_usage: amount(dice),
        host_applications: vec![(PriorityBand::Mid, amount(dice))],
        pods: pods.iter().map(|pod| usage(dice, pod)).collect(),
        prod_reclaimable: amount(dice),
    }
}

fn random_strategy(dice: &mut Dice) -> ColocationStrategy {
    use CalculatePolicy::{MaxUsageRequest, Request, Usage};
    let policies = [Usage, Request, MaxUsageRequest];
    let percent = |dice: &mut Dice| dice.below(101);
    // Above 100 the margin is negative; there is no upper bound.
    let most = |dice: &mut Dice| match dice.one_in(20) {
        true => i64::MAX,
        false => dice.below(201),
    };
    ColocationStrategy {
        enable: !dice.one_in(10),
        lend: [Lend::Shared, Lend::Batch, Lend::Reclaimed][dice.below(3) as usize],
        mid_formula: match dice.one_in(2) {
            true => MidFormula::Koordinator,
            false => MidFormula::Proposal,
        },
        mid_reclaim_mode: match dice.one_in(4) {
            true => MidReclaimMode::Static,
            false => MidReclaimMode::Predicted,
        },
        cpu_calculate_policy: policies[dice.below(3) as usize],
        memory_calculate_policy: policies[dice.below(3) as usize],
        cpu_reclaim_threshold_percent: most(dice),
        memory_reclaim_threshold_percent: most(dice),
        mid_cpu_threshold_percent: percent(dice),
        mid_memory_threshold_percent: percent(dice),
        mid_unallocated_percent: percent(dice),
        mid_static_cpu_reserved_percent: most(dice),
        mid_static_memory_reserved_percent: most(dice),
        batch_cpu_threshold_percent: dice.one_in(2).then(|| most(dice)),
        batch_memory_threshold_percent: dice.one_in(2).then(|| most(dice)),
        ..ColocationStrategy::default()
    }
}

/// What pods request of the four resources, added up here.
fn requested(pods: &[TierPod]) -> [i64; 4] {
    let mut sums = [0; 4];
    for pod in pods {
        let amounts = [
            pod.mid.milli_cpu,
            pod.mid.memory,
            pod.batch.milli_cpu,
            pod.batch.memory,
        ];
        for (sum, amount) in sums.iter_mut().zip(amounts) {
            *sum += amount;
        }
    }
    sums
}

#[test]
fn a_plan_is_the_formula_or_what_is_bound() {
    let mut dice = Dice(20);
    let mut world = World::of(&mut dice);
    let (mut published, mut written) = ([None; 4], None);
    let mut phases = [0_u32; 3];
    for step in 0..steps() {
        if dice.one_in(500) {
            world = World::of(&mut dice);
            published = [None; 4];
        }
        let now = Timestamp::from_secs(1_000_000 + 7 * step as i64);
        world.change(&mut dice, now);
        let plan = world.plan(&published, written, now);
        let bound = requested(&world.pods);
        assert_eq!(plan.bound, bound, "step {step}");
        phases[plan.phase as usize] += 1;
        match plan.phase {
            TierPhase::Current => {
                let metric = world.metric.as_ref().unwrap();
                let formula = capacities(&world.observed(), metric, &world.strategy, false);
                for (index, figure) in formula.iter().enumerate() {
                    let want = figure.value.max(0).max(bound[index]);
                    assert_eq!(plan.values[index], Some(want), "step {step}: {world:?}");
                    let shown = &plan.figures[index];
                    assert_eq!((shown.value, shown.recompute()), (want, want));
                }
                if let (Some(report), Lend::Shared) = (&world.report, world.strategy.lend) {
                    never_beyond(report.pool.unwrap(), &world.pods, &formula);
                }
            }
            TierPhase::Stale | TierPhase::Disabled => {
                for (value, bound) in plan.values.iter().zip(bound) {
                    assert_eq!(value.unwrap_or(0), bound, "step {step}: {world:?}");
                }
            }
        }
        if plan.write {
            (published, written) = (plan.values, Some(now));
        }
        // Whatever waits, a running pod fits.
        for (value, bound) in published.iter().zip(bound) {
            assert!(value.unwrap_or(0) >= bound, "step {step}: {published:?}");
        }
    }
    assert!(phases.iter().all(|count| *count > 1000), "{phases:?}");
}

/// The batch resources and what reclaimed pods request of the same pool.
fn never_beyond(pool: Reclaimed, pods: &[TierPod], formula: &[Figure; 4]) {
    let reclaimed: CpuMemory = pods.iter().map(|pod| pod.reclaimed).sum();
    let lent = CpuMemory::new(formula[2].value, formula[3].value);
    for (lent, reclaimed, pool) in [
        (lent.milli_cpu, reclaimed.milli_cpu, pool.milli_cpu),
        (lent.memory, reclaimed.memory, pool.memory),
    ] {
        assert!(lent == 0 || lent + reclaimed <= pool, "{formula:?}");
    }
}

/// Pods of both names fill a pool that is republished after each of them: together they never get more than there is.
#[test]
fn one_pool_is_never_lent_twice() {
    let mut dice = Dice(21);
    let now = Timestamp::from_secs(1000);
    for _ in 0..steps() / 30 {
        let mut world = World::of(&mut dice);
        world.metric = Some(random_metric(&mut dice, &[], now));
        world.metric.as_mut().unwrap().updated = Some(now);
        let pool = amount(&mut dice);
        world.report = Some(report(pool));
        for _ in 0..30 {
            let batch: CpuMemory = world.pods.iter().map(|pod| pod.batch).sum();
            let reclaimed: CpuMemory = world.pods.iter().map(|pod| pod.reclaimed).sum();
            let values = world.plan(&[None; 4], None, now).values;
            let mut job = pod("job", QosClass::Lent, CpuMemory::ZERO);
            let as_batch = dice.one_in(2);
            let room = match as_batch {
                true => CpuMemory::new(values[2].unwrap(), values[3].unwrap()).minus(batch),
                // As the agent publishes it: the pool less the requests of batch pods.
                false => pool.minus(batch).positive().minus(reclaimed),
            };
            let room = room.positive();
            let request =
                CpuMemory::new(dice.below(room.milli_cpu + 1), dice.below(room.memory + 1));
            match as_batch {
                true => job.batch = request,
                false => job.reclaimed = request,
            }
            world.pods.push(job);
            let lent: CpuMemory = world
                .pods
                .iter()
                .map(|it| it.batch.plus(it.reclaimed))
                .sum();
            assert_eq!(lent.max(pool), pool, "{:?}", world.pods);
        }
    }
}

/// A controller of one node that may see the world late, miss events, and crash.
struct Controller {
    /// What it sees: a world, and what is published.
    view: (World, Published),
    written: Option<Timestamp>,
    writes: Vec<i64>,
}

/// Faults of one run.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    /// Before or after this write the controller crashes and forgets what it knew.
    crash: Option<(usize, bool)>,
    /// Seconds by which its view is late.
    late: usize,
    /// Every so many events it misses one, until it lists all objects again.
    missed: Option<usize>,
}

/// An hour of changes by the second, and then twenty minutes without any but those of the metric's time. What is published at the
/// end, and the seconds of all writes.
fn run(seed: u64, faults: Faults) -> ([i64; 4], [i64; 4], Vec<i64>) {
    const CHANGES: i64 = 3600;
    const QUIET: i64 = 1200;
    const RELIST: i64 = 300;
    let mut dice = Dice(seed);
    let mut world = World::of(&mut dice);
    let mut published: Published = [None; 4];
    let mut controller = Controller {
        view: (world.clone(), published),
        written: None,
        writes: Vec::new(),
    };
    let mut events: VecDeque<(World, Published)> = VecDeque::new();
    for second in 0..CHANGES + QUIET {
        let now = Timestamp::from_secs(1_000_000 + second);
        if second < CHANGES && dice.one_in(20) {
            world.change(&mut dice, now);
        }
        if let Some(metric) = &mut world.metric
            && second >= CHANGES
            && second % 60 == 0
        {
            metric.updated = Some(now);
        }
        let is_missed = faults
            .missed
            .is_some_and(|every| !(second as usize).is_multiple_of(every));
        let is_listed = second % RELIST == 0;
        if !is_missed || is_listed {
            events.push_back((world.clone(), published));
        }
        while events.len() > faults.late + 1 {
            events.pop_front();
        }
        if let Some(seen) = events.front() {
            controller.view = seen.clone();
        }
        let (seen, seen_published) = &controller.view;
        let plan = seen.plan(seen_published, controller.written, now);
        if !plan.write {
            continue;
        }
        let crash = faults
            .crash
            .filter(|(at, _)| *at == controller.writes.len());
        controller.writes.push(second);
        if crash.is_none_or(|(_, after)| after) {
            published = plan.values;
            controller.written = Some(now);
        }
        if crash.is_some() {
            // The next one lists all objects.
            controller.written = None;
            events.clear();
        }
    }
    let end = Timestamp::from_secs(1_000_000 + CHANGES + QUIET);
    let want = world.plan(&published, None, end).values;
    // A stale node keeps the keys that it has: none and 0 lend the same.
    let lent = |values: Published| values.map(|value| value.unwrap_or(0));
    (lent(published), lent(want), controller.writes)
}

/// C1: a crash at each write, a view that is late by up to a minute, missed events.
#[test]
fn faults_do_not_change_where_a_node_ends() {
    let seeds = match std::env::var_os("TIDEPOOL_FULL").is_some() {
        true => 20,
        false => 2,
    };
    for seed in 1..=seeds {
        let (end, want, writes) = run(seed, Faults::default());
        assert_eq!(end, want, "seed {seed}");
        assert!(writes.len() > 10, "seed {seed}: {} writes", writes.len());
        let crashes = (0..writes.len()).flat_map(|at| [(at, false), (at, true)]);
        let crashes = crashes.map(|crash| Faults {
            crash: Some(crash),
            ..Faults::default()
        });
        let late = [1, 10, 60].map(|late| Faults {
            late,
            ..Faults::default()
        });
        let missed = [2, 7, 60].map(|every| Faults {
            missed: Some(every),
            ..Faults::default()
        });
        for faults in crashes.chain(late).chain(missed) {
            let (found, _, _) = run(seed, faults);
            assert_eq!(found, end, "seed {seed}, {faults:?}");
        }
    }
}

/// C2: use that changes by 20% at every report, and an idle pool that does so in between.
#[test]
fn noise_is_written_at_most_once_per_interval() {
    let mut dice = Dice(22);
    let noisy = |dice: &mut Dice, amount: i64| amount * (80 + dice.below(41)) / 100;
    let service = [pod("web", QosClass::Online, cores(60, 100))];
    let mut world = World {
        pods: service.to_vec(),
        report: Some(report(cores(30, 50))),
        ..World::of(&mut dice)
    };
    world.node.capacity = cores(100, 210);
    world.node.allocatable = cores(100, 210);
    let (mut published, mut written) = ([None; 4], None);
    let mut writes: Vec<i64> = Vec::new();
    for second in 0..24 * 3600 {
        let now = Timestamp::from_secs(1_000_000 + second);
        if second % 60 == 0 {
            let mut metric = metric(cores(0, 0), Some(cores(50, 100)));
            metric.updated = Some(now);
            metric.prod_reclaimable.milli_cpu = noisy(&mut dice, 20_000);
            metric.pods.push(PodUsage {
                namespace: "default".into(),
                name: "web".into(),
                band: PriorityBand::Prod,
                usage: CpuMemory::new(noisy(&mut dice, 40_000), 80 * G),
            });
            world.metric = Some(metric);
        }
        if second % 5 == 0 {
            let pool = CpuMemory::new(noisy(&mut dice, 30_000), 50 * G);
            world.report = Some(report(pool));
        }
        let plan = world.plan(&published, written, now);
        if plan.write {
            (published, written) = (plan.values, Some(now));
            writes.push(second);
        }
    }
    assert!(writes.len() > 100, "the noise is too small to be written");
    for pair in writes.windows(2) {
        let interval = Duration::from_secs((pair[1] - pair[0]).unsigned_abs());
        assert!(interval >= Duration::from_secs(10), "{pair:?}");
    }
}
