//! Headroom, predictions, degradation and conditions.

use super::*;
use crate::model::{NumaBinding, ZoneSet};

#[test]
fn headroom_is_lent_after_the_window_and_taken_back_at_once() {
    let mut it = Fixture::new(16, 64);
    it.pod("web", QosClass::Online, CpuMemory::new(8000, 8 * GIB));
    it.uses("web", 2000, 4 * GIB);
    let first = it.steps(80);
    assert_eq!(first.reclaimed.capacity, CpuMemory::ZERO);
    // 65% of 16 CPUs without 2 in use, in steps of 4 every 30 s; memory in steps of 5 GiB.
    let lent = it.steps(20);
    assert_eq!(lent.reclaimed.capacity, CpuMemory::new(4000, 5 * GIB));
    let lent = it.steps(200);
    assert_eq!(lent.reclaimed.capacity.milli_cpu, 8400);
    assert_eq!(lent.reclaimed.allocatable, lent.reclaimed.capacity);
    let cpu = lent
        .terms
        .iter()
        .find(|it| it.name == "reclaimed cpu")
        .unwrap();
    assert_eq!((cpu.value, cpu.recompute()), (8400, 8400));
    it.uses("web", 10_000, 4 * GIB);
    let busy = it.steps(11);
    assert_eq!(busy.reclaimed.capacity.milli_cpu, 400);
    assert_eq!(it.steps(60).reclaimed.capacity.milli_cpu, 400);
    // Negligible amounts are not reported.
    it.uses("web", 10_350, 4 * GIB);
    assert_eq!(it.steps(11).reclaimed.capacity, CpuMemory::ZERO);
}

#[test]
fn the_pool_is_published_under_the_chosen_names() {
    let mut it = Fixture::new(16, 64);
    let batch = it.pod("spark", QosClass::Lent, CpuMemory::ZERO);
    let pair = ResourcePair {
        requests: CpuMemory::new(3000, 2 * GIB),
        limits: CpuMemory::ZERO,
    };
    batch.containers[0].tiers = [(TierAccount::Batch, pair)].into();
    let pool = it.steps(400).reclaimed.capacity;
    assert!(pool.milli_cpu > 9000, "{pool:?}");
    let shared = it.step().reclaimed;
    assert_eq!(shared.allocatable, pool.minus(pair.requests));
    it.settings.lend = Lend::Reclaimed;
    assert_eq!(it.step().reclaimed.allocatable, pool);
    it.settings.lend = Lend::Batch;
    let none = it.step().reclaimed;
    assert_eq!((none.capacity, none.allocatable), Default::default());
}

#[test]
fn what_mid_pods_hold_leaves_the_pool_first() {
    let mut it = Fixture::new(16, 64);
    let before = it.steps(400).reclaimed.capacity;
    it.pod(
        "stream",
        QosClass::MidBestEffort,
        CpuMemory::new(2000, 4 * GIB),
    );
    let after = it.step().reclaimed.capacity;
    assert_eq!(before.minus(after).milli_cpu, 2000);
    assert!(before.minus(after).memory >= 4 * GIB);
    // The use replaces the request, it does not add to it.
    it.uses("stream", 1500, GIB);
    let used = it.steps(20).reclaimed.capacity;
    assert_eq!(before.minus(used).milli_cpu, 2000);
}

#[test]
fn utilisation_mode() {
    let settings = settings::CpuUtilization {
        enable: true,
        target: 0.6,
        max: 0.8,
        max_oversold_rate: 1.2,
        max_capacity_rate: 1.0,
    };
    for (supply, utilization, last, most, want) in [
        (20.0, 0.5, 22.0, 40.0, 24.0),
        (20.0, 0.7, 22.0, 40.0, 22.0),
        (20.0, 0.9, 24.0, 40.0, 22.0),
        (20.0, 0.1, 0.0, 40.0, 20.0),
        (20.0, 0.5, 22.0, 21.0, 21.0),
        (0.0, 0.5, 22.0, 40.0, 0.0),
    ] {
        let found = headroom::by_utilization(&settings, supply, utilization, last, most);
        assert!(
            (found - want).abs() < 1e-9,
            "{supply} {utilization}: {found}"
        );
    }
}

