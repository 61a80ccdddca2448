//! Where cgroups are on this machine: v1, v2 or hybrid.
//!
//! | version | directories below the mount point |
//! |---|---|
//! | v2 | the groups themselves |
//! | v1 | `cpu`, `cpuacct`, `cpuset`, `memory` ..., each with the groups |
//! | hybrid | as v1, and `unified`: cgroup v2 without controllers, for pressure only |

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// The largest file that is read. Longer ones are cut at the end of a line.
const LARGEST_FILE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
    Hybrid,
}

/// A hierarchy, by what the agent uses it for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    CpuAccounting,
    CpuSet,
    Memory,
    Pressure,
}

/// The directories of the hierarchies below the kubelet's root group.
#[derive(Debug)]
pub struct Hierarchies {
    version: Version,
    /// By controller; they may share a directory. One that is missing has no files.
    roots: [Option<Root>; 5],
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum HierarchyError {
    #[error(
        "{} has no cgroups: neither cgroup.controllers (v2) nor the directories cpu and memory (v1)",
        .0.display()
    )]
    NoCgroups(PathBuf),
    #[error("cannot open the cgroup {}", path.display())]
    Open { path: PathBuf, source: io::Error },
}

impl Hierarchies {
    /// Looks at a mount point, usually `/sys/fs/cgroup`. `group` is the kubelet's `cgroupRoot`, such as `/`.
    pub fn find(mount: &Path, group: &Path) -> Result<Self, HierarchyError> {
        let group = group.strip_prefix("/").unwrap_or(group);
        let has = |name: &str| mount.join(name).exists();
        let version = match (has("cgroup.controllers"), has("cpu") && has("memory")) {
            (true, _) => Version::V2,
            (_, true) if has("unified/cgroup.controllers") => Version::Hybrid,
            (_, true) => Version::V1,
            _ => return Err(HierarchyError::NoCgroups(mount.to_owned())),
        };
        let open = |name: &str| {
            let path = mount.join(name).join(group);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match rustix::fs::open(&path, flags, Mode::empty()) {
                Ok(directory) => Ok(Root { path, directory }),
                Err(error) => Err(HierarchyError::Open {
                    path,
                    source: error.into(),
                }),
            }
        };
        let names = match version {
            Version::V2 => [""; 5],
            _ => ["cpu", "cpuacct", "cpuset", "memory", "unified"],
        };
        let mut roots = names.map(|name| open(name).map(Some));
        if version == Version::V1 {
            roots[Controller::Pressure as usize] = Ok(None);
        }
        let [cpu, accounting, set, memory, pressure] = roots;
        Ok(Self {
            version,
            roots: [cpu?, accounting?, set?, memory?, pressure?],
        })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory in which pod groups are looked up.
    pub fn path(&self, controller: Controller) -> Option<&Path> {
        self.roots[controller as usize].as_ref().map(|it| &*it.path)
    }

    /// Opens a file of a group. The path cannot lead out of the hierarchy: no `..`, no symbolic link.
    pub fn open(&self, controller: Controller, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let Some(root) = &self.roots[controller as usize] else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(
            &root.directory,
            path,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }
}

/// Reads small files into one buffer.
#[derive(Debug)]
pub struct Reader {
    buffer: Box<[u8]>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            buffer: vec![0; LARGEST_FILE].into(),
        }
    }
}

impl Reader {
    pub fn read(&mut self, file: &OwnedFd) -> io::Result<&[u8]> {
        let mut length = 0;
        while length < self.buffer.len() {
            // From the start, because a file may have been read before.
            match rustix::io::pread(file, &mut self.buffer[length..], length as u64) {
                // The kernel returns a whole file at once if it fits: what is shorter than the buffer is the end.
                Ok(read) if read < self.buffer.len() - length => {
                    return Ok(&self.buffer[..length + read]);
                }
                Ok(read) => length += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let end = self.buffer.iter().rposition(|&byte| byte == b'\n');
        Ok(&self.buffer[..end.map_or(0, |end| end + 1)])
    }
}
