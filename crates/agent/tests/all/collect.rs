//! Samples of nodes with each version and layout of cgroups.

use std::fs;

use agent::collect::Collector;
use agent::hierarchy::Version;
use agent::layout::Driver;
use engine::model::Timestamp;
use engine::node::{Bytes, GroupUse, NanoCores, NodeSample, PodQos, Stall};

use crate::fake::{FakeNode, STATIC_UID, UID};

const STALL: Option<Stall> = Some(Stall {
    some: 12.5,
    full: 2.25,
});

/// A layout: the path of the BestEffort directory, of a pod there, of a static Guaranteed pod, and of a container of the first.
struct Layout {
    driver: Driver,
    besteffort: &'static str,
    pod: String,
    static_pod: String,
    container: String,
}

fn layouts() -> [Layout; 2] {
    let id = "e".repeat(64);
    let pod = format!("kubepods/besteffort/pod{UID}");
    let slice = UID.replace('-', "_");
    let slices = "kubepods.slice/kubepods-besteffort.slice";
    let systemd_pod = format!("{slices}/kubepods-besteffort-pod{slice}.slice");
    [
        Layout {
            driver: Driver::Cgroupfs,
            besteffort: "kubepods/besteffort",
            static_pod: format!("kubepods/pod{STATIC_UID}"),
            container: format!("{pod}/{id}"),
            pod,
        },
        Layout {
            driver: Driver::Systemd,
            besteffort: slices,
            static_pod: format!("kubepods.slice/kubepods-pod{STATIC_UID}.slice"),
            container: format!("{systemd_pod}/cri-containerd-{id}.scope"),
            pod: systemd_pod,
        },
    ]
}

#[test]
fn every_version_and_layout_gives_the_same_sample() {
    for version in [Version::V1, Version::V2, Version::Hybrid] {
        for layout in layouts() {
            let case = format!("{version:?} {:?}", layout.driver);
            let node = FakeNode::new();
            let set = |path: &str, cpu, memory| match version {
                Version::V2 => node.set_group_v2(path, cpu, memory),
                _ => node.set_group_v1(path, cpu, memory),
            };
            let kubepods = layout.besteffort.split('/').next().unwrap();
            let groups = [
                kubepods,
                layout.besteffort,
                &layout.pod,
                &layout.container,
                &layout.static_pod,
            ];
            match version {
                Version::V1 => {}
                Version::V2 => node.write("cgroup/cgroup.controllers", "cpu memory"),
                Version::Hybrid => {
                    node.write("cgroup/unified/cgroup.controllers", "");
                    for group in groups {
                        for file in ["cpu", "memory", "io"] {
                            let path = format!("cgroup/unified/{group}/{file}.pressure");
                            node.write(&path, "some avg10=12.50\nfull avg10=2.25\n");
                        }
                    }
                }
            }
            groups.iter().for_each(|group| set(group, 1_000_000, 5000));
            let mut collector = Collector::new(&node.paths(), 1).unwrap();
            assert_eq!(collector.hierarchies().version(), version, "{case}");
            let first = collector.sample(Timestamp::from_secs(10));
            assert_eq!(first.kubepods.cpu, None, "{case}: one sample has no rate");

            // Half a core in two seconds.
            groups.iter().for_each(|group| set(group, 2_000_000, 6000));
            let sample = collector.sample(Timestamp::from_secs(12));
            assert_eq!(collector.tree().driver(), Some(layout.driver), "{case}");
            assert_eq!(collector.problems().count(), 0, "{case}");
            let pod = &sample.pods[UID];
            assert_eq!(pod.qos, PodQos::BestEffort, "{case}");
            assert_eq!(sample.pods[STATIC_UID].qos, PodQos::Guaranteed, "{case}");
            assert_eq!(pod.containers.len(), 1, "{case}");
            assert_eq!(sample.burstable, GroupUse::default(), "{case}");
            for group in [
                &sample.kubepods,
                &sample.besteffort,
                &pod.group,
                &pod.containers.values().next().unwrap().clone(),
                &sample.pods[STATIC_UID].group,
            ] {
                check_group(&case, group, version);
            }
        }
    }
}

