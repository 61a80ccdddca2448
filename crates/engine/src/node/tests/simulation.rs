//! A node in virtual time: days of changing load, with and without faults, against invariants that are computed here independently.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::testing::Dice;

/// Seconds between two samples.
const PERIOD: i64 = 5;
const DAY: i64 = 24 * 3600;

/// What the node must keep to at every step.
struct Invariants {
    /// Use without lent pods of the last seconds: time, milli-cores.
    native: VecDeque<(i64, i64)>,
    evictions: Vec<(i64, Name, QosClass, Name)>,
    grown: Option<i64>,
    granted: Option<i64>,
}

impl Invariants {
    fn new() -> Self {
        Self {
            native: VecDeque::new(),
            evictions: Vec::new(),
            grown: None,
            granted: None,
        }
    }

    fn check(&mut self, it: &Fixture, advice: &Advice, is_degraded: bool, second: i64) {
        self.check_report(it, advice, is_degraded, second);
        check_settings(it, advice);
        self.check_evictions(it, advice, second);
    }

    /// Remembers the use without lent pods of a sample.
    fn observe(&mut self, it: &Fixture, second: i64) {
        let class_of = |uid: &Name| {
            let pod = it.pods.iter().find(|pod| pod.group == *uid);
            pod.map_or(QosClass::Online, |pod| pod.class)
        };
        let lent = |uid: &Name| class_of(uid) >= QosClass::Lent;
        let cpu_of = |pod: &PodUse| pod.group.cpu.map_or(0, |cpu| cpu.0 / 1_000_000) as i64;
        let machine = (it.sample.machine.cpu.unwrap().0 / 1_000_000) as i64;
        let pods = it.sample.pods.iter();
        let lent_cpu: i64 = pods
            .filter(|(uid, _)| lent(uid))
            .map(|(_, pod)| cpu_of(pod))
            .sum();
        self.native.push_back((second, machine - lent_cpu));
        self.native.retain(|(at, _)| *at >= second - 10);
    }

    /// Never more than is idle, never more than the threshold leaves, never negative, nothing in doubt.
    fn check_report(&mut self, it: &Fixture, advice: &Advice, is_degraded: bool, second: i64) {
        let report = &advice.reclaimed;
        assert!(report.capacity == report.capacity.positive(), "{report:?}");
        assert!(report.allocatable.milli_cpu <= report.capacity.milli_cpu);
        for figure in &advice.terms {
            assert_eq!(figure.value, figure.recompute(), "{figure:?}");
        }
        if is_degraded {
            assert_eq!(report.capacity, CpuMemory::ZERO, "at second {second}");
            return;
        }
        let sum: i64 = self.native.iter().map(|(_, used)| used).sum();
        let mean = sum / self.native.len() as i64;
        let capacity = it.node.capacity.milli_cpu;
        let threshold = capacity * 65 / 100;
        let most = (capacity - mean).min(threshold - mean).max(0);
        // Mid+BE pods use the threshold's rest too, but their use is in the mean.
        assert!(
            report.capacity.milli_cpu <= most + 1,
            "lends {} of {most} at second {second}",
            report.capacity.milli_cpu
        );
        let memory = it.sample.machine.memory.unwrap();
        assert!(report.capacity.memory <= memory.total.0 as i64);
    }

    fn check_evictions(&mut self, it: &Fixture, advice: &Advice, second: i64) {
        for order in &advice.evictions {
            let pod = it.pods.iter().find(|pod| pod.uid == order.uid).unwrap();
            assert!(pod.class >= QosClass::MidLatencySensitive, "{order:?}");
            assert!(!pod.is_static && !pod.terminating, "{order:?}");
            let used = usage::use_of(&it.sample.pods[&pod.group].group);
            assert!(used != CpuMemory::ZERO, "{order:?}");
            let workload = pod.workload().clone();
            let again = self.evictions.iter().any(|(at, _, class, known)| {
                *class == QosClass::MidBestEffort && *known == workload && second - at < 600
            });
            assert!(pod.class != QosClass::MidBestEffort || !again, "{order:?}");
            self.evictions
                .push((second, pod.uid.clone(), pod.class, workload));
        }
        let last_minute = self.evictions.iter().filter(|(at, ..)| second - at < 60);
        assert!(last_minute.count() <= 6, "at second {second}");
    }

