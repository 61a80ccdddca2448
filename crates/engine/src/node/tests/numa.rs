//! NUMA zones of pods: the cpusets of all pods of a node, differences from them, and the report of zones.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::{NumaBinding, ZoneSet};

impl Fixture {
    /// A machine with so many zones of two CPUs and 8 GiB, two zones in each socket.
    fn with_zones(count: u32) -> Self {
        let mut it = Self::new(2 * count, 8 * i64::from(count));
        for number in 0..count {
            let cpus = CpuSet([2 * number, 2 * number + 1].into());
            for &cpu in &cpus.0 {
                it.processors.push(Processor {
                    cpu,
                    core: cpu,
                    socket: number / 2,
                    numa: number,
                });
            }
            let node = NumaUse {
                cpus,
                memory_total: Some(Bytes(8 << 30)),
                ..NumaUse::default()
            };
            it.sample.numa.insert(number, node);
        }
        it
    }

    /// A dedicated pod that was given these zones, and needs them.
    fn dedicated(&mut self, name: &str, zones: &str, binding: NumaBinding) -> &mut LocalPod {
        let created = Timestamp::from_secs(i64::try_from(self.pods.len()).unwrap());
        let zones = ZoneSet::parse(zones).unwrap();
        let cpu = 2000 * i64::try_from(zones.len()).unwrap();
        let pod = self.pod(name, QosClass::Dedicated, CpuMemory::new(cpu, GIB));
        pod.numa_binding = Some(binding);
        pod.zones = zones;
        pod.created = created;
        pod
    }

    /// What the processes of a pod's container may use, as read now.
    fn allow(&mut self, name: &str, cpus: &str, mems: &str) {
        let at = self.now.plus(Duration::from_secs(1));
        let group: Name = format!("uid-{name}").into();
        let pod = self.sample.pods.get_mut(&group).unwrap();
        for container in pod.containers.values_mut() {
            container.allowed = Some(Arc::new(Allowed {
                at,
                cpus: CpuSet::parse(cpus).unwrap(),
                mems: CpuSet::parse(mems).unwrap(),
            }));
        }
    }
}

/// CPUs and memory nodes of a pod's groups, by the settings: `cpus|mems`, with `=` for what was there before and `-` for a file that
/// stays as it is.
fn sets(advice: &Advice, name: &str) -> [String; 2] {
    let (uid, id): (Name, Name) = (format!("uid-{name}").into(), format!("{name}-c").into());
    let container = Group::Container {
        pod: uid.clone(),
        id,
    };
    [Group::Pod { uid }, container].map(|group| {
        let of = |file: CpusetFile| {
            let values = advice.settings.iter().filter(|it| it.group == group);
            let mut values = values.filter_map(|setting| match (&setting.value, file) {
                (SettingValue::Cpus(set), CpusetFile::Cpus)
                | (SettingValue::Mems(set), CpusetFile::Mems) => Some(set.to_string()),
                (SettingValue::Original(found), file) if *found == file => Some("=".to_owned()),
                _ => None,
            });
            values.next().unwrap_or("-".to_owned())
        };
        format!("{}|{}", of(CpusetFile::Cpus), of(CpusetFile::Mems))
    })
}

fn both(text: &str) -> [String; 2] {
    [text.to_owned(), text.to_owned()]
}

/// The condition: its reason if it is true, else nothing, and its message.
fn difference(advice: &Advice) -> (Option<&'static str>, String) {
    let mut conditions = advice.conditions.iter();
    let found = conditions.find(|it| it.kind == health::NUMA_ZONES_DIFFER);
    let found = found.unwrap();
    let reason = found.status.then_some(found.reason);
    (reason, found.message.clone())
}

