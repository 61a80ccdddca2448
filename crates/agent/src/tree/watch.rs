//! Changes of directories, as the kernel announces them (inotify).
//!
//! Without announcements, for example because too many directories are watched on this machine, every question is answered
//! with "changed", and the caller lists the directories each time.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// None before the first scan, and if the kernel refused.
    inotify: Option<OwnedFd>,
    is_complete: bool,
    has_changed: bool,
}

impl Watch {
    pub(super) fn has_changed(&mut self) -> bool {
        self.read();
        self.has_changed || !self.is_complete
    }

    /// What changes from now on counts as a change after the scan.
    pub(super) fn start_scan(&mut self) {
        if self.inotify.is_none() {
            let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
            self.inotify = inotify::init(flags).ok();
        }
        self.read();
        self.has_changed = false;
        self.is_complete = self.inotify.is_some();
    }

    /// Watches a directory; call it before the directory is listed.
    pub(super) fn add(&mut self, directory: &Path) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        // Adding again also covers a directory that was removed and made anew under the same name.
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        match inotify::add_watch(inotify, directory, flags) {
            Ok(_) => {}
            // It ended meanwhile; its parent announced that.
            Err(Errno::NOENT) => {}
            Err(_) => self.is_complete = false,
        }
    }

    pub(super) fn finish_scan(&mut self, is_complete: bool) {
        self.is_complete &= is_complete;
    }

    fn read(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(inotify, &mut buffer);
        loop {
            match events.next() {
                // The end of a watch follows the removal of its directory, which the parent announces.
                Ok(event) if event.events() == ReadFlags::IGNORED => {}
                Ok(_) => self.has_changed = true,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.is_complete = false;
                    return;
                }
            }
        }
    }
}
