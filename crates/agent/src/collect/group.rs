//! The use of one cgroup.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use engine::model::Timestamp;
use engine::node::{Allowed, Bytes, GroupUse, MemoryUse, Pressure, Stall, Throttling};
use rustix::fs::OFlags;

use super::{Problems, has_ended, is_unsupported};
use crate::counters;
use crate::hierarchy::{Controller, Hierarchies, Reader, Version};
use crate::parse;

/// The files of a group.
pub(super) struct Files<'a> {
    pub(super) hierarchies: &'a Hierarchies,
    pub(super) reader: &'a mut Reader,
    pub(super) problems: &'a mut Problems,
    pub(super) path: &'a str,
    /// Whether files of every sample stay open: to open a file costs more than to read it.
    pub(super) keep_open: bool,
    /// Whether the cpuset belongs to the details.
    pub(super) with_cpuset: bool,
}

/// A file that stays open between samples.
type Slot = Option<OwnedFd>;

impl Files<'_> {
    /// The parsed content. `None` for a group that has ended, and for a file that cannot be read or understood.
    fn read<T>(
        &mut self,
        controller: Controller,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let file = self.open(controller, name);
        let content = match &file {
            Ok(file) => self.reader.read(file),
            Err(error) => Err(copy(error)),
        };
        Self::parse(self.problems, name, content, parse)
    }

    /// As `read`, of a file that is read at every sample.
    fn read_often<T>(
        &mut self,
        slot: &mut Slot,
        controller: Controller,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let file = match slot.take() {
            Some(file) => Ok(file),
            None => self.open(controller, name),
        };
        let content = match &file {
            Ok(file) => self.reader.read(file),
            Err(error) => Err(copy(error)),
        };
        // A file of a group that has ended stays broken, even if a group of the same name follows.
        let is_open = self.keep_open && content.is_ok();
        let parsed = Self::parse(self.problems, name, content, parse);
        *slot = file.ok().filter(|_| is_open);
        parsed
    }

    fn open(&self, controller: Controller, name: &str) -> io::Result<OwnedFd> {
        let path = format!("{}/{name}", self.path);
        self.hierarchies.open(controller, &path, OFlags::RDONLY)
    }

    fn parse<T>(
        problems: &mut Problems,
        name: &str,
        content: io::Result<&[u8]>,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        match content {
            Ok(content) => {
                let parsed = parse(content);
                if parsed.is_none() {
                    problems.report(name, "the content is not as expected");
                }
                parsed
            }
            Err(error) if has_ended(&error) || is_unsupported(&error) => None,
            Err(error) => {
                problems.report(name, &error.to_string());
                None
            }
        }
    }
}

/// A copy of the error; its code says whether the group has ended.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => error.kind().into(),
    }
}

/// What is kept of a group between samples.
#[derive(Debug, Default)]
pub(super) struct Memory {
    cpu_file: Slot,
    memory_file: Slot,
    cpu: Option<(Timestamp, u64)>,
    throttling: Option<Throttling>,
    /// Between the last two readings of details.
    throttled: Option<Throttling>,
    /// Page cache that the kernel can drop at once.
    inactive_file: u64,
    numa: BTreeMap<u32, Bytes>,
    pressure: Pressure,
    allowed: Option<Arc<Allowed>>,
    pub(super) last: GroupUse,
    /// The round in which the group existed last.
    pub(super) seen: u64,
}

impl Memory {
    /// Nothing for a group that has ended.
    pub(super) fn update(
        &mut self,
        files: &mut Files<'_>,
        at: Timestamp,
        cpus: usize,
        details: bool,
    ) -> Option<GroupUse> {
        let is_v2 = files.hierarchies.version() == Version::V2;
        let cpu = match is_v2 {
            true => files.read_often(&mut self.cpu_file, Controller::Cpu, "cpu.stat", |text| {
                parse::flat(text, "usage_usec")?.checked_mul(1000)
            }),
            false => files.read_often(
                &mut self.cpu_file,
                Controller::CpuAccounting,
                "cpuacct.usage",
                parse::number,
            ),
        };
        let usage_file = match is_v2 {
            true => "memory.current",
            false => "memory.usage_in_bytes",
        };
        let usage = files.read_often(
            &mut self.memory_file,
            Controller::Memory,
            usage_file,
            parse::number,
        );
        if cpu.is_none() && usage.is_none() {
            return None;
        }
        if details {
            self.read_details(files, is_v2);
            self.allowed = match files.with_cpuset {
                true => allowed(files, at, is_v2).map(Arc::new),
                false => None,
            };
        }
        let now = cpu.map(|cpu| (at, cpu));
        let rate = counters::cpu_rate(self.cpu, now, cpus);
        self.cpu = now;
        self.last = GroupUse {
            cpu: rate,
            throttling: self.throttled,
            memory: usage.map(|usage| MemoryUse {
                usage: Bytes(usage),
                working_set: Bytes(usage.saturating_sub(self.inactive_file)),
                numa: self.numa.clone(),
            }),
            pressure: self.pressure,
            allowed: self.allowed.clone(),
        };
        Some(self.last.clone())
    }

