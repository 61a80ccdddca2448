//! The writer, on a model of the kernel and on files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use agent::collect::Collector;
use agent::hierarchy::{Controller, Hierarchies, Reader, Version};
use agent::parse;
use agent::tree::Tree;
use agent::write::{Cgroups, KernelFiles, Mode, Report, Writer};
use engine::model::{Name, Timestamp};
use engine::node::{Bytes, CpuSet, Group, Setting, SettingValue};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{FakeNode, UID};

/// The rules of cgroup v1: the CPUs, the memory nodes and the quota of a group must not exceed those of its parent.
pub(crate) struct Model {
    pub(crate) version: Version,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) writes: Vec<String>,
    /// Refuse all writes with this error.
    pub(crate) refuse: Option<io::ErrorKind>,
    /// The process is killed before the write after so many.
    pub(crate) killed_after: Option<usize>,
}

impl Model {
    pub(crate) fn new(version: Version, files: BTreeMap<String, String>) -> Self {
        Self {
            version,
            files,
            writes: Vec::new(),
            refuse: None,
            killed_after: None,
        }
    }

    /// What a group may use of a cpuset file: an empty one is the parent's.
    pub(crate) fn effective(&self, path: &str) -> Option<String> {
        let own = self.files.get(path)?;
        let (group, file) = path.rsplit_once('/')?;
        let parent = group.rsplit_once('/');
        let parent = parent.and_then(|(parent, _)| self.effective(&format!("{parent}/{file}")));
        let set = |text: &str| parse::cpu_list(text.as_bytes()).unwrap().0;
        Some(match parent {
            Some(parent) if own.is_empty() => parent,
            Some(parent) => CpuSet(&set(own) & &set(&parent)).to_string(),
            None => own.clone(),
        })
    }

    /// The effective content of each file.
    pub(crate) fn effective_files(&self) -> BTreeMap<String, String> {
        let files = self.files.iter().map(|(path, text)| {
            let is_set = path.ends_with(".cpus") || path.ends_with(".mems");
            let text = is_set
                .then(|| self.effective(path))
                .flatten()
                .unwrap_or(text.clone());
            (path.clone(), text)
        });
        files.collect()
    }
}

impl Cgroups for Model {
    fn version(&self) -> Version {
        self.version
    }

    fn read(&mut self, _: Controller, path: &str) -> io::Result<Vec<u8>> {
        let text = match path.strip_suffix(".effective") {
            Some(path) => self.effective(path),
            None => self.files.get(path).cloned(),
        };
        Ok(text.ok_or(io::ErrorKind::NotFound)?.into_bytes())
    }

