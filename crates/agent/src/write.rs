//! Writes cgroup settings.
//!
//! - A file is opened by a path that cannot leave the kubelet's cgroups, and only files of [`file::resolve`] are.
//! - Wider limits are written from the top down, then narrower ones from the bottom up: the kernel refuses a child that exceeds its
//!   parent, and after a crash between two writes all groups are valid.
//! - A memory limit is never below the present use.
//! - Each write is read back. A file that the kernel refuses is tried again after a growing delay.
//! - A file that another process overwrites three times within five minutes is left to that process.
//! - The contents before the first write are in a journal, from which [`Writer::restore`] undoes all changes. With a damaged one
//!   nothing is written.
//! - On cgroup v2 an empty cpuset means that of the parent. Containers with an empty one follow their pod, and are not written: each
//!   write of a cpuset takes the kernel milliseconds. But the kernel refuses to empty that of a group with processes. Such a
//!   group gets all that pods have; the kernel limits it to what the parent has.
//! - Of writes that are equally deep, those that narrow are made in the order of the settings, and those that widen in the opposite
//!   order.

pub mod file;
mod journal;
pub mod kubelet_values;
mod restore;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use engine::model::{Name, Timestamp};
use engine::node::{ChangedCpuset, Group, RefusedValue, Setting};
use rustix::fs::OFlags;

use crate::collect::has_ended;
use crate::hierarchy::{Controller, Hierarchies, Reader, Version};
use crate::tree::Tree;
use file::{Content, File, Refusal, Wanted, resolve};
pub use journal::Damage;
use journal::Originals;

/// After this many overwrites within the time the agent gives a file up.
const OVERWRITES: usize = 3;
const OVERWRITE_TIME: Duration = Duration::from_secs(5 * 60);
/// A file with the right content is read again after this time, to notice other writers.
const CHECK_TIME: Duration = Duration::from_secs(10);
/// The delays after a refused write.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(10 * 60);

/// The files of groups; tests replace them by a model of the kernel.
pub trait Cgroups {
    fn version(&self) -> Version;
    fn read(&mut self, controller: Controller, path: &str) -> io::Result<Vec<u8>>;
    fn write(&mut self, controller: Controller, path: &str, text: &str) -> io::Result<()>;
}

/// The files of the kernel.
pub struct KernelFiles<'a> {
    pub hierarchies: &'a Hierarchies,
    pub reader: &'a mut Reader,
}

impl Cgroups for KernelFiles<'_> {
    fn version(&self) -> Version {
        self.hierarchies.version()
    }

    fn read(&mut self, controller: Controller, path: &str) -> io::Result<Vec<u8>> {
        let file = self.hierarchies.open(controller, path, OFlags::RDONLY)?;
        Ok(self.reader.read(&file)?.to_vec())
    }

    fn write(&mut self, controller: Controller, path: &str, text: &str) -> io::Result<()> {
        let file = self
            .hierarchies
            .open(controller, path, OFlags::WRONLY | OFlags::TRUNC)?;
        // The kernel takes a value by one call or not at all. A line, because an empty write would do nothing.
        rustix::io::write(&file, format!("{text}\n").as_bytes())?;
        Ok(())
    }
}

/// Whether the writer changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Apply,
    /// It opens nothing for writing, and reports what it would write.
    DryRun,
}

/// What a writer did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that changed, or in a dry run would have, with their new content.
    pub written: Vec<(String, String)>,
    /// Files or settings that could not be applied, and why.
    pub failed: Vec<(String, String)>,
    /// Those of all periods that fail repeatedly: a group that starts or ends may refuse one write.
    pub failing: Vec<(String, String)>,
    /// Values of single pods that the kernel refuses repeatedly. They are not in `failing`.
    pub refused: Vec<RefusedValue>,
    /// Files that are left to another process.
    pub given_up: Vec<String>,
}