#[test]
fn a_pod_has_its_zones_and_all_others_leave_them_until_it_goes() {
    let mut it = Fixture::with_zones(2);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(4000, GIB));
    it.pod(
        "mid",
        QosClass::MidLatencySensitive,
        CpuMemory::new(500, GIB),
    );
    let quiet = it.steps(12);
    assert_eq!(sets(&quiet, "web"), both("-|-"));
    assert_eq!(sets(&quiet, "burn"), both("0-2|-"));
    it.dedicated("db", "1", NumaBinding::Exclusive);
    // A group that no object describes yet.
    it.uses("unknown", 0, 0);
    let advice = it.step();
    assert_eq!(sets(&advice, "db"), both("2-3|1"));
    for name in ["web", "mid", "unknown"] {
        assert_eq!(sets(&advice, name), both("0-1|0"), "{name}");
    }
    assert_eq!(sets(&advice, "burn"), both("0-1|0"));
    // Pages follow the memory nodes of containers.
    let migrations = advice.settings.iter();
    let migrations = migrations.filter(|it| it.value == SettingValue::MigrateMemory(true));
    assert_eq!(migrations.count(), 5);
    // Lent pods first, the pod with zones last.
    let position = |name: &str| {
        let group: Name = format!("uid-{name}").into();
        let mut settings = advice.settings.iter();
        let is_mems = |it: &Setting| {
            it.group == Group::Pod { uid: group.clone() }
                && matches!(it.value, SettingValue::Mems(_))
        };
        settings.position(is_mems).unwrap()
    };
    assert!(position("burn") < position("web") && position("mid") < position("db"));
    it.pods.retain(|pod| &*pod.name != "db");
    it.sample.pods.remove("uid-db");
    // What was changed goes back, and nothing else.
    let changed = ["uid-web", "uid-burn"].map(|group| (Name::from(group), ChangedCpuset::Mems));
    let changed = BTreeMap::from(changed);
    it.now = it.now.plus(Duration::from_secs(1));
    it.add_up();
    let inputs = Inputs {
        sample: Some(&it.sample),
        node: Some(&it.node),
        pods: Some(&it.pods),
        processors: &it.processors,
        changed_cpusets: Some(&changed),
        ..Inputs::default()
    };
    let advice = advise(&mut it.advisor, &inputs, &it.settings, it.now);
    assert_eq!(sets(&advice, "web"), both("=|="));
    assert_eq!(sets(&advice, "burn"), both("0-2|="));
    assert_eq!(sets(&advice, "mid"), both("-|-"));
}

#[test]
fn what_is_idle_in_an_exclusive_zone_is_not_lent() {
    let mut it = Fixture::with_zones(4);
    // 65% of 8 CPUs.
    let before = it.steps(400).reclaimed;
    assert_eq!(before.capacity.milli_cpu, 5200);
    assert!(
        before.numa.values().all(|it| it.milli_cpu == 1300),
        "{before:?}"
    );
    it.dedicated("db", "2,3", NumaBinding::Exclusive);
    let advice = it.step();
    let after = &advice.reclaimed;
    // At most the CPUs of the two other zones.
    assert!(after.capacity.milli_cpu <= 4000, "{after:?}");
    assert!(after.capacity.memory <= 16 * GIB, "{after:?}");
    let by_zone: Vec<bool> = after.numa.values().map(|it| it.milli_cpu > 0).collect();
    assert_eq!(by_zone, [true, true, false, false], "{after:?}");
    for name in ["reclaimed cpu", "reclaimed memory"] {
        let mut terms = advice.terms.iter();
        let figure = terms.find(|it| it.name == name).unwrap();
        assert_eq!(figure.recompute(), figure.value, "{name}");
    }
    it.pods.clear();
    it.sample.pods.clear();
    assert_eq!(it.steps(400).reclaimed, before);
}