fn check_group(case: &str, group: &GroupUse, version: Version) {
    assert_eq!(group.cpu, Some(NanoCores(500_000_000)), "{case}");
    assert_eq!(group.throttling.unwrap().periods, 0, "{case}");
    let memory = group.memory.as_ref().unwrap();
    assert_eq!(memory.usage, Bytes(6000), "{case}");
    assert_eq!(memory.working_set, Bytes(5000), "{case}");
    let numa: Vec<u64> = memory.numa.values().map(|it| it.0).collect();
    match version {
        Version::V2 => assert_eq!(numa, [100, 200], "{case}"),
        _ => assert_eq!(numa, [4096, 8192], "{case}"),
    }
    let stall = if version == Version::V1 { None } else { STALL };
    let pressure = [group.pressure.cpu, group.pressure.memory, group.pressure.io];
    assert_eq!(pressure, [stall; 3], "{case}");
}

/// A node with cgroup v2 and one pod, and a collector that reads all details each time.
fn small_node() -> (FakeNode, Collector) {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    node.set_group_v2("kubepods", 0, 5000);
    node.set_group_v2(&format!("kubepods/pod{UID}"), 0, 5000);
    let collector = Collector::new(&node.paths(), 1).unwrap();
    (node, collector)
}

fn seconds(collector: &mut Collector, seconds: i64) -> NodeSample {
    collector.sample(Timestamp::from_secs(seconds))
}

#[test]
fn the_machine_and_its_numa_nodes_are_measured() {
    let (node, mut collector) = small_node();
    seconds(&mut collector, 1);
    node.set_busy_ticks([150, 300]);
    let sample = seconds(&mut collector, 2);
    let machine = &sample.machine;
    assert_eq!(machine.cpus.to_string(), "0-1");
    assert_eq!(machine.cpu, Some(NanoCores(1_500_000_000)));
    let memory = machine.memory.unwrap();
    assert_eq!(
        (memory.total, memory.available),
        (Bytes(1_024_000), Bytes(409_600))
    );
    assert_eq!(machine.load, Some([0.5, 1.25, 2.0]));
    assert_eq!(machine.pressure.io, STALL);
    let numa: Vec<_> = sample
        .numa
        .values()
        .map(|it| (it.cpu, it.memory_free))
        .collect();
    let free = Some(Bytes(102_400));
    assert_eq!(
        numa,
        [
            (Some(NanoCores(500_000_000)), free),
            (Some(NanoCores(1_000_000_000)), free)
        ]
    );
}

/// In a virtual machine on a busy host the kernel counts only a part of the busy time.
#[test]
fn lost_ticks_of_a_cpu_count_as_busy() {
    let (node, mut collector) = small_node();
    node.set_uptime(100, [1000, 1000], [5000, 5000]);
    seconds(&mut collector, 1);
    // One second later: 0.2 s were busy and the rest is lost; 0.1 s were busy and 0.9 s idle.
    node.set_uptime(101, [1020, 1010], [5000, 5090]);
    let sample = seconds(&mut collector, 2);
    assert_eq!(sample.machine.cpu, Some(NanoCores(1_100_000_000)));
}

#[test]
fn details_are_read_in_turns_and_at_once_for_new_pods() {
    let (node, _) = small_node();
    let mut collector = Collector::new(&node.paths(), 3).unwrap();
    let file = format!("cgroup/kubepods/pod{UID}/memory.stat");
    assert_eq!(working_set(&seconds(&mut collector, 1)), 4000);
    node.write(&file, "inactive_file 0\n");
    let seen: Vec<u64> = (2..=4)
        .map(|at| working_set(&seconds(&mut collector, at)))
        .collect();
    assert_eq!(seen.last(), Some(&5000));
    assert_eq!(seen.first(), Some(&4000));
}

fn working_set(sample: &NodeSample) -> u64 {
    sample.pods[UID]
        .group
        .memory
        .as_ref()
        .unwrap()
        .working_set
        .0
}