/// Keeps what it wrote, to notice other writers.
#[derive(Debug)]
pub struct Writer {
    mode: Mode,
    journal: PathBuf,
    originals: Originals,
    /// How many records the second file of the journal counts, if that is known.
    counted: Option<usize>,
    /// Only a writer that restores has a damaged journal.
    damage: Option<Damage>,
    files: BTreeMap<File, Known>,
    /// Paths of pods whose cpusets the journal lists; none after it changed.
    changed: Option<BTreeMap<String, ChangedCpuset>>,
    /// The process kills itself before this write; for tests.
    kill_before: Option<u64>,
}

#[derive(Debug, Default)]
struct Known {
    /// The content that the last write left.
    written: Option<Content>,
    /// The content that was asked for and found, and when to read the file again.
    verified: Option<(Content, Timestamp)>,
    /// When another process changed it since.
    overwritten: Vec<Timestamp>,
    retry: Option<Retry>,
    is_given_up: bool,
    /// Since when it has had its original content again.
    returned: Option<Timestamp>,
}

/// After a refused write.
#[derive(Debug)]
struct Retry {
    at: Timestamp,
    /// The delay before that time.
    delay: Duration,
    why: String,
    /// It is for the value that the kernel refused it.
    is_refused: bool,
}

/// One write of a batch.
#[derive(Debug)]
struct Step {
    file: File,
    content: Content,
    /// The last step of its file.
    is_last: bool,
    /// The position of the setting.
    rank: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot read the journal of changed cgroup files {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "the journal of changed cgroup files {} is damaged: {damage}; the agent writes no cgroup file until `tidepool agent --restore`",
        path.display()
    )]
    Damaged { path: PathBuf, damage: Damage },
}

impl Writer {
    /// Reads the journal of an earlier run, if there is one. Fails if it is damaged.
    pub fn new(mode: Mode, journal: PathBuf) -> Result<Self, JournalError> {
        let mut writer = Self::for_restore(mode, journal)?;
        match writer.damage.take() {
            None => Ok(writer),
            Some(damage) => Err(JournalError::Damaged {
                path: writer.journal,
                damage,
            }),
        }
    }

    /// Reads what can be read of the journal.
    pub fn for_restore(mode: Mode, journal: PathBuf) -> Result<Self, JournalError> {
        match journal::read(&journal) {
            Ok(known) => Ok(Self {
                mode,
                journal,
                originals: known.originals,
                counted: known.count,
                damage: known.damage,
                files: BTreeMap::new(),
                changed: None,
                kill_before: None,
            }),
            Err(source) => Err(JournalError::Read {
                path: journal,
                source,
            }),
        }
    }

