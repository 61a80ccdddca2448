//! Parsers and collector on random bytes.

use agent::collect::Collector;
use agent::layout::Driver;
use agent::parse;
use engine::model::Timestamp;
use engine::node::CpuSet;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fake::{FakeNode, UID};

/// Bytes that look like a kernel file more often than random ones.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 24] = [
        "usage_usec",
        "nr_periods",
        "some",
        "full",
        "avg10=",
        "N0=",
        "N1=",
        "anon",
        "cpu",
        "cpu0",
        "MemTotal:",
        "kB",
        "Node",
        " ",
        " ",
        "\n",
        "\n",
        "0",
        "1",
        "99",
        "18446744073709551616",
        "-1",
        "max",
        ".",
    ];
    let piece = prop_oneof![
        4 => proptest::sample::select(&PIECES[..]).prop_map(|it| it.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn parsers_accept_any_bytes(text in bytes()) {
        parse::number(&text);
        parse::flat(&text, "usage_usec");
        parse::meminfo(&text, "MemTotal");
        parse::numa(&text, "anon");
        parse::cpu_list(&text);
        prop_assert!(parse::cpu_ticks(&text).len() <= text.len());
        parse::uptime(&text);
        if let Some(load) = parse::load(&text) {
            prop_assert!(load.iter().all(|it| it.is_finite() && *it >= 0.0));
        }
        if let Some(stall) = parse::pressure(&text) {
            prop_assert!((0.0..=100.0).contains(&stall.some), "{}", stall.some);
            prop_assert!((0.0..=100.0).contains(&stall.full), "{}", stall.full);
        }
    }

    #[test]
    fn names_of_directories_accept_any_text(text in "\\PC{0,80}") {
        for driver in [Driver::Cgroupfs, Driver::Systemd] {
            driver.qos(&text);
            if let Some(uid) = driver.pod_uid(&text) {
                prop_assert!(uid.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-'));
            }
            if let Some(id) = driver.container_id(&text) {
                prop_assert!(id.bytes().all(|it| it.is_ascii_alphanumeric()));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back(number in any::<u64>(), cpus in vec(0_u32..=CpuSet::LARGEST, 0..40)) {
        prop_assert_eq!(parse::number(format!("{number}\n").as_bytes()), Some(number));
        let line = format!("a 1\nusage_usec {number}\nusage_usec_x 2\n");
        prop_assert_eq!(parse::flat(line.as_bytes(), "usage_usec"), Some(number));
        let cpus = CpuSet(cpus.into_iter().collect());
        prop_assert_eq!(CpuSet::parse(&cpus.to_string()), Some(cpus));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_node_whose_files_are_garbage_gives_a_sample(text in bytes(), file in 0..12_usize) {
        let node = FakeNode::new();
        node.write("cgroup/cgroup.controllers", "");
        let pod = format!("kubepods/pod{UID}");
        node.set_group_v2("kubepods", 1, 1);
        node.set_group_v2(&pod, 1, 1);
        let mut collector = Collector::new(&node.paths(), 1).unwrap();
        collector.sample(Timestamp::from_secs(1));
        let of_pod = |name: &str| format!("cgroup/{pod}/{name}");
        let files = [
            of_pod("cpu.stat"), of_pod("memory.current"), of_pod("memory.stat"), of_pod("memory.numa_stat"),
            of_pod("cpu.pressure"), "proc/stat".into(), "proc/meminfo".into(), "proc/loadavg".into(),
            "proc/pressure/io".into(), "sys/devices/system/node/online".into(),
            "sys/devices/system/node/node0/meminfo".into(), "sys/devices/system/node/node1/cpulist".into(),
        ];
        node.write(&files[file], &text);
        let sample = collector.sample(Timestamp::from_secs(2));
        prop_assert_eq!(sample.pods.len(), 1);
    }
}