#[test]
fn bad_samples_lend_nothing_and_protect_on() {
    let reason = |advice: &Advice| {
        let mut conditions = advice.conditions.iter();
        let condition = conditions.find(|it| it.kind == health::DEGRADED);
        condition.filter(|it| it.status).map(|it| it.reason)
    };
    let prepared = || {
        let mut it = Fixture::new(16, 64);
        it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
        let good = it.steps(400);
        assert!(good.reclaimed.capacity.milli_cpu > 0);
        assert!(good.taints.is_empty());
        assert_eq!(reason(&good), None);
        (it, good)
    };
    let failed: &'static [(String, String)] =
        vec![("cpu.cfs_quota_us".to_owned(), "EPERM".to_owned())].leak();
    type Change = Box<dyn Fn(&mut Inputs<'_>)>;
    let cases: [(&str, Change); 5] = [
        ("NoSample", Box::new(|inputs| inputs.sample = None)),
        ("NodeUnknown", Box::new(|inputs| inputs.node = None)),
        ("PodsUnknown", Box::new(|inputs| inputs.pods = None)),
        (
            "WriteFailed",
            Box::new(|inputs| inputs.writes.failed = failed),
        ),
        (
            "JournalDamaged",
            Box::new(|inputs| inputs.writes.journal = Some("the journal is damaged")),
        ),
    ];
    for (want, change) in &cases {
        let (mut it, good) = prepared();
        let bad = it.step_with(change);
        assert_eq!(reason(&bad), Some(*want));
        assert_eq!(bad.reclaimed.capacity, CpuMemory::ZERO, "{want}");
        assert_eq!(taint(&bad, health::UNHEALTHY), Some(*want));
        assert_eq!(bad.settings, good.settings, "{want}");
        assert_eq!(bad.notices.len(), 1, "{:?}", bad.notices);
        assert!(it.step_with(change).notices.is_empty(), "{want}");
    }
    let (mut it, good) = prepared();
    it.now = it.now.plus(Duration::from_secs(31));
    let stale = it.advise_with(|_| {});
    assert_eq!(reason(&stale), Some("StaleSample"));
    assert_eq!(stale.reclaimed.capacity, CpuMemory::ZERO);
    assert_eq!(stale.settings, good.settings);
    assert_eq!(
        stale.notices,
        ["lending nothing more: the last sample is 31 s old; at most 30 s are allowed"]
    );
    // It begins anew.
    let again = it.step();
    assert_eq!(again.notices, ["lending again"]);
    assert_eq!(again.reclaimed.capacity, CpuMemory::ZERO);
}

#[test]
fn what_users_cause_is_named_and_stops_no_lending() {
    let of = |name: &str| format!("default/{name}");
    let conflicts: &'static [GroupConflict] = ["bad", "worse"]
        .map(|pod| GroupConflict {
            pod: of(pod),
            owner: of("web"),
        })
        .to_vec()
        .leak();
    let refused: &'static [RefusedValue] = vec![RefusedValue {
        pod: "uid-burn".into(),
        file: "kubepods/besteffort/poduid-burn/cpu.max".to_owned(),
        why: "Invalid argument".to_owned(),
    }]
    .leak();
    type Change = fn(&mut Inputs<'_>, &'static [GroupConflict], &'static [RefusedValue]);
    let cases: [(Change, &str, &str, usize); 2] = [
        (
            |inputs, conflicts, _| inputs.group_conflicts = conflicts,
            "GroupClaimed",
            "the annotation kubernetes.io/config.hash of pod default/bad names the cgroup of pod default/web; it has no effect; 1 more pod does so",
            2,
        ),
        (
            |inputs, _, refused| inputs.writes.refused = refused,
            "ValueRefused",
            "the kernel refuses the value of kubepods/besteffort/poduid-burn/cpu.max: Invalid argument; pod default/burn runs without it",
            0,
        ),
    ];
    for (change, reason, message, notices) in cases {
        let mut it = Fixture::new(16, 64);
        it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
        let before = it.steps(400).reclaimed;
        let advice = it.step_with(|inputs| change(inputs, conflicts, refused));
        let mut degraded = advice.conditions.iter();
        let degraded = degraded.find(|it| it.kind == health::DEGRADED).unwrap();
        let found = (degraded.status, degraded.reason, &*degraded.message);
        assert_eq!(found, (true, reason, message));
        let lending = advice
            .conditions
            .iter()
            .find(|it| it.kind == health::LENDING);
        assert_eq!(lending.map(|it| it.status), Some(true), "{reason}");
        assert_eq!(advice.reclaimed, before, "{reason}");
        assert!(advice.taints.is_empty(), "{reason}");
        assert_eq!(advice.notices.len(), notices, "{:?}", advice.notices);
        let again = it.step_with(|inputs| change(inputs, conflicts, refused));
        assert!(again.notices.is_empty(), "{:?}", again.notices);
    }
}

