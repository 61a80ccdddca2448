//! The cgroups of a node on this machine: one directory of the same name in every hierarchy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long processes may take to leave a group after they were killed.
const REMOVAL: Duration = Duration::from_secs(20);
/// containerd puts groups that no pod names here.
const OF_CONTAINERD: &str = "k8s.io";

/// Directories of one name in every hierarchy. Dropping it removes them and all below them.
pub(super) struct Cgroups {
    name: String,
    hierarchies: Vec<PathBuf>,
    of_containerd: BTreeSet<PathBuf>,
}

impl Cgroups {
    pub(super) fn create(name: &str) -> Result<Self> {
        let hierarchies = hierarchies()?;
        let of_containerd = hierarchies.iter().map(|it| it.join(OF_CONTAINERD));
        let groups = Self {
            name: name.to_owned(),
            of_containerd: of_containerd.filter(|it| !it.exists()).collect(),
            hierarchies,
        };
        for hierarchy in &groups.hierarchies {
            let group = hierarchy.join(name);
            fs::create_dir(&group).with_context(|| format!("cannot create {}", group.display()))?;
            // A new group of this v1 controller has no CPUs and takes no processes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.join(file).is_file() {
                    fs::write(group.join(file), fs::read(hierarchy.join(file))?)?;
                }
            }
        }
        Ok(groups)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Removes all groups. Their processes must have been killed.
    pub(super) fn remove(&mut self) -> Result<()> {
        let ours: Vec<PathBuf> = self
            .hierarchies
            .iter()
            .map(|it| it.join(&self.name))
            .collect();
        for group in ours.iter().chain(&self.of_containerd) {
            remove(group)?;
        }
        self.hierarchies.clear();
        Ok(())
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // `remove` reports errors; here the test has failed already.
        let _ = self.remove();
    }
}

/// The mount points of all cgroup hierarchies.
pub(super) fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot list mounts")?;
    let found: BTreeSet<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let is_cgroup = kind.starts_with("cgroup ") || kind.starts_with("cgroup2 ");
            is_cgroup.then(|| place.split(' ').nth(4).map(PathBuf::from))?
        })
        .collect();
    if found.is_empty() {
        bail!("no cgroup hierarchy is mounted");
    }
    Ok(found.into_iter().collect())
}

/// Removes a group and all below it. Processes that were killed may still be about to leave.
fn remove(group: &Path) -> Result<()> {
    let deadline = Instant::now() + REMOVAL;
    while let Err(error) = try_remove(group) {
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn try_remove(group: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(group) else {
        return Ok(()); // gone
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            try_remove(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))
}