    fn write(&mut self, _: Controller, path: &str, text: &str) -> io::Result<()> {
        if let Some(kind) = self.refuse {
            return Err(kind.into());
        }
        if self.killed_after == Some(self.writes.len()) {
            // Nothing runs after a kill: neither the rest of the writer nor the message of a panic.
            std::panic::resume_unwind(Box::new("killed"));
        }
        self.writes.push(format!("{path}={text}"));
        let (group, file) = path.rsplit_once('/').unwrap();
        let parent = group
            .rsplit_once('/')
            .map(|(parent, _)| format!("{parent}/{file}"));
        let parent = parent.and_then(|parent| self.files.get(&parent).cloned());
        let children = self.files.iter().filter(|(other, _)| {
            let other = other.strip_suffix(&format!("/{file}"));
            let above = other.and_then(|other| other.rsplit_once('/'));
            above.is_some_and(|(above, _)| above == group)
        });
        let mut children: Vec<String> = children.map(|(_, text)| text.clone()).collect();
        children.retain(|child| !fits(file, child, text));
        // cgroup v1 refuses an empty set.
        if self.version != Version::V2 && file.starts_with("cpuset.") && text.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // All groups have processes.
        let has_set = self.files.get(path).is_some_and(|set| !set.is_empty());
        if file.starts_with("cpuset.") && text.is_empty() && has_set {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // On cgroup v2 any set is legal: the effective one is what the parent leaves of it.
        let above = parent.is_none_or(|parent| fits(file, text, &parent));
        let is_free = self.version == Version::V2 && file.starts_with("cpuset.");
        if !is_free && (!above || !children.is_empty()) {
            return Err(io::Error::other(format!(
                "invalid {path}={text}: {children:?}"
            )));
        }
        self.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }
}

/// Whether the kernel accepts the value of a child below that of its parent.
fn fits(file: &str, child: &str, parent: &str) -> bool {
    match file {
        "cpuset.cpus" | "cpuset.mems" => {
            let set = |text: &str| parse::cpu_list(text.as_bytes()).unwrap().0;
            set(child).is_subset(&set(parent))
        }
        "cpu.cfs_quota_us" => match (child, parent) {
            ("-1", _) | (_, "-1") => true,
            (child, parent) => child.parse::<u64>().unwrap() <= parent.parse::<u64>().unwrap(),
        },
        _ => true,
    }
}

pub(crate) const CONTAINER: &str =
    "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// A BestEffort pod with a container, in the tree and in the model, and a journal.
pub(crate) struct Fixture {
    node: FakeNode,
    pub(crate) tree: Tree,
    hierarchies: Hierarchies,
    pub(crate) model: Model,
    pub(crate) writer: Writer,
    pub(crate) directory: TempDir,
}

pub(crate) fn fixture(version: Version, mode: Mode) -> Fixture {
    let node = FakeNode::new();
    let pod = format!("kubepods/besteffort/pod{UID}");
    let container = format!("{pod}/{CONTAINER}");
    let groups = ["kubepods", "kubepods/besteffort", &pod, &container];
    if version == Version::V2 {
        node.write("cgroup/cgroup.controllers", "");
    }
    let mut files = BTreeMap::new();
    for group in groups {
        match version {
            Version::V2 => node.set_group_v2(group, 0, 65536),
            _ => node.set_group_v1(group, 0, 65536),
        }
        for (file, text) in [
            ("cpuset.cpus", "0-7"),
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.shares", "2"),
            ("cpu.weight", "1"),
            ("cpu.max", "max 100000"),
            ("cpu.idle", "0"),
            ("memory.limit_in_bytes", "9223372036854771712"),
            ("memory.max", "max"),
            ("memory.usage_in_bytes", "65536"),
            ("memory.current", "65536"),
        ] {
            files.insert(format!("{group}/{file}"), text.to_owned());
        }
    }
    let mut collector = Collector::new(&node.paths(), 1).unwrap();
    collector.sample(Timestamp(0));
    let mut tree = Tree::default();
    tree.scan(collector.hierarchies()).unwrap();
    let paths = node.paths();
    let directory = tempfile::tempdir().unwrap();
    Fixture {
        hierarchies: Hierarchies::find(&paths.cgroups, &paths.cgroup_root).unwrap(),
        node,
        tree,
        model: Model::new(version, files),
        writer: Writer::new(mode, directory.path().join("journal")).unwrap(),
        directory,
    }
}

impl Fixture {
    pub(crate) fn apply(&mut self, settings: &[Setting], seconds: i64) -> Report {
        let now = Timestamp::from_secs(seconds);
        self.writer
            .apply(&mut self.model, &self.tree, settings, now)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }
}

pub(crate) fn pod(value: SettingValue) -> Setting {
    let uid = Name::from(UID);
    Setting {
        group: Group::Pod { uid },
        value,
    }
}

pub(crate) fn container(value: SettingValue) -> Setting {
    let group = Group::Container {
        pod: Name::from(UID),
        id: Name::from(CONTAINER),
    };
    Setting { group, value }
}

fn besteffort(value: SettingValue) -> Setting {
    Setting {
        group: Group::BestEffort,
        value,
    }
}

pub(crate) fn cpus(text: &str) -> SettingValue {
    SettingValue::Cpus(CpuSet::parse(text).unwrap())
}

#[test]
fn each_setting_has_its_file_and_form() {
    let mib = 1 << 20;
    for (version, value, want) in [
        (Version::V1, SettingValue::CpuShares(512), "cpu.shares=512"),
        (Version::V2, SettingValue::CpuShares(256), "cpu.weight=10"),
        (Version::V2, SettingValue::CpuShares(4096), "cpu.weight=157"),
        (
            Version::V1,
            SettingValue::CpuQuota(Some(50_000)),
            "cpu.cfs_quota_us=50000",
        ),
        (
            Version::V2,
            SettingValue::CpuQuota(Some(50_000)),
            "cpu.max=50000 100000",
        ),
        (Version::V1, cpus("0,1,5"), "cpuset.cpus=0-1,5"),
        (Version::V2, cpus("3"), "cpuset.cpus=3"),
        (
            Version::V1,
            SettingValue::MemoryLimit(Some(Bytes(mib))),
            "memory.limit_in_bytes=1048576",
        ),
        (
            Version::V2,
            SettingValue::MemoryLimit(Some(Bytes(mib))),
            "memory.max=1048576",
        ),
        (Version::V2, SettingValue::CpuIdle(true), "cpu.idle=1"),
    ] {
        let case = format!("{version:?} {value:?}");
        let mut fixture = fixture(version, Mode::Apply);
        // The container's CPUs would not fit below the pod's.
        let settings = [pod(value.clone()), container(value)];
        let report = fixture.apply(&settings, 1);
        assert_eq!(report.failed, [], "{case}");
        let path = format!("kubepods/besteffort/pod{UID}");
        let written = format!("{path}/{want}");
        assert!(
            fixture.model.writes.contains(&written),
            "{case}: {:?}",
            fixture.model.writes
        );
        assert_eq!(
            fixture.apply(&settings, 2).written,
            [],
            "{case}: nothing is written twice"
        );
    }
}

#[test]
fn a_value_that_no_group_may_have_is_refused_and_named() {
    for (setting, want) in [
        (
            besteffort(SettingValue::CpuShares(1024)),
            "belongs to the kubelet",
        ),
        (
            besteffort(SettingValue::CpuIdle(true)),
            "belongs to the kubelet",
        ),
        (pod(SettingValue::CpuShares(1)), "between 2 and 262144"),
        (pod(SettingValue::CpuQuota(Some(999))), "at least 1000"),
        (pod(cpus("")), "must not be empty"),
    ] {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        let report = fixture.apply(std::slice::from_ref(&setting), 1);
        assert!(report.failed[0].1.contains(want), "{setting:?}: {report:?}");
        assert!(fixture.model.writes.is_empty());
    }
}

#[test]
fn a_group_that_does_not_exist_is_left_out() {
    for uid in [
        "../../x",
        "/etc",
        "00000000-0000-4000-8000-000000000000",
        "..",
        "",
    ] {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        let group = Group::Pod {
            uid: Name::from(uid),
        };
        let value = SettingValue::CpuShares(2048);
        let report = fixture.apply(&[Setting { group, value }], 1);
        assert_eq!(report, Report::default(), "{uid}");
    }
}

#[test]
fn a_memory_limit_is_never_below_the_use() {
    let mut fixture = fixture(Version::V2, Mode::Apply);
    let usage = format!("kubepods/besteffort/pod{UID}/memory.current");
    fixture
        .model
        .files
        .insert(usage.clone(), "200000".to_owned());
    let limit = [pod(SettingValue::MemoryLimit(Some(Bytes(65536))))];
    assert_eq!(fixture.apply(&limit, 1).written[0].1, "262144");
    fixture.model.files.insert(usage, "1000".to_owned());
    assert_eq!(fixture.apply(&limit, 2).written[0].1, "65536");
}

#[test]
fn a_file_that_another_process_overwrites_three_times_is_given_up() {
    for (case, pause, want) in [("often", 60, 3), ("seldom", 200, 6)] {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        let file = format!("kubepods/besteffort/pod{UID}/cpu.shares");
        let settings = [pod(SettingValue::CpuShares(512))];
        let mut last = Report::default();
        for round in 0..6 {
            last = fixture.apply(&settings, round * pause);
            fixture.model.files.insert(file.clone(), "2".to_owned());
        }
        assert_eq!(fixture.model.writes.len(), want, "{case}");
        assert_eq!(last.given_up.len(), usize::from(want == 3), "{case}");
    }
}

#[test]
fn a_refused_write_is_tried_again_after_a_growing_delay() {
    let mut fixture = fixture(Version::V1, Mode::Apply);
    fixture.model.refuse = Some(io::ErrorKind::PermissionDenied);
    let settings = [pod(SettingValue::CpuShares(512))];
    let tried: Vec<i64> = (0..70)
        .filter(|&at| !fixture.apply(&settings, at).failed.is_empty())
        .collect();
    assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63]);
    fixture.model.refuse = None;
    assert_eq!(fixture.apply(&settings, 200).written.len(), 1);
}