    /// It grows at most every ten seconds.
    fn check_suppression(&mut self, advice: &Advice, second: i64) {
        let Some(grant) = &advice.suppression else {
            return;
        };
        // Without CPUs in the sample the size is not known.
        if grant.cpus.0.is_empty() {
            (self.granted, self.grown) = (None, None);
            return;
        }
        let size = grant.cpus.0.len() as i64;
        if self.granted.is_some_and(|last| size > last) {
            assert!(self.grown.is_none_or(|last| second - last >= 10));
            self.grown = Some(second);
        }
        self.granted = Some(size);
    }
}

/// Only own pods, valid values, no limit below the use, no empty or foreign cpuset.
fn check_settings(it: &Fixture, advice: &Advice) {
    let online = &it.sample.machine.cpus.0;
    let mut seen = BTreeSet::new();
    for setting in &advice.settings {
        let kind = std::mem::discriminant(&setting.value);
        assert!(
            seen.insert((setting.group.clone(), format!("{kind:?}"))),
            "twice: {setting:?}"
        );
        let uid = match &setting.group {
            Group::BestEffort => {
                let is_allowed = matches!(
                    setting.value,
                    SettingValue::CpuQuota(_) | SettingValue::MemoryLimit(_)
                );
                assert!(is_allowed, "{setting:?}");
                continue;
            }
            Group::Pod { uid } | Group::Container { pod: uid, .. } => uid,
        };
        let pod = it.pods.iter().find(|pod| pod.group == *uid);
        assert!(pod.is_none_or(LocalPod::is_own), "{setting:?}");
        match &setting.value {
            SettingValue::CpuShares(shares) => assert!((2..=262_144).contains(shares)),
            SettingValue::CpuQuota(quota) => assert!(quota.is_none_or(|quota| quota >= 1000)),
            SettingValue::Cpus(cpus) => {
                assert!(
                    !cpus.0.is_empty() && cpus.0.is_subset(online),
                    "{setting:?}"
                );
            }
            SettingValue::MemoryLimit(Some(limit)) => {
                let Some(used) = it.sample.pods.get(uid) else {
                    continue;
                };
                if it.sample.at == it.now
                    && let Group::Pod { .. } = setting.group
                {
                    let used = used.group.memory.as_ref().map_or(0, |it| it.usage.0);
                    assert!(limit.0 >= used, "{setting:?} below {used}");
                }
            }
            SettingValue::MemoryLimit(None) | SettingValue::CpuIdle(_) => {}
            // No pod of this node has NUMA zones.
            SettingValue::Mems(_) | SettingValue::MigrateMemory(_) | SettingValue::Original(_) => {
                panic!("{setting:?}");
            }
        }
    }
}

/// The share of the day's peak at a second, from 0 to 1: a sine.
fn tide(second: i64) -> f64 {
    let angle = second as f64 / DAY as f64 * std::f64::consts::TAU;
    (1.0 - angle.cos()) / 2.0
}

fn node() -> Fixture {
    let mut it = Fixture::new(32, 128);
    it.settings.prediction.cold_start = Duration::from_secs(3600);
    for name in ["web", "api", "db"] {
        it.pod(name, QosClass::Online, CpuMemory::new(8000, 16 * GIB));
    }
    it.pod("agent", QosClass::System, CpuMemory::new(100, GIB));
    for name in ["spark-1", "spark-2", "spark-3"] {
        it.pod(name, QosClass::Lent, CpuMemory::new(3000, 4 * GIB));
    }
    it.pod(
        "mid-ls",
        QosClass::MidLatencySensitive,
        CpuMemory::new(1000, 2 * GIB),
    );
    for name in ["mid-be-1", "mid-be-2"] {
        it.pod(name, QosClass::MidBestEffort, CpuMemory::new(1000, 2 * GIB))
            .owner = Some("flink".into());
    }
    it.pod("guest", QosClass::Free, CpuMemory::ZERO);
    it.system_cpu = 300;
    it.system_memory = 4 * GIB;
    it
}

