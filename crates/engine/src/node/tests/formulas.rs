//! Formulas alone: headroom, and the values of cgroups.

use super::super::cgroup::{kubelet_settings, pod_qos, pod_values};
use super::super::headroom::{
    MemorySupply, by_utilization, container_cpu, container_memory, memory, supply,
};
use super::super::pods::{LocalContainer, ResourcePair};
use super::super::settings::{CpuUtilization, MemoryUtilization};
use super::*;

fn thousandths(value: f64) -> i64 {
    (value * 1000.0).round() as i64
}

#[test]
fn headroom_follows_the_use_of_what_was_lent() {
    let settings = |max: f64| CpuUtilization {
        enable: true,
        target: 0.6,
        max,
        max_oversold_rate: 1.5,
        max_capacity_rate: 1.0,
    };
    // (case, maximum, supply, utilization, lent before, most, wanted), in cores
    for (case, max, supply, utilization, last, most, want) in [
        ("no supply", 0.8, 0.0, 0.4, 10.0, 0.0, 0.0),
        ("below the target", 0.8, 10.0, 0.4, 10.0, 0.0, 12.0),
        ("at the target", 0.8, 10.0, 0.6, 11.0, 0.0, 11.0),
        ("above the maximum", 0.8, 10.0, 0.9, 12.0, 0.0, 11.0),
        ("no maximum", 0.0, 10.0, 0.9, 12.0, 0.0, 12.0),
        ("at least the supply", 0.8, 10.0, 0.9, 5.0, 0.0, 10.0),
        ("at most the rate", 0.8, 10.0, 0.6, 20.0, 0.0, 15.0),
        ("at most the node", 0.8, 10.0, 0.6, 20.0, 13.0, 13.0),
    ] {
        let found = by_utilization(&settings(max), supply, utilization, last, most);
        assert_eq!(thousandths(found), thousandths(want), "{case}");
    }
}

#[test]
fn a_quota_bounds_the_supply() {
    for (case, node_use, lent, quota, want) in [
        ("idle and lent", 5000, 1000, None, 4000),
        ("a quota", 5000, 1000, Some(2000), 2000),
        ("more in use than there is", 9000, 1000, None, 1000),
    ] {
        assert_eq!(supply(8000, node_use, lent, quota), want, "{case}");
    }
}

#[test]
fn the_need_of_containers_has_a_buffer() {
    for (case, metrics, request, is_measured, want) in [
        ("its use", [1.0, 0.0, 0.0], 3.0, true, 1.25),
        ("a load", [1.0, 0.5, 2.0], 3.0, true, 2.0),
        ("idle", [0.0; 3], 3.0, true, 3.0),
        ("not measured", [1.0, 0.5, 2.0], 3.0, false, 3.0),
        ("nothing known", [0.0; 3], 0.0, false, 4.0),
    ] {
        let found = container_cpu(metrics, request, is_measured, 4.0);
        assert_eq!(thousandths(found), thousandths(want), "{case}");
    }
    for (case, metrics, is_measured, is_system, want) in [
        ("its use", [100.0, 50.0, 10.0], true, false, 176.0),
        ("invalid metrics", [100.0, 50.0, -1.0], true, false, 165.0),
        ("of the system", [100.0, 50.0, 10.0], true, true, 100.0),
        ("not measured", [100.0, 50.0, 10.0], false, false, 7.0),
        ("nothing in use", [0.0; 3], true, false, 9.0),
    ] {
        let found = container_memory(metrics, 7.0, is_measured, is_system, 9.0);
        assert_eq!(thousandths(found), thousandths(want), "{case}");
    }
}

#[test]
fn memory_that_is_lent_again() {
    let settings = MemoryUtilization {
        enable: true,
        free_based_ratio: 0.5,
        static_based_capacity: 10,
        cache_based_ratio: 0.0,
        max_oversold_rate: 2.0,
        watermark_scale_factor: 100,
    };
    let off = MemoryUtilization {
        enable: false,
        ..settings
    };
    let cache = MemoryUtilization {
        cache_based_ratio: 1.0,
        ..settings
    };
    let all = MemoryUtilization {
        static_based_capacity: 1_000_000,
        ..settings
    };
    let nothing = MemoryUtilization {
        static_based_capacity: 0,
        ..settings
    };
    let node = MemorySupply {
        total: 10_000.0,
        free: 5_000.0,
        used: 4_000.0,
        upper_bound: 10_000.0,
        reserve: 1_000.0,
        estimate: 6_000.0,
        used_by_online: 5_500.0,
        system_cache: 100.0,
        cores_per_gib: 0.2,
    };
    let less_free = MemorySupply {
        free: 3_000.0,
        ..node
    };
    let cores = |cores_per_gib| MemorySupply {
        cores_per_gib,
        ..less_free
    };
    let unused = MemorySupply {
        used: 0.0,
        ..less_free
    };
    let full = MemorySupply {
        estimate: 20_000.0,
        ..node
    };
    for (case, settings, supply, want) in [
        (
            "off: without the estimate and the reserve",
            off,
            node,
            3_000.0,
        ),
        // 3,000 and half of what is free, less a watermark of 200 and a growth of 600, and 10.
        ("free memory", settings, node, 4_710.0),
        ("less free memory", settings, less_free, 3_710.0),
        ("page cache", cache, less_free, 6_010.0),
        ("many cores", cache, cores(0.5), 3_710.0),
        ("few cores", cache, cores(0.1), 3_710.0),
        ("nothing in use", cache, unused, 3_710.0),
        ("never more than the node has", all, node, 9_000.0),
        ("never less than nothing", nothing, full, 0.0),
    ] {
        assert_eq!(memory(&settings, supply), want, "{case}");
    }
}