    /// What is wrong with the journal.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    fn write_journal(&mut self, originals: &Originals) -> io::Result<()> {
        // After an error it is not known how many the disk has.
        let counted = self.counted.take();
        journal::write(&self.journal, counted, originals)?;
        self.counted = Some(originals.len());
        Ok(())
    }

    /// Ends the process by SIGKILL before the write with this number, counted from 1; so that tests find what a crash leaves.
    pub fn kill_before_write(&mut self, number: u64) {
        self.kill_before = Some(number);
    }

    /// The groups of pods whose cpusets, or those of their containers, the journal lists.
    pub fn changed_cpusets(&mut self, tree: &Tree) -> BTreeMap<Name, ChangedCpuset> {
        let changed = self.changed.get_or_insert_with(|| {
            let mut changed = BTreeMap::new();
            let files = self.originals.keys();
            for file in files.filter(|file| file.controller == Controller::CpuSet) {
                let path = file
                    .of_pod()
                    .map_or_else(|| file.path.clone(), |it| it.path);
                let kind = match file.name {
                    "cpuset.cpus" => ChangedCpuset::Cpus,
                    _ => ChangedCpuset::Mems,
                };
                let known = changed.entry(path).or_insert(kind);
                *known = kind.max(*known);
            }
            changed
        });
        let groups = tree.pods().iter();
        let groups = groups.filter_map(|(uid, pod)| {
            let kind = changed.get(&*pod.path)?;
            Some((uid.clone(), *kind))
        });
        groups.collect()
    }

    /// Gives the groups these settings; files without a setting stay as they are.
    pub fn apply(
        &mut self,
        cgroups: &mut impl Cgroups,
        tree: &Tree,
        settings: &[Setting],
        now: Timestamp,
    ) -> Report {
        let mut report = Report::default();
        let version = cgroups.version();
        let (mut wanted, mut groups) = (BTreeMap::new(), BTreeMap::new());
        for (rank, setting) in settings.iter().enumerate() {
            match resolve(setting, tree, version) {
                Ok(Some((file, Wanted::Content(content)))) => {
                    if let Some(pod) = setting.group.pod() {
                        groups.insert(file.clone(), pod);
                    }
                    wanted.insert(file, (rank, content, false));
                }
                Ok(Some((file, Wanted::Original))) => {
                    if let Some(content) = self.original(&file, version) {
                        wanted.insert(file, (rank, content, true));
                    }
                }
                Ok(None) => {} // the group has ended
                Err(refusal) => report.refuse(&setting.group, &refusal),
            }
        }
        let follows = |(file, (_, content, _)): (&File, &(usize, Content, bool))| {
            let pod = file.of_pod().and_then(|pod| wanted.get(&pod));
            let is_same = pod.is_some_and(|(_, of_pod, _)| of_pod == content);
            is_same.then(|| file.clone())
        };
        let following: BTreeSet<File> = match version {
            Version::V2 => wanted.iter().filter_map(follows).collect(),
            _ => BTreeSet::new(),
        };
        // The kernel has removed the files of other groups.
        self.files.retain(|file, _| wanted.contains_key(file));
        let (mut wider, mut narrower) = (Vec::new(), Vec::new());
        let mut is_returned = false;
        for (file, (rank, content, is_original)) in wanted {
            match self.plan(cgroups, &file, content, following.contains(&file), now) {
                Ok(steps) => {
                    for (step, is_wider) in steps {
                        let step = Step { rank, ..step };
                        (if is_wider { &mut wider } else { &mut narrower }).push(step);
                    }
                }
                Err(why) => report.fail(file.full_path(), why),
            }
            is_returned |= self.forget_returned(&file, is_original, now);
            if self.files.get(&file).is_some_and(|known| known.is_given_up) {
                report.given_up.push(file.full_path());
            }
        }
        wider.sort_by_key(|step| (step.file.depth, Reverse(step.rank)));
        narrower.sort_by_key(|step| (Reverse(step.file.depth), step.rank));
        if let Err(error) = self.record_originals(cgroups, wider.iter().chain(&narrower)) {
            report.fail("journal".to_owned(), error.to_string());
            // What cannot be undone is not done; other files still protect.
            let is_known = |step: &Step| self.originals.contains_key(&step.file);
            wider.retain(is_known);
            narrower.retain(is_known);
        }
        for step in wider.into_iter().chain(narrower) {
            self.take(cgroups, step, now, &mut report);
        }
        if is_returned && self.mode == Mode::Apply {
            let originals = std::mem::take(&mut self.originals);
            if let Err(error) = self.write_journal(&originals) {
                report.fail("journal".to_owned(), error.to_string());
            }
            self.originals = originals;
        }
        for (file, known) in &self.files {
            let Some(retry) = known.retry.as_ref().filter(|it| it.delay > FIRST_DELAY) else {
                continue;
            };
            let (path, why) = (file.full_path(), retry.why.clone());
            match groups.get(file).filter(|_| retry.is_refused) {
                // Somebody wrote a strange request. It must not stop the node from lending to others.
                Some(pod) => report.refused.push(RefusedValue {
                    pod: (*pod).clone(),
                    file: path,
                    why,
                }),
                None => report.failing.push((path, why)),
            }
        }
        report
    }

    /// What the file contained before it was changed; none if it was not.
    fn original(&self, file: &File, version: Version) -> Option<Content> {
        let original = self.originals.get(file);
        // On cgroup v1 a container that started in a changed pod has the pod's changed content.
        let inherited = || {
            let pod = file.of_pod().filter(|_| version != Version::V2)?;
            self.originals.get(&pod)
        };
        let original = original.or_else(inherited)?;
        kind_of(file.name).parse(original.as_bytes())
    }

    /// Removes a file from the journal that has had its original content for some time: it is not the agent's any more. Until then
    /// a container may appear that started before.
    fn forget_returned(&mut self, file: &File, is_original: bool, now: Timestamp) -> bool {
        let Some(known) = self.files.get_mut(file) else {
            return false;
        };
        if !is_original || known.verified.is_none() {
            known.returned = None;
            return false;
        }
        let since = *known.returned.get_or_insert(now);
        let is_over = now >= since.plus(CHECK_TIME);
        let is_returned = is_over && self.originals.remove(file).is_some();
        if is_returned {
            self.changed = None;
        }
        is_returned
    }

    /// The writes that a file needs, and whether each makes it wider. An empty set is right if the group follows its pod.
    fn plan(
        &mut self,
        cgroups: &mut impl Cgroups,
        file: &File,
        content: Content,
        follows: bool,
        now: Timestamp,
    ) -> Result<Vec<(Step, bool)>, String> {
        let known = self.files.entry(file.clone()).or_default();
        if matches!(&known.verified, Some((verified, until)) if *verified == content && now < *until)
        {
            return Ok(Vec::new());
        }
        let (asked, path) = (content.clone(), file.full_path());
        let read = cgroups.read(file.controller, &path);
        let present = match read {
            Ok(text) => content
                .parse(&text)
                .ok_or("the content is not as expected")?,
            Err(error) if has_ended(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error.to_string()),
        };
        known.notice_overwrite(&present, now, file);
        let content = match content {
            Content::Limit(Some(limit)) => {
                let used = match memory_use(cgroups, file) {
                    Err(error) if has_ended(&error) => return Ok(Vec::new()),
                    used => used.map_err(|error| error.to_string())?,
                };
                Content::Limit(Some(limit.max(used)))
            }
            other => other,
        };
        let waits = known.retry.as_ref().is_some_and(|retry| now < retry.at);
        let is_inherited = follows && is_empty_set(&present);
        let is_right = is_inherited
            || is_rounded(&content, &present)
            || is_whole(cgroups, file, &content, &present);
        known.verified = (is_right && content == asked).then(|| {
            // Not all files in the same period.
            let spread = Duration::from_secs(reconcile::fnv1a(path.as_bytes()) % 5);
            (asked, now.plus(CHECK_TIME.saturating_sub(spread)))
        });
        if is_right {
            known.retry = None;
        }
        if known.is_given_up || waits || is_right {
            return Ok(Vec::new());
        }
        let step = |content: Content, is_last| Step {
            file: file.clone(),
            content,
            is_last,
            rank: 0,
        };
        if content.covers(&present) {
            return Ok(vec![(step(content, true), true)]);
        }
        let mut steps = Vec::new();
        if let Some(both) = content.union(&present).filter(|both| *both != present) {
            steps.push((step(both, false), true));
        }
        steps.push((step(content, true), false));
        Ok(steps)
    }

    /// Saves the contents of files that are changed for the first time.
    fn record_originals<'a>(
        &mut self,
        cgroups: &mut impl Cgroups,
        steps: impl Iterator<Item = &'a Step>,
    ) -> io::Result<()> {
        if self.mode == Mode::DryRun {
            return Ok(());
        }
        let mut added = Originals::new();
        let version = cgroups.version();
        for step in steps {
            if self.originals.contains_key(&step.file) {
                continue;
            }
            let is_set = matches!(step.content, Content::Set(_));
            let pod = step.file.of_pod().filter(|_| is_set);
            let pod = pod.and_then(|pod| self.originals.get(&pod).or_else(|| added.get(&pod)));
            // On cgroup v1 a container that started in a changed pod has the pod's changed content.
            if let Some(original) = pod.filter(|_| version != Version::V2).cloned() {
                added.insert(step.file.clone(), original);
            } else if let Ok(text) = cgroups.read(step.file.controller, &step.file.full_path()) {
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                added.insert(step.file.clone(), text);
            }
        }
        if added.is_empty() {
            return Ok(());
        }
        self.changed = None;
        // Groups that have ended need no entry any more.
        self.originals
            .retain(|file, _| cgroups.read(file.controller, &file.full_path()).is_ok());
        added.extend(self.originals.clone());
        // Only what the journal has counts as known: after an error these are recorded again.
        self.write_journal(&added)?;
        self.originals = added;
        Ok(())
    }

    fn take(
        &mut self,
        cgroups: &mut impl Cgroups,
        step: Step,
        now: Timestamp,
        report: &mut Report,
    ) {
        let (version, path) = (cgroups.version(), step.file.full_path());
        let text = step.content.text(version);
        if self.mode == Mode::DryRun {
            report.written.push((path, text));
            return;
        }
        let known = self.files.entry(step.file.clone()).or_default();
        // A step that failed before means that the rest of this file waits.
        if known.retry.as_ref().is_some_and(|retry| now < retry.at) {
            return;
        }
        if let Some(left) = &mut self.kill_before {
            *left -= 1;
            if *left == 0 {
                kill_this_process();
            }
        }
        let result = write(cgroups, &step.file, &step.content);
        let result = result.and_then(|text| {
            let left = cgroups.read(step.file.controller, &path)?;
            Ok((text, left))
        });
        let failure = match result {
            Ok((text, left)) => match step.content.parse(&left) {
                Some(left)
                    if is_rounded(&step.content, &left)
                        || is_whole(cgroups, &step.file, &step.content, &left) =>
                {
                    known.retry = None;
                    known.written = step.is_last.then_some(left);
                    report.written.push((path, text));
                    return;
                }
                _ => {
                    let left = String::from_utf8_lossy(&left);
                    (format!("the kernel kept {}", left.trim()), true)
                }
            },
            Err(error) if has_ended(&error) => return,
            Err(error) => (error.to_string(), is_about_value(&error)),
        };
        let (failure, is_refused) = failure;
        // The agent chooses cpusets: what online pods rely on does not depend on requests.
        let is_refused = is_refused && step.file.controller != Controller::CpuSet;
        let delay = known
            .retry
            .as_ref()
            .map_or(FIRST_DELAY, |retry| (retry.delay * 2).min(LONGEST_DELAY));
        // A group that starts or ends may refuse one write.
        if known
            .retry
            .as_ref()
            .is_some_and(|it| it.delay == FIRST_DELAY)
        {
            tracing::warn!(
                file = path,
                value = text,
                why = failure,
                "cannot write cgroup file"
            );
        }
        known.retry = Some(Retry {
            at: now.plus(delay),
            delay,
            why: failure.clone(),
            is_refused,
        });
        report.failed.push((path, failure));
        // The kernel compares limits of a group and those below it: another process may have changed one that seems right.
        for (other, known) in &mut self.files {
            if other.is_related_to(&step.file) {
                known.verified = None;
            }
        }
    }
}

