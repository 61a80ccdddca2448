//! Random clusters with noise: the limits hold, nothing is moved twice, the moves end, and the order of objects is free.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::scheduling::hooks::Hooks;
use crate::scheduling::scheduler::Cycle;
use crate::testing::Dice;

const ROUNDS: i64 = 240;

fn clusters() -> u64 {
    match std::env::var_os("TIDEPOOL_FULL").is_some() {
        true => 1_000,
        false => 20,
    }
}

/// The mean use of a pod, and which workload it is of. The uid is the name.
#[derive(Clone)]
struct Load {
    builder: PodBuilder,
    owner: String,
    mean: CpuMemory,
}

struct Simulation {
    world: World,
    pods: BTreeMap<String, Load>,
    /// The use of services on each node.
    base: BTreeMap<Name, CpuMemory>,
    dice: Dice,
    /// Second and workload of each move.
    moves: Vec<(i64, String, QosClass)>,
    /// When the pod that a pod replaces was moved, by uid.
    pods_moved: BTreeMap<Name, i64>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let nodes: Vec<String> = (0..4 + dice.below(6)).map(|it| format!("n{it}")).collect();
        let mut world = World::new(&[]);
        let (mut base, mut pods) = (BTreeMap::new(), BTreeMap::new());
        for (index, node) in nodes.iter().enumerate() {
            let is_busy = index < nodes.len() / 3 + 1;
            // What services use, a node does not lend.
            let lends = if is_busy { 4 } else { 10 };
            world.add_lender(crate::testing::node(node).with_reservation(), lends);
            let cpu = if is_busy { 5500 } else { 500 } + dice.below(2000);
            base.insert(
                node.as_str().into(),
                CpuMemory::new(cpu, dice.below(3 * GIB)),
            );
            for number in 0..dice.below(8) {
                let name = format!("{node}-{number}");
                let builder = match dice.below(5) {
                    0 => owned(&name, QosClass::Free, ""),
                    1 => batch(&name),
                    2 => reclaimed(&name),
                    3 => mid(&name, QosClass::MidLatencySensitive),
                    _ => mid(&name, QosClass::MidBestEffort),
                };
                let owner = format!("set{}", dice.below(6));
                let builder = builder.owned_by("ReplicaSet", &owner).on(node);
                let mean = CpuMemory::new(dice.below(900), dice.below(GIB));
                world.apply(builder.build());
                pods.insert(
                    name,
                    Load {
                        builder,
                        owner,
                        mean,
                    },
                );
            }
        }
        Self {
            world,
            pods,
            base,
            dice,
            moves: Vec::new(),
            pods_moved: BTreeMap::new(),
        }
    }

    /// All metrics, with so much noise in percent.
    fn measure(&mut self, noise: i64) {
        let dice = &mut self.dice;
        let mut noisy = |mean: CpuMemory| {
            let percent = 100 - noise + dice.below(2 * noise + 1);
            let of = |mean: i64| mean * percent / 100;
            CpuMemory::new(of(mean.milli_cpu), of(mean.memory))
        };
        for (node, metric) in &mut self.world.metrics {
            let placed = self.world.cluster.all_placed();
            let here = placed.filter(|it| it.node == *node);
            metric.pods = here
                .map(|it| PodUsage {
                    namespace: it.pod.namespace().clone(),
                    name: it.pod.name.clone(),
                    band: PriorityBand::Batch,
                    usage: noisy(self.pods[&*it.pod.name].mean),
                })
                .collect();
            let pods: CpuMemory = metric.pods.iter().map(|it| it.usage).sum();
            metric.node_usage = Some(pods.plus(noisy(self.base[node])));
        }
    }

    /// The pod ends, and its workload creates another one, which the scheduler places.
    fn carry_out(&mut self, moved: &HotSpotMove) {
        let now = 60 * self.world.minute;
        let mut load = self.pods.remove(&*moved.name).unwrap();
        self.world.cluster.remove_pod(&moved.uid).unwrap();
        let name = format!("{}-moved", moved.name);
        let renamed = |pod: &mut Pod| {
            (pod.name, pod.uid) = (name.as_str().into(), name.as_str().into());
            (pod.node, pod.created) = (None, at(now + 1));
        };
        load.builder = load.builder.with(renamed);
        let waiting = load.builder.build();
        let (hooks, profile) = (Hooks::default(), profile());
        let mut cycle = Cycle::new(&self.world.cluster, &profile, &waiting, &hooks, at(now));
        let slot = cycle.choices().unwrap()[0];
        let node = self.world.cluster.nodes().get(slot).unwrap();
        let node = node.node.spec.name.clone();
        load.builder = load.builder.on(&node);
        let bound = load.builder.build();
        self.world.cluster.set_pod(bound).unwrap();
        self.moves.push((now, load.owner.clone(), moved.class));
        self.pods_moved.insert(name.as_str().into(), now);
        self.pods.insert(name, load);
    }

    /// The moves of the last so many seconds.
    fn since(&self, seconds: i64) -> impl Iterator<Item = &(i64, String, QosClass)> {
        let from = 60 * self.world.minute - seconds;
        self.moves.iter().filter(move |(at, ..)| *at > from)
    }

    fn check_limits(&self, seed: u64) {
        assert!(self.since(60).count() <= 10, "seed {seed}");
        let mut workloads = BTreeSet::new();
        for (_, owner, _) in self.since(300) {
            assert!(
                workloads.insert(owner),
                "seed {seed}: {owner} twice in 5 min"
            );
        }
    }

    fn check_moves(&self, plan: &HotSpotPlan, seed: u64) {
        for moved in &plan.moves {
            let moved_before = self.pods_moved.get(&moved.uid).copied();
            let long_ago = 60 * self.world.minute - 3600;
            assert!(
                moved_before.is_none_or(|at| at <= long_ago),
                "seed {seed}: {moved:?}"
            );
            let high = self.world.settings.high;
            let is_below =
                moved.to_percent.cpu <= high.cpu && moved.to_percent.memory <= high.memory;
            assert!(is_below && moved.to != moved.from, "seed {seed}: {moved:?}");
            let of_node = plan.moves.iter().filter(|it| it.from == moved.from);
            assert!(of_node.count() <= 2, "seed {seed}");
        }
    }
}

