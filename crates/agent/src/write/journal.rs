//! The contents that files had before the agent changed them, on disk, so that they can be restored after a crash.
//!
//! One record per file, with tabs between the fields and a checksum before them. The journal is replaced as a whole, so that it is
//! never half written. A second file has the number of records, which the journal has at least: it is lowered before records are
//! removed, and raised after records were added, so that a kill between two writes is no damage. The journal of the first version
//! has neither.

use std::collections::BTreeMap;
use std::fs::File as DiskFile;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use reconcile::fnv1a;

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
/// The first line of today's journals.
const HEADER: &str = "tidepool-agent journal 2";
/// No more files are changed than fit into this many records.
const MOST_RECORDS: usize = 100_000;
/// A larger file is not one of ours.
const LARGEST: u64 = 64 << 20;

/// The original contents by file.
pub(super) type Originals = BTreeMap<File, String>;

/// What the disk has.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Those of the records that are as they were written.
    pub(super) originals: Originals,
    /// The number in the second file; none if there is none.
    pub(super) count: Option<usize>,
    pub(super) damage: Option<Damage>,
}

/// What is wrong with a journal. The originals of some changed files are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("{good} of its records can be read, {bad} cannot")]
    Records { good: usize, bad: usize },
    #[error("it has {good} records instead of {count}")]
    Missing { good: usize, count: usize },
    #[error("the file with the number of its records cannot be read")]
    Count,
    #[error("it has more than {LARGEST} bytes")]
    Large,
}

/// The file with the number of records.
pub(super) fn count_path(journal: &Path) -> PathBuf {
    journal.with_extension("count")
}

pub(super) fn read(path: &Path) -> io::Result<Journal> {
    let text = match content(path)? {
        DiskContent::Text(text) => text,
        DiskContent::Missing => Vec::new(),
        DiskContent::Large => {
            return Ok(Journal {
                damage: Some(Damage::Large),
                ..Journal::default()
            });
        }
    };
    let count = match content(&count_path(path))? {
        DiskContent::Text(text) => Some(text),
        DiskContent::Missing => None,
        // It is no number.
        DiskContent::Large => Some(Vec::new()),
    };
    Ok(parse(&text, count.as_deref()))
}

enum DiskContent {
    Missing,
    Large,
    Text(Vec<u8>),
}

fn content(path: &Path) -> io::Result<DiskContent> {
    let file = match DiskFile::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DiskContent::Missing),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    let is_large = u64::try_from(text.len()).is_ok_and(|size| size > LARGEST);
    Ok(match is_large {
        true => DiskContent::Large,
        false => DiskContent::Text(text),
    })
}

/// `count` is the text of the second file, none if there is no such file. An empty one is no number.
fn parse(text: &[u8], count: Option<&[u8]>) -> Journal {
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    // Behind the last line break: nothing, or a record that a kill cut off. Nothing was changed for it.
    let tail = lines.pop().unwrap_or_default();
    let counted = || checked(count?.strip_suffix(b"\n")?)?.parse::<usize>().ok();
    let counted = counted();
    // The first journal of today's form follows the number 0.
    let is_old = count.is_none() || counted == Some(0);
    let is_first_version = is_old && lines.first() != Some(&HEADER.as_bytes());
    let record = |line: &[u8]| match is_first_version {
        true => fields(std::str::from_utf8(line).ok()?),
        false => fields(checked(line)?),
    };
    let records = lines.iter().filter(|line| **line != HEADER.as_bytes());
    let records: Vec<Option<(File, String)>> = records.map(|line| record(line)).collect();
    let bad = records.iter().filter(|it| it.is_none()).count();
    let mut originals: Originals = records.into_iter().flatten().collect();
    // The tail of a journal of the first version may be cut off anywhere, and still look whole.
    originals.extend(record(tail).filter(|_| !is_first_version));
    let good = originals.len();
    let damage = match (bad, counted) {
        (1.., _) => Some(Damage::Records { good, bad }),
        (0, _) if is_first_version => None,
        (0, None) => Some(Damage::Count),
        (0, Some(count)) if good < count => Some(Damage::Missing { good, count }),
        (0, Some(_)) => None,
    };
    Journal {
        originals,
        count: counted,
        damage,
    }
}