impl Report {
    /// A failure that is the same in each period.
    fn fail(&mut self, what: String, why: String) {
        self.failing.push((what.clone(), why.clone()));
        self.failed.push((what, why));
    }

    /// A setting that no group may have.
    fn refuse(&mut self, group: &Group, refusal: &Refusal) {
        let (file, why) = (format!("{group:?}"), refusal.to_string());
        match (group.pod().cloned(), refusal) {
            (Some(pod), Refusal::Shares(_) | Refusal::Quota(_)) => {
                self.failed.push((file.clone(), why.clone()));
                self.refused.push(RefusedValue { pod, file, why });
            }
            _ => self.fail(file, why),
        }
    }
}

impl Known {
    fn notice_overwrite(&mut self, present: &Content, now: Timestamp, file: &File) {
        let Some(written) = self.written.take_if(|written| written != present) else {
            return;
        };
        let since = |at: &Timestamp| at.plus(OVERWRITE_TIME) >= now;
        self.overwritten.retain(since);
        self.overwritten.push(now);
        if self.overwritten.len() >= OVERWRITES {
            self.is_given_up = true;
            let path = file.full_path();
            tracing::warn!(
                file = path,
                ?written,
                ?present,
                "another process overwrites cgroup file; leaving it alone"
            );
        }
    }
}

