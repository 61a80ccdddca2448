//! How far each kind has been delivered to its component: for the fence, health checks and the status.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Resource;

/// A component whose watches fail for longer is not ready. With the time that pings take to find a dead connection, it
/// is not ready 30 s after the connection died.
const LONGEST_BROKEN: Duration = Duration::from_secs(10);
/// How often the state is looked at while nothing announces a change.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The progress of all kinds that a component watches.
#[derive(Debug)]
pub struct Progress {
    resources: Vec<&'static Resource>,
    /// By the plural name.
    kinds: Mutex<BTreeMap<&'static str, KindProgress>>,
    /// Some kind is to be listed again.
    relist: Notify,
}

/// The progress of one kind.
#[derive(Debug, Clone, Default)]
pub struct KindProgress {
    /// The resource version up to which everything has been delivered; empty before the first list.
    pub version: String,
    /// All objects have been delivered once, or there are none.
    pub synced: bool,
    /// The server does not have the kind, or there is no permission to read it and it is optional.
    pub missing: bool,
    /// It is optional and was not listed in time: the component works without it for now.
    pub late: bool,
    /// When anything of it was received last.
    pub heard: Option<Instant>,
    /// When the last list that was delivered in full began.
    pub listed: Option<Instant>,
    /// Since when it cannot be watched, and why.
    pub broken: Option<(Instant, String)>,
    /// That is because there is no permission.
    pub denied: bool,
    /// It is to be listed again.
    pub relist: bool,
}

impl KindProgress {
    /// For how long it cannot be watched.
    pub fn broken_for(&self) -> Duration {
        self.broken
            .as_ref()
            .map(|(since, _)| since.elapsed())
            .unwrap_or_default()
    }
}

/// Returns the reason once a check has failed for so long without a break.
pub async fn failing_for(time: Duration, check: impl Fn() -> Result<(), String>) -> String {
    let mut since: Option<Instant> = None;
    loop {
        match check() {
            Ok(()) => since = None,
            Err(why) if since.is_some_and(|since| since.elapsed() >= time) => return why,
            Err(_) => drop(since.get_or_insert_with(Instant::now)),
        }
        tokio::time::sleep(LOOK_EVERY.min(time / 10)).await;
    }
}

impl Progress {
    pub fn new(resources: impl IntoIterator<Item = &'static Resource>) -> Self {
        let resources: Vec<_> = resources.into_iter().collect();
        let kinds = resources
            .iter()
            .map(|it| (it.name(), KindProgress::default()));
        Self {
            kinds: Mutex::new(kinds.collect()),
            resources,
            relist: Notify::new(),
        }
    }

    pub fn resources(&self) -> &[&'static Resource] {
        &self.resources
    }

    pub fn kinds(&self) -> BTreeMap<&'static str, KindProgress> {
        self.lock().clone()
    }

    /// Whether what is known of a kind is current: it is watched now.
    pub fn is_followed(&self, kind: &str) -> bool {
        let kinds = self.lock();
        let kind = kinds.get(kind);
        kind.is_some_and(|it| it.broken.is_none() && !it.missing && !it.late)
    }

    /// Kinds that the component waits for: they have not been delivered in full yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let kinds = self.lock();
        let unsynced = kinds.iter().filter(|(_, kind)| !kind.synced && !kind.late);
        unsynced.map(|(name, _)| *name).collect()
    }

    /// Required kinds that were never listed, because there is no permission. The component waits for them.
    pub fn unpermitted(&self) -> Vec<&'static str> {
        let kinds = self.lock();
        let unpermitted = kinds.iter().filter(|(_, kind)| kind.denied && !kind.synced);
        unpermitted.map(|(name, _)| *name).collect()
    }

    /// A health check: every kind has been listed.
    pub fn check_synced(&self) -> Result<(), String> {
        match &self.unsynced()[..] {
            [] => Ok(()),
            kinds => Err(format!("not listed yet: {}", kinds.join(", "))),
        }
    }

    /// A health check: no watch of a required kind has failed for long.
    pub fn check_followed(&self) -> Result<(), String> {
        self.check_broken(LONGEST_BROKEN)
    }

    /// Everything that decisions need is known and followed.
    pub fn check_usable(&self) -> Result<(), String> {
        self.check_synced()?;
        self.check_broken(Duration::ZERO)
    }

    /// Returns once the check succeeds.
    pub async fn usable(&self) {
        while self.check_usable().is_err() {
            tokio::time::sleep(LOOK_EVERY / 4).await;
        }
    }

    fn check_broken(&self, longest: Duration) -> Result<(), String> {
        let kinds = self.lock();
        let required = self.resources.iter().filter(|it| !it.optional);
        let failing = required.map(|it| it.name()).filter(|name| {
            let kind = kinds.get(name);
            kind.is_some_and(|it| it.broken.is_some() && it.broken_for() >= longest)
        });
        let failing: Vec<&str> = failing.collect();
        match &failing[..] {
            [] => Ok(()),
            kinds => Err(format!("cannot list or watch: {}", kinds.join(", "))),
        }
    }

    /// Everything up to this resource version has been delivered.
    pub(super) fn passed(&self, kind: &'static str, version: &str) {
        self.change(kind, |kind| {
            kind.heard = Some(Instant::now());
            if kind.version != version {
                version.clone_into(&mut kind.version);
            }
        });
    }

    /// A list that began then has been delivered in full.
    pub(super) fn listed(&self, kind: &'static str, begun: Instant, version: &str) {
        self.change(kind, |kind| {
            kind.listed = Some(begun);
            kind.missing = false;
            kind.relist = false;
        });
        self.passed(kind, version);
    }

    /// Returns whether the component waited for it.
    pub(super) fn synced(&self, kind: &'static str) -> bool {
        let mut waited = false;
        self.change(kind, |kind| {
            waited = !kind.synced && !kind.late;
            (kind.synced, kind.late) = (true, false);
        });
        waited
    }

    /// The component goes on without the kind. Returns whether it waited for it.
    pub(super) fn late(&self, kind: &'static str) -> bool {
        let mut waited = false;
        self.change(kind, |kind| {
            waited = !kind.synced && !kind.late;
            kind.late |= waited;
        });
        waited
    }

    pub(super) fn is_synced(&self, kind: &'static str) -> bool {
        self.lock().get(kind).is_some_and(|kind| kind.synced)
    }

    pub(super) fn missing(&self, kind: &'static str) {
        self.change(kind, |kind| {
            kind.missing = true;
            (kind.broken, kind.denied) = (None, false);
        });
    }

    pub(super) fn broken(&self, kind: &'static str, why: &str) {
        self.change(kind, |kind| {
            let since = kind.broken.take().map_or_else(Instant::now, |(at, _)| at);
            kind.broken = Some((since, why.to_owned()));
            kind.denied = false;
        });
    }

    /// It is required, and there is no permission to read it.
    pub(super) fn denied(&self, kind: &'static str, why: &str) {
        self.broken(kind, why);
        self.change(kind, |kind| kind.denied = true);
    }

    pub(super) fn recovered(&self, kind: &'static str) {
        self.change(kind, |kind| (kind.broken, kind.denied) = (None, false));
    }

    /// Has these kinds listed again.
    pub fn list_again(&self, names: &[&'static str]) {
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

    fn change(&self, kind: &'static str, change: impl FnOnce(&mut KindProgress)) {
        change(self.lock().entry(kind).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, KindProgress>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
