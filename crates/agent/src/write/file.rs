//! The cgroup file of a setting, and its content.

use engine::node::{Bytes, CpuSet, CpusetFile, Setting, SettingValue};

use crate::hierarchy::{Controller, Version};
use crate::parse;
use crate::tree::Tree;

/// The period of CPU quotas in microseconds, the kubelet's.
const PERIOD: u64 = 100_000;
/// cgroup v1 shows a limit of this and more for no limit: the largest number, rounded down to a page.
const NO_LIMIT: u64 = (i64::MAX as u64) & !0xffff;
/// On cgroup v1: whether pages follow when `cpuset.mems` changes.
pub(super) const MIGRATE: &str = "cpuset.memory_migrate";

/// A file of a group. The order is by depth: a group comes before the groups below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    pub depth: u8,
    /// The path of the group, relative to the kubelet's root group.
    pub path: String,
    pub controller: Controller,
    pub name: &'static str,
}

impl File {
    /// The path below the hierarchy of its controller.
    pub fn full_path(&self) -> String {
        format!("{}/{}", self.path, self.name)
    }

    /// The file of the same name in the group of the pod, if this is one of a container.
    pub fn of_pod(&self) -> Option<Self> {
        let (path, _) = self.path.rsplit_once('/').filter(|_| self.depth == 3)?;
        Some(Self {
            depth: 2,
            path: path.to_owned(),
            ..self.clone()
        })
    }

    /// Whether it is the same file of a group above or below.
    pub fn is_related_to(&self, other: &Self) -> bool {
        let (above, below) = match self.depth < other.depth {
            true => (&self.path, &other.path),
            false => (&other.path, &self.path),
        };
        let rest = below.strip_prefix(above.as_str());
        self.name == other.name && rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// What a file contains, so that two forms of the same value are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Number(u64),
    /// None: no limit.
    Limit(Option<u64>),
    /// Microseconds in each period; none: no limit.
    Quota(Option<u64>),
    /// CPUs or NUMA nodes.
    Set(CpuSet),
}

/// Why a setting is not allowed, whatever the group contains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0} of the besteffort directory belongs to the kubelet")]
    Kubelet(&'static str),
    #[error("CPU shares must be between 2 and 262144, not {0}")]
    Shares(u64),
    #[error("a CPU quota must be at least 1000 microseconds, not {0}")]
    Quota(u64),
    #[error("a cpuset must not be empty")]
    NoCpus,
}

/// What a file should contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    Content(Content),
    /// What it contained before the agent changed it.
    Original,
}

/// The file and its wanted content; none if the group or, in this version, the file does not exist.
pub fn resolve(
    setting: &Setting,
    tree: &Tree,
    version: Version,
) -> Result<Option<(File, Wanted)>, Refusal> {
    use engine::node::Group;
    let (depth, path) = match &setting.group {
        Group::BestEffort => (1, tree.besteffort()),
        Group::Pod { uid } => (2, tree.pods().get(uid).map(|pod| &pod.path)),
        Group::Container { pod, id } => {
            let pod = tree.pods().get(pod);
            (3, pod.and_then(|pod| pod.containers.get(id)))
        }
    };
    let is_v2 = version == Version::V2;
    let set = |set: &CpuSet| match set.0.is_empty() {
        true => Err(Refusal::NoCpus),
        false => Ok(Content::Set(set.clone())),
    };
    let (controller, name, content) = match &setting.value {
        SettingValue::Original(file) => {
            let (name, is_known) = match file {
                CpusetFile::Cpus => ("cpuset.cpus", true),
                CpusetFile::Mems => ("cpuset.mems", true),
                CpusetFile::MigrateMemory => (MIGRATE, !is_v2),
            };
            let place = path.filter(|_| is_known).map(|path| File {
                depth,
                path: path.to_string(),
                controller: Controller::CpuSet,
                name,
            });
            return Ok(place.map(|file| (file, Wanted::Original)));
        }
        SettingValue::MigrateMemory(_) if is_v2 => return Ok(None),
        SettingValue::MigrateMemory(is_on) => {
            let content = Content::Number(u64::from(*is_on));
            (Controller::CpuSet, MIGRATE, content)
        }
        SettingValue::CpuShares(shares) if !(2..=262_144).contains(shares) => {
            return Err(Refusal::Shares(*shares));
        }
        // The kubelet's own conversion.
        SettingValue::CpuShares(shares) if is_v2 => {
            let weight = 1 + (shares - 2) * 9999 / 262_142;
            (Controller::Cpu, "cpu.weight", Content::Number(weight))
        }
        SettingValue::CpuShares(shares) => {
            (Controller::Cpu, "cpu.shares", Content::Number(*shares))
        }
        SettingValue::CpuQuota(Some(quota)) if *quota < 1000 => return Err(Refusal::Quota(*quota)),
        SettingValue::CpuQuota(quota) => {
            let name = if is_v2 { "cpu.max" } else { "cpu.cfs_quota_us" };
            (Controller::Cpu, name, Content::Quota(*quota))
        }
        SettingValue::Cpus(cpus) => (Controller::CpuSet, "cpuset.cpus", set(cpus)?),
        SettingValue::Mems(mems) => (Controller::CpuSet, "cpuset.mems", set(mems)?),
        SettingValue::MemoryLimit(limit) => {
            let name = if is_v2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            let limit = limit.map(|Bytes(limit)| limit);
            (Controller::Memory, name, Content::Limit(limit))
        }
        SettingValue::CpuIdle(idle) => (
            Controller::Cpu,
            "cpu.idle",
            Content::Number(u64::from(*idle)),
        ),
    };
    // The kubelet writes the shares of this directory each minute, and cannot while the directory is idle.
    if depth == 1
        && matches!(
            setting.value,
            SettingValue::CpuShares(_) | SettingValue::CpuIdle(_)
        )
    {
        return Err(Refusal::Kubelet(name));
    }
    let Some(path) = path else {
        return Ok(None);
    };
    let file = File {
        depth,
        path: path.to_string(),
        controller,
        name,
    };
    Ok(Some((file, Wanted::Content(content))))
}

