//! Cpusets of NUMA zones: every kill point on a model of the kernel, and the whole agent on a directory that looks like a node's
//! cgroups.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use agent::agent::Agent;
use agent::collect::Collector;
use agent::hierarchy::Version;
use agent::report::taint::TaintTarget;
use agent::tree::Tree;
use agent::write::{Mode, Report, Writer};
use engine::model::{Name, Timestamp};
use engine::node::{CpuSet, CpusetFile, Group, NumaMode, Setting, SettingValue};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{FakeNode, UID};
use crate::support::{CNR, TestCluster, eventually};
use crate::write::Model;

const LENT: &str = "00000000-47f5-41dc-b3fb-a7379534fd30";
const WEB: &str = "11111111-47f5-41dc-b3fb-a7379534fd30";

/// Three pods with a container each, on a machine of four CPUs and two NUMA nodes.
struct Node {
    tree: Tree,
    model: Model,
    directory: TempDir,
}

fn pod_path(uid: &str) -> String {
    match uid {
        LENT => format!("kubepods/besteffort/pod{uid}"),
        _ => format!("kubepods/pod{uid}"),
    }
}

fn container_of(uid: &str) -> String {
    format!("{}{}", "c".repeat(56), &uid[..8])
}

fn node(version: Version) -> Node {
    let fake = FakeNode::new();
    if version == Version::V2 {
        fake.write("cgroup/cgroup.controllers", "");
    }
    let mut files = BTreeMap::new();
    let mut add = |group: &str, is_pod: bool| {
        match version {
            Version::V2 => fake.set_group_v2(group, 0, 65536),
            _ => fake.set_group_v1(group, 0, 65536),
        }
        // The groups of cgroup v2 have what their parents have.
        let is_empty = version == Version::V2 && is_pod;
        for (file, text) in [("cpuset.cpus", "0-3"), ("cpuset.mems", "0-1")] {
            let text = if is_empty { "" } else { text };
            files.insert(format!("{group}/{file}"), text.to_owned());
        }
        if version != Version::V2 {
            files.insert(format!("{group}/cpuset.memory_migrate"), "0".to_owned());
        }
    };
    add("kubepods", false);
    add("kubepods/besteffort", false);
    for uid in [LENT, WEB, UID] {
        add(&pod_path(uid), true);
        add(&format!("{}/{}", pod_path(uid), container_of(uid)), true);
    }
    let collector = Collector::new(&fake.paths(), 1).unwrap();
    let mut tree = Tree::default();
    tree.scan(collector.hierarchies()).unwrap();
    assert_eq!(tree.pods().len(), 3);
    Node {
        tree,
        model: Model::new(version, files),
        directory: tempfile::tempdir().unwrap(),
    }
}

impl Node {
    fn writer(&self) -> Writer {
        Writer::new(Mode::Apply, self.directory.path().join("journal")).unwrap()
    }

    fn apply(&mut self, writer: &mut Writer, settings: &[Setting], second: i64) -> Report {
        let now = Timestamp::from_secs(second);
        writer.apply(&mut self.model, &self.tree, settings, now)
    }

    /// The effective CPUs of the pod and of its container.
    fn effective_cpus(&self, uid: &str) -> [String; 2] {
        let pod = pod_path(uid);
        [pod.clone(), format!("{pod}/{}", container_of(uid))].map(|group| {
            let file = format!("{group}/cpuset.cpus");
            self.model.effective(&file).unwrap()
        })
    }

    fn file(&self, uid: &str, file: &str) -> [String; 2] {
        let pod = pod_path(uid);
        [pod.clone(), format!("{pod}/{}", container_of(uid))]
            .map(|group| self.model.files[&format!("{group}/{file}")].clone())
    }
}

/// The settings of groups, in this order: uid, CPUs and memory nodes; none: as they were.
fn settings(sets: &[(&str, Option<(&str, &str)>)]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (uid, set) in sets {
        let pod = Name::from(*uid);
        let id = Name::from(container_of(uid));
        let groups = [
            Group::Pod { uid: pod.clone() },
            Group::Container { pod, id },
        ];
        for group in groups {
            let set = set.map(|set| [set.0, set.1].map(|it| CpuSet::parse(it).unwrap()));
            let values = match set {
                Some([cpus, mems]) => vec![
                    SettingValue::Cpus(cpus),
                    SettingValue::Mems(mems),
                    SettingValue::MigrateMemory(true),
                ],
                None => [
                    CpusetFile::Cpus,
                    CpusetFile::Mems,
                    CpusetFile::MigrateMemory,
                ]
                .map(SettingValue::Original)
                .to_vec(),
            };
            settings.extend(values.into_iter().map(|value| Setting {
                group: group.clone(),
                value,
            }));
        }
    }
    settings
}