/// Replaces the journal. `known` is the number in the second file, if there is one.
pub(super) fn write(path: &Path, known: Option<usize>, originals: &Originals) -> io::Result<()> {
    let count = originals.len();
    if count > MOST_RECORDS {
        return Err(io::Error::other("too many files are changed"));
    }
    let mut text = String::new();
    if count > 0 {
        text = format!("{HEADER}\n");
    }
    for (file, original) in originals {
        let controller = CONTROLLERS.iter().find(|(_, it)| *it == file.controller);
        let controller = controller.map_or("", |(name, _)| name);
        let (depth, path, name) = (file.depth, &file.path, file.name);
        text.push_str(&line(&format!(
            "{depth}\t{controller}\t{path}\t{name}\t{original}"
        )));
    }
    let write_count = |count: usize| replace(&count_path(path), &line(&count.to_string()));
    let lowest = known.unwrap_or(0).min(count);
    if known != Some(lowest) {
        write_count(lowest)?;
    }
    replace(path, &text)?;
    match lowest == count {
        true => Ok(()),
        false => write_count(count),
    }
}

/// Replaces a damaged journal by an empty one. Until the last write the second file is no number, so that a kill between two writes
/// does not hide the damage.
pub(super) fn write_anew(path: &Path) -> io::Result<()> {
    replace(&count_path(path), "")?;
    replace(path, "")?;
    replace(&count_path(path), &line("0"))
}

/// Copies a journal that is damaged, so that it can be looked at.
pub(super) fn copy_aside(path: &Path) -> io::Result<()> {
    match std::fs::copy(path, path.with_extension("damaged")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let mut file = DiskFile::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)
}

/// A line with its checksum.
fn line(text: &str) -> String {
    format!("{:016x}\t{text}\n", fnv1a(text.as_bytes()))
}

/// The text of a line whose checksum is right.
fn checked(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_once('\t')?;
    (sum == format!("{:016x}", fnv1a(text.as_bytes()))).then_some(text)
}