#[test]
fn zones_of_strange_machines() {
    type Change = fn(&mut Fixture);
    let cases: [(&str, Change, &str, &str); 8] = [
        (
            "a CPU is offline",
            |it| it.sample.machine.cpus.0.retain(|cpu| *cpu != 3),
            "2|1",
            "0-1|0",
        ),
        (
            "the zone has no memory",
            |it| it.sample.numa.get_mut(&1).unwrap().memory_total = Some(Bytes(0)),
            "2-3|-",
            "0-1|-",
        ),
        (
            "other zones have no memory",
            |it| it.sample.numa.get_mut(&0).unwrap().memory_total = None,
            "2-3|1",
            "0-1|-",
        ),
        (
            "the zone has no CPUs",
            |it| it.sample.numa.get_mut(&1).unwrap().cpus.0.clear(),
            "-|0",
            "-|0",
        ),
        (
            "a CPU of the zone is reserved",
            |it| it.node.reserved_cpus = CpuSet([2].into()),
            "3|1",
            "0-1|0",
        ),
        (
            "another pod has the other zone",
            |it| {
                it.dedicated("cache", "0", NumaBinding::Exclusive);
            },
            "2-3|1",
            "-|-",
        ),
        (
            "the same, with a reserved CPU",
            |it| {
                it.node.reserved_cpus = CpuSet([0].into());
                it.dedicated("cache", "0", NumaBinding::Exclusive);
            },
            "2-3|1",
            "0|-",
        ),
        (
            "the node has a zone without processors known",
            |it| it.processors.clear(),
            "2-3|1",
            "0-1|0",
        ),
    ];
    for (case, change, want, want_others) in cases {
        let mut it = Fixture::with_zones(2);
        it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
        it.dedicated("db", "1", NumaBinding::Exclusive);
        change(&mut it);
        let advice = it.step();
        assert_eq!(sets(&advice, "db"), both(want), "{case}");
        assert_eq!(sets(&advice, "web"), both(want_others), "{case}");
    }
}

#[test]
fn of_two_pods_that_claim_a_zone_the_older_one_has_it() {
    use NumaBinding::{Exclusive, Shared};
    let mut it = Fixture::with_zones(4);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.dedicated("old", "1", Exclusive);
    it.dedicated("both", "2", Shared);
    it.dedicated("too", "2", Shared);
    it.dedicated("young", "1,3", Exclusive);
    it.dedicated("alone", "2", Exclusive);
    let advice = it.step();
    for (name, want) in [
        ("old", "2-3|1"),
        ("both", "4-5|2"),
        ("too", "4-5|2"),
        ("young", "6-7|3"),
        ("alone", "0-1,4-5|0,2"),
        ("web", "0-1,4-5|0,2"),
    ] {
        assert_eq!(sets(&advice, name), both(want), "{name}");
    }
    let (reason, message) = difference(&advice);
    assert_eq!(reason, Some("ZonesRefused"));
    assert_eq!(
        message,
        "pod default/young does not get NUMA zone 1 of its annotation: an older pod has it"
    );
}

#[test]
fn zones_beyond_the_request_stay_with_others() {
    use NumaBinding::{Exclusive, Shared};
    for (case, binding, request, want, want_others) in [
        (
            "a thousandth of a core",
            Exclusive,
            (1, 1),
            "0-1|0",
            "2-7|1-3",
        ),
        ("one zone", Exclusive, (2000, 8 * GIB), "0-1|0", "2-7|1-3"),
        ("a little more", Exclusive, (2001, 1), "0-3|0-1", "4-7|2-3"),
        (
            "memory of two zones",
            Exclusive,
            (1, 9 * GIB),
            "0-3|0-1",
            "4-7|2-3",
        ),
        ("a pod that shares", Shared, (4000, GIB), "0-1|0", "-|-"),
        ("nothing", Exclusive, (0, 0), "-|-", "-|-"),
    ] {
        let mut it = Fixture::with_zones(4);
        it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
        let pod = it.dedicated("db", "0,1,2,3", binding);
        let (cpu, memory) = request;
        pod.containers[0].native.requests = CpuMemory::new(cpu, memory);
        let advice = it.step();
        assert_eq!(sets(&advice, "db"), both(want), "{case}");
        assert_eq!(sets(&advice, "web"), both(want_others), "{case}");
        let (reason, message) = difference(&advice);
        assert_eq!(reason, Some("ZonesRefused"), "{case}");
        let why = "of its annotation: its request does not need them";
        assert!(message.ends_with(why), "{case}: {message}");
    }
}

#[test]
fn claims_without_effect() {
    let mut it = Fixture::with_zones(2);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    // Finished, and without numa_binding.
    it.dedicated("done", "0", NumaBinding::Exclusive).phase = PodPhase::Finished;
    it.dedicated("plain", "0", NumaBinding::Exclusive)
        .numa_binding = None;
    let advice = it.step();
    assert_eq!(sets(&advice, "web"), both("-|-"));
    assert_eq!(difference(&advice).0, None);
    assert!(!advice.has_zones);
    it.dedicated("far", "7", NumaBinding::Exclusive);
    let advice = it.step();
    assert_eq!(sets(&advice, "web"), both("-|-"));
    assert_eq!(
        difference(&advice),
        (
            Some("ZonesRefused"),
            "pod default/far does not get NUMA zone 7 of its annotation: the node does not have it"
                .to_owned()
        )
    );
}