/// Whether the kernel refuses this value, or this one now, rather than every write of the file.
fn is_about_value(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errors = [Errno::INVAL, Errno::RANGE, Errno::OVERFLOW, Errno::BUSY];
    let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::ResourceBusy];
    errors
        .iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()))
        || kinds.contains(&error.kind())
}

/// The kernel rounds memory limits down to pages.
fn is_rounded(wanted: &Content, left: &Content) -> bool {
    const PAGE: u64 = 64 << 10;
    match (wanted, left) {
        (Content::Limit(Some(wanted)), Content::Limit(Some(left))) => {
            left <= wanted && wanted - left < PAGE
        }
        _ => wanted == left,
    }
}

/// Writes a content, and returns what was written.
fn write(cgroups: &mut impl Cgroups, file: &File, content: &Content) -> io::Result<String> {
    let (text, path) = (content.text(cgroups.version()), file.full_path());
    match cgroups.write(file.controller, &path, &text) {
        // The kernel refuses to empty the cpuset of a group with processes.
        Err(error) if error.kind() == io::ErrorKind::StorageFull && text.is_empty() => {
            let Some(whole) = whole_set(cgroups, file) else {
                return Err(error);
            };
            let text = whole.text(cgroups.version());
            cgroups.write(file.controller, &path, &text)?;
            Ok(text)
        }
        result => result.map(|()| text),
    }
}