#[test]
fn limits_of_a_pod_and_its_container_that_another_process_narrows_are_right_soon() {
    let wanted = || SettingValue::CpuQuota(Some(50_000));
    let settings = [pod(wanted()), container(wanted())];
    let path = format!("kubepods/besteffort/pod{UID}");
    let [pod, container] = [path.clone(), format!("{path}/{CONTAINER}")];
    let files = [pod, container].map(|group| format!("{group}/cpu.cfs_quota_us"));
    // The pod and the container are read again at different times.
    for between in 1..20 {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        let narrow = |fixture: &mut Fixture, file: &String| {
            let narrow = "40000".to_owned();
            fixture.model.files.insert(file.clone(), narrow);
        };
        let mut now = 0;
        let mut pass = |fixture: &mut Fixture, seconds: i64| {
            for _ in 0..seconds {
                fixture.apply(&settings, now);
                now += 1;
            }
        };
        pass(&mut fixture, between);
        narrow(&mut fixture, &files[1]);
        pass(&mut fixture, 12);
        for file in &files {
            narrow(&mut fixture, file);
        }
        let before = fixture.model.writes.len();
        pass(&mut fixture, 12);
        for file in &files {
            assert_eq!(fixture.model.files[file], "50000", "{between}: {file}");
            let writes = fixture.model.writes[before..].iter();
            let writes = writes.filter(|it| it.starts_with(file)).count();
            assert!(writes <= 2, "{between}: {writes} writes of {file}");
        }
    }
}

