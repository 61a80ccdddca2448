//! The first file system of a guest: a cpio archive in the format `newc`, not compressed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

/// An archive that is being written. Parents of a file are added before it.
pub(super) struct Initramfs {
    file: BufWriter<fs::File>,
    added: BTreeSet<PathBuf>,
    inode: u32,
}

impl Initramfs {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file =
            fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            file: BufWriter::new(file),
            added: BTreeSet::new(),
            inode: 0,
        })
    }

    pub(super) fn directory(&mut self, path: &str) -> Result<()> {
        let path = Path::new(path);
        let parents: Vec<&Path> = path.ancestors().collect();
        for parent in parents.into_iter().rev() {
            if parent.parent().is_some() && self.added.insert(parent.to_owned()) {
                self.entry(parent, DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.add(path, FILE, content)
    }

    pub(super) fn script(&mut self, path: &str, text: &str) -> Result<()> {
        self.add(path, PROGRAM, text.as_bytes())
    }

    /// A program of this machine, under another path, with the libraries that it is linked to.
    pub(super) fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        self.copy(path, source)?;
        for library in super::image::libraries(source)? {
            if !self.added.contains(Path::new(&library)) {
                self.copy(&library, Path::new(&library))?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.entry(Path::new("/TRAILER!!!"), 0, &[])?;
        Ok(self.file.flush()?)
    }

    fn copy(&mut self, path: &str, source: &Path) -> Result<()> {
        let content =
            fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.add(path, PROGRAM, &content)
    }

    fn add(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let place = Path::new(path);
        if let Some(parent) = place.parent().and_then(Path::to_str) {
            self.directory(parent)?;
        }
        if !self.added.insert(place.to_owned()) {
            bail!("{path} is in the archive twice");
        }
        self.entry(place, mode, content)
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) -> Result<()> {
        let name = path.to_str().context("a path of the archive is text")?;
        let name = name.trim_start_matches('/');
        self.inode += 1;
        let size = u32::try_from(content.len())?;
        let name_size = u32::try_from(name.len() + 1)?;
        // inode, mode, uid, gid, links, time, size, four device numbers, size of the name, checksum
        let links = 1;
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0,
        ];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08X}")?;
        }
        header.extend_from_slice(name.as_bytes());
        header.push(0);
        self.padded(&header)?;
        self.padded(content)
    }

    /// Headers and contents start at multiples of four.
    fn padded(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        Ok(self.file.write_all(&[0; 3][..padding])?)
    }
}
