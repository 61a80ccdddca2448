//! The use of the whole machine and of its NUMA nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::model::Timestamp;
use engine::node::{CpuSet, MachineMemory, NanoCores, NodeSample, NumaUse, Pressure, Stall};
use rustix::fs::{Mode, OFlags};

use super::{Paths, Problems, is_unsupported};
use crate::counters;
use crate::hierarchy::Reader;
use crate::parse::{self, CpuTicks};

#[derive(Debug)]
pub(super) struct Machine {
    proc: PathBuf,
    nodes: PathBuf,
    /// The time of each CPU at the last sample.
    before: Option<CpuTimes>,
}

/// The time of each CPU at a sample.
#[derive(Debug)]
struct CpuTimes {
    at: Timestamp,
    /// The time of the machine's own clock, read together with the ticks.
    uptime: Option<Duration>,
    ticks: BTreeMap<u32, CpuTicks>,
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
        let uptime = self.proc.join("uptime");
        let uptime = uptime.exists().then(|| read.file(&uptime, parse::uptime));
        let ticks = read.file(&self.proc.join("stat"), |text| {
            let ticks = parse::cpu_ticks(text);
            (!ticks.is_empty()).then_some(ticks)
        });
        let now = CpuTimes {
            at: sample.at,
            uptime: uptime.flatten(),
            ticks: ticks.unwrap_or_default().into_iter().collect(),
        };
        let cpus = CpuSet(now.ticks.keys().copied().collect());
        sample.machine.cpu = self.used(&now, &cpus);
        sample.numa = self.numa(&mut read, |set| self.used(&now, set));
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
        self.before = Some(now).filter(|now| !now.ticks.is_empty());
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
    fn used(&self, now: &CpuTimes, cpus: &CpuSet) -> Option<NanoCores> {
        let before = self.before.as_ref()?;
        let passed = u64::try_from(now.at.0.checked_sub(before.at.0)?).ok()?;
        let clock = now.uptime.zip(before.uptime);
        let clock = clock.and_then(|(now, before)| now.checked_sub(before));
        let clock = clock.and_then(|clock| u64::try_from(clock.as_nanos()).ok());
        let mut used = 0_u64;
        for cpu in &cpus.0 {
            if let (Some(new), Some(old)) = (now.ticks.get(cpu), before.ticks.get(cpu)) {
                let busy = counters::ticks(new.busy.checked_sub(old.busy)?);
                // The kernel may count the time of waiting for I/O backwards.
                let idle = counters::ticks(new.idle.saturating_sub(old.idle));
                let busy = clock.map_or(busy, |clock| counters::busy_time(busy, idle, clock));
                used = used.checked_add(busy)?;
            }
        }
        (passed > 0).then(|| counters::rate(used, passed, cpus.0.len()))?
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