    fn read_details(&mut self, files: &mut Files<'_>, is_v2: bool) {
        let (time, unit): (_, fn(u64) -> Duration) = match is_v2 {
            true => ("throttled_usec", Duration::from_micros),
            false => ("throttled_time", Duration::from_nanos),
        };
        // Groups without the controller have no such lines.
        let now = files.read(Controller::Cpu, "cpu.stat", |text| {
            Some(throttling(text, time, unit))
        });
        let now = now.flatten();
        self.throttled = counters::throttled(self.throttling, now);
        self.throttling = now;
        let key = if is_v2 {
            "inactive_file"
        } else {
            "total_inactive_file"
        };
        let inactive = files.read(Controller::Memory, "memory.stat", |text| {
            parse::flat(text, key)
        });
        self.inactive_file = inactive.unwrap_or(self.inactive_file);
        let parse_numa = if is_v2 { numa_v2 } else { numa_v1 };
        let numa = files.read(Controller::Memory, "memory.numa_stat", parse_numa);
        self.numa = numa.unwrap_or_default();
        let mut pressure = |name: &str| -> Option<Stall> {
            files.read(Controller::Pressure, name, parse::pressure)
        };
        self.pressure = Pressure {
            cpu: pressure("cpu.pressure"),
            memory: pressure("memory.pressure"),
            io: pressure("io.pressure"),
        };
    }
}

/// The masks that hold for processes of the group, by the group and those above it.
fn allowed(files: &mut Files<'_>, at: Timestamp, is_v2: bool) -> Option<Allowed> {
    let names = match is_v2 {
        true => ["cpuset.cpus.effective", "cpuset.mems.effective"],
        false => ["cpuset.effective_cpus", "cpuset.effective_mems"],
    };
    let [cpus, mems] = names.map(|name| files.read(Controller::CpuSet, name, parse::cpu_list));
    Some(Allowed {
        at,
        cpus: cpus?,
        mems: mems?,
    })
}

fn throttling(text: &[u8], time: &str, unit: fn(u64) -> Duration) -> Option<Throttling> {
    Some(Throttling {
        periods: parse::flat(text, "nr_periods")?,
        throttled_periods: parse::flat(text, "nr_throttled")?,
        throttled_time: unit(parse::flat(text, time)?),
    })
}

/// Bytes by kind of memory. The working set is what is used without page cache that can be dropped.
fn numa_v2(text: &[u8]) -> Option<BTreeMap<u32, Bytes>> {
    let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
    // Old kernels do not show all kinds.
    for key in ["anon", "file", "kernel_stack", "pagetables"] {
        for (node, size) in parse::numa(text, key).unwrap_or_default() {
            let total = nodes.entry(node).or_default();
            *total = total.saturating_add(size);
        }
    }
    for (node, size) in parse::numa(text, "inactive_file")? {
        let total = nodes.entry(node).or_default();
        *total = total.saturating_sub(size);
    }
    Some(
        nodes
            .into_iter()
            .map(|(node, size)| (node, Bytes(size)))
            .collect(),
    )
}

/// Pages of user memory, page cache included.
fn numa_v1(text: &[u8]) -> Option<BTreeMap<u32, Bytes>> {
    let pages = parse::numa(text, "hierarchical_total")?;
    let size = rustix::param::page_size() as u64;
    let bytes = |(node, pages): (u32, u64)| Some((node, Bytes(pages.checked_mul(size)?)));
    pages.into_iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_file_that_is_gone_or_unsupported_has_no_value_and_no_problem() {
        for (case, errno, is_problem) in [
            ("the group ended before", Errno::NOENT, false),
            (
                "the group ended while its file was opened",
                Errno::NODEV,
                false,
            ),
            ("a kernel started with psi=0", Errno::OPNOTSUPP, false),
            ("not allowed", Errno::PERM, true),
            ("refused", Errno::ACCESS, true),
        ] {
            let mut problems = Problems::default();
            let error = copy(&errno.into());
            let value = Files::parse(&mut problems, "file", Err(error), parse::number);
            assert_eq!(value, None, "{case}");
            assert_eq!(!problems.found.is_empty(), is_problem, "{case}");
        }
    }
}