#[test]
fn with_static_managers_of_the_kubelet_the_agent_checks() {
    let mut it = Fixture::with_zones(2);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.dedicated("db", "1", NumaBinding::Exclusive);
    let is_static = |inputs: &mut Inputs<'_>| inputs.static_cpu_manager = true;
    for _ in 0..5 {
        let advice = it.step_with(is_static);
        assert_eq!(sets(&advice, "db"), both("-|-"));
        assert_eq!(sets(&advice, "web"), both("-|-"));
        assert_eq!(difference(&advice).0, None);
    }
    // The CPU manager does not bind memory.
    it.allow("db", "2", "0-1");
    it.allow("web", "0-1", "0-1");
    assert_eq!(difference(&it.step_with(is_static)).0, None);
    let both_static = |inputs: &mut Inputs<'_>| {
        inputs.static_cpu_manager = true;
        inputs.static_memory_manager = true;
    };
    let (reason, message) = difference(&it.step_with(both_static));
    assert_eq!(reason, Some("CpusetsDiffer"));
    let want = "container c of pod default/db may use the memory of NUMA zones 0-1 instead of 1; the agent only checks";
    assert!(message.starts_with(want), "{message}");
    it.allow("web", "1-2", "0");
    let (reason, message) = difference(&it.step_with(is_static));
    assert_eq!(reason, Some("CpusetsDiffer"));
    let want = "container c of pod default/web may use CPUs 1-2 instead of 0-1; the agent only checks, because the kubelet's static CPU or memory manager writes cpusets";
    assert_eq!(message, want);
    // On demand it enforces all the same, but on containers only.
    let advice = it.step_with(|inputs| {
        inputs.static_cpu_manager = true;
        inputs.numa = Some(NumaMode::Enforce);
    });
    assert_eq!(sets(&advice, "db"), ["-|-", "2-3|1"]);
    assert_eq!(sets(&advice, "web"), ["-|-", "0-1|0"]);
    let advice = it.step_with(|inputs| inputs.numa = Some(NumaMode::Check));
    assert_eq!(sets(&advice, "db"), both("-|-"));
}

#[test]
fn a_cpuset_that_another_process_changed_is_a_difference() {
    let mut it = Fixture::with_zones(2);
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.dedicated("db", "1", NumaBinding::Exclusive);
    // What was read before the files were written does not count.
    it.allow("web", "0-3", "0-1");
    assert_eq!(difference(&it.step()).0, None);
    it.steps(5);
    it.allow("web", "0-1", "0");
    it.allow("db", "2-3", "1");
    let (reason, message) = difference(&it.step());
    assert_eq!(
        (reason, &*message),
        (None, "cpusets follow the NUMA zones of pods")
    );
    it.allow("web", "0-1", "0-1");
    it.allow("db", "0-3", "0-1");
    let (reason, message) = difference(&it.step());
    assert_eq!(reason, Some("CpusetsDiffer"));
    let want = "container c of pod default/db may use CPUs 0-3 instead of 2-3; 1 more difference";
    assert_eq!(message, want);
}

#[test]
fn a_pod_that_may_use_less_than_its_limit_gets_one_event() {
    let mut it = Fixture::with_zones(2);
    it.pod("big", QosClass::Online, CpuMemory::new(3000, GIB));
    it.pod("small", QosClass::Online, CpuMemory::new(2000, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(4000, GIB));
    assert_eq!(it.step().events, []);
    it.dedicated("db", "1", NumaBinding::Exclusive);
    let checks = it.step_with(|inputs| inputs.numa = Some(NumaMode::Check));
    assert_eq!(checks.events, []);
    let events = it.step().events;
    let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["big"]);
    assert_eq!(events[0].reason, "NumaNarrowed");
    assert_eq!(
        events[0].message,
        "the pod may use CPUs 0-1 only, because other pods have NUMA zone 1; its limit is 3000m"
    );
    assert_eq!(it.step().events, []);
    let checkpoint = it.advisor.checkpoint(it.now);
    let wall = Timestamp::from_secs(EPOCH);
    it.advisor = Advisor::resume(&checkpoint, it.now, wall).unwrap();
    assert_eq!(it.step().events, []);
    it.pods[0].uid = "another".into();
    assert_eq!(it.step().events.len(), 1);
}