#[test]
fn restore_undoes_everything_also_after_a_crash() {
    let mut fixture = fixture(Version::V1, Mode::Apply);
    let before = fixture.model.files.clone();
    let narrow = [
        besteffort(cpus("2")),
        pod(cpus("2")),
        container(cpus("2")),
        besteffort(SettingValue::CpuQuota(Some(20_000))),
        pod(SettingValue::CpuQuota(Some(10_000))),
        container(SettingValue::CpuShares(1024)),
    ];
    assert_eq!(fixture.apply(&narrow, 1).failed, []);
    assert_ne!(fixture.model.files, before);
    // The second value of a file is not its original.
    assert_eq!(
        fixture
            .apply(&[pod(SettingValue::CpuQuota(Some(5_000)))], 2)
            .failed,
        []
    );
    let mut restarted = Writer::new(Mode::Apply, fixture.journal()).unwrap();
    let report = restarted.restore(&mut fixture.model);
    assert_eq!(report.failed, []);
    assert_eq!(fixture.model.files, before);
    assert_eq!(fs::read_to_string(fixture.journal()).unwrap(), "");
    assert_eq!(restarted.restore(&mut fixture.model), Report::default());
}

#[test]
fn without_a_journal_nothing_is_written() {
    let mut fixture = fixture(Version::V1, Mode::Apply);
    fixture.writer = Writer::new(Mode::Apply, PathBuf::from("/proc/no/journal")).unwrap();
    for round in 1..=3 {
        let report = fixture.apply(&[pod(SettingValue::CpuShares(512))], round);
        assert_eq!(report.failed[0].0, "journal");
        assert!(fixture.model.writes.is_empty(), "round {round}");
    }
    // There is nothing to undo either.
    let report = fixture.writer.restore(&mut fixture.model);
    assert_eq!(report, Report::default());
}

#[test]
fn a_full_disk_does_not_hold_up_files_that_are_in_the_journal() {
    let mut fixture = fixture(Version::V1, Mode::Apply);
    let quota = |micros| pod(SettingValue::CpuQuota(Some(micros)));
    assert_eq!(fixture.apply(&[quota(50_000)], 1).failed, []);
    // Every write to this device finds the disk full.
    let unfinished = fixture.journal().with_extension("unfinished");
    std::os::unix::fs::symlink("/dev/full", unfinished).unwrap();
    let report = fixture.apply(&[quota(10_000), pod(SettingValue::CpuShares(512))], 2);
    assert_eq!(report.failed[0].0, "journal");
    let written: Vec<&str> = report.written.iter().map(|(_, value)| &**value).collect();
    assert_eq!(written, ["10000"]);
}

#[test]
fn a_dry_run_reports_and_opens_nothing_for_writing() {
    let mut fixture = fixture(Version::V1, Mode::DryRun);
    let report = fixture.apply(&[pod(SettingValue::CpuShares(512))], 1);
    assert_eq!(report.written.len(), 1);
    assert!(fixture.model.writes.is_empty());
    assert!(!fixture.journal().exists());
}