#[test]
fn limits_hold_with_noise_and_the_moves_end() {
    let mut moved = 0;
    for seed in 0..clusters() {
        for noise in [0, 20] {
            let mut simulation = Simulation::new(seed);
            let mut last = 0;
            for round in 0..ROUNDS {
                simulation.measure(noise);
                let plan = simulation.world.round();
                simulation.check_moves(&plan, seed);
                plan.moves.iter().for_each(|it| simulation.carry_out(it));
                simulation.check_limits(seed);
                if !plan.moves.is_empty() {
                    last = round;
                }
                simulation.world.cluster.check().unwrap();
            }
            moved += simulation.moves.len();
            let ends = noise > 0 || last < ROUNDS - 70;
            assert!(ends, "seed {seed}: moves in round {last}");
        }
    }
    assert!(moved > 100, "{moved}");
}

#[test]
fn mid_best_effort_pods_of_a_workload_wait_ten_minutes() {
    for seed in 0..clusters() {
        let mut simulation = Simulation::new(seed);
        for _ in 0..ROUNDS {
            simulation.measure(20);
            let plan = simulation.world.round();
            for moved in &plan.moves {
                simulation.carry_out(moved);
            }
            let mut paused = BTreeSet::new();
            for (_, owner, class) in simulation.since(600) {
                assert!(!paused.contains(owner), "seed {seed}: {owner}");
                if *class == QosClass::MidBestEffort {
                    paused.insert(owner);
                }
            }
        }
    }
}

/// The order in which objects were observed does not decide.
#[test]
fn the_order_of_objects_is_free() {
    let mut moved = 0;
    for seed in 0..clusters() {
        let mut simulation = Simulation::new(seed);
        simulation.measure(20);
        let mut shuffled = World::new(&[]);
        let nodes = simulation.world.cluster.nodes().slots().iter().flatten();
        let mut nodes: Vec<_> = nodes.map(|it| (*it.node).clone()).collect();
        let mut pods: Vec<_> = simulation
            .pods
            .values()
            .map(|it| it.builder.build())
            .collect();
        let dice = &mut simulation.dice;
        nodes.sort_by_cached_key(|_| dice.next());
        pods.sort_by_cached_key(|_| dice.next());
        for node in nodes {
            let reports = simulation.world.cluster.report(&node.spec.name);
            let lent = (**reports.unwrap()).clone();
            shuffled.apply(node);
            shuffled.apply(lent);
        }
        pods.into_iter().for_each(|pod| shuffled.apply(pod));
        shuffled.metrics = simulation.world.metrics.clone();
        for metric in shuffled.metrics.values_mut() {
            metric.pods.sort_by_cached_key(|_| dice.next());
        }
        for _ in 0..7 {
            let (one, other) = (simulation.world.round(), shuffled.round());
            assert_eq!(one, other, "seed {seed}");
            moved += one.moves.len();
        }
    }
    assert!(moved > 10, "{moved}");
}
