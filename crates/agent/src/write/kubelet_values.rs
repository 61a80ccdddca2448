//! The values that the kubelet gives cgroups, for files whose original contents are lost.

use engine::node::{CpuSet, Group, LocalPod, Setting, SettingValue, cgroup};

use crate::hierarchy::{Controller, Version};
use crate::tree::Tree;

use super::file::{Content, File, MIGRATE, Wanted, resolve};
use super::{Cgroups, kind_of, memory_use};

/// Who decides about cpusets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpusets {
    /// No program: every group has what the node has.
    Inherited,
    /// The kubelet's static CPU or memory manager; what it gave to containers is not found out.
    Static,
}

/// Every file of pods that an agent can change, and of the directory `besteffort`.
pub fn kubelet_values(
    cgroups: &mut impl Cgroups,
    tree: &Tree,
    pods: &[LocalPod],
    cpusets: Cpusets,
) -> Vec<(File, Content)> {
    let version = cgroups.version();
    let mut settings = cgroup::kubelet_settings(pods);
    let of_directory = [
        SettingValue::CpuQuota(None),
        SettingValue::MemoryLimit(None),
    ];
    settings.extend(of_directory.map(|value| Setting {
        group: Group::BestEffort,
        value,
    }));
    let resolved = settings.iter().filter_map(|setting| {
        // A group that has ended has no files.
        match resolve(setting, tree, version).ok()?? {
            (file, Wanted::Content(content)) => Some((file, content)),
            (_, Wanted::Original) => None,
        }
    });
    let mut values: Vec<(File, Content)> = resolved.collect();
    for (file, content) in &mut values {
        // Below the present use the kernel would kill a process.
        if let Content::Limit(Some(limit)) = content {
            *limit = memory_use(cgroups, file).map_or(*limit, |used| used.max(*limit));
        }
    }
    if cpusets == Cpusets::Inherited {
        values.extend(inherited(cgroups, tree));
    }
    values
}

/// The cpusets of all groups.
fn inherited(cgroups: &mut impl Cgroups, tree: &Tree) -> Vec<(File, Content)> {
    let version = cgroups.version();
    let mut groups: Vec<(u8, &str)> = Vec::new();
    groups.extend(tree.besteffort().map(|path| (1, &**path)));
    for pod in tree.pods().values() {
        groups.push((2, &pod.path));
        groups.extend(pod.containers.values().map(|path| (3, &**path)));
    }
    let mut values = Vec::new();
    for name in ["cpuset.cpus", "cpuset.mems"] {
        // The agent never writes the directory of all pods.
        let mut all = || {
            let path = format!("{}/{name}", tree.kubepods()?);
            let text = cgroups.read(Controller::CpuSet, &path).ok()?;
            kind_of(name).parse(&text)
        };
        let content = match version {
            Version::V2 => Some(Content::Set(CpuSet::default())),
            _ => all(),
        };
        let Some(content) = content else { continue };
        let file = |&(depth, path): &(u8, &str)| File {
            depth,
            path: path.to_owned(),
            controller: Controller::CpuSet,
            name,
        };
        values.extend(groups.iter().map(|group| (file(group), content.clone())));
    }
    if version != Version::V2 {
        let files = groups.iter().filter(|(depth, _)| *depth == 3);
        let files = files.map(|(depth, path)| File {
            depth: *depth,
            path: (*path).to_owned(),
            controller: Controller::CpuSet,
            name: MIGRATE,
        });
        values.extend(files.map(|file| (file, Content::Number(0))));
    }
    values
}