/// A line that is not understood names no file that the agent may change.
fn fields(line: &str) -> Option<(File, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn originals(count: usize) -> Originals {
        let record = |number: usize| {
            let file = File {
                depth: 2,
                path: format!("kubepods/besteffort/pod{number}"),
                controller: Controller::Memory,
                name: "memory.max",
            };
            (file, "max".to_owned())
        };
        (0..count).map(record).collect()
    }

    fn written(count: usize) -> (Vec<u8>, Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write(&path, None, &originals(count)).unwrap();
        let read = |path: &Path| std::fs::read(path).unwrap();
        (read(&path), read(&count_path(&path)))
    }

    #[test]
    fn what_is_written_is_read_and_each_damage_is_noticed() {
        let (text, count) = written(3);
        let (_, count_of_two) = written(2);
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        let changed = |from: &str, to: &str| {
            let text = String::from_utf8(text.clone()).unwrap();
            text.replacen(from, to, 1).into_bytes()
        };
        let cut = |bytes: usize| text[..text.len() - bytes].to_vec();
        let missing = |good, count| Some(Damage::Missing { good, count });
        let records = |good, bad| Some(Damage::Records { good, bad });
        for (case, text, count, good, damage) in [
            ("as written", text.clone(), Some(count.clone()), 3, None),
            (
                "the value of a record is another",
                changed("\tmax", "\tmix"),
                Some(count.clone()),
                2,
                records(2, 1),
            ),
            (
                "a byte is not text",
                [&lines[..2].concat()[..], b"\xff\n", lines[3]].concat(),
                Some(count.clone()),
                2,
                records(2, 1),
            ),
            (
                "a line is empty",
                changed("\n", "\n\n"),
                Some(count.clone()),
                3,
                records(3, 1),
            ),
            (
                "the first line is another",
                changed("journal 2", "journal 3"),
                Some(count.clone()),
                3,
                records(3, 1),
            ),
            (
                "a record is missing",
                lines[..3].concat(),
                Some(count.clone()),
                2,
                missing(2, 3),
            ),
            (
                "a record is there twice",
                [lines[0], lines[1], lines[1], lines[2]].concat(),
                Some(count.clone()),
                2,
                missing(2, 3),
            ),
            (
                "a counted record is cut off",
                cut(5),
                Some(count.clone()),
                2,
                missing(2, 3),
            ),
            (
                "a kill cut off the last record before it counted",
                cut(5),
                Some(count_of_two.clone()),
                2,
                None,
            ),
            ("only its line break", cut(1), Some(count.clone()), 3, None),
            (
                "a kill before it counted",
                text.clone(),
                Some(count_of_two),
                3,
                None,
            ),
            (
                "the number is gone",
                text.clone(),
                None,
                3,
                Some(Damage::Count),
            ),
            (
                "the number is empty",
                text.clone(),
                Some(Vec::new()),
                3,
                Some(Damage::Count),
            ),
            (
                "the number is empty, and the journal is gone",
                Vec::new(),
                Some(Vec::new()),
                0,
                Some(Damage::Count),
            ),
            (
                "the number is another",
                text.clone(),
                Some(b"2\n".to_vec()),
                3,
                Some(Damage::Count),
            ),
            (
                "the journal is gone",
                Vec::new(),
                Some(count.clone()),
                0,
                missing(0, 3),
            ),
            ("nothing", Vec::new(), None, 0, None),
            ("no record", written(0).0, Some(written(0).1), 0, None),
        ] {
            let found = parse(&text, count.as_deref());
            assert_eq!(
                (found.originals.len(), found.damage),
                (good, damage),
                "{case}"
            );
            let all = originals(3);
            assert!(
                found
                    .originals
                    .iter()
                    .all(|(file, text)| all.get(file) == Some(text)),
                "{case}"
            );
        }
    }

    #[test]
    fn every_changed_byte_is_noticed_or_harmless() {
        let (text, count) = written(3);
        let all = originals(3);
        for position in 0..text.len() {
            for byte in [0, b'\t', b'\n', b'0', b'x', 0xff] {
                let mut text = text.clone();
                text[position] = byte;
                let found = parse(&text, Some(&count));
                let is_whole = found.originals == all;
                assert!(found.damage.is_some() || is_whole, "{position} {byte}");
                let is_known = |(file, text)| all.get(file) == Some(text);
                assert!(found.originals.iter().all(is_known), "{position} {byte}");
            }
        }
        for length in 0..text.len() - 1 {
            assert!(
                parse(&text[..length], Some(&count)).damage.is_some(),
                "{length}"
            );
        }
    }

    #[test]
    fn a_journal_of_the_first_version_is_read() {
        let line = "2\tmemory\tkubepods/besteffort/pod0\tmemory.max\tmax\n";
        let (_, zero) = written(0);
        let (_, three) = written(3);
        for (case, text, count, good, is_damaged) in [
            ("whole", line.to_owned(), None, 1, false),
            (
                "a kill before the new one was written",
                line.to_owned(),
                Some(&zero[..]),
                1,
                false,
            ),
            ("cut off", format!("{line}2\tmemory\tkube"), None, 1, false),
            (
                "cut off in its value",
                format!("{line}{}", &line[..line.len() - 2]),
                None,
                1,
                false,
            ),
            ("not understood", format!("oops\n{line}"), None, 1, true),
            (
                "a new one was there",
                line.to_owned(),
                Some(&three[..]),
                0,
                true,
            ),
        ] {
            let found = parse(text.as_bytes(), count);
            let is_found = (found.originals.len(), found.damage.is_some());
            assert_eq!(is_found, (good, is_damaged), "{case}");
        }
    }

    #[test]
    fn a_kill_between_two_writes_is_no_damage() {
        let parts = |from: usize, to: usize| -> Vec<(Vec<u8>, Vec<u8>)> {
            let (old, new) = (written(from), written(to));
            let lowest = written(from.min(to)).1;
            vec![
                old.clone(),
                (old.0, lowest.clone()),
                (new.0.clone(), lowest),
                new,
            ]
        };
        for (from, to) in [(0, 3), (3, 0), (3, 5), (5, 3), (3, 3)] {
            for (step, (text, count)) in parts(from, to).into_iter().enumerate() {
                let found = parse(&text, Some(&count));
                assert_eq!(found.damage, None, "{from} to {to}, {step}");
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut known = None;
        for count in [3, 5, 2, 2, 0, 1] {
            write(&path, known, &originals(count)).unwrap();
            let found = read(&path).unwrap();
            assert_eq!((found.count, found.damage), (Some(count), None));
            assert_eq!(found.originals, originals(count));
            known = Some(count);
        }
    }

    #[test]
    fn a_kill_between_two_writes_of_a_restore_does_not_hide_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (text, _) = written(3);
        let damaged = [
            (&text[..], None),
            (&text[..], Some("9\n")),
            (b"oops\n", Some("")),
        ];
        for (text, count) in damaged {
            let _ = std::fs::remove_file(count_path(&path));
            std::fs::write(&path, text).unwrap();
            if let Some(count) = count {
                std::fs::write(count_path(&path), count).unwrap();
            }
            assert!(read(&path).unwrap().damage.is_some());
            // The write of the journal fails, then a kill comes after it.
            let unfinished = directory.path().join("journal.unfinished");
            std::fs::create_dir(&unfinished).unwrap();
            write_anew(&path).unwrap_err();
            assert!(read(&path).unwrap().damage.is_some());
            std::fs::remove_dir(&unfinished).unwrap();
            replace(&path, "").unwrap();
            assert_eq!(read(&path).unwrap().damage, Some(Damage::Count));
            write_anew(&path).unwrap();
            assert_eq!(read(&path).unwrap().damage, None);
        }
    }
}