/// The pod with this uid has the zone of CPUs 2 and 3, or the other one; or no pod has a zone.
fn plans() -> [Vec<Setting>; 3] {
    let (first, second) = (Some(("0-1", "0")), Some(("2-3", "1")));
    [
        settings(&[(LENT, first), (WEB, first), (UID, second)]),
        settings(&[(LENT, second), (WEB, second), (UID, first)]),
        settings(&[(LENT, None), (WEB, None), (UID, None)]),
    ]
}

#[test]
fn a_kill_between_any_two_writes_leaves_a_legal_state_and_the_next_agent_finishes() {
    for version in [Version::V1, Version::V2] {
        let [zone, other, none] = plans();
        let transitions = [
            (&none, &zone),
            (&zone, &none),
            (&zone, &other),
            (&other, &none),
        ];
        for (from, to) in transitions {
            let mut points = 0;
            for kill in 0.. {
                let mut node = node(version);
                let original = node.model.effective_files();
                let mut writer = node.writer();
                assert_eq!(node.apply(&mut writer, from, 1).failed, []);
                let before = node.model.effective_files();
                node.model.killed_after = Some(node.model.writes.len() + kill);
                let killed = catch_unwind(AssertUnwindSafe(|| {
                    let report = node.apply(&mut writer, to, 2);
                    assert_eq!(report.failed, []);
                }));
                node.model.killed_after = None;
                points += 1;
                let now = node.model.effective_files();
                let mut next = node.writer();
                let report = node.apply(&mut next, to, 3);
                assert_eq!(report.failed, [], "{version:?} {kill}");
                // The kernel accepted each write. Each set is the old one, the new one or both together.
                let after = node.model.effective_files();
                for (file, now) in &now {
                    let set = |text: &str| CpuSet::parse(text).unwrap().0;
                    let (old, new) = (set(&before[file]), set(&after[file]));
                    let is_legal = [&old, &new, &(&old | &new)].contains(&&set(now));
                    assert!(is_legal, "{version:?} {kill}: {file} has {now}");
                }
                for setting in to {
                    if let (Group::Pod { uid }, SettingValue::Cpus(cpus)) =
                        (&setting.group, &setting.value)
                    {
                        let want = [cpus.to_string(), cpus.to_string()];
                        assert_eq!(node.effective_cpus(uid), want, "{version:?} {kill}");
                    }
                }
                if to == &none {
                    assert_eq!(after, original, "{version:?} {kill}");
                }
                let report = node.writer().restore(&mut node.model);
                assert_eq!(report.failed, [], "{version:?} {kill}");
                let restored = node.model.effective_files();
                assert_eq!(restored, original, "{version:?} {kill}");
                if killed.is_ok() {
                    break;
                }
            }
            // 3 pods, 2 files or more of each, on cgroup v1 of 2 groups each, and one run without a kill.
            let least = if version == Version::V2 { 6 } else { 12 };
            assert!(points > least, "{version:?}: {points} kill points");
        }
    }
}

#[test]
fn lent_pods_leave_first_and_come_back_last() {
    for version in [Version::V1, Version::V2] {
        let mut node = node(version);
        let [zone, _, none] = plans();
        let mut writer = node.writer();
        node.apply(&mut writer, &zone, 1);
        let order = |node: &Node, from: usize| -> Vec<&'static str> {
            let writes = node.model.writes[from..].iter();
            // On cgroup v2 containers follow their pods.
            let is_container = |it: &str| it.contains("/cccc");
            let writes = writes.filter(|it| {
                it.contains("cpuset.cpus=") && is_container(it) == (version != Version::V2)
            });
            let mut order: Vec<&str> = writes
                .map(|write| match write {
                    write if write.contains(LENT) => "lent",
                    write if write.contains(WEB) => "web",
                    _ => "dedicated",
                })
                .collect();
            // The kernel refuses an empty set; the whole one follows.
            order.dedup();
            order
        };
        assert_eq!(order(&node, 0), ["lent", "web", "dedicated"], "{version:?}");
        let from = node.model.writes.len();
        node.apply(&mut writer, &none, 2);
        let want = ["dedicated", "web", "lent"];
        assert_eq!(order(&node, from), want, "{version:?}");
    }
}