#[test]
fn absurd_requests_give_values_that_the_kernel_takes() {
    for class in [
        QosClass::Online,
        QosClass::Dedicated,
        QosClass::MidLatencySensitive,
        QosClass::MidBestEffort,
        QosClass::Lent,
        QosClass::Free,
    ] {
        let mut it = Fixture::new(16, 64);
        let most = CpuMemory::new(i64::MAX, i64::MAX);
        for (name, amount) in [("one", most), ("two", CpuMemory::new(1 << 50, 1 << 50))] {
            let pod = it.pod(name, class, amount);
            pod.overhead = most;
            pod.containers.push(pod.containers[0].clone());
            it.uses(name, 1000, GIB);
        }
        let advice = it.steps(400);
        let lending = advice
            .conditions
            .iter()
            .find(|it| it.kind == health::LENDING);
        assert_eq!(lending.map(|it| it.status), Some(true), "{class:?}");
        for setting in &advice.settings {
            let is_taken = match setting.value {
                SettingValue::CpuShares(shares) => (2..=262_144).contains(&shares),
                SettingValue::CpuQuota(quota) => quota.is_none_or(|it| it < 1 << 44),
                SettingValue::MemoryLimit(limit) => limit.is_none_or(|it| it.0 <= 1 << 60),
                _ => true,
            };
            assert!(is_taken, "{class:?}: {setting:?}");
        }
    }
}

#[test]
fn switched_off_it_lends_nothing_at_once() {
    for change in [
        (|settings: &mut AgentSettings| settings.reclaim.enable = false) as fn(&mut AgentSettings),
        |settings| settings.thresholds.enable = false,
    ] {
        let mut it = Fixture::new(16, 64);
        it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
        assert!(it.steps(400).reclaimed.capacity.milli_cpu > 0);
        change(&mut it.settings);
        let off = it.step();
        assert_eq!(off.reclaimed.capacity, CpuMemory::ZERO);
        assert!(off.taints.is_empty());
        let lending = off.conditions.iter().find(|it| it.kind == health::LENDING);
        assert_eq!(
            lending.map(|it| (it.status, it.reason)),
            Some((false, "Disabled"))
        );
    }
}

#[test]
fn conditions_of_the_node() {
    let mut it = Fixture::new(16, 64);
    let given_up: &'static [String] = vec!["kubepods/besteffort/pod1/cpu.shares".to_owned()].leak();
    let advice = it.step_with(|inputs| {
        inputs.burstable_memory_limit = Some(Bytes(1 << 30));
        inputs.writes.given_up = given_up;
    });
    let status: BTreeMap<&str, bool> = advice
        .conditions
        .iter()
        .map(|it| (it.kind, it.status))
        .collect();
    let want = [
        (health::LENDING, true),
        (health::DEGRADED, false),
        (health::CONFLICT, true),
        (health::MID_LS_UNSUPPORTED, true),
        (health::NUMA_ZONES_DIFFER, false),
    ];
    assert_eq!(status, want.into());
    assert_eq!(
        advice.notices,
        [
            "leaving 1 cgroup files to another process, kubepods/besteffort/pod1/cpu.shares among them"
        ]
    );
}

#[test]
fn a_restart_continues_from_the_checkpoint() {
    let mut it = Fixture::new(16, 64);
    let before = it.steps(400).reclaimed.capacity;
    let checkpoint = it.advisor.checkpoint(it.now);
    let wall = Timestamp::from_secs(EPOCH + 420);
    it.advisor = Advisor::resume(&checkpoint, it.now, wall).unwrap();
    assert_eq!(it.step().reclaimed.capacity, before);
    // An old report does not hold.
    let wall = Timestamp::from_secs(EPOCH + 7200);
    it.advisor = Advisor::resume(&checkpoint, it.now, wall).unwrap();
    assert_eq!(it.step().reclaimed.capacity, CpuMemory::ZERO);
}

#[test]
fn production_gives_what_it_requests_and_does_not_need() {
    let mut it = Fixture::new(16, 64);
    it.settings.prediction.cold_start = Duration::from_secs(300);
    it.pod("web", QosClass::Online, CpuMemory::new(8000, 8 * GIB))
        .created = Timestamp::from_secs(EPOCH);
    it.uses("web", 1000, GIB);
    let first = it.step();
    assert_eq!(first.metric.prod_reclaimable, None);
    assert_eq!(first.metric.node_usage, Some(CpuMemory::new(1000, GIB)));
    let cold = it.steps(120);
    assert_eq!(cold.metric.prod_reclaimable, Some(CpuMemory::ZERO));
    let warm = it.steps(240).metric;
    let reclaimable = warm.prod_reclaimable.unwrap();
    // Twice the peak of one core: of the pod and of the class; the class has the system's idle model on top.
    assert!(
        (6700..6900).contains(&reclaimable.milli_cpu),
        "{reclaimable:?}"
    );
    assert_eq!(warm.pods[0].priority(), "koord-prod");
    assert_eq!(warm.pods[0].usage, CpuMemory::new(1000, GIB));
    // With a NUMA zone of its own it gives nothing: no other pod may use the zone.
    let zone = NumaUse {
        cpus: it.sample.machine.cpus.clone(),
        ..NumaUse::default()
    };
    it.sample.numa.insert(0, zone);
    let web = &mut it.pods[0];
    web.numa_binding = Some(NumaBinding::Exclusive);
    web.zones = ZoneSet::parse("0").unwrap();
    let alone = it.step().metric;
    assert_eq!(alone.prod_reclaimable, Some(CpuMemory::ZERO));
}