/// The limit that a number stands for; none: no limit.
pub fn memory_limit(number: u64) -> Option<u64> {
    (number < NO_LIMIT).then_some(number)
}

impl Content {
    /// The content of a file that holds the same kind of value; none if it is not understood.
    pub fn parse(&self, text: &[u8]) -> Option<Self> {
        let is_none = matches!(text.trim_ascii(), b"max" | b"-1");
        Some(match self {
            Self::Number(_) => Self::Number(parse::number(text)?),
            Self::Limit(_) if is_none => Self::Limit(None),
            Self::Limit(_) => Self::Limit(memory_limit(parse::number(text)?)),
            Self::Quota(_) if is_none => Self::Quota(None),
            Self::Quota(_) => {
                // cgroup v2: the quota, and the period if it is shown.
                let quota = text.trim_ascii().split(|&byte| byte == b' ').next()?;
                match quota {
                    b"max" => Self::Quota(None),
                    quota => Self::Quota(Some(parse::number(quota)?)),
                }
            }
            Self::Set(_) => Self::Set(parse::cpu_list(text)?),
        })
    }

    pub fn text(&self, version: Version) -> String {
        match (self, version) {
            (Self::Number(number), _) => number.to_string(),
            (Self::Limit(Some(limit)), _) => limit.to_string(),
            (Self::Quota(Some(quota)), Version::V2) => format!("{quota} {PERIOD}"),
            (Self::Quota(Some(quota)), _) => quota.to_string(),
            (Self::Quota(None), Version::V2) => format!("max {PERIOD}"),
            (Self::Limit(None), Version::V2) => "max".to_owned(),
            (Self::Limit(None) | Self::Quota(None), _) => "-1".to_owned(),
            (Self::Set(set), _) => set.to_string(),
        }
    }

    /// Whether this allows at least what the other one does.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Limit(new), Self::Limit(old)) | (Self::Quota(new), Self::Quota(old)) => {
                new.is_none_or(|new| old.is_some_and(|old| new >= old))
            }
            // An empty set on cgroup v2 is the parent's.
            (Self::Set(new), Self::Set(old)) => {
                new.0.is_empty() || (!old.0.is_empty() && old.0.is_subset(&new.0))
            }
            _ => true,
        }
    }

    /// Allows what either allows: the step between two sets of which neither contains the other.
    pub fn union(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Set(new), Self::Set(old)) if !new.0.is_empty() && !old.0.is_empty() => {
                Some(Self::Set(CpuSet(&new.0 | &old.0)))
            }
            _ => None,
        }
    }
}