#[test]
fn a_container_that_starts_in_a_narrow_pod_gets_what_the_pod_had() {
    let [zone, _, none] = plans();
    let container = format!("{}/{}", pod_path(WEB), container_of(WEB));
    // The container starts while its pod is narrow, and is seen before or after the pod is wide again.
    for is_seen in [true, false] {
        let mut node = node(Version::V1);
        let original = node.model.files.clone();
        let mut writer = node.writer();
        let of_pods = |settings: &[Setting]| -> Vec<Setting> {
            let settings = settings.iter().cloned();
            settings
                .filter(|it| matches!(it.group, Group::Pod { .. }))
                .collect()
        };
        // As the runtime makes it: with the content of the parent.
        for (file, text) in [("cpus", "0-1"), ("mems", "0")] {
            let file = format!("{container}/cpuset.{file}");
            node.model.files.insert(file, text.to_owned());
        }
        node.apply(&mut writer, &of_pods(&zone), 1);
        if is_seen {
            let report = node.apply(&mut writer, &zone, 2);
            assert_eq!(report.failed, []);
        }
        let mut writer = node.writer();
        assert_eq!(node.apply(&mut writer, &none, 3).failed, []);
        assert_eq!(node.file(WEB, "cpuset.cpus"), ["0-3", "0-3"], "{is_seen}");
        assert_eq!(node.model.files, original, "{is_seen}");
    }
}

#[test]
fn files_that_have_their_original_content_again_belong_to_others() {
    let mut node = node(Version::V2);
    let original = node.model.files.clone();
    let [zone, _, none] = plans();
    let mut writer = node.writer();
    // What was never changed is not touched.
    let file = format!("{}/cpuset.cpus", pod_path(WEB));
    node.model.files.insert(file.clone(), "1".to_owned());
    assert_eq!(node.apply(&mut writer, &none, 1), Report::default());
    assert_eq!(node.model.files[&file], "1");
    node.model.files = original.clone();
    node.apply(&mut writer, &zone, 2);
    for second in 3..20 {
        node.apply(&mut writer, &none, second);
    }
    // The kernel does not let the sets be empty again.
    let all = ["0-3".to_owned(), "0-3".to_owned()];
    assert_eq!(node.effective_cpus(WEB), all);
    let journal = std::fs::read_to_string(node.directory.path().join("journal")).unwrap();
    assert_eq!(journal, "");
    node.model.files.insert(file.clone(), "1".to_owned());
    for second in 20..60 {
        node.apply(&mut writer, &none, second);
    }
    assert_eq!(node.model.files[&file], "1");
}

/// A pod of level `dedicated_cores`, with zones of its own.
fn dedicate(pod: &Value, zones: &str) -> Value {
    let mut pod = pod.clone();
    for (key, value) in [
        ("katalyst.kubewharf.io/qos_level", "dedicated_cores"),
        (
            "katalyst.kubewharf.io/memory_enhancement",
            r#"{"numa_binding": "true"}"#,
        ),
        ("tidepool.io/numa-zones", zones),
    ] {
        pod["metadata"]["annotations"][key] = json!(value);
    }
    json!({"metadata": {"annotations": pod["metadata"]["annotations"]}})
}

fn fake_node() -> FakeNode {
    let node = FakeNode::new();
    node.write("cgroup/cgroup.controllers", "");
    for number in [0, 1] {
        let distances = if number == 0 { "10 21\n" } else { "21 10\n" };
        let directory = format!("sys/devices/system/node/node{number}");
        node.write(&format!("{directory}/distance"), distances);
    }
    for group in ["kubepods", "kubepods/burstable", "kubepods/besteffort"] {
        node.set_group_v2(group, 1, 5000);
        node.add_settings_v2(group);
    }
    for uid in [UID, WEB] {
        let pod = format!("kubepods/besteffort/pod{uid}");
        for group in [pod.clone(), format!("{pod}/{}", "c".repeat(64))] {
            node.set_group_v2(&group, 1, 5000);
            node.add_settings_v2(&group);
            node.write(&format!("cgroup/{group}/cpuset.cpus.effective"), "0-1\n");
            node.write(&format!("cgroup/{group}/cpuset.mems.effective"), "0-1\n");
        }
    }
    node
}