#[test]
fn zones_are_reported_with_their_owners() {
    let mut it = Fixture::with_zones(3);
    it.node.reserved_cpus = CpuSet([0].into());
    it.pod("web", QosClass::Online, CpuMemory::new(500, GIB));
    it.dedicated("db", "0,1", NumaBinding::Exclusive);
    let bound = it.pod("bound", QosClass::Online, CpuMemory::new(1000, GIB));
    bound.bound_cpus = CpuSet([5].into());
    // Memory without CPUs belongs to the nearest socket.
    let memory = NumaUse {
        memory_total: Some(Bytes(1 << 30)),
        ..NumaUse::default()
    };
    it.sample.numa.insert(9, memory);
    let distances: BTreeMap<u32, Vec<u32>> = [
        (0, vec![10, 12, 20, 30]),
        (1, vec![12, 10, 20, 30]),
        (9, vec![30, 30, 15, 10]),
    ]
    .into();
    it.now = it.now.plus(Duration::from_secs(1));
    it.add_up();
    let inputs = Inputs {
        distances: Some(&distances),
        ..it.inputs()
    };
    let mut advisor = Advisor::new(Timestamp(0), Timestamp::from_secs(EPOCH));
    let advice = advise(&mut advisor, &inputs, &it.settings, it.now);
    let zones = advice.zones.unwrap();
    let rows: Vec<String> = zones
        .iter()
        .map(|zone| {
            let owners = zone.allocations.iter();
            let owners = owners.map(|it| format!("{}:{}", it.name, it.requests.milli_cpu));
            let owners: Vec<String> = owners.collect();
            format!(
                "{} socket {} cpu {} of {} reserved {:?} {:?} {}",
                zone.number,
                zone.socket,
                zone.allocatable.milli_cpu,
                zone.capacity.milli_cpu,
                zone.reserved_cpus.to_string(),
                zone.distances,
                owners.join(",")
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            r#"0 socket 0 cpu 1000 of 2000 reserved "0" [10, 12, 20, 30] db:2000"#,
            r#"1 socket 0 cpu 2000 of 2000 reserved "" [12, 10, 20, 30] db:2000"#,
            r#"2 socket 1 cpu 2000 of 2000 reserved "" [] bound:1000"#,
            r#"9 socket 1 cpu 0 of 0 reserved "" [30, 30, 15, 10] "#,
        ]
    );
}

/// A random pod: its class, the zones that it claims, how, and whether it has ended.
type RandomPod = (u8, u64, bool, bool);

fn random_node(zones: u32, memory: u8, offline: u8, reserved: u16, pods: &[RandomPod]) -> Fixture {
    let mut it = Fixture::with_zones(zones);
    for (number, node) in &mut it.sample.numa {
        if memory & (1 << number) != 0 {
            node.memory_total = Some(Bytes(0));
        }
    }
    it.sample
        .machine
        .cpus
        .0
        .retain(|cpu| *cpu == 0 || *cpu != u32::from(offline));
    it.node.reserved_cpus = CpuSet((0..8).filter(|cpu| reserved & (1 << cpu) != 0).collect());
    for (index, (class, claim, is_shared, is_finished)) in pods.iter().enumerate() {
        let name = format!("p{index}");
        if *class < 4 {
            let classes = [
                QosClass::Online,
                QosClass::Lent,
                QosClass::MidLatencySensitive,
                QosClass::Free,
            ];
            it.pod(
                &name,
                classes[usize::from(*class)],
                CpuMemory::new(500, GIB),
            );
        } else {
            let binding = match is_shared {
                true => NumaBinding::Shared,
                false => NumaBinding::Exclusive,
            };
            let ids: Vec<String> = (0..6)
                .filter(|id| claim & (1 << id) != 0)
                .map(|id| id.to_string())
                .collect();
            let zones = if ids.is_empty() {
                "0".to_owned()
            } else {
                ids.join(",")
            };
            it.dedicated(&name, &zones, binding);
        }
        if *is_finished {
            it.pods.last_mut().unwrap().phase = PodPhase::Finished;
        }
    }
    it
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plans_are_legal_and_give_each_exclusive_zone_to_one_pod(
        zones in 1..=4_u32,
        memory in 0..16_u8,
        offline in 0..12_u8,
        reserved in prop_oneof![Just(0_u16), 0..256_u16],
        pods in proptest::collection::vec((0..7_u8, 0..64_u64, any::<bool>(), proptest::bool::weighted(0.1)), 0..8),
        is_static: bool,
    ) {
        let mut it = random_node(zones, memory, offline, reserved, &pods);
        let advice = it.step_with(|inputs| {
            inputs.static_cpu_manager = is_static;
            inputs.numa = Some(NumaMode::Enforce);
        });
        let inputs = it.inputs();
        let owners = crate::node::numa::ZoneOwners::of(&inputs);
        let memory_nodes: BTreeSet<u32> = it.sample.numa.iter()
            .filter(|(_, node)| node.memory_total != Some(Bytes(0)))
            .map(|(number, _)| *number)
            .collect();
        // No file has two values, and no set is empty or names what does not exist.
        let mut files = BTreeSet::new();
        for setting in &advice.settings {
            let file = match &setting.value {
                SettingValue::Cpus(cpus) => {
                    prop_assert!(!cpus.0.is_empty());
                    prop_assert!(cpus.0.is_subset(&it.sample.machine.cpus.0));
                    "cpus"
                }
                SettingValue::Mems(mems) => {
                    prop_assert!(!mems.0.is_empty());
                    prop_assert!(mems.0.is_subset(&memory_nodes), "{mems} of {memory_nodes:?}");
                    "mems"
                }
                SettingValue::Original(CpusetFile::Cpus) => "cpus",
                SettingValue::Original(CpusetFile::Mems) => "mems",
                SettingValue::MigrateMemory(_) | SettingValue::Original(CpusetFile::MigrateMemory) => "migrate",
                SettingValue::CpuShares(_) => "shares",
                SettingValue::CpuQuota(_) => "quota",
                SettingValue::MemoryLimit(_) => "memory",
                SettingValue::CpuIdle(_) => "idle",
            };
            prop_assert!(files.insert((setting.group.clone(), file)), "two values of {file} of {:?}", setting.group);
        }
        let reserved = &it.node.reserved_cpus.0;
        for pod in it.pods.iter().filter(|pod| pod.is_active()) {
            let own = owners.zones_of(&pod.group);
            for other in it.pods.iter().filter(|other| other.group != pod.group && other.is_active()) {
                let theirs = owners.zones_of(&other.group);
                let is_exclusive = pod.numa_binding == Some(NumaBinding::Exclusive);
                prop_assert!(!is_exclusive || own.both(theirs).is_empty(), "{own} {theirs}");
            }
            // A container may use what its pod may: cgroup v1 refuses anything else.
            let [of_pod, of_container] = sets(&advice, &pod.name);
            prop_assert!(is_static || of_pod == of_container, "{of_pod} {of_container}");
            let Some((cpus, _)) = of_container.split_once('|') else { continue };
            let Some(cpus) = CpuSet::parse(cpus) else { continue };
            let zone_cpus = |zones: ZoneSet| -> BTreeSet<u32> {
                zones.iter().filter_map(|id| it.sample.numa.get(&u32::from(id))).flat_map(|node| node.cpus.0.clone()).collect()
            };
            if !own.is_empty() && zone_cpus(own).iter().any(|cpu| it.sample.machine.cpus.0.contains(cpu) && !reserved.contains(cpu)) {
                prop_assert!(cpus.0.is_subset(&zone_cpus(own)));
            }
            // No pod without the zone is on the CPUs of an exclusive zone, but for reserved ones on a full node.
            for other in it.pods.iter().filter(|other| other.group != pod.group && other.is_active() && other.numa_binding == Some(NumaBinding::Exclusive)) {
                let theirs = zone_cpus(owners.zones_of(&other.group));
                let common: BTreeSet<u32> = &cpus.0 & &theirs;
                prop_assert!(common.is_subset(reserved), "{} has {cpus}, {} has {theirs:?}", pod.name, other.name);
            }
        }
    }
}
