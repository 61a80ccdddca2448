//! Suppression, cgroup values and interference.

use super::*;

#[test]
fn the_amount_that_suppression_leaves() {
    // Vectors of the notes: 20 cores, threshold 70.
    for (online, system, threshold, min, want) in [
        (8000, 0, 70, None, 6000),
        (8000, 2000, 70, None, 4000),
        (18_000, 0, 70, None, -4000),
        (18_000, 0, 70, Some(60), 12_000),
    ] {
        let demand = Demand {
            capacity: 20_000,
            online,
            system,
        };
        assert_eq!(suppress::amount(demand, threshold, min), want);
    }
}

#[test]
fn suppression_takes_whole_cores_from_each_numa_node() {
    let processors = |pairs: [(u32, u32); 4]| -> Vec<Processor> {
        let cores = pairs.into_iter().zip(0_u32..);
        cores
            .flat_map(|((one, other), core)| {
                [one, other].map(|cpu| Processor {
                    cpu,
                    core,
                    socket: core / 2,
                    numa: core / 2,
                })
            })
            .collect()
    };
    let apart = processors([(0, 4), (1, 5), (2, 6), (3, 7)]);
    let adjacent = processors([(0, 1), (2, 3), (4, 5), (6, 7)]);
    assert_eq!(suppress::spread(&apart, 3), [0, 4, 2]);
    assert_eq!(suppress::spread(&adjacent, 3), [0, 1, 4]);
    assert_eq!(suppress::spread(&apart, 4), [0, 4, 2, 6]);
    assert!(suppress::spread(&apart, 9).is_empty());
    assert!(suppress::spread(&apart, 0).is_empty());
    assert!(suppress::spread(&[], 1).is_empty());
    let available = Available {
        shared: apart[..4].to_vec(),
        others: apart[4..].to_vec(),
    };
    assert_eq!(available.choose(2), [0, 2]);
    assert_eq!(available.choose(100).len(), 8);
    assert!(Available::default().choose(1).is_empty());
}

#[test]
fn suppression_decreases_at_once_and_increases_after_ten_seconds() {
    let all = Available {
        shared: Vec::new(),
        others: (0..8)
            .map(|cpu| Processor {
                cpu,
                core: cpu,
                socket: 0,
                numa: 0,
            })
            .collect(),
    };
    let mut suppressor = Suppressor::default();
    let mut at = |second: i64, wanted: i64| {
        let now = Timestamp::from_secs(second);
        let grant = suppressor.grant(wanted, &all, false, now);
        assert_eq!(grant.milli_cpu, 1000 * grant.cpus.0.len() as i64);
        grant.cpus.0.len()
    };
    assert_eq!(at(0, 5200), 6);
    assert_eq!(at(1, -4000), 1);
    assert_eq!(at(2, 5200), 1);
    assert_eq!(at(9, 4200), 1);
    assert_eq!(at(10, 5200), 1);
    // Ten seconds after the decrease, the least of them.
    assert_eq!(at(11, 5200), 5);
    assert_eq!(at(13, 8000), 5);
    assert_eq!(at(30, 8000), 8);
    assert_eq!(at(31, 100_000), 8);
}