fn condition(cnr: &Value) -> Option<&Value> {
    let conditions = cnr["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == "NumaZonesDiffer")
}

#[tokio::test]
async fn the_agent_binds_a_pod_to_its_zone_and_reports_it() {
    let node = fake_node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let limits = json!({"limits": {"cpu": "2", "memory": "100Ki"}});
    let pod = cluster.create_pod(&node, "db", UID, limits.clone()).await;
    cluster.create_pod(&node, "web", WEB, limits).await;
    let url = "/api/v1/namespaces/default/pods/db";
    cluster.patch(url, &dedicate(&pod, "1")).await;
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    let sets = |uid: &str| {
        let pod = format!("cgroup/kubepods/besteffort/pod{uid}");
        [pod.clone(), format!("{pod}/{}", "c".repeat(64))].map(|group| {
            let read = |file: &str| node.read(&format!("{group}/cpuset.{file}"));
            (read("cpus"), read("mems"))
        })
    };
    // The containers follow their pods.
    let are = |uid: &str, set: &str| {
        let (set, none) = (set.to_owned(), String::new());
        sets(uid) == [(set.clone(), set), (none.clone(), none)]
    };
    eventually("the pods have their zones", || {
        are(UID, "1") && are(WEB, "0")
    })
    .await;
    let cnr = format!("{CNR}/n1");
    let reported = cluster
        .wait_for("the zone is reported", &cnr, |cnr| {
            let zones = &cnr["status"]["topologyZone"][0]["children"];
            let allocations = zones[1]["allocations"].as_array();
            allocations.is_some_and(|it| !it.is_empty())
        })
        .await;
    let zones = &reported["status"]["topologyZone"][0]["children"];
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        zones[1]["allocations"],
        json!([{"consumer": format!("default/db/{uid}"), "requests": {"cpu": "2", "memory": "102400"}}])
    );
    assert_eq!(zones[0]["allocations"], json!([]));
    let distances = json!([{"name": "numa_distance", "value": "21,10"}]);
    assert_eq!(zones[1]["attributes"], distances);
    // The files of this directory do not follow: the agent finds that processes may use more.
    cluster
        .wait_for("the difference is reported", &cnr, |cnr| {
            condition(cnr).is_some_and(|it| it["status"] == "True")
        })
        .await;
    for (uid, set) in [(UID, "1"), (WEB, "0")] {
        let container = format!("kubepods/besteffort/pod{uid}/{}", "c".repeat(64));
        for file in ["cpus", "mems"] {
            node.write(&format!("cgroup/{container}/cpuset.{file}.effective"), set);
        }
    }
    cluster
        .wait_for("the difference is gone", &cnr, |cnr| {
            condition(cnr).is_some_and(|it| it["reason"] == "AsChosen")
        })
        .await;
    // The other pod may use less than its limit.
    let events = "/api/v1/namespaces/default/events";
    let events = cluster
        .wait_for("the event is written", events, |events| {
            events["items"].as_array().is_some_and(|it| !it.is_empty())
        })
        .await;
    let [event] = &events["items"].as_array().unwrap()[..] else {
        panic!("{events:#}");
    };
    assert_eq!(event["involvedObject"]["name"], "web");
    assert_eq!(event["reason"], "NumaNarrowed");
    // There is no kubelet that would let it end.
    cluster.delete(&format!("{url}?gracePeriodSeconds=0")).await;
    node.remove(&format!("cgroup/kubepods/besteffort/pod{UID}"));
    eventually("the other pod has all CPUs again", || are(WEB, "")).await;
    cluster
        .wait_for("no pod has the zone", &cnr, |cnr| {
            let zones = &cnr["status"]["topologyZone"][0]["children"];
            zones[1]["allocations"] == json!([])
        })
        .await;
    drop(agent);
    assert!(
        cluster.get(&cnr).await.unwrap()["metadata"]["annotations"]["tidepool.io/terms"]
            .is_string()
    );
    agent::report::withdraw(&cluster.client, "n1", TaintTarget::Cnr)
        .await
        .unwrap();
    let withdrawn = cluster.get(&cnr).await.unwrap();
    assert_eq!(withdrawn["status"]["topologyZone"], Value::Null);
    let annotations = &withdrawn["metadata"]["annotations"];
    assert_eq!(annotations["tidepool.io/terms"], Value::Null);
}

#[tokio::test]
async fn an_agent_that_checks_writes_nothing_and_gives_back_what_was_written() {
    let node = fake_node();
    let cluster = TestCluster::new().await;
    cluster.create_node("n1").await;
    let pod = cluster
        .create_pod(&node, "db", UID, json!({"limits": {"cpu": "1"}}))
        .await;
    let url = "/api/v1/namespaces/default/pods/db";
    cluster.patch(url, &dedicate(&pod, "1")).await;
    let file = format!("cgroup/kubepods/besteffort/pod{WEB}/cpuset.cpus");
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("the other pod is narrow", || node.read(&file) == "0").await;
    drop(agent);
    // The kubelet's static CPU manager takes over.
    let state = r#"{"policyName":"static","defaultCpuSet":"0-1","checksum":1}"#;
    node.write("kubelet/cpu_manager_state", state);
    let agent = Agent::start(cluster.client.clone(), node.options("n1")).unwrap();
    eventually("the other pod is wide again", || {
        node.read(&file).is_empty()
    })
    .await;
    cluster
        .wait_for("the difference is reported", &format!("{CNR}/n1"), |cnr| {
            condition(cnr).is_some_and(|it| it["reason"] == "CpusetsDiffer")
        })
        .await;
    assert_eq!(node.read(&file), "");
    drop(agent);
    let mut options = node.options("n1");
    options.numa = Some(NumaMode::Enforce);
    let _agent = Agent::start(cluster.client.clone(), options).unwrap();
    let container = format!("kubepods/besteffort/pod{WEB}/{}", "c".repeat(64));
    let container = format!("cgroup/{container}/cpuset.cpus");
    eventually("the container is narrow", || node.read(&container) == "0").await;
    assert_eq!(node.read(&file), "");
}
