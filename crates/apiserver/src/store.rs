//! The objects of the cluster, with one writer at a time, one revision counter and recent history.
//!
//! It holds keys, revisions and watchers, and does not interpret objects.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub(crate) mod object;
mod table;

use object::{Change, Draft, Object};
use table::Table;
pub(crate) use table::WatchEvent;

/// How much of the past is kept.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Changes per resource that a watch can resume from.
    pub history_events: usize,
    /// Bytes of those changes per resource.
    pub history_bytes: usize,
    /// Changes older than this are forgotten.
    pub history_age: Duration,
    /// Objects of kinds that expire (events); the oldest go first.
    pub expiring_objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The real server's watch cache holds at most 102,400 changes per resource.
            history_events: 100_000,
            history_bytes: 128 << 20,
            // The real server compacts every five minutes.
            history_age: Duration::from_secs(300),
            expiring_objects: 20_000,
        }
    }
}

/// The requested revision is older than the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) oldest: u64,
}

/// The object changed since it was read: read it again and repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict;

/// Which table; from [`Store::table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableId(usize);

pub(crate) struct Store {
    state: RwLock<State>,
    limits: Limits,
}

struct State {
    revision: u64,
    tables: Vec<(Box<str>, Table)>,
}

/// Objects in key order, and the revision they are of.
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Object>>,
}

/// Changes after a revision, and the revision up to which there are no others.
pub(crate) struct Changes {
    pub(crate) events: Vec<WatchEvent>,
    pub(crate) complete_to: u64,
}