/// Whether the group should have the cpuset of its parent, and has all that there is.
fn is_whole(cgroups: &mut impl Cgroups, file: &File, wanted: &Content, present: &Content) -> bool {
    is_empty_set(wanted) && whole_set(cgroups, file).is_some_and(|whole| present.covers(&whole))
}

/// The CPUs or memory nodes that all pods together may use.
fn whole_set(cgroups: &mut impl Cgroups, file: &File) -> Option<Content> {
    let (pods, _) = file.path.split_once('/')?;
    let path = format!("{pods}/{}.effective", file.name);
    let text = cgroups.read(file.controller, &path).ok()?;
    let whole = kind_of(file.name).parse(&text)?;
    (!is_empty_set(&whole)).then_some(whole)
}

fn is_empty_set(content: &Content) -> bool {
    matches!(content, Content::Set(set) if set.0.is_empty())
}

/// Rounded up to a page: a limit that the kernel rounds down must not be below the use.
fn memory_use(cgroups: &mut impl Cgroups, file: &File) -> io::Result<u64> {
    let name = match cgroups.version() {
        Version::V2 => "memory.current",
        _ => "memory.usage_in_bytes",
    };
    let text = cgroups.read(Controller::Memory, &format!("{}/{name}", file.path))?;
    let used = crate::parse::number(&text);
    let used = used.ok_or_else(|| io::Error::other(format!("{name} has no number")))?;
    Ok(used.checked_next_multiple_of(64 << 10).unwrap_or(used))
}

/// As if another process had killed it: nothing is cleaned up.
fn kill_this_process() {
    let this = rustix::process::getpid();
    // The process does not return from it.
    let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
}

/// The kind of content of a file that the agent changes.
fn kind_of(name: &str) -> Content {
    match name {
        "cpuset.cpus" | "cpuset.mems" => Content::Set(Default::default()),
        "cpu.max" | "cpu.cfs_quota_us" => Content::Quota(None),
        "memory.max" | "memory.limit_in_bytes" => Content::Limit(None),
        _ => Content::Number(0),
    }
}