#[test]
fn files_are_written_and_restored_without_leaving_the_hierarchy() {
    let mut fixture = fixture(Version::V2, Mode::Apply);
    let group = format!("cgroup/kubepods/besteffort/pod{UID}");
    fixture.node.write(&format!("{group}/cpu.weight"), "1\n");
    let outside = fixture.directory.path().join("outside");
    fs::write(&outside, "untouched").unwrap();
    let link = fixture
        .node
        .cgroups()
        .join(format!("kubepods/besteffort/pod{UID}/cpu.max"));
    std::os::unix::fs::symlink(&outside, link).unwrap();
    let mut reader = Reader::default();
    let mut files = KernelFiles {
        hierarchies: &fixture.hierarchies,
        reader: &mut reader,
    };
    let settings = [
        pod(SettingValue::CpuShares(256)),
        pod(SettingValue::CpuQuota(Some(5_000))),
    ];
    let report = fixture
        .writer
        .apply(&mut files, &fixture.tree, &settings, Timestamp(0));
    assert_eq!(report.written.len(), 1, "{report:?}");
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    let weight = fixture
        .node
        .cgroups()
        .join(format!("kubepods/besteffort/pod{UID}/cpu.weight"));
    assert_eq!(fs::read_to_string(&weight).unwrap(), "10\n");
    assert_eq!(fixture.writer.restore(&mut files).failed, []);
    assert_eq!(fs::read_to_string(&weight).unwrap(), "1\n");
    for path in [
        "../outside",
        "/etc/passwd",
        "kubepods/../../outside",
        "kubepods/besteffort/../../x",
    ] {
        let refused = files.write(Controller::Cpu, path, "1").is_err();
        assert!(refused, "{path}");
    }
}

/// CPUs and quota of the directory, a pod and a container; each fits below the one before.
fn nested() -> impl Strategy<Value = [(u8, Option<u64>); 3]> {
    let quota = || proptest::option::of(1_000..100_000_u64);
    let group = || (1..=255_u8, quota());
    (group(), group(), group()).prop_map(|(top, middle, bottom)| {
        let below = |(cpus, quota): (u8, Option<u64>), above: (u8, Option<u64>)| {
            let cpus = if cpus & above.0 == 0 {
                above.0
            } else {
                cpus & above.0
            };
            let limit = above.1.unwrap_or(u64::MAX);
            (cpus, quota.map(|quota| quota.min(limit)))
        };
        let middle = below(middle, top);
        // A group without a quota of its own has that of its parent.
        let above = (middle.0, middle.1.or(top.1));
        [top, middle, below(bottom, above)]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_kernel_accepts_every_write_of_every_transition(transitions in proptest::collection::vec(nested(), 1..4)) {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        // The model looks one level up: a group without a quota would hide that of its parent.
        for (round, groups) in (1..).zip(transitions) {
            let settings: Vec<Setting> = [besteffort, pod, container]
                .iter()
                .zip(groups)
                .flat_map(|(of, (mask, quota))| {
                    let set = (0..8).filter(|cpu| mask & (1 << cpu) != 0).collect();
                    [of(SettingValue::Cpus(CpuSet(set))), of(SettingValue::CpuQuota(quota))]
                })
                .collect();
            let report = fixture.apply(&settings, round);
            prop_assert_eq!(report.failed, vec![]);
            let again = fixture.apply(&settings, round);
            prop_assert_eq!(again, Report::default());
        }
    }
}

#[test]
fn a_value_that_the_kernel_refuses_concerns_its_pod_only() {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    let limit = SettingValue::MemoryLimit(Some(Bytes(1 << 20)));
    for (case, setting, error, is_refused) in [
        ("a limit", pod(limit.clone()), InvalidInput, true),
        (
            "of a container",
            container(limit.clone()),
            InvalidInput,
            true,
        ),
        ("more is in use", pod(limit.clone()), ResourceBusy, true),
        (
            "of the directory",
            besteffort(limit.clone()),
            InvalidInput,
            false,
        ),
        ("a cpuset", pod(cpus("0")), InvalidInput, false),
        ("no permission", pod(limit.clone()), PermissionDenied, false),
        (
            "a disk that is read-only",
            pod(limit),
            ReadOnlyFilesystem,
            false,
        ),
    ] {
        let mut fixture = fixture(Version::V1, Mode::Apply);
        fixture.model.refuse = Some(error);
        let mut report = Report::default();
        for second in 1..10 {
            report = fixture.apply(std::slice::from_ref(&setting), second);
        }
        let refused: Vec<&str> = report.refused.iter().map(|it| &*it.pod).collect();
        assert_eq!(refused.len(), usize::from(is_refused), "{case}: {report:?}");
        assert_eq!(report.failing.len(), usize::from(!is_refused), "{case}");
        assert!(refused.iter().all(|pod| *pod == UID), "{case}");
    }
}
