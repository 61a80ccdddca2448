//! Undoes what agents changed.

use std::collections::BTreeMap;

use super::file::{Content, File};
use super::{Cgroups, Mode, Report, Writer, is_whole, journal, kind_of, write};

impl Writer {
    /// Gives all changed files their original contents, wider ones first. The journal is empty afterwards, unless a write failed: it
    /// then has the files of these writes, and one that is damaged stays as it is.
    pub fn restore(&mut self, cgroups: &mut impl Cgroups) -> Report {
        self.restore_with(cgroups, Vec::new())
    }

    /// As [`Self::restore`], and gives others, of which the journal has no record, these contents.
    pub fn restore_with(
        &mut self,
        cgroups: &mut impl Cgroups,
        others: Vec<(File, Content)>,
    ) -> Report {
        let mut report = Report::default();
        if self.originals.is_empty() && others.is_empty() && self.damage.is_none() {
            return report; // perhaps there is not even a directory for the journal
        }
        let version = cgroups.version();
        let originals = std::mem::take(&mut self.originals);
        let mut wanted = BTreeMap::new();
        for (file, original) in &originals {
            match kind_of(file.name).parse(original.as_bytes()) {
                Some(content) => drop(wanted.insert(file.clone(), content)),
                None => report
                    .failed
                    .push((file.full_path(), "the journal has no value".to_owned())),
            }
        }
        for (file, content) in others {
            wanted.entry(file).or_insert(content);
        }
        let (mut wider, mut narrower) = (Vec::new(), Vec::new());
        for (file, content) in wanted {
            let Ok(present) = cgroups.read(file.controller, &file.full_path()) else {
                continue; // the group has ended
            };
            let present = content.parse(&present);
            let is_right = present.as_ref().is_some_and(|present| {
                *present == content || is_whole(cgroups, &file, &content, present)
            });
            if is_right {
                continue;
            }
            let is_wider = present.is_none_or(|present| content.covers(&present));
            (if is_wider { &mut wider } else { &mut narrower }).push((file, content));
        }
        narrower.reverse();
        let mut is_complete = true;
        for (file, content) in wider.into_iter().chain(narrower) {
            let written = match self.mode {
                Mode::DryRun => Ok(content.text(version)),
                Mode::Apply => write(cgroups, &file, &content),
            };
            match written {
                Ok(text) => report.written.push((file.full_path(), text)),
                Err(error) => {
                    is_complete = false;
                    report.failed.push((file.full_path(), error.to_string()));
                    if let Some(original) = originals.get(&file) {
                        self.originals.insert(file, original.clone());
                    }
                }
            }
        }
        self.files.clear();
        self.changed = None;
        if self.mode == Mode::DryRun {
            return report;
        }
        let saved = match self.damage.is_some() {
            true => self.end_damage(is_complete),
            false => {
                let originals = std::mem::take(&mut self.originals);
                let result = self.write_journal(&originals);
                self.originals = originals;
                result
            }
        };
        if let Err(error) = saved {
            let why = error.to_string();
            report.failed.push(("journal".to_owned(), why));
        }
        report
    }

    /// Begins an empty journal, once all that is known is restored. Until then the journal stays damaged: by that the next run, and
    /// the next agent, know that more is wrong than the failed writes.
    fn end_damage(&mut self, is_complete: bool) -> std::io::Result<()> {
        journal::copy_aside(&self.journal)?;
        if !is_complete {
            return Ok(());
        }
        self.counted = None;
        journal::write_anew(&self.journal)?;
        self.counted = Some(0);
        self.damage = None;
        Ok(())
    }
}
