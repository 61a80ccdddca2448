//! The contents that files had before the agent changed them, on disk, so that they can be restored after a crash.
//!
//! One line per file, with tabs between the fields. It is replaced as a whole, so that it is never half written.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::hierarchy::Controller;

use super::file::File;

const CONTROLLERS: [(&str, Controller); 3] = [
    ("cpu", Controller::Cpu),
    ("cpuset", Controller::CpuSet),
    ("memory", Controller::Memory),
];
/// The files that the agent changes.
const NAMES: [&str; 10] = [
    "cpu.cfs_quota_us",
    "cpu.idle",
    "cpu.max",
    "cpu.shares",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.memory_migrate",
    "cpuset.mems",
    "memory.limit_in_bytes",
    "memory.max",
];
/// No more files are changed than fit into this many lines.
const MOST_LINES: usize = 100_000;

/// The original contents by file.
pub(super) type Originals = BTreeMap<File, String>;

pub(super) fn read(path: &Path) -> io::Result<Originals> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().take(MOST_LINES).filter_map(parse).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Originals::new()),
        Err(error) => Err(error),
    }
}

pub(super) fn write(path: &Path, originals: &Originals) -> io::Result<()> {
    if originals.len() > MOST_LINES {
        return Err(io::Error::other("too many files are changed"));
    }
    let mut unfinished = PathBuf::from(path);
    unfinished.set_extension("unfinished");
    let mut file = std::fs::File::create(&unfinished)?;
    let mut text = String::new();
    for (file, original) in originals {
        let controller = CONTROLLERS.iter().find(|(_, it)| *it == file.controller);
        let controller = controller.map_or("", |(name, _)| name);
        let (depth, path, name) = (file.depth, &file.path, file.name);
        text.push_str(&format!(
            "{depth}\t{controller}\t{path}\t{name}\t{original}\n"
        ));
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)
}

/// A line that is not understood names no file that the agent may change.
fn parse(line: &str) -> Option<(File, String)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [depth, controller, path, name, original] = fields[..] else {
        return None;
    };
    let (_, controller) = CONTROLLERS.iter().find(|(it, _)| *it == controller)?;
    let file = File {
        depth: depth.parse().ok()?,
        path: path.to_owned(),
        controller: *controller,
        name: NAMES.iter().find(|it| **it == name)?,
    };
    Some((file, original.to_owned()))
}