#[test]
fn a_value_that_cannot_be_read_is_missing_and_named() {
    let pod = format!("cgroup/kubepods/pod{UID}");
    for (file, content, problem) in [
        (
            format!("{pod}/cpu.stat"),
            Some("usage_usec -1\n"),
            Some("cpu.stat"),
        ),
        (
            format!("{pod}/memory.current"),
            Some("max\n"),
            Some("memory.current"),
        ),
        (
            format!("{pod}/cpu.pressure"),
            Some("some avg10=x\n"),
            Some("cpu.pressure"),
        ),
        (format!("{pod}/cpu.pressure"), None, None),
        (
            "proc/meminfo".to_owned(),
            Some("MemTotal: 1 pages\n"),
            Some("meminfo"),
        ),
        ("proc/stat".to_owned(), None, Some("stat")),
        ("proc/pressure".to_owned(), None, None),
        ("sys/devices/system/node".to_owned(), None, None),
    ] {
        let (node, mut collector) = small_node();
        match content {
            Some(content) => node.write(&file, content),
            None => node.remove(&file),
        }
        let sample = seconds(&mut collector, 1);
        assert!(sample.pods.contains_key(UID), "{file}");
        let problems: Vec<&str> = collector.problems().map(|(file, _)| file).collect();
        assert_eq!(
            problems.len(),
            usize::from(problem.is_some()),
            "{file}: {problems:?}"
        );
        if let Some(problem) = problem {
            assert!(problems[0].ends_with(problem), "{file}: {problems:?}");
        }
    }
}

#[test]
fn pods_come_and_go() {
    let (node, mut collector) = small_node();
    let other = UID.replace('9', "a");
    let path = format!("kubepods/burstable/pod{other}");
    assert_eq!(seconds(&mut collector, 1).pods.len(), 1);
    node.set_group_v2("kubepods/burstable", 0, 1);
    node.set_group_v2(&path, 0, 1);
    let sample = seconds(&mut collector, 2);
    assert_eq!(sample.pods[&*other].qos, PodQos::Burstable);
    assert_eq!(sample.pods[&*other].containers.len(), 0);

    let container = format!("{path}/{}", "c".repeat(64));
    node.set_group_v2(&container, 0, 1);
    assert_eq!(seconds(&mut collector, 3).pods[&*other].containers.len(), 1);
    node.remove(&format!("cgroup/{path}"));
    assert_eq!(seconds(&mut collector, 4).pods.len(), 1);
    node.remove("cgroup/kubepods");
    assert_eq!(seconds(&mut collector, 5).pods.len(), 0);
    assert_eq!(collector.problems().next().unwrap().0, "kubepods");
}

#[test]
fn a_thousand_pods_are_measured_and_more_are_a_problem() {
    let (node, mut collector) = small_node();
    let add = |number: u32| {
        let pod = format!("kubepods/pod{number:08x}-47f5-41dc-b3fb-a7379534fd30");
        node.set_group_v2(&pod, 0, 5000);
    };
    (1..1000).for_each(add);
    let measured = |sample: &NodeSample| {
        let pods = sample.pods.values();
        pods.filter(|it| it.group.memory.is_some()).count()
    };
    for second in 1..=2 {
        assert_eq!(measured(&seconds(&mut collector, second)), 1000);
    }
    assert_eq!(collector.problems().count(), 0);
    add(1000);
    assert_eq!(measured(&seconds(&mut collector, 3)), 1000);
    let problems: Vec<_> = collector.problems().collect();
    let why = "1000 pods are measured, 1 are not";
    assert_eq!(problems, [("the directories of pods", why)]);
}

#[test]
fn a_counter_that_goes_back_gives_no_rate_once() {
    let (node, mut collector) = small_node();
    let mut cpu = |at: i64, micros: u64| {
        node.set_group_v2("kubepods", micros, 1);
        let used = seconds(&mut collector, at).kubepods.cpu;
        used.map(|it| it.0)
    };
    assert_eq!(cpu(1, 1_000_000), None);
    assert_eq!(cpu(2, 2_000_000), Some(1_000_000_000));
    assert_eq!(cpu(3, 5), None);
    assert_eq!(cpu(4, 500_005), Some(500_000_000));
}

#[test]
fn hostile_names_and_links_are_not_pods() {
    let (node, mut collector) = small_node();
    for name in [
        "pod..",
        "podx",
        "pod",
        "92b291c2",
        "pod92b291c2_47f5_41dc_b3fb_a7379534fd30",
    ] {
        fs::create_dir(node.cgroups().join("kubepods").join(name)).unwrap();
    }
    let link = node
        .cgroups()
        .join(format!("kubepods/pod{}", UID.replace('9', "b")));
    std::os::unix::fs::symlink("/", link).unwrap();
    assert_eq!(seconds(&mut collector, 1).pods.len(), 1);
}

#[test]
fn a_machine_without_cgroups_is_refused_by_name() {
    let node = FakeNode::new();
    let error = Collector::new(&node.paths(), 1).unwrap_err().to_string();
    assert!(error.contains("has no cgroups"), "{error}");
}
