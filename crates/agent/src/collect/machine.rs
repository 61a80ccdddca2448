//! The use of the whole machine and of its NUMA nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::model::Timestamp;
use engine::node::{CpuSet, MachineMemory, NanoCores, NodeSample, NumaUse, Pressure, Stall};
use rustix::fs::{Mode, OFlags};

use super::{Paths, Problems, is_unsupported};
use crate::counters;
use crate::hierarchy::Reader;
use crate::parse;

#[derive(Debug)]
pub(super) struct Machine {
    proc: PathBuf,
    nodes: PathBuf,
    /// The busy time of each CPU at the last sample, in clock ticks.
    before: Option<(Timestamp, BTreeMap<u32, u64>)>,
}

impl Machine {
    pub(super) fn new(paths: &Paths) -> Self {
        Self {
            proc: paths.proc.clone(),
            nodes: paths.sys.join("devices/system/node"),
            before: None,
        }
    }

    pub(super) fn sample(
        &mut self,
        sample: &mut NodeSample,
        reader: &mut Reader,
        problems: &mut Problems,
    ) {
        let mut read = Read { reader, problems };
        let ticks = read.file(&self.proc.join("stat"), |text| {
            let ticks = parse::busy_ticks(text);
            (!ticks.is_empty()).then_some(ticks)
        });
        let ticks: BTreeMap<u32, u64> = ticks.unwrap_or_default().into_iter().collect();
        let cpus = CpuSet(ticks.keys().copied().collect());
        sample.machine.cpu = self.used(sample.at, &ticks, &cpus);
        sample.numa = self.numa(&mut read, |set| self.used(sample.at, &ticks, set));
        sample.machine.cpus = cpus;
        sample.machine.memory = read.file(&self.proc.join("meminfo"), |text| {
            Some(MachineMemory {
                total: parse::meminfo(text, "MemTotal")?,
                available: parse::meminfo(text, "MemAvailable")?,
            })
        });
        sample.machine.load = read.file(&self.proc.join("loadavg"), parse::load);
        // A kernel without PSI has no such files.
        let pressure = self.proc.join("pressure");
        if pressure.is_dir() {
            let mut stall =
                |name: &str| -> Option<Stall> { read.file(&pressure.join(name), parse::pressure) };
            sample.machine.pressure = Pressure {
                cpu: stall("cpu"),
                memory: stall("memory"),
                io: stall("io"),
            };
        }
        self.before = (!ticks.is_empty()).then_some((sample.at, ticks));
    }

    fn numa(
        &self,
        read: &mut Read<'_>,
        used: impl Fn(&CpuSet) -> Option<NanoCores>,
    ) -> BTreeMap<u32, NumaUse> {
        // A kernel without NUMA has no such directory.
        if !self.nodes.is_dir() {
            return BTreeMap::new();
        }
        let online = read.file(&self.nodes.join("online"), parse::cpu_list);
        let node = |number: u32| {
            let directory = self.nodes.join(format!("node{number}"));
            let cpus = read.file(&directory.join("cpulist"), parse::cpu_list);
            let memory = read.file(&directory.join("meminfo"), |text| {
                let size = |key| parse::meminfo(text, key);
                Some((size("MemTotal")?, size("MemFree")?))
            });
            let cpus = cpus.unwrap_or_default();
            let used = NumaUse {
                cpu: used(&cpus),
                cpus,
                memory_total: memory.map(|(total, _)| total),
                memory_free: memory.map(|(_, free)| free),
            };
            (number, used)
        };
        online.unwrap_or_default().0.into_iter().map(node).collect()
    }

    /// The average use of these CPUs since the last sample. A CPU that was offline then counts as unused.
    fn used(&self, at: Timestamp, ticks: &BTreeMap<u32, u64>, cpus: &CpuSet) -> Option<NanoCores> {
        let (before, old) = self.before.as_ref()?;
        let passed = u64::try_from(at.0.checked_sub(before.0)?).ok()?;
        let mut used = 0_u64;
        for cpu in &cpus.0 {
            if let (Some(new), Some(old)) = (ticks.get(cpu), old.get(cpu)) {
                used = used.checked_add(new.checked_sub(*old)?)?;
            }
        }
        (passed > 0).then(|| counters::rate(counters::ticks(used), passed, cpus.0.len()))?
    }
}

struct Read<'a> {
    reader: &'a mut Reader,
    problems: &'a mut Problems,
}

impl Read<'_> {
    fn file<T>(&mut self, path: &Path, parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let content = match &file {
            Ok(file) => self.reader.read(file),
            Err(error) => Err((*error).into()),
        };
        let parsed = match content {
            Ok(content) => parse(content).ok_or("the content is not as expected".to_owned()),
            Err(error) if is_unsupported(&error) => return None,
            Err(error) => Err(error.to_string()),
        };
        parsed
            .inspect_err(|why| self.problems.report(&path.display().to_string(), why))
            .ok()
    }
}
