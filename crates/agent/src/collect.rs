//! One sample of the node: the machine, its NUMA nodes, QoS directories, pods and containers.
//!
//! CPU and memory usage of every pod are read at every sample, from files that stay open. What costs more or changes slowly (page
//! cache, throttling, memory by NUMA node, pressure, containers) is read of a part of the pods at each sample, so that the cost
//! is the same at each.

mod group;
mod machine;
pub mod topology;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use engine::model::{Name, Timestamp};
use engine::node::{GroupUse, NodeSample, PodUse};

use crate::hierarchy::{Hierarchies, HierarchyError, Reader};
use crate::tree::{MOST_PODS, Tree};
use group::Memory;
use machine::Machine;

/// Where the collector reads.
#[derive(Debug, Clone)]
pub struct Paths {
    pub proc: PathBuf,
    pub sys: PathBuf,
    /// Where cgroups are mounted.
    pub cgroups: PathBuf,
    /// The kubelet's `cgroupRoot`.
    pub cgroup_root: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            cgroups: "/sys/fs/cgroup".into(),
            cgroup_root: "/".into(),
        }
    }
}

/// Keeps what a sample needs of those before it.
#[derive(Debug)]
pub struct Collector {
    hierarchies: Hierarchies,
    tree: Tree,
    reader: Reader,
    machine: Machine,
    /// By path.
    groups: BTreeMap<Name, Memory>,
    problems: Problems,
    round: u64,
    rounds_of_details: u64,
    /// How many groups may keep their files open.
    most_open: usize,
    with_cpusets: bool,
}

/// A scan of all directories follows after this many rounds, even if nothing announced a change.
const ROUNDS_WITHOUT_SCAN: u64 = 10;
/// Files that each group keeps open.
const OPEN_FILES: usize = 2;

impl Collector {
    /// Details of a pod are read at one of `rounds_of_details` samples.
    pub fn new(paths: &Paths, rounds_of_details: u64) -> Result<Self, HierarchyError> {
        Ok(Self {
            hierarchies: Hierarchies::find(&paths.cgroups, &paths.cgroup_root)?,
            tree: Tree::default(),
            reader: Reader::default(),
            machine: Machine::new(paths),
            groups: BTreeMap::new(),
            problems: Problems::default(),
            round: 0,
            rounds_of_details: rounds_of_details.max(1),
            most_open: most_open(),
            with_cpusets: false,
        })
    }

    pub fn hierarchies(&self) -> &Hierarchies {
        &self.hierarchies
    }

    /// Whether the cpusets of groups belong to the details from now on.
    pub fn read_cpusets(&mut self, is_on: bool) {
        self.with_cpusets = is_on;
    }