#[test]
fn own_pods_leave_cpus_when_online_pods_wake() {
    let mut it = Fixture::new(8, 32);
    it.pod("web", QosClass::Online, CpuMemory::new(4000, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(4000, GIB));
    it.pod(
        "mid",
        QosClass::MidLatencySensitive,
        CpuMemory::new(1000, GIB),
    );
    it.pod("stream", QosClass::MidBestEffort, CpuMemory::new(1000, GIB));
    it.pod("guest", QosClass::Free, CpuMemory::ZERO);
    it.uses("burn", 4000, GIB);
    let quiet = it.steps(12);
    // 65% of 8 CPUs, and none in use.
    assert_eq!(cpuset_of(&quiet, "burn").as_deref(), Some("0-5"));
    it.uses("web", 4000, GIB);
    let busy = it.step();
    assert_eq!(cpuset_of(&busy, "burn").as_deref(), Some("0-1"));
    assert_eq!(cpuset_of(&busy, "stream").as_deref(), Some("0-1"));
    assert_eq!(cpuset_of(&busy, "guest").as_deref(), Some("0-1"));
    assert_eq!(cpuset_of(&busy, "web"), None);
    assert_eq!(cpuset_of(&busy, "mid"), None);
    // The use of Mid+LS pods counts as online.
    it.uses("mid", 900, GIB);
    let busy = it.step();
    assert_eq!(cpuset_of(&busy, "burn").as_deref(), Some("0"));
    let group = |setting: &Setting| match &setting.group {
        Group::BestEffort => false,
        Group::Pod { uid } | Group::Container { pod: uid, .. } => {
            ["uid-web", "uid-unknown"].contains(&&**uid)
        }
    };
    assert!(!busy.settings.iter().any(group), "{:?}", busy.settings);
}

#[test]
fn cpus_that_are_reserved_or_exclusive_stay_out() {
    let mut it = Fixture::new(8, 32);
    it.node.reserved_cpus = CpuSet([0].into());
    let pod = it.pod("db", QosClass::Dedicated, CpuMemory::new(2000, GIB));
    pod.bound_cpus = CpuSet([1, 2].into());
    pod.is_exclusive = true;
    it.pod("burn", QosClass::Lent, CpuMemory::new(4000, GIB));
    let advice = it.steps(12);
    assert_eq!(cpuset_of(&advice, "burn").as_deref(), Some("3-7"));
    // On a node without any CPU left, the cpuset stays as it is.
    it.node.reserved_cpus = cpus(8);
    let advice = it.step();
    assert_eq!(cpuset_of(&advice, "burn"), None);
    assert!(advice.settings.iter().all(|setting| {
        !matches!(&setting.value, SettingValue::Cpus(cpus) if cpus.0.is_empty())
    }));
}

#[test]
fn a_quota_only_while_every_best_effort_pod_is_own() {
    let mut it = Fixture::new(8, 32);
    it.settings.thresholds.cpu_suppress_policy = SuppressPolicy::CfsQuota;
    it.pod("burn", QosClass::Lent, CpuMemory::new(4000, GIB));
    let quota = |advice: &Advice| {
        advice
            .settings
            .iter()
            .find_map(|setting| match setting.value {
                SettingValue::CpuQuota(quota) if setting.group == Group::BestEffort => Some(quota),
                _ => None,
            })
    };
    let quota_of_pod = |advice: &Advice| {
        advice
            .settings
            .iter()
            .find_map(|setting| match setting.value {
                SettingValue::CpuQuota(quota) if setting.group != Group::BestEffort => Some(quota),
                _ => None,
            })
    };
    let advice = it.steps(12);
    assert_eq!(quota(&advice), Some(Some(520_000)));
    assert_eq!(quota_of_pod(&advice), Some(None));
    assert_eq!(cpuset_of(&advice, "burn").as_deref(), Some("0-7"));
    // kube-proxy without requests.
    let proxy = it.pod("proxy", QosClass::Online, CpuMemory::ZERO);
    proxy.qos = PodQos::BestEffort;
    it.uses("proxy", 10, MIB);
    let advice = it.step();
    assert_eq!(quota(&advice), Some(None));
    assert_eq!(quota_of_pod(&advice), Some(Some(400_000)));
    assert!(cpuset_of(&advice, "burn").is_some_and(|cpus| cpus != "0-7"));
    assert_eq!(cpuset_of(&advice, "proxy"), None);
}

#[test]
fn values_of_cgroups_come_from_the_tier() {
    let mut it = Fixture::new(8, 32);
    it.pod(
        "mid",
        QosClass::MidLatencySensitive,
        CpuMemory::new(500, 128 * MIB),
    );
    it.uses("mid", 100, 256 * MIB);
    it.pod("guest", QosClass::Free, CpuMemory::ZERO);
    let advice = it.step();
    let values = |group: &Group| -> Vec<&SettingValue> {
        let settings = advice.settings.iter();
        settings
            .filter(|setting| setting.group == *group)
            .map(|setting| &setting.value)
            .collect()
    };
    let pod = Group::Pod {
        uid: "uid-mid".into(),
    };
    let container = Group::Container {
        pod: "uid-mid".into(),
        id: "mid-c".into(),
    };
    // The limit is not below the present use.
    let want = [
        SettingValue::CpuShares(512),
        SettingValue::CpuQuota(Some(50_000)),
        SettingValue::MemoryLimit(Some(Bytes(256 << 20))),
    ];
    assert_eq!(values(&pod), want.iter().collect::<Vec<_>>());
    assert_eq!(values(&container), want.iter().collect::<Vec<_>>());
    let guest = Group::Pod {
        uid: "uid-guest".into(),
    };
    assert!(matches!(values(&guest)[..], [SettingValue::Cpus(_)]));
}

#[test]
fn idle_groups_are_an_option() {
    let mut it = Fixture::new(8, 32);
    it.settings.thresholds.cpu_idle = true;
    it.pod("burn", QosClass::Lent, CpuMemory::new(500, 128 * MIB));
    it.pod(
        "stream",
        QosClass::MidBestEffort,
        CpuMemory::new(500, 128 * MIB),
    );
    let idle = |advice: &Advice| -> Vec<(String, bool)> {
        let settings = advice.settings.iter();
        settings
            .filter_map(|setting| match (&setting.group, &setting.value) {
                (Group::Pod { uid }, SettingValue::CpuIdle(idle)) => Some((uid.to_string(), *idle)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(idle(&it.step()), [("uid-burn".to_owned(), true)]);
    it.settings.thresholds.cpu_idle = false;
    assert_eq!(idle(&it.step()), [("uid-burn".to_owned(), false)]);
}

#[test]
fn online_pods_under_pressure_for_three_periods_taint_the_node() {
    let mut it = Fixture::new(8, 32);
    it.pod("web", QosClass::Online, CpuMemory::new(1000, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
    it.uses("burn", 100, MIB);
    it.pressure("burn", 99.0);
    assert_eq!(taint(&it.steps(60), health::INTERFERENCE), None);
    it.pressure("web", 25.0);
    assert_eq!(taint(&it.steps(20), health::INTERFERENCE), None);
    assert_eq!(
        taint(&it.steps(15), health::INTERFERENCE),
        Some("cpu-pressure")
    );
    // One quiet period does not remove it, three do.
    it.pressure("web", 0.0);
    assert!(taint(&it.steps(10), health::INTERFERENCE).is_some());
    assert_eq!(taint(&it.steps(30), health::INTERFERENCE), None);
}

#[test]
fn throttling_of_online_pods_is_an_option() {
    let mut it = Fixture::new(8, 32);
    it.pod("web", QosClass::Online, CpuMemory::new(1000, GIB));
    let throttled = |it: &mut Fixture| {
        let pod = it.sample.pods.get_mut("uid-web").unwrap();
        pod.group.throttling = Some(Throttling {
            periods: 10,
            throttled_periods: 6,
            throttled_time: Duration::from_millis(100),
        });
    };
    throttled(&mut it);
    assert_eq!(taint(&it.steps(60), health::INTERFERENCE), None);
    it.settings.interference.throttling = Some(50.0);
    assert_eq!(
        taint(&it.steps(60), health::INTERFERENCE),
        Some("throttling")
    );
}

#[test]
fn with_the_static_cpu_manager_only_containers_have_cpusets() {
    let mut it = Fixture::new(8, 32);
    it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
    let advice = it.step_with(|inputs| inputs.static_cpu_manager = true);
    let groups: Vec<&Group> = advice
        .settings
        .iter()
        .filter(|setting| matches!(setting.value, SettingValue::Cpus(_)))
        .map(|setting| &setting.group)
        .collect();
    let container = Group::Container {
        pod: "uid-burn".into(),
        id: "burn-c".into(),
    };
    assert_eq!(groups, [&container]);
}

#[test]
fn a_node_with_one_cpu_shares_it() {
    let mut it = Fixture::new(1, 2);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(100, GIB));
    it.uses("web", 950, MIB);
    it.uses("burn", 40, MIB);
    let advice = it.steps(12);
    assert_eq!(cpuset_of(&advice, "burn").as_deref(), Some("0"));
    assert_eq!(advice.reclaimed.capacity, CpuMemory::ZERO);
}

#[test]
fn the_memory_of_best_effort_pods_is_guarded_while_all_of_them_are_own() {
    let mut it = Fixture::new(8, 32);
    it.pod("burn", QosClass::Lent, CpuMemory::new(500, GIB));
    let limit = |advice: &Advice| -> Vec<Option<i64>> {
        let settings = advice.settings.iter();
        settings
            .filter_map(|setting| match (&setting.group, &setting.value) {
                (Group::BestEffort, SettingValue::MemoryLimit(limit)) => {
                    Some(limit.map(|it| it.0 as i64 / MIB))
                }
                _ => None,
            })
            .collect()
    };
    // All but a tenth.
    assert_eq!(limit(&it.step()), [Some(29_491)]);
    // It does not follow every page.
    it.uses("burn", 100, GIB);
    it.system_memory = 100 * MIB;
    assert_eq!(limit(&it.step()), [Some(29_491)]);
    it.system_memory = 8 * GIB;
    let guarded = limit(&it.step());
    assert_eq!(guarded, [Some(29_491 - 8 * 1024)]);
    // A restart knows that the limit is there.
    let checkpoint = it.advisor.checkpoint(it.now);
    let wall = Timestamp::from_secs(EPOCH);
    it.advisor = Advisor::resume(&checkpoint, it.now, wall).unwrap();
    // The kubelet limits the directories by itself.
    let advice = it.step_with(|inputs| inputs.burstable_memory_limit = Some(Bytes(1 << 30)));
    assert_eq!(limit(&advice), [None]);
    assert_eq!(limit(&it.step()), guarded);
    // A pod that is not the agent's.
    it.pod("proxy", QosClass::Online, CpuMemory::ZERO).qos = PodQos::BestEffort;
    it.uses("proxy", 0, MIB);
    assert_eq!(limit(&it.step()), [None]);
    it.pods.pop();
    it.sample.pods.remove("uid-proxy");
    it.settings.thresholds.memory_guard = false;
    assert_eq!(limit(&it.step()), [None]);
}