/// Use by the tide, with noise; lent pods take what they are granted.
fn load(it: &mut Fixture, dice: &mut Dice, second: i64, granted: i64) {
    let tide = tide(second);
    let pods: Vec<(String, QosClass)> = it
        .pods
        .iter()
        .map(|pod| (pod.name.to_string(), pod.class))
        .collect();
    let suppressed = pods
        .iter()
        .filter(|(_, class)| *class >= QosClass::MidBestEffort);
    let share = granted / (suppressed.count().max(1) as i64);
    for (name, class) in pods {
        let noise = 0.9 + dice.below(200) as f64 / 1000.0;
        let (cpu, memory) = match class {
            QosClass::Online => ((6000.0 * tide * noise) as i64, 4 * GIB),
            QosClass::System | QosClass::Dedicated => (50, GIB / 4),
            QosClass::MidLatencySensitive => (600, GIB),
            QosClass::MidBestEffort => (share.min(1000), GIB),
            QosClass::Lent | QosClass::Free => (share.min(3000), 2 * GIB),
        };
        if it.sample.pods.contains_key(&*format!("uid-{name}")) {
            it.uses(&name, cpu, memory);
        }
    }
}

#[test]
fn headroom_follows_the_tide_and_never_exceeds_the_formula() {
    let mut it = node();
    let mut dice = Dice(7);
    let mut invariants = Invariants::new();
    let mut granted = 20_000;
    let mut by_hour: BTreeMap<i64, i64> = BTreeMap::new();
    for second in (0..2 * DAY).step_by(PERIOD as usize) {
        load(&mut it, &mut dice, second, granted);
        it.now = Timestamp::from_secs(second);
        it.add_up();
        let advice = it.advise_with(|_| {});
        invariants.observe(&it, second);
        invariants.check(&it, &advice, false, second);
        invariants.check_suppression(&advice, second);
        granted = advice.suppression.as_ref().unwrap().milli_cpu;
        if second >= DAY {
            let hour = (second - DAY) / 3600;
            *by_hour.entry(hour).or_default() += advice.reclaimed.capacity.milli_cpu;
        }
    }
    let mean = |hour: i64| by_hour[&hour] / (3600 / PERIOD);
    // At low tide most of the threshold is lent; at high tide almost nothing.
    assert!(mean(0) > 14_000, "{by_hour:?}");
    assert!(mean(12) < 2_500, "{by_hour:?}");
    let (falling, rising): (Vec<i64>, Vec<i64>) =
        ((1..11).map(mean).collect(), (14..23).map(mean).collect());
    assert!(falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    assert!(rising.is_sorted(), "{rising:?}");
    let evicted = invariants
        .evictions
        .iter()
        .filter(|(.., class, _)| *class < QosClass::Lent);
    assert_eq!(evicted.count(), 0, "{:?}", invariants.evictions);
}

/// A day with faults in every hour, from one seed.
fn day_with_faults(seed: u64) {
    let mut it = node();
    let mut dice = Dice(seed);
    let mut invariants = Invariants::new();
    let (mut granted, mut born, mut started) = (20_000, 0, 0);
    let failed: &'static [(String, String)] =
        vec![("cpuset.cpus".to_owned(), "EINVAL".to_owned())].leak();
    // Faults that last: until when.
    let (mut silent, mut broken, mut unknown, mut refused) = (0, 0, 0, 0);
    for second in (0..DAY).step_by(PERIOD as usize) {
        it.now = Timestamp::from_secs(second);
        if dice.one_in(1500) {
            silent = second + dice.below(120);
        }
        if dice.one_in(1500) {
            broken = second + dice.below(60);
        }
        if dice.one_in(2000) {
            unknown = second + dice.below(60);
        }
        if dice.one_in(2000) {
            refused = second + dice.below(60);
        }
        if dice.one_in(1000) {
            // Memory pressure comes and goes.
            it.system_memory = (4 + dice.below(90)) * GIB;
        }
        if dice.one_in(800) {
            it.pressure("web", dice.below(60) as f64);
        }
        if dice.one_in(300) {
            // A pod ends: its cgroup first, or its object first.
            let i = dice.below(it.pods.len() as i64) as usize;
            let pod = it.pods[i].clone();
            if pod.class >= QosClass::MidLatencySensitive {
                if dice.one_in(2) {
                    it.pods.remove(i);
                }
                it.sample.pods.remove(&pod.group);
            }
        }
        if dice.one_in(100) && it.pods.len() < 40 {
            born += 1;
            let class = [
                QosClass::Lent,
                QosClass::Free,
                QosClass::MidBestEffort,
                QosClass::MidLatencySensitive,
            ][dice.below(4) as usize];
            let pod = it.pod(&format!("new-{born}"), class, CpuMemory::new(500, GIB));
            pod.owner = Some(format!("owner-{}", born % 3).into());
            pod.is_static = born % 7 == 0;
        }
        if dice.one_in(3000) {
            // Killed and started again, sometimes with a wrong time of day.
            let wall = Timestamp::from_secs(EPOCH + second + dice.below(7200) - 3600);
            let checkpoint = it.advisor.checkpoint(it.now);
            it.advisor = Advisor::resume(&checkpoint, it.now, wall).unwrap();
            (invariants.granted, invariants.grown) = (None, None);
            started = second;
            // The limit of evictions starts anew with the process.
            invariants.evictions.clear();
            invariants.native.clear();
        }
        if second >= silent {
            load(&mut it, &mut dice, second, granted);
            it.add_up();
            if second < broken {
                match dice.below(3) {
                    0 => it.sample.machine.cpu = None,
                    1 => it.sample.machine.memory = None,
                    _ => it.sample.machine.cpus = CpuSet::default(),
                }
            } else {
                it.sample.machine.cpus = cpus(32);
            }
        }
        let age = second - it.sample.at.0 / Timestamp::SECOND;
        let is_fresh = age <= 30;
        let advice = it.advise_with(|inputs| {
            if second < unknown {
                inputs.pods = None;
            }
            if second < refused {
                inputs.writes.failed = failed;
            }
        });
        let machine = &it.sample.machine;
        let is_complete =
            machine.cpu.is_some() && machine.memory.is_some() && !machine.cpus.0.is_empty();
        let is_degraded = !is_fresh || !is_complete || second < unknown || second < refused;
        let degraded = advice
            .conditions
            .iter()
            .any(|it| it.kind == health::DEGRADED && it.status);
        assert_eq!(degraded, is_degraded, "at second {second}");
        let is_tainted = taint(&advice, health::UNHEALTHY).is_some();
        assert_eq!(is_tainted, is_degraded && second >= started + 30);
        // An old sample that is not stale decides, too.
        invariants.check_suppression(&advice, second);
        if age == 0 && second >= unknown && machine.cpu.is_some() && machine.memory.is_some() {
            invariants.observe(&it, second);
        }
        if age == 0 && is_complete {
            invariants.check(&it, &advice, is_degraded, second);
        } else if is_degraded {
            assert_eq!(advice.reclaimed.capacity, CpuMemory::ZERO);
        }
        if let Some(grant) = &advice.suppression {
            granted = grant.milli_cpu;
        }
        for order in &advice.evictions {
            let is_accepted = !dice.one_in(4);
            let now = it.now;
            it.advisor.eviction_result(&order.uid, is_accepted, now);
            if is_accepted && dice.one_in(2) {
                it.pods.retain(|pod| pod.uid != order.uid);
                it.sample.pods.remove(&order.uid);
            }
        }
    }
}

#[test]
fn a_day_with_faults_breaks_no_invariant() {
    let is_full = std::env::var_os("TIDEPOOL_FULL").is_some();
    let seeds = if is_full { 100 } else { 4 };
    (1..=seeds).for_each(day_with_faults);
}

/// A load that flips at every period must not make suppression follow it.
#[test]
fn a_square_wave_does_not_make_suppression_flap() {
    let mut it = node();
    let mut changes = 0;
    let mut last = None;
    for second in 0..600 {
        let busy = second % 4 < 2;
        it.uses("web", if busy { 12_000 } else { 0 }, 4 * GIB);
        let advice = it.step();
        let size = advice.suppression.unwrap().cpus.0.len();
        if second > 20 && last.is_some_and(|last| last != size) {
            changes += 1;
        }
        last = Some(size);
    }
    assert_eq!(changes, 0);
}