impl Store {
    pub(crate) fn new(limits: Limits) -> Self {
        // Resource version 0 means "any" and 1 would be below the first write's predecessor.
        let state = State {
            revision: 1,
            tables: Vec::new(),
        };
        Self {
            state: RwLock::new(state),
            limits,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of a resource, made on first use.
    pub(crate) fn table(
        &self,
        group: &str,
        plural: &str,
        time_to_live: Option<Duration>,
    ) -> TableId {
        let name = format!("{group}/{plural}");
        let tables = &mut self.write().tables;
        let known = tables.iter().position(|(known, _)| **known == *name);
        TableId(known.unwrap_or_else(|| {
            tables.push((name.into(), Table::new(time_to_live)));
            tables.len() - 1
        }))
    }

    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    pub(crate) fn get(&self, table: TableId, key: &str) -> Option<Arc<Object>> {
        self.read().table(table).get(key).cloned()
    }

    pub(crate) fn scan(&self, table: TableId, prefix: &str, start: &str) -> Snapshot {
        self.expire(table);
        let state = self.read();
        Snapshot {
            revision: state.revision,
            objects: state.table(table).scan(prefix, start),
        }
    }

    pub(crate) fn scan_at(
        &self,
        table: TableId,
        prefix: &str,
        start: &str,
        revision: u64,
    ) -> Result<Snapshot, TooOld> {
        let state = self.read();
        let objects = state.table(table).scan_at(prefix, start, revision)?;
        Ok(Snapshot { revision, objects })
    }

    pub(crate) fn changes(&self, table: TableId) -> watch::Receiver<u64> {
        self.read().table(table).changes()
    }

    pub(crate) fn events_after(
        &self,
        table: TableId,
        revision: u64,
        at_most: usize,
    ) -> Result<Changes, TooOld> {
        let state = self.read();
        let events = state.table(table).events_after(revision, at_most)?;
        let complete_to = match events.last() {
            Some(last) if events.len() == at_most => last.object.revision,
            _ => state.revision.max(revision),
        };
        Ok(Changes {
            events,
            complete_to,
        })
    }

    /// Stores a new object; `Conflict` when the key is taken.
    pub(crate) fn create(&self, table: TableId, draft: Draft) -> Result<Arc<Object>, Conflict> {
        let mut state = self.write();
        if state.table(table).get(draft.key()).is_some() {
            return Err(Conflict);
        }
        let revision = state.next_revision();
        let object = Arc::new(draft.seal(revision));
        let now = Instant::now();
        let stored = state.table_mut(table);
        stored.apply(Arc::clone(&object), Change::Added, now, &self.limits);
        self.drop_expired(&mut state, table, now);
        Ok(object)
    }

    /// Replaces `current` if it still is the stored version.
    pub(crate) fn replace(
        &self,
        table: TableId,
        current: &Arc<Object>,
        draft: Draft,
    ) -> Result<Arc<Object>, Conflict> {
        let mut state = self.write();
        state.check_current(table, current)?;
        let revision = state.next_revision();
        let object = Arc::new(draft.seal(revision));
        let now = Instant::now();
        let stored = state.table_mut(table);
        stored.apply(Arc::clone(&object), Change::Modified, now, &self.limits);
        Ok(object)
    }

    /// Removes `current` if it still is the stored version; returns its last state.
    pub(crate) fn remove(
        &self,
        table: TableId,
        current: &Arc<Object>,
    ) -> Result<Arc<Object>, Conflict> {
        let mut state = self.write();
        state.check_current(table, current)?;
        Ok(self.remove_from(&mut state, table, current, Instant::now()))
    }

    fn remove_from(
        &self,
        state: &mut State,
        table: TableId,
        current: &Arc<Object>,
        now: Instant,
    ) -> Arc<Object> {
        let revision = state.next_revision();
        let last = Arc::new(current.reissued(Change::Deleted, revision));
        let stored = state.table_mut(table);
        stored.apply(Arc::clone(&last), Change::Deleted, now, &self.limits);
        last
    }

    fn expire(&self, table: TableId) {
        if self.read().table(table).expires() {
            self.drop_expired(&mut self.write(), table, Instant::now());
        }
    }

    fn drop_expired(&self, state: &mut State, table: TableId, now: Instant) {
        while let Some(object) = state.table_mut(table).next_expired(now, &self.limits) {
            self.remove_from(state, table, &object, now);
        }
    }

    /// Drops all history: older watches and lists of the past get 410 from now on.
    pub(crate) fn compact(&self) {
        let mut state = self.write();
        let revision = state.revision;
        for (_, table) in &mut state.tables {
            table.compact(revision);
        }
    }
}

impl State {
    fn table(&self, id: TableId) -> &Table {
        &self.tables[id.0].1
    }

    fn table_mut(&mut self, id: TableId) -> &mut Table {
        &mut self.tables[id.0].1
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn check_current(&self, table: TableId, current: &Arc<Object>) -> Result<(), Conflict> {
        match self.table(table).get(&current.key) {
            Some(stored) if Arc::ptr_eq(stored, current) => Ok(()),
            _ => Err(Conflict),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::Index;
    use serde_json::json;

    fn draft(key: &str, text: &str) -> Draft {
        let value = json!({"metadata": {"name": key}, "data": text});
        Draft::new(Change::Added, "", key, &value, Index::default())
    }

    fn store(limits: Limits) -> (Store, TableId) {
        let store = Store::new(limits);
        let table = store.table("", "things", None);
        (store, table)
    }

    fn texts(objects: &[Arc<Object>]) -> Vec<String> {
        let text =
            |o: &Arc<Object>| format!("{}={}", o.key, o.to_value()["data"].as_str().unwrap());
        objects.iter().map(text).collect()
    }

    #[test]
    fn keys_are_ordered_bytewise_and_the_past_can_be_listed() {
        let (store, table) = store(Limits::default());
        let a = store.create(table, draft("a/x", "1")).unwrap();
        let before = store.create(table, draft("a-b/x", "1")).unwrap().revision;
        store.replace(table, &a, draft("a/x", "2")).unwrap();
        store.create(table, draft("a/y", "2")).unwrap();
        let b = store.get(table, "a-b/x").unwrap();
        store.remove(table, &b).unwrap();

        assert_eq!(
            texts(&store.scan(table, "", "").objects),
            ["a/x=2", "a/y=2"]
        );
        let then = store.scan_at(table, "", "", before).unwrap();
        assert_eq!(texts(&then.objects), ["a-b/x=1", "a/x=1"]);
        let then = store.scan_at(table, "a/", "a/", before).unwrap();
        assert_eq!(texts(&then.objects), ["a/x=1"]);
    }

    #[test]
    fn a_write_to_an_outdated_version_is_a_conflict() {
        let (store, table) = store(Limits::default());
        let first = store.create(table, draft("a", "1")).unwrap();
        assert_eq!(store.create(table, draft("a", "1")).err(), Some(Conflict));
        store.replace(table, &first, draft("a", "2")).unwrap();
        assert_eq!(
            store.replace(table, &first, draft("a", "3")).err(),
            Some(Conflict)
        );
        assert_eq!(store.remove(table, &first).err(), Some(Conflict));
    }

    #[test]
    fn history_is_bounded_and_reports_its_oldest_revision() {
        let limits = Limits {
            history_events: 3,
            ..Limits::default()
        };
        let (store, table) = store(limits);
        let revisions: Vec<u64> = (0..5)
            .map(|i| {
                store
                    .create(table, draft(&i.to_string(), ""))
                    .unwrap()
                    .revision
            })
            .collect();
        let oldest = revisions[1];
        assert_eq!(
            store.events_after(table, oldest - 1, 10).err(),
            Some(TooOld { oldest })
        );
        let changes = store.events_after(table, oldest, 2).unwrap();
        assert_eq!(changes.events.len(), 2);
        assert_eq!(changes.complete_to, revisions[3]);

        store.compact();
        let newest = store.revision();
        assert!(store.events_after(table, newest - 1, 10).is_err());
        assert!(store.scan_at(table, "", "", newest - 1).is_err());
        assert_eq!(
            store.events_after(table, newest, 10).unwrap().events.len(),
            0
        );
    }

    #[test]
    fn expiring_objects_are_capped_and_a_rewrite_renews_them() {
        let limits = Limits {
            expiring_objects: 2,
            ..Limits::default()
        };
        let store = Store::new(limits);
        let table = store.table("", "events", Some(Duration::from_secs(3600)));
        let a = store.create(table, draft("a", "1")).unwrap();
        store.create(table, draft("b", "1")).unwrap();
        store.replace(table, &a, draft("a", "2")).unwrap();
        store.create(table, draft("c", "1")).unwrap();
        assert_eq!(texts(&store.scan(table, "", "").objects), ["a=2", "c=1"]);
        let last = store
            .events_after(table, 0, 10)
            .unwrap()
            .events
            .pop()
            .unwrap();
        assert_eq!((&*last.object.key, last.change), ("b", Change::Deleted));
    }
}