/// A container with the same amounts as request and limit.
fn container(role: ContainerRole, milli_cpu: i64, memory: i64) -> LocalContainer {
    let amounts = CpuMemory::new(milli_cpu, memory);
    LocalContainer {
        name: "c".into(),
        id: Some("id".into()),
        role,
        native: ResourcePair {
            requests: amounts,
            limits: amounts,
        },
        tiers: BTreeMap::new(),
    }
}

#[test]
fn a_pod_has_a_limit_if_every_container_has_one() {
    use ContainerRole::{Init, Regular, Sidecar};
    let mut it = Fixture::new(2, 4);
    let pod = it.pod("p", QosClass::Online, CpuMemory::ZERO);
    // (case, role and CPU of each container, quota in microseconds per period)
    for (case, containers, want) in [
        ("one", vec![(Regular, 1000)], Some(100_000)),
        ("the least", vec![(Regular, 1)], Some(1000)),
        ("one without", vec![(Regular, 1000), (Regular, 0)], None),
        (
            "a large init container",
            vec![(Init, 3000), (Regular, 1000)],
            Some(300_000),
        ),
        (
            "an init container beside a sidecar",
            vec![(Sidecar, 1000), (Init, 3000), (Regular, 1000)],
            Some(400_000),
        ),
        (
            "a sidecar after it",
            vec![(Init, 3000), (Sidecar, 1000), (Regular, 1000)],
            Some(300_000),
        ),
        (
            "a sidecar of the least",
            vec![(Sidecar, 1), (Regular, 999)],
            Some(100_000),
        ),
        (
            "a sidecar without",
            vec![(Sidecar, 0), (Regular, 1000)],
            None,
        ),
        (
            "an init container without",
            vec![(Init, 0), (Regular, 1000)],
            None,
        ),
    ] {
        let containers = containers.into_iter();
        pod.containers = containers
            .map(|(role, cpu)| container(role, cpu, 0))
            .collect();
        assert_eq!(pod_values(pod, |it| it.native).quota, want, "{case}");
    }
}

#[test]
fn the_class_of_a_pod_follows_its_requests_and_limits() {
    let mut it = Fixture::new(2, 4);
    let pod = it.pod("p", QosClass::Online, CpuMemory::ZERO);
    let both = || container(ContainerRole::Regular, 1, 1);
    let mut more = both();
    more.native.limits.milli_cpu = 2;
    for (case, containers, want) in [
        (
            "nothing",
            vec![container(ContainerRole::Regular, 0, 0)],
            PodQos::BestEffort,
        ),
        ("limits of both", vec![both(), both()], PodQos::Guaranteed),
        (
            "of one only",
            vec![container(ContainerRole::Regular, 1, 0)],
            PodQos::Burstable,
        ),
        ("a larger limit", vec![more], PodQos::Burstable),
    ] {
        pod.containers = containers;
        assert_eq!(pod_qos(pod), want, "{case}");
    }
}

#[test]
fn own_pods_get_back_the_values_of_the_kubelet() {
    let mut it = Fixture::new(2, 4);
    it.pod("online", QosClass::Online, CpuMemory::ZERO);
    let pod = it.pod("p", QosClass::Lent, CpuMemory::new(100, MIB));
    pod.containers = vec![container(ContainerRole::Regular, 1000, MIB)];
    let (pod, not_own) = (pod.clone(), it.pods[0].clone());
    let settings = kubelet_settings(&[not_own, pod.clone()]);
    let values = [
        SettingValue::CpuIdle(false),
        SettingValue::CpuShares(1024),
        SettingValue::CpuQuota(Some(100_000)),
        SettingValue::MemoryLimit(Some(Bytes(MIB.unsigned_abs()))),
    ];
    let uid = pod.group.clone();
    let of_container = Group::Container {
        pod: pod.group.clone(),
        id: "id".into(),
    };
    let want: Vec<Setting> = [Group::Pod { uid }, of_container]
        .into_iter()
        .flat_map(|group| {
            values.clone().map(|value| Setting {
                group: group.clone(),
                value,
            })
        })
        .collect();
    assert_eq!(settings, want);
}
