//! How far each kind has been told to the engine, for whoever must know: the fence, the health checks and people.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::ALL;

/// A component whose watches fail for longer is not ready.
const LONGEST_BROKEN: Duration = Duration::from_secs(30);

/// Of every kind, by its plural name.
#[derive(Debug)]
pub struct Progress {
    kinds: Mutex<BTreeMap<&'static str, Kind>>,
    /// Something is to be listed again.
    relist: Notify,
}

/// One kind.
#[derive(Debug, Clone, Default)]
pub struct Kind {
    /// The version up to which everything has been told; empty before the first list.
    pub version: String,
    /// It has been told in full once, or there is nothing to be told.
    pub synced: bool,
    /// The server does not have it, or does not show it to us, and we do without.
    pub missing: bool,
    /// When the last word of it came.
    pub heard: Option<Instant>,
    /// When the last list that was told in full began.
    pub listed: Option<Instant>,
    /// Since when it cannot be followed, and why.
    pub broken: Option<(Instant, String)>,
    /// It is to be listed again.
    pub(crate) relist: bool,
}

impl Kind {
    /// For how long it cannot be followed.
    pub fn broken_for(&self) -> Duration {
        self.broken
            .as_ref()
            .map(|(since, _)| since.elapsed())
            .unwrap_or_default()
    }
}

impl Default for Progress {
    fn default() -> Self {
        let kinds = ALL.iter().map(|kind| (kind.name, Kind::default()));
        Self {
            kinds: Mutex::new(kinds.collect()),
            relist: Notify::new(),
        }
    }
}

impl Progress {
    pub fn kinds(&self) -> BTreeMap<&'static str, Kind> {
        self.lock().clone()
    }

    /// Kinds that have not been told in full yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let kinds = self.lock();
        let unsynced = kinds.iter().filter(|(_, kind)| !kind.synced);
        unsynced.map(|(name, _)| *name).collect()
    }

    /// A health check: every kind has been listed.
    pub fn check_synced(&self) -> Result<(), String> {
        match &self.unsynced()[..] {
            [] => Ok(()),
            kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
        }
    }

    /// A health check: no watch has failed for long.
    pub fn check_followed(&self) -> Result<(), String> {
        let kinds = self.lock();
        let failing = kinds
            .iter()
            .filter(|(_, kind)| kind.broken_for() > LONGEST_BROKEN);
        let failing: Vec<&str> = failing.map(|(name, _)| *name).collect();
        match &failing[..] {
            [] => Ok(()),
            kinds => Err(format!("cannot list or watch: {}", kinds.join(", "))),
        }
    }

    /// Everything up to this version has been told.
    pub(super) fn passed(&self, kind: &'static str, version: &str) {
        self.change(kind, |kind| {
            kind.heard = Some(Instant::now());
            if kind.version != version {
                version.clone_into(&mut kind.version);
            }
        });
    }

    /// A list that began then has been told in full.
    pub(super) fn listed(&self, kind: &'static str, begun: Instant, version: &str) {
        self.change(kind, |kind| {
            kind.listed = Some(begun);
            kind.missing = false;
            kind.relist = false;
        });
        self.passed(kind, version);
    }

    pub(super) fn synced(&self, kind: &'static str) {
        self.change(kind, |kind| kind.synced = true);
    }

    pub(super) fn missing(&self, kind: &'static str) {
        self.change(kind, |kind| {
            kind.missing = true;
            kind.broken = None;
        });
    }

    pub(super) fn broken(&self, kind: &'static str, why: &str) {
        self.change(kind, |kind| {
            let since = kind.broken.take().map_or_else(Instant::now, |(at, _)| at);
            kind.broken = Some((since, why.to_owned()));
        });
    }

    pub(super) fn mended(&self, kind: &'static str) {
        self.change(kind, |kind| kind.broken = None);
    }

    /// Asks for these kinds to be listed again, whatever they are at.
    pub(crate) fn list_again(&self, names: &[&'static str]) {
        for name in names {
            self.change(name, |kind| kind.relist = true);
        }
        self.relist.notify_waiters();
    }

    /// Returns when the kind is to be listed again.
    pub(super) async fn asked_again(&self, kind: &'static str) {
        loop {
            let mut asked = std::pin::pin!(self.relist.notified());
            asked.as_mut().enable();
            if self.lock().get(kind).is_some_and(|kind| kind.relist) {
                return;
            }
            asked.await;
        }
    }

    fn change(&self, kind: &'static str, change: impl FnOnce(&mut Kind)) {
        change(self.lock().entry(kind).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