    /// The pod groups at the last sample.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What could not be read at the last sample: a file's name and why.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        let found = &self.problems.found;
        found.iter().map(|(file, (why, _))| (&**file, &**why))
    }

    /// Whether a pod or a container started or ended since the last scan.
    pub fn has_changed(&mut self) -> bool {
        self.tree.has_changed()
    }

    /// Lists the pod groups that exist now.
    pub fn scan(&mut self) {
        if let Err(error) = self.tree.scan(&self.hierarchies) {
            self.problems
                .report("the directories of pods", &error.to_string());
        }
    }

    /// Reads everything. `at` is the time of a clock that never goes back.
    pub fn sample(&mut self, at: Timestamp) -> NodeSample {
        self.round += 1;
        self.problems.start(self.round);
        let mut sample = NodeSample {
            at,
            ..NodeSample::default()
        };
        self.machine
            .sample(&mut sample, &mut self.reader, &mut self.problems);
        let is_due = self.round.is_multiple_of(ROUNDS_WITHOUT_SCAN);
        if self.tree.has_changed() || is_due {
            self.scan();
        }
        let tree = std::mem::take(&mut self.tree);
        if tree.kubepods().is_none() {
            self.problems.report(
                "kubepods",
                "no such cgroup: --cgroup-root must be the cgroupRoot of the kubelet",
            );
        }
        if tree.beyond() > 0 {
            let why = format!("{MOST_PODS} pods are measured, {} are not", tree.beyond());
            self.problems.report("the directories of pods", &why);
        }
        let cpus = sample.machine.cpus.0.len();
        let mut whole = |path: Option<&Name>| {
            let path = path?;
            self.group(path, at, cpus, (true, true))
        };
        sample.kubepods = whole(tree.kubepods()).unwrap_or_default();
        sample.burstable = whole(tree.burstable()).unwrap_or_default();
        sample.besteffort = whole(tree.besteffort()).unwrap_or_default();
        for (number, (uid, pod)) in (0_u64..).zip(tree.pods()) {
            let is_new = !self.groups.contains_key(&pod.path);
            let details = is_new || (number + self.round).is_multiple_of(self.rounds_of_details);
            let keep_open = usize::try_from(number).is_ok_and(|number| number < self.most_open);
            let Some(group) = self.group(&pod.path, at, cpus, (details, keep_open)) else {
                continue; // it has ended
            };
            let containers = pod.containers.iter();
            let containers = containers.filter_map(|(id, path)| {
                let group = self.container(path, at, cpus, details)?;
                Some((id.clone(), group))
            });
            let pod = PodUse {
                qos: pod.qos,
                group,
                containers: containers.collect::<BTreeMap<Name, GroupUse>>(),
            };
            sample.pods.insert(uid.clone(), pod);
        }
        self.tree = tree;
        let round = self.round;
        self.groups.retain(|_, group| group.seen == round);
        self.problems.finish(round);
        sample
    }

    /// The use of a container at its last reading; one that is new is read at once.
    fn container(
        &mut self,
        path: &Name,
        at: Timestamp,
        cpus: usize,
        details: bool,
    ) -> Option<GroupUse> {
        match self.groups.get_mut(path) {
            Some(known) if !details => {
                known.seen = self.round;
                Some(known.last.clone())
            }
            _ => self.group(path, at, cpus, (true, false)),
        }
    }

    /// Nothing for a group that has ended.
    fn group(
        &mut self,
        path: &Name,
        at: Timestamp,
        cpus: usize,
        (details, keep_open): (bool, bool),
    ) -> Option<GroupUse> {
        let mut files = group::Files {
            hierarchies: &self.hierarchies,
            reader: &mut self.reader,
            problems: &mut self.problems,
            path,
            keep_open,
            with_cpuset: self.with_cpusets,
        };
        let known = self.groups.entry(path.clone()).or_default();
        let used = known.update(&mut files, at, cpus, details)?;
        known.seen = self.round;
        Some(used)
    }
}

/// Half of the files that the process may open are for groups.
fn most_open() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    limit / 2 / OPEN_FILES
}

/// What could not be read, each logged once until it can be read again.
#[derive(Debug, Default)]
struct Problems {
    /// By file: the reason, and the round in which it occurred last.
    found: BTreeMap<String, (String, u64)>,
    round: u64,
}

impl Problems {
    fn start(&mut self, round: u64) {
        self.round = round;
    }

    fn report(&mut self, file: &str, why: &str) {
        if let Some((known, round)) = self.found.get_mut(file)
            && known == why
        {
            *round = self.round;
            return;
        }
        tracing::warn!(file, why, "cannot read file of the node");
        self.found
            .insert(file.to_owned(), (why.to_owned(), self.round));
    }

    /// Details are not read in every round, so a problem counts as solved only some rounds later.
    fn finish(&mut self, round: u64) {
        const ROUNDS: u64 = 60;
        self.found.retain(|file, (_, last)| {
            let persists = *last + ROUNDS > round;
            if !persists {
                tracing::info!(file, "reading file of the node again");
            }
            persists
        });
    }
}

/// Whether the kernel has the file but not its values, for example the pressure of a kernel that was started with `psi=0`.
fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// Whether a group or a process ended before or while its file was read.
pub(crate) fn has_ended(error: &io::Error) -> bool {
    const ENODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ENODEV)
}
