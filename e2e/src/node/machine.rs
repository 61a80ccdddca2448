//! What a node could change on this machine, to compare before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cgroups;

/// Settings that the kubelet, containerd and CNI plugins write.
const SETTINGS: [&str; 7] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// Mounts, groups, network interfaces and kernel settings of this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct MachineState {
    settings: BTreeMap<&'static str, String>,
    mounts: BTreeSet<String>,
    /// The groups directly below each hierarchy and the controllers that these have.
    groups: BTreeSet<PathBuf>,
    controllers: BTreeMap<PathBuf, String>,
    interfaces: BTreeSet<String>,
}

impl MachineState {
    pub fn read() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot list mounts")?;
        let mut groups = BTreeSet::new();
        let mut controllers = BTreeMap::new();
        for hierarchy in cgroups::hierarchies()? {
            groups.extend(directories(&hierarchy)?);
            let file = hierarchy.join("cgroup.subtree_control");
            if let Ok(text) = fs::read_to_string(&file) {
                controllers.insert(file, text);
            }
        }
        let interfaces = directories(Path::new("/sys/class/net"))?;
        Ok(Self {
            settings: SETTINGS
                .iter()
                .filter_map(|&name| {
                    let value = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
                    Some((name, value.trim().to_owned()))
                })
                .collect(),
            mounts: mounts.lines().map(str::to_owned).collect(),
            groups,
            controllers,
            interfaces: interfaces
                .iter()
                .map(|it| it.display().to_string())
                .collect(),
        })
    }
}

/// The processes whose command line names this directory.
pub(super) fn processes_of(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.display().to_string();
    let mut found = Vec::new();
    for process in directories(Path::new("/proc"))? {
        // A process may end while it is read.
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&directory) {
            found.push(format!("{}: {line}", process.display()));
        }
    }
    Ok(found)
}

fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir()).collect())
}
